"""Two versions on the same questions: better, worse, or no detectable difference; and guardrails."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
import orjson

from ragc.errors import DataError
from ragc.optimize.evaluation import stats
from ragc.serve import manifest
from ragc.serve.reference import Manifest

Row = Mapping[str, Any]  # A line of `scores.jsonl`
_Scored = tuple[Row, Mapping[str, float]]  # a question's row and its numbers
Pair = tuple[float, float, str]  # A's value of a metric, B's, and the topic of the question
State = Literal["holds", "breached", "not_shown", "not_measured"]
SCORES = "scores.jsonl"
PRIMARY = "utility"
SUBGROUPS = "Subgroups say where to look next and prove nothing: of twenty without a difference, one shows one."
SECONDS = "seconds"
WORDS = ("correct", "partial", "wrong")
FARTHEST = 1e6  # how many times worse a limit may be
REPEAT = "repeat"  # the key that tells one asking of a question from another
_COSTS = ("sentences", "model_calls", "calls", "tokens", "tokens_in", "tokens_out", "usd", "seconds", "rounds")
LOWER_IS_BETTER = frozenset(["wrong", "selective_risk", "seconds_p50", "seconds_p95", *_COSTS])


@dataclass(frozen=True, slots=True)
class Margin:
    """How much worse a metric may get."""

    metric: str
    margin: float  # the most by which it may be worse, in the metric's unit or as a share
    relative: bool = False

    def __str__(self) -> str:
        return f"{self.metric}:{100 * self.margin:g}%" if self.relative else f"{self.metric}:{self.margin:g}"


DEFAULT_MARGINS = (Margin("wrong", 0.02), Margin("model_calls", 0.25), Margin("seconds", 0.25, relative=True))
"""Two wrong answers more in a hundred, one model call more in four questions, a quarter slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrail(Margin):
    """A test of non-inferiority: that B is at most so much worse than A."""

    state: State  # `holds` when `limit` is within the margin, `breached` when even the lower limit is beyond it
    worse_by: float  # by how much B is worse, in the margin's unit; negative where it is better, infinite from 0 on
    limit: float  # the one-sided 95 % upper limit of `worse_by`
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(stats.PairedResult):
    """B against A: the test of one metric, with what else was compared. Its JSON is that of `ragc compare`.

    P-values are corrected for the number of versions that are compared with A (Holm).
    """

    a: str  # the control, as `name@v7`, with its digest where two would read the same
    b: str
    metric: str
    others: Mapping[str, stats.PairedResult]  # the tests of all other metrics, their p-values corrected together (Holm)
    flipped: Sequence[Mapping[str, str]]  # the questions that went from one of WORDS to another, with both answers
    guardrails: Sequence[Guardrail] = ()
    by_tag: Mapping[str, stats.Interval] = field(default_factory=dict)
    """By tag B minus A on the metric: where to look next, no proof."""
    risk_coverage: Mapping[str, Any] | None = None
    """The risk-coverage curves of A and B; None where scores hold no confidence."""

    def describe(self) -> str:
        """Return the verdict in one line, with the difference that could be seen."""
        return self.describe_for(self.metric)

    @property
    def breached(self) -> list[str]:
        """The margins of the guardrails that are breached."""
        return [str(one) for one in self.guardrails if one.state == "breached"]


def fields_of(found: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, each as it is."""
    return {one.name: getattr(found, one.name) for one in fields(found)}


def compare_rows(
    a: Sequence[Row],
    b: Sequence[Row],
    metric: str = PRIMARY,
    margins: Sequence[Margin] = DEFAULT_MARGINS,
    *,
    names: tuple[str, str] = ("A", "B"),
    timed: bool = True,
) -> Comparison:
    """Compare B's rows with A's, question by question, clustered on their topics.

    A metric is a number of the row itself or of its `metrics`; a question counts for it where both rows
    have it. Rows of one id that differ in `repeat` are averaged first. Unless `timed`, side by side in one run, seconds
    are left out: they are of two runs, whose machines had other work. Raises `DataError` when the two hold different
    questions, an id twice, or no such metric.
    """
    from ragc.optimize.evaluation.risk import compare_curves, judge_rows  # imported late: DSPy comes with it

    before, after = _average_repeats(a, names[0]), _average_repeats(b, names[1])
    if (x := before.keys()) != (y := after.keys()):
        where = f"{len(x & y)} in both, {len(x - y)} only in {names[0]}, {len(y - x)} only in {names[1]}"
        mend = f"Have both asked anew on one labelled file: ragc compare {' '.join(names)} --data FILE."
        raise DataError(f"{' and '.join(names)} were scored on different questions: {where}.", mend)
    scored = [(before[id_], after[id_]) for id_ in sorted(before)]
    known = sorted({name for (_, numbers), _ in scored for name in numbers if timed or name != SECONDS})
    pairs = {name: found for name in known if (found := _pair_values(name, scored))}
    if metric not in pairs:
        mend = f"Measured for both: {', '.join(pairs) or 'none'}. Seconds are where both are asked anew: --data FILE."
        raise DataError(f"The scores hold no metric {metric!r} for both.", mend)
    tests = {
        name: stats.paired_test(*zip(*found, strict=True), within=_find_range(name), cost=name in LOWER_IS_BETTER)
        for name, found in pairs.items()
    }
    corrected = stats.correct_holm({name: test.p for name, test in tests.items() if name not in {metric, "partial"}})
    return Comparison(
        **fields_of(tests[metric]),
        a=names[0],
        b=names[1],
        metric=metric,
        others={name: tests[name].correct(p) for name, p in corrected.items()},
        flipped=_find_flipped(scored),
        guardrails=[check_guardrail(margin, pairs.get(margin.metric, ())) for margin in margins],
        by_tag=_compare_tags(metric, scored),
        risk_coverage=compare_curves({side: judge_rows(one[n][0] for one in scored) for n, side in enumerate("AB")}),
    )


@manifest.refuse_unreadable("What a version was scored")
def read_scores(sealed: Manifest) -> list[dict[str, Any]]:
    """Return the rows of a verified version's `scores.jsonl`, or raise `DataError`."""
    if SCORES not in sealed.files:
        raise DataError(f"{sealed} holds no {SCORES}.", "Compile a version on labelled questions with a test split.")
    return [orjson.loads(line) for line in (sealed.path / SCORES).read_bytes().splitlines() if line.strip()]


def read_sealed_rows(sealed: Sequence[Manifest], metric: str = PRIMARY) -> list[list[dict[str, Any]]]:
    """Return the rows of versions. Raises `DataError` for different metrics."""
    known = {one.label: by for one in sealed if (by := one.section("data").get("metric"))}
    if len({orjson.dumps(by) for by in known.values()}) > 1 and (metric == PRIMARY or any(one.kind for one in sealed)):
        named = [f"{label} by {by['name']} ({by['sha256'][7:15]})" for label, by in known.items()]
        own = " --program MODULE:FUNCTION --metric MODULE:FUNCTION" if any(one.kind for one in sealed) else ""
        mend = f"Have them asked anew by one: ragc compare {' '.join(one.label for one in sealed)} --data FILE{own}"
        raise DataError(f"The versions were scored by different metrics: {', '.join(named)}.", mend)
    return [read_scores(one) for one in sealed]


def list_questions(rows: Sequence[Row]) -> list[str]:
    """Return the questions of rows, by their ids where texts are not there."""
    return list(dict.fromkeys(str(row.get("question") or row["id"]) for row in rows))


def parse_margin(text: str) -> Margin:
    """Parse `wrong:0.02` (in the metric's unit) or `seconds:25%` (a share)."""
    found = re.fullmatch(r"([a-z][a-z0-9_]*):([0-9]+(?:\.[0-9]+)?|\.[0-9]+)(%?)", text.strip())
    if found is None:
        raise DataError(f"{text[:80]!r} is not a guardrail.", "Write METRIC:0.02, or METRIC:25% of what it was.")
    relative = bool(found[3])
    return Margin(found[1], float(found[2]) / (100 if relative else 1), relative)


def check_guardrail(margin: Margin, pairs: Sequence[Pair]) -> Guardrail:
    """Test a margin on pairs of A's and B's values, clustered on their topics.

    A relative margin is on the ratio of the means: the limit is the share of A at which B, less that much more of A, is
    within the one-sided limit of no difference (Fieller 1954). What begins at 0 throughout is beyond every share where
    it rises. Where no question got worse, topics of a kind never seen may have: the limit lies as much farther off.
    """
    if not pairs:
        return Guardrail(**fields_of(margin), state="not_measured", worse_by=math.nan, limit=math.nan, n=0)
    before, after = (np.array([pair[side] for pair in pairs]) for side in (0, 1))
    topics = stats.number_groups([topic for _, _, topic in pairs])
    worse = (after - before) * (1 if margin.metric in LOWER_IS_BETTER else -1)
    of = np.abs(before) if margin.relative else np.ones(len(pairs))
    if not of.any():
        worse_by = limit = math.copysign(math.inf, worse.mean()) if worse.any() else 0.0
        state: State = "holds" if limit <= margin.margin else "breached"
    else:
        size = max(of.max(), after.max(), 0.0 if margin.relative else 1.0)
        farther = 0.0 if (worse > 0).any() else stats.reach_unseen(worse, topics, size)

        def limits(share: float) -> tuple[float, float]:
            less = worse - share * of
            low, high = stats.one_sided_limits(less, topics, size=size)
            return low, high + (farther if np.ptp(less) else 0.0)

        low, high = limits(margin.margin)
        state = "holds" if high <= 0 else "breached" if low > 0 else "not_shown"
        worse_by = float(worse.mean() / of.mean())
        limit = _find_limit(lambda share: limits(share)[1] / of.mean(), worse_by)
    return Guardrail(**fields_of(margin), state=state, worse_by=worse_by, limit=limit, n=len(pairs))


def _find_limit(excess: Callable[[float], float], least: float) -> float:
    """Return from where on a falling function is below 0, not before `least`; infinity where nowhere."""
    from scipy.optimize import brentq

    step = excess(least)
    while step <= FARTHEST and excess(least + step) > 0:
        step *= 2
    if step > FARTHEST:
        return math.inf
    return float(brentq(excess, least, least + step, xtol=1e-6)) if step > 0 else least


def _average_repeats(rows: Sequence[Row], side: str) -> dict[str, _Scored]:
    """Return by question its first row, and the mean of every number that all repeats of it have."""
    grouped: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[str(row["id"])].append(row)
    if any(len({row.get(REPEAT) for row in same}) < len(same) for same in grouped.values()):
        raise DataError(f"{side} holds {len(rows)} scores for {len(grouped)} questions.", "Score each question once.")
    found: dict[str, _Scored] = {}
    for id_, same in grouped.items():
        numbers = [_read_numbers(row) for row in same]
        shared = set.intersection(*map(set, numbers))
        found[id_] = same[0], {name: sum(one[name] for one in numbers) / len(same) for name in shared}
    return found


def _read_numbers(row: Row) -> dict[str, float]:
    """Return the metrics of a row by name; null ones are left out."""
    every = {**row, **(row.get("metrics") or {})}
    return {k: float(v) for k, v in every.items() if isinstance(v, int | float) and k not in (REPEAT, "confidence")}


def _pair_values(name: str, scored: Sequence[tuple[_Scored, _Scored]]) -> list[Pair]:
    """Return A's and B's values of a metric, and the topic, of each question where both have it."""
    both = ((row, a[name], b[name]) for (row, a), (_, b) in scored if name in a and name in b)
    return [(a, b, str(row.get("topic") or "")) for row, a, b in both]


def _compare_tags(metric: str, scored: Sequence[tuple[_Scored, _Scored]]) -> dict[str, stats.Interval]:
    found = {}
    for tag in sorted({str(tag) for (row, _), _ in scored for tag in row.get("tags") or ()}):
        if pairs := _pair_values(metric, [(a, b) for a, b in scored if tag in (a[0].get("tags") or ())]):
            gains, topics = zip(*((after - before, topic) for before, after, topic in pairs), strict=True)
            found[tag] = stats.mean_interval(gains, topics, within=_find_range(metric))
    return found


def _find_range(metric: str) -> tuple[float, float]:
    from ragc.optimize.evaluation.grades import PROPORTIONS  # imported late: all that grades comes with it

    return (-1.0, 1.0) if metric in PROPORTIONS else stats.ANY


def _find_flipped(scored: Sequence[tuple[_Scored, _Scored]]) -> list[dict[str, str]]:
    found = []
    for (a, numbers), (b, others) in scored:
        if (before := find_word(numbers)) != (after := find_word(others)):
            texts = {"question": a.get("question"), "answer_a": a.get("answer"), "answer_b": b.get("answer")}
            given = {name: str(text) for name, text in texts.items() if text}
            found.append({"id": str(a["id"]), "a": before, "b": after, **given})
    return found


def find_word(numbers: Mapping[str, float]) -> str:
    """Return the most frequent of WORDS, of equals the worst, or nothing."""
    most = max(numbers.get(word, 0.0) for word in WORDS)
    return next((word for word in reversed(WORDS) if numbers.get(word, 0.0) == most), "") if most else ""
