"""A program and its scores as the next version in the registry, with everything needed to judge it later."""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

import program as program_package
from optimize import registry
from optimize.dataset import LabelledQuestion
from optimize.evaluation import Evaluation
from optimize.overlap import question_digest
from program.artifact import files_of
from program.fitting import structure_of
from program.manifest import read as read_manifest
from program.parameters import Setting, read
from program.rag import AgenticRAG
from program.reference import names, resolve
from program.settings import Project

SCORES = "scores.jsonl"
PACKAGES = (
    "dspy",
    "optuna",
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
        if (found := self._already(program)) is not None:
            return found
        optimizer = {"name": "none"}
        return self._publish(program, scores, plain, {"balanced": read(program)}, "", optimizer, {})

    def compiled(
        self,
        program: AgenticRAG,
        scores: Evaluation,
        plain: Evaluation,
        points: Mapping[str, Setting],
        parent: str,
        trials: int,
        cost: Mapping[str, Any],
    ) -> str:
        """The reference of the new version."""
        optimizer = {"name": "ragc", "seed": self.seed, "trials": trials}
        return self._publish(program, scores, plain, points, parent, optimizer, cost)

    def _already(self, program: AgenticRAG) -> str | None:
        """A version of this project that holds exactly the uncompiled program, scored on the same test split."""
        root = self.project.artifacts
        if self.project.name not in names(root):
            return None
        state = hashlib.sha256(files_of(program)["program.json"]).hexdigest()
        for listed in registry.ls(self.project.name, root):
            sealed = read_manifest(resolve(f"{listed.name}@{listed.version}", root).path)
            same_state = any(f.path == "program.json" and f.digest == f"sha256:{state}" for f in sealed.files)
            if (
                same_state
                and _counts(sealed.section("data")) == _counts(self._data())
                and sealed.section("knowledge") == self._knowledge(program)
            ):
                return f"{listed.name}@{sealed.version}"
        return None

    def _publish(
        self,
        program: AgenticRAG,
        scores: Evaluation,
        plain: Evaluation,
        points: Mapping[str, Setting],
        parent: str,
        optimizer: Mapping[str, Any],
        cost: Mapping[str, Any],
    ) -> str:
        rows = b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in scores.rows())
        fields = {
            "parent": parent or None,
            "program": {
                "structure": structure_of(program),
                "source_digest": source_digest(),
                "preset": self.project.settings.loop.preset,
            },
            "data": self._data(),
            "knowledge": self._knowledge(program),
            "models": self._models(program),
            "optimizer": dict(optimizer),
            "points": {name: dict(point) for name, point in points.items()},
            "scores": {**scores.metrics(), "plain": plain.metrics()},
            "cost": dict(cost),
            "env": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
            "git": _git(self.project.folder),
        }
        return registry.publish(self.project.name, fields, {**files_of(program), SCORES: rows}, self.project.artifacts)

    def _data(self) -> dict[str, Any]:
        return {
            name: {
                "n": len(part),
                "sha256": _digest([q.model_dump(mode="json") for q in part]),
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


@lru_cache(maxsize=1)
def source_digest() -> str:
    """Identifies the code of `program`: its files' names and contents."""
    root = Path(inspect.getfile(program_package)).parent
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"sha256:{found.hexdigest()}"


def _counts(data: Mapping[str, Any]) -> dict[str, Any]:
    """What an older manifest says of its data too: size and digest of each split."""
    return {name: (part.get("n"), part.get("sha256")) for name, part in data.items()}


def _digest(value: Any) -> str:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


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
