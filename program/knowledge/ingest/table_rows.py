"""Rows of cells as lines of text, whatever file a table is from, and which of them is the header."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from ragc.knowledge.ingest.amounts import MISSING, read_amount
from ragc.text.days import list_days, parse_day

LONGEST_LABEL = 60  # characters of a key beside its one value
SAMPLE = 200  # rows by which the kind of a column is told
MARKS = frozenset("yes no true false closed ✓ ✔ ✗ ✘ x".split())
"""Values that look like names, in lower case."""
MOST_WORDS = 3  # of a label before a value on a line of text
_YEAR = re.compile(r"(?a)(?:1[89]|20)\d\d")
_DAY = re.compile(r"(?a)\d{1,4}([./-])\d{1,2}\1\d{0,4}")
_CLOCK = re.compile(r"(?ai)\d{1,2}(?:[:.h]\d\d(?::\d\d)?(?: ?[ap]\.?m\.?| ?h| uhr)?| ?[ap]\.?m\.?)")
_BETWEEN = re.compile(r"\s*(?:[-–—]|\bto\b)\s*")
_LINE = re.compile(r"(?P<label>[^\W\d_][^\d:;]*?)[ .]*\s(?P<value>[+(£$€]*\d.*|" + "|".join(MARKS) + ")", re.IGNORECASE)
_TELEPHONE = re.compile(r"(?a)\+?[\d()](?:[ ()/-]*\d){5,}")
_MEASURED = re.compile(r"(?:[\d.,]*\d\s*[-–]\s*)?[\d.,]*\d\s*(?P<unit>[^\W\d_][^\d]{0,15})?")
_TIME, _MARK = ("time", ""), ("mark", "")
_KINDS_OF_LINES = ({"phone"}, {"time"}, {"time", "mark"})
_VALUES = ("day", "time", "mark", "size")  # kinds that no name is of


def format_table(rows: Sequence[Sequence[str]], heads: int | None = None) -> list[str]:
    """Return each row below a table's header as `header: value; header: value`.

    The first `heads` rows are the header; None: the first row, where `has_header` says so. Rows may differ in length.
    A table of two columns without a header is `key: value`. A row of one cell is a heading among the others.
    """
    heads = int(has_header(rows)) if heads is None else heads
    width, body = max(map(len, rows), default=0), rows[heads:]
    above = [[row[at] for row in rows[:heads] if at < len(row)] for at in range(width)]
    headers = [" ".join(dict.fromkeys(filter(None, texts))).removesuffix(":") for texts in above]
    held = {at for row in body for at, cell in enumerate(row) if cell}
    lines = []
    for n, row in enumerate(body):
        # No header is lost for want of a value.
        pairs = [
            (headers[at], "-" if n == 0 and headers[at] and at not in held else cell) for at, cell in enumerate(row)
        ]
        if len(row) == 1 < width:
            pairs = [("", row[0])]
        elif not any(headers) and (
            _are_pairs(row) or (len(row) == 2 and all(row) and is_label(row[0]) and ": " not in row[0])
        ):
            pairs = [(label.removesuffix(":"), value) for label, value in zip(row[::2], row[1::2], strict=True)]
        lines.append(format_row(pairs))
    return lines


def format_row(pairs: Iterable[tuple[str, str]]) -> str:
    """Return headers and values as one line, `header: value; header: value`."""
    one_line = ((" ".join(key.split()), " ".join(value.split())) for key, value in pairs)
    return "; ".join(f"{key}: {value}" if key else value for key, value in one_line if value)


def read_values(lines: Sequence[str]) -> list[str]:
    """Return lines of a label and a value each as `label: value`; none of others.

    The values are times of day, amounts of money or telephone numbers: `Office 01632 960740`.
    """
    found = [_LINE.fullmatch(line.strip()) for line in lines]
    pairs = [(one["label"], one["value"]) for one in found if one and one["label"][0].isupper()]
    if len(pairs) < max(len(lines), 2) or any(len(label.split()) > MOST_WORDS for label, _ in pairs):
        return []
    kinds = {"phone" if _TELEPHONE.fullmatch(value) else (_kind_of(value) or [""])[0] for _, value in pairs}
    money = all((amount := read_amount(value)) and amount.unit.isupper() for _, value in pairs)
    return list(map(format_row, ([pair] for pair in pairs))) if money or kinds in _KINDS_OF_LINES else []


def is_label(text: str) -> bool:
    """Tell whether a text is short, and no sentence."""
    return len(text) <= LONGEST_LABEL and text[-1] not in ".,:;!?"


def is_caption(text: str) -> bool:
    """Tell whether a line may head a table: a label, with no dots to a value."""
    bare = re.fullmatch(r"(?:[^\W\d_]|\d{4}(?!\S))(?!.*[^\w\s]{3}).*", text)
    return bare is not None and is_label(text) and not text[0].islower()


def has_header(rows: Sequence[Sequence[str]], default: bool | None = None) -> bool:
    """Tell whether the first row names columns: it differs in kind from those below.

    Where its kind says nothing it is `default`; None: from three columns on.
    """
    first, others = rows[0] if rows else (), [row for row in rows[1:SAMPLE] if row != rows[0]]
    if _are_pairs(first):
        return False
    sizes = sum(cell[:1].isdigit() for cell in first)
    named = recurring = marked = 0
    for at, cell in enumerate(first):
        below = [row[at] for row in others if at < len(row) and row[at].lower() not in MISSING]
        if not cell or not below:
            continue
        kind, kinds = _kind_of(cell), [_kind_of(one) for one in below]
        if kind and kind[0] in _VALUES and len(first) == 2 and 2 * max(Counter(kinds).values()) <= len(kinds):
            return False  # the values of keys, of all kinds
        alike = (kind and kind[0], "mark" if kind == _TIME else "")  # a day is closed, or has its hours
        if kind and 2 * sum(one is not None and one[0] in alike for one in kinds) > len(below):
            dated = _YEAR.fullmatch(cell) and not all(map(_YEAR.fullmatch, below))
            # No `10 kg` and `20 kg` above `5 EUR`.
            if not dated and (kind in kinds or sizes < 2 or len(set(kinds)) > 1):
                return False
        mark = kind == _MARK and not {_MARK, _TIME}.isdisjoint(kinds)
        # Of two columns the first may be names, and the second values of all kinds.
        column = len(first) > 2 or (len(below) > 1 and len(set(kinds)) == 1)
        named += column and kind is None and 2 * kinds.count(None) < len(below)
        marked, recurring = marked + mark, recurring + (cell in below)
    if named or marked or 2 * recurring >= max(sum(map(bool, first)), 2):
        return bool(named)
    return len(first) > 2 if default is None else default


def _are_pairs(row: Sequence[str]) -> bool:
    """Tell whether each second cell of a row is the value of a label with a colon."""
    labels, values = row[::2], row[1::2]
    ends = [cell.endswith(":") and ": " not in cell for cell in labels]
    return len(labels) == len(values) and all(ends) and not any(cell.endswith(":") for cell in values)


def _kind_of(cell: str) -> tuple[str, str] | None:
    """Return the kind of a value, and what it is measured in; None for words."""
    if parse_day(cell) or _DAY.fullmatch(cell) or list_days(cell):
        return "day", ""
    if all(map(_CLOCK.fullmatch, _BETWEEN.split(cell))):
        return _TIME
    if cell.lower() in MARKS:
        return _MARK
    amount, measured = read_amount(cell), _MEASURED.fullmatch(cell)
    unit = amount.unit if amount else measured and (measured["unit"] or "").strip()
    if unit is None and any(map(str.isdigit, cell)):
        return re.sub(r"\d+", "0", cell.lower()), ""  # as `Room 2` is of a kind with `Room 14`
    return None if unit is None else ("size", unit)
