"""Tables as a source: a question becomes one SELECT, its result one passage."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from program.errors import KnowledgeError
from program.knowledge import tables_say
from program.knowledge.embedder import Embedder
from program.knowledge.slots import fill
from program.knowledge.source import NO_FILTERS, Filters, Passage, SourceCard
from program.knowledge.tables_csv import load_folder
from program.knowledge.tables_gate import checked
from program.knowledge.tables_query import Query, statement
from program.knowledge.tables_schema import Schema, read_schema

__all__ = ["FLOOR", "Tables", "checked"]

FLOOR = 0.62
"""Confidence under which a question is not about these tables."""
SECONDS = 2.0
LOOKUP_ROWS = 10
_OPERATIONS = 5_000  # of SQLite's machine between two looks at the clock
_MOST_CHARACTERS = 2_000
_READ_ONLY = {
    "postgresql": ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", f"SET statement_timeout = {int(SECONDS * 1000)}"),
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
        url = str(place) if "://" in str(place) else ""
        # An in-memory database lives in one connection, which threads must take in turn.
        self._turn = nullcontext() if url else threading.Lock()
        self._engine = _engine(url) if url else _folder(Path(place))
        with self._connected() as connection:
            self.schema: Schema = read_schema(connection)
        if not self.schema.tables:
            raise KnowledgeError(f"The database of {name} has no table.", "Correct its url in ragc.toml.")

    @property
    def name(self) -> str:
        return self._name

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
        sql = checked(statement(filled, self.schema), self.schema)
        names, rows = self.rows(sql)
        if not _tells(filled, rows):
            return []
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
        """Column names and rows of a statement that has passed `checked`; `KnowledgeError` after 2 seconds."""
        with self._connected(SECONDS) as connection:
            # Colons in a literal are no parameters: the driver gets the statement as it is.
            result = connection.exec_driver_sql(sql)
            return list(result.keys()), [tuple(row) for row in result]

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
                where = self._engine.url.render_as_string(hide_password=True)
                raise KnowledgeError(
                    f"The database {where} cannot be read: {_first_line(error)}.",
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
    with engine.begin() as connection:
        load_folder(folder, connection)
    with engine.connect() as connection:
        connection.execute(text("PRAGMA query_only = ON"))
    return engine


def _engine(place: str) -> Engine:
    try:
        url = make_url(place)
        if url.get_backend_name() == "sqlite":
            return _sqlite(Path(url.database or ""))
        engine = create_engine(url, pool_pre_ping=True)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise KnowledgeError(
            f"The url of the database is not usable: {_first_line(error)}.",
            "Write it as SQLAlchemy does, such as sqlite:///orders.db, and install its driver.",
        ) from error
    commands = _READ_ONLY.get(url.get_backend_name(), ())

    @event.listens_for(engine, "connect")
    def read_only(driver: Any, _record: Any) -> None:
        cursor = driver.cursor()
        for command in commands:
            cursor.execute(command)
        cursor.close()

    return engine


def _sqlite(file: Path) -> Engine:
    if not file.is_file():
        raise KnowledgeError(f"There is no database file {file}.", "Correct its url in ragc.toml.")
    engine = create_engine(f"sqlite:///file:{file.resolve().as_posix()}?mode=ro&uri=true")

    @event.listens_for(engine, "connect")
    def read_only(driver: Any, _record: Any) -> None:
        driver.execute("PRAGMA query_only = ON")

    return engine


def _first_line(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0].rstrip(".")
