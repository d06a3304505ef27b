"""An answer as claims: its sentences, each with the passages it cites."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from program.answer import Citation
from program.passage import Passage
from program.signatures import Statement

_MARK = re.compile(r"\[(\d{1,3})\]")
_MARK_AT_END = re.compile(r"\[(\d{1,3})\]\Z")
LONGEST_MARK = len("[999]")
_CLAIM = re.compile(r".+?(?:\[\d{1,3}\])+[.;]?|.+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Claim:
    """A stretch of the answer up to its citation marks. `cites` holds passage numbers, from 1."""

    text: str
    cites: tuple[int, ...]

    @property
    def bare(self) -> str:
        """The claim without its marks."""
        return _MARK.sub("", self.text).strip()


def claims(answer: str) -> list[Claim]:
    """The answer's claims, in order; text after the last mark is a claim that cites nothing."""
    found = (match[0].strip() for match in _CLAIM.finditer(answer))
    return [Claim(text, tuple(dict.fromkeys(int(n) for n in _MARK.findall(text)))) for text in found if text]


def statements(stated: Sequence[Claim], passages: Sequence[Passage]) -> tuple[Statement, ...]:
    """The claims as a judge of the whole draft sees them, each under the title of the first passage it cites."""
    return tuple(
        Statement(title=next((passages[n - 1].title for n in claim.cites if n <= len(passages)), ""), text=claim.bare)
        for claim in stated
    )


def cited(answer: str, passages: Sequence[Passage]) -> tuple[str, tuple[Citation, ...]]:
    """The answer with its marks renumbered from 1 in order of use, and the citations they stand for.

    A mark that points at no passage is taken out: an answer cites only what the writer was given.
    """
    order: dict[int, int] = {}

    def renumbered(match: re.Match[str]) -> str:
        return f"[{order.setdefault(int(match[1]), len(order) + 1)}]"

    text = _MARK.sub(renumbered, _without_unknown(answer, len(passages))).strip()
    marks = tuple(
        Citation(new, p.source, p.id, p.title, p.reason) for old, new in order.items() for p in (passages[old - 1],)
    )
    return text, marks


def _without_unknown(answer: str, passages: int) -> str:
    """The answer without the marks of no passage, nor those that are marks only once another is gone: `[[0]0]`."""
    *parts, rest = answer.split("]")
    text = ""
    for part in parts:
        text += f"{part}]"
        mark = _MARK_AT_END.search(text, max(0, len(text) - LONGEST_MARK))
        if mark and not 1 <= int(mark[1]) <= passages:
            text = text[: mark.start()]
    return text + rest
