"""Words with their places as lines, columns and tables, in the order in which a page is read."""

from __future__ import annotations

import math
import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import mean, median
from typing import TypeVar

from ragc.knowledge.ingest.amounts import read_amount
from ragc.knowledge.ingest.pdf.pages import Field, Word

GAP = 0.2  # of a letter's size from which on a gap parts words
WIDE = 0.85  # and from which on it parts cells, or columns
RAISED, LOWERED = 0.65, 0.55  # of the size of the text that a figure stands above or below its line, at most
APART = 1.3  # times the least distance of two lines from which on a row of a table ends between them
COLUMN = 2.5  # of a letter's size that is free on both sides of a column without a header
AHEAD = 5  # lines of a later column alone above the first that stand beside another, at most
INDENT = 4.0  # of a letter's size between a mark and its item at most
BESIDE = 3.0  # points by which a label may reach into its field
LABEL = 30.0  # points between a box to tick and its label at most
PROSE = 3.5  # words that a line of a column has on average, where it is one of text
FULL = 0.6  # of a column's width that most lines of a text fill
_LEADER = re.compile(r"[._…·]{4,}|…+")
_BULLETS, _MARK = tuple("•-–*"), re.compile(r"\(?(?:\d{1,3}|[a-zA-Z])[.)]")
_ORDINALS = ("st", "nd", "rd", "th")

Span = tuple[float, float]


@dataclass(slots=True)
class Line:
    """Words on one baseline without a wide gap: a line of a text, or of a cell."""

    text: str
    x0: float
    x1: float
    y: float
    size: float
    bold: bool = False

    @property
    def top(self) -> float:
        """Where its letters begin."""
        return self.y - 0.75 * self.size

    @property
    def bottom(self) -> float:
        """Where its letters end."""
        return self.y + 0.25 * self.size


Cell = list[Line]


@dataclass(slots=True)
class Table:
    """The rows of a table, and its place; a cell that takes several places is the same list in each, or its row."""

    rows: list[list[Cell]]
    x0: float
    top: float
    x1: float
    bottom: float


Part = Line | Table
Bands = Sequence[Sequence[Part]]
AnyPart = TypeVar("AnyPart", bound=Part)


def make_lines(words: Iterable[Word]) -> list[Line]:
    """Return the lines of words; raised and lowered ones as `10^3` and `x_1`."""
    rows: list[list[Word]] = []
    for word in sorted(words, key=lambda w: w.y):
        if rows and word.y - rows[-1][-1].y <= 0.1 * word.size:
            rows[-1].append(word)
        else:
            rows.append([word])
    places = [(row, row[0].y, RAISED * max(word.size for word in row)) for row in rows]
    for n, (upper, y, _) in enumerate(places, 1):
        for lower, below, most in places[n:]:
            if below - y >= most:
                break
            upper[:] = [word for word in upper if not _attach_script(word, lower, len(upper) < len(lower))]
            lower[:] = [word for word in lower if not _attach_script(word, upper, len(lower) < len(upper))]
    return [line for row in rows if row for line in _split_row(sorted(row, key=lambda w: w.x0))]


def _attach_script(word: Word, base: list[Word], alone: bool) -> bool:
    """Put a raised or lowered word behind the word that it stands at, or before it as the mark of a note.

    One as large as the text is raised where it stands `alone` beside a line.
    """
    text = word.text
    for behind in (True, False):
        for at, other in enumerate(base):
            gap, rise = word.x0 - other.x1 if behind else other.x0 - word.x1, other.y - word.y
            alike = alone and not word.spaced and word.size < 1.1 * other.size
            small = word.size < 0.9 * other.size or alike
            fits = -0.2 * other.size <= gap <= (0.35 if behind else 0.6) * other.size
            if not (small and fits and -LOWERED * other.size * behind < rise < RAISED * other.size):
                continue
            if behind and not word.spaced and re.search(rf"\w\{'^' if rise > 0 else '_'}[^\W_]*\W?$", other.text):
                pass  # it goes on with what was put there
            elif rise < 0:
                text = text if other.text[-1].isalpha() and text.isdigit() else f"_{text}"  # H2O
            elif not (behind and other.text[-1].isdigit() and text.lower() in _ORDINALS):
                text = f"^{text}"
            joined = f"{other.text}{text}" if behind else f"{text} {other.text}"
            base[at] = other._replace(text=joined, x0=min(word.x0, other.x0), x1=max(word.x1, other.x1))
            for n, after in enumerate(base):
                if rise > 0 and 0 <= after.x0 - word.x1 < GAP * after.size and after.text[0].isalnum():
                    base[n] = after._replace(spaced=True)
            return True
    return False


def _split_row(row: Sequence[Word]) -> Iterator[Line]:
    """Yield the words of a baseline as lines, parted at wide gaps and at leaders of dots."""
    run: list[Word] = []
    for word in _drop_leaders(row):
        if run and (word is None or word.x0 - run[-1].x1 > WIDE * max(word.size, run[-1].size)):
            yield _make_line(run)
            run = []
        run += [word] if word else []
    if run:
        yield _make_line(run)


def _drop_leaders(row: Sequence[Word]) -> Iterator[Word | None]:
    """Yield words, and None for the dots that lead from one to the next."""
    for n, word in enumerate(row):
        lone = word.text == "." and any(one.text == "." for one in (*row[n - 1 : n], *row[n + 1 : n + 2]))
        leader = _LEADER.search("...." if lone else word.text)
        if leader is None:
            yield word
            continue
        width = (word.x1 - word.x0) / len(word.text)
        before, after = word.text[: leader.start()], word.text[leader.end() :]
        yield from (word._replace(text=before, x1=word.x0 + len(before) * width),) * bool(before)
        yield None
        yield from (word._replace(text=after, x0=word.x1 - len(after) * width),) * bool(after)


def _make_line(run: Sequence[Word]) -> Line:
    text = run[0].text
    for before, word in pairwise(run):
        text += word.text if not word.spaced and word.x0 - before.x1 <= GAP * word.size else f" {word.text}"
    size = max(run, key=lambda w: len(w.text)).size
    return Line(text, run[0].x0, max(w.x1 for w in run), run[0].y, size, all(w.bold for w in run))


def place_fields(lines: list[Line], fields: Sequence[Field]) -> list[Line]:
    """Return lines with what fields hold, each behind its label, or its name; several in a row are cells."""
    printed, free = list(lines), list(lines)
    for name, value, (x0, top, x1, bottom), is_button in fields:
        beside = [line for line in printed if line.top < bottom and top < line.bottom]
        left = max((one for one in beside if one.x1 <= x0 + BESIDE), key=lambda one: one.x1, default=None)
        right = min((one for one in beside if one.x0 >= x1 - BESIDE), key=lambda one: one.x0, default=None)
        start, end = left.x1 if left else -math.inf, right.x0 if right else math.inf
        level = [f.box[0] for f in fields if f.is_button == is_button and f.box[1] < bottom and top < f.box[3]]
        alone = sum(start - BESIDE <= at < end for at in level) < 2
        over = [line for line in free if line.x0 < x1 and x0 < line.x1 and 0 < top - line.y < 2 * line.size]
        lower = any(f.box[0] < x1 and x0 < f.box[2] and 0 <= f.box[1] - bottom < bottom - top for f in fields)
        label = left if alone else None
        if is_button and alone and (left is None or x0 - left.x1 > LABEL):
            label = right or left
        elif label is None and over and not (lower or is_button):
            label = over[-1]
        if label is None:
            size = min(bottom - top, 10.0)
            base = beside[0].y if beside else (top + bottom) / 2 + size / 4
            text = f"{name}: {value}" if name and value and alone else value
            lines += [Line(text, x0, x1, base, size)] if text else []
        elif value or not is_button:
            free = [one for one in free if one is not label]
            label.text, label.x1 = f"{label.text.removesuffix(':')}: {value}", max(label.x1, x1)
    return lines


def arrange(parts: Sequence[Part]) -> list[list[Line] | Table]:
    """Return columns of lines, and tables, in the order in which they are read."""
    bands = [_join_marks(band) for band in stack_lines(parts)]
    found: list[list[Line] | Table] = []
    at = 0
    while at < len(bands):
        end, free = _grow_zone(bands, at)
        far, farther = _grow_zone(bands, at, far=True) if free else (end, free)
        if free and (are_columns(bands[at:end], free) or (far > end and are_columns(bands[at:far], farther))):
            end, free = far, farther
            for column in _part_columns(bands[at:end], free):
                found += arrange(column)
        elif free and len(rows := _trim_table(bands[at:end])) > 1:
            end = at + len(rows)
            found.append(_make_table(rows, free))
        else:
            end = at + 1
            _add_band(found, bands[at])
        at = end
    return found


def _join_marks(band: list[Part]) -> list[Part]:
    """Return a band in which no mark of a list item stands alone; a number may be the first cell of a row."""
    joined: list[Part] = []
    for part in band:
        mark = joined[-1] if joined else None
        if (
            isinstance(mark, Line)
            and isinstance(part, Line)
            and part.x0 - mark.x1 < INDENT * part.size
            and (mark.text in _BULLETS or ((len(joined) > 1 or len(band) == 2) and _MARK.fullmatch(mark.text)))
        ):
            joined[-1] = replace(part, text=f"{mark.text} {part.text}", x0=mark.x0)
            continue
        joined.append(part)
    return joined


def _add_band(found: list[list[Line] | Table], band: Sequence[Part]) -> None:
    """Add what stands beside each other in no column as one line."""
    if isinstance(band[0], Table):
        found.append(band[0])
        return
    lines = [part for part in band if isinstance(part, Line)]
    longest = max(lines, key=lambda one: len(one.text))
    joint = "; " if all(": " in one.text for one in lines) else " "  # labels with values
    line = replace(longest, text=joint.join(one.text for one in lines), x0=lines[0].x0, x1=lines[-1].x1)
    if found and isinstance(found[-1], list):
        found[-1].append(line)
    else:
        found.append([line])


def stack_lines(parts: Sequence[AnyPart]) -> list[list[AnyPart]]:
    """Return groups of what stands side by side, from the top down."""
    bands: list[list[AnyPart]] = []
    for part in sorted(parts, key=lambda one: one.top):
        if bands and all(_beside(one, part) for one in bands[-1]):
            bands[-1].append(part)
        else:
            bands.append([part])
    return [sorted(band, key=lambda one: one.x0) for band in bands]


def _beside(one: Part, other: Part) -> bool:
    if isinstance(one, Table) or isinstance(other, Table):
        return False
    return abs(one.y - other.y) < 0.5 * min(one.size, other.size) and (one.x1 <= other.x0 or other.x1 <= one.x0)


def _grow_zone(bands: Bands, at: int, far: bool = False) -> tuple[int, list[Span]]:
    """Return where the bands from `at` on end that gaps run down through, and the gaps."""
    size = min((part.size for part in bands[at] if isinstance(part, Line)), default=10.0)
    begin, free = at, list[Span]()
    for begin in range(at, min(at + AHEAD, len(bands))):
        beside = list(bands[begin])
        if len(beside) == 1 and begin + 1 < len(bands) and bands[begin + 1][0].top < beside[0].bottom - 0.2 * size:
            beside = sorted((*beside, bands[begin + 1][0]), key=lambda part: part.x0)  # their baselines differ
        if free := [(a.x1, b.x0) for a, b in pairwise(beside) if b.x0 - a.x1 >= WIDE * size]:
            break
    above = [band[0] for band in bands[at:begin]]
    if above and (
        find_column(above[0], free) == 0 or any(part.x0 < b and part.x1 > a for part in above for a, b in free)
    ):
        begin, free = at, []  # what stands above is no part of it
    if free and not far:  # a column may have nothing beside the first row
        free = [(-math.inf, beside[0].x0), *free, (beside[-1].x1, math.inf)]
    end, distances = begin + 1, list[float]()
    while free and end < len(bands):
        narrowed = [span for gap in free for span in _subtract(gap, bands[end], free, size)]
        crossed = len(narrowed) < len(free) and (len(bands[end]) == 1 or end > begin + 1)
        distance = min(part.top for part in bands[end]) - max(part.bottom for part in bands[end - 1])
        most = max(1.6 * max(distances), 1.2 * size) if len(distances) > 1 else 2.5 * size
        if not narrowed or crossed or (distance > most and not far):
            break
        free, end, distances = narrowed, end + 1, [*distances, distance]
    return end, [span for span in free if math.isfinite(span[1] - span[0])]


def _subtract(gap: Span, band: Sequence[Part], free: Sequence[Span], size: float) -> list[Span]:
    """Return what of a gap the parts of a band leave free: a cell within it belongs to the column next to it."""
    left, right = gap
    spans = []
    for n, part in enumerate(band if math.isfinite(right - left) or len(band) > 1 else ()):
        if left < part.x0 and part.x1 < right:
            before = n > 0 and not any(band[n - 1].x1 <= start and end <= left for start, end in free)
            behind = n + 1 < len(band) and not any(right <= start and end <= band[n + 1].x0 for start, end in free)
            near = part.x0 - left < right - part.x1
            apart = min(part.x0 - left, right - part.x1) >= COLUMN * size
            if before or not near or apart:
                spans.append((left, part.x0))
            left = right if (before or not near) and not (behind or apart) else part.x1
        elif part.x1 > left and part.x0 < right:
            spans.append((left, part.x0))
            left = part.x1
    return [span for span in (*spans, (left, right)) if span[1] - span[0] >= WIDE * size]


def find_column(part: Part, free: Sequence[Span]) -> int:
    """Return which column a part stands in."""
    return sum(a + b < part.x0 + part.x1 for a, b in free)


def _part_columns(zone: Bands, free: Sequence[Span]) -> list[list[Part]]:
    return [[part for band in zone for part in band if find_column(part, free) == n] for n in range(len(free) + 1)]


def are_columns(zone: Bands, free: Sequence[Span]) -> bool:
    """Tell whether columns are texts of their own, rather than the cells of a table."""
    columns = _part_columns(zone, free)
    fewest, *others = sorted(columns, key=len)
    levels, pitch = [part.bottom for column in others for part in column], _measure_pitch(columns)
    beside = sum(any(abs(level - part.bottom) < 1 for level in levels) for part in fewest)
    if beside < 0.5 * len(fewest) and not _stand_level([fewest], others, pitch):
        return True  # their lines stand neither beside each other nor around each other
    return all(_is_text(column, len(zone)) for column in columns) and not _stand_level(columns[1:], columns[:1], pitch)


def _is_text(column: Sequence[Part], bands: int) -> bool:
    """Tell whether the lines of a column, one of so many bands, fill it with sentences."""
    lines = [part for part in column if isinstance(part, Line)]
    words = mean([len(line.text.split()) for line in lines] or [PROSE])
    if len(lines) < 3:
        is_prose = words >= PROSE or (len(lines) > 0 and lines[-1].text.endswith("."))
        return len(lines) < len(column) or (is_prose and bands > 2 * len(lines) + 1)
    width = max(part.x1 for part in column) - min(part.x0 for part in column)
    filled = median(line.x1 - line.x0 for line in lines) >= FULL * width
    return filled and (words >= PROSE or (words >= 2 and sum("." in line.text for line in lines) > len(lines) / 8))


def _stand_level(columns: Bands, others: Bands, pitch: float) -> bool:
    """Tell whether most of what stands together below its column's first is level with something in the others."""
    cells, rows = ([cell for one in group for cell in _join_lines(one, pitch)[1:]] for group in (columns, others))
    level = [any(min(abs(a - c), abs(b - d), abs(a + b - c - d) / 2) < 1 for c, d in rows) for a, b in cells]
    return len(rows) > 1 and sum(level) > 0.7 * len(level)


def _measure_pitch(columns: Bands) -> float:
    """Return the least distance of two lines that stand below each other in a column."""
    pairs = ((a, b) for column in columns for a, b in pairwise(column) if b.top > (a.top + a.bottom) / 2)
    return min((b.bottom - a.bottom for a, b in pairs), default=0.0)


def _join_lines(column: Sequence[Part], pitch: float) -> list[Span]:
    """Return where the lines of a column begin and end that stand together."""
    cells: list[Span] = []
    for n, part in enumerate(column):
        if n and part.bottom - column[n - 1].bottom <= APART * pitch:
            cells[-1] = cells[-1][0], part.bottom
        else:
            cells.append((part.top, part.bottom))
    return cells


def _trim_table(zone: Bands) -> Bands:
    """Return a zone without the lines below its last row."""
    end = max((at for at, band in enumerate(zone, 1) if len(band) > 1), default=0)
    distances = [b - a for a, b in pairwise(max(part.bottom for part in band) for band in zone)]
    pitches, right = distances[: max(end - 1, 0)], max((band[0].x1 for band in zone[:end]), default=0.0)
    for band, pitch in zip(zone[end:], distances[len(pitches) :], strict=False):
        if not pitches or pitch > max(pitches) * (1 / APART if band[0].x0 < right < band[0].x1 else 1.05):
            break
        end += 1
    return zone[:end]


def _make_table(zone: Bands, free: Sequence[Span]) -> Table:
    parts = [part for band in zone for part in band]
    rows = [part_cells(group, free) for group in group_rows(zone, free)]
    sides = min(p.x0 for p in parts), min(p.top for p in parts), max(p.x1 for p in parts), max(p.bottom for p in parts)
    return Table(rows, *sides)


def part_cells(group: Bands, free: Sequence[Span]) -> list[Cell]:
    """Return the cells of a row, from its lines."""
    cells: list[Cell] = [[] for _ in range(len(free) + 1)]
    for part in (part for band in group for part in band):
        if isinstance(part, Line):
            cells[find_column(part, free)].append(part)
    return cells


def group_rows(zone: Bands, free: Sequence[Span]) -> list[list[Sequence[Part]]]:
    """Return the bands of each row of a table.

    The lines of a cell stand closer than rows, else a row begins with its key, or with another amount.
    """
    columns = _part_columns(zone, free)
    pitch = _measure_pitch(columns)
    cells = [cell for column in columns for cell in _join_lines(column, pitch)]
    ends: list[float] = []
    for top, bottom in sorted(cells):
        if ends and top < ends[-1]:
            ends[-1] = max(ends[-1], bottom)
        else:
            ends.append(bottom)
    texts = all(_is_text(column, len(zone)) for column in columns) and _stand_level(columns[1:], columns[:1], pitch)
    keys, *others = [[bisect(ends, (part.top + part.bottom) / 2) for part in column] for column in columns]
    wrapped = [2 * max(c.count(row) for c in others) <= keys.count(row) for row in {*keys} if keys.count(row) > 1]
    long_keys = len(ends) > 2 and 2 * sum(wrapped) > len(wrapped)  # of more lines than what stands beside them
    if len(columns[0]) > 1.5 * len(ends) and not texts and not long_keys:  # what looks like a cell is a column
        loose = pitch > 1.6 * (zone[0][0].bottom - zone[0][0].top)
        amounts = [{find_column(p, free) for p in b if isinstance(p, Line) and read_amount(p.text)} for b in zone]
        below = [find_column(band[0], free) == 0 or amounts[n] & amounts[n + 1] for n, band in enumerate(zone[1:])]
        ends = [band[0].top for band, begins in zip(zone[1:], below, strict=True) if loose or begins] + [math.inf]
    rows: list[list[Sequence[Part]]] = [[] for _ in ends]
    for band in zone:
        rows[bisect(ends, (band[0].top + band[0].bottom) / 2)].append(band)
    return [row for row in rows if row]
