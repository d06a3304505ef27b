"""A text cut into sentences, pieces that can be quoted, and claims with their citation marks."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from textwrap import shorten
from typing import NamedTuple

from ragc.text.ranges import find_ranges
from ragc.text.words import WORD

SENTENCE_ENDS = ".!?…"
ASKS = frozenset("?？؟")
"""The last character of a sentence that asks, and so states nothing."""
_LEADING = ASKS | {":"}
MOST_KEYS = 4  # cells that name a row
LOOKED_BACK = 200  # characters of a sentence, before its end, that say whether it goes on
SHORT_LIST = 600  # characters of a list that is quoted whole, at most
BULLET = re.compile(r"\s*[-*•]\s+")
"""The mark before an item of a list."""
NUMBER = re.compile(r"\s*\d{1,3}[.)]\s+")
"""The mark before an item of a numbered list, where a line beside it has one too."""
_HEADING = re.compile(r"#{4,6} ")
_MARK_OF = {"item": re.compile(rf"{BULLET.pattern}|{NUMBER.pattern}"), "code": re.compile(r"\s*")}
"""What stands before the text of a line, by the line's kind."""
_FENCE = re.compile(r"`{3,}")
_KEY = re.compile(r"[^\s:;.!?][^:;!?]{0,59}(?:: |; )(?=\S)")
"""The key of a row without a header, before its value, where a line beside it has one too."""
_CELL = re.compile(r"; (?=(?:[^;:]|:(?=\S)){1,80}: )")  # a header may have a time in it
_MONTH = re.compile(
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b|(?:januar|märz|mai|juni|juli|oktober|dezember)\b",
    re.I,
)
_ORDINAL = re.compile(r"(?<!\w)\d{1,2}\.$")
_ABBREVIATION = re.compile(r"(?<![\w.])[B-DF-HJ-NP-TV-Z][b-df-hj-np-tv-xz]{1,3}\.$")  # St, Mt: no vowel
_AMOUNT = re.compile(r"[€£$%]|\d:\d\d")  # what a sentence may be alone
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
    """What leads it: of the beginning of a list item, and of code, the sentence with a colon before the list, or an
    empty string; of a sentence behind a question, that; of a sentence that leads a list, itself."""
    items: tuple[str, ...] = ()
    """The items of the short list, in order, of which it begins one or which it leads; code is one item."""

    question: str = ""
    """The question that it stands under."""
    cells: tuple[str, ...] = ()
    """All cells of the row of which it is one."""

    @property
    def shown(self) -> str:
        """What an answer shows."""
        return self.row or self.text


@lru_cache(maxsize=PIECES_KEPT)
def split_pieces(text: str) -> tuple[Piece, ...]:
    """Return what can be quoted of a passage, in order.

    It is its sentences, the cells of its rows and its lines of code. A line is a paragraph, an item of a list behind
    `- `, a row `header: value; header: value`, or code between fences. Left out are questions and headings.
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


def count_keys(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return for each row how many of its first cells name it, never its last.

    They are the fewest that no other row has, up to one that begins with a letter or is a range; 1 where none do.
    """
    counts = Counter(tuple(row[:n]) for row in rows for n in range(1, min(len(row), MOST_KEYS + 1)))
    columns = defaultdict[str, list[str]](list)
    for row in rows:
        columns[row[0].partition(": ")[0]].append(row[0])
    ranges = {cell: one for cells in columns.values() for cell, one in zip(cells, find_ranges((*cells,)), strict=True)}
    found = []
    for row in rows:
        fits = range(1, min(len(row), MOST_KEYS + 1))
        letters = (n for n in fits if (row[n - 1].partition(": ")[2] or row[n - 1])[:1].isalpha())
        words = 1 if ranges[row[0]] else next(letters, 1)
        found.append(next((n for n in fits if n >= words and counts[tuple(row[:n])] == 1), 1))
    return found


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
    at, lead = 0, ""
    lines = text.splitlines(keepends=True)
    bare = [line.rstrip() for line in lines]
    rows = [split_cells(line) for line in bare]
    headers, keys, kinds = [row[0].partition(": ")[0] for row in rows], count_keys(rows), _tell_kinds(bare)
    lists = _read_lists(bare, kinds)
    for n, (line, kind) in enumerate(zip(bare, kinds, strict=True)):
        mark = _MARK_OF[kind].match(line) if kind in _MARK_OF else None
        begin = mark.end() if mark else 0
        first, shown, at = at + begin, line[begin:], at + len(lines[n])
        items, step = lists.get(n, ((), ""))
        beside = [m for m in (n - 1, n + 1) if 0 <= m < len(bare)]
        if kind == "code":
            yield Piece(shown, first, first + len(shown), lead=lead or None, items=items if lead else ())
        elif kind in ("text", "item"):
            cells = split_cells(shown)
            # Prose may look like a row; it ends as a sentence, or has no neighbour that begins with the same header.
            ends = [cell[-1:] in SENTENCE_ENDS for cell in cells]
            alone = len(lines) == 1 and (not ends[-1] or any(ends[:-1]))
            in_table = kind == "text" and (alone or any(headers[n] == headers[m] for m in beside))
            led_on = kind == "item" or lead[-1:] in ASKS or shown[-1] in ASKS or len(_sentence_places(shown)) > 1
            key = _KEY.match(shown) if not led_on and any(_KEY.match(bare[m]) for m in beside) else None
            if len(cells) > 2 or (len(cells) == 2 and in_table and ": " in cells[0]):
                yield from _quote_cells(cells, keys[n] if in_table and not alone else 1, first, in_table)
            elif key:
                yield Piece(shown, first, first + len(shown), shown, key.end())
            else:
                led = f"{lead[:-1]} ({step}):" if lead and step else f"{step.capitalize()}:" if step else lead
                yield from _quote_sentences(shown, first, led, items, kind == "item")
        if kind in ("text", "heading", "close"):
            last = split_sentences(shown)[-1] if kind == "text" else ""
            lead = last if last[-1:] in _LEADING and not _PROMPT_MARK.search(last) else ""


def _tell_kinds(lines: Sequence[str]) -> list[str]:
    """Return the kind of each line: item, text, heading, code between `open` and `close`, or nothing."""
    kinds, fence, numbered = list[str](), "", [NUMBER.match(line) is not None for line in lines]
    for n, line in enumerate(lines):
        opens, beside = _FENCE.match(line), numbered[max(n - 1, 0) : n] + numbered[n + 1 : n + 2]
        item = BULLET.match(line) or (numbered[n] and any(beside))
        plain = "open" if opens else "item" if item else "heading" if _HEADING.match(line) else line and "text"
        kinds.append(plain if not fence else "close" if line == fence else "code")
        fence = (opens[0] if opens else "") if not fence else "" if line == fence else fence
    return kinds


def _read_lists(lines: Sequence[str], kinds: Sequence[str]) -> dict[int, tuple[tuple[str, ...], str]]:
    """Return of each line that begins an item, or leads a list or code, the items where they are short.

    Else it is, of a numbered list, the place of the item: `step 2 of 30`.
    """
    found: dict[int, tuple[tuple[str, ...], str]] = {}
    for kind, run in groupby(range(len(lines)), kinds.__getitem__):
        places = list(run)
        if kind not in ("code", "item"):
            continue
        texts = ["\n".join(lines[n] for n in places)] if kind == "code" else [lines[n] for n in places]
        items = tuple(BULLET.sub("", text, count=1).strip().rstrip(".;") for text in texts)
        items, steps = items if sum(map(len, items)) <= SHORT_LIST else (), all(map(NUMBER.match, texts))
        step = f"step {{}} of {len(places)}" if steps and not items else ""
        found |= {n: (items, step.format(k)) for k, n in enumerate(places, 1)}
        above = next((n for n in range(places[0] - 1, -1, -1) if kinds[n] not in ("", "open")), 0)
        found |= {above: (items, "")} if kinds[above] == "text" and lines[above].endswith(":") else {}
    return found


def _quote_sentences(shown: str, start: int, lead: str, items: tuple[str, ...], item: bool) -> Iterator[Piece]:
    """Yield the sentences of a line that ask nothing; what follows a question has it for its lead."""
    places = _sentence_places(shown)
    question = lead if lead[-1:] in ASKS else ""
    asked = "" if item else question
    for n, (first, last) in enumerate(places):
        sentence = shown[first:last]
        if sentence[-1] in ASKS:
            question = asked = sentence
            continue
        begins, leads = item and n == 0, bool(items) and not item and n == len(places) - 1
        own = sentence if leads else lead if begins else asked or None
        of = items if begins or leads else ()
        yield Piece(sentence, start + first, start + last, lead=own, items=of, question=question)
        asked = ""


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
        yield Piece(text, start, end, shown if subject else "", len(text) - len(value), cells=tuple(cells))
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
        first, last = places[-1] if places else (0, 0)
        if places and shown and _goes_on(text[max(first, last - LOOKED_BACK) : last], shown):
            places[-1] = (first, start + len(shown))
        elif shown:
            places.append((start, start + len(shown)))
    return tuple(places)


def _goes_on(before: str, after: str) -> bool:
    """Tell whether two texts are one sentence that was cut behind a number or an abbreviation."""
    bare = not any(map(str.isalpha, before)) and not _AMOUNT.search(before)
    if bare or _ABBREVIATION.search(before) or (before[-2:-1].isdigit() and after[0].islower()):
        return True
    if _ORDINAL.search(before) and _MONTH.match(after):
        return True
    short = _SHORT_WORD.search(before) or (before.endswith(".") and " " not in before)
    return bool(short) and (after[0].isdigit() or after[0].islower() or _CAPITALS.match(after) is not None)
