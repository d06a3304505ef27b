"""Runs kept in the record: what a compile went through, another process or a later compile need not go through again.

A run is kept by all that it depends on but the parameters: the code, the knowledge, the models and the question. With
it is kept what it read of the parameters, so that it serves every setting under which it would be the same.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from optimize.compiler.code import replay_digest
from optimize.compiler.paths import Parameters, Path
from optimize.compiler.record import Record, key_of
from optimize.compiler.store import Made
from program.answer import Answer
from program.loop.rag import AgenticRAG

REFRESH = 0.25  # seconds in which nobody looks again for what other processes went through
NEWEST = 500  # runs of a question that are read: more would be slower to look through than to make again


@dataclass(frozen=True, slots=True)
class _Row:
    """A run as JSON: ranges by parameter, None for a side that is open; by predictor a digest of what it was given."""

    ranges: dict[str, tuple[float | None, float | None]]
    given: dict[str, str]
    choices: list[tuple[tuple[str, str, dict[str, float]], str]]
    answer: Answer


class KeptRuns:
    """The runs of a program, `told` besides how they are made, in a record's store; none in a record without one.

    Nothing is kept of a program with a source that may change unseen.
    """

    def __init__(self, program: AgenticRAG, record: Record, parameters: Parameters, told: Sequence[Any]) -> None:
        self._record = record
        self._parameters = parameters
        self._names = list(parameters.columns)
        self._context = _context(program, parameters, told) if record.store is not None else None
        self._questions: dict[bytes, str] = {}
        self._last: dict[bytes, float] = {}
        self._had: set[int] = set()  # hashes of the runs that were read or kept here
        self._upto = 0.0
        self._looked = -math.inf

    def read(self, questions: Sequence[str]) -> list[Path]:
        """The runs of these questions, and of those read before, that are not read yet."""
        if self._context is None:
            return []
        before = list(self._last)
        new = [key for question in questions if (key := self._key(question)) not in self._last]
        rows = self._record.runs(new)
        self._last |= dict.fromkeys(new, 0.0)
        if refreshed := time.monotonic() - self._looked >= REFRESH:
            rows += self._record.runs(before, self._upto)
            self._looked = time.monotonic()
        found = []
        for key, at, value in _newest(rows):
            if at > self._last[key]:
                self._last[key] = at
                if self._new(value) and (path := self._path(self._questions[key], value)) is not None:
                    found.append(path)
        if refreshed:
            self._upto = max([self._upto, *(at for _, at, _ in rows)])
        return found

    def keep(self, path: Path) -> None:
        """Keeps a run."""
        if self._context is None:
            return
        names, given = self._names, self._parameters.given
        ranges = {
            name: (low, high)
            for name, low, high in zip(names, path.low, path.high, strict=True)
            if name not in given and (low > -math.inf or high < math.inf)
        }
        told = {name: self._parameters.told(low) for name, low in zip(names, path.low, strict=True)
                if name in given and low > -math.inf}  # fmt: skip
        try:
            value = orjson.dumps(_Row(ranges, told, list(path.choices), path.answer))  # type: ignore[arg-type]
        except orjson.JSONEncodeError as error:
            if "surrogates" not in str(error):
                raise
            return  # a model's reply has half a character of UTF-16
        if self._new(value):
            self._record.keep_run(self._key(path.question), value)

    def _new(self, value: bytes) -> bool:
        known = len(self._had)
        self._had.add(hash(value))
        return len(self._had) > known

    def _path(self, question: str, value: bytes) -> Path | None:
        """The run again; None for one that cannot be read."""
        try:
            row = _rows().validate_json(value)
        except ValidationError:
            return None
        low, high = [-math.inf] * len(self._names), [math.inf] * len(self._names)
        columns = self._parameters.columns
        for name, (least, most) in row.ranges.items():
            low[columns[name]] = -math.inf if least is None else least
            high[columns[name]] = math.inf if most is None else most
        for name, told in row.given.items():
            low[columns[name]] = high[columns[name]] = self._parameters.code(told)
        return Path(question, low, high, row.choices, row.answer)

    def _key(self, question: str) -> bytes:
        key = hashlib.blake2b(question.encode("utf-8", "surrogatepass"), key=self._context or b"", digest_size=16)
        self._questions.setdefault(key.digest(), question)
        return key.digest()


def gone_through(record: Record, identity: Mapping[str, Any], trials: int) -> bool:
    """True when a whole compile has tried so many settings on what a study's trials depend on: another will find nearly
    all of its runs, while they are kept."""
    return bool(record.runs([_compile(identity, trials)]))


def note_gone_through(record: Record, identity: Mapping[str, Any], trials: int) -> None:
    """Says that a compile is over that tried so many settings, all its own."""
    record.keep_run(_compile(identity, trials), b"")


def _compile(identity: Mapping[str, Any], trials: int) -> bytes:
    return key_of(["compile", replay_digest(), identity, trials])


def _newest(rows: Sequence[Made]) -> Iterator[Made]:
    """The newest of each key, in the order they were added."""
    for _, own in groupby(sorted(rows), key=itemgetter(0)):
        yield from list(own)[-NEWEST:]


def _context(program: AgenticRAG, parameters: Parameters, told: Sequence[Any]) -> bytes | None:
    """What a program's runs depend on beside its parameters and the question; None when that may change unseen."""
    library, models = program.runtime.library, program.runtime.models
    sources = {name: library.content_digest(name) for name in program.sources}
    if not all(sources.values()):
        return None
    content = [
        replay_digest(), sources, [card.describe() for card in library.describe()], program.strategies, program.links,
        models.names.model_dump(mode="json"), models.embedder.digest, program.runtime.budget.max_rounds,
        list(parameters.columns), parameters.unnoted, *told,
    ]  # fmt: skip
    return hashlib.blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=32).digest()


@lru_cache(maxsize=1)
def _rows() -> TypeAdapter[_Row]:
    return TypeAdapter(_Row)
