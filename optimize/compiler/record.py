"""Replies kept by the content of their requests, in memory and in a SQLite file or a database."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import dspy
import orjson
import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, InterfaceError, OperationalError

import program
from optimize.compiler.study import PATIENCE, Caps, Ledger, Spent, database_error, try_again
from program.errors import RecordError
from program.knowledge.project import Project
from program.loop.decisions import to_prompt_inputs
from program.loop.rag import AgenticRAG
from program.loop.state import Find, Request
from program.models.catalog import is_local
from program.models.language.layout import PromptLayout
from program.models.requests import to_jsonable
from program.storage import close_before_fork, digest_code

RECORD = "record.sqlite"
TABLE_PREFIX = "ragc_"  # prefix of the tables' names in a database that may hold other things
_PASSING = ("locked", "busy", "unable to open")
_DAMAGED = ("not a database", "malformed")
_CONNECTIONS = 32

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    """A reply and its cost when it was made."""

    value: Any
    seconds: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0
    stand_in: bool = False  # true for the reply of another model than the one asked; such a reply is not kept on disk


class Store(Ledger):
    """Entries and spending on disk: a SQLite file (a path) or a database that several hosts share (a URL).

    Safe from many threads and processes. Raises `RecordError` when it cannot be used, `SettingsError` for a URL that
    names no database.
    """

    def __init__(self, place: Path | str) -> None:
        if here := isinstance(place, Path):
            place.parent.mkdir(parents=True, exist_ok=True)
        prefix = "" if here else TABLE_PREFIX
        options: dict[str, Any] = {"connect_args": {"timeout": PATIENCE}} if here else {"pool_pre_ping": True}
        try:
            url = sa.URL.create("sqlite", database=str(place)) if here else sa.make_url(str(place))
            self._name = str(place) if here else url.render_as_string(hide_password=True)
            self._engine = sa.create_engine(url, pool_size=_CONNECTIONS, **options)
        except (ImportError, ValueError, ArgumentError) as error:
            raise database_error(error) from error
        close_before_fork(self)
        if not prefix:
            sa.event.listen(self._engine, "connect", _set_pragmas)
        tables = sa.MetaData()
        self._evidence = sa.Table(
            f"{prefix}evidence", tables,
            sa.Column("key", sa.LargeBinary().with_variant(sa.VARBINARY(16), "mysql", "mariadb"), primary_key=True),
            sa.Column("value", sa.LargeBinary(2**24), nullable=False),
            *(sa.Column(name, sa.Double, nullable=False) for name in ("seconds", "usd")),
            *(sa.Column(name, sa.Integer, nullable=False) for name in ("tokens_in", "tokens_out")),
        )  # fmt: skip
        self._booked = sa.Table(
            f"{prefix}spending", tables,
            sa.Column("study", sa.String(191), primary_key=True),
            sa.Column("calls", sa.Integer, nullable=False),
            *(sa.Column(name, sa.Double, nullable=False) for name in ("usd", "seconds")),
        )  # fmt: skip
        self._run(lambda c: [c.execute(sa.schema.CreateTable(t, if_not_exists=True)) for t in tables.sorted_tables])

    def read_entries(self, keys: Sequence[bytes]) -> dict[bytes, Entry]:
        """Return the entries of those keys that are there."""
        c = self._evidence.c
        wanted = sa.select(c.key, c.value, c.seconds, c.tokens_in, c.tokens_out, c.usd).where(c.key.in_(keys))
        rows = self._run(lambda connection: connection.execute(wanted).all())
        return {bytes(key): Entry(orjson.loads(value), *rest) for key, value, *rest in rows}

    def write_entries(self, entries: Mapping[bytes, Entry]) -> None:
        """Add entries, all or none; entries that are there already stay."""
        rows = [
            {name: getattr(one, name) for name in ("seconds", "tokens_in", "tokens_out", "usd")}
            | {"key": key, "value": orjson.dumps(one.value, default=to_jsonable, option=orjson.OPT_SERIALIZE_NUMPY)}
            for key, one in sorted(entries.items())  # the same order for all, so that none waits for another
        ]
        self._run(lambda connection: connection.execute(self._insert_new(self._evidence), rows))

    def reserve_call(self, study: str, usd: float, caps: Caps) -> bool:
        """Book a call of at most `usd` US dollars, unless that would pass a cap."""
        spent = self._booked
        change = sa.update(spent).where(spent.c.study == study)
        if caps.calls is not None:
            change = change.where(spent.c.calls < caps.calls)
        if caps.usd is not None:
            change = change.where(spent.c.usd + usd <= caps.usd)
        booked = change.values(calls=spent.c.calls + 1, usd=spent.c.usd + usd)
        return bool(self._run(lambda connection: connection.execute(booked).rowcount))

    def book_spending(self, study: str, calls: int = 0, usd: float = 0.0, seconds: float = 0.0) -> None:
        """Add to what a study has spent."""
        spent = self._booked
        added = sa.update(spent).where(spent.c.study == study).values(
            calls=spent.c.calls + calls, usd=spent.c.usd + usd, seconds=spent.c.seconds + seconds
        )  # fmt: skip

        def book(connection: sa.Connection) -> None:
            connection.execute(self._insert_new(spent), {"study": study, **asdict(Spent())})
            connection.execute(added)

        self._run(book)

    def read_spending(self, study: str) -> Spent:
        """Return what a study has spent in all processes."""
        c = self._booked.c
        wanted = sa.select(c.calls, c.usd, c.seconds).where(c.study == study)
        row = self._run(lambda connection: connection.execute(wanted).one_or_none())
        return Spent(*row) if row is not None else Spent()

    def close(self) -> None:
        """Close every connection; the next use opens anew."""
        self._engine.dispose()

    def _insert_new(self, table: sa.Table) -> sa.Insert:
        if self._engine.dialect.name == "postgresql":
            from sqlalchemy.dialects import postgresql

            return postgresql.insert(table).on_conflict_do_nothing()
        return sa.insert(table).prefix_with("OR IGNORE" if self._engine.dialect.name == "sqlite" else "IGNORE")

    def _run(self, action: Callable[[sa.Connection], T]) -> T:
        """Return the action's result, in a transaction of its own; errors that may pass are tried again."""

        def run_once() -> T:
            try:
                with self._engine.begin() as connection:
                    return action(connection)
            except DBAPIError:
                self.close()
                raise

        try:
            return try_again(run_once, self._may_pass)
        except DBAPIError as error:
            mend = "Free space or mend access to it, then go on with: ragc compile PROJECT --resume"
            if any(word in str(error.orig) for word in _DAMAGED):
                mend = "Delete it: its replies are asked for anew. Then begin anew: ragc compile PROJECT"
            raise RecordError(f"The record of calls {self._name} cannot be used: {error.orig}.", mend) from error

    def _may_pass(self, error: BaseException) -> bool:
        if not isinstance(error, DBAPIError):
            return False
        if self._engine.dialect.name == "sqlite":
            return any(word in str(error.orig) for word in _PASSING)
        return error.connection_invalidated or isinstance(error, OperationalError | InterfaceError | IntegrityError)


class Record:
    """Entries by content: `kept` in this process's memory by any key, the store and `replies` by digests.

    `performed` counts the requests made anew, `replayed` those read from the store, `calls` those to a model,
    `stand_ins` the replies of another model than the one asked; `refused` has the reason why a model refused a prompt,
    `heard` every reply of a language model that was used.
    """

    def __init__(self, place: Path | str | None = None, replies: Mapping[bytes, Entry] = {}) -> None:
        self.replies = replies
        self.heard: dict[bytes, Entry] = {}
        self.kept: dict[Hashable, Entry] = {}
        self.refused: dict[bytes, str] = {}
        self.performed = 0
        self.replayed = 0
        self.calls = 0
        self.stand_ins = 0
        self.store = None if place is None else Store(place)

    def read(self, digests: Iterable[bytes]) -> dict[bytes, Entry]:
        """Return the entries of those digests that are held."""
        wanted = list(dict.fromkeys(digests))
        found = {digest: self.replies[digest] for digest in wanted if digest in self.replies}
        lacking = [digest for digest in wanted if digest not in found]
        if self.store is not None and lacking:
            found |= self.store.read_entries(lacking)
        self.replayed += len(found)
        return found

    def keep(self, key: Hashable, entry: Entry, heard_as: bytes | None = None) -> None:
        """Keep a reply in memory; that of a language model as heard, too, by its digest."""
        self.kept[key] = entry
        if heard_as is not None and not entry.stand_in:
            self.heard[heard_as] = entry

    def write(self, entries: Mapping[bytes, Entry]) -> None:
        """Put entries into the store, all or none."""
        if self.store is not None and entries:
            self.store.write_entries(entries)

    def close(self) -> None:
        """Close the store; the next use opens it anew."""
        if self.store is not None:
            self.store.close()


def open_record(project: Project) -> Record:
    """Return the record that the compiles of a project share."""
    return Record(project.settings.study.storage or project.private / RECORD)


class RequestKeys:
    """Names of what is asked of a program's models and sources: one in this process, another in the store."""

    def __init__(self, program: AgenticRAG) -> None:
        self._program = program
        self._predictors = dict(program.named_predictors())
        self._sources = {name: program.runtime.library.content_digest(name) for name in program.sources}
        self._prints: dict[Hashable, tuple[str, Any, Any]] = {}
        self._current: dict[tuple[str, int], str] = {}

    def read_program(self) -> None:
        """Name requests by what the predictors of the program have now."""
        self._current = {}

    def memory_key(self, request: Request, model: Any) -> Hashable:
        """Return the name in this process."""
        if isinstance(request, Find):
            return ("find", request.query, request.sources, request.depth, request.sql, self._program.readers)
        return self._fingerprint_of(request.predictor, model), request.content

    def digest(self, request: Request, model: Any) -> bytes | None:
        """Return the name in the store, or None when the reply may change unseen."""
        if isinstance(request, Find):
            places = [self._sources.get(name, "") for name in request.sources]
            if not all(places):
                return None
            content = ["find", request.query, request.sources, places, request.depth, source_digest()]
            return digest_json([*content, *filter(None, [request.sql, sorted(request.readers)])])
        inputs = {name: to_jsonable(value) for name, value in to_prompt_inputs(request.inputs).items()}
        return digest_json([self._fingerprint_of(request.predictor, model), inputs])

    def _fingerprint_of(self, name: str, model: Any) -> str:
        if (found := self._current.get((name, id(model)))) is not None:
            return found
        predictor, layout = self._predictors[name], self._program.layout_of(name)
        key = (name, str(model.model), id(predictor.signature), id(predictor.demos), layout)
        if key not in self._prints:  # signature and demos are kept, so that no other objects take their ids
            digest = fingerprint_predictor(self._program, name, model)
            self._prints[key] = digest, predictor.signature, predictor.demos
        return self._current.setdefault((name, id(model)), self._prints[key][0])


def fingerprint_predictor(program: AgenticRAG, name: str, model: Any) -> str:
    """Return the digest of all that a predictor and its model are given."""
    predictor = program.predictor(name)
    described = {
        field: [str(f.annotation), (f.json_schema_extra or {}).get("desc"), (f.json_schema_extra or {}).get("prefix")]
        for field, f in predictor.signature.fields.items()
    }
    worded = {name: [c.get("instructions"), c.get("criteria")] for name, c in predictor.fields.items()}
    here = is_local(model)
    content = [
        predictor.signature.instructions, described, {name: words for name, words in worded.items() if any(words)},
        [dict(demo) for demo in predictor.demos], predictor.config, model.model,
        {name: value for name, value in (model.kwargs or {}).items() if "key" not in name},
        [source_digest(), *program.runtime.models.weights.values()] if here else
        [dspy.__version__, asdict(_shown_layout(program, name))],
    ]  # fmt: skip
    packed = orjson.dumps(content, default=lambda item: item.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(packed, digest_size=16).hexdigest()


def _shown_layout(program: AgenticRAG, name: str) -> PromptLayout:
    """Return a predictor's layout as far as it changes the prompt: what passages are shown is among the inputs."""
    layout, shown = program.layout_of(name), len(program.predictor(name).demos)
    return replace(layout, passages=0, excerpt="whole", demonstrations=min(layout.demonstrations, shown))


def digest_json(content: Any) -> bytes:
    """Return the 16 bytes by which the store names a JSON value."""
    return hashlib.blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def source_digest() -> str:
    """Return the digest of the code of `program`, by file name and content."""
    return digest_code(Path(program.__file__).parent)


def compiler_digest() -> str:
    """Return the digest of the code of `program` and `optimize`."""
    return source_digest() + digest_code(Path(__file__).parents[1])


def _set_pragmas(connection: Any, _: Any) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
