"""Which rows of an index a search may return: those of one base, that pass the filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from program.errors import KnowledgeError
from program.passage import NO_FILTERS, Filters, Passage

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Selection:
    """The rows of an index by base, date and authority.

    The passages of a base stand together, so a base is a slice and its vectors are a view, not a copy.
    Dates are day ordinals, 0 when a passage has none.
    """

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.bases = [p.source for p in passages]
        self.days = np.array([p.as_of.toordinal() if p.as_of else 0 for p in passages], np.int64)
        self.authority = np.array([p.authority for p in passages], np.int64)
        self.attributes = [p.attributes for p in passages]
        self._spans: Mapping[str | None, slice] = {None: slice(0, len(passages)), **_spans(self.bases)}

    def span(self, base: str | None) -> slice:
        """The rows of a base, or of all with None. Raises KnowledgeError for a base that is not indexed."""
        if base not in self._spans:
            raise KnowledgeError(f"The index has no knowledge base {base!r}.", "Run: ragc index PROJECT")
        return self._spans[base]

    def admitted(self, base: str | None, filters: Filters = NO_FILTERS) -> NDArray[np.intp]:
        """The rows of a base that pass the filters, ascending; the same rule as `Filters.admits`."""
        span = self.span(base)
        days, keep = self.days[span], self.authority[span] >= filters.min_authority
        if filters.not_before is not None:
            keep &= days >= filters.not_before.toordinal()
        if filters.not_after is not None:
            keep &= (days > 0) & (days <= filters.not_after.toordinal())
        rows: NDArray[np.intp] = np.flatnonzero(keep) + span.start
        if filters.attributes:
            rows = rows[[filters.has_attributes(self.attributes[row]) for row in rows]]
        return rows


def best(scores: NDArray[np.floating], rows: NDArray[np.intp], k: int) -> list[int]:
    """The `k` of these rows with the highest scores, best first, the lower row first among equals."""
    if k <= 0 or not len(rows):
        return []
    mine = scores[rows]
    if k < len(rows):
        cut = np.partition(mine, len(rows) - k)[len(rows) - k]
        rows = rows[mine >= cut]
        mine = scores[rows]
    order = np.argsort(-mine, kind="stable")[:k]
    return [int(row) for row in rows[order]]


def _spans(bases: Sequence[str]) -> dict[str | None, slice]:
    spans: dict[str | None, slice] = {}
    for row, base in enumerate(bases):
        start = spans[base].start if base in spans else row
        spans[base] = slice(start, row + 1)
    return spans
