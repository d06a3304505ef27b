"""Two versions on the same questions: better, worse, or no detectable difference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import orjson

from optimize.evaluation.guardrails import DEFAULT_MARGINS, Guardrail, Margin, guard
from optimize.evaluation.stats import (
    ALPHA,
    ANY,
    MIN_UNITS,
    Interval,
    PairedResult,
    holm,
    mean_interval,
    paired_test,
    shown_p,
)
from program.errors import DataError
from program.serve import manifest, reference

Row = Mapping[str, Any]
"""A line of `scores.jsonl`."""
Direction = Literal["better", "worse", "no_detectable_difference"]
SCORES = "scores.jsonl"
PRIMARY = "utility"
WORDS = ("correct", "partial", "wrong")
REPEAT = "repeat"
"""The key that tells one asking of a question from another."""
_COSTS = ("model_calls", "calls", "tokens", "tokens_in", "tokens_out", "usd", "seconds", "rounds")
LOWER_IS_BETTER = frozenset(["wrong", "seconds_p50", "seconds_p95", *_COSTS])


@dataclass(frozen=True, slots=True)
class Comparison:
    """B against A. `test` is on the declared metric; `others` on all the rest, their p-values corrected
    together (Holm); `flipped` lists the questions that went from one of WORDS to another, with both answers.

    `by_tag` holds the declared metric's difference over the questions of each tag: where to look next, no proof.
    """

    metric: str
    test: PairedResult
    others: Mapping[str, PairedResult]
    flipped: Sequence[Mapping[str, str]]
    guardrails: Sequence[Guardrail] = ()
    by_tag: Mapping[str, Interval] = field(default_factory=dict)

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
            "guardrails": [g.as_dict() for g in self.guardrails],
            "by_tag": {
                tag: {"difference": i.mean, "ci": [_number(i.low), _number(i.high)], "n": i.n}
                for tag, i in self.by_tag.items()
            },
        }

    def text(self) -> str:
        """The verdict in one line, with what could have been seen when nothing was."""
        test = self.test
        figures = (
            f"{self.metric} {test.difference:+.3f} [{test.ci[0]:+.3f}, {test.ci[1]:+.3f}], p {shown_p(test.p)}, "
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


def compare(
    a: Sequence[Row], b: Sequence[Row], metric: str = PRIMARY, margins: Sequence[Margin] = DEFAULT_MARGINS
) -> Comparison:
    """B's rows against A's, question by question, clustered on their topics.

    A metric is a number of the row itself or of its `metrics`; a question counts for it where both rows
    have it. Rows of one id that differ in `repeat` are averaged first. Raises `DataError` when the two hold
    different questions, an id twice, or no such metric.
    """
    before, after = _by_id(a, "A"), _by_id(b, "B")
    if before.keys() != after.keys():
        only_a, only_b = len(before.keys() - after.keys()), len(after.keys() - before.keys())
        raise DataError(
            f"A and B were scored on different questions: {len(before.keys() & after.keys())} in both, "
            f"{only_a} only in A, {only_b} only in B.",
            "Score both on the same labelled file: ragc ab offline A B --data FILE.",
        )
    ids = sorted(before)
    names = sorted({name for row in (*a, *b) for name in _numbers(row)} - {REPEAT})
    pairs = {name: found for name in names if (found := _pairs(name, ids, before, after))[0]}
    if metric not in pairs:
        known = ", ".join(pairs) or "none"
        raise DataError(f"The scores hold no metric {metric!r} for both.", f"Measured for both: {known}.")
    tests = {name: paired_test(*pair, within=_range(name)) for name, pair in pairs.items()}
    rest = {name: test for name, test in tests.items() if name not in {metric, "partial"}}
    corrected = holm({name: test.p for name, test in rest.items()})
    others = {name: replace(test, p=corrected[name]) for name, test in rest.items()}
    guards = [
        guard(m, *pairs.get(m.metric, ((), (), ())), lower_is_better=m.metric in LOWER_IS_BETTER) for m in margins
    ]
    by_tag = _by_tag(metric, ids, before, after)
    return Comparison(metric, tests[metric], others, _flipped(ids, before, after), guards, by_tag)


@manifest.refuse_unreadable("What one of the versions was scored")
def compare_versions(a: str, b: str, metric: str = PRIMARY, root: Path | str | None = None) -> Comparison:
    """Two versions by the scores sealed in them; both folders are verified first."""
    return compare(read_scores(a, root), read_scores(b, root), metric)


@manifest.refuse_unreadable("What a version was scored")
def read_scores(ref: str, root: Path | str | None = None) -> list[dict[str, Any]]:
    """The rows of a version's `scores.jsonl`. Raises `DataError` when the version was never scored."""
    found = reference.resolve(ref, root)
    sealed = manifest.verify_folder(found.path, found.digest)
    if SCORES not in {file.path for file in sealed.files}:
        raise DataError(f"{found} holds no {SCORES}.", "Compile a version on labelled questions with a test split.")
    return [orjson.loads(line) for line in (found.path / SCORES).read_bytes().splitlines() if line.strip()]


def _by_id(rows: Sequence[Row], side: str) -> dict[str, Row]:
    """The rows by question, repeats averaged: they are no independent questions."""
    grouped: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[str(row["id"])].append(row)
    if any(len({row.get(REPEAT) for row in same}) < len(same) for same in grouped.values()):
        raise DataError(f"{side} holds {len(rows)} scores for {len(grouped)} questions.", "Score each question once.")
    return {id_: same[0] if len(same) == 1 else _averaged(same) for id_, same in grouped.items()}


def _averaged(same: Sequence[Row]) -> Row:
    """The first row with the mean of every number that all of them have."""
    numbers = [_numbers(row) for row in same]
    shared = set.intersection(*(set(found) for found in numbers)) - {REPEAT}
    means = {name: sum(found[name] for found in numbers) / len(same) for name in shared}
    return {**{k: v for k, v in same[0].items() if k not in {"metrics", REPEAT}}, **means}


def _numbers(row: Row) -> dict[str, float]:
    """The metrics of a row by name; null ones are left out."""
    every = {**{k: v for k, v in row.items() if k != "metrics"}, **(row.get("metrics") or {})}
    return {k: float(v) for k, v in every.items() if isinstance(v, int | float)}


def _pairs(
    name: str, ids: Sequence[str], before: Mapping[str, Row], after: Mapping[str, Row]
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[str, ...]]:
    """A's values, B's, and the topics, over the questions for which both have the metric."""
    rows = ((_numbers(before[i]).get(name), _numbers(after[i]).get(name), before[i].get("topic")) for i in ids)
    measured = [(x, y, str(topic or "")) for x, y, topic in rows if x is not None and y is not None]
    if not measured:
        return (), (), ()
    x, y, topics = zip(*measured, strict=True)
    return x, y, topics


def _by_tag(
    metric: str, ids: Sequence[str], before: Mapping[str, Row], after: Mapping[str, Row]
) -> dict[str, Interval]:
    tags = sorted({str(tag) for i in ids for tag in before[i].get("tags") or ()})
    found = {}
    for tag in tags:
        x, y, topics = _pairs(metric, [i for i in ids if tag in (before[i].get("tags") or ())], before, after)
        if x:
            differences = [b - a for a, b in zip(x, y, strict=True)]
            found[tag] = mean_interval(differences, topics, within=_range(metric))
    return found


def _range(metric: str) -> tuple[float, float]:
    """What a difference in a metric can be."""
    from optimize.evaluation.metrics import PROPORTIONS  # imported late: all that grades comes with it

    return (-1.0, 1.0) if metric in PROPORTIONS else ANY


def _flipped(ids: Sequence[str], before: Mapping[str, Row], after: Mapping[str, Row]) -> list[dict[str, str]]:
    found = []
    for id_ in ids:
        a, b = (_word(side[id_]) for side in (before, after))
        if a != b:
            texts = {
                "question": before[id_].get("question"),
                "answer_a": before[id_].get("answer"),
                "answer_b": after[id_].get("answer"),
            }
            found.append({"id": id_, "a": a, "b": b, **{name: str(text) for name, text in texts.items() if text}})
    return found


def _word(row: Row) -> str:
    """Which of WORDS an answer was, of repeats the most frequent, of equals the worst; empty when none is told."""
    shares = {word: float(row.get(word) or 0.0) for word in WORDS}
    most = max(shares.values())
    return next((word for word in reversed(WORDS) if shares[word] == most), "") if most else ""


def _number(value: float) -> float | None:
    return value if abs(value) != float("inf") else None


def _figures(test: PairedResult) -> dict[str, Any]:
    low, high = test.ci
    return {"difference": test.difference, "ci": [_number(low), _number(high)], "p": test.p, "n": test.n}
