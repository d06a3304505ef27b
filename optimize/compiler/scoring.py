"""Settings scored by replay on labelled questions; thresholds fitted to labels, and knobs swept one at a time.

Every fit rests on topics that the program was not shown, and a swept value must win on topics it was not chosen on.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optimize.compiler.demonstrations import Demonstration, learns_demos, thin_out
from optimize.compiler.replay import Arm
from optimize.evaluation.metrics import judge_answer, score_routing, score_support, score_utility
from optimize.evaluation.stats import paired_test
from optimize.labelled.dataset import LabelledQuestion
from program.errors import BudgetStop
from program.loop.decisions import Decision, is_decision, is_undecided
from program.loop.evidence import preview_pool
from program.loop.policy import HEAVIEST, LEAST, LIGHTEST, MOST, Dimension, ProgramParameters, Setting, apply_setting
from program.loop.state import Ask, Find
from program.signatures import BASE_PREFIX

ROUTING_CREDIT = 0.1  # worth of a question routed right in a search, so that ties fall to the better router
FOLDS = 4

Floats = NDArray[np.float64]


class Scores(NamedTuple):
    """Numbers of a setting, one a question; NaN where it was not asked or not graded, or no label tells `routing`."""

    utility: Floats
    routing: Floats
    calls: Floats
    usd: Floats

    def take(self, places: Sequence[int]) -> Scores:
        """Return the scores of the questions at those places."""
        return Scores(*np.array(self)[:, list(places)])

    def append(self, other: Scores) -> Scores:
        """Return the scores of these questions and then of the other's."""
        return Scores(*np.hstack([self, other]))

    def price_calls(self, price: float, own: float) -> Floats:
        """Return the utilities if a call cost `price` instead of the project's `own`."""
        return self.utility + (own - price) * self.calls

    @property
    def worth(self) -> float:
        """Mean utility, and the credit for the share routed right."""
        routed = self.routing[np.isfinite(self.routing)]
        return float(np.nanmean(self.utility) + ROUTING_CREDIT * (routed.mean() if len(routed) else 0.0))

    @property
    def mean_calls(self) -> float:
        """Model calls a question."""
        return float(np.nanmean(self.calls))

    @property
    def mean_usd(self) -> float:
        """US dollars a question."""
        return float(np.nanmean(self.usd))


class Scoring:
    """Settings scored on the questions of several arms, once each; `broken` says what could not be graded."""

    def __init__(self, arms: Sequence[Arm], weights: Any) -> None:
        self.arms = arms
        self.questions = [question for arm in arms for question in arm.questions]
        self.broken: dict[str, str] = {}
        self.weights = weights
        self._turning = [ProgramParameters(arm.replay.program) for arm in arms]
        self._known: dict[tuple[tuple[str, float], ...], Floats] = {}
        self._grades: dict[tuple[Any, ...], tuple[float, ...]] = {}

    def __call__(self, setting: Setting, places: Sequence[int] | None = None) -> Scores:
        """Return the scores of the questions at those places, or of all; NaN elsewhere unless known before."""
        key = tuple(sorted(setting.items()))
        known = self._known.setdefault(key, np.full((4, len(self.questions)), np.nan))
        wanted = set(range(len(self.questions)) if places is None else places)
        first = 0
        for arm, turning in zip(self.arms, self._turning, strict=True):
            upto = first + len(arm.questions)
            open_ = [n for n in range(first, upto) if n in wanted and np.isnan(known[2, n])]
            if open_:
                turning.apply(setting)
                answers = arm.replay.answer_all([self.questions[n].question for n in open_])
                for n, answer in zip(open_, answers, strict=True):
                    known[:, n] = self.grade_answer(self.questions[n], answer)
            first = upto
        return Scores(*known.copy())

    def over(self, arms: Sequence[Arm]) -> Scoring:
        """Return the same scoring over other arms."""
        return type(self)(arms, self.weights)

    def grade_answer(self, question: LabelledQuestion, answer: Any) -> tuple[float, ...]:
        """Return utility, routing, calls and US dollars.

        The first two are NaN when grading raises.
        """
        calls, usd = float(answer.usage.calls), answer.usage.usd
        key = (question.id, answer.outcome, answer.text, answer.route, answer.sources, answer.citations, calls, usd)
        if key not in self._grades:
            try:
                verdict = judge_answer(question, answer.outcome, answer.text)
                held = score_support(answer, lambda passage: self._texts.get(passage, ""))
                worth = score_utility(verdict, answer.outcome, int(calls), self.weights, held, usd)
                routed = score_routing(question, answer)
                self._grades[key] = worth, np.nan if routed is None else routed, calls, usd
            except Exception as error:
                self.broken[question.id] = f"{type(error).__name__}: {error}"
                self._grades[key] = np.nan, np.nan, calls, usd
        return self._grades[key]

    @cached_property
    def _texts(self) -> Mapping[str, str]:
        return {p.id: p.text for p in self.arms[0].replay.program.runtime.library.passages()}


def split_topics(topics: Sequence[str], most: int = FOLDS) -> list[list[int]]:
    """Return the places of questions in parts by topic, of about one size."""
    sizes = Counter(topics)
    parts: list[set[str]] = [set() for _ in range(min(most, len(sizes)))]
    held = [0] * len(parts)
    for topic in sorted(sizes, key=lambda t: (-sizes[t], t)):
        smallest = held.index(min(held))
        parts[smallest].add(topic)
        held[smallest] += sizes[topic]
    return [[n for n, topic in enumerate(topics) if topic in part] for part in parts]


def group_topics(questions: Sequence[LabelledQuestion]) -> list[list[int]]:
    """Return the places of the questions of each topic."""
    topics: dict[str, list[int]] = defaultdict(list)
    for place, question in enumerate(questions):
        topics[question.cluster].append(place)
    return list(topics.values())


def gain_out_of_fold(table: Floats, topics: Sequence[str], held: Sequence[int], among: slice = slice(None)) -> Floats:
    """Return each question's gain by the row best without its fold; NaN past `held`."""
    gains = np.full(len(topics), np.nan)
    for fold in split_topics([topics[n] for n in held]):
        mine = np.zeros(len(topics), bool)
        mine[[held[n] for n in fold]] = True
        if not mine.all():
            best = best_row(table[among][:, ~mine])
            gains[mine] = table[among][best][mine] - table[0][mine]
    return gains


def best_row(table: Floats) -> int:
    """Return the row of the highest mean; of equals the first."""
    return int(np.argmax(np.round(np.nanmean(table, axis=1), 12)))


def survives(gains: Floats, topics: Sequence[str], errors: float = 1.0) -> bool:
    """Return True for a mean gain above 0 of so many standard errors or more, on several topics."""
    known = np.isfinite(gains)
    groups = [topic for topic, there in zip(topics, known, strict=True) if there]
    if len(set(groups)) < 2:
        return False
    test = paired_test([0.0] * len(groups), gains[known].tolist(), groups)
    return test.difference > 0 and test.difference >= errors * test.spread / test.units**0.5


ROUTE = "classifier.route"
PAID = 24  # labelled examples put to a language model at most
GRID, PASSES = 17, 3  # weights tried for an option, and passes over all options
SHARES = (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)  # places in the range of a threshold at which it is swept
COUNTED = 5  # values of a count, or of a knob with steps, that are swept at most
PREVIEW, FEW = 3, 60
"""Every so manieth question is tried first, where there are more than FEW; without gain there a value is given up."""


@dataclass(frozen=True, slots=True)
class Routing:
    """The router's decisions on labelled questions, and their labels."""

    chances: Mapping[str, list[float]]  # probabilities of each yes-or-no output
    truths: Mapping[str, list[bool]]  # labels of each yes-or-no output
    tables: list[dict[str, float]]  # probabilities of the routes, one table a question
    routes: list[str]  # labelled routes

    def fit(self, names: Mapping[str, float]) -> Setting:
        """Return thresholds and weights, each fitted alone to its labels."""
        found = {f"{ROUTE}:{output}": fit_threshold(p, self.truths[output]) for output, p in self.chances.items()}
        found |= {f"{ROUTE}:route={label}": w for label, w in fit_weights(self.tables, self.routes).items()}
        return {name: value for name, value in found.items() if name in names}


@dataclass(frozen=True, slots=True)
class Sweeps:
    """Knobs fitted one at a time."""

    setting: Setting  # the start with every value that won
    gains: Mapping[str, float]  # out-of-fold gain in utility of each knob that was moved
    effective: tuple[str, ...]  # knobs of which some value changed some question's score


@dataclass(frozen=True, slots=True)
class LabelledCases:
    """Labelled examples of one predictor, each with an arm whose program was not shown its topic."""

    name: str
    cases: Sequence[tuple[Arm, Demonstration]]

    def decide(self, setting: Setting) -> Iterator[tuple[int, Ask, Mapping[str, Decision], dict[str, Any]]]:
        """Yield each example's place, request, reply and labels, under a setting."""
        for arm in {id(arm): arm for arm, _ in self.cases}.values():
            mine = [n for n, (other, _) in enumerate(self.cases) if other is arm]
            program = arm.replay.program
            apply_setting(program, setting)
            inputs = program.predictor(self.name).signature.input_fields
            shown = [self.cases[n][1].fields for n in mine]
            asks = [Ask(self.name, {name: one[name] for name in inputs}) for one in shown]
            for n, one, ask, reply in zip(mine, shown, asks, arm.replay.reply_all(asks), strict=True):
                if reply is not None:
                    yield n, ask, reply, {name: one[name] for name in reply if name in one}


def label_cases(arms: Sequence[Arm], demonstrations: Sequence[Demonstration], name: str) -> LabelledCases:
    """Return the labelled examples of a predictor that decides.

    For an embedded decider those of the first arm, as the heads of each arm have to be fitted; for a language model
    some of every arm.
    """
    program = arms[0].replay.program
    if not is_decision(program.predictor(name)):
        return LabelledCases(name, [])
    topics = {question.cluster: arm for arm in arms for question in arm.questions}
    own = [one for one in demonstrations if one.predictor == name and one.topic in topics]
    own = [one for one in own if topics[one.topic] is arms[0]] if learns_demos(program, name) else thin_out(own, PAID)
    return LabelledCases(name, [(topics[one.topic], one) for one in own])


def fit_threshold(probabilities: Sequence[float], labels: Sequence[bool]) -> float:
    """Return the cut in [0.02, 0.98] with the most labels right."""
    p, y = np.asarray(probabilities, float), np.asarray(labels, bool)
    if not len(p) or y.all() or not y.any():
        return 0.5
    edges = np.unique(np.clip(p, LEAST, MOST))
    cuts = np.unique(np.concatenate([[LEAST, 0.5, MOST], (edges[1:] + edges[:-1]) / 2]))
    right = np.array([np.mean((p >= cut) == y) for cut in cuts])
    best = cuts[right >= right.max() - 1e-12]
    return float(best[np.argmin(np.abs(best - 0.5))])


def fit_weights(tables: Sequence[Mapping[str, float]], labels: Sequence[str]) -> dict[str, float]:
    """Return the options' weights in [1/4, 4] with most labels right, near 1."""
    if not tables:
        return {}
    options = list(tables[0])
    p = np.array([[table[option] for option in options] for table in tables])
    y = np.array([options.index(label) for label in labels])
    grid = sorted(np.geomspace(LIGHTEST, HEAVIEST, GRID), key=lambda w: abs(float(np.log(w))))
    weights = np.ones(len(options))
    for _ in range(PASSES):
        for at in range(1, len(options)):
            tried = np.tile(weights, (GRID, 1))
            tried[:, at] = grid
            right = [float(np.mean((p * w).argmax(axis=1) == y)) for w in tried]
            weights = tried[int(np.argmax(right))]  # the first of equals: nearest to 1
    return {option: float(weight) for option, weight in zip(options[1:], weights[1:], strict=True)}


def observe_routing(arms: Sequence[Arm], setting: Setting) -> Routing:
    """Return the router's decisions on the labelled questions of the arms."""
    found = Routing(defaultdict(list), defaultdict(list), [], [])
    for arm in arms:
        apply_setting(arm.replay.program, setting)
        sources = arm.replay.program.sources
        pools = arm.replay.reply_all([Find(question.question, sources) for question in arm.questions])
        asks = [
            Ask(ROUTE, {"question": question.question, "glimpse": preview_pool(pool or [])})
            for question, pool in zip(arm.questions, pools, strict=True)
        ]
        for question, reply in zip(arm.questions, arm.replay.reply_all(asks), strict=True):
            if reply is None:
                continue
            labels = {"vague": question.outcome == "clarify"} if question.outcome is not None else {}
            if question.sources:
                labels |= {BASE_PREFIX + name: name in question.sources for name in sources}
            for output, label in labels.items():
                if not is_undecided(reply[output]):
                    found.chances[output].append(reply[output].probability)
                    found.truths[output].append(label)
            if question.route is not None:
                found.tables.append(dict(reply["route"].probabilities))
                found.routes.append(question.route)
    return found


def sweep_knobs(
    scoring: Scoring,
    space: Sequence[Dimension],
    start: Setting,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Sweeps:
    """Return the start with each knob at its value of most utility.

    One knob at a time over its grid; a knob that was moved stays so for those after it. A value that a cap on calls or
    money leaves no room for is left out: most values need no call. At a cap on time the rest stays as it is.
    """
    topics = [question.cluster for question in scoring.questions]
    setting, gains, effective = dict(start), dict[str, float](), list[str]()
    with contextlib.suppress(BudgetStop):
        for done, dimension in enumerate(space):
            progress(done, len(space))
            if dimension.name.startswith(f"{ROUTE}:{BASE_PREFIX}"):
                continue  # its labels say all that there is to say of it
            values, table, matters = _score_values(scoring, dimension, setting)
            if matters:
                effective.append(dimension.name)
            gain = gain_out_of_fold(table, topics, range(len(topics)))
            if np.nansum(gain) > 0 and (best := best_row(table)):
                setting[dimension.name] = values[best - 1]
                gains[dimension.name] = float(np.nanmean(gain))
    return Sweeps(setting, gains, tuple(effective))


def _score_values(scoring: Scoring, dimension: Dimension, setting: Setting) -> tuple[list[float], Floats, bool]:
    """Return a knob's values that gain on a preview, all utilities (its own first), whether any matters."""
    before = scoring(setting).utility
    preview = range(0, len(before), PREVIEW if len(before) > FEW else 1)
    values, rows, matters = list[float](), [before], False
    for value in grid_of(dimension, setting[dimension.name]):
        with _leave_out_unaffordable():
            tried = {**setting, dimension.name: value}
            gain = scoring(tried, preview).utility[preview] - before[preview]
            matters |= bool((np.nan_to_num(gain) != 0).any())
            if np.nansum(gain) > 0:
                rows.append(scoring(tried).utility)
                values.append(value)
    return values, np.array(rows), matters


@contextlib.contextmanager
def _leave_out_unaffordable() -> Iterator[None]:
    """End a trial that needs a call past a cap; past one on time, end all."""
    try:
        yield
    except BudgetStop as stop:
        if stop.tripped == "seconds":
            raise


def grid_of(dimension: Dimension, now: float) -> list[float]:
    """Return the values at which a knob is swept, without the one it has."""
    low, high = dimension.low, dimension.high
    if dimension.nominal:
        values: list[float] = [float(n) for n in range(int(high) + 1)]
    elif dimension.integral or dimension.step:
        step = dimension.step or 1
        values = [low + step * round(n * (high - low) / step / (COUNTED - 1)) for n in range(COUNTED)]
        values = [round(value) if dimension.integral else round(value, 10) for value in values]
    elif dimension.log:
        values = np.geomspace(low, high, COUNTED).tolist()
    else:
        values = [low + share * (high - low) for share in SHARES]
    return [value for value in dict.fromkeys(values) if value != now]
