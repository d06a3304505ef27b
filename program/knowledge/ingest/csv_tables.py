"""CSV files as tables of an SQLite database in memory, which a SELECT is run on.

A column holds numbers when its cells do, but for missing ones and a few that are noted; else text (a number with a
leading zero is an identifier, so text). Empty cells are NULL. Beside a column of amounts stands a hidden one with its
cells as they are written.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path

from sqlalchemy import Column, Connection, Float, Integer, MetaData, Table, Text
from sqlalchemy.exc import SQLAlchemyError

from ragc.knowledge.ingest.amounts import MISSING, find_decimal_mark, read_amount
from ragc.knowledge.ingest.convert import UnreadableFile
from ragc.knowledge.ingest.csv_rows import LONGER, CsvTable, name_column, read_table_file
from ragc.knowledge.ingest.metadata import READERS, normalise_key
from ragc.passage import Flaw

WRITTEN = ":written"
"""How the name of a column ends that holds the cells of a number column as they are written."""
MOST_ODD = 1 / 3  # share of a column's cells up to which those that are no numbers leave it one of numbers
_PLAIN = re.compile(r"(?a)-?\d+(?:\.\d+)?")


def load_tables(
    files: Iterable[tuple[Path, str]], connection: Connection, admits: Callable[[str], bool] = lambda _: True
) -> list[Flaw]:
    """Make one table of each file, and return what of them no SELECT reads.

    A file is its path and its name in the base. Only rows of admitted readers are in it.
    """
    flaws: list[Flaw] = []
    taken: dict[str, Path] = {}
    for file, path in files:
        name = name_column(file.stem)
        if taken.setdefault(name.lower(), file) is not file:
            continue
        try:
            found = read_table_file(file)
            found.flaws.clear()  # the reader of its rows notes them
            _take_readable(found, admits)
            _make_table(name, found, connection)
            flaws += [replace(flaw, path=path) for flaw in found.flaws]
        except UnreadableFile:
            continue
        except (SQLAlchemyError, OSError, csv.Error) as error:
            why = str(getattr(error, "orig", None) or error).splitlines()[0]
            flaws.append(Flaw(f"makes no table for SQL: {why}", "Give it a plain name of its own.", path=path))
    return flaws


def _take_readable(found: CsvTable, admits: Callable[[str], bool]) -> None:
    """Leave in a table the rows that are admitted, without the column that says who reads them."""
    places = [at for at, name in enumerate(found.header) if normalise_key(name) == READERS]
    for at in reversed(places):
        found.rows = [row for row in found.rows if admits(row.cells[at])]
        for cells in (found.header, *(row.cells for row in found.rows)):
            del cells[at]


def _make_table(name: str, found: CsvTable, connection: Connection) -> None:
    """Make a table of the rows that fit the header; what is odd about its columns is noted."""
    if not found.header:
        return
    longer = [row.first for row in found.rows if len(row.cells) > len(found.header)]
    found.rows = [row for row in found.rows if len(row.cells) <= len(found.header)]
    found.note_rows(f"{LONGER}; no SELECT reads it", longer, "Put a cell that holds the separator in quotes.")
    every = (read_amount(cell) for row in found.rows for cell in row.cells)
    mark = cache(lambda: find_decimal_mark(every) or ("," if found.separator == ";" else "."))
    table = Table(name, MetaData())
    cells: dict[str, Sequence[int | float | str | None]] = {}
    for at, column in enumerate(_name_columns(found.header)):
        written = [row.cells[at] or None for row in found.rows]
        numbers = _read_numbers(column, found, at, mark)
        whole = all(value is None or isinstance(value, int) for value in numbers or ())
        table.append_column(Column(column, Text() if numbers is None else Integer() if whole else Float()))
        cells[column] = written if numbers is None else numbers
        if numbers is not None and any(cell and not _PLAIN.fullmatch(cell) for cell in written):
            table.append_column(Column(column + WRITTEN, Text()))
            cells[column + WRITTEN] = written
    table.create(connection)
    if found.rows:
        rows = zip(*cells.values(), strict=True)
        connection.execute(table.insert(), [dict(zip(cells, row, strict=True)) for row in rows])


def _read_numbers(name: str, found: CsvTable, at: int, mark: Callable[[], str]) -> list[int | float | None] | None:
    """Return a column's numbers, None for a column of text; what is odd is noted."""
    filled = {row.first: row.cells[at] for row in found.rows if row.cells[at].lower() not in MISSING}
    amounts = {line: amount for line, cell in filled.items() if (amount := read_amount(cell))}
    if doubtful := [line for line, amount in amounts.items() if amount.doubtful]:
        own = find_decimal_mark(amounts.values()) or mark()
        amounts |= {line: amount for line in doubtful if (amount := read_amount(filled[line], own))}
    odd = [line for line in filled if line not in amounts]
    units = sorted({amount.unit for amount in amounts.values()} - {""})
    if not amounts or 2 * len(odd) > len(filled):
        return None
    holds = f"the column {name} holds"
    if len(units) > 1:
        what = f"{holds} amounts in {', '.join(units)}, and is read as text"
        found.note(what, min(amounts), "Give each unit its own column.")
        return None
    codes = not units and any(c.isdigit() for line in odd for c in filled[line])
    is_text = codes or len(odd) > MOST_ODD * len(filled)
    if odd:
        odds = "1 cell that is no number" if len(odd) == 1 else f"{len(odd)} cells that are no numbers"
        read = "is read as text" if is_text else "has no number there"
        what = f"{holds} {odds} ({filled[odd[0]]!r} the first), and {read}"
        found.note(what, odd[0], "Write numbers there, or leave them empty.")
    if is_text:
        return None
    first, amount = next(iter(amounts.items()))
    if found.separator == ";" and len(doubtful) == len(amounts):
        what = f"{holds} {filled[first]!r}, which was read as {amount.value}"
        found.note(what, first, "Write one of them with two decimals.")
    return [amounts[row.first].value if row.first in amounts else None for row in found.rows]


def _name_columns(header: Sequence[str]) -> list[str]:
    """Return a name for each column: its own, or `column_2`; of a repeated one `price_2`."""
    names: dict[str, str] = {}  # by their lower case, which SQL does not tell from theirs
    for at, cell in enumerate(header, 1):
        own = name_column(cell) if cell else f"column_{at}"
        name = next(one for n in count(1) if (one := f"{own}_{n}" if n > 1 else own).lower() not in names)
        names[name.lower()] = name
    return [*names.values()]
