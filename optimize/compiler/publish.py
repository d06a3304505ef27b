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

from ragc.knowledge.project import Project
from ragc.loop.policy import Risk, read_setting
from ragc.optimize.compiler.candidates.offers import CandidateSets
from ragc.optimize.compiler.choice import OperatingPoints
from ragc.optimize.compiler.record import Record
from ragc.optimize.compiler.scoring import Scoring
from ragc.optimize.compiler.session import Session
from ragc.optimize.compiler.spending import Spending
from ragc.optimize.compiler.tasks.examples import Metric
from ragc.optimize.compiler.tasks.module import find_production, open_folder, open_module_task
from ragc.optimize.compiler.tasks.task import Contents, Task
from ragc.optimize.evaluation.evaluate import Evaluation
from ragc.optimize.evaluation.grades import Grade
from ragc.optimize.evaluation.outcome import BALANCED, Compiled
from ragc.optimize.evaluation.stats import PairedResult, paired_test
from ragc.optimize.labelled.dataset import Question, digest_questions
from ragc.optimize.labelled.split import question_digest
from ragc.optimize.registry.versions import hold_lock, note_test_use, publish_version, read_manifests
from ragc.optimize.report.estimate import SEALING
from ragc.optimize.report.page import render_compile_page
from ragc.serve.artifact import STATE
from ragc.serve.factory import Factory
from ragc.serve.reference import resolve

SCORES, REPORT = "scores.jsonl", "report.html"
PACKAGES = ("dspy", "optuna", "onnxruntime", "torch", "sentence-transformers", "qdrant-client", "scikit-learn", "numpy")
"""Packages whose versions a manifest names."""


@dataclass(frozen=True, slots=True)
class Found:
    """The compiled program at the setting of `balanced`; `train` and `dev` unless another optimizer made it.

    `learned` are its graded answers to the questions of both, each by a program that was shown nothing of its topic.
    """

    task: Task
    final: dspy.Module
    points: OperatingPoints
    candidates: CandidateSets | None = None
    train: Scoring | None = None
    dev: Scoring | None = None
    risks: Mapping[str, Risk] = field(default_factory=dict)
    learned: Sequence[Grade] = ()
    untried: Sequence[str] = ()  # ways for which a cap left no room
    lacks: int = 0  # calls that they would take, about


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
        files = {**contents.files, SCORES: dump_scores(scores)}
        if report:
            files[REPORT] = report
        return publish_version(self.project.name, fields, files, self.project.artifacts)

    def describe_labels(self) -> str:
        """Return in words how many questions there are, in all and by split."""
        questions = [question for part in self.parts.values() for question in part]
        splits = ", ".join(f"{len(part)} of {name}" for name, part in self.parts.items())
        return f"{len(questions)} questions of {len({q.cluster for q in questions})} topics ({splits})"

    def note_look(self, identity: str) -> int:
        """Note that the compile of a digest reads its test; return which look that is."""
        texts = [question.conversation for question in self.parts["test"]]
        return note_test_use(self.project.artifacts, self.project.name, "compile", texts, identity)

    def find_sealed(self, identity: str, files: Mapping[str, bytes]) -> str:
        """Return the version that the same compile sealed with the same bytes, or empty."""
        digests = {name: f"sha256:{hashlib.sha256(content).hexdigest()}" for name, content in files.items()}
        for one in reversed(read_manifests(self.project.artifacts, self.project.name)):
            same = all(one.files.get(name, (0, ""))[1] == digest for name, digest in digests.items())
            if same and one.section("optimizer").get("compile") == identity:
                return one.label
        return ""

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


def seal(session: Session, found: Found, tested: Tested, optimizer: str, identity: str) -> Compiled:
    """Publish the program with its scores and, where it was searched, its page.

    `identity` is the digest of what was compiled: the same compile that ends in the same bytes is the version that it
    sealed before.
    """
    session.begin_stage(SEALING)
    task, spending, points = found.task, session.spending, found.points
    publisher, before, after = Publisher(task.project, task.parts), tested.before, tested.after
    gain = _compare_held_out(found, tested)
    program = task.complete(session, found.final, points, found.learned)
    parent = task.origin or task.against
    if not parent:
        parent = publisher.publish_uncompiled(task.contents(task.controls[-1]), before, tested.plain)
    done = Compiled(
        name=task.project.name,
        began_as_parent=not task.against,
        reference="",
        optimizer=optimizer,
        parent=parent,
        gain=gain,
        over_plain=compare_grades(tested.plain.grades, after.grades) if tested.plain else None,
        plain=tested.plain,
        before=before,
        after=after,
        calls=spending.calls,
        reused=session.record.reused,
        usd=spending.usd,
        seconds=spending.seconds,
        looks=tested.looks,
        labelled=publisher.describe_labels(),
        doubts=task.doubts,
        stopped_by=spending.tripped,
        stood_in=session.record.stand_ins,
        broken=dict.fromkeys(after.failed, "in the test"),
        stages=[stage.describe() for stage in points.stages],
        stage=points.chosen,
        points={name: _describe_point(points, name) for name in points.points if points.stages},
        chosen=points.points[BALANCED],
        risks=found.risks,
        stage_seconds=session.progress.seconds,
        learned=found.learned,
        untried=found.untried,
        lacks=found.lacks,
    )
    page = b""
    if found.candidates and found.train and found.dev:
        done = _describe_search(done, task, found.candidates, found.train, found.dev)
        page = render_compile_page(done)
    contents = task.contents(program)
    origin = done.describe_origin(identity, task.seed)
    known = publisher.find_sealed(identity, contents.files)
    reference = known or publisher.publish(contents, after, points.seal(), origin, tested.plain, page)
    return replace(done, reference=reference)


def dump_scores(scores: Evaluation) -> bytes:
    """Return the lines of `scores.jsonl`."""
    return b"".join(orjson.dumps(grade, option=orjson.OPT_APPEND_NEWLINE) for grade in scores.grades)


def _compare_held_out(found: Found, tested: Tested) -> PairedResult:
    """Return the paired test of the new version's utility over its parent's on questions that nothing was learned from.

    They are those of dev and test; where dev is kept for the proof of a risk, or another optimizer saw it, of test.
    """
    before, after = ([grade.utility for grade in side.grades] for side in (tested.before, tested.after))
    topics = [grade.topic for grade in tested.before.grades]
    if found.dev is not None and not found.risks:
        pairs = zip(found.points.before, found.points.after, found.dev.questions, strict=True)
        known = [(a, b, question.cluster) for a, b, question in pairs if math.isfinite(a) and math.isfinite(b)]
        before, after = [*before, *(a for a, _, _ in known)], [*after, *(b for _, b, _ in known)]
        topics = [*topics, *(topic for _, _, topic in known)]
    if not topics:
        return PairedResult(0.0, (-math.inf, math.inf), 1.0, 0, 0, math.inf, False, 0, math.nan)
    return paired_test(before, after, topics)


def _describe_point(points: OperatingPoints, name: str) -> dict[str, float]:
    """Return `utility` and `calls` of a point on train."""
    stage = next(one for one in points.stages if one.setting == points.points[name])
    return {"utility": stage.train, "calls": stage.calls}


def _describe_search(done: Compiled, task: Task, candidates: CandidateSets, train: Scoring, dev: Scoring) -> Compiled:
    """Return a compile with what its search came to."""
    program = train.arms[0].replay.program
    return replace(
        done,
        trials=train.tried,
        replayed=all(arm.replay.replays for arm in train.arms),
        broken={**train.broken, **dev.broken, **done.broken},
        started_from=read_setting(task.base),
        given=candidates.describe_choice(task.base, done.chosen),
        meanings={one.name: one.meaning for one in task.list_parameters(program) if one.meaning},
        asked={
            "train": (len(train.questions), len(task.searched)),
            "dev": (len(task.parts["dev"] if done.risks else dev.questions), len(task.parts["dev"])),
            "test": (len(done.after.grades), len(task.parts["test"])),
        },
    )


def seal_program(
    program: dspy.Module,
    *,
    name: str,
    data: Path | str,
    metric: Metric,
    make: Factory | None = None,
    parent: str = "",
    artifacts: Path | str | None = None,
) -> str:
    """Publish a program as it is, scored on test; raises as `compile_program`.

    `make` makes the program by which the version will be loaded. `parent` is the version in production unless given.
    Raises `DataError` for a program that is not what it was once its state is all that is left of it.
    """
    learned = program.deepcopy()
    for _, part in learned.named_sub_modules():
        part._compiled = False  # else its parent's state leaves it out
        if getattr(vars(part).get("forward"), "__func__", None) is type(part).forward:
            del part.forward  # its class's own, bound as BootstrapFinetune leaves it
    project = open_folder(name, artifacts)
    task = open_module_task(project, lambda: learned, data, metric)
    parent = str(resolve(parent, project.artifacts)) if parent else find_production(project)
    with task.asking(Spending()):
        record = Record()
        task.check(record)
        contents = task.contents(learned)
        task.require_state(contents, make, record)
        publisher = Publisher(project, task.parts)
        made = {"optimizer": {"name": "sealed", "test_looks": publisher.note_look("")}, "parent": parent or None}
        scores, points = task.evaluate(learned, task.parts["test"]), OperatingPoints({BALANCED: contents.setting})
        return publisher.publish(contents, scores, points, made)
