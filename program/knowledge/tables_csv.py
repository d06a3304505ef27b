"""A folder of CSV files as tables of an in-memory SQLite database."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Column, Connection, Float, Integer, MetaData, Table, Text
from sqlalchemy.types import TypeEngine

from program.errors import KnowledgeError

_INTEGER = re.compile(r"[+-]?(?:0|[1-9]\d{0,17})")
_REAL = re.compile(r"[+-]?(?:0|[1-9]\d*)?\.\d+|[+-]?(?:0|[1-9]\d*)(?:\.\d*)?(?:[eE][+-]?\d{1,3})?")


def load_folder(folder: Path, connection: Connection) -> None:
    """Make one table of each `*.csv` file of a folder, named after the file.

    A column is integer or real when every cell that is not empty is; else text (a number with a leading zero is an
    identifier, so text). Empty cells are NULL. Raises `KnowledgeError` when there is no such file or one is no table.
    """
    files = sorted(p for p in folder.glob("*.csv") if p.is_file()) if folder.is_dir() else []
    if not files:
        raise KnowledgeError(
            f"The folder {folder} holds no CSV file.", "Put one .csv file a table there, or correct the path."
        )
    metadata = MetaData()
    for file in files:
        header, rows = read_csv_table(file)
        types = [_column_type([row[i] for row in rows]) for i in range(len(header))]
        table = Table(_name_column(file.stem), metadata, *map(Column, header, types))
        table.create(connection)
        casts = [type_.python_type for type_ in types]
        typed = [[cast(cell) if cell else None for cast, cell in zip(casts, row, strict=True)] for row in rows]
        if typed:
            connection.execute(table.insert(), [dict(zip(header, row, strict=True)) for row in typed])


def read_csv_table(file: Path) -> tuple[list[str], list[list[str]]]:
    """Return the header, as column names, and the rows of a CSV file, cells stripped."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.reader(lines, strict=True)
            numbered = [(reader.line_num, [c.strip() for c in row]) for row in reader if any(c.strip() for c in row)]
    except (csv.Error, OSError, UnicodeDecodeError) as error:
        mend = "Save it again as comma-separated CSV with UTF-8 encoding."
        raise KnowledgeError(f"{file.name} cannot be read: {error}.", mend) from error
    if not numbered:
        raise KnowledgeError(f"{file.name} is empty.", "Give it a header line with column names, or remove it.")
    header = [_name_column(cell) if cell else "" for cell in numbered[0][1]]
    if "" in header or all(_REAL.fullmatch(name) for name in header):
        raise KnowledgeError(f"{file.name} has a column without a name.", "Name every column in the first line.")
    twice = next((name for i, name in enumerate(header) if name.lower() in map(str.lower, header[:i])), None)
    if twice is not None:
        raise KnowledgeError(f"{file.name} has two columns named {twice}.", "Give each column its own name.")
    for line, row in numbered[1:]:
        if len(row) != len(header):
            raise KnowledgeError(
                f"{file.name} line {line} has {len(row)} cells, its header {len(header)}.",
                "Quote cells that hold a comma, and give every row as many cells as the header.",
            )
    return header, [row for _, row in numbered[1:]]


def _name_column(text: str) -> str:
    """Return a name as SQL likes it: words joined by underscores, or `_`."""
    return re.sub(r"\W+", "_", text.strip()).strip("_") or "_"


def _column_type(cells: Sequence[str]) -> TypeEngine[int] | TypeEngine[float] | TypeEngine[str]:
    filled = [c for c in cells if c]
    if filled and all(_INTEGER.fullmatch(c) for c in filled):
        return Integer()
    if filled and all(_REAL.fullmatch(c) for c in filled):
        return Float()
    return Text()
