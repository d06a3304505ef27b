"""The index on disk: what changed is made again, readers keep a whole one, damage is named and mended."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from word_embedder import WordEmbedder

from ragc.errors import KnowledgeError, SettingsError
from ragc.knowledge.index import store
from ragc.knowledge.index.build import build_index, embed_over_ray, index_project, open_index
from ragc.knowledge.index.store import CURRENT, place_index
from ragc.knowledge.library import Library
from ragc.knowledge.project import Project
from ragc.passage import embedding_text
from ragc.settings import DocumentsSettings, Settings

HERE = Path(__file__).parent


@pytest.fixture
def folder(bases, tmp_path, embedder):
    """A folder with the index of all bases."""
    build_index(bases, tmp_path / "index", embedder)
    return tmp_path / "index"


def live(folder):
    """The file that readers open."""
    return place_index(folder, json.loads((folder / CURRENT).read_text())["generation"])


def test_an_index_holds_every_passage_with_its_vector_and_nothing_pickled(bases, knowledge, tmp_path, embedder):
    report = build_index(bases, tmp_path / "index", embedder)
    assert (report.documents, report.passages, report.embedded, report.reused) == (5, 10, 10, 0)
    assert not report.unchanged and not report.flaws
    moved = knowledge.rename(tmp_path / "elsewhere")
    elsewhere = {name: base.model_copy(update={"path": str(moved / name)}) for name, base in bases.items()}
    there = build_index(elsewhere, tmp_path / "other", embedder)
    assert there.index_digest == report.index_digest  # wherever the project lies
    fresh = WordEmbedder()
    index = open_index(tmp_path / "index", fresh)
    assert (index.index_digest, index.corpus_digest) == (report.index_digest, report.corpus_digest)
    texts = [embedding_text(p) for p in index.passages]
    np.testing.assert_array_equal(index.matrix, WordEmbedder().encode(texts))
    fresh.encode(texts)
    assert fresh.computed == []  # opening lends the vectors to the embedder
    assert index.passages[index.rows["billing/refunds-2024.md#prorated-refunds"]].superseded_by == "billing/refunds.md"
    assert live(tmp_path / "index").suffix == ".safetensors"


def test_only_changed_texts_are_embedded_again_and_deleted_files_go(bases, folder, knowledge):
    file = knowledge / "product/plans.md"
    file.write_text(file.read_text().replace("GBP 19", "GBP 21"))
    fresh, told = WordEmbedder(), []
    report = build_index(bases, folder, fresh, lambda done, of: told.append((done, of)))
    assert len(fresh.computed) == 1 and "GBP 21" in fresh.computed[0]
    assert (report.embedded, report.reused, told) == (1, 9, [(1, 1)])
    (knowledge / "product/batteries.md").unlink()
    assert build_index(bases, folder, fresh).embedded == 0
    index = open_index(folder, fresh)
    assert len(index.passages) == 8 and not any("batteries" in p.id for p in index.passages)
    assert not index.keywords.scores("slide").any()


def test_another_embedder_or_format_is_refused_by_readers_and_made_anew(bases, folder, monkeypatch):
    other = WordEmbedder("2")
    with pytest.raises(KnowledgeError, match=r"another embedding model.*ragc index"):
        open_index(folder, other)
    assert build_index(bases, folder, other).embedded == 10
    monkeypatch.setattr(store, "FORMAT", 99)
    with pytest.raises(KnowledgeError, match=r"has format \d+.*reads 99.*ragc index"):
        open_index(folder, other)
    report = build_index(bases, folder, other)
    assert (report.embedded, report.reused) == (0, 10)  # the vectors are still good
    assert len(open_index(folder, other).passages) == 10


@pytest.mark.parametrize("part", ["index", "note"])
def test_a_damaged_index_is_named_and_indexing_mends_it(bases, folder, embedder, part):
    file = live(folder) if part == "index" else folder / CURRENT
    whole = file.read_bytes()
    for harmed in (whole[:-40], b"{", b"nonsense", None):
        if harmed is None:
            file.unlink()
        else:
            file.write_bytes(harmed)
        with pytest.raises(KnowledgeError, match=r"ragc index"):
            open_index(folder, embedder)
        assert not build_index(bases, folder, embedder).unchanged
        assert len(open_index(folder, embedder).passages) == 10
        assert file.read_bytes() == whole


def test_a_failed_rebuild_leaves_the_last_index(bases, folder, knowledge, tmp_path, embedder):
    with pytest.raises(KnowledgeError, match=r"no index.*ragc index"):
        open_index(tmp_path, embedder)
    for file in (knowledge / "web").iterdir():
        file.unlink()
    with pytest.raises(KnowledgeError, match=r"'web' holds no text"):
        build_index(bases, folder, embedder)
    with pytest.raises(KnowledgeError, match="does not exist"):
        build_index({"x": DocumentsSettings(path="nowhere")}, folder, embedder)
    assert len(open_index(folder, embedder).passages) == 10
    (tmp_path / "file").write_text("")
    with pytest.raises(KnowledgeError, match=r"cannot be written"):
        build_index(bases, tmp_path / "file" / "index", embedder)


# Few words, so that names come and go, contain each other, and are written small elsewhere.
WORDS = ["# Home Plus", "# The Érd (Jamaica)", "Kingston, Jamaica.", "home of the ßa", "max_rounds £9.", "Plus", ""]
TEXT = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map("\n\n".join)
CHANGE = st.tuples(st.sampled_from(["a.md", "b.md", "c/d.md", "z.txt"]), st.none() | TEXT)  # None deletes
RUNS = st.lists(st.lists(CHANGE, min_size=1, max_size=3), min_size=1, max_size=4)


@settings(max_examples=15)
@given(RUNS, st.booleans())
def test_whatever_changes_an_index_made_again_is_that_made_from_nothing(runs, stem):
    with tempfile.TemporaryDirectory() as root:
        knowledge, folder, fresh = Path(root, "knowledge"), Path(root, "index"), Path(root, "fresh")
        (knowledge / "c").mkdir(parents=True)
        (knowledge / "kept.md").write_text("# Kept\n\nThe Home of Érd and Kingston, Jamaica.\n", encoding="utf-8")
        bases, split = (
            {"k": DocumentsSettings(path=str(knowledge))},
            Settings(name="k", knowledge={}, keyword={"stem": stem}),
        )
        for changes in runs:
            for name, text in changes:
                if text is None:
                    (knowledge / name).unlink(missing_ok=True)
                else:
                    (knowledge / name).write_text(text, encoding="utf-8")
            build_index(bases, folder, WordEmbedder(), settings=split)
        build_index(bases, fresh, WordEmbedder(), settings=split)
        assert live(folder).read_bytes() == live(fresh).read_bytes()
        one, other = (Library.open(bases, at, WordEmbedder()) for at in (folder, fresh))
        for question in ("home plus", "Kingston", "max_rounds of Érd"):
            assert one.search(question) == other.search(question)


@pytest.mark.slow
def test_an_index_made_over_ray_is_the_one_made_here(bases, folder, tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", f"{HERE.parents[2]}:{HERE}")  # for the workers
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    own = WordEmbedder()
    with embed_over_ray(WordEmbedder, workers=2) as fan:
        report = build_index(bases, tmp_path / "there", own, fan=fan)
    assert (report.embedded, own.computed) == (10, [])
    assert live(tmp_path / "there").read_bytes() == live(folder).read_bytes()


def test_an_unknown_engine_is_an_error(own_shop):
    with pytest.raises(SettingsError, match=r"no engine 'spark'.*local, ray"):
        index_project(Project.open(own_shop), engine="spark")
