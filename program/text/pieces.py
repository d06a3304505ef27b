"""A text cut into sentences, pieces that can be quoted, and claims with their citation marks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from textwrap import shorten
from typing import NamedTuple

from program.text.words import WORD

SENTENCE_ENDS = ".!?…"
BULLET = re.compile(r"\s*[-*•]\s+")
"""The mark before an item of a list."""
_NUMBER = re.compile(r"\s*\d{1,3}[.)]\s+")
"""The mark before an item of a numbered list, where a line beside it has one too."""
_HEADING = re.compile(r"#{4,6} ")
_FENCE = re.compile(r"`{3,}")
_CELL = re.compile(r"; (?=[^;:]{1,80}: )")
_MONTH = re.compile(
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b|(?:januar|märz|mai|juni|juli|oktober|dezember)\b",
    re.I,
)
_ORDINAL = re.compile(r"(?<!\w)\d{1,2}\.$")
_ABBREVIATION = re.compile(r"(?<![\w.])[B-DF-HJ-NP-TV-Z][b-df-hj-np-tv-xz]{1,3}\.$")  # St, Mt: no vowel
_SHORT_WORD = re.compile(r"(?<![\w.])(?:[^\W\d_]\.?){1,6}\.$")
_CAPITALS = re.compile(r"[A-Z]{2}")  # as of VAT
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

    It stands there word for word. A cell of a row stands behind the row's key, `key; cell`: the row's first cells, as
    few as tell it from the others of its table. The place of the first such piece is that of the key too, so that an
    answer in the key is an answer in one piece.
    """

    text: str
    start: int
    end: int
    row: str = ""
    """What an answer shows of a cell: `Home Plus, Yearly: GBP 45`."""
    value: int = 0
    """Where the value of a cell begins in the text, behind the key and the cell's header."""
    lead: str | None = None
    """Of the beginning of a list item the sentence with a colon that leads the list, or an empty string."""

    @property
    def shown(self) -> str:
        """What an answer shows."""
        return self.row or self.text


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
    """Return the answer without marks of no passage, `[[0]0]` among them."""
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
    at, fence, lead = 0, "", ""
    lines = text.splitlines(keepends=True)
    rows, numbers = [split_cells(line.rstrip()) for line in lines], [_NUMBER.match(line) for line in lines]
    headers = [row[0].partition(": ")[0] for row in rows]
    for n, whole in enumerate(lines):
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
            lead = ""
            continue
        beside = slice(max(n - 1, 0), n), slice(n + 1, n + 2)
        bullet = BULLET.match(line) or (numbers[n] if any(any(numbers[one]) for one in beside) else None)
        first = start + (bullet.end() if bullet else 0)
        shown = line[bullet.end() :] if bullet else line
        cells = split_cells(shown)
        # Prose may look like a row; it ends as a sentence, or has no neighbour that begins with the same header.
        ends = [cell[-1:] in SENTENCE_ENDS for cell in cells]
        alone = len(lines) == 1 and (not ends[-1] or any(ends[:-1]))
        in_table = not bullet and (alone or any(headers[n] in headers[one] for one in beside))
        if len(cells) > 2 or (len(cells) == 2 and in_table and ": " in cells[0]):
            yield from _quote_cells(cells, _count_keys(rows, n) if in_table else 1, first, in_table)
        else:
            for one, end in (places := _sentence_places(shown)):
                begins = bullet is not None and one == places[0][0]
                yield Piece(shown[one:end], first + one, first + end, lead=lead if begins else None)
        if shown and not bullet:
            last = split_sentences(shown)[-1]
            lead = last if last.endswith(":") and not _PROMPT_MARK.search(last) else ""


def _count_keys(rows: Sequence[Sequence[str]], n: int) -> int:
    """Return how many first cells tell row `n` of a table from the others; 1 where none do."""
    header = rows[n][0].partition(": ")[0]
    table = [row for row in rows if row[0].partition(": ")[0] == header]
    counts = range(1, len(rows[n]))
    return next((count for count in counts if [row[:count] for row in table].count(rows[n][:count]) == 1), 1)


def _quote_cells(cells: Sequence[str], keys: int, start: int, in_table: bool) -> Iterator[Piece]:
    """Yield each cell of a row behind its key, whose first cell is shown without its header in a table.

    So is a sentence behind a key that is one.
    """
    key = "; ".join(cells[:keys])
    header, parted, value = cells[0].partition(": ")
    subject = ", ".join([header if not parted else value if in_table else "", *cells[1:keys]])
    at = start + len(key) + 2
    for cell in cells[keys:]:
        end = at + len(cell)
        value = cell.partition(": ")[2] or cell
        said = value if cell[-1:] in SENTENCE_ENDS else cell
        shown = f"{subject} {said}" if subject[-1:] in SENTENCE_ENDS else f"{subject}, {cell}"
        text = f"{key}; {cell}"
        yield Piece(text, start, end, shown if subject else "", len(text) - len(value))
        start = at = end + 2


@lru_cache(maxsize=PIECES_KEPT)
def _sentence_places(text: str) -> tuple[tuple[int, int], ...]:
    """Return where the sentences of a paragraph stand.

    None ends behind a number before a month, nor behind a short word before a number or capitals: what is cut too late
    is quoted whole, what is cut too early is quoted wrongly.
    """
    from sentencex import get_sentence_boundaries

    places: list[tuple[int, int]] = []
    for found in get_sentence_boundaries("en", text) if text.strip() else ():
        shown = found["text"].strip()
        start = text.find(shown, found["start_index"])
        if places and shown and _goes_on(text[slice(*places[-1])], shown):
            places[-1] = (places[-1][0], start + len(shown))
        elif shown:
            places.append((start, start + len(shown)))
    return tuple(places)


def _goes_on(before: str, after: str) -> bool:
    """Tell whether two texts are one sentence that was cut behind a number or an abbreviation."""
    if not any(map(str.isalpha, before)) or _ABBREVIATION.search(before):
        return True
    if _ORDINAL.search(before) and _MONTH.match(after):
        return True
    short = _SHORT_WORD.search(before) or (before.endswith(".") and " " not in before)
    return bool(short) and (after[0].isdigit() or after[0].islower() or _CAPITALS.match(after) is not None)
