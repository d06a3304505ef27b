"""A program and its scores as the next version in the registry, with everything needed to judge it later."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from optimize.compiler.choice import Choice
from optimize.compiler.code import source_digest
from optimize.evaluation.evaluate import Evaluation
from optimize.labelled.dataset import LabelledQuestion, digest_questions
from optimize.labelled.split import question_digest
from optimize.registry import versions as registry
from optimize.registry.versions import note_test_use, read_manifests
from program.loop.policy import read_setting
from program.loop.rag import AgenticRAG
from program.project import Project
from program.serve.artifact import FRONTIER, describe_structure, export_files
from program.serve.manifest import Manifest

SCORES = "scores.jsonl"
REPORT = "report.html"
PACKAGES = (
    "dspy",
    "optuna",
    "onnxruntime",
    "torch",
    "sentence-transformers",
    "qdrant-client",
    "rank-bm25",
    "scikit-learn",
    "numpy",
)


@dataclass(frozen=True, slots=True)
class Sealing:
    """Publishes versions of one project that were scored on the same splits."""

    project: Project
    questions: Sequence[LabelledQuestion]
    parts: Mapping[str, Sequence[LabelledQuestion]]
    seed: int

    def uncompiled(self, program: AgenticRAG, scores: Evaluation, plain: Evaluation) -> str:
        """The reference of the uncompiled program: the latest version when that holds just this, else a new one."""
        with registry.hold_lock(self.project.artifacts, self.project.name):  # two compiles at once publish it once
            if (found := self._already(program, len(scores.grades))) is not None:
                return found
            as_it_is = Choice({"balanced": read_setting(program)}, [], (), 0.0)
            return self._publish(program, scores, plain, as_it_is, "", {"name": "none"}, {})

    def compiled(
        self,
        program: AgenticRAG,
        scores: Evaluation,
        plain: Evaluation,
        choice: Choice,
        parent: str,
        optimizer: Mapping[str, Any],
        cost: Mapping[str, Any],
        report: bytes = b"",
    ) -> str:
        """The reference of the new version."""
        return self._publish(program, scores, plain, choice, parent, optimizer, cost, report)

    def looked(self, study: str) -> int:
        """Notes that a study's test is about to be read; which look at this test split, or a part of it, that is."""
        texts = [question.question for question in self.parts["test"]]
        return note_test_use(self.project.artifacts, self.project.name, "compile", texts, study)

    def sealed_from(self, study: str) -> str:
        """The version sealed from a study before its compile was interrupted, or nothing."""
        found = [m for m in self._sealed() if m.section("optimizer").get("study") == study]
        return f"{self.project.name}@{found[-1].version}" if found else ""

    def _sealed(self) -> list[Manifest]:
        return read_manifests(self.project.artifacts, self.project.name)

    def _already(self, program: AgenticRAG, scored: int) -> str | None:
        """A version that holds exactly the uncompiled program, scored on as many questions of the same test split."""
        state = hashlib.sha256(export_files(program)["program.json"]).hexdigest()
        for one in self._sealed():
            same_state = any(f.path == "program.json" and f.digest == f"sha256:{state}" for f in one.files)
            if (
                same_state
                and one.section("scores").get("utility", {}).get("n", 0) >= scored
                and _counts(one.section("data")) == _counts(self._data())
                and one.section("knowledge") == self._knowledge(program)
            ):
                return f"{self.project.name}@{one.version}"
        return None

    def _publish(
        self,
        program: AgenticRAG,
        scores: Evaluation,
        plain: Evaluation,
        choice: Choice,
        parent: str,
        optimizer: Mapping[str, Any],
        cost: Mapping[str, Any],
        report: bytes = b"",
    ) -> str:
        rows = b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in scores.rows())
        fields = {
            "parent": parent or None,
            "program": {
                "structure": describe_structure(program),
                "source_digest": source_digest(),
                "preset": self.project.settings.loop.preset,
            },
            "data": self._data(),
            "knowledge": self._knowledge(program),
            "models": self._models(program),
            "optimizer": dict(optimizer),
            "points": {name: dict(point) for name, point in choice.points.items()},
            "scores": {**scores.metrics(), "plain": plain.metrics()},
            "cost": dict(cost),
            "env": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
            "git": _git(self.project.folder),
        }
        files = {**export_files(program), SCORES: rows}
        if choice.frontier:
            points = [asdict(candidate) for candidate in choice.frontier]
            files[FRONTIER] = orjson.dumps(points, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
        if report:
            files[REPORT] = report
        return registry.publish_version(self.project.name, fields, files, self.project.artifacts)

    def _data(self) -> dict[str, Any]:
        return {
            name: {
                "n": len(part),
                "sha256": digest_questions(part),
                "questions": sorted({question_digest(q.question) for q in part}),
            }
            for name, part in self.parts.items()
        }

    def _knowledge(self, program: AgenticRAG) -> dict[str, Any]:
        library = program.runtime.library
        return {
            "project": os.path.relpath(self.project.folder, self.project.artifacts),
            "corpus_digest": library.corpus_digest,
            "index_digest": library.index_digest,
            "passages": len(library.passages()),
        }

    @staticmethod
    def _models(program: AgenticRAG) -> dict[str, Any]:
        models = program.runtime.models
        return {**models.names.model_dump(), "embedder": models.embedder.digest}


def _counts(data: Mapping[str, Any]) -> dict[str, Any]:
    """What an older manifest says of its data too: size and digest of each split."""
    return {name: (part.get("n"), part.get("sha256")) for name, part in data.items()}


def _git(folder: Path) -> dict[str, Any]:
    """The commit and whether the tree differs from it; empty outside a repository."""
    try:
        commit = _ask_git(folder, "rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(_ask_git(folder, "status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return {}


def _ask_git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()
