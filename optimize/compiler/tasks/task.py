"""What a compile works on: a program, the questions that it is tried on, and what an answer is worth.

`project.open_project_task` and `module.open_module_task` make one; the compile itself is the same for both.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import dspy

from ragc.errors import IntegrityError, RagcError, VersionError
from ragc.knowledge.project import Project
from ragc.loop.policy import Dimension, Risk, Setting, find_dimensions
from ragc.optimize.compiler.candidates.offers import CandidateSets
from ragc.optimize.compiler.choice import OperatingPoints
from ragc.optimize.compiler.record import compiler_digest
from ragc.optimize.compiler.runs.runner import Runner
from ragc.optimize.compiler.scoring import Scoring
from ragc.optimize.compiler.session import Session
from ragc.optimize.compiler.spending import Spending
from ragc.optimize.evaluation.evaluate import Grading
from ragc.optimize.evaluation.grades import Grade
from ragc.optimize.labelled.dataset import digest_questions
from ragc.optimize.labelled.split import sample_stratified
from ragc.serve.reference import find_current

LOG = logging.getLogger(__name__)
SEARCHED = 240  # questions of train on which settings are tried at most; a compile's time grows with them


@dataclass(frozen=True, slots=True)
class Contents:
    """What a version holds of a program: its files, the manifest's tables about it, and the setting it has."""

    files: Mapping[str, bytes]
    tables: Mapping[str, Any]
    setting: Setting


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A program with its questions divided."""

    has_points: ClassVar[bool] = False  # true where a version can be loaded at several operating points
    prompts: ClassVar[int] = 2  # 1 where what the labels teach, unless a way adds to it, changes no prompt

    project: Project  # name of the versions, and the folders of the record and the registry
    parts: Mapping[str, Sequence[Any]]  # the questions of train, dev and test
    base: Any  # the program that is compiled
    seed: int = 0
    origin: str = ""  # the version compiled from, or empty
    against: str = ""  # the version compared with, where it is not compiled from one
    doubts: Sequence[str] = ()  # shortcuts in the labels
    price: float = 0.0  # utility that a model call costs
    risk: float | None = None  # the share of wrong among the answers that is to be proved as the most

    @property
    def searched(self) -> Sequence[Any]:
        """The questions of train on which settings are tried."""
        return sample_stratified(self.parts["train"], SEARCHED)

    @property
    @abstractmethod
    def controls(self) -> Sequence[dspy.Module]:
        """The programs tested beside the compiled one: plain RAG if any, and last what is compiled from."""

    @property
    def search_grader(self) -> Grading:
        """What grades an answer in the search."""
        return self.grader(self.base)

    @abstractmethod
    def grader(self, program: Any) -> Grading:
        """Return what grades a program's answers in the test."""

    @abstractmethod
    def runner(self, session: Session, program: Any) -> Runner:
        """Return the runs of a program."""

    def prove_risks(self, session: Session, program: Any, points: OperatingPoints, train: Scoring) -> dict[str, Risk]:
        """Fit the confidence to train, and return the stated risk of each point.

        The program refuses by `balanced`'s.
        """
        return {}

    @abstractmethod
    def offer(self, session: Session, arms: Sequence[Any]) -> CandidateSets:
        """Return what each predictor may be given, and give it to the arms' programs."""

    @abstractmethod
    def contents(self, program: Any) -> Contents:
        """Return what a version holds of a program."""

    @abstractmethod
    def describe_program(self) -> dict[str, Any]:
        """Return what a compile depends on beside code, questions, seed and origin."""

    @abstractmethod
    def describe_metric(self) -> dict[str, str]:
        """Return the metric's `name`, and the `sha256` of what it rests on."""

    def describe_conditions(self) -> dict[str, Any]:
        """Return all that a compile depends on, but its caps."""
        questions = {name: digest_questions(part) for name, part in self.parts.items()}
        own = {"compiler": compiler_digest(), "questions": questions, "seed": self.seed, "from": self.origin}
        return {**self.describe_program(), **own}

    def asking(self, spending: Spending) -> AbstractContextManager[None]:
        """Return the context in which models are asked.

        Raises `BudgetError` for a cap that could not hold.
        """
        return nullcontext()

    @abstractmethod
    def prepare(self, session: Session, trials: int) -> Task:
        """Return the task ready to be searched by so many trials, measured once."""

    def compared_with(self, ref: str) -> Self:
        """Return the task compared with a version, unless it is compiled from one."""
        try:
            return self.put_beside(ref) if ref and not self.origin else self
        except RagcError as error:  # of the program as it was before its code changed, for one
            LOG.warning("%s is in use and cannot be opened, so that nothing is compared with it: %s", ref, error)
            return self

    @abstractmethod
    def put_beside(self, ref: str) -> Self:
        """Return the task beside a version."""

    def list_ways(self, session: Session, candidates: CandidateSets) -> dict[str, Setting]:
        """Return by name how each whole way differs from what the labels teach."""
        return candidates.list_ways()

    def list_parameters(self, program: dspy.Module) -> list[Dimension]:
        """Return the parameters that are searched."""
        return find_dimensions(program)

    def grade_learned(
        self, session: Session, program: Any, points: OperatingPoints, train: Scoring, dev: Scoring
    ) -> Sequence[Grade]:
        """Return the graded answers to train and dev, if they are of use."""
        return ()

    def complete(
        self, session: Session, program: Any, points: OperatingPoints, learned: Sequence[Grade]
    ) -> dspy.Module:
        """Return the program that is sealed."""
        return program


def find_in_use(project: Project) -> str:
    """Return the version that is in use, or empty."""
    with suppress(VersionError, IntegrityError):
        found = find_current(project.artifacts, project.name)
        return str(found) if found else ""
    return ""
