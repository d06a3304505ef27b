"""A promise on wrong answers proved by labels, and risk-coverage curves.

1. The answers are ordered by confidence. A threshold of confidence divides those given from those refused.
2. The upper limit of the share of wrong among those given is Clopper and Pearson's at the effective number of answers
   (`count_effective`): that of so many independent answers as would vary as much between topics, and fewer by the
   degrees of freedom of few topics (Korn and Graubard 1998). Of answers none of which is wrong it is that of topics.
3. Thresholds are tested from a strict one to the laxest, and the first that fails ends it (fixed-sequence testing:
   Angelopoulos et al. 2021, "Learn then Test", section 4.2). Where that begins depends on effective numbers, and so on
   which answers are wrong, which the theorem does not cover: that a risk above the level is accepted with a chance of
   at most 5 % is shown by simulation (`tests/optimize/test_risk.py`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from ragc.loop.policy import Risk
from ragc.optimize.evaluation.grades import Grade
from ragc.optimize.evaluation.stats import ALPHA, Floats, Interval, count_effective, format_estimate, limit_share

SPARED = (2, 1, 0)
"""Wrong answers, of the effective ones, that the strictest threshold tested has room for: as many as their number
allows. One wrong answer among the surest would end a sequence that has room for none."""
ROUNDING = 1e-9
MOST_LABELS = 10_000  # past which a proof is out of reach
RESAMPLES = 1000
POINTS = 40  # of a curve at most


class Judged(NamedTuple):
    """A question's confidence (None where it was not answered), whether the answer is wrong, and its topic."""

    confidence: float | None
    wrong: bool
    topic: str


def judge_grades(grades: Iterable[Grade]) -> list[Judged]:
    """Return what risk rests on of graded answers."""
    return [Judged(grade.confidence, bool(grade.wrong), grade.topic) for grade in grades]


def judge_rows(rows: Iterable[Mapping[str, Any]]) -> list[Judged]:
    """Return what risk rests on of the lines of `scores.jsonl`."""
    return [Judged(row.get("confidence"), bool(row.get("wrong")), str(row.get("topic") or row["id"])) for row in rows]


def check_risk(risk: Risk, tested: Interval | None) -> str:
    """Return in a line whether a stated risk held on test."""
    if tested is None:
        return "Nothing was answered on test."
    share = format_estimate(100 * tested.value, [end and 100 * end for end in tested.ci], ".1f")
    state = "held" if tested.value <= risk.level else "broken"
    return f"{f'It is {state} on test' if risk.proved else 'On test'}: {share} % of {tested.n} answers are wrong."


def prove_risk(judged: Sequence[Judged], level: float) -> Risk:
    """Return the risk at the laxest threshold that proves it to be at most `level`.

    Where none is, it is that of all answers, at the threshold 0, and `lacks` says what is missing.
    """
    places, confidence, wrong = _order_answers(judged)
    topics = [judged[n].topic for n in places]
    n, shares, sizes = len(wrong), np.cumsum(wrong) / np.arange(1, len(wrong) + 1), _count_effective(wrong, topics)
    limits = _limit_wrong(shares, sizes)
    roomy = (np.flatnonzero(_limit_wrong(spared / np.maximum(sizes, 1.0), sizes) <= level) for spared in SPARED)
    start = next((int(found[0]) for found in roomy if len(found)), n)
    between = np.append(np.diff(confidence), -1.0)[:n] < 0  # answers as sure as each other have no threshold between
    tested = [k for k in range(start, n) if between[k]]
    passed = list(takewhile(lambda k: limits[k] <= level, tested))
    at = passed[-1] if passed else n - 1
    return Risk(
        level=level,
        proved=bool(passed),
        threshold=float(confidence[at : at + 2].mean()) if passed and at < n - 1 else 0.0,
        upper=round(float(limits[at]), 4) if n else 1.0,
        answered=round((at + 1) / max(len(judged), 1), 4),
        n=at + 1,
        topics=len(set(topics[: at + 1])),
        lacks="" if passed else _tell_lack(level, shares, sizes, tested[0] if tested else n),
    )


def _limit_wrong(share: Floats | float, size: Floats | float) -> Floats:
    return np.where(size > 0, limit_share(share, size, ALPHA)[1], 1.0)


def _tell_lack(level: float, shares: Floats, sizes: Floats, start: int) -> str:
    """Return in words whether labels or knowledge are missing for a proof, and how many labels."""
    n = len(shares)
    rate = float(shares[start]) if start < n else 0.0
    proves = lambda size: bool(_limit_wrong(rate, float(size)) <= level)  # noqa: E731
    enough = bisect_left(range(1, MOST_LABELS), True, key=proves) + 1
    surest = f"of the {start + 1} surest answers {rate:.0%} are wrong"
    if enough == MOST_LABELS:
        return f"knowledge, or a better order of answers: {surest}, so that more labels would hardly prove it"
    there = f"{n} answered questions, which count as {sizes[-1]:.0f} independent ones" if n else "no answered question"
    needed = math.ceil(enough * n / sizes[-1]) if n and sizes[-1] else enough
    return f"labels: there is {there}; {needed} would prove it where {surest if start < n else 'none of them is wrong'}"


def _count_effective(wrong: Floats, topics: Sequence[str]) -> Floats:
    """Return for each k the effective number of the k + 1 surest answers."""
    codes = np.unique(topics, return_inverse=True)[1]
    own = codes[:, None] == np.arange(len(set(topics)))
    answers, amiss = np.cumsum(own, axis=0), np.cumsum(own * wrong[:, None], axis=0)
    n, many = np.arange(1, len(codes) + 1), (answers > 0).sum(axis=1)
    share = amiss.sum(axis=1) / n
    spread = ((amiss - share[:, None] * answers) ** 2).sum(axis=1) * many / np.maximum(many - 1, 1)
    return count_effective(share, np.sqrt(np.where(spread > ROUNDING, spread, 0.0)) / n, n, many, ALPHA)


def compare_curves(sides: Mapping[str, Sequence[Judged]]) -> dict[str, Any] | None:
    """Return risk-coverage curves on the same questions; None where a side is silent.

    Risk is the share of wrong among the surest answers, coverage their share of all questions (El-Yaniv and Wiener
    2010). The area AURC is the mean risk over its answers of the surest `coverage` of the questions, what all sides
    answer at least (Geifman et al. 2019); its interval is by resampling topics. `differences` are the last side's AURC
    minus each other's.
    """
    shares = [sum(one.confidence is not None for one in judged) / max(len(judged), 1) for judged in sides.values()]
    if not shares or min(shares) == 0:
        return None
    coverage, weights = min(shares), _resample_topics([one.topic for one in next(iter(sides.values()))])
    areas = {name: _measure_areas(judged, weights, coverage) for name, judged in sides.items()}
    *others, last = areas
    return {
        "coverage": round(coverage, 6),
        "sides": {name: {"aurc": _estimate(area), "curve": _trace_curve(sides[name])} for name, area in areas.items()},
        "differences": {name: _estimate(areas[last] - areas[name]) for name in others},
    }


def describe_curves(found: Mapping[str, Any]) -> str:
    """Return the areas under curves in a line, and the last one's differences."""

    def show(of: Mapping[str, Any]) -> str:
        return ", ".join(f"{name} {format_estimate(one['value'], one['ci'], '.3f')}" for name, one in of.items())

    areas, less = show({name: side["aurc"] for name, side in found["sides"].items()}), show(found["differences"])
    return f"AURC over the surest {found['coverage']:.0%} of the questions: {areas}; its difference from {less}"


def _resample_topics(topics: Sequence[str]) -> Floats:
    """Return the weight of each question: 1 in the first row, in each other one of topics drawn with replacement."""
    codes = np.unique(topics, return_inverse=True)[1]
    many = int(codes.max()) + 1
    drawn = np.random.default_rng(0).multinomial(many, np.full(many, 1 / many), RESAMPLES)
    return np.vstack([np.ones(len(codes)), drawn[:, codes]])


def _measure_areas(judged: Sequence[Judged], weights: Floats, coverage: float) -> Floats:
    """Return the area under a curve by each row of weights."""
    places, confidence, wrong = _order_answers(judged)
    ends = len(places) - 1 - np.searchsorted(confidence[::-1], confidence)  # of those as sure, the last
    own = weights[:, places]
    answers = np.cumsum(own, axis=1)
    risk = (np.cumsum(own * wrong, axis=1) / np.maximum(answers, 1e-9))[:, ends]
    own = own * (answers <= coverage * weights.sum(axis=1, keepdims=True) + 1e-9)
    areas: Floats = (risk * own).sum(axis=1) / np.maximum(own.sum(axis=1), 1e-9)
    return areas


def _estimate(areas: Floats) -> dict[str, Any]:
    low, high = np.percentile(areas[1:], [100 * ALPHA / 2, 100 * (1 - ALPHA / 2)])
    return {"value": round(float(areas[0]), 6), "ci": [round(float(low), 6), round(float(high), 6)]}


def _trace_curve(judged: Sequence[Judged]) -> list[tuple[float, float]]:
    """Return coverage and risk at thresholds of confidence, the strictest first."""
    _, confidence, wrong = _order_answers(judged)
    ends = np.flatnonzero(np.diff(confidence, append=-1.0))
    kept = ends[np.unique(np.linspace(0, len(ends) - 1, POINTS).round().astype(int))]
    risk = np.cumsum(wrong) / np.arange(1, len(wrong) + 1)
    return [(round((int(k) + 1) / len(judged), 6), round(float(risk[k]), 6)) for k in kept]


def _order_answers(judged: Sequence[Judged]) -> tuple[list[int], Floats, Floats]:
    """Return the places of what was answered, the surest first, and how sure and how wrong each is."""
    known = {n: one.confidence for n, one in enumerate(judged) if one.confidence is not None}
    places = sorted(known, key=lambda n: -known[n])
    return places, np.array([known[n] for n in places]), np.array([judged[n].wrong for n in places], float)
