"""A program on labelled questions: every metric with its interval, several programs side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ragc.errors import BudgetStop, DataError
from ragc.knowledge.index.build import Advance
from ragc.knowledge.index.fusion import name_copies
from ragc.loop.answers import text_of
from ragc.loop.rag import AgenticRAG
from ragc.optimize.evaluation.grades import DIGITS, METRICS, PROPORTIONS, RANGES, Grade, grade_answer, score_support
from ragc.optimize.evaluation.stats import ANY, Interval, format_estimate, mean_interval
from ragc.optimize.labelled.dataset import LabelledQuestion, Question
from ragc.optimize.labelled.reviewed import hold_out
from ragc.optimize.labelled.split import order_stratified
from ragc.settings import UtilitySettings

TOGETHER = 16  # questions that a replay answers at once; a cap that is reached loses no more


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The graded answers of one program."""

    grades: tuple[Grade, ...]  # the graded answers, in the order of the questions
    failed: Mapping[str, str] = field(default_factory=dict)  # why the grading of a question failed, by its id

    @property
    def first_failure(self) -> str:
        """The first question whose grading failed, and why, where there is one."""
        return next((f"{id_} ({why})" for id_, why in self.failed.items()), "")

    def measure(self, metric: str, of: Iterable[Grade] | None = None) -> Interval | None:
        """Return the mean of a metric over the questions that have it, if any."""
        grades = self.grades if of is None else of
        pairs = [(value, g.topic) for g in grades if (value := g.read_metric(metric)) is not None]
        if not pairs:
            return None
        values, topics = zip(*pairs, strict=True)
        found = mean_interval(values, topics, proportion=metric in PROPORTIONS, within=RANGES.get(metric, ANY))
        low, high = (round(end, DIGITS) for end in found.ci)
        return Interval(round(found.value, DIGITS), (low, high), found.n)

    def metrics(self) -> dict[str, Interval]:
        """Return every metric's estimate, as `ragc eval --json` prints it."""
        found = {name: m for name in ("utility", *METRICS) if (m := self.measure(name))}
        seconds = [taken for g in self.grades if (taken := g.metrics.get("seconds")) is not None]
        for name, percentile in (("seconds_p50", 50), ("seconds_p95", 95)) if seconds else ():
            found[name] = Interval(round(float(np.percentile(seconds, percentile)), DIGITS), ANY, len(seconds))
        return found

    def by_tag(self) -> dict[str, dict[str, Any]]:
        """Return the main metrics over the questions of each tag."""
        names = ("correct", "wrong", "outcome_accuracy", "routing_accuracy", "retrieval_recall")
        table = {}
        for tag in sorted({tag for g in self.grades for tag in g.tags}):
            of = [g for g in self.grades if tag in g.tags]
            table[tag] = {"n": len(of), **{n: m.value for n in names if (m := self.measure(n, of))}}
        return table


def tabulate_metrics(
    sides: Sequence[Mapping[str, Interval]], lead: int = -1, digits: int = 2, timed: bool = True
) -> Iterator[tuple[str, list[str], int]]:
    """Yield each metric of the leading side, every estimate, and its questions.

    Unless `timed`, seconds are left out, as they are of answers of the record.
    An estimate is `91.2 [88.0, 94.1]` in percent for a share, else has `digits`: `1.25 [1.10, 1.40]`; a dash for none.
    """
    for name, leading in sides[lead].items():
        if not timed and name.startswith("seconds"):
            continue
        scale, form = (100, ".1f") if name in PROPORTIONS else (1, f".{digits}f")
        cells = []
        for one in (figures.get(name) for figures in sides):
            ends = [end and scale * end for end in one.ci] if one else []
            cells.append(format_estimate(scale * one.value, ends, form) if one else "-")
        yield name, cells, leading.n


def evaluate(
    program: AgenticRAG,
    questions: Sequence[LabelledQuestion],
    weights: UtilitySettings | None = None,
    progress: Advance = lambda done, of: None,
) -> Evaluation:
    """Ask every question and grade the answers."""
    program = hold_out(program, questions)
    return evaluate_side_by_side([open_side(program, weights or UtilitySettings())], questions, progress, together=1)[0]


Grading = Callable[[Any, Any], Grade]
Side = tuple[Grading, Callable[[Sequence[Any]], Sequence[Any]]]
"""A grader of a program's answers, and what answers questions together."""


def evaluate_side_by_side(
    arms: Sequence[Side],
    questions: Sequence[Question],
    progress: Advance = lambda done, of: None,
    together: int = TOGETHER,
    fork: Callable[[Callable[[Any], Any]], Any] | None = None,
    patient: bool = False,
) -> list[Evaluation]:
    """Ask several programs the same questions; return one evaluation each.

    They are given `together` questions at a time, and take turns in being first, so that a
    busy minute of the machine hits all alike. The questions come in an order that speaks for all topics wherever a cap
    cuts it. A question whose grading raises is left out for all and named in `failed`; when a cap is reached, so are
    those not answered by all: all that follow, or where it is `patient` those alone that need a call. No model's reply
    is remembered from one program for the next: each pays for its own. `fork` makes the processes that share the work.
    Raises `DataError` when there is no question.
    """
    if not questions:
        raise DataError("There is no labelled question to evaluate on.", "Choose another --split, or label some.")

    def grade(places: Sequence[int]) -> dict[int, list[Grade] | tuple[str, str]]:
        turns = sorted(range(len(arms)), key=lambda n: (n - len(found)) % len(arms))
        answers = {n: arms[n][1]([questions[at].asked for at in places]) for n in turns}
        rows = zip(*(answers[n] for n in range(len(arms))), strict=True)
        return {at: _grade_all(arms, questions[at], row) for at, row in zip(places, rows, strict=True)}

    found: dict[int, list[Grade] | tuple[str, str]] = {}
    order = order_stratified(questions)
    workers = fork(grade) if fork else None
    with suppress(BudgetStop):
        for first in range(0, len(order), together):
            places = order[first : first + together]
            if workers:
                parts = [places[n :: workers.count] for n in range(min(workers.count, len(places)))]
                for graded in workers.run(list(enumerate(parts))):
                    found |= graded or {}
            for some in (places, *([at] for at in places if patient)):
                if lacking := [at for at in some if at not in found]:
                    with suppress(BudgetStop) if patient else nullcontext():
                        found |= grade(lacking)
            progress(len(found), len(order))
    graded = [one for _, one in sorted(found.items())]
    failed: dict[str, str] = dict(one for one in graded if isinstance(one, tuple))
    rows = [row for row in graded if isinstance(row, list)]
    return [Evaluation(tuple(row[n] for row in rows), failed) for n in range(len(arms))]


def _grade_all(arms: Sequence[Side], question: Question, answers: Sequence[Any]) -> list[Grade] | tuple[str, str]:
    """Return the grades of all programs' answers to a question, or its id and why there are none."""
    try:
        return [grade(question, answer) for (grade, _), answer in zip(arms, answers, strict=True)]
    except Exception as error:
        return question.id, f"{type(error).__name__}: {error}"


class Grader:
    """A grader of one program's answers; what is measured on a text, it measures once."""

    def __init__(self, program: AgenticRAG, weights: UtilitySettings, relevancy: bool = True) -> None:
        self._weights = weights
        passages = program.runtime.library.passages()
        self._texts, self._copies = {p.id: text_of(p) for p in passages}, name_copies(passages)
        self._embedder = program.runtime.models.embedder
        self._similarity = self._measure_similarity if relevancy else None
        self._supported: dict[tuple[Any, ...], float | None] = {}

    def __call__(self, question: LabelledQuestion, answer: Any) -> Grade:
        """Grade one answer."""
        return grade_answer(question, answer, self._weights, self._measure_support, self._similarity, self._copies)

    def _measure_support(self, answer: Any, asked: str) -> float | None:
        key = (asked, answer.text, answer.outcome, answer.citations, answer.retrieved)
        if key not in self._supported:
            self._supported[key] = score_support(answer, asked, lambda id_: self._texts.get(id_, ""))
        return self._supported[key]

    def _measure_similarity(self, question: str, answer: str) -> float:
        """Return the cosine of question and answer, which stands for relevancy."""
        a, b = self._embedder.encode([question, answer])
        return float(a @ b)


def open_side(program: AgenticRAG, weights: UtilitySettings) -> Side:
    """Return a program as it is asked and graded."""
    return Grader(program, weights), lambda questions: [program(*asked) for asked in questions]
