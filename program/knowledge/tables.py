"""A database as a source: a question becomes one SELECT, its result one passage."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlglot
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool, StaticPool
from sqlglot import exp

from program.errors import KnowledgeError
from program.knowledge.sql_gate import check_sql
from program.knowledge.tables_csv import WRITTEN, Templates, load_folder
from program.models.embedded.encoder import Embedder
from program.models.table_rows import SHOWN_ROWS, RowQuery, RowReader
from program.models.table_schema import Schema, read_schema
from program.passage import COMPUTED, NO_FILTERS, SELECTED, Filters, Passage, ReadReport, Source, SourceCard

SECONDS = 2.0
SHOWN_WRITTEN = 40  # rows that are shown of a SELECT written by a language model
_OPERATIONS = 5_000  # of SQLite's machine between two looks at the clock
_MOST_CHARACTERS = 1_000
_URL_MEND = "Write it as SQLAlchemy does, such as sqlite:///orders.db, and install its driver."
_READ_ONLY = {
    "sqlite": ("PRAGMA query_only = ON",),
    "postgresql": (
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
        f"SET statement_timeout = {int(SECONDS * 1000)}",
    ),
    "mysql": ("SET SESSION TRANSACTION READ ONLY", f"SET SESSION max_execution_time = {int(SECONDS * 1000)}"),
    "mariadb": ("SET SESSION TRANSACTION READ ONLY", f"SET SESSION max_statement_time = {SECONDS}"),
}


class TableSource(Source):
    """A database, or a folder of CSV files, that answers questions and is never written to.

    `place` is an SQLAlchemy URL or a folder. A question that no query accounts for gets no passage. Raises
    `KnowledgeError` when the database or a file cannot be read. Safe from many threads.
    """

    def __init__(self, card: SourceCard, place: str | Path, embedder: Embedder) -> None:
        self._url = _parse_url(str(place)) if "://" in str(place) else None
        self._file = Path((self._url.database or "") if self._url else place)
        self._shown = self._url.render_as_string(hide_password=True) if self._url else str(place)
        # An in-memory database lives in one connection, which threads must take in turn.
        self._turn = nullcontext() if self._url else threading.Lock()
        self.read, self._templates = ReadReport(), Templates()
        """What was read of the files of a folder; how its amounts are shown."""
        self._engine = _open_database(self._url) if self._url else self._load_folder(card.name)
        self.loaded = "" if self._url else self.digest
        """Identifies the rows of CSV files, which were read just now; empty for a database, whose rows may change."""
        with self._connected() as connection:
            self.schema: Schema = _hide_written(read_schema(connection))
        if not self.schema.tables and self._url:
            raise KnowledgeError(f"The database of {card.name} has no table.", "Correct its url in ragc.toml.")
        self._reader = RowReader(self.schema, embedder, lambda sql: self.rows(sql)[1])
        self.columns = {table.name: [column.name for column in table.columns] for table in self.schema.tables}
        about = card.about or "; ".join(f"{name}: {', '.join(columns)}" for name, columns in self.columns.items())
        self._card = replace(card, about=about)

    def describe(self) -> SourceCard:
        """Return the card given, with the tables and columns where it says nothing."""
        return self._card

    @property
    def schema_card(self) -> str:
        """The tables, columns, samples and keys as text, for whoever writes SQL."""
        return self.schema.describe()

    @property
    def digest(self) -> str:
        """Identifies the rows of CSV files or an SQLite file as they are now; empty for a server's."""
        if self._url is not None and self._url.get_backend_name() != "sqlite":
            return ""
        found = hashlib.sha256()
        for file in sorted(self._file.rglob("*")) if self._file.is_dir() else [self._file]:
            if file.is_file():
                found.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
        return f"sha256:{found.hexdigest()}"

    def candidates(self, query: str, depth: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        """Return one passage that holds the rows found, or none.

        Its score is the confidence in [0, 1]. The rows are those of `filters.sql`, where it is given, passes
        `check_sql` and finds any.
        """
        if depth < 1 or not query.strip():
            return []
        found = self._select_written(filters.sql) if filters.sql else None
        if found is None and (asked := self._reader.read(query[:_MOST_CHARACTERS])):
            found = self._select_read(asked)
        return [found] if found and filters.admits(found) else []

    def rows(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return column names and at most 200 rows of a statement.

        Raises `KnowledgeError` when `check_sql` refuses it, it fails, or it takes more than 2 seconds.
        """
        safe = check_sql(sql, self.columns, self.schema.dialect)
        with self._connected(SECONDS) as connection:
            # Without parameters the driver takes colons and percent signs in a literal for what they are.
            result = connection.execution_options(no_parameters=True).exec_driver_sql(safe)
            return list(result.keys()), [tuple(row) for row in result]

    def _select_read(self, asked: RowQuery) -> Passage | None:
        """Return the figure and the rows that a question was read to ask for; None where there is none to tell."""
        names, rows = self.rows(asked.rows_sql)
        value: Any = None
        method = SELECTED
        if asked.operation in ("count", "sum", "avg"):
            method = COMPUTED
            value = self.rows(asked.sql)[1][0][0]
        elif asked.operation and rows:
            measure = names.index(asked.measure)
            value = rows[0][measure]
            rows = [row for row in rows if row[measure] == value]
        elif len(rows) > SHOWN_ROWS:
            return None
        if value is None and (asked.operation or not rows):
            return None
        subject = asked.table.replace("_", " ").capitalize()
        figure = self._templates.get((asked.table, asked.measure), "{}").format(show_value(value))
        said = [f"{subject}{asked.where}: {asked.computed} {figure}."] if asked.operation else []
        lines, shown = [*said, *_format_rows(names, rows)], f"{asked.computed}{asked.where}"
        return self._make_passage([asked.table], shown, lines, asked.confidence, method, asked.sql)

    def _select_written(self, sql: str) -> Passage | None:
        """Return the rows of a SELECT that a language model wrote; None where it is refused, fails or finds none."""
        try:
            names, rows = self.rows(sql)
        except KnowledgeError:
            return None
        if all(value is None for row in rows for value in row):
            return None
        read = {table.name.lower() for table in sqlglot.parse_one(sql, dialect=self.schema.dialect).find_all(exp.Table)}
        tables = [name for name in self.columns if name.lower() in read]
        some = f" (the first {SHOWN_WRITTEN} of {len(rows)} rows)" if len(rows) > SHOWN_WRITTEN else ""
        lines = _format_rows(names, rows, SHOWN_WRITTEN)
        shown = ", ".join(name for name in names if not name.endswith(WRITTEN))
        return self._make_passage(tables, shown + some, lines, 1.0, "sql", " ".join(sql.split()))

    def _make_passage(
        self, tables: Sequence[str], shown: str, lines: Sequence[str], score: float, method: str, sql: str
    ) -> Passage:
        title = f"{' and '.join(tables)} > {shown}"
        return Passage(f"{self.name}/{tables[0]}", self.name, title, "\n".join(lines), score, method, reason=sql)

    def _load_folder(self, base: str) -> Engine:
        engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
        with engine.begin() as connection:
            self.read, self._templates = load_folder(self._file, connection, base)
        with engine.connect() as connection:
            connection.execute(text("PRAGMA query_only = ON"))
        return engine

    @contextmanager
    def _connected(self, seconds: float | None = None) -> Iterator[Connection]:
        with self._turn:
            try:
                with self._engine.connect() as connection, _limit_time(connection, seconds):
                    yield connection
            except SQLAlchemyError as error:
                if "interrupted" in str(error) or "timeout" in str(error):
                    raise KnowledgeError(
                        f"A look-up in {self.name} took longer than {SECONDS:g} seconds.",
                        "Add an index to the database, or ask for less.",
                    ) from error
                raise KnowledgeError(
                    f"The database {self._shown} cannot be read: {_first_line(error)}.",
                    "Correct its url in ragc.toml, and check that it runs and may be read.",
                ) from error


@contextmanager
def _limit_time(connection: Connection, seconds: float | None) -> Iterator[None]:
    driver = connection.connection.driver_connection
    if seconds is None or connection.dialect.name != "sqlite" or driver is None:
        yield
        return
    stop = time.monotonic() + seconds
    driver.set_progress_handler(lambda: time.monotonic() > stop, _OPERATIONS)
    try:
        yield
    finally:
        driver.set_progress_handler(None, 0)


def _hide_written(schema: Schema) -> Schema:
    """Return a schema without the columns that hold amounts as they are written."""
    plain = {t.name: tuple(column for column in t.columns if not column.name.endswith(WRITTEN)) for t in schema.tables}
    return replace(schema, tables=tuple(replace(table, columns=plain[table.name]) for table in schema.tables))


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
        cursor = driver.cursor()
        for command in _READ_ONLY.get(backend, ()):
            cursor.execute(command)
        cursor.close()
        driver.commit()  # else the settings are rolled back with the first transaction

    return engine


def show_value(value: Any) -> str:
    """Write a value for a reader: figures to two decimals, a missing one as a dash."""
    if value is None:
        return "-"
    if isinstance(value, float | Decimal):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)


def _format_rows(names: Sequence[str], rows: Sequence[Sequence[Any]], most: int = SHOWN_ROWS) -> list[str]:
    """Return an item of `column: value` for each row that is shown, amounts as they are written."""
    lines = []
    for row in rows[:most]:
        values = dict(zip(names, row, strict=True))
        shown = [(name, values.get(name + WRITTEN) or value) for name, value in values.items() if WRITTEN not in name]
        lines.append("* " + ", ".join(f"{name}: {show_value(value)}" for name, value in shown if value is not None))
    return lines


def _first_line(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0].rstrip(".")
