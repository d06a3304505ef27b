"""A folder of CSV files as tables of an in-memory SQLite database."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path

from sqlalchemy import Column, Connection, Float, Integer, MetaData, Table, Text
from sqlalchemy.exc import SQLAlchemyError

from program.errors import KnowledgeError
from program.knowledge.ingest.amounts import MISSING, find_decimal_mark, read_amount
from program.knowledge.ingest.convert import UnreadableFile
from program.knowledge.ingest.csv_rows import LONGER, SUFFIXES, CsvTable, read_csv_file
from program.knowledge.ingest.folder import make_unread, refuse_kind
from program.passage import Flaw, ReadReport

WRITTEN = ":written"
"""How the name of a column ends that holds the cells of a number column as they are written."""
MOST_ODD = 1 / 3  # share of a column's cells up to which those that are no numbers leave it one of numbers
_PLAIN = re.compile(r"(?a)-?\d+(?:\.\d+)?")


Templates = dict[tuple[str, str], str]
"""How a number of a column of amounts, by (table, column), is shown: `{} EUR`."""


def load_folder(folder: Path, connection: Connection, base: str) -> tuple[ReadReport, Templates]:
    """Make one table of each CSV file of a folder, named after the file.

    A column holds numbers when its cells do, but for missing ones and a few that are told; else text (a number with a
    leading zero is an identifier, so text). Empty cells are NULL. A file that makes no table is left out and told.
    Raises `KnowledgeError` when there is no CSV file.
    """
    files = [file for file in sorted(folder.iterdir()) if file.name[0] != "."] if folder.is_dir() else []
    flaws: list[Flaw] = []
    templates: Templates = {}
    if not any(file.suffix.lower() in SUFFIXES for file in files):
        mend = "Put one .csv file a table there, or correct the path."
        raise KnowledgeError(f"The folder {folder} holds no CSV file.", mend)
    for file in files:
        path, name = f"{base}/{file.name}", _name_column(file.stem)
        if not file.is_file() or file.suffix.lower() not in SUFFIXES:
            flaws.append(refuse_kind(path, SUFFIXES))
            continue
        try:
            table = read_csv_file(file)
            _make_table(name, table, connection, templates)
            flaws += [replace(flaw, path=path) for flaw in table.flaws]
        except UnreadableFile as error:
            flaws.append(make_unread(path, error.what, error.mend))
        except (SQLAlchemyError, OSError, csv.Error) as error:
            why = str(getattr(error, "orig", None) or error).splitlines()[0]
            flaws.append(make_unread(path, why, "Give it a plain name of its own, a header and rows."))
    return ReadReport(len(files), tuple(flaws)), templates


def _make_table(name: str, found: CsvTable, connection: Connection, templates: Templates) -> None:
    """Make a table of the rows that fit the header; what is odd about its columns is noted."""
    if not found.header:
        raise UnreadableFile("it is empty", "Write a header and rows, or remove it.")
    found.rows = [row for row in found.rows if len(row.cells) == len(found.header)]
    found.flaws = [
        replace(one, what=f"{one.what}; left out", lost=True) if LONGER in one.what else one for one in found.flaws
    ]
    every = (read_amount(cell) for row in found.rows for cell in row.cells)
    mark = cache(lambda: find_decimal_mark(every) or ("," if found.separator == ";" else "."))
    table = Table(name, MetaData())
    cells: dict[str, Sequence[int | float | str | None]] = {}
    for at, column in enumerate(_name_columns(found.header)):
        written = [row.cells[at] or None for row in found.rows]
        values, template = _read_numbers(column, found, at, mark)
        whole = all(value is None or isinstance(value, int) for value in values)
        table.append_column(Column(column, (Integer() if whole else Float()) if template else Text()))
        cells[column] = values if template else written
        if template and any(cell and not _PLAIN.fullmatch(cell) for cell in written):
            table.append_column(Column(column + WRITTEN, Text()))
            cells[column + WRITTEN] = written
            templates[name, column] = template
    table.create(connection)
    if found.rows:
        rows = zip(*cells.values(), strict=True)
        connection.execute(table.insert(), [dict(zip(cells, row, strict=True)) for row in rows])


def _read_numbers(name: str, found: CsvTable, at: int, mark: Callable[[], str]) -> tuple[list[int | float | None], str]:
    """Return a column's numbers and their template, empty for a column of text; what is odd is noted."""
    filled = {row.first: row.cells[at] for row in found.rows if row.cells[at].lower() not in MISSING}
    amounts = {line: amount for line, cell in filled.items() if (amount := read_amount(cell))}
    if doubtful := [line for line, amount in amounts.items() if amount.doubtful]:
        own = find_decimal_mark(amounts.values()) or mark()
        amounts |= {line: amount for line in doubtful if (amount := read_amount(filled[line], own))}
    odd = [line for line in filled if line not in amounts]
    units = {amount.unit: amount.template for amount in reversed(amounts.values()) if amount.unit}
    if not amounts or 2 * len(odd) > len(filled):
        return [], ""
    holds = f"the column {name} holds"
    if len(units) > 1:
        what = f"{holds} amounts in {', '.join(units)}, and is read as text"
        found.note(what, min(amounts), "Give each unit its own column.")
        return [], ""
    odds = "1 cell that is no number" if len(odd) == 1 else f"{len(odd)} cells that are no numbers"
    codes = not units and any(c.isdigit() for line in odd for c in filled[line])
    is_text = codes or len(odd) > MOST_ODD * len(filled)
    if odd:
        read = "is read as text" if is_text else "has no number there"
        what = f"{holds} {odds} ({filled[odd[0]]!r} the first), and {read}"
        found.note(what, odd[0], "Write numbers there, or leave them empty.")
    if is_text:
        return [], ""
    first, amount = next(iter(amounts.items()))
    if found.separator == ";" and len(doubtful) == len(amounts):
        what = f"{holds} {filled[first]!r}, which was read as {amount.value}"
        found.note(what, first, "Write one of them with two decimals.")
    template = next(iter(units.values()), "{}") + (f" (without {odds})" if odd else "")
    return [amounts[row.first].value if row.first in amounts else None for row in found.rows], template


def _name_columns(header: Sequence[str]) -> list[str]:
    """Return a name for each column: its own, or `column_2`; of a repeated one `price_2`."""
    names: dict[str, str] = {}  # by their lower case, which SQL does not tell from theirs
    for at, cell in enumerate(header, 1):
        own = _name_column(cell) if cell else f"column_{at}"
        name = next(one for n in count(1) if (one := f"{own}_{n}" if n > 1 else own).lower() not in names)
        names[name.lower()] = name
    return [*names.values()]


def _name_column(text: str) -> str:
    """Return a name as SQL likes it: words joined by underscores, or `_`."""
    return re.sub(r"\W+", "_", text.strip()).strip("_") or "_"
