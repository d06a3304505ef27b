"""What flows out of the program: an answer with its outcome and citations, what it cost, and how it came about."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any
from uuid import uuid4

import dspy
from pydantic import TypeAdapter

_JSON: TypeAdapter[Any] = TypeAdapter(Any)
_MARK = re.compile(r"\s*\[\d{1,3}\]")


NEAREST = "This comes nearest, and I am not sure that it answers:"


class Outcome(StrEnum):
    """How a question ended."""

    ANSWERED = "answered"
    CLARIFY = "clarify"
    ABSTAIN = "abstain"
    FAILED = "failed"
    """Every source that was wanted, or every way to an answer, failed."""


class StoppedBy(StrEnum):
    """What ended the loop."""

    DONE = "done"
    ROUNDS = "rounds"
    GAIN = "gain"
    SECONDS = "seconds"
    TOKENS = "tokens"
    USD = "usd"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True)
class Citation:
    """The passage behind the mark `[n]` of an answer."""

    n: int
    """The number of the mark, from 1."""
    source: str
    """The knowledge base."""
    id: str
    """The passage's id: `<base>/<file>#<heading>` for documents."""
    title: str
    """The passage's title."""
    reason: str = ""
    """The way through the graph, or the SELECT, by which the passage was reached; or empty."""
    copies: tuple[str, ...] = ()
    """The ids of the passages with the same text."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What an answer cost."""

    calls: int = 0
    """Requests to language models, repeated ones too; a model of this process takes none."""
    decisions: int = 0
    """Decisions made, by whichever model."""
    searches: int = 0
    """Searches made."""
    tokens_in: int = 0
    """Tokens sent to language models."""
    tokens_out: int = 0
    """Tokens received from language models."""
    usd: float = 0.0
    """US dollars, by the models' list prices."""
    seconds: float = 0.0
    """Seconds from the question to the answer."""


@dataclass(frozen=True, slots=True)
class Round:
    """One judging of the evidence."""

    sufficiency: float
    """The probability that the passages kept suffice."""
    kept: tuple[str, ...]
    """The ids of the passages kept."""


@dataclass(frozen=True, slots=True)
class Step:
    """One request that the loop made."""

    name: str
    """The predictor, or `search`."""
    inputs: str
    """The digest of the inputs."""
    output: str
    """What came back, in a line."""
    milliseconds: float
    """The time it took."""
    tokens_in: int = 0
    """Tokens sent to a language model."""
    tokens_out: int = 0
    """Tokens received from a language model."""
    scores: Mapping[str, float] = field(default_factory=dict, hash=False)
    """The probability of each decision, by output."""
    began: float = 0.0
    """When it began, in seconds since the epoch."""
    model: str = ""
    """The model that answered; empty for a search."""
    error: str = ""
    """The type of what a failed request raised; `output` says why."""

    def as_dict(self) -> dict[str, Any]:
        """Return the step as a line of the log holds it."""
        return {
            "name": self.name,
            "inputs": self.inputs,
            "output": self.output,
            "scores": {name: round(score, 4) for name, score in self.scores.items()},
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "ms": round(self.milliseconds, 2),
            "model": self.model,
            **({"error": self.error} if self.error else {}),
        }


@dataclass(frozen=True, slots=True)
class Trace:
    """The path of one question, as a person reads it, and its steps."""

    id: str = ""
    """The trace's id, 16 hexadecimal digits."""
    path: tuple[str, ...] = ()
    """What happened, a note each."""
    steps: tuple[Step, ...] = ()
    """Every request, with its cost."""

    def __str__(self) -> str:
        return " > ".join(self.path)


def new_trace_id() -> str:
    """Return 16 random hexadecimal digits."""
    return uuid4().hex[:16]


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The reviewed answer that an answer repeats."""

    id: str
    """The id of its label."""
    at: str
    """When it was reviewed, UTC, ISO 8601; empty for a label written by hand."""


class Answer(dspy.Prediction):
    """The answer to one question: a `dspy.Prediction`, so that whatever takes one takes it."""

    text: str
    """The answer, the question back, what is missing or what failed; with marks `[1]` for its citations."""
    outcome: Outcome
    """Whether it is an answer, a question back, an abstention or a failure."""
    nearest: str
    """What comes nearest to an answer in what a refusal cites, word for word, with its marks; it may not answer."""
    citations: tuple[Citation, ...]
    """The passages behind the marks, in order."""
    confidence: float
    """The probability that the answer is right, in [0, 1]."""
    stopped_by: StoppedBy
    """What ended the loop."""
    route: str
    """How much looking up the classifier found needed: direct, simple or complex."""
    sources: tuple[str, ...]
    """The knowledge bases that the classifier chose."""
    strategy: str
    """The way of looking up of the likeliest source; `direct` where none is needed, empty without a plan."""
    retrieved: tuple[str, ...]
    """The ids of the passages that the writer was given."""
    found: tuple[str, ...]
    """The ids of the passages that were found before judging."""
    supported: float
    """The share of the draft's claims that their citations support, in [0, 1]."""
    rounds: tuple[Round, ...]
    """Each judging of the evidence."""
    options: tuple[str, ...]
    """What a question back names, each an answer to it; empty where its writer listed none."""
    degraded: tuple[str, ...]
    """What did not work, a line each: sources not searched, steps that failed, models that another stood in for."""
    reviewed: Reviewed | None
    """The answer that people reviewed, which it repeats; None where it was worked out."""
    trace: Trace
    """How the answer came about."""
    usage: Usage
    """What it cost."""
    version: str
    """The compiled version that answered, `name@v7`; empty for a program that was never compiled."""
    answer: str
    """The text without its marks: what a metric compares with a label. The last field, which `dspy.majority` counts."""

    def __init__(self, base: Any = None, **fields: Any) -> None:
        """Take the fields of a `base`, an answer or a mapping, and those given; the rest has defaults."""
        given = {**_DEFAULTS, **dict(base or {}), **fields}
        given.pop("answer", None)
        super().__init__({**given, "answer": _MARK.sub("", given["text"])})

    @property
    def shown(self) -> str:
        """The text and, under it, what is nearest, as whoever asked reads them."""
        return f"{self.text}\n\n{NEAREST} {self.nearest}" if self.nearest else self.text

    def toDict(self) -> dict[str, Any]:  # DSPy's name
        """Return every field in JSON values."""
        found: dict[str, Any] = _JSON.dump_python(self._store, mode="json")
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the stable JSON shape of `ragc ask --json`."""
        usage = asdict(self.usage)
        return {
            "text": self.text,
            "nearest": self.nearest,
            "outcome": self.outcome.value,
            "confidence": round(self.confidence, 4),
            "stopped_by": self.stopped_by.value,
            "citations": [
                {k: v for k, v in asdict(c).items() if v or k not in ("reason", "copies")} for c in self.citations
            ],
            "degraded": list(self.degraded),
            "reviewed": asdict(self.reviewed) if self.reviewed else None,
            "path": list(self.trace.path),
            "trace_id": self.trace.id,
            "version": self.version,
            "usage": {**usage, "usd": round(self.usage.usd, 6), "seconds": round(self.usage.seconds, 4)},
        }


_DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(("text", "nearest", "route", "strategy", "version"), ""),
    **dict.fromkeys(("citations", "sources", "retrieved", "found", "rounds", "options", "degraded"), ()),
    **{"outcome": Outcome.ABSTAIN, "confidence": 0.0, "stopped_by": StoppedBy.DONE, "supported": 1.0},
    **{"reviewed": None, "trace": Trace(), "usage": Usage()},
}


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of the path, streamed as soon as it is taken."""

    note: str
    """What the path says of it."""


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the draft. The pieces after the last `Withdrawn` make up the text of the `Answer`, spaces aside."""

    text: str
    """The words, with the spaces around them."""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The draft so far does not count; another text follows."""


Event = Progress | Token | Withdrawn | Answer
