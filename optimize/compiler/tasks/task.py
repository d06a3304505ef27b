"""A program of anybody's with its examples and metric: asked, graded, and scored setting by setting."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import dspy
import numpy as np
import orjson
from dspy.adapters.types.decision import Choice, Noul, Score

from optimize.abtest.offline import score_side_by_side
from optimize.compiler.publish import Contents
from optimize.compiler.record import compiler_digest
from optimize.compiler.runs.module_runs import Answered, CallMeter, ModuleRuns, run_example
from optimize.compiler.runs.runner import Arm
from optimize.compiler.study import Spending
from optimize.compiler.tasks.examples import Examples, Metric, check_metric, read_examples, score_prediction
from optimize.evaluation.evaluate import Evaluation, evaluate_side_by_side
from optimize.evaluation.grades import Grade
from optimize.labelled.dataset import Question, digest_questions
from optimize.labelled.split import find_previous_splits, question_digest
from optimize.registry.versions import note_test_use, read_ancestors
from program.errors import BudgetError, DataError, SettingsError
from program.knowledge.index.build import Advance
from program.knowledge.project import Project
from program.loop.policy import read_setting
from program.models.embedded.decider import LocalDecider
from program.models.language.provider import listed_price
from program.serve import factory
from program.serve.artifact import STATE
from program.serve.opening import load
from program.serve.reference import digest_of, resolve
from program.settings import NAME, Settings, artifacts_root

LONGEST = 2_000  # characters of an answer in `scores.jsonl`


@dataclass(frozen=True, slots=True)
class Task:
    """A program with its examples divided, and the metric."""

    GOOD: ClassVar[float] = 1.0  # score from which a run is worth showing
    project: Project  # its name, and the folders it works in
    base: dspy.Module  # what is compiled from
    undecided: list[str]  # predictors that the embedded decider answers
    examples: Examples
    parts: Mapping[str, Sequence[Question]]
    metric: Metric
    seed: int = 0
    origin: str = ""
    scores: dict[tuple[str, int], tuple[Answered, float]] = field(default_factory=dict)  # answers kept: ids stay theirs

    def describe_conditions(self) -> dict[str, Any]:
        """Return all that a study's trials depend on."""
        return {
            **factory.describe_module(self.base, self.undecided),
            "compiler": compiler_digest(),
            "start": digest_of(factory.export_module(self.base, [], factory.open_decider())[STATE]),
            "questions": {name: digest_questions(part) for name, part in self.parts.items()},
            "metric": getattr(self.metric, "__qualname__", repr(self.metric)),
            "seed": self.seed,
            "from": self.origin,
        }

    def replay(self, program: dspy.Module) -> ModuleRuns:
        """Return the program's runs on the examples."""
        return ModuleRuns(program, self.examples.by_inputs)

    def arm(self, program: dspy.Module, questions: Sequence[Question]) -> Arm[ModuleRuns, Question]:
        """Return a program and questions as a search takes them."""
        return Arm(self.replay(program), questions)

    def grade(self, question: Question, answer: Answered) -> Grade:
        """Grade an answer by the metric: correct at 1, wrong at 0, as what raised is."""
        score, _, _ = self.score(question, answer)
        said = answer.error or orjson.dumps(plain_outputs(answer.prediction), default=str).decode()
        return Grade(
            id=question.id,
            topic=question.cluster,
            tags=question.tags,
            question=question.question,
            outcome="",
            correct=int(score >= self.GOOD),
            partial=int(0 < score < self.GOOD),
            wrong=int(score <= 0),
            utility=score,
            answer=said[:LONGEST],
            path=(),
            metrics={"model_calls": float(answer.usage.calls), "usd": answer.usage.usd},
        )

    def score(self, question: Question, answer: Answered) -> tuple[float, float, str]:
        """Return the metric's score, NaN for routing, and what the program raised."""
        if answer.error:
            return 0.0, np.nan, answer.error
        key = (question.id, id(answer))
        if key not in self.scores:
            example = self.examples.known[question.id]
            self.scores[key] = answer, score_prediction(self.metric, example, answer.prediction)[0]
        return self.scores[key][1], np.nan, ""

    def contents(self, program: dspy.Module, embedded: LocalDecider) -> Contents:
        """Return what a version holds of a program."""
        files = factory.export_module(program, self.undecided, embedded)
        return Contents(files, factory.describe_module(program, self.undecided), read_setting(program))


def evaluate_program(
    task: Task, program: dspy.Module, questions: Sequence[Question], progress: Advance = lambda done, of: None
) -> Evaluation:
    """Ask a program and grade the answers."""
    replay = task.replay(program.deepcopy())
    return evaluate_side_by_side([(task.grade, replay.answer_all)], questions, progress)[0]


def open_task(
    project: Project, make: factory.Factory, data: Path | str, metric: Metric, seed: int = 0, origin: str = ""
) -> Task:
    """Return the program made, with an origin's state, and its examples divided."""
    ancestors = read_ancestors(origin, project.artifacts) if origin else []
    base = factory.restore_module(ancestors[0], make) if ancestors else factory.make_program(make)
    for _, predictor in base.named_predictors():
        predictor.lm = None if isinstance(predictor.lm, LocalDecider) else predictor.lm
    undecided = factory.find_undecided(base)
    examples = read_examples(Path(data), base)
    parts = examples.split(find_previous_splits(ancestors))
    return Task(project, base, undecided, examples, parts, metric, seed, origin)


@contextmanager
def asking(task: Task, spending: Spending) -> Iterator[LocalDecider]:
    """Have the embedded decider answer what has no model, and count the rest.

    Raises `BudgetError` when money is capped and a model's price is not known.
    """
    models = {one.lm or dspy.settings.lm for _, one in task.base.named_predictors()} - {None}
    if spending.money and (unknown := [m.model for m in models if listed_price(m.model, 1, 1) is None]):
        what = f"What {unknown[0]} costs is not known, so that --max-usd could not stop it."
        raise BudgetError(what, "Cap --max-calls instead.")
    embedded = factory.open_decider()
    embedded.embedder.remember_in(task.project.private)
    callbacks = [*(dspy.settings.callbacks or []), CallMeter(spending)]
    with dspy.context(lm=dspy.settings.lm or embedded, callbacks=callbacks):
        yield embedded


def plain_outputs(prediction: Any) -> dict[str, Any]:
    """Return a prediction's outputs, decisions as values; else it is one output."""
    decided = Choice | Noul | Score
    named = dict(prediction) if isinstance(prediction, dspy.Example | Mapping) else {"prediction": prediction}
    return {name: value.value if isinstance(value, decided) else value for name, value in named.items()}


def open_version(
    ref: str, make: factory.Factory, data: Path | str, metric: Metric, artifacts: Path | str | None = None
) -> tuple[Task, dspy.Module]:
    """Return a version's program, and the task of measuring it on examples."""
    program = load(ref, make, artifacts=artifacts)
    name = resolve(ref, artifacts).name
    return Task(open_project(name, artifacts), program, [], read_examples(Path(data), program), {}, metric), program


def evaluate_version(
    ref: str,
    make: factory.Factory,
    data: Path,
    metric: Metric,
    split: str = "test",
    artifacts: Path | str | None = None,
    progress: Advance = lambda done, of: None,
) -> tuple[Evaluation, int]:
    """Measure a version on a split; return also how often that was looked at."""
    task, program = open_version(ref, make, data, metric, artifacts)
    before = find_previous_splits(read_ancestors(ref, artifacts))
    asked = [q for q in task.examples.questions if before.get(question_digest(q.question)) == split]
    asked = task.examples.unlearnt(before) if split == "test" else asked
    project = task.project
    looks = note_test_use(project.artifacts, project.name, "eval", [question.question for question in asked])
    with asking(task, Spending()):
        return evaluate_program(task, program, asked, progress), looks


def compare_anew(
    refs: Sequence[str],
    make: factory.Factory,
    data: Path,
    metric: Metric,
    repeats: int = 1,
    artifacts: Path | str | None = None,
    progress: Advance = lambda done, of: None,
) -> list[list[dict[str, Any]]]:
    """Return the rows of each version of a program on every example of a file."""
    opened = [open_version(ref, make, data, metric, artifacts) for ref in refs]
    task = opened[0][0]
    with asking(task, Spending()):
        arms = [
            (task.grade, lambda text, of=program: run_example(of, task.examples.by_inputs[text]))
            for _, program in opened
        ]
        return score_side_by_side(arms, task.examples.questions, repeats, progress)


def open_project(name: str, artifacts: Path | str | None) -> Project:
    """Return the working folder for a program's studies. Raises `SettingsError`."""
    if not re.fullmatch(NAME, name):
        what = f"{name!r} is no name for versions."
        raise SettingsError(what, "Write small letters, digits and -._ between them, 63 at most.")
    return Project(Path.cwd(), Settings(name=name, knowledge={}, artifacts=str(artifacts_root(artifacts))))


def check_program(task: Task) -> None:
    """Raise `DataError` when the program or the metric fails on the first example."""
    first = task.parts["train"][0]
    answer = task.replay(task.base.deepcopy())(first.question)
    if answer.error:
        raise DataError(
            f"The program failed on the example {first.id}: {answer.error}.", "Mend the program, or the example."
        )
    check_metric(task.metric, task.examples.known[first.id], answer.prediction)
