"""A program on labelled questions: every metric with its interval, and plain RAG beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from optimize.evaluation.metrics import METRICS, PROPORTIONS, Grade, grade, value
from optimize.evaluation.stats import ANY, mean_interval
from optimize.labelled.dataset import LabelledQuestion
from program.answer import Answer
from program.errors import DataError
from program.knowledge.index.build import Advance
from program.loop.rag import AgenticRAG
from program.settings import UtilitySettings


@dataclass(frozen=True, slots=True)
class Measure:
    """A mean with its 95 % interval, clustered by topic, and the number of questions it rests on."""

    value: float
    low: float
    high: float
    n: int

    def as_dict(self) -> dict[str, Any]:
        return {"value": round(self.value, 6), "ci": [round(self.low, 6), round(self.high, 6)], "n": self.n}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Graded answers and how long each took, in seconds; `best` is the most utility that an answer can have."""

    grades: tuple[Grade, ...]
    seconds: tuple[float, ...] = ()
    failed: tuple[str, ...] = field(default=())
    best: float = math.inf

    def measure(self, metric: str, of: Iterable[Grade] | None = None) -> Measure | None:
        """The mean of a metric over the questions whose labels tell it, or None when none do."""
        pairs = [(v, g.topic) for g in (self.grades if of is None else of) if (v := value(g, metric)) is not None]
        if not pairs:
            return None
        values, topics = zip(*pairs, strict=True)
        within = (-math.inf, self.best) if metric == "utility" else ANY
        interval = mean_interval(values, topics, proportion=metric in PROPORTIONS, within=within)
        return Measure(interval.mean, interval.low, interval.high, len(values))

    def metrics(self) -> dict[str, Any]:
        """Every metric's measure, as `ragc eval --json` prints it."""
        found = {name: m.as_dict() for name in ("utility", *METRICS) if (m := self.measure(name))}
        if self.seconds:
            for name, percentile in (("seconds_p50", 50), ("seconds_p95", 95)):
                at = float(np.percentile(self.seconds, percentile))
                found[name] = {"value": round(at, 6), "ci": [round(at, 6)] * 2, "n": len(self.seconds)}
        return found

    def rows(self) -> list[dict[str, Any]]:
        """The lines of `scores.jsonl`: each graded answer, with the seconds it took as one of its metrics."""
        found = [g.row() for g in self.grades]
        for row, seconds in zip(found, self.seconds, strict=False):
            row["metrics"]["seconds"] = round(seconds, 6)
        return found

    def by_tag(self) -> dict[str, dict[str, Any]]:
        """The main metrics for the questions of each tag; small numbers, not for proof."""
        tags = sorted({tag for g in self.grades for tag in g.tags})
        names = ("correct", "wrong", "outcome_accuracy", "routing_accuracy", "retrieval_recall")
        table = {}
        for tag in tags:
            of = [g for g in self.grades if tag in g.tags]
            table[tag] = {"n": len(of), **{n: m.value for n in names if (m := self.measure(n, of))}}
        return table


def evaluate(
    program: AgenticRAG,
    questions: Sequence[LabelledQuestion],
    weights: UtilitySettings | None = None,
    progress: Advance = lambda done, of: None,
) -> Evaluation:
    """Asks every question and grades the answers. Raises `DataError` when there is no question."""
    return side_by_side([Asked(program, program)], questions, weights, progress)[0]


@dataclass(frozen=True, slots=True)
class Asked:
    """A program, and what answers questions as it does: itself, or a replay of it."""

    program: AgenticRAG
    ask: Callable[[str], Answer]


def side_by_side(
    programs: Sequence[Asked],
    questions: Sequence[LabelledQuestion],
    weights: UtilitySettings | None = None,
    progress: Advance = lambda done, of: None,
) -> list[Evaluation]:
    """Several programs on the same questions, one evaluation each.

    A question whose grading raises is left out for all and named in `failed`; when a cap is reached, so are the
    questions not answered by all. No model's reply is remembered from one program for the next: each pays for its
    own.
    Raises `DataError` when there is no question.
    """
    if not questions:
        raise DataError("There is no labelled question to evaluate on.", "Choose another --split, or label some.")
    weights = weights or UtilitySettings()
    graders = [Grader(asked.program, weights) for asked in programs]
    rows = []
    for done, question in enumerate(questions, 1):
        rows.append(_row(programs, graders, question))
        progress(done, len(questions))
    columns = list(zip(*(row for row in rows if not isinstance(row, str)), strict=True)) or [() for _ in programs]
    failed = tuple(row for row in rows if isinstance(row, str))
    return [
        Evaluation(tuple(Grade.of(g) for g, _ in column), tuple(s for _, s in column), failed, weights.best)
        for column in columns
    ]


def _row(programs: Sequence[Asked], graders: Sequence[Grader], question: LabelledQuestion) -> str | list[Any]:
    """What each program's answer to a question is graded and how many seconds it took; or why it was not graded."""
    answers = [asked.ask(question.question) for asked in programs]
    try:
        graded = [grader(question, answer) for grader, answer in zip(graders, answers, strict=True)]
    except Exception as error:
        return f"{question.id} ({type(error).__name__}: {error})"
    return [[asdict(g), answer.usage.seconds] for g, answer in zip(graded, answers, strict=True)]


class Grader:
    """Grades answers of one program: knows its passages and its embedder."""

    def __init__(self, program: AgenticRAG, weights: UtilitySettings, relevancy: bool = True) -> None:
        self._weights = weights
        self._texts = {p.id: p.text for p in program.runtime.library.passages()}
        self._embedder = program.runtime.models.embedder
        self._relevancy = relevancy
        self._cascade = program.runtime.models.doubts

    def __call__(self, question: LabelledQuestion, answer: Any) -> Grade:
        similarity = self._similarity if self._relevancy else None
        return grade(question, answer, self._weights, lambda id_: self._texts.get(id_, ""), similarity, self._cascade)

    def _similarity(self, question: str, answer: str) -> float:
        """Cosine of question and answer, a stand-in for a judge's opinion of relevancy."""
        a, b = self._embedder.encode([question, answer])
        return float(a @ b)
