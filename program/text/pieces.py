"""A text cut into sentences, pieces that can be quoted, and claims with their citation marks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from textwrap import shorten
from typing import NamedTuple

from program.text.words import WORD

BULLET = re.compile(r"\s*[-*•]\s+")
"""The mark before an item of a list."""
_HEADING = re.compile(r"#{4,6} ")
_FENCE = re.compile(r"`{3,}")
_CELL = re.compile(r"; (?=[^;:]{1,80}: )")
_MONTH = re.compile(
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b|(?:januar|märz|mai|juni|juli|oktober|dezember)\b",
    re.I,
)
_ORDINAL = re.compile(r"(?<!\w)\d{1,2}\.$")
_ABBREVIATION = re.compile(r"(?<![\w.])[B-DF-HJ-NP-TV-Z][b-df-hj-np-tv-xz]{1,3}\.$")  # St, Mt: no vowel
_SHORT_WORD = re.compile(r"(?<![\w.])(?:[^\W\d_]\.?){1,4}\.$")
MARK = re.compile(r"\[(\d{1,3})\]")
"""A citation mark, with the number of a passage."""
_NO_MARK = "⁅"  # for the bracket of a figure that a quotation holds, `arr[10]`, until the marks are numbered
_MARK_AT_END, _LONGEST_MARK = re.compile(r"\[(\d{1,3})\]\Z"), len("[999]")
_MAY_BE_MARK = re.compile(r"\[\d{0,3}\Z")
_CLAIM = re.compile(r".+?(?:\[\d{1,3}\])+[.;]?|.+", re.DOTALL)
_PROMPT_MARK = re.compile(r"\[\[\s*##.*?##\s*\]\]")
QUOTED = 80  # characters of a question that an answer repeats
PIECES_KEPT = 20_000  # of the passages read last


class Piece(NamedTuple):
    """A part of a text that can be quoted, and its first and last character there, the last left out.

    It stands there word for word; a cell of a row of more than two stands behind the row's first.
    """

    text: str
    start: int
    end: int


@lru_cache(maxsize=PIECES_KEPT)
def split_pieces(text: str) -> tuple[Piece, ...]:
    """Return what can be quoted of a passage, in order.

    It is its sentences, the cells of its rows and its lines of code. A line is a paragraph, an item of a list behind
    `- `, a row `header: value; header: value`, or code between fences. Headings are left out.
    """
    return tuple(
        piece for piece in _walk_lines(text) if WORD.search(piece.text) and not _PROMPT_MARK.search(piece.text)
    )


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text."""
    return [text[start:end] for start, end in _sentence_places(text)]


def split_cells(row: str) -> list[str]:
    """Return the cells of a row as `header: value`, in order."""
    return _CELL.split(row)


def quote_shortly(text: str) -> str:
    """Return a text in quotation marks, cut at a word after QUOTED characters."""
    said = " ".join(text.split()).rstrip(" .")
    short = shorten(said, QUOTED, placeholder="…", break_on_hyphens=False)
    return f"“{short if short != '…' else said[: QUOTED - 1] + short}”" if said else ""


@dataclass(frozen=True, slots=True)
class Claim:
    """A stretch of an answer up to its citation marks. `cites` holds passage numbers, from 1."""

    text: str
    cites: tuple[int, ...]

    @property
    def bare(self) -> str:
        """The claim without its marks."""
        return MARK.sub("", self.text).replace(_NO_MARK, "[").strip()

    @classmethod
    def quote(cls, text: str, n: int) -> Claim:
        """Return a passage's words as a claim that cites it.

        What looks like a mark in them is none.
        """
        bare = MARK.sub(lambda match: _NO_MARK + match[0][1:], text)
        return cls(f"{bare.removesuffix('.')} [{n}].", (n,))


def split_claims(answer: str) -> list[Claim]:
    """Split an answer into claims; text after the last mark cites nothing."""
    found = (match[0].strip() for match in _CLAIM.finditer(answer))
    return [Claim(text, tuple(dict.fromkeys(int(n) for n in MARK.findall(text)))) for text in found if text]


def drop_unknown_marks(answer: str, passages: int) -> str:
    """Return the answer without marks of no passage, nor those that are marks only once another is gone: `[[0]0]`."""
    *parts, rest = answer.split("]")
    text = ""
    for part in parts:
        text += f"{part}]"
        mark = _MARK_AT_END.search(text, max(0, len(text) - _LONGEST_MARK))
        if mark and not 1 <= int(mark[1]) <= passages:
            text = text[: mark.start()]
    return text + rest


class MarkNumbering:
    """The numbering of a text's marks in order of use, whole or in pieces; what may become a mark is held back."""

    def __init__(self, passages: int) -> None:
        self.order: dict[int, int] = {}
        """The number given to each passage, by its place from 1."""
        self._passages = passages
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return what can be shown now, marks of no passage taken out."""
        text = self._held + piece
        at = _MAY_BE_MARK.search(text)
        cut = at.start() if at else len(text)
        self._held = text[cut:]
        return MARK.sub(self._renumber, drop_unknown_marks(text[:cut], self._passages)).replace(_NO_MARK, "[")

    def rest(self) -> str:
        """Return what is still held, at the end."""
        text, self._held = self._held, ""
        return text

    def _renumber(self, match: re.Match[str]) -> str:
        return f"[{self.order.setdefault(int(match[1]), len(self.order) + 1)}]"


def _walk_lines(text: str) -> Iterator[Piece]:
    at, fence = 0, ""
    for whole in text.splitlines(keepends=True):
        start, at = at, at + len(whole)
        line = whole.rstrip()
        if fence or _FENCE.match(line):
            opens = _FENCE.match(line)
            if not fence and opens:
                fence = opens[0]
            elif line == fence:
                fence = ""
            else:
                yield Piece(line.lstrip(), start + len(line) - len(line.lstrip()), start + len(line))
            continue
        if _HEADING.match(line):
            continue
        bullet = BULLET.match(line)
        first = start + (bullet.end() if bullet else 0)
        shown = text[first : start + len(line)]
        if len(cells := split_cells(shown)) > 2:
            yield from _quote_cells(cells, first)
        else:
            yield from (Piece(shown[one:end], first + one, first + end) for one, end in _sentence_places(shown))


def _quote_cells(cells: list[str], at: int) -> Iterator[Piece]:
    key, *rest = cells
    at += len(key) + 2
    for cell in rest:
        yield Piece(f"{key}; {cell}", at, at + len(cell))
        at += len(cell) + 2


@lru_cache(maxsize=PIECES_KEPT)
def _sentence_places(text: str) -> tuple[tuple[int, int], ...]:
    """Return where the sentences of a paragraph stand.

    None ends behind a number before a month, nor behind a short word before a number: what is cut too late is quoted
    whole, what is cut too early is quoted wrongly.
    """
    from nupunkt import sent_spans

    places: list[tuple[int, int]] = []
    for begun, end in sent_spans(text) if text.strip() else ():
        shown = text[begun:end].strip()
        start = text.find(shown, begun)
        if places and shown and _goes_on(text[slice(*places[-1])], shown):
            places[-1] = (places[-1][0], start + len(shown))
        elif shown:
            places.append((start, start + len(shown)))
    return tuple(places)


def _goes_on(before: str, after: str) -> bool:
    """Tell whether two texts are one sentence that was cut behind a number or an abbreviation."""
    if (_ORDINAL.search(before) and _MONTH.match(after)) or _ABBREVIATION.search(before):
        return True
    short = _SHORT_WORD.search(before) or (before.endswith(".") and " " not in before)
    return bool(short) and (after[0].isdigit() or after[0].islower())
