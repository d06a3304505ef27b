"""Tables as a source: a question becomes one SELECT, its result one passage."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool, StaticPool

from program.errors import KnowledgeError
from program.knowledge.sql_gate import checked
from program.knowledge.tables_csv import load_folder
from program.models.embedded.encoder import Embedder
from program.models.rules import tables_say
from program.models.rules.slots import fill
from program.models.rules.tables_query import RESULT, Query, statement
from program.models.table_schema import Schema, read_schema
from program.passage import NO_FILTERS, Filters, Passage, SourceCard

__all__ = ["FLOOR", "Tables", "checked"]

FLOOR = 0.62
"""Confidence under which a question is not about these tables."""
SECONDS = 2.0
LOOKUP_ROWS = 10
_OPERATIONS = 5_000  # of SQLite's machine between two looks at the clock
_MOST_CHARACTERS = 1_000
_TIES = 10
_URL_MEND = "Write it as SQLAlchemy does, such as sqlite:///orders.db, and install its driver."
_READ_ONLY = {
    "postgresql": (
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
        f"SET statement_timeout = {int(SECONDS * 1000)}",
    ),
    "mysql": ("SET SESSION TRANSACTION READ ONLY", f"SET SESSION max_execution_time = {int(SECONDS * 1000)}"),
    "mariadb": ("SET SESSION TRANSACTION READ ONLY", f"SET SESSION max_statement_time = {SECONDS}"),
}


class Tables:
    """Answers questions about a database, or a folder of CSV files, that it never writes to.

    `place` is an SQLAlchemy URL or a folder. No language model is asked: slots are filled from the
    question's words, the schema and its values. A question that the slots do not account for gets no
    passage. Raises `KnowledgeError` when the database or a file cannot be read. Safe from many threads.
    """

    def __init__(self, name: str, card: SourceCard, place: str | Path, embedder: Embedder) -> None:
        self._name, self._card, self._embedder = name, card, embedder
        url = _url(str(place)) if "://" in str(place) else None
        self._shown = url.render_as_string(hide_password=True) if url else str(place)
        # An in-memory database lives in one connection, which threads must take in turn.
        self._turn = nullcontext() if url else threading.Lock()
        self._engine = _database(url) if url else _folder(Path(place))
        self.loaded = "" if url else self.digest
        """Identifies the rows of CSV files, which were read just now; empty for a database, whose rows may change."""
        with self._connected() as connection:
            self.schema: Schema = read_schema(connection)
        if not self.schema.tables:
            raise KnowledgeError(f"The database of {name} has no table.", "Correct its url in ragc.toml.")

    @property
    def name(self) -> str:
        return self._name

    @property
    def digest(self) -> str:
        """Identifies the rows of CSV files or an SQLite file as they are now; empty for a server's."""
        url = _url(self._shown) if "://" in self._shown else None
        if url is not None and url.get_backend_name() != "sqlite":
            return ""
        place = Path(url.database or "") if url is not None else Path(self._shown)
        found = hashlib.sha256()
        for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if file.is_file():
                found.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
        return f"sha256:{found.hexdigest()}"

    def describe(self) -> SourceCard:
        """The card given, its tables and columns named when it says nothing of what it holds."""
        if self._card.about:
            return self._card
        about = "; ".join(f"{t.name}: {', '.join(c.name for c in t.columns)}" for t in self.schema.tables)
        return SourceCard(self._card.name, self._card.kind, about, self._card.asks, self._card.not_)

    def candidates(self, query: str, depth: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        """The same as `search`: a question has one statement."""
        return self.search(query, depth, filters)

    def search(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        """At most one passage, its score the confidence in [0, 1]; none under the floor or without a row."""
        if k < 1 or not query.strip():
            return []
        filled = fill(query[:_MOST_CHARACTERS], self.schema, self._embedder)
        if filled is None or filled.confidence < FLOOR:
            return []
        sql, names, rows = self._filled(filled)
        if not _tells(filled, rows):
            return []
        if tied := self._tied(filled, names, rows):
            filled = replace(filled, limit=tied)
            sql, names, rows = self._filled(filled)
        passage = Passage(
            id=f"{self._name}/{filled.table.name}",
            source=self._name,
            title=tables_say.title(filled),
            text=tables_say.text(filled, names, rows, sql),
            score=filled.confidence,
            method="sql",
        )
        return [passage] if filters.admits(passage) else []

    async def asearch(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        """`search`, off the event loop."""
        return await asyncio.to_thread(self.search, query, k, filters)

    def rows(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows of a statement, at most 200.

        Raises `KnowledgeError` when `checked` refuses it, it fails, or it takes more than 2 seconds.
        """
        return self._run(checked(sql, self.schema))

    def _run(self, safe: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        with self._connected(SECONDS) as connection:
            # Without parameters the driver takes colons and percent signs in a literal for what they are.
            result = connection.execution_options(no_parameters=True).exec_driver_sql(safe)
            return list(result.keys()), [tuple(row) for row in result]

    def _filled(self, query: Query) -> tuple[str, list[str], list[tuple[Any, ...]]]:
        sql = checked(statement(query, self.schema), self.schema)
        return sql, *self._run(sql)

    def _tied(self, query: Query, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> int:
        """How many rows share the last place with those shown, these included; 0 when none does."""
        if query.order is None or query.limit is None or len(rows) < query.limit:
            return 0
        measure = query.measure.columns[0].name if query.measure and RESULT not in names else RESULT
        at = list(names).index(measure)
        _, _, wider = self._filled(replace(query, limit=query.limit + _TIES))
        level = sum(row[at] == rows[-1][at] for row in wider[len(rows) :])
        return len(rows) + level if level else 0

    @contextmanager
    def _connected(self, seconds: float | None = None) -> Iterator[Connection]:
        with self._turn:
            try:
                with self._engine.connect() as connection, _limited(connection, seconds):
                    yield connection
            except SQLAlchemyError as error:
                if "interrupted" in str(error) or "timeout" in str(error):
                    raise KnowledgeError(
                        f"A look-up in {self._name} took longer than {SECONDS:g} seconds.",
                        "Add an index to the database, or ask for less.",
                    ) from error
                raise KnowledgeError(
                    f"The database {self._shown} cannot be read: {_first_line(error)}.",
                    "Correct its url in ragc.toml, and check that it runs and may be read.",
                ) from error


def _tells(query: Query, rows: Sequence[Sequence[Any]]) -> bool:
    """False when there is no row or only NULL, or so many that the question cannot have meant a look-up."""
    if not rows or all(value is None for value in rows[0]):
        return False
    return query.intent != "lookup" or len(rows) <= LOOKUP_ROWS


@contextmanager
def _limited(connection: Connection, seconds: float | None) -> Iterator[None]:
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


def _folder(folder: Path) -> Engine:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    try:
        with engine.begin() as connection:
            load_folder(folder, connection)
        with engine.connect() as connection:
            connection.execute(text("PRAGMA query_only = ON"))
    except SQLAlchemyError as error:
        raise KnowledgeError(
            f"The CSV files in {folder} make no tables: {_first_line(error)}.",
            "Give the files and their columns plain names.",
        ) from error
    return engine


def _url(place: str) -> URL:
    try:
        return make_url(place)
    except (ArgumentError, ValueError) as error:
        # The text is not repeated: it may hold a password.
        raise KnowledgeError("The url of the database cannot be read.", _URL_MEND) from error


def _database(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        return _sqlite(Path(url.database or ""))
    try:
        engine = create_engine(url, pool_pre_ping=True)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise KnowledgeError(f"The database cannot be opened: {_first_line(error)}.", _URL_MEND) from error
    commands = _READ_ONLY.get(url.get_backend_name(), ())

    @event.listens_for(engine, "connect")
    def read_only(driver: Any, _record: Any) -> None:
        cursor = driver.cursor()
        for command in commands:
            cursor.execute(command)
        cursor.close()
        driver.commit()  # else the settings are rolled back with the first transaction

    return engine


def _sqlite(file: Path) -> Engine:
    if not file.is_file():
        raise KnowledgeError(f"There is no database file {file}.", "Correct its url in ragc.toml.")
    uri = f"{file.resolve().as_uri()}?mode=ro"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(uri, uri=True)
        connection.execute("PRAGMA query_only = ON")
        return connection

    return create_engine("sqlite://", creator=connect, poolclass=NullPool)


def _first_line(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0].rstrip(".")
