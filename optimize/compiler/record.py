"""Replies kept by the content of their requests, in memory and in a SQLite file, with what each compile has spent.

A language model is asked through a record: what was said to the same words is not asked for again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import dspy
import orjson
from filelock import FileLock, Timeout

import ragc
from ragc.errors import ModelError, RecordError
from ragc.knowledge.project import Project
from ragc.loop.rag import AgenticRAG
from ragc.loop.state import DRAFT, Find, Request
from ragc.models.catalog import is_local
from ragc.models.language.adapter import LOGPROB
from ragc.models.language.pace import UNANSWERED
from ragc.models.language.spending import track_spending
from ragc.models.requests import to_jsonable
from ragc.optimize.compiler.spending import Account, Spending, Spent
from ragc.signatures import to_prompt_inputs
from ragc.storage import SqliteFile, digest_code

LOG = logging.getLogger(__name__)
RECORD = "record.sqlite"
PATIENCE = 60.0  # seconds for which a file that another process writes to is waited for
_TABLES = (
    "CREATE TABLE IF NOT EXISTS evidence (key BLOB PRIMARY KEY, value BLOB NOT NULL, seconds REAL NOT NULL,"
    " tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL, usd REAL NOT NULL)",
    "CREATE TABLE IF NOT EXISTS spending (compile TEXT PRIMARY KEY, calls INTEGER NOT NULL, usd REAL NOT NULL,"
    " seconds REAL NOT NULL)",
)
FIRST_CALLS, SILENT = 4, 32  # calls without an answer: of a model that gave none yet, and in a row of another
paid: ContextVar[list[float] | None] = ContextVar("ragc_paid", default=None)  # US dollars of each call of a run
READ_AT_ONCE = 500  # digests asked for in one statement

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    """A reply and its cost when it was made."""

    value: Any
    seconds: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0
    stand_in: bool = False  # true for another reply than that of the model asked, which is not kept on disk
    other: bool = False  # true for that of another model, not for a default or a text that was cut off


class Record:
    """Entries by content: `kept` in this process's memory by any key, `replies` and those of a SQLite file by digests.

    `calls` counts the requests to a language model that were made anew, `reused` the replies of one that were
    read, `stand_ins` the replies of another model than the one asked; `refused` has the reason why a model refused a
    prompt, `heard` every reply of a language model that was used, `stood_for` the questions whose answers rest on a
    stand-in. The file is safe from many threads and processes; where it cannot be used, `RecordError` is raised.
    """

    def __init__(self, path: Path | None = None, replies: Mapping[bytes, Entry] = {}) -> None:
        self.replies = replies
        self.heard: dict[bytes, Entry] = {}
        self.kept: dict[Hashable, Entry] = {}
        self.refused: dict[bytes, str] = {}
        self.calls = 0
        self.reused = 0
        self.stand_ins = 0
        self.stood_for: set[Hashable] = set()
        self.silent: Counter[str] = Counter()  # calls in a row that a model did not answer
        self._answering: set[str] = set()
        self._lost: dict[str, ModelError] = {}
        self._file = SqliteFile(path, _TABLES, PATIENCE) if path is not None else None
        if path is not None:
            self.use(lambda db: None)

    def open_account(self, key: str) -> Account:
        """Return where the compile of a digest books what it spends."""
        return Account() if self._file is None else StoredAccount(self, key)

    def read(self, digests: Iterable[bytes]) -> dict[bytes, Entry]:
        """Return the entries of those digests that are held."""
        wanted = list(dict.fromkeys(digests))
        found = {digest: self.replies[digest] for digest in wanted if digest in self.replies}
        lacking = [digest for digest in wanted if digest not in found] if self._file is not None else []

        def select(db: sqlite3.Connection) -> Iterator[Any]:
            for at in range(0, len(lacking), READ_AT_ONCE):
                some = lacking[at : at + READ_AT_ONCE]
                yield from db.execute(f"SELECT * FROM evidence WHERE key IN ({','.join('?' * len(some))})", some)

        rows = self.use(lambda db: [*select(db)]) if lacking else ()
        found |= {bytes(key): Entry(orjson.loads(value), *rest) for key, value, *rest in rows}
        return found

    def note_call(self, model: str, failure: str = "") -> None:
        """Note that a model answered, or why it did not.

        Raises `ModelError` at a row of calls without an answer: what a stand-in says would be compiled for that.
        """
        self.silent[model] = self.silent[model] + 1 if failure else 0
        if not failure:
            self._answering.add(model)
        elif self.silent[model] >= (SILENT if model in self._answering else FIRST_CALLS):
            mend = f"{UNANSWERED} Then give the same command again: no reply is lost."
            self._lost[model] = ModelError(f"{failure.rstrip('.')}.", mend)
            raise self._lost[model]

    def require_models(self, *models: str) -> None:
        """Raise what `note_call` raised of any model, or of one of those, again."""
        for model in models or [*self._lost]:
            if model in self._lost:
                raise self._lost[model]

    def keep(self, key: Hashable, entry: Entry, heard_as: bytes | None = None) -> None:
        """Keep a reply in memory; that of a language model as heard, too, by its digest."""
        self.kept[key] = entry
        if heard_as is not None and not entry.stand_in:
            self.heard[heard_as] = entry

    def write(self, entries: Mapping[bytes, Entry]) -> None:
        """Add entries to the file, all or none; entries that are there already stay."""
        if self._file is None or not entries:
            return
        dump = partial(orjson.dumps, default=to_jsonable, option=orjson.OPT_SERIALIZE_NUMPY)
        rows = [
            (key, dump(one.value), one.seconds, one.tokens_in, one.tokens_out, one.usd) for key, one in entries.items()
        ]
        insert = "INSERT OR IGNORE INTO evidence VALUES (?, ?, ?, ?, ?, ?)"
        self.use(lambda db: db.executemany(insert, rows), write=True)

    def close(self) -> None:
        """Close the file; the next use opens it anew."""
        if self._file is not None:
            self._file.close()

    def use(self, action: Callable[[sqlite3.Connection], T], write: bool = False) -> T:
        """Return the action's result; while it is to `write`, no other process does."""
        assert self._file is not None
        try:
            return self._file.transact(action) if write else self._file.use(action)
        except (OSError, sqlite3.Error) as error:
            self._file.close()
            mend = "Free space or mend access to it, then give the same command again."
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                mend = "Delete it: its replies are asked for anew."
            raise RecordError(f"The record of calls {self._file.path} cannot be used: {error}.", mend) from error


class StoredAccount(Account):
    """What one compile has spent, in all processes that ever worked on it; `key` is the digest of what is compiled."""

    def __init__(self, record: Record, key: str) -> None:
        self._record = record
        self._key = key

    def change(self, to: Callable[[Spent], Spent | None]) -> Spent | None:
        def book(db: sqlite3.Connection) -> Spent | None:
            if (found := to(self._read(db))) is not None:
                db.execute("INSERT OR REPLACE INTO spending VALUES (?, ?, ?, ?)", (self._key, *found))
            return found

        return self._record.use(book, write=True)

    def read(self) -> Spent:
        return self._record.use(self._read)

    def _read(self, db: sqlite3.Connection) -> Spent:
        row = db.execute("SELECT calls, usd, seconds FROM spending WHERE compile = ?", (self._key,)).fetchone()
        return Spent(*row) if row else Spent()


class RecordedLM(dspy.BaseLM):
    """A language model asked through a record; one of a project's also under the caps of `spending`.

    Calls of any other model are counted, and stopped at a cap, by a `CallMeter`.
    """

    def __init__(self, model: dspy.BaseLM, record: Record, spending: Spending | None = None) -> None:
        super().__init__(model.model, model_type=model.model_type, cache=False)
        self.kwargs = model.kwargs
        self._model = model
        self._record = record
        self._spending = spending

    supports_function_calling = property(lambda self: self._model.supports_function_calling)
    supports_reasoning = property(lambda self: self._model.supports_reasoning)
    supports_response_schema = property(lambda self: self._model.supports_response_schema)
    supported_params = property(lambda self: self._model.supported_params)

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Return the outputs, which count with what they cost when they were made."""
        settings = {name: value for name, value in (self.kwargs | kwargs).items() if "key" not in name}
        asked = orjson.dumps([self.model, settings, prompt, messages], default=_describe, option=orjson.OPT_SORT_KEYS)
        digest, made = digest_json(asked.decode()), list[float]()
        entry = self._record.kept.get(digest)
        if entry is None and (entry := self._record.read([digest]).get(digest)) is not None:
            self._record.reused += 1
        if entry is None:
            token, began = paid.set(made), time.perf_counter()
            try:
                with track_spending(cap=self._spending) as spent:
                    outputs = self._model(prompt, messages=messages, **kwargs)
            except Exception as error:
                self._record.note_call(self.model, f"{self.model} gave no answer ({type(error).__name__}: {error})")
                raise
            finally:
                paid.reset(token)
            self._record.note_call(self.model)
            self._record.calls += 1
            seconds, usd = time.perf_counter() - began, spent.usd + sum(made)
            entry = Entry([outputs, made], seconds, spent.tokens_in, spent.tokens_out, usd)
            if all(isinstance(one, str) for one in outputs):
                self._record.write({digest: entry})
        self._record.keep(digest, entry)
        outputs, costs = entry.value
        if (run := paid.get()) is not None:
            run += costs
        return outputs


def _describe(value: Any) -> Any:
    """Return what a setting that is no JSON value says: of a record its schema."""
    return value.model_json_schema() if hasattr(value, "model_json_schema") else repr(value)


@contextmanager
def hold_turn(project: Project) -> Iterator[None]:
    """Hold the turn to compile a project's versions: one compile has it at a time.

    Another is waited for, which is told; the system ends its turn when its process dies.
    """
    path = project.private / f"{project.name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        holder = path.read_text() or "another process"
        LOG.warning("%s is being compiled by %s: this compile waits for its end.", project.name, holder)
        lock.acquire()
    try:
        path.write_text(f"process {os.getpid()} of {socket.gethostname()}")
        yield
    finally:
        lock.release()


def open_record(project: Project) -> Record:
    """Return the record that the compiles of a project share."""
    return Record(project.private / RECORD)


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
            return digest_json([*content, request.sql])
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
    here, layout = is_local(model), program.layout_of(name)
    shown = predictor.demos if here else predictor.demos[: layout.demonstrations]
    content = [
        predictor.signature.instructions, described, {name: words for name, words in worded.items() if any(words)},
        [dict(demo) for demo in shown], predictor.config, model.model,
        {name: value for name, value in (model.kwargs or {}).items() if "key" not in name},
        [source_digest(), *program.runtime.models.weights.values()] if here else
        [dspy.__version__, layout, *([LOGPROB] if name == DRAFT else ())],
    ]  # fmt: skip
    packed = orjson.dumps(content, default=lambda item: item.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(packed, digest_size=16).hexdigest()


def digest_json(content: Any) -> bytes:
    """Return the 16 bytes by which the store names a JSON value."""
    return hashlib.blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def source_digest() -> str:
    """Return the digest of the code of `program`, by file name and content."""
    return digest_code(Path(ragc.__file__).parent)


def compiler_digest() -> str:
    """Return the digest of the code of `program` and `optimize`."""
    return source_digest() + digest_code(Path(__file__).parents[1])
