"""Table rows: which of them a question names, and which of their columns it asks for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from program.models.rules.units import Unit, render
from program.models.rules.words import expected, kinds, stems

if TYPE_CHECKING:
    from numpy.typing import NDArray

ELSEWHERE = 5.0  # how many times over, when a sibling's label is named in full


def row_marks(question: str, found: Sequence[Unit]) -> NDArray[np.float64]:
    """1 for a table row whose own label the question names, -1 for its sibling rows, 0 elsewhere."""
    asked = set(stems(question))
    marks = np.zeros(len(found))
    tables: dict[int, list[int]] = {}
    for j, unit in enumerate(found):
        if unit.cells:
            tables.setdefault(unit.n, []).append(j)
    for rows in tables.values():
        labels = {j: set(stems(found[j].cells[0][1])) for j in rows}
        common = {word for word in asked if sum(word in label for label in labels.values()) * 2 > len(rows)}
        named = {j: len((label - common) & asked) / (len(label - common) or 1) for j, label in labels.items()}
        if top := max(named.values()):
            for j in rows:
                marks[j] = 1.0 if named[j] == top else -ELSEWHERE if top == 1.0 else -1.0
    return marks


def shown(unit: Unit, question: str, queries: Sequence[str], said: str = "") -> str:
    """The unit as it is quoted: of a wide table row, the label and the columns asked about.

    Where columns are named like things (`Basic | Deluxe`), only those that the question or what was `said`
    before names are kept; else those whose heading shares a word with the question or that hold a value of
    the kind asked for. All are kept when none qualifies.
    """
    if len(unit.cells) < 3:
        return unit.text
    label, *rest = unit.cells
    if things := _things(f"{question} {' '.join(queries)} {said}", [column for column, _ in rest]):
        return render([label, *(pair for pair in rest if pair[0] in things)])
    asked = {word for text in (question, *queries) for word in stems(text)}
    wanted = {kind for text in (question, *queries) for kind in expected(text)[:1]}
    kept = [pair for pair in rest if asked & set(stems(pair[0])) or wanted & kinds(f"{pair[0]}: {pair[1]}")]
    return render([label, *kept]) if wanted and kept else unit.text


def _things(text: str, columns: Sequence[str]) -> set[str]:
    """The columns named in full in a text, longest first so that `X 3` is not found in `X 3 Pro`."""
    left, found = f" {' '.join(text.lower().split())} ", set()
    for column in sorted(columns, key=len, reverse=True):
        pattern = rf"(?<!\w){re.escape(column.lower())}(?!\w)"
        if any(c.isupper() for c in column) and " " in column and re.search(pattern, left):
            left = re.sub(pattern, " ", left)
            found.add(column)
    return found
