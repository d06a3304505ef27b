from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from program.knowledge.index.generation import VECTORS
from word_embedder import WordEmbedder

from program.errors import KnowledgeError
from program.knowledge.index.build import build_index, open_index
from program.knowledge.ingest.folder import BaseSpec
from program.passage import embedding_text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ".ragc" / "index"


def generations(folder: Path) -> list[Path]:
    return sorted(folder.glob("gen-*"))


def live(folder: Path) -> Path:
    return folder / str(json.loads((folder / "current.json").read_text())["generation"])


def test_an_index_holds_every_passage_with_its_vector(
    bases: list[BaseSpec], folder: Path, embedder: WordEmbedder
) -> None:
    report = build_index(bases, folder, embedder)
    assert (report.documents, report.passages, report.embedded, report.reused) == (5, 10, 10, 0)
    assert not report.unchanged and not report.skipped and not report.warnings
    index = open_index(folder, embedder)
    assert index.index_digest == report.index_digest
    assert index.corpus_digest == report.corpus_digest
    texts = [embedding_text(p) for p in index.passages]
    np.testing.assert_array_equal(index.matrix, WordEmbedder().encode(texts))
    old = index.passages[index.rows["billing/refunds-2024.md#prorated-refunds"]]
    assert old.superseded_by == "billing/refunds.md"


def test_indexing_again_without_a_change_embeds_and_writes_nothing(
    bases: list[BaseSpec], folder: Path, embedder: WordEmbedder
) -> None:
    first = build_index(bases, folder, embedder)
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file() and p.name != "lock"}
    fresh = WordEmbedder()
    again = build_index(bases, folder, fresh)
    assert again.unchanged and again.embedded == 0 and fresh.computed == []
    assert again.index_digest == first.index_digest
    assert {p: p.stat().st_mtime_ns for p in before} == before


def test_only_changed_texts_are_embedded_again(
    bases: list[BaseSpec], folder: Path, knowledge: Path, embedder: WordEmbedder
) -> None:
    first = build_index(bases, folder, embedder)
    file = knowledge / "product/plans.md"
    file.write_text(file.read_text().replace("GBP 19", "GBP 21"))
    fresh, told = WordEmbedder(), []
    report = build_index(bases, folder, fresh, lambda done, of: told.append((done, of)))
    assert len(fresh.computed) == 1 and "GBP 21" in fresh.computed[0]
    assert (report.embedded, report.reused, told) == (1, 9, [(1, 1)])
    assert report.corpus_digest != first.corpus_digest
    assert any("GBP 21" in p.text for p in open_index(folder, fresh).passages)


def test_deleting_a_file_deletes_its_passages(
    bases: list[BaseSpec], folder: Path, knowledge: Path, embedder: WordEmbedder
) -> None:
    build_index(bases, folder, embedder)
    (knowledge / "product/batteries.md").unlink()
    fresh = WordEmbedder()
    assert build_index(bases, folder, fresh).embedded == 0
    index = open_index(folder, fresh)
    assert len(index.passages) == 8
    assert not any("batteries" in p.id for p in index.passages)
    assert not index.keywords.scores("slide").any()


def test_an_index_that_was_open_goes_on_while_others_take_its_place(
    bases: list[BaseSpec], folder: Path, knowledge: Path, embedder: WordEmbedder
) -> None:
    build_index(bases, folder, embedder)
    held = open_index(folder, embedder)
    query = embedder.encode(["four cells"])[0]
    before = held.vectors.search(query, 3)
    for n in range(3):
        (knowledge / f"product/new{n}.md").write_text(f"# New {n}\n\nText {n}.\n")
        build_index(bases, folder, embedder)
    assert held.vectors.search(query, 3) == before
    assert len(open_index(folder, embedder).passages) == 13
    assert len(generations(folder)) == 2  # the one in use and the one before


def test_going_back_to_earlier_content_finds_the_earlier_digest(
    bases: list[BaseSpec], folder: Path, knowledge: Path, embedder: WordEmbedder
) -> None:
    first = build_index(bases, folder, embedder)
    (knowledge / "product/new.md").write_text("# New\n\nText.\n")
    build_index(bases, folder, embedder)
    (knowledge / "product/new.md").unlink()
    back = build_index(bases, folder, embedder)
    assert (back.index_digest, back.unchanged, back.embedded) == (first.index_digest, False, 0)
    assert len(open_index(folder, embedder).passages) == 10


def test_the_digest_does_not_depend_on_where_the_project_lies(
    bases: list[BaseSpec], folder: Path, knowledge: Path, tmp_path: Path, embedder: WordEmbedder
) -> None:
    first = build_index(bases, folder, embedder)
    moved = knowledge.rename(tmp_path / "elsewhere")
    there = [replace(b, path=moved / b.name) for b in bases]
    assert build_index(there, tmp_path / "other", embedder).index_digest == first.index_digest


def test_another_embedder_is_refused_by_readers_and_makes_every_vector_anew(
    bases: list[BaseSpec], folder: Path, embedder: WordEmbedder
) -> None:
    build_index(bases, folder, embedder)
    other = WordEmbedder("2")
    with pytest.raises(KnowledgeError, match=r"another embedding model.*ragc index"):
        open_index(folder, other)
    assert build_index(bases, folder, other).embedded == 10
    assert len(open_index(folder, other).passages) == 10


def test_another_format_is_refused_by_readers(bases: list[BaseSpec], folder: Path, embedder: WordEmbedder) -> None:
    build_index(bases, folder, embedder)
    manifest = live(folder) / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 99}))
    with pytest.raises(KnowledgeError, match=r"format 99.*ragc index"):
        open_index(folder, embedder)


@pytest.mark.parametrize("name", ["passages.jsonl", "terms.json", "keywords.safetensors", VECTORS, "manifest.json"])
@pytest.mark.parametrize("harm", ["cut", "gone"])
def test_a_damaged_index_is_named_and_indexing_mends_it(
    bases: list[BaseSpec], folder: Path, embedder: WordEmbedder, name: str, harm: str
) -> None:
    build_index(bases, folder, embedder)
    file = live(folder) / name
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(KnowledgeError, match=r"ragc index"):
        open_index(folder, embedder)
    assert not build_index(bases, folder, embedder).unchanged
    assert len(open_index(folder, embedder).passages) == 10


def test_a_damaged_pointer_is_named_and_indexing_mends_it(
    bases: list[BaseSpec], folder: Path, embedder: WordEmbedder
) -> None:
    build_index(bases, folder, embedder)
    (folder / "current.json").write_text("{")
    with pytest.raises(KnowledgeError, match=r"ragc index"):
        open_index(folder, embedder)
    build_index(bases, folder, embedder)
    assert len(open_index(folder, embedder).passages) == 10


def test_no_index_is_an_error_that_says_what_to_run(tmp_path: Path, embedder: WordEmbedder) -> None:
    with pytest.raises(KnowledgeError, match=r"no index.*ragc index"):
        open_index(tmp_path, embedder)


def test_opening_lends_the_vectors_to_the_embedder(bases: list[BaseSpec], folder: Path, embedder: WordEmbedder) -> None:
    build_index(bases, folder, embedder)
    fresh = WordEmbedder()
    index = open_index(folder, fresh)
    fresh.encode([embedding_text(p) for p in index.passages])
    assert fresh.computed == []


def test_nothing_in_the_index_that_readers_open_is_pickled(
    bases: list[BaseSpec], folder: Path, embedder: WordEmbedder
) -> None:
    build_index(bases, folder, embedder)
    assert {p.suffix for p in live(folder).iterdir() if p.is_file()} == {".json", ".jsonl", ".safetensors"}


def test_a_failed_rebuild_leaves_the_last_index(
    bases: list[BaseSpec], folder: Path, knowledge: Path, embedder: WordEmbedder
) -> None:
    build_index(bases, folder, embedder)
    for file in (knowledge / "web").iterdir():
        file.unlink()
    with pytest.raises(KnowledgeError, match=r"'web' holds no text"):
        build_index(bases, folder, embedder)
    assert len(open_index(folder, embedder).passages) == 10


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (BaseSpec("x", kind="graphs", path="."), "unknown kind 'graphs'.*documents, graph, web"),
        (BaseSpec("x", kind="web"), "'x' has no path"),
        (BaseSpec("a/b", path="."), "'a/b' is not a usable name"),
        (BaseSpec("product", path="."), "'product' is given twice"),
        (BaseSpec("x", path="nowhere"), "does not exist"),
    ],
)
def test_a_base_that_cannot_be_is_an_error(
    bases: list[BaseSpec], folder: Path, embedder: WordEmbedder, spec: BaseSpec, complaint: str
) -> None:
    with pytest.raises(KnowledgeError, match=complaint):
        build_index([*bases, spec], folder, embedder)


def test_a_folder_that_cannot_be_written_is_an_error(
    bases: list[BaseSpec], tmp_path: Path, embedder: WordEmbedder
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KnowledgeError, match=r"cannot be written"):
        build_index(bases, tmp_path / "file" / "index", embedder)
