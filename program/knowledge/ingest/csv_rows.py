"""Tables in text files: separator, title, header and cells are told by content, and nothing is dropped uncounted."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice, pairwise
from pathlib import Path

from ragc.knowledge.ingest.amounts import read_amount
from ragc.knowledge.ingest.decode import decode_text
from ragc.knowledge.ingest.office import read_sheets
from ragc.knowledge.ingest.table_rows import SAMPLE, has_header
from ragc.passage import Flaw
from ragc.settings import MAX_MEGABYTES

SUFFIXES, EXCEL = (".csv", ".tsv"), (".xlsx", ".xlsm")
SEPARATORS = ",;\t|"
MAX_CELL = 16 * 1024 * 1024  # characters; csv's own 131,072 is below a long page
LONGER = "with more cells than the header"
MOST_TITLES = 5  # lines above a header
_NONE = "\x1f"  # the separator of a file that has only one column
_EXCEL = re.compile(r'"?sep=(.)"?\s*')  # the first line by which Excel is told the separator


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One record: cells without space around them, lines counted from 1."""

    cells: list[str]
    first: int
    last: int

    @property
    def filled(self) -> int:
        """How many cells hold anything."""
        return sum(map(bool, self.cells))


@dataclass(slots=True)
class CsvTable:
    """A header, and rows with at least as many cells; a column without a name is ""."""

    header: list[str] = field(default_factory=list)
    rows: list[CsvRow] = field(default_factory=list)
    title: str = ""  # what stands above the header
    separator: str = ","
    flaws: list[Flaw] = field(default_factory=list)

    def note(self, what: str, line: int, mend: str) -> None:
        """Note what is odd, though nothing is lost by it."""
        self.flaws.append(Flaw(what, mend, line, lost=False))

    def note_rows(self, what: str, lines: Sequence[int], mend: str) -> None:
        """Note what is odd about the rows that begin on these lines, if any."""
        if lines:
            self.note(f"1 row {what}" if len(lines) == 1 else f"{len(lines)} rows {what}", lines[0], mend)


def read_table_file(file: Path) -> CsvTable:
    """Return the table in a file, of Excel its first sheet. Raises `UnreadableFile`."""
    if file.suffix.lower() not in EXCEL:
        text, flaws = decode_text(file.read_bytes())
        tables, others = read_tables(text), list[str]()
    else:
        sheets, flaws = read_sheets(file.read_bytes(), int(MAX_MEGABYTES * 1e6))
        first, *others = sheets or {"": []}
        tables = make_tables(sheets.get(first, []))
    table = tables[0]
    table.flaws[:0] = flaws
    if others:
        what = f"the sheets {', '.join(map(repr, others))} were not read"
        table.flaws.append(Flaw(what, "Save each as a file of its own."))
    if more := [one.rows[0].first for one in tables[1:] if one.rows]:
        what = "another table stands below the first, and was not read"
        table.flaws.append(Flaw(what, "Save each as a file of its own.", more[0]))
    return table


def make_tables(rows: Sequence[Sequence[str]]) -> list[CsvTable]:
    """Return the tables that rows of cells make, and what is odd about each."""
    tables = _part_tables([CsvRow(list(cells), n, n) for n, cells in enumerate(rows, 1) if any(cells)])
    for table in tables:
        width = max((n for row in table for n, cell in enumerate(row.cells, 1) if cell), default=0)
        for row in table:
            del row.cells[width:]
    return [_arrange_rows(CsvTable(rows=table)) for table in tables]


def name_column(text: str) -> str:
    """Return a name as SQL likes it: words joined by underscores, or `_`."""
    return re.sub(r"\W+", "_", text.strip()).strip("_") or "_"


def read_tables(text: str) -> list[CsvTable]:
    """Return the tables that a text holds, and what is odd about each."""
    csv.field_size_limit(MAX_CELL)
    lines, broken = text.split("\n"), list[int]()
    if told := _EXCEL.fullmatch(lines[0]):
        lines[0] = ""
    separator = told[1] if told else _tell_separator(lines)
    parts = _part_tables([row for row in _split_records(lines, separator, broken) if row.filled])
    tables = [_arrange_rows(CsvTable(rows=rows, separator=separator)) for rows in parts]
    tables[0].note_rows(
        "with a quote that is not closed, or not doubled inside a cell", broken, "Close it, or double it."
    )
    return tables


def _part_tables(rows: Sequence[CsvRow]) -> list[list[CsvRow]]:
    """Return rows as tables: what is behind an empty line goes on, unless it has a header of its own."""
    gaps = [n for n, (row, below) in enumerate(pairwise(rows), 1) if below.first > row.last + 1]
    tables: list[list[CsvRow]] = [[]]
    for start, end in pairwise([0, *gaps, len(rows)]):
        run = [*rows[start:end]]
        below = run[:]
        while len(below) > 1 and below[0].filled == 1 < below[1].filled:
            below.pop(0)  # a title
        if has_header([row.cells for row in below], default=False):
            if len(tables[-1]) == 1:  # a title with a comma
                tables[-1][0].cells[:] = [", ".join(filter(None, tables[-1][0].cells))]
            elif any(row.filled > 1 for row in tables[-1]):
                tables.append([])
        tables[-1] += run
    return tables


def _arrange_rows(table: CsvTable) -> CsvTable:
    if not table.rows:
        return table
    _take_header(table)
    width = len(table.header)
    for row in table.rows:
        while len(row.cells) > width and not row.cells[-1]:
            row.cells.pop()
    longer = [row.first for row in table.rows if len(row.cells) > width]
    table.note_rows(LONGER, longer, "Put a cell that holds the separator in quotes.")
    shorter = [row.first for row in table.rows if len(row.cells) < width]
    table.note_rows("with fewer cells than the header", shorter, "Give every row as many cells as the header.")
    for row in table.rows:
        row.cells.extend([""] * (width - len(row.cells)))
    every = [table.header, *(row.cells for row in table.rows)]
    used = max(n for cells in every for n, cell in enumerate(cells, 1) if cell)
    for cells in every:
        del cells[used:]  # columns at the end with neither a name nor a cell
    return table


def _tell_separator(lines: Sequence[str]) -> str:
    """Return the separator under which most records, but titles, have the same number of cells, more than one."""
    found = {}
    for separator in SEPARATORS:
        records = islice(_split_records(lines, separator, []), SAMPLE)
        runs = (
            [len(row.cells) for row in run]
            for is_filled, run in groupby(records, lambda row: row.filled > 0)
            if is_filled
        )
        sample = max(runs, key=len, default=[])  # of the longest of several tables
        width, fitting = Counter(sample).most_common(1)[0] if sample else (1, 0)
        titles = sample.index(width) if sample else 0
        prose = sum(line.count(f"{separator} ") for line in lines) * 2 > sum(line.count(separator) for line in lines)
        if width > 1 and (sample[0] > 1 or (titles <= MOST_TITLES and 2 * fitting > len(sample) and not prose)):
            decimal = separator == "," and not re.search(r"(?<!\d),|,(?!\d)", "\n".join(lines))
            found[separator] = not decimal, fitting / (len(sample) - titles) - titles / 100, width
    return max(found, key=found.__getitem__) if found else _NONE


def _split_records(lines: Sequence[str], separator: str, broken: list[int]) -> Iterator[CsvRow]:
    """Yield the records; one whose quote is not closed ends with its line, which is noted."""
    at = 0
    while at < len(lines):
        fed = (f"{lines[n]}\n" for n in range(at, len(lines)))
        reader = csv.reader(fed, delimiter=separator, skipinitialspace=True, strict=True)
        start = at
        try:
            for cells in reader:
                yield CsvRow([cell.strip() for cell in cells], start + 1, at + reader.line_num)
                start = at + reader.line_num
            return
        except csv.Error:
            broken.append(start + 1)
            *cells, last = next(csv.reader([lines[start]], delimiter=separator, skipinitialspace=True))
            cells += last.split(separator) if lines[start].count('"') % 2 else [last]  # it has the rest of the line
            yield CsvRow([cell.strip() for cell in cells], start + 1, start + 1)
            at = start + 1


def _take_header(table: CsvTable) -> None:
    """Take title and header from the rows, and name what is odd about them."""
    rows = table.rows
    width, _ = Counter(len(row.cells) for row in rows).most_common(1)[0]
    titles: list[str] = []
    while len(rows) > 1 and len(titles) < MOST_TITLES and _is_title(rows, width):
        titles.append(f"{table.separator} ".join(filter(None, rows.pop(0).cells)))
    if titles:
        table.title = " ".join(" - ".join(titles).split())
        what = f"{table.title!r} stands above the header and was taken for the title"
        table.note(what, rows[0].first, "Begin the file with the column names.")
    line = rows[0].first
    if not has_header([row.cells[:width] for row in rows], default=True):
        table.header = [""] * width
        what = "the first line holds no column names but data, and was read as a row"
        table.note(what, line, "Write the names of the columns above it.")
        return
    table.header = rows.pop(0).cells
    table.header += [""] * (width - len(table.header))
    if rows and (joined := _join_headers(table.header, rows[0].cells)):
        table.header, line = joined, rows.pop(0).first
    same = [row.first for row in rows if row.cells == table.header]
    table.rows = [row for row in rows if row.cells != table.header]
    table.note_rows("with the header again; left out", same, "Keep the first.")
    for name, times in Counter(filter(None, map(str.casefold, table.header))).items():
        if times > 1:
            what = f"{times} columns are named {next(one for one in table.header if one.casefold() == name)!r}"
            table.note(what, line, "Give each column a name of its own.")
    held = {n for row in rows for n, cell in enumerate(row.cells, 1) if cell}
    nameless = [n for n, name in enumerate(table.header, 1) if not name and n in held]
    if nameless:
        what = f"{'column' if len(nameless) == 1 else 'columns'} {', '.join(map(str, nameless))} without a name"
        table.note(what, line, "Name every column in the header.")


def _join_headers(above: Sequence[str], below: Sequence[str]) -> list[str]:
    """Return a header of two rows, of which the first names columns together and the second each; none of one row."""
    corner = not above[0] or below[:1] in ([""], [above[0]])
    if len(below) != len(above) or not corner or any(map(read_amount, (*above, *below))):
        return []
    names = [*above]
    for at, cell in enumerate(below[1:], 1):
        names[at] = names[at] or (names[at - 1] if cell else "")
    parted = [n for n, (one, cell) in enumerate(zip(names, below, strict=True)) if one and cell not in ("", one)]
    if len({*names} - {""}) < 2 or not any(names[n] == names[n - 1] for n in parted):
        return []
    return [" ".join(dict.fromkeys(filter(None, pair))) for pair in zip(names, below, strict=True)]


def _is_title(rows: Sequence[CsvRow], width: int) -> bool:
    """Tell whether the first row is a line above the header, which names every column."""
    first, second = rows[0], next((row for row in rows[1:] if row.filled > 1), rows[1])
    if width < 2 or first.filled >= min(width, second.filled) or _join_headers(first.cells, second.cells):
        return False
    if len(first.cells) == 1:
        return True
    if second.filled < width - (not second.cells[0]) or any(map(read_amount, second.cells)):
        return False
    columns = ([row.cells[at] for row in rows[2:] if at < len(row.cells)] for at in range(width))
    return first.filled == 1 < width - 1 or any(column and all(map(read_amount, column)) for column in columns)
