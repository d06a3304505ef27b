"""Two versions on the same questions: better, worse, or no detectable difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import orjson

from optimize.stats import ALPHA, MIN_UNITS, PairedResult, holm, paired_test
from program import manifest, reference
from program.errors import DataError

Row = Mapping[str, Any]
"""A line of `scores.jsonl`."""
Direction = Literal["better", "worse", "no_detectable_difference"]
SCORES = "scores.jsonl"
PRIMARY = "utility"
WORDS = ("correct", "partial", "wrong")
_COSTS = ("model_calls", "calls", "tokens", "tokens_in", "tokens_out", "usd", "seconds", "rounds")
LOWER_IS_BETTER = frozenset(["wrong", "seconds_p50", "seconds_p95", *_COSTS])
EXIT_CODES: dict[Direction, int] = {"better": 0, "worse": 1, "no_detectable_difference": 3}


@dataclass(frozen=True, slots=True)
class Comparison:
    """B against A. `test` is on the declared metric; `others` on all the rest, their p-values corrected
    together (Holm); `flipped` lists the questions that went from one of WORDS to another."""

    metric: str
    test: PairedResult
    others: Mapping[str, PairedResult]
    flipped: Sequence[Mapping[str, str]]

    @property
    def verdict(self) -> Direction:
        return direction(self.metric, self.test)

    def as_dict(self) -> dict[str, Any]:
        """The shape of `ragc ab offline --json`. What cannot be said (an infinite end) is None."""
        return {
            "verdict": self.verdict,
            "metric": self.metric,
            **_figures(self.test),
            "topics": self.test.topics,
            "mde": _number(self.test.mde),
            "others": {
                name: {"verdict": direction(name, test), **_figures(test)} for name, test in self.others.items()
            },
            "flipped": [dict(f) for f in self.flipped],
        }

    def text(self) -> str:
        """The verdict in one line, with what could have been seen when nothing was."""
        test = self.test
        figures = (
            f"{self.metric} {test.difference:+.3f} [{test.ci[0]:+.3f}, {test.ci[1]:+.3f}], p = {test.p:.3f}, "
            f"{test.n} questions" + (f", {test.topics} topics" if test.topics else "")
        )
        if self.verdict != "no_detectable_difference":
            return f"{self.verdict}: {figures}"
        seen = f"could have seen {test.mde:.3f}" if test.enough_topics else f"fewer than {MIN_UNITS} topics"
        return f"no detectable difference ({seen}): {figures}"


def direction(metric: str, test: PairedResult) -> Direction:
    """Whether B is better on a metric, in the direction that is good for that metric, at p < .05."""
    if test.p >= ALPHA or test.difference == 0:
        return "no_detectable_difference"
    return "better" if (test.difference > 0) != (metric in LOWER_IS_BETTER) else "worse"


def compare(a: Sequence[Row], b: Sequence[Row], metric: str = PRIMARY) -> Comparison:
    """B's rows against A's, question by question, clustered on their topics.

    A metric is a number of the row itself or of its `metrics`; a question counts for it where both rows
    have it. Raises `DataError` when the two hold different questions, an id twice, or no such metric.
    """
    before, after = _by_id(a, "A"), _by_id(b, "B")
    if before.keys() != after.keys():
        only_a, only_b = len(before.keys() - after.keys()), len(after.keys() - before.keys())
        raise DataError(
            f"A and B were scored on different questions: {len(before.keys() & after.keys())} in both, "
            f"{only_a} only in A, {only_b} only in B.",
            "Score both on the same labelled file: ragc eval REF --questions FILE.",
        )
    ids = sorted(before)
    names = sorted({name for row in (*a, *b) for name in _numbers(row)})
    tests = {name: test for name in names if (test := _paired(name, ids, before, after))}
    if metric not in tests:
        known = ", ".join(tests) or "none"
        raise DataError(f"The scores hold no metric {metric!r} for both.", f"Measured for both: {known}.")
    rest = {name: test for name, test in tests.items() if name not in {metric, "partial"}}
    corrected = holm({name: test.p for name, test in rest.items()})
    others = {name: replace(test, p=corrected[name]) for name, test in rest.items()}
    return Comparison(metric, tests[metric], others, _flipped(ids, before, after))


def compare_versions(a: str, b: str, metric: str = PRIMARY, root: Path | str | None = None) -> Comparison:
    """Two versions by the scores sealed in them; both folders are verified first."""
    return compare(read_scores(a, root), read_scores(b, root), metric)


def read_scores(ref: str, root: Path | str | None = None) -> list[dict[str, Any]]:
    """The rows of a version's `scores.jsonl`. Raises `DataError` when the version was never scored."""
    found = reference.resolve(ref, root)
    sealed = manifest.verify(found.path, found.digest)
    if SCORES not in {file.path for file in sealed.files}:
        raise DataError(f"{found} holds no {SCORES}.", "Compile a version on labelled questions with a test split.")
    return [orjson.loads(line) for line in (found.path / SCORES).read_bytes().splitlines() if line.strip()]


def _by_id(rows: Sequence[Row], side: str) -> dict[str, Row]:
    found = {str(row["id"]): row for row in rows}
    if len(found) != len(rows):
        raise DataError(f"{side} holds {len(rows)} scores for {len(found)} questions.", "Score each question once.")
    return found


def _numbers(row: Row) -> dict[str, float]:
    """The metrics of a row by name; null ones are left out."""
    every = {**{k: v for k, v in row.items() if k != "metrics"}, **(row.get("metrics") or {})}
    return {k: float(v) for k, v in every.items() if isinstance(v, int | float)}


def _paired(name: str, ids: Sequence[str], before: Mapping[str, Row], after: Mapping[str, Row]) -> PairedResult | None:
    rows = ((_numbers(before[i]).get(name), _numbers(after[i]).get(name), before[i].get("topic")) for i in ids)
    measured = [(x, y, topic) for x, y, topic in rows if x is not None and y is not None]
    if not measured:
        return None
    x, y, topics = zip(*measured, strict=True)
    return paired_test(x, y, topics)


def _flipped(ids: Sequence[str], before: Mapping[str, Row], after: Mapping[str, Row]) -> list[dict[str, str]]:
    found = []
    for id_ in ids:
        a, b = (_word(side[id_]) for side in (before, after))
        if a != b:
            question = before[id_].get("question")
            found.append({"id": id_, **({"question": question} if question else {}), "a": a, "b": b})
    return found


def _word(row: Row) -> str:
    """Which of WORDS an answer was; empty when the row does not say."""
    return next((word for word in WORDS if row.get(word)), "")


def _number(value: float) -> float | None:
    return value if abs(value) != float("inf") else None


def _figures(test: PairedResult) -> dict[str, Any]:
    low, high = test.ci
    return {"difference": test.difference, "ci": [_number(low), _number(high)], "p": test.p, "n": test.n}
