"""What a compile works on: a program, the questions that it is tried on, and what an answer is worth.

`project.open_project_task` and `module.open_module_task` make one; the compile itself is the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import dspy

from optimize.compiler.candidates.labels import Calibration
from optimize.compiler.candidates.screening import CandidateSets
from optimize.compiler.choice import OperatingPoints
from optimize.compiler.runs.runner import AnyArm, Runner
from optimize.compiler.scoring import GradeAnswer, Scoring, Sweeps
from optimize.compiler.search import Session
from optimize.compiler.study import Spending
from optimize.evaluation.evaluate import Grading
from optimize.labelled.dataset import Question
from program.knowledge.project import Project
from program.loop.policy import Dimension, Setting


@dataclass(frozen=True, slots=True)
class Contents:
    """What a version holds of a program: its files, the manifest's tables about it, and the setting it has."""

    files: Mapping[str, bytes]
    tables: Mapping[str, Any]
    setting: Setting


class Task(Protocol):
    """A program with its questions divided."""

    @property
    def project(self) -> Project:
        """Name of the versions, and the folders of the studies and the registry."""

    @property
    def parts(self) -> Mapping[str, Sequence[Question]]:
        """Train, dev and test."""

    @property
    def searched(self) -> Sequence[Question]:
        """The questions of train on which settings are tried."""

    @property
    def seed(self) -> int: ...

    @property
    def origin(self) -> str:
        """The version compiled from, or empty."""

    @property
    def base(self) -> dspy.Module:
        """The program that is compiled."""

    @property
    def controls(self) -> Sequence[dspy.Module]:
        """The programs tested beside the compiled one: plain RAG if any, and last what is compiled from."""

    @property
    def doubts(self) -> Sequence[str]:
        """What the labels may teach instead, a paragraph each."""

    @property
    def price(self) -> float:
        """Utility that a model call costs."""

    @property
    def usual_trials(self) -> int:
        """Settings proposed where no number is asked for, and train has as many questions."""

    @property
    def has_points(self) -> bool:
        """True where a version can be loaded at several operating points."""

    @property
    def score(self) -> GradeAnswer:
        """What gives the utility of an answer in the search."""

    def grader(self, program: dspy.Module) -> Grading:
        """Return what grades a program's answers in the test."""

    def describe_conditions(self) -> dict[str, Any]:
        """Return all that a study's trials depend on."""

    def sweep(
        self, scoring: Scoring, space: Sequence[Dimension], start: Setting, progress: Callable[[int, int], None]
    ) -> Sweeps:
        """Return the start with its parameters fitted."""

    def sweep_start(self, plan: SearchPlan) -> Setting | None:
        """Return the setting from which parameters are fitted, None for the best."""

    def asking(self, spending: Spending) -> AbstractContextManager[None]:
        """Return the context in which models are asked.

        Raises `BudgetError` for a cap that could not hold.
        """

    def prepare(self, session: Session, trials: int) -> Task:
        """Return the task ready to be searched, what so many trials take tried and measured once."""

    def runner(self, session: Session, program: dspy.Module) -> Runner:
        """Return the runs of a program."""

    def offer(self, session: Session, arms: Sequence[Any]) -> CandidateSets:
        """Return what each predictor may be given, and give it to the arms' programs."""

    def starts(self, arms: Sequence[Any], begun: Setting) -> list[Setting]:
        """Return settings to try first, beside "as it is" and what it begins with."""

    def list_parameters(self, program: dspy.Module) -> list[Dimension]:
        """Return the parameters that are searched."""

    def complete(self, session: Session, program: dspy.Module, points: OperatingPoints) -> dspy.Module:
        """Return the program that is sealed."""

    def calibrate(self, session: Session, arms: Sequence[Any], setting: Setting) -> list[Calibration]:
        """Return the decisions on labelled cases."""

    def contents(self, program: dspy.Module) -> Contents:
        """Return what a version holds of a program."""


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """What a study searches: candidates, the questions settings are tried on, and the settings to begin with."""

    candidates: CandidateSets
    arms: Sequence[AnyArm]
    firsts: Sequence[Setting]  # as it is, as it begins, then those of the task
