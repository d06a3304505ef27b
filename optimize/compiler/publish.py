"""The last stage of a compile: the program and its scores sealed as the next version in the registry."""

from __future__ import annotations

import hashlib
import math
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import dspy
import orjson

from optimize.compiler.choice import OperatingPoints, Validation
from optimize.compiler.search import Search, Session
from optimize.compiler.study import Note, Spending, Study
from optimize.compiler.tasks.examples import Metric
from optimize.compiler.tasks.module import open_folder, open_module_task
from optimize.compiler.tasks.task import Contents, SearchPlan, Task
from optimize.evaluation.evaluate import Evaluation
from optimize.evaluation.grades import Grade
from optimize.evaluation.outcome import BALANCED, Compiled
from optimize.evaluation.stats import PairedResult, paired_test
from optimize.labelled.dataset import Question, digest_questions
from optimize.labelled.split import question_digest
from optimize.registry.versions import hold_lock, note_test_use, publish_version, read_manifests
from optimize.report.page import render_compile_page
from program.knowledge.project import Project
from program.loop.policy import Risk, read_setting
from program.serve.artifact import FRONTIER, STATE
from program.serve.reference import resolve

SCORES, REPORT = "scores.jsonl", "report.html"
PACKAGES = ("dspy", "optuna", "onnxruntime", "torch", "sentence-transformers", "qdrant-client", "scikit-learn", "numpy")
"""Packages whose versions a manifest names."""


@dataclass(frozen=True, slots=True)
class Found:
    """The compiled program at the setting of `balanced`, and how it was searched; not so by another optimizer."""

    task: Task
    final: dspy.Module
    points: OperatingPoints
    plan: SearchPlan | None = None
    search: Search | None = None
    validation: Validation | None = None
    risks: Mapping[str, Risk] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tested:
    """The compiled program and those it is compared with, on test."""

    plain: Evaluation | None
    before: Evaluation
    after: Evaluation
    looks: int


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes versions of one project that were scored on the same splits."""

    project: Project
    parts: Mapping[str, Sequence[Question]]

    def publish_uncompiled(self, contents: Contents, scores: Evaluation, plain: Evaluation | None = None) -> str:
        """Return the version that holds the uncompiled program, new if need be."""
        with hold_lock(self.project.artifacts, self.project.name):  # two compiles at once publish it once
            found = self._find_equal(contents, len(scores.grades))
            points = OperatingPoints({BALANCED: contents.setting})
            return found or self.publish(contents, scores, points, {"optimizer": {"name": "none"}}, plain)

    def publish(
        self,
        contents: Contents,
        scores: Evaluation,
        points: OperatingPoints,
        origin: Mapping[str, Any],
        plain: Evaluation | None = None,
        report: bytes = b"",
    ) -> str:
        """Return the reference of the new version; `origin` says how it came about."""
        fields = {
            **{"parent": None, "cost": {}, **origin, **contents.tables},
            "data": self._describe_data(),
            "points": {name: dict(point) for name, point in points.points.items()},
            "scores": {**scores.metrics(), **({"plain": plain.metrics()} if plain else {})},
            "env": {"python": platform.python_version(), **{name: _version_of(name) for name in PACKAGES}},
            "git": _describe_commit(self.project.folder),
        }
        rows = b"".join(orjson.dumps(grade, option=orjson.OPT_APPEND_NEWLINE) for grade in scores.grades)
        files = {**contents.files, SCORES: rows}
        if points.frontier:
            files[FRONTIER] = orjson.dumps(points.dump_frontier(), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
        if report:
            files[REPORT] = report
        return publish_version(self.project.name, fields, files, self.project.artifacts)

    def describe_labels(self) -> str:
        """Return in words how many questions there are, in all and by split."""
        questions = [question for part in self.parts.values() for question in part]
        splits = ", ".join(f"{len(part)} of {name}" for name, part in self.parts.items())
        return f"{len(questions)} questions of {len({q.cluster for q in questions})} topics ({splits})"

    def note_look(self, study: str) -> int:
        """Note that a study reads its test; return which look that is."""
        texts = [question.conversation for question in self.parts["test"]]
        return note_test_use(self.project.artifacts, self.project.name, "compile", texts, study)

    def find_sealed(self, study: str) -> str:
        """Return the version already sealed from a study, or empty."""
        found = [
            m
            for m in read_manifests(self.project.artifacts, self.project.name)
            if m.section("optimizer").get("study") == study
        ]
        return found[-1].label if found else ""

    def _find_equal(self, contents: Contents, scored: int) -> str:
        """Return a version with this uncompiled program, scored on as many questions of the same test, or empty."""
        state = f"sha256:{hashlib.sha256(contents.files[STATE]).hexdigest()}"
        for one in read_manifests(self.project.artifacts, self.project.name):
            if (
                one.files.get(STATE, (0, ""))[1] == state
                and one.section("scores").get("utility", {}).get("n", 0) >= scored
                and one.section("data") == self._describe_data()
                and one.section("knowledge") == contents.tables.get("knowledge", {})
            ):
                return one.label
        return ""

    def _describe_data(self) -> dict[str, Any]:
        return {
            name: {
                "n": len(part),
                "sha256": digest_questions(part),
                "questions": sorted({question_digest(question.conversation) for question in part}),
            }
            for name, part in self.parts.items()
        }


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # of an extra
        return ""


def _describe_commit(folder: Path) -> dict[str, Any]:
    """Return the commit and whether the tree differs from it; empty outside a repository."""
    try:
        commit = _ask_git(folder, "rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(_ask_git(folder, "status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return {}


def _ask_git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def compare_grades(a: Sequence[Grade], b: Sequence[Grade]) -> PairedResult:
    """Return the paired, topic-clustered test of b's utility over a's."""
    if not a:
        return PairedResult(0.0, (-math.inf, math.inf), 1.0, 0, 0, math.inf, False, 0, math.nan)
    return paired_test([g.utility for g in a], [g.utility for g in b], [g.topic for g in a])


def seal(session: Session, study: Study, found: Found, tested: Tested, optimizer: str) -> Compiled:
    """Publish the program with its scores and, where it was searched, its page."""
    session.begin_stage("sealing")
    task, spending, points = found.task, session.spending, found.points
    publisher, before, after = Publisher(task.project, task.parts), tested.before, tested.after
    gain = compare_grades(before.grades, after.grades)
    done = Compiled(
        name=task.project.name,
        reference="",
        study=study.name,
        optimizer=optimizer,
        parent=task.origin or publisher.publish_uncompiled(task.contents(task.controls[-1]), before, tested.plain),
        verdict=gain.verdict,
        gain=gain,
        over_plain=compare_grades(tested.plain.grades, after.grades) if tested.plain else None,
        plain=tested.plain,
        before=before,
        after=after,
        calls=spending.calls,
        usd=spending.usd,
        seconds=spending.seconds,
        looks=tested.looks,
        labelled=publisher.describe_labels(),
        doubts=task.doubts,
        stopped_by=spending.tripped,
        stood_in=session.record.stand_ins,
        survived=list(points.survived),
        stages=list(points.stages),
        broken=dict.fromkeys(after.failed, "in the test"),
        points={name: {"utility": one.utility, "calls": one.calls} for name, one in points.named.items()},
        frontier=points.seal().dump_frontier(),
        chosen=points.points[BALANCED],
        risks=found.risks,
        stage_seconds=session.live.seconds,
    )
    page = b""
    if found.plan and found.search and found.validation:
        done = _describe_search(done, study, task, found.plan, found.search, found.validation)
        page = render_compile_page(done)
    contents, origin = (
        task.contents(task.complete(session, found.final, points)),
        done.describe_origin(study.key, task.seed),
    )
    sealed = contents, after, points.seal(), origin, tested.plain, page
    reference = publisher.find_sealed(study.key) or publisher.publish(*sealed)
    study.note(Note.FINISHED, reference)
    return replace(done, reference=reference)


def _describe_search(
    done: Compiled, study: Study, task: Task, plan: SearchPlan, search: Search, validation: Validation
) -> Compiled:
    """Return a compile with what its search came to."""
    trials = len(search.trials())
    return replace(
        done,
        trials=trials,
        replayed=all(arm.replay.replays for arm in plan.arms),
        broken={**search.scoring.broken, **validation.dev.broken, **done.broken},
        started_from=search.firsts[0][1],
        given=plan.candidates.describe_choice(task.base, done.chosen),
        meanings={one.name: one.meaning for one in search.space if one.meaning},
        asked={
            "settings": (trials, max(trials, study.notes[Note.TRIALS] + len(search.firsts))),
            "train": (len(search.scoring.questions), len(task.searched)),
            "dev": (
                len(task.parts["dev"] if task.risk is not None else validation.dev.questions),
                len(task.parts["dev"]),
            ),
            "test": (len(done.after.grades), len(task.parts["test"])),
        },
    )


def seal_program(
    program: dspy.Module,
    *,
    name: str,
    data: Path | str,
    metric: Metric,
    parent: str = "",
    artifacts: Path | str | None = None,
) -> str:
    """Publish a program as it is, scored on test; raises as `compile_program`."""
    learned = program.deepcopy()
    for _, part in learned.named_sub_modules():
        part._compiled = False  # else its parent's state leaves it out
    project = open_folder(name, artifacts)
    task = open_module_task(project, lambda: learned, data, metric)
    with task.asking(Spending()):
        task.check()
        publisher = Publisher(project, task.parts)
        made: dict[str, Any] = {"optimizer": {"name": "sealed", "test_looks": publisher.note_look("")}}
        made |= {"parent": str(resolve(parent, project.artifacts))} if parent else {}
        scores, points = task.evaluate(learned, task.parts["test"]), OperatingPoints({BALANCED: read_setting(learned)})
        return publisher.publish(task.contents(learned), scores, points, made)
