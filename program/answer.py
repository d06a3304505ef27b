"""What flows out of the program: an answer, its outcome, its citations and what it cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from program.trace import Trace


class Outcome(StrEnum):
    """How a question ended."""

    ANSWERED = "answered"
    CLARIFY = "clarify"
    ABSTAIN = "abstain"


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
    """The passage behind the marker `[n]` of an answer; `reason` is its way through the graph, or empty."""

    n: int
    source: str
    id: str
    title: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """What an answer cost.

    `calls` counts requests to language models, repeated ones too, and texts of the embedded writer. `decisions` counts
    decisions, `asked` those that a cascade's second model made, `agreed` those in which both came to the same; `dear`
    are the calls of second models, `spared` those that they would have been asked besides if they always were.
    """

    calls: int = 0
    decisions: int = 0
    searches: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0
    seconds: float = 0.0
    asked: int = 0
    agreed: int = 0
    dear: int = 0
    spared: int = 0


@dataclass(frozen=True, slots=True)
class Round:
    """One judging of the evidence: the passages kept, how probably they sufficed, and the judge's other counts.

    `relevance` is the share of what was found that helps, `completeness` of the look-ups with evidence, `freshness`
    of the evidence that is current; all are in [0, 1].
    """

    sufficiency: float
    kept: tuple[str, ...]
    relevance: float = 1.0
    completeness: float = 1.0
    freshness: float = 1.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question.

    `confidence` is in [0, 1]. `retrieved` holds the ids of the passages the writer was given, `context` what
    was found before judging; `route`, `strategy` and `sources` are what the classifier chose: `strategy` is the way of
    looking up of the likeliest source, `direct` where none is needed, empty where nothing was classified.
    """

    text: str
    outcome: Outcome
    citations: tuple[Citation, ...] = ()
    confidence: float = 0.0
    stopped_by: StoppedBy = StoppedBy.DONE
    route: str = ""
    sources: tuple[str, ...] = ()
    strategy: str = ""
    retrieved: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    supported: float = 1.0
    rounds: tuple[Round, ...] = ()
    trace: Trace = field(default_factory=Trace)
    usage: Usage = Usage()
    version: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The stable JSON shape of `ragc ask --json`; a citation has a `reason` only where there is one."""
        usage = asdict(self.usage)
        return {
            "text": self.text,
            "outcome": self.outcome.value,
            "confidence": round(self.confidence, 4),
            "stopped_by": self.stopped_by.value,
            "citations": [{k: v for k, v in asdict(c).items() if v or k != "reason"} for c in self.citations],
            "path": list(self.trace.path),
            "trace_id": self.trace.id,
            "version": self.version,
            "usage": {**usage, "usd": round(self.usage.usd, 6), "seconds": round(self.usage.seconds, 4)},
        }
