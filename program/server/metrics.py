"""The figures of a server, in Prometheus' text format."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter

from ragc.answer import Answer

BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""The upper bounds of the buckets of seconds."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SPENT = {
    "ragc_model_calls_total": "Requests to language models.",
    "ragc_tokens_total": "Tokens to and from language models.",
    "ragc_usd_total": "US dollars, by list prices.",
}


class Metrics:
    """Counters of questions, of what they cost, and of what people said. Safe from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._questions: Counter[tuple[str, str]] = Counter()
        self._buckets: Counter[int] = Counter()
        self._seconds = 0.0
        self._spent: Counter[str] = Counter()
        self._counted: Counter[tuple[str, str]] = Counter()

    def count_answer(self, answer: Answer) -> None:
        """Count an answer by version and outcome, with its seconds and costs."""
        usage = answer.usage
        spent = (usage.calls, usage.tokens_in + usage.tokens_out, usage.usd)
        with self._lock:
            self._questions[answer.version, answer.outcome.value] += 1
            self._buckets[bisect_left(BOUNDS, usage.seconds)] += 1
            self._seconds += usage.seconds
            for name, value in zip(_SPENT, spent, strict=True):
                self._spent[name] += value  # type: ignore[assignment]  # a Counter takes any number

    def count_event(self, kind: str, value: str) -> None:
        """Count a verdict of a person, a vote or an error by its value."""
        with self._lock:
            self._counted[kind, value] += 1

    def render(self, at_work: int) -> str:
        """Return all figures; `at_work` is how many questions are being answered."""
        with self._lock:
            lines = _head("ragc_questions_total", "counter", "Questions answered.")
            for (version, outcome), n in sorted(self._questions.items()):
                lines.append(f'ragc_questions_total{{version="{_escape(version)}",outcome="{outcome}"}} {n}')
            lines += _head("ragc_question_seconds", "histogram", "Seconds from a question to its answer.")
            upto = 0
            for place, bound in enumerate([*map(str, BOUNDS), "+Inf"]):
                upto += self._buckets[place]
                lines.append(f'ragc_question_seconds_bucket{{le="{bound}"}} {upto}')
            lines += [f"ragc_question_seconds_sum {self._seconds:.6f}", f"ragc_question_seconds_count {upto}"]
            for name, about in _SPENT.items():
                lines += [*_head(name, "counter", about), f"{name} {self._spent[name]:g}"]
            lines += [*_head("ragc_events_total", "counter", "Verdicts, votes and errors.")]
            for (kind, value), n in sorted(self._counted.items()):
                lines.append(f'ragc_events_total{{kind="{_escape(kind)}",value="{_escape(value)}"}} {n}')
        lines += [
            *_head("ragc_questions_at_work", "gauge", "Questions at work or waiting."),
            f"ragc_questions_at_work {at_work}",
        ]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
