"""Tables as a source: their rows are passages, and a SELECT that a language model wrote is run on them.

1. Of a folder the rows are read as those of documents are (`read_base`); of a database here, as records.
2. A database is opened for a SELECT, read only; CSV files are loaded into one in memory.
3. The SELECT is checked, runs for at most two seconds, and its rows are one passage, whose `reason` is the SQL.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
import sqlglot
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool, StaticPool
from sqlglot import exp

from ragc.errors import KnowledgeError
from ragc.knowledge.ingest.csv_rows import SUFFIXES
from ragc.knowledge.ingest.csv_tables import WRITTEN, load_tables
from ragc.knowledge.ingest.folder import FolderContents, list_files, tell_rows_left_out
from ragc.knowledge.ingest.metadata import READERS, Metadata, normalise_key, read_groups
from ragc.knowledge.ingest.records import Record, make_rows
from ragc.knowledge.ingest.sections import Document, make_document
from ragc.knowledge.ingest.table_rows import format_row
from ragc.knowledge.sql_gate import RowGuard, align_values, check_sql
from ragc.knowledge.table_schema import TABLES_READ, ForeignKey, Schema, TableSchema, list_tables, read_schema
from ragc.passage import Flaw, Passage, ReaderSets, join_readers
from ragc.settings import KINDS, TablesSettings

SECONDS = 2.0  # of a look-up
READING_SECONDS = 60.0  # of a statement by which a server's schema and passages are read
SHOWN_ROWS = 40  # of a SELECT
_ID_AT_END = re.compile(r"_?id$", re.IGNORECASE)
_OPERATIONS = 5_000  # of SQLite's machine between two looks at the clock
_URL_MEND = "Write it as SQLAlchemy does, such as sqlite:///orders.db, and install its driver."
_READ_ONLY = {
    "sqlite": "PRAGMA query_only = ON",
    "postgresql": "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "mysql": "SET SESSION TRANSACTION READ ONLY",
    "mariadb": "SET SESSION TRANSACTION READ ONLY",
}
_BINARY = {"sqlite": "BINARY", "postgresql": "C", **dict.fromkeys(("mysql", "mariadb"), "utf8mb4_bin")}
"""The collation by which two names of groups are equal only where they are written alike."""
_TIME_LIMITS = {  # of each statement; {0} in seconds, {1} in milliseconds
    "postgresql": "SET LOCAL statement_timeout = {1}",
    "mysql": "SET SESSION max_execution_time = {1}",
    "mariadb": "SET SESSION max_statement_time = {0}",
}


class Database:
    """The database of a base of tables, never written to. It is opened when first used; safe from many threads.

    What reads it raises `KnowledgeError` when it cannot be read. It holds the rows that the readers `admitted` may
    read, or all.
    """

    def __init__(self, name: str, base: TablesSettings, admitted: frozenset[ReaderSets] | None = None) -> None:
        self.name, self._base, self._admitted = name, base, admitted
        self._url = _parse_url(base.url) if base.url else None
        # An in-memory database lives in one connection, which threads must take in turn.
        self._turn = nullcontext() if self._url else threading.Lock()
        self._opening = threading.Lock()
        self._loaded: list[Flaw] = []

    @property
    def flaws(self) -> list[Flaw]:
        """What no SELECT reads of CSV files."""
        if self._url is None:
            with self._connected():
                return self._loaded
        return []

    @cached_property
    def schema(self) -> Schema:
        """The tables, without the columns that hold amounts as they are written."""
        with self._connected() as connection:
            schema = read_schema(connection, self._select_rows)
        if self._admitted is None:
            return _hide_written(schema)
        # Of a view nobody knows of which rows it is made.
        tables = (t for t in schema.tables if not (t.view and self._guards and t.name.lower() not in self._guards))
        return _hide_written(schema._replace(tables=tuple(tables)), READERS)

    @cached_property
    def _guards(self) -> Mapping[str, RowGuard]:
        """By table in lower case what says who may read its rows."""
        if self._url is None:
            return {}
        found: dict[str, RowGuard] = {}
        with self._connected() as connection:
            inspector, collation = sa.inspect(connection), _BINARY.get(connection.dialect.name, "")
            readable, views, _ = list_tables(connection)
            for name in (*readable, *views):
                for column in (c["name"] for c in inspector.get_columns(name) if normalise_key(c["name"]) == READERS):
                    written, rows = _spell_exactly(column, collation), sa.table(name)
                    held: sa.ColumnClause[Any] = sa.column(column)
                    values = []
                    for one in connection.scalars(sa.select(written).select_from(rows).distinct()).all():
                        said = sa.select(held).select_from(rows).where(written == one).limit(1)  # a list, in an array
                        if one is not None and self._admits(connection.scalar(said)):
                            values.append(one)
                    found[name.lower()] = RowGuard(column, collation, values)
        return found

    def _admits(self, value: object) -> bool:
        return self._admitted is None or join_readers(self._base.reader_sets, read_groups(value)) in self._admitted

    def _select_rows(self, name: str) -> sa.FromClause:
        if self._admitted is None or name.lower() not in self._guards:
            return sa.table(name)
        guard = self._guards[name.lower()]
        admitted = sa.column(guard.column).is_(None) | _spell_exactly(guard.column, guard.collation).in_(guard.values)
        return sa.select(sa.text("*")).select_from(sa.table(name)).where(admitted).subquery(name)

    @cached_property
    def columns(self) -> dict[str, list[str]]:
        """The names of the columns of each table."""
        return {table.name: [column.name for column in table.columns] for table in self.schema.tables}

    @property
    def digest(self) -> str:
        """Identifies the rows of CSV files or an SQLite file as they are now; empty for a server's."""
        if self._url is not None and self._url.get_backend_name() != "sqlite":
            return ""
        found = hashlib.sha256()
        for file, relative in list_files(self.name, self._base, []):
            found.update(relative.encode(errors="replace") + b"\0" + hashlib.sha256(file.read_bytes()).digest())
        return f"sha256:{found.hexdigest()}"

    def select_passages(self, sql: str) -> list[Passage]:
        """Return the rows of a SELECT as one passage, or none.

        None is there where the SELECT is refused, fails or finds no row. A text in it is spelt as its column spells it.
        """
        held = {table.name: {column.name: column.values for column in table.columns} for table in self.schema.tables}
        try:
            sql = align_values(sql, held, self.schema.dialect)
            names, rows = self.rows(sql)
        except KnowledgeError:
            return []
        if all(value is None for row in rows for value in row):
            return []
        read = {table.name.lower() for table in sqlglot.parse_one(sql, dialect=self.schema.dialect).find_all(exp.Table)}
        tables = [name for name in self.columns if name.lower() in read]
        some = f" (the first {SHOWN_ROWS} of {len(rows)} rows)" if len(rows) > SHOWN_ROWS else ""
        shown = ", ".join(name for name in names if not name.endswith(WRITTEN))
        title, text = f"{' and '.join(tables)} > {shown}{some}", "\n".join(_format_rows(names, rows))
        return [Passage(f"{self.name}/{tables[0]}", self.name, title, text, 1.0, "sql", reason=" ".join(sql.split()))]

    def rows(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return column names and at most 200 rows of a statement.

        Raises `KnowledgeError` when `check_sql` refuses it, it fails, or it takes more than 2 seconds.
        """
        safe = check_sql(sql, self.columns, self.schema.dialect, self._guards)
        with self._connected(SECONDS) as connection:
            # Without parameters the driver takes colons and percent signs in a literal for what they are.
            result = connection.execution_options(no_parameters=True).exec_driver_sql(safe)
            return list(result.keys()), [tuple(row) for row in result]

    def read_documents(self) -> FolderContents:
        """Return each table of a database as a document, its first rows as passages."""
        contents, schema = FolderContents(), self.schema
        with self._connected() as connection:
            for table in (table for table in schema.tables if not table.view):
                document, flaws = self._read_table(table, connection)
                contents.documents.append(document)
                contents.flaws += flaws
            readable, _, kept = list_tables(connection)
            if more := len(readable) - len(contents.documents):
                what = f"has {more} more tables than the {TABLES_READ} that are read"
                contents.flaws.append(Flaw(what, "Make a base of a database with fewer.", path=self.name))
            if kept:
                what = f"has tables that the user of its url may not read: {', '.join(kept)}"
                contents.flaws.append(
                    Flaw(what, "Grant SELECT on them, if they are meant.", lost=False, path=self.name)
                )
        if not contents.passages:
            what = f"The database of the knowledge base {self.name!r} holds no rows."
            raise KnowledgeError(what, "Fill it, or correct its url in ragc.toml.")
        return contents

    def _read_table(self, table: TableSchema, connection: Connection) -> tuple[Document, list[Flaw]]:
        """Return a table's rows in the order of its key; what they point at is named, and keys stand last."""
        source = sa.table(table.name, *(sa.column(column.name) for column in table.columns))
        order = [source.c[name] for name in table.primary_key]
        most, guards = self._base.max_rows, [c.name for c in source.c if normalise_key(c.name) == READERS]
        spelt = [_spell_exactly(name, _BINARY.get(connection.dialect.name, "")) for name in guards[:1]]
        alike = [
            one.is_(None) if value is None else one == value
            for one in spelt
            for value in sorted(connection.scalars(sa.select(one).select_from(source).distinct()), key=str)
        ] or [sa.true()]
        # No row takes the place of one that has other readers.
        parts = [
            connection.execute(sa.select(source).where(one).order_by(*order).limit(most + 1)).all() for one in alike
        ]
        found = [row for part in parts for row in part[:most]]
        parents = {key.column: self._name_parents(key, connection) for key in table.foreign_keys}
        numbered = {c.name for c in table.columns if c.name in table.primary_key and c.kind == "integer"}
        records: list[Record] = []
        for row in found:
            cells = {name: v for name, v in row._mapping.items() if v is not None and not isinstance(v, bytes)}
            shown, keys = list[tuple[str, object]](), list[tuple[str, object]]()
            for name, value in cells.items():
                parent = parents[name].get(value) if name in parents else None
                groups = value if name in guards and isinstance(value, list) else None  # in an array
                if parent is not None:
                    shown.append((_ID_AT_END.sub("", name) or name, parent))
                elif name not in numbered:
                    shown.append((name, groups or show_value(value)))
                if parent is not None or name in numbered:
                    keys.append((name, show_value(value)))
            records.append(([*shown, *keys], 0, 0))
        names = ["-".join(str(row._mapping[name]) for name in table.primary_key) for row in found]
        rows, flaws = make_rows(records, names if table.primary_key else ())
        path = f"{self.name}/{table.name}"
        document = make_document(path, rows, Metadata())
        passages = tuple(replace(p, source=self.name, method=KINDS["tables"].method) for p in document.passages)
        if any(len(part) > most for part in parts):
            total = connection.execute(sa.select(sa.func.count()).select_from(source)).scalar_one()
            flaws.append(tell_rows_left_out(self.name, self._base, total))
        return replace(document, passages=passages), [replace(flaw, path=path) for flaw in flaws]

    def _name_parents(self, key: ForeignKey, connection: Connection) -> dict[Any, str]:
        """Return the first text of each row that a foreign key points at, by the row's key."""
        texts = (c.name for c in self.schema.table(key.to_table).columns if c.kind == "text" and not c.identifies)
        if (name := next(texts, None)) is None or name == key.to_column:
            return {}
        columns = [key.to_column, name, *(one for one in self.columns[key.to_table] if normalise_key(one) == READERS)]
        rows = connection.execute(
            sa.select(sa.table(key.to_table, *map(sa.column, columns))).limit(self._base.max_rows)
        )
        return {value: str(text) for value, text, *kept in rows if text is not None and not any(map(read_groups, kept))}

    @cached_property
    def _engine(self) -> Engine:
        if self._url is not None:
            return _open_database(self._url)
        engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
        with engine.begin() as connection:
            listed = list_files(self.name, self._base, [])
            files = [(f, f"{self.name}/{name}") for f, name in listed if f.suffix.lower() in SUFFIXES]
            self._loaded = load_tables(files, connection, self._admits)
        with engine.connect() as connection:
            connection.execute(sa.text("PRAGMA query_only = ON"))
        return engine

    @contextmanager
    def _connected(self, seconds: float | None = None) -> Iterator[Connection]:
        with self._opening:
            engine = self._engine
        with self._turn:
            try:
                with engine.connect() as connection, _limit_time(connection, seconds):
                    yield connection
            except SQLAlchemyError as error:
                if "interrupted" in str(error) or "timeout" in str(error):
                    raise KnowledgeError(
                        f"A look-up in {self.name} took longer than {seconds or READING_SECONDS:g} seconds.",
                        "Add an index to the database, or ask for less.",
                    ) from error
                shown = self._url.render_as_string(hide_password=True) if self._url else self._base.path
                raise KnowledgeError(
                    f"The database {shown} cannot be read: {_first_line(error)}.",
                    "Correct its url in ragc.toml, and check that it runs and may be read.",
                ) from error


@contextmanager
def _limit_time(connection: Connection, seconds: float | None) -> Iterator[None]:
    driver, name = connection.connection.driver_connection, connection.dialect.name
    if name != "sqlite" or seconds is None or driver is None:
        server = "mariadb" if getattr(connection.dialect, "is_mariadb", False) else name  # its url may say MySQL
        if limit := _TIME_LIMITS.get(server):
            most = seconds or READING_SECONDS
            connection.exec_driver_sql(limit.format(most, int(1000 * most)))
        yield
        return
    stop = time.monotonic() + seconds
    driver.set_progress_handler(lambda: time.monotonic() > stop, _OPERATIONS)
    try:
        yield
    finally:
        driver.set_progress_handler(None, 0)


def _spell_exactly(column: str, collation: str) -> sa.ColumnElement[str]:
    """Return a column's text as it is compared letter by letter, whatever the collation of the column."""
    text = sa.cast(sa.column(column), sa.Text)
    return text.collate(collation) if collation else text


def _hide_written(schema: Schema, hidden: str = "") -> Schema:
    """Return a schema without the columns that hold amounts as they are written, and one of a hidden name."""

    def show(name: str) -> bool:
        return not name.endswith(WRITTEN) and normalise_key(name) != hidden

    tables = (table._replace(columns=tuple(c for c in table.columns if show(c.name))) for table in schema.tables)
    return schema._replace(tables=tuple(tables))


def _parse_url(place: str) -> URL:
    try:
        return make_url(place)
    except (ArgumentError, ValueError) as error:
        # The text is not repeated: it may hold a password.
        raise KnowledgeError("The url of the database cannot be read.", _URL_MEND) from error


def _open_database(url: URL) -> Engine:
    backend = url.get_backend_name()
    if backend == "sqlite":
        file = Path(url.database or "").resolve()
        if not file.is_file():
            raise KnowledgeError(f"There is no database file {file}.", "Correct its url in ragc.toml.")
        url = make_url(f"sqlite:///file:{quote(file.as_posix())}?mode=ro&uri=true")
    try:
        engine = create_engine(url, pool_pre_ping=True, poolclass=NullPool if backend == "sqlite" else None)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise KnowledgeError(f"The database cannot be opened: {_first_line(error)}.", _URL_MEND) from error

    @event.listens_for(engine, "connect")
    def set_read_only(driver: Any, _record: Any) -> None:
        if command := _READ_ONLY.get(backend):
            cursor = driver.cursor()
            cursor.execute(command)
            cursor.close()
            driver.commit()  # else it is rolled back with the first transaction

    return engine


def show_value(value: Any) -> str:
    """Write a value for a reader, a figure without idle zeros."""
    if isinstance(value, list | dict):  # of an array, or JSON
        return json.dumps(value, ensure_ascii=False, default=str)
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _format_rows(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return a line of `column: value` for each row that is shown, amounts as they are written."""
    lines = []
    for row in rows[:SHOWN_ROWS]:
        values = dict(zip(names, row, strict=True))
        shown = [(name, values.get(name + WRITTEN) or value) for name, value in values.items() if WRITTEN not in name]
        figures = [(name, _round_figure(value)) for name, value in shown]
        lines.append(format_row((name, show_value(value)) for name, value in figures if value is not None))
    return lines


def _round_figure(value: Any) -> Any:
    """Return a figure with four decimals at most; an exact one with as many as it was given, such as GBP 5.00."""
    if isinstance(value, Decimal) and int(value.as_tuple().exponent) < -4:
        return f"{round(value, 4).normalize():f}"
    return round(value, 4) if isinstance(value, float) else value


def _first_line(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0].rstrip(".")
