"""A program and its scores as the next version in the registry, and the versions it was compiled from."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import orjson

from optimize.compiler.choice import BALANCED, OperatingPoints
from optimize.compiler.demonstrations import Demonstration
from optimize.compiler.record import source_digest
from optimize.compiler.replay import Arm
from optimize.compiler.scoring import ROUTE, LabelledCases, Routing, label_cases, observe_routing
from optimize.compiler.study import Caps, Spending
from optimize.evaluation.evaluate import Evaluation
from optimize.evaluation.metrics import Grade
from optimize.evaluation.stats import PairedResult, paired_test
from optimize.labelled.dataset import LabelledQuestion, digest_questions
from optimize.labelled.split import question_digest
from optimize.registry import versions as registry
from optimize.registry.versions import Listed, list_versions, note_test_use, read_manifests
from optimize.report.page import CompileReport
from program.errors import BudgetStop, IntegrityError, VersionError
from program.knowledge.project import Project
from program.loop.decisions import is_undecided
from program.loop.policy import Setting, read_setting
from program.loop.rag import AgenticRAG
from program.serve import reference
from program.serve.artifact import FRONTIER, STATE, describe_structure, export_files
from program.serve.manifest import Manifest, read_manifest

SCORES, REPORT = "scores.jsonl", "report.html"
PACKAGES = ("dspy", "optuna", "onnxruntime", "torch", "sentence-transformers", "qdrant-client", "scikit-learn", "numpy")
"""Packages whose versions a manifest names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled(CompileReport):
    """A finished compile: what its page tells, and where it is."""

    reference: str  # the new version
    study: str  # name of the study
    stood_in: int  # answers of a stand-in, for models that could not be reached or read
    asked: Mapping[str, tuple[int, int]]
    """Settings tried and questions asked of each split, and how many of each it would be without a cap."""

    @property
    def improved(self) -> bool:
        """True when it is better than its parent."""
        return self.verdict == "better"


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
    parts: Mapping[str, Sequence[LabelledQuestion]]

    def publish_uncompiled(self, contents: Contents, scores: Evaluation, plain: Evaluation | None = None) -> str:
        """Return the version that holds the uncompiled program, new if need be."""
        with registry.hold_lock(self.project.artifacts, self.project.name):  # two compiles at once publish it once
            found = self._find_equal(contents, len(scores.grades))
            points = OperatingPoints({BALANCED: contents.setting})
            return found or self.publish(contents, scores, points, plain=plain, optimizer={"name": "none"})

    def publish(
        self,
        contents: Contents,
        scores: Evaluation,
        points: OperatingPoints,
        *,
        optimizer: Mapping[str, Any],
        plain: Evaluation | None = None,
        parent: str = "",
        cost: Mapping[str, Any] | None = None,
        report: bytes = b"",
    ) -> str:
        """Return the reference of the new version."""
        fields = {
            **contents.tables,
            "parent": parent or None,
            "data": self._describe_data(),
            "optimizer": dict(optimizer),
            "points": {name: dict(point) for name, point in points.points.items()},
            "scores": {**scores.metrics(), **({"plain": plain.metrics()} if plain else {})},
            "cost": dict(cost or {}),
            "env": {"python": platform.python_version(), **{name: _version_of(name) for name in PACKAGES}},
            "git": _describe_commit(self.project.folder),
        }
        rows = b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in scores.rows())
        files = {**contents.files, SCORES: rows}
        if points.frontier:
            files[FRONTIER] = orjson.dumps(points.dump_frontier(), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
        if report:
            files[REPORT] = report
        return registry.publish_version(self.project.name, fields, files, self.project.artifacts)

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
        return f"{self.project.name}@{found[-1].version}" if found else ""

    def _find_equal(self, contents: Contents, scored: int) -> str:
        """Return a version with this uncompiled program, scored on as many questions of the same test, or empty."""
        state = f"sha256:{hashlib.sha256(contents.files[STATE]).hexdigest()}"
        for one in read_manifests(self.project.artifacts, self.project.name):
            if (
                any(file.path == STATE and file.digest == state for file in one.files)
                and one.section("scores").get("utility", {}).get("n", 0) >= scored
                and _sizes_of(one.section("data")) == _sizes_of(self._describe_data())
                and one.section("knowledge") == contents.tables.get("knowledge", {})
            ):
                return f"{self.project.name}@{one.version}"
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


@dataclass(frozen=True, slots=True)
class LineageNode:
    """A version with those compiled from it, oldest first."""

    listed: Listed  # the version
    children: tuple[LineageNode, ...]  # the versions compiled from it
    lost: str = ""  # a parent that is not there any more


def build_lineage(name: str, root: Path | str | None = None) -> list[LineageNode]:
    """Return the versions of `name` as trees; one without a known parent begins one."""
    found = [one for one in list_versions(name, root) if one.version]
    above = {one.version: _find_parent(one, found) for one in found}

    def grow(one: Listed) -> LineageNode:
        children = tuple(grow(child) for child in found if above[child.version] == one.version)
        return LineageNode(one, children, (one.parent or "") if above[one.version] is None else "")

    return [grow(one) for one in found if above[one.version] is None]


def read_ancestors(ref: str, root: Path | str | None = None) -> list[Manifest]:
    """Return the manifests of a version and of those it was compiled from."""
    found: dict[Path, Manifest] = {}
    wanted: str | None = ref
    with suppress(VersionError, IntegrityError):
        while wanted:
            path = reference.resolve(wanted, root).path
            if path in found:
                break
            found[path] = read_manifest(path)
            wanted, root = found[path].parent, path.parents[2]
    return list(found.values())


def _find_parent(one: Listed, known: Sequence[Listed]) -> str | None:
    """Return the parent's version folder. Only an older number counts: no hand-made manifest closes a circle."""
    name, _, wanted = (one.parent or "").partition("@")
    fitting = [
        other.version
        for other in known
        if name == one.name
        and wanted in {other.version, f"v{reference.version_number(other.version)}"}
        and reference.version_number(other.version) < reference.version_number(one.version)
    ]
    return fitting[0] if len(fitting) == 1 else None


def _sizes_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return size and digest of each split, which older manifests have too."""
    return {name: (part.get("n"), part.get("sha256")) for name, part in data.items()}


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


@dataclass(frozen=True, slots=True)
class Calibration:
    """A decision on labelled cases of topics it was not shown, for the report."""

    parameter: str  # name of the decision's threshold
    cut: bool  # false for a choice among options: `chances` are then of the likeliest option
    chances: list[float]  # probabilities in [0, 1]
    truths: list[bool]  # whether it was so; of a choice, whether the likeliest option was the label


def calibrate_decisions(
    arms: Sequence[Arm], demonstrations: Sequence[Demonstration], setting: Setting, spending: Spending
) -> list[Calibration]:
    """Return every decision that has labels, under a setting, for no money."""
    before, spending.caps = (spending.caps, spending.tripped), Caps(calls=0)
    found: list[Calibration] = []
    try:
        with contextlib.suppress(BudgetStop):
            found += _calibrate_routing(observe_routing(arms, setting))
        for name in sorted({one.predictor for one in demonstrations} - {ROUTE}):
            with contextlib.suppress(BudgetStop):
                found += _calibrate_cases(label_cases(arms, demonstrations, name), setting)
    finally:
        spending.caps, spending.tripped = before
    return [one for one in found if one.chances]


def _calibrate_routing(routing: Routing) -> list[Calibration]:
    choice = Calibration(f"{ROUTE}:route", False, [], [])
    for table, label in zip(routing.tables, routing.routes, strict=True):
        likeliest = max(table, key=table.__getitem__)
        choice.chances.append(table[likeliest])
        choice.truths.append(likeliest == label)
    outputs = sorted(routing.chances)
    return [choice, *(Calibration(f"{ROUTE}:{o}", True, routing.chances[o], routing.truths[o]) for o in outputs)]


def _calibrate_cases(cases: LabelledCases, setting: Setting) -> list[Calibration]:
    found: dict[str, Calibration] = {}
    for _, _, reply, wanted in cases.decide(setting):
        for output, label in wanted.items():
            if not is_undecided(reply[output]):
                one = found.setdefault(output, Calibration(f"{cases.name}:{output}", True, [], []))
                one.chances.append(reply[output].probability)
                one.truths.append(bool(label))
    return list(found.values())


def compare_grades(a: Sequence[Grade], b: Sequence[Grade]) -> PairedResult:
    """Return the paired, topic-clustered test of b's utility over a's."""
    if not a:
        return PairedResult(0.0, (-math.inf, math.inf), 1.0, 0, 0, math.inf, False, 0, math.nan)
    return paired_test([g.utility for g in a], [g.utility for g in b], [g.topic for g in a])
