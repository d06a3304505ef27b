"""What is kept of finished questions: a log of traces with its review queue, and OpenTelemetry spans."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby, takewhile
from logging.handlers import RotatingFileHandler
from pathlib import Path
from threading import Event, Lock
from typing import Any, BinaryIO

import orjson
from filelock import FileLock

from ragc.answer import FOLLOWS, Answer, Outcome, Step
from ragc.storage import append_row, decode_row, read_json_rows
from ragc.text.history import Asked

LARGEST = 20_000_000  # bytes of a file of traces before the next is begun
FILES = 5
UNRETRIEVED = "unretrieved"  # the note in the path of an answer that no passage is behind
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


@dataclass(frozen=True, slots=True)
class TraceLog:
    """A folder of traces."""

    folder: Path
    name: str = "traces.jsonl"
    unwritable: Event = field(default_factory=Event, repr=False, compare=False)  # set by the first warning

    @property
    def traces(self) -> LineLog:
        """One line for each question."""
        return LineLog(self.folder / self.name)

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
            if not self.unwritable.is_set():
                self.unwritable.set()
                _LOG.warning("Traces cannot be written to %s (%s): answers go on without them.", self.folder, error)


@dataclass(frozen=True, slots=True)
class SpanLog:
    """What emits OpenTelemetry spans of questions; texts are in them where `text_of` gives passages' texts by id."""

    text_of: Callable[[str], str] | None = None

    def emit_spans(self, answer: Answer, asked: Asked = NOTHING, preset: str = "") -> None:
        """Emit a span for a question, with one inside for each step.

        Decisions made together are one. They follow the GenAI and the OpenInference semantic conventions and hang under
        the caller's span; without an SDK in use there are none. They are made once the answer is there, with the times
        measured.
        """
        try:
            from opentelemetry import trace
            from opentelemetry.sdk.trace import TracerProvider
        except ImportError:
            return
        if not isinstance(trace.get_tracer_provider(), TracerProvider):
            return
        tracer = trace.get_tracer("ragc")
        began = min((step.began for step in answer.trace.steps), default=time.time() - answer.usage.seconds)
        attributes: dict[str, Any] = {
            "openinference.span.kind": "CHAIN",
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.agent.name": answer.version or "ragc",
            "gen_ai.usage.input_tokens": answer.usage.tokens_in,
            "gen_ai.usage.output_tokens": answer.usage.tokens_out,
            "ragc.trace_id": answer.trace.id,
            "ragc.path": " > ".join(self._describe_note(note) for note in answer.trace.path),
            "ragc.outcome": answer.outcome.value,
            "ragc.stopped_by": answer.stopped_by.value,
            "ragc.confidence": answer.confidence,
            "ragc.usd": answer.usage.usd,
        }
        if self.text_of is not None:
            attributes |= {"input.value": asked.question, "output.value": answer.text}
        whole = tracer.start_span("invoke_workflow ragc", attributes=attributes, start_time=int(began * NANOSECONDS))
        inside = trace.set_span_in_context(whole)
        for step in _join_decisions(answer.trace.steps):
            name, described = self._describe_step(step)
            if described["openinference.span.kind"] == "LLM" and _is_instrumented():
                continue  # there is a span of it already
            span = tracer.start_span(name, inside, attributes=described, start_time=int(step.began * NANOSECONDS))
            if step.error:
                span.set_attribute("error.type", step.error)
                span.set_status(trace.StatusCode.ERROR, step.output)
            span.end(int((step.began + step.milliseconds / 1000) * NANOSECONDS))
        if answer.outcome is Outcome.FAILED:
            whole.set_status(trace.StatusCode.ERROR, "; ".join(answer.degraded))
        whole.end(int((began + answer.usage.seconds) * NANOSECONDS))

    def _describe_note(self, note: str) -> str:
        """Return a note of the path, without the question that it may hold where texts are left out."""
        return note if self.text_of is not None or not note.startswith(FOLLOWS) else FOLLOWS.strip(": ")

    def _describe_step(self, step: Step) -> tuple[str, dict[str, Any]]:
        common: dict[str, Any] = {"ragc.step": step.name, "ragc.inputs": step.inputs}
        if self.text_of is not None or step.scores or not step.model:
            common["ragc.output"] = step.output
        if not step.model:
            for n, (id_, score) in enumerate(step.documents):
                document = f"retrieval.documents.{n}.document"
                common |= {f"{document}.id": id_, f"{document}.score": score}
                if self.text_of is not None and (text := self.text_of(id_)):
                    common[f"{document}.content"] = text
            return "retrieval", {"gen_ai.operation.name": "retrieval", "openinference.span.kind": "RETRIEVER", **common}
        provider, _, model = step.model.rpartition("/")
        common |= {"gen_ai.provider.name": provider or "unknown", "gen_ai.request.model": model}
        if step.scores or not (step.tokens_in or step.tokens_out):
            common |= {f"ragc.score.{name}": score for name, score in step.scores.items()}
            common |= {"decision.token_count.input": step.tokens_in, "decision.token_count.output": step.tokens_out}
            kinds = {"gen_ai.operation.name": "decide", "openinference.span.kind": "DECISION"}
            return f"decide {step.name}", {**kinds, "decision.model_name": step.model, **common}
        common |= dict.fromkeys(("gen_ai.usage.input_tokens", "llm.token_count.prompt"), step.tokens_in)
        common |= dict.fromkeys(("gen_ai.usage.output_tokens", "llm.token_count.completion"), step.tokens_out)
        kinds = {"gen_ai.operation.name": "chat", "openinference.span.kind": "LLM"}
        return f"chat {model}", {**kinds, "llm.model_name": step.model, **common}


def _join_decisions(steps: Sequence[Step]) -> Iterator[Step]:
    """Yield the steps, neighbouring decisions of one kind as one: a question has one for each sentence it weighs."""
    for (_, _, decides), group in groupby(steps, key=lambda step: (step.name, step.model, bool(step.scores))):
        joined = [*group]
        if not decides or len(joined) == 1:
            yield from joined
            continue
        began = min(step.began for step in joined)
        seconds = max(step.began + step.milliseconds / 1000 for step in joined) - began
        scores = {name: max(step.scores.get(name, 0.0) for step in joined) for name in joined[0].scores}
        yield replace(
            joined[0],
            output=f"{len(joined)} decisions; their highest scores",
            milliseconds=1000 * seconds,
            tokens_in=sum(step.tokens_in for step in joined),
            tokens_out=sum(step.tokens_out for step in joined),
            scores=scores,
            began=began,
        )


def _is_instrumented() -> bool:
    """Return True while OpenInference's instrumentation of DSPy makes a span of each call of a language model."""
    instrumentation = sys.modules.get("openinference.instrumentation.dspy")
    return instrumentation is not None and bool(instrumentation.DSPyInstrumentor().is_instrumented_by_opentelemetry)
