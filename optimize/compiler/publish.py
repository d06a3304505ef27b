"""The last stage of a compile: the program and its scores sealed as the next version in the registry."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter

from optimize.compiler.candidates.demonstrations import Demonstration, learns_demos
from optimize.compiler.candidates.labels import calibrate_decisions
from optimize.compiler.choice import OperatingPoints, Validation, fit_doubt
from optimize.compiler.plan import SEARCHED, Opened, SearchPlan, copy_program
from optimize.compiler.record import source_digest
from optimize.compiler.runs.replay import Replay
from optimize.compiler.search import Search, Session
from optimize.compiler.study import Note
from optimize.evaluation.comparison import judge_difference
from optimize.evaluation.evaluate import Evaluation
from optimize.evaluation.grades import Grade, judge_answer
from optimize.evaluation.outcome import BALANCED
from optimize.evaluation.stats import PairedResult, paired_test
from optimize.labelled.dataset import LabelledQuestion, Question, digest_questions
from optimize.labelled.split import question_digest
from optimize.registry.versions import hold_lock, note_test_use, publish_version, read_manifests
from optimize.report.page import CompileReport, render_compile_page
from program.answer import Outcome
from program.errors import BudgetStop
from program.knowledge.project import Project
from program.loop.decisions import clients_of
from program.loop.policy import Setting, apply_setting, read_setting
from program.loop.rag import AgenticRAG
from program.serve.artifact import FRONTIER, STATE, describe_structure, export_files

SCORES, REPORT = "scores.jsonl", "report.html"
PACKAGES = ("dspy", "optuna", "onnxruntime", "torch", "sentence-transformers", "qdrant-client", "scikit-learn", "numpy")
"""Packages whose versions a manifest names."""


@dataclass(frozen=True, slots=True)
class TestReport:
    """Plain RAG, the parent and the compiled program on test."""

    plain: Evaluation
    before: Evaluation
    after: Evaluation
    looks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled(CompileReport):
    """A finished compile: what its page tells, and where it is."""

    reference: str  # the new version
    study: str  # name of the study
    stood_in: int  # answers of a stand-in, for models that could not be reached or read
    asked: Mapping[str, tuple[int, int]]
    """Settings tried and questions asked of each split, and how many of each it would be without a cap."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a version holds of a program: its files, the manifest's tables about it, and the setting it has."""

    files: Mapping[str, bytes]
    tables: Mapping[str, Any]
    setting: Setting


def describe_contents(program: AgenticRAG, project: Project) -> Contents:
    """Return what a version holds of a project's program."""
    library = program.runtime.library
    tables = {
        "program": {
            "structure": describe_structure(program),
            "source_digest": source_digest(),
            "preset": project.settings.loop.preset,
        },
        "knowledge": {
            "project": os.path.relpath(project.folder, project.artifacts),
            "corpus_digest": library.corpus_digest,
            "index_digest": library.index_digest,
            "passages": len(library.passages()),
        },
        "models": {**program.runtime.models.names.model_dump(), **program.runtime.models.weights},
    }
    return Contents(export_files(program), tables, read_setting(program))


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
        rows = b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in scores.rows())
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
        texts = [question.question for question in self.parts["test"]]
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
                "questions": sorted({question_digest(question.question) for question in part}),
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


def seal(
    session: Session,
    *,
    opened: Opened,
    plan: SearchPlan,
    search: Search,
    validation: Validation,
    points: OperatingPoints,
    tested: TestReport,
    demonstrations: Sequence[Demonstration],
) -> Compiled:
    """Publish the program with its scores and report."""
    session.begin_stage("sealing")
    spending, study, chosen = session.spending, search.study, points.points[BALANCED]
    publisher, trials, parts = Publisher(opened.project, opened.parts), len(search.trials()), opened.parts
    gain = compare_grades(tested.before.grades, tested.after.grades)
    decisions = calibrate_decisions(plan.arms, demonstrations, chosen, spending)
    done = Compiled(
        name=opened.project.name,
        reference="",
        study=study.name,
        parent=opened.origin
        or publisher.publish_uncompiled(describe_contents(opened.first, opened.project), tested.before, tested.plain),
        verdict=judge_difference("utility", gain),
        gain=gain,
        over_plain=compare_grades(tested.plain.grades, tested.after.grades),
        plain=tested.plain,
        before=tested.before,
        after=tested.after,
        trials=trials,
        calls=spending.calls,
        usd=spending.usd,
        seconds=spending.seconds,
        looks=tested.looks,
        labelled=publisher.describe_labels(),
        doubts=opened.doubts,
        stopped_by=spending.tripped,
        stood_in=session.record.stand_ins,
        survived=list(points.survived),
        stages=list(points.stages),
        broken={**search.scoring.broken, **validation.dev.broken, **dict.fromkeys(tested.after.failed, "in the test")},
        points={name: {"utility": one.utility, "calls": one.calls} for name, one in points.named.items()},
        frontier=points.seal().dump_frontier(),
        oracle=points.oracle,
        reached=points.reached,
        chosen=chosen,
        started_from=search.firsts[0][1],
        decisions=[asdict(one) for one in decisions],
        given=plan.candidates.describe_choice(opened.base, chosen),
        importances=search.knob_importances(),
        meanings={one.name: one.meaning for one in search.space if one.meaning},
        stage_seconds=session.live.seconds,
        asked={
            "settings": (trials, max(trials, study.notes[Note.TRIALS] + len(search.firsts))),
            "train": (len(search.scoring.questions), min(len(parts["train"]), SEARCHED)),
            "dev": (len(validation.dev.questions), len(parts["dev"])),
            "test": (len(tested.after.grades), len(parts["test"])),
        },
    )
    contents = describe_contents(prepare_sealing(session, opened, plan, points), opened.project)
    origin, page = done.describe_origin(study.key, opened.seed), render_compile_page(done)
    reference = publisher.find_sealed(study.key) or publisher.publish(
        contents, tested.after, points.seal(), origin, tested.plain, page
    )
    study.note(Note.FINISHED, reference)
    return replace(done, reference=reference)


def prepare_sealing(session: Session, opened: Opened, plan: SearchPlan, points: OperatingPoints) -> AgenticRAG:
    """Return the program to be sealed, its heads and bound of confidence from dev."""
    program = copy_program(opened.base)
    plan.candidates.equip_program(program)
    asked: set[str] = set()
    for setting in points.points.values():
        apply_setting(program, setting)
        with suppress(BudgetStop):
            for _, path in session.replay(program).trace_all([question.question for question in opened.parts["dev"]]):
                asked |= {ask.predictor for ask, _ in path}
    sealed = copy_program(program)  # what was asked of it so far depends on the record
    apply_setting(sealed, points.points[BALANCED])
    if BALANCED in points.survived:
        sealed.policy.turn(
            unsure_below=_fit_doubt(Replay(sealed, session.record, session.spending), opened.parts["dev"])
        )
    for name in sorted(asked):
        fit_head(sealed, name)
    return sealed


def _fit_doubt(replay: Replay, questions: Sequence[LabelledQuestion]) -> float:
    """Return the bound of confidence that answers to the questions give, 0 where a cap keeps them from being asked."""
    judged = []
    with suppress(BudgetStop):
        for question, answer in zip(questions, replay.answer_all([q.question for q in questions]), strict=True):
            if answer.outcome is Outcome.ANSWERED:
                judged.append((answer.confidence, judge_answer(question, answer.outcome, answer.text).wrong))
    return fit_doubt(judged)


def fit_head(program: AgenticRAG, name: str) -> None:
    """Have the embedded decider of a predictor fitted to its demonstrations."""
    predictor = program.predictor(name)
    if not (predictor.demos and learns_demos(program, name)):
        return
    inputs = {
        field: TypeAdapter(info.annotation).validate_python(predictor.demos[0][field])
        for field, info in predictor.signature.input_fields.items()
    }
    program.requests.ask(name, predictor, clients_of(program, predictor, {})[0], [inputs])
