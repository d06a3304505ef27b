"""A program on labelled questions: every metric with its interval, several programs side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optimize.evaluation.grades import METRICS, PROPORTIONS, RANGES, Grade, grade_answer
from optimize.evaluation.stats import ANY, Interval, format_estimate, mean_interval
from optimize.labelled.dataset import LabelledQuestion, Question
from optimize.labelled.split import order_stratified
from program.errors import BudgetStop, DataError
from program.knowledge.index.build import Advance
from program.knowledge.index.fusion import name_copies
from program.loop.rag import AgenticRAG
from program.settings import UtilitySettings

TOGETHER = 16  # questions that a replay answers at once; a cap that is reached loses no more


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The graded answers of one program."""

    grades: tuple[Grade, ...]  # the graded answers, in the order of the questions
    seconds: tuple[float, ...] = ()
    failed: tuple[str, ...] = field(default=())  # the questions whose grading failed, and why

    def measure(self, metric: str, of: Iterable[Grade] | None = None) -> Interval | None:
        """Return the mean of a metric over the questions that have it, if any."""
        grades = self.grades if of is None else of
        pairs = [(value, g.topic) for g in grades if (value := g.read_metric(metric)) is not None]
        if not pairs:
            return None
        values, topics = zip(*pairs, strict=True)
        return mean_interval(values, topics, proportion=metric in PROPORTIONS, within=RANGES.get(metric, ANY))

    def metrics(self) -> dict[str, Any]:
        """Return every metric's estimate, as `ragc eval --json` prints it."""
        found = {name: m.as_dict() for name in ("utility", *METRICS) if (m := self.measure(name))}
        for name, percentile in (("seconds_p50", 50), ("seconds_p95", 95)):
            if self.seconds:
                at = float(np.percentile(self.seconds, percentile))
                found[name] = Interval(at, *ANY, len(self.seconds)).as_dict()
        return found

    def rows(self) -> list[dict[str, Any]]:
        """Return the lines of `scores.jsonl`, the seconds among the metrics."""
        found = [g.as_row() for g in self.grades]
        for row, seconds in zip(found, self.seconds, strict=False):
            row["metrics"]["seconds"] = round(seconds, 6)
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
    sides: Sequence[Mapping[str, Any]], lead: int = -1, digits: int = 2, timed: bool = True
) -> Iterator[tuple[str, list[str], int]]:
    """Yield each metric that the leading side has, every side's estimate, and the leading side's questions.

    Unless `timed`, seconds are left out, as they are of answers of the record.
    An estimate is `91.2 [88.0, 94.1]` in percent for a share, else has `digits`: `1.25 [1.10, 1.40]`; a dash for none.
    """
    for name, leading in sides[lead].items():
        if not timed and name.startswith("seconds"):
            continue
        scale, form = (100, ".1f") if name in PROPORTIONS else (1, f".{digits}f")
        cells = []
        for measure in (figures.get(name) for figures in sides):
            ends = [end and scale * end for end in measure["ci"]] if measure else []
            cells.append(format_estimate(scale * measure["value"], ends, form) if measure else "-")
        yield name, cells, leading["n"]


def evaluate(
    program: AgenticRAG,
    questions: Sequence[LabelledQuestion],
    weights: UtilitySettings | None = None,
    progress: Advance = lambda done, of: None,
) -> Evaluation:
    """Ask every question and grade the answers."""
    weights = weights or UtilitySettings()
    arm = Grader(program, weights), lambda asked: [program(question) for question in asked]
    return evaluate_side_by_side([arm], questions, progress, together=1)[0]


Grading = Callable[[Any, Any], Grade]
Asking = Callable[[Sequence[str]], Sequence[Any]]


def evaluate_side_by_side(
    arms: Sequence[tuple[Grading, Asking]],
    questions: Sequence[Question],
    progress: Advance = lambda done, of: None,
    together: int = TOGETHER,
) -> list[Evaluation]:
    """Ask several programs the same questions; return one evaluation each.

    Each arm is a grader and what answers `together` questions at a time. The questions are asked in an order that
    speaks for all topics wherever a cap cuts it. A question whose grading raises is left out for all and named in
    `failed`; when a cap is reached, so are those not answered by all. No model's reply is remembered from one program
    for the next: each pays for its own. Raises `DataError` when there is no question.
    """
    if not questions:
        raise DataError("There is no labelled question to evaluate on.", "Choose another --split, or label some.")
    graded: dict[int, list[tuple[Grade, float]]] = {}
    failed: dict[int, str] = {}
    order = order_stratified(questions)
    with suppress(BudgetStop):
        for first in range(0, len(order), together):
            places = order[first : first + together]
            answered = [ask([questions[n].question for n in places]) for _, ask in arms]
            for n, *answers in zip(places, *answered, strict=True):
                question = questions[n]
                try:
                    graded[n] = [(g(question, a), a.usage.seconds) for (g, _), a in zip(arms, answers, strict=True)]
                except Exception as error:
                    failed[n] = f"{question.id} ({type(error).__name__}: {error})"
            progress(first + len(places), len(order))
    rows = [graded[n] for n in sorted(graded)]
    broken = tuple(failed[n] for n in sorted(failed))
    return [
        Evaluation(tuple(row[arm][0] for row in rows), tuple(row[arm][1] for row in rows), broken)
        for arm in range(len(arms))
    ]


class Grader:
    """A grader of one program's answers."""

    def __init__(self, program: AgenticRAG, weights: UtilitySettings, relevancy: bool = True) -> None:
        self._weights = weights
        passages = program.runtime.library.passages()
        self._texts, self._copies = {p.id: p.text for p in passages}, name_copies(passages)
        self._embedder = program.runtime.models.embedder
        self._relevancy = relevancy
        self._cascade = program.runtime.models.doubts

    def __call__(self, question: LabelledQuestion, answer: Any) -> Grade:
        """Grade one answer."""
        similarity = self._measure_similarity if self._relevancy else None
        text_of = lambda id_: self._texts.get(id_, "")  # noqa: E731
        return grade_answer(question, answer, self._weights, text_of, similarity, self._cascade, self._copies)

    def _measure_similarity(self, question: str, answer: str) -> float:
        """Return the cosine of question and answer, which stands for relevancy."""
        a, b = self._embedder.encode([question, answer])
        return float(a @ b)
