"""Embedding on a real Ray of two workers on this machine; left out where Ray is not installed."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from word_embedder import WordEmbedder

from program.errors import KnowledgeError, SettingsError
from program.knowledge.bases import BaseSpec
from program.knowledge.index.fanout import over_ray
from program.knowledge.index.store import build_index, open_index

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent


class Dying(WordEmbedder):
    """Ends its process at the first text."""

    def encode(self, texts: object) -> object:
        os._exit(1)


class Changed(WordEmbedder):
    """Has other weights in every process but the one that made it."""

    @property
    def digest(self) -> str:
        return f"process {os.getpid()}"


@pytest.fixture(autouse=True)
def workers_path(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", f"{HERE.parents[2]}{os.pathsep}{HERE}")  # for the workers
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def test_an_index_made_over_ray_is_the_one_made_here(bases: list[BaseSpec], tmp_path: Path) -> None:
    here = build_index(bases, tmp_path / "here", WordEmbedder())
    own, told = WordEmbedder(), []
    with over_ray(WordEmbedder, workers=2) as fan:
        there = build_index(bases, tmp_path / "there", own, lambda *step: told.append(step), fan=fan)
    assert (there.index_digest, there.embedded, own.computed, told) == (here.index_digest, 10, [], [(10, 10)])
    np.testing.assert_array_equal(open_index(tmp_path / "there", own).matrix, open_index(tmp_path / "here", own).matrix)


@pytest.mark.parametrize(("make", "complaint"), [(Dying, "Ray did not embed"), (Changed, "another embedding model")])
def test_workers_that_fail_leave_the_last_index(
    bases: list[BaseSpec], knowledge: Path, tmp_path: Path, make: Callable[[], WordEmbedder], complaint: str
) -> None:
    first = build_index(bases, tmp_path / "index", WordEmbedder())
    (knowledge / "product/new.md").write_text("# New\n\nText.\n")
    with pytest.raises(KnowledgeError, match=complaint), over_ray(partial(make), workers=2) as fan:
        build_index(bases, tmp_path / "index", WordEmbedder(), fan=fan)
    assert open_index(tmp_path / "index", WordEmbedder()).index_digest == first.index_digest


def test_an_unknown_engine_is_an_error(own_shop: Path) -> None:
    from program.knowledge.index.build import index_project
    from program.project import Project

    with pytest.raises(SettingsError, match=r"no engine 'spark'.*local, ray"):
        index_project(Project.open(own_shop), engine="spark")
