"""What is kept of finished questions: a log of traces with its review queue, and an OpenTelemetry span of each."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import takewhile
from logging.handlers import RotatingFileHandler
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

import orjson
from filelock import FileLock

from ragc.answer import Answer, Outcome
from ragc.notes import NoteKind
from ragc.storage import append_row, decode_row, read_json_rows
from ragc.text.history import Asked

LARGEST = 20_000_000  # bytes of a file of traces before the next is begun
FILES = 5
PLACE = "place"  # the key under which an entry of an index says where the whole of it stands
NANOSECONDS = 1_000_000_000
_LOG = logging.getLogger("ragc.trace")
NOTHING = Asked("")


@dataclass(frozen=True, slots=True)
class LineLog:
    """A JSONL file that many threads and processes append to.

    A full one is put aside and a new one begun. The newest is at `path`, older ones at `path.1`, `path.2` and so on,
    `files` of them at most.
    """

    path: Path
    largest: int = LARGEST
    files: int = FILES

    def append(self, entry: Mapping[str, Any]) -> None:
        """Append one line; raises `OSError` when the disk does not take it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if append_row(self.path, entry) >= self.largest:
            with FileLock(f"{self.path}.lock"):
                if self.path.is_file() and self.path.stat().st_size >= self.largest:  # no other process was first
                    handler = RotatingFileHandler(self.path, backupCount=self.files, delay=True)
                    handler.doRollover()
                    handler.close()

    @property
    def paths(self) -> tuple[Path, ...]:
        """Every file that there may be, the oldest first."""
        return *(self.path.with_name(f"{self.path.name}.{n}") for n in range(self.files, 0, -1)), self.path

    def entries(self, report_unread: Callable[[str], None] = lambda place: None) -> Iterator[dict[str, Any]]:
        """Yield every entry, oldest first; report the place of a line that is none."""
        for path in filter(Path.is_file, self.paths):
            for number, entry in enumerate(read_json_rows(path), 1):
                if entry is None:
                    report_unread(f"{path} line {number}")
                else:
                    yield entry


class LogIndex:
    """A few fields of every entry of a log; each call reads what was appended since the last. Safe from threads."""

    def __init__(self, log: LineLog, fields: Sequence[str]) -> None:
        self._log, self._fields = log, fields
        self._read: dict[Hashable, tuple[int, list[dict[str, Any]]]] = {}  # by file: how far, and what stands there
        self._lock = Lock()

    def entries(self) -> list[dict[str, Any]]:
        """Return every entry's fields, oldest first."""
        with self._lock:
            read = {}
            for key, file in self._open_files():
                end, found = self._read.get(key, (0, []))
                file.seek(end)
                for line in takewhile(lambda line: line.endswith(b"\n"), file):  # one may be written just now
                    row = decode_row(line) or {}
                    if short := {name: row[name] for name in self._fields if name in row}:
                        found.append({**short, PLACE: (key, end)})
                    end += len(line)
                read[key] = end, found
            self._read = read
            return [entry for _, found in read.values() for entry in found]

    def read_whole(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Return all of an entry; empty once its file is gone."""
        key, at = entry[PLACE]
        for file in (file for other, file in self._open_files() if other == key):
            file.seek(at)
            return decode_row(file.readline()) or {}
        return {}

    def _open_files(self) -> Iterator[tuple[Hashable, BinaryIO]]:
        """Yield the files, each under a key that it keeps when it is renamed."""
        for path in self._log.paths:
            with suppress(FileNotFoundError), path.open("rb") as file:
                state = os.fstat(file.fileno())
                yield (state.st_dev, state.st_ino, file.read(64)), file


class TraceLog:
    """A folder of traces, one line of `traces` for each question."""

    def __init__(self, folder: Path, name: str = "traces.jsonl") -> None:
        self.folder, self.traces = folder, LineLog(folder / name)
        self._unwritable = False

    def write_answer(self, answer: Answer, asked: Asked, preset: str) -> None:
        """Write a trace; warn once if it cannot be."""
        entry = {
            **answer.as_dict(),
            "question": asked.question,
            **({"history": [turn.model_dump() for turn in asked.history]} if asked.history else {}),
            **({"readers": sorted(asked.readers)} if asked.readers else {}),
            "at": time.time(),
            "preset": preset,
            "route": answer.route,
            "sources": answer.sources,
            "retrieved": answer.retrieved,
            "rounds": [asdict(one) for one in answer.rounds],
            "steps": [step.as_dict() for step in answer.trace.steps],
        }
        try:
            self.traces.append(entry)
        except (OSError, orjson.JSONEncodeError) as error:
            if not self._unwritable:
                self._unwritable = True
                _LOG.warning("Traces cannot be written to %s (%s): answers go on without them.", self.folder, error)


def emit_span(answer: Answer, asked: Asked = NOTHING, preset: str = "", texts: bool = False) -> None:
    """Emit an OpenTelemetry span of a question, under the caller's.

    It is named by the conventions of GenAI and OpenInference, and holds the question and its answer where `texts` are
    wanted. Without an SDK in use there is none. It is made once the answer is there, with the times measured.
    """
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
    except ImportError:
        return
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        return
    path = answer.trace.path
    notes = (note if texts or not NoteKind.FOLLOWS.begins(note) else "follows on" for note in path)
    attributes: dict[str, Any] = {
        "openinference.span.kind": "CHAIN",
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.agent.name": answer.version or "ragc",
        "gen_ai.usage.input_tokens": answer.usage.tokens_in,
        "gen_ai.usage.output_tokens": answer.usage.tokens_out,
        "ragc.trace_id": answer.trace.id,
        "ragc.path": " > ".join(notes),
        "ragc.outcome": answer.outcome.value,
        "ragc.stopped_by": answer.stopped_by.value,
        "ragc.confidence": answer.confidence,
        "ragc.usd": answer.usage.usd,
    }
    if texts:
        attributes |= {"input.value": asked.question, "output.value": answer.text}
    began = min((step.began for step in answer.trace.steps), default=time.time() - answer.usage.seconds)
    start, end = (int(at * NANOSECONDS) for at in (began, began + answer.usage.seconds))
    tracer = trace.get_tracer("ragc")
    span = tracer.start_span("invoke_workflow ragc", attributes=attributes, start_time=start)
    if answer.outcome is Outcome.FAILED:
        span.set_status(trace.StatusCode.ERROR, "; ".join(answer.degraded))
    span.end(end)
