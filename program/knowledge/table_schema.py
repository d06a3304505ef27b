"""The schema of a database, read from it: tables, columns, values, ranges and keys."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from ragc.text.days import parse_day

Kind = Literal["integer", "real", "date", "text", "boolean"]
DISTINCT_KEPT, LONGEST_VALUE, TABLES_READ = 500, 120, 100
SAMPLES = 12  # values of a column that a description of it shows
_YES_NO = frozenset({"yes", "no", "true", "false", "y", "n", "t", "f"})
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)?")
_IDENTIFIER = re.compile(r"(?:^|_)(?:id|key|number|ref)$|(?:I[dD]|Key|Number|Ref)$")
warnings.filterwarnings("ignore", "Did not recognize type", sa.exc.SAWarning)  # its text is read, as of any other
_COMPARABLE = (sa.String, sa.Integer, sa.Numeric, sa.Float, sa.Date, sa.DateTime, sa.Boolean, sa.LargeBinary)
"""Types that every server compares; of others, such as JSON and arrays, the text is read."""
_KINDS: Sequence[tuple[Kind, Any]] = (
    ("boolean", sa.Boolean),
    ("date", sa.Date | sa.DateTime),
    ("integer", sa.Integer),
    ("real", sa.Numeric | sa.Float),
)
_DIALECTS = {"postgresql": "postgres", "mssql": "tsql", "mariadb": "mysql"}  # sqlglot's names


class Column(NamedTuple):
    """One column of a table or view."""

    name: str
    kind: Kind
    values: tuple[str, ...] = ()
    """The distinct values of a text column with at most 500, none of identifiers."""
    low: Any = None
    """The least of a number or date column, a date as ISO text."""
    high: Any = None
    identifies: bool = False
    """Whether its values are identifiers, by their shape or by its name."""

    def describe(self) -> str:
        """Return its name and kind, with its range, its values or the first of them."""
        shown = f" from {self.low} to {self.high}" if self.low is not None else ""
        if self.values:
            more = ", ..." if len(self.values) > SAMPLES else ""
            shown = f": {', '.join(self.values[:SAMPLES])}{more}"
        return f"{self.name} {self.kind}{shown}"


class ForeignKey(NamedTuple):
    """A `column` of a table that holds values of another table's column."""

    column: str
    to_table: str
    to_column: str


class TableSchema(NamedTuple):
    """One table or view, its primary key, and the tables it points at."""

    name: str
    columns: tuple[Column, ...]
    foreign_keys: tuple[ForeignKey, ...] = ()
    primary_key: tuple[str, ...] = ()
    view: bool = False


class Schema(NamedTuple):
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


def read_schema(connection: sa.Connection, rows_of: Callable[[str], sa.FromClause] = sa.table) -> Schema:
    """Read the schema of a database from its catalogue and a few aggregates."""
    inspector, (found, views, _) = sa.inspect(connection), list_tables(connection)
    names, tables = sorted([*found, *views])[:TABLES_READ], []
    for name in names:
        described = inspector.get_columns(name)
        rows = int(connection.execute(sa.select(sa.func.count()).select_from(rows_of(name))).scalar_one())
        columns = tuple(_read_column(connection, d["name"], d["type"], rows, rows_of(name)) for d in described)
        keys = tuple(
            ForeignKey(key["constrained_columns"][0], key["referred_table"], key["referred_columns"][0])
            for key in inspector.get_foreign_keys(name)
            if len(key["constrained_columns"]) == len(key["referred_columns"]) == 1
            if key["referred_table"] in names and key["referred_table"] != name
        )
        primary = tuple(inspector.get_pk_constraint(name)["constrained_columns"]) if name not in views else ()
        tables.append(TableSchema(name, columns, keys, primary, name in views))
    name = connection.dialect.name
    return Schema(tuple(tables), _DIALECTS.get(name, name))


def list_tables(connection: sa.Connection) -> tuple[list[str], list[str], list[str]]:
    """Return the tables, the views, and what of both this user may not read."""
    inspector = sa.inspect(connection)
    tables, views = inspector.get_table_names(), inspector.get_view_names()
    if connection.dialect.name != "postgresql":  # others list what may be read
        return tables, views, []
    quote = connection.dialect.identifier_preparer.quote
    may = {
        name: connection.scalar(sa.select(sa.func.has_table_privilege(quote(name), "select")))
        for name in (*tables, *views)
    }
    return [n for n in tables if may[n]], [n for n in views if may[n]], sorted(n for n in may if not may[n])


def _read_column(connection: sa.Connection, name: str, type_: Any, rows: int, source: sa.FromClause) -> Column:
    column: sa.ColumnElement[Any] = sa.column(name)
    if not isinstance(type_, _COMPARABLE):
        column = sa.cast(column, sa.Text)
    kind: Kind = next((kind for kind, types in _KINDS if isinstance(type_, types)), "text")
    values: tuple[str, ...] = ()
    shaped = False
    if kind == "text" and not isinstance(type_, sa.LargeBinary):
        kept = sa.select(column).distinct().select_from(source).where(column.is_not(None)).limit(DISTINCT_KEPT + 1)
        sample = sorted(map(str, connection.execute(kept).scalars()))
        if sample and all(_ISO.fullmatch(v) for v in sample):
            kind = "date"
        elif sample and len(sample) <= 2 and {v.lower() for v in sample} <= _YES_NO:
            kind, values = "boolean", tuple(sample)
        else:
            shaped = (1 < len(sample) == rows or len(sample) > 20) and _have_shape(sample)
            if len(sample) <= DISTINCT_KEPT and not shaped:
                values = tuple(v for v in sample if 0 < len(v) <= LONGEST_VALUE)
    low = high = None
    if kind in ("integer", "real", "date"):
        low, high = connection.execute(sa.select(sa.func.min(column), sa.func.max(column)).select_from(source)).one()
        low, high = (str(v) if kind == "date" and v is not None else v for v in (low, high))
        # SQLite keeps whatever it is given, so a column may not hold what it was declared to.
        if any(not _fits_kind(kind, v) for v in (low, high) if v is not None):
            kind, low, high = "text", None, None
    named = kind != "date" and _IDENTIFIER.search(name) is not None
    return Column(name, kind, values, low, high, shaped or named)


def _fits_kind(kind: Kind, value: Any) -> bool:
    return parse_day(value) is not None if kind == "date" else not isinstance(value, str | bytes)


def _have_shape(sample: Sequence[str]) -> bool:
    """Tell whether at most three patterns such as `TG-\\d+` fit all values."""
    if any(not re.search(r"\d", v) or re.search(r"\s", v) or len(v) < 3 for v in sample):
        return False
    return len({re.sub(r"\d+", "0", v) for v in sample}) <= 3
