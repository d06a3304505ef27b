"""The schema of a database, read from it: tables, columns, values, ranges and keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property, lru_cache
from typing import Any, Literal

import sqlalchemy as sa

Kind = Literal["integer", "real", "date", "text", "boolean"]
DISTINCT_KEPT, LONGEST_VALUE, TABLES_READ = 500, 120, 100
SAMPLES = 6  # values of a column that a description of it shows
_YES_NO = frozenset({"yes", "no", "true", "false", "y", "n", "t", "f"})
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)?")
_NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")


@lru_cache(maxsize=5_000)
def _split_name(name: str) -> tuple[str, ...]:
    return tuple(p.lower() for p in _NAME_PART.findall(name)) or (name.lower(),)


@dataclass(frozen=True)
class Column:
    """One column of a table or view.

    `values` are the distinct values of a text column with at most 500; `low` and `high` the extremes of a number or
    date column (dates as ISO text); `shapes` are regular expressions that every value of an identifier column fits.
    """

    table: str
    name: str
    kind: Kind
    unique: bool = False
    values: tuple[str, ...] = ()
    low: Any = None
    high: Any = None
    shapes: tuple[str, ...] = ()

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words of its name, lower case: `unit_price_gbp` is unit, price, gbp."""
        return _split_name(self.name)

    def describe(self) -> str:
        """Return its name and kind, with its range, its values or the first of them."""
        shown = f" from {self.low} to {self.high}" if self.low is not None else ""
        if self.values:
            more = ", ..." if len(self.values) > SAMPLES else ""
            shown = f": {', '.join(self.values[:SAMPLES])}{more}"
        return f"{self.name} {self.kind}{shown}"

    @property
    def number(self) -> bool:
        """True for a quantity that can be added up: a number that is no key."""
        return self.kind in ("integer", "real") and not self.key and not self.year

    @property
    def key(self) -> bool:
        """True for an identifier by its name or the shape of its values."""
        return bool(self.shapes) or (self.words[-1] in ("id", "key", "number", "ref") and self.kind != "date")

    @property
    def year(self) -> bool:
        """True for a number column that holds years."""
        return self.kind == "integer" and "year" in self.words and 1000 <= (self.low or 0) <= (self.high or 0) < 2200


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A `column` of a table that holds values of another table's column."""

    column: str
    to_table: str
    to_column: str


@dataclass(frozen=True)
class TableSchema:
    """One table or view, and the tables it points at."""

    name: str
    columns: tuple[Column, ...]
    foreign_keys: tuple[ForeignKey, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The words of its name, lower case."""
        return _split_name(self.name)


@dataclass(frozen=True, slots=True)
class Schema:
    """Every table of a database, and the SQL dialect it speaks (sqlglot's name)."""

    tables: tuple[TableSchema, ...]
    dialect: str

    def describe(self) -> str:
        """Return for SQL writers the dialect, tables, columns, samples and keys as text."""
        lines = [f"Dialect: {self.dialect}"]
        for table in self.tables:
            lines += ["", f"Table {table.name}", *(f"  {column.describe()}" for column in table.columns)]
            lines += [f"  {key.column} refers to {key.to_table}.{key.to_column}" for key in table.foreign_keys]
        return "\n".join(lines)

    def table(self, name: str) -> TableSchema:
        """Return the table of that name."""
        return next(table for table in self.tables if table.name == name)

    def reachable_columns(self, table: TableSchema) -> Iterator[Column]:
        """Yield the columns of a table, then those but the keys of tables it points at."""
        yield from table.columns
        for key in table.foreign_keys:
            yield from (c for c in self.table(key.to_table).columns if c.name != key.to_column)


def read_schema(connection: sa.Connection) -> Schema:
    """Read the schema of a database from its catalogue and a few aggregates a column."""
    inspector = sa.inspect(connection)
    names = sorted([*inspector.get_table_names(), *inspector.get_view_names()])[:TABLES_READ]
    tables = []
    for name in names:
        described = inspector.get_columns(name)
        rows = int(connection.execute(sa.select(sa.func.count()).select_from(sa.table(name))).scalar_one())
        columns = tuple(_read_column(connection, name, d["name"], d["type"], rows) for d in described)
        keys = tuple(
            ForeignKey(key["constrained_columns"][0], key["referred_table"], key["referred_columns"][0])
            for key in inspector.get_foreign_keys(name)
            if len(key["constrained_columns"]) == len(key["referred_columns"]) == 1
            if key["referred_table"] in names and key["referred_table"] != name
        )
        tables.append(TableSchema(name, columns, keys))
    dialect = {"postgresql": "postgres", "mssql": "tsql"}.get(connection.dialect.name, connection.dialect.name)
    return Schema(tuple(_with_implied_keys(table, tables) for table in tables), dialect)


def _with_implied_keys(table: TableSchema, tables: Sequence[TableSchema]) -> TableSchema:
    """Add the keys that column names imply, when none is declared."""
    if table.foreign_keys:
        return table
    keys = tuple(
        ForeignKey(mine.name, other.name, theirs.name)
        for mine in table.columns
        for other in tables
        for theirs in other.columns
        if other.name != table.name and mine.name == theirs.name and mine.kind == theirs.kind
        if theirs.unique and theirs.key and not mine.unique
    )
    return TableSchema(table.name, table.columns, keys)


def _read_column(connection: sa.Connection, table: str, name: str, type_: Any, rows: int) -> Column:
    column: sa.ColumnClause[Any] = sa.column(name)
    source = sa.table(table, column)
    counts = sa.select(sa.func.count(sa.distinct(column))).select_from(source)
    different = connection.execute(counts).scalar_one()
    unique = different == rows and rows > 1
    kind: Kind = (
        "boolean" if isinstance(type_, sa.Boolean)
        else "date" if isinstance(type_, sa.Date | sa.DateTime)
        else "integer" if isinstance(type_, sa.Integer)
        else "real" if isinstance(type_, sa.Numeric | sa.Float)
        else "text"
    )  # fmt: skip
    values: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    if kind == "text" and not isinstance(type_, sa.LargeBinary):
        kept = sa.select(column).distinct().select_from(source).where(column.is_not(None)).limit(DISTINCT_KEPT + 1)
        sample = sorted(map(str, connection.execute(kept).scalars()))
        if sample and all(_ISO.fullmatch(v) for v in sample):
            kind = "date"
        elif sample and len(sample) <= 2 and {v.lower() for v in sample} <= _YES_NO:
            kind, values = "boolean", tuple(sample)
        else:
            shapes = _find_shapes(sample) if unique or len(sample) > 20 else ()
            if len(sample) <= DISTINCT_KEPT and not shapes:
                values = tuple(v for v in sample if 0 < len(v) <= LONGEST_VALUE)
    low = high = None
    if kind in ("integer", "real", "date"):
        low, high = connection.execute(sa.select(sa.func.min(column), sa.func.max(column)).select_from(source)).one()
        low, high = (str(v) if kind == "date" and v is not None else v for v in (low, high))
        # SQLite keeps whatever it is given, so a column may not hold what it was declared to.
        if any(not _fits_kind(kind, v) for v in (low, high) if v is not None):
            kind, low, high = "text", None, None
    return Column(table, name, kind, unique, values, low, high, shapes)


def _fits_kind(kind: Kind, value: Any) -> bool:
    if kind != "date":
        return not isinstance(value, str | bytes)
    try:
        return bool(date.fromisoformat(str(value)[:10]))
    except ValueError:
        return False


def _find_shapes(sample: Sequence[str]) -> tuple[str, ...]:
    """Return at most three patterns such as `TG-\\d+` that fit every value, or none."""
    if any(not re.search(r"\d", v) or re.search(r"\s", v) or len(v) < 3 for v in sample):
        return ()
    found = {re.sub(r"\d+", "0", v) for v in sample}
    return tuple(sorted(re.escape(f).replace("0", r"\d+") for f in found)) if len(found) <= 3 else ()
