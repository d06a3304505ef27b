"""`ragc compile`: labelled questions in, a sealed and better version out, with plain RAG and its parent beside it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from optimize.comparison import direction
from optimize.dataset import LabelledQuestion, read_labelled, splits
from optimize.demonstrations import Demonstration, Demonstrator, attach
from optimize.evaluation import Evaluation, evaluate
from optimize.labels import require_sound_labels
from optimize.metrics import Grade
from optimize.publish import Sealing
from optimize.replay import Record, Replay
from optimize.stats import PairedResult, paired_test
from optimize.study import Arm, Live, Search, Trial, Watch, grades, mean_calls, worth
from optimize.thresholds import best_threshold, best_weights
from program.artifact import index_project, open_program
from program.errors import DataError
from program.evidence import first_look
from program.loop import Ask, Find
from program.parameters import Setting, apply, read
from program.rag import AgenticRAG
from program.settings import Project, UtilitySettings
from program.signatures import BASE_PREFIX

FOLDS = 4
ROUTE = "classifier.route"
FINALISTS = 8
TRIALS = 12
POINT_PRICES = {"quality": 0.0, "balanced": None, "economy": 0.15}
"""What a model call costs, in utility, at each operating point; None is the project's own price."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A finished compile: the new version, its scores beside plain RAG's and the parent's, and the verdict."""

    reference: str
    parent: str
    evaluation: Evaluation
    plain: Evaluation
    before: Evaluation
    against_parent: PairedResult
    against_plain: PairedResult
    trials: int
    seconds: float
    calls: int

    @property
    def verdict(self) -> str:
        """better, worse or no_detectable_difference: utility over the parent, paired and clustered by topic."""
        return direction("utility", self.against_parent)

    @property
    def improved(self) -> bool:
        return self.verdict == "better"


def compile_project(
    project: Project,
    *,
    trials: int = TRIALS,
    seed: int = 0,
    max_seconds: float | None = None,
    watch: Watch = lambda live: None,
) -> Compiled:
    """Compiles the project's program and publishes it.

    The first compile of a project also publishes the uncompiled program as its parent. Search is on train, by
    cross-fitting over topics; the choice among the finalists is on train and dev together; test is read once,
    at the end. Raises `DataError` for labels that contradict the knowledge or leave nothing to learn from.
    """
    started = time.monotonic()
    live = Live()

    def stage(name: str) -> None:
        live.stage, live.done, live.of, live.started = name, 0, 0, time.monotonic()
        watch(live)

    def advance(done: int, of: int) -> None:
        live.done, live.of = done, of
        watch(live)

    stage("indexing the knowledge")
    index_project(project, advance)
    stage("checking the labels")
    questions = read_labelled(project.labelled)
    first = open_program(project)
    require_sound_labels(project, questions)
    parts = splits(questions, seed)
    train, dev, test = (parts[name] for name in ("train", "dev", "test"))
    if not train or not test:
        raise DataError(
            f"There are {len(train)} questions to train on and {len(test)} to test on; both are needed.",
            "Label questions of at least three topics, so that each split gets one.",
        )
    record = Record()
    weights = project.settings.utility

    stage("making demonstrations")
    demonstrations = Demonstrator(first, Replay(first, record)).make(train, advance)
    final = copy_of(first)
    attach(final, demonstrations)
    arms = _folds(first, train, demonstrations, record)
    stage("fitting thresholds")
    start = read(first)
    fitted = {**start, **_fit_routing(arms, start)}
    baseline = worth(grades([Arm(Replay(first, record), train)], start, weights))
    live.baseline = baseline

    stage("searching")
    search = Search(arms, weights, seed, None, project.name)
    deadline = None if max_seconds is None else started + max_seconds
    search.run([start, fitted, *_starts(fitted)], trials, watch, live, deadline)

    stage("choosing on dev")
    finalists = search.best(FINALISTS)
    points = _choose(finalists, Arm(Replay(final, record), dev), len(train), weights)
    apply(final, points["balanced"])

    stage("testing")
    plain = evaluate(first.plain(), test, weights, advance)
    before = evaluate(first, test, weights, advance)
    after = evaluate(final, test, weights, advance)
    live.calls = sum(int(g.metrics["model_calls"] or 0) for e in (plain, before, after) for g in e.grades)

    stage("sealing")
    sealing = Sealing(project, questions, parts, seed)
    parent = sealing.uncompiled(first, before, plain)
    cost = {"seconds": round(time.monotonic() - started, 1), "trials": len(search.trials), "usd": 0.0}
    reference = sealing.compiled(final, after, plain, points, parent, len(search.trials), cost)
    return Compiled(
        reference=reference,
        parent=parent,
        evaluation=after,
        plain=plain,
        before=before,
        against_parent=paired(before.grades, after.grades),
        against_plain=paired(plain.grades, after.grades),
        trials=len(search.trials),
        seconds=time.monotonic() - started,
        calls=live.calls,
    )


def copy_of(program: AgenticRAG) -> AgenticRAG:
    """A program of its own over the same library and models."""
    return program.deepcopy()  # type: ignore[no-any-return]


def paired(
    a: Sequence[Grade], b: Sequence[Grade], metric: Callable[[Grade], float] = lambda g: g.utility
) -> PairedResult:
    """The paired, topic-clustered test of b over a."""
    return paired_test([metric(g) for g in a], [metric(g) for g in b], [g.topic for g in a])


def _folds(
    program: AgenticRAG,
    train: Sequence[LabelledQuestion],
    demonstrations: Sequence[Demonstration],
    record: Record,
) -> list[Arm]:
    """Cross-fitting: each fold's questions are judged by a program whose demonstrations hold none of its topics.

    Otherwise a decider would be asked what it was just told, and every threshold would be set for that.
    """
    sizes: dict[str, int] = defaultdict(int)
    for question in train:
        sizes[question.topic or question.id] += 1
    folds: list[set[str]] = [set() for _ in range(min(FOLDS, len(sizes)))]
    for topic in sorted(sizes, key=lambda t: (-sizes[t], t)):
        min(folds, key=lambda fold: sum(sizes[t] for t in fold)).add(topic)
    arms = []
    for fold in folds:
        member = copy_of(program)
        attach(member, demonstrations, without=frozenset(fold))
        arms.append(Arm(Replay(member, record), [q for q in train if (q.topic or q.id) in fold]))
    return arms


def _fit_routing(arms: Sequence[Arm], start: Setting) -> Setting:
    """Thresholds and weights of the router's decisions, each fitted alone to its labels, out of fold."""
    chances: dict[str, list[float]] = defaultdict(list)
    truths: dict[str, list[bool]] = defaultdict(list)
    tables: list[dict[str, float]] = []
    routes: list[str] = []
    for arm in arms:
        program = arm.replay.program
        for question in arm.questions:
            glimpse = first_look(arm.replay.reply(Find(question.question, program.sources)))
            evidence = arm.replay.reply(Ask(ROUTE, {"question": question.question, "glimpse": glimpse}))
            labels = {"vague": question.outcome == "clarify"} if question.outcome is not None else {}
            if question.sources:
                labels |= {BASE_PREFIX + name: name in question.sources for name in program.sources}
            for output, label in labels.items():
                chances[output].append(evidence[output].probability)
                truths[output].append(label)
            if question.route is not None:
                tables.append(dict(evidence["route"].probabilities))
                routes.append(question.route)
    fitted = {f"{ROUTE}:{output}": best_threshold(chances[output], truths[output]) for output in chances}
    fitted |= {f"{ROUTE}:route={label}": weight for label, weight in best_weights(tables, routes).items()}
    return {name: value for name, value in fitted.items() if name in start}


def _starts(fitted: Setting) -> list[Setting]:
    """Settings worth trying first: what usually helps, each still to prove itself.

    A judge with few examples is unsure, so a low bar keeps what it only doubts.
    """
    fresh = {"policy.stale_penalty": 1.0, "policy.informal_penalty": 0.6}
    lenient = {"judge.relevance:relevant": 0.05, "judge.sufficiency:sufficient": 0.2, "grounder.support:supported": 0.2}
    full = {"policy.keep_at_most": 8, "policy.sentences": 6}
    bold = {"grounder.responsive:responsive": 0.2}
    wary = {"grounder.responsive:responsive": 0.4}
    return [
        {**fitted, **fresh, **lenient, **bold},
        {**fitted, **fresh, **lenient, **full, **bold},
        {**fitted, **fresh, **lenient, **full, **wary},
        {**fitted, **fresh, **lenient, **full, **bold, "policy.max_rounds": 1, "policy.base_prior": 0.2},
    ]


def _choose(finalists: Sequence[Trial], dev: Arm, trained_on: int, weights: UtilitySettings) -> dict[str, Setting]:
    """The setting of each operating point: the best on train (out of fold) and dev together at its price of a call."""
    judged = []
    share = trained_on / (trained_on + len(dev.questions))
    for trial in finalists:
        value, calls = trial.worth, trial.calls
        if dev.questions:
            graded = grades([dev], trial.setting, weights)
            value = share * value + (1 - share) * worth(graded)
            calls = share * calls + (1 - share) * mean_calls(graded)
        judged.append((value + weights.call * calls, calls, trial.setting))
    return {
        point: max(judged, key=lambda j: j[0] - (weights.call if price is None else price) * j[1])[2]
        for point, price in POINT_PRICES.items()
    }
