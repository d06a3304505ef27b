"""The last stage of a compile: the program and its scores sealed as the next version in the registry."""

from __future__ import annotations

import hashlib
import math
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import dspy
import orjson

from ragc.knowledge.project import Project
from ragc.loop.policy import Risk, is_candidate, read_setting
from ragc.optimize.compiler.candidates.offers import CandidateSets
from ragc.optimize.compiler.choice import OperatingPoints
from ragc.optimize.compiler.record import Record
from ragc.optimize.compiler.scoring import Scoring
from ragc.optimize.compiler.session import Session
from ragc.optimize.compiler.spending import Spending
from ragc.optimize.compiler.tasks.examples import Metric
from ragc.optimize.compiler.tasks.module import open_folder, open_module_task
from ragc.optimize.compiler.tasks.task import Contents, Task, find_in_use
from ragc.optimize.evaluation.comparison import SCORES
from ragc.optimize.evaluation.evaluate import Evaluation
from ragc.optimize.evaluation.grades import Grade
from ragc.optimize.evaluation.outcome import BALANCED, Compiled
from ragc.optimize.evaluation.stats import PairedResult, paired_test
from ragc.optimize.labelled.dataset import digest_questions
from ragc.optimize.labelled.units import question_digest
from ragc.optimize.registry.versions import hold_lock, note_test_use, publish_version, read_manifests
from ragc.optimize.report.estimate import SEALING
from ragc.optimize.report.page import render_compile_page
from ragc.serve.artifact import STATE
from ragc.serve.factory import Factory
from ragc.serve.reference import Manifest, resolve

REPORT = "report.html"
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


def publish(
    task: Task,
    contents: Contents,
    scores: Evaluation,
    points: OperatingPoints,
    origin: Mapping[str, Any],
    plain: Evaluation | None = None,
    page: bytes = b"",
) -> str:
    """Return the reference of the new version; `origin` says how it came about."""
    project = task.project
    fields = {
        **{"parent": None, "cost": {}, **origin, **contents.tables},
        "data": _describe_data(task),
        "points": {
            name: {key: value for key, value in point.items() if not is_candidate(key)}
            for name, point in points.points.items()
        },
        "scores": {**scores.metrics(), **({"plain": plain.metrics()} if plain else {})},
        "env": {"python": platform.python_version(), **{name: _version_of(name) for name in PACKAGES}},
        "git": _describe_commit(project.folder),
    }
    rows = b"".join(orjson.dumps(grade, option=orjson.OPT_APPEND_NEWLINE) for grade in scores.grades)
    files = {**contents.files, SCORES: rows, **({REPORT: page} if page else {})}
    return publish_version(project.name, fields, files, project.artifacts)


def publish_uncompiled(task: Task, scores: Evaluation, plain: Evaluation | None) -> str:
    """Return the version that holds the uncompiled program, new if need be.

    One that is there holds the same program over the same knowledge, scored on as many questions of the same test.
    """
    contents, project = task.contents(task.controls[-1]), task.project
    with hold_lock(project.artifacts, project.name):  # two compiles at once publish it once
        for one in _list_holding({STATE: contents.files[STATE]}, project):
            if (
                one.section("scores").get("utility", {}).get("n", 0) >= len(scores.grades)
                and one.section("data") == _describe_data(task)
                and one.section("knowledge") == contents.tables.get("knowledge", {})
            ):
                return one.label
        points = OperatingPoints({BALANCED: contents.setting})
        return publish(task, contents, scores, points, {"optimizer": {"name": "none"}}, plain)


def find_sealed(project: Project, identity: str, files: Mapping[str, bytes] = {}) -> str:
    """Return the last version that the same compile sealed with the same bytes."""
    known = (one for one in _list_holding(files, project) if one.usable)  # another is made once models answer
    same = [one.label for one in known if one.section("optimizer").get("compile") == identity]
    return same[-1] if same else ""


def note_look(task: Task, identity: str) -> int:
    """Note that the compile of a digest reads its test; return which look that is."""
    texts = [question.conversation for question in task.parts["test"]]
    return note_test_use(task.project.artifacts, task.project.name, "compile", texts, identity)


def _list_holding(files: Mapping[str, bytes], project: Project) -> Iterator[Manifest]:
    """Yield the versions of a project that hold such files, the oldest first."""
    digests = {name: f"sha256:{hashlib.sha256(content).hexdigest()}" for name, content in files.items()}
    for one in read_manifests(project.artifacts, project.name):
        if all(one.files.get(name, (0, ""))[1] == digest for name, digest in digests.items()):
            yield one


def _describe_data(task: Task) -> dict[str, Any]:
    parts = {
        name: {
            "n": len(part),
            "sha256": digest_questions(part),
            "questions": sorted({question_digest(question.conversation) for question in part}),
        }
        for name, part in task.parts.items()
    }
    return {"metric": task.describe_metric(), **parts}


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


def seal(
    session: Session, found: Found, tested: Sequence[Evaluation], looks: int, optimizer: str, key: str
) -> Compiled:
    """Publish the program with its scores and, where it was searched, its page.

    `tested` are plain RAG, if any, what it is compared with, and the program. `key` is the digest of what was compiled:
    the same compile that ends in the same bytes is the version that it sealed before.
    """
    session.begin_stage(SEALING)
    task, spending, points, (*plain, before, after) = found.task, session.spending, found.points, tested
    program = task.complete(session, found.final, points, found.learned)
    splits = ", ".join(f"{len(part)} of {name}" for name, part in task.parts.items())
    topics = {question.cluster for part in task.parts.values() for question in part}
    parent = task.origin or task.against or publish_uncompiled(task, before, plain[0] if plain else None)
    done = Compiled(
        name=task.project.name,
        began_as_parent=not task.against,
        reference="",
        optimizer=optimizer,
        parent=parent,
        gain=_compare_held_out(found, before, after),
        over_plain=_compare(_list_utilities(plain[0], after)) if plain else None,
        plain=plain[0] if plain else None,
        before=before,
        after=after,
        calls=spending.calls,
        reused=session.record.reused,
        usd=spending.usd,
        seconds=spending.seconds,
        looks=looks,
        labelled=f"{sum(map(len, task.parts.values()))} questions of {len(topics)} topics ({splits})",
        doubts=task.doubts,
        stopped_by=spending.tripped,
        stood_in=session.record.stand_ins,
        stood_for=_share_stood_for(session.record, found, after),
        stages=[stage.describe() for stage in points.stages],
        stage=points.chosen,
        points={name: points.describe(name) for name in points.points if points.stages},
        chosen=points.points[BALANCED],
        risks=found.risks,
        stage_seconds=session.progress.seconds,
        learned=found.learned,
        untried=found.untried,
        lacks=found.lacks,
        **_describe_search(found, after),
    )
    contents, origin = task.contents(program), done.describe_origin(key, task.seed)
    if known := find_sealed(task.project, key, contents.files):
        return replace(done, reference=known, repeated=True)
    page = render_compile_page(done) if found.candidates else b""
    return replace(done, reference=publish(task, contents, after, points, origin, done.plain, page))


def _share_stood_for(record: Record, found: Found, after: Evaluation) -> float:
    """Return the share of the questions of dev and test whose answers rest on a stand-in."""
    tested = {grade.id for grade in after.grades}
    questions = [*(found.dev.questions if found.dev else ()), *(q for q in found.task.parts["test"] if q.id in tested)]
    return sum(one.asked in record.stood_for for one in questions) / max(1, len(questions))


def _list_utilities(before: Evaluation, after: Evaluation) -> list[tuple[float, float, str]]:
    """Return the utility of both sides on each question, and its topic."""
    return [(a.utility, b.utility, a.topic) for a, b in zip(before.grades, after.grades, strict=True)]


def _compare_held_out(found: Found, before: Evaluation, after: Evaluation) -> PairedResult:
    """Return the paired test of the new version's utility over its parent's on questions that nothing was learned from.

    They are those of dev and test; where dev is kept for the proof of a risk, or another optimizer saw it, of test.
    """
    rows = _list_utilities(before, after)
    if found.dev is not None and not found.risks:
        topics = [question.cluster for question in found.dev.questions]
        dev = zip(found.points.before, found.points.after, topics, strict=True)
        rows += [(a, b, topic) for a, b, topic in dev if math.isfinite(a) and math.isfinite(b)]
    return _compare(rows)


def _compare(rows: Sequence[tuple[float, float, str]]) -> PairedResult:
    """Return the paired, topic-clustered test of the second side's utility over the first's."""
    if not rows:
        return PairedResult(0.0, (-math.inf, math.inf), 1.0, 0, 0, math.inf, False, 0, math.nan)
    return paired_test(*zip(*rows, strict=True))


def _describe_search(found: Found, after: Evaluation) -> dict[str, Any]:
    """Return what a search came to, as fields of `Compiled`; without one what could not be graded."""
    task, train, dev = found.task, found.train, found.dev
    broken = {**after.failed, **{grade.id: grade.failed for grade in after.grades if grade.failed}}
    if not (found.candidates and train and dev):
        return {"broken": broken}
    program = train.arms[0].replay.program
    return {
        "trials": train.tried,
        "replayed": all(arm.replay.replays for arm in train.arms),
        "broken": {**train.broken, **dev.broken, **broken},
        "started_from": read_setting(task.base),
        "meanings": {one.name: one.meaning for one in task.list_parameters(program) if one.meaning},
        "asked": {
            "train": (len(train.questions), len(task.searched)),
            "dev": (len(task.parts["dev"] if found.risks else dev.questions), len(task.parts["dev"])),
            "test": (len(after.grades), len(task.parts["test"])),
        },
    }


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

    `make` makes the program by which the version will be loaded. `parent` is the version in use unless given.
    Raises `DataError` for a program that is not what it was once its state is all that is left of it.
    """
    learned = program.deepcopy()
    for _, part in learned.named_sub_modules():
        part._compiled = False  # else its parent's state leaves it out
        if getattr(vars(part).get("forward"), "__func__", None) is type(part).forward:
            del part.forward  # its class's own, bound as BootstrapFinetune leaves it
    project = open_folder(name, artifacts)
    task = open_module_task(project, lambda: learned, data, metric)
    parent = str(resolve(parent, project.artifacts)) if parent else find_in_use(project)
    with task.asking(Spending()):
        record = Record()
        task.check(record)
        contents = task.contents(learned)
        task.require_state(contents, make, record)
        made = {"optimizer": {"name": "sealed", "test_looks": note_look(task, "")}, "parent": parent or None}
        scores, points = task.evaluate(learned, task.parts["test"]), OperatingPoints({BALANCED: contents.setting})
        return publish(task, contents, scores, points, made)
