"""Indexing what changed gives what indexing everything gives, to the byte."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from program.knowledge.index.generation import FILES, KEYWORDS, MANIFEST
from word_embedder import WordEmbedder

from program.knowledge.index.build import build_index
from program.knowledge.ingest.folder import BaseSpec
from program.knowledge.library import Library

# Few words, so that names come and go, contain each other, and are written small elsewhere.
WORD = st.sampled_from(
    ["Home", "home", "Plus", "plus", "Kingston", "Jamaica", "of", "and", "the", "the", "max_rounds", "Érd", "ßa", "£9"]
)
SENTENCE = st.lists(WORD, max_size=7).map(lambda words: " ".join(words) + ".")
HEADING = st.sampled_from(["Home Plus", "Kingston, Jamaica", "Plus", "The Érd (Jamaica)", "Rounds"])
PART = st.tuples(HEADING, st.lists(SENTENCE, min_size=1, max_size=3).map("\n\n".join))
TEXT = st.lists(PART, min_size=1, max_size=2).map(lambda parts: "\n\n".join(f"# {h}\n\n{t}" for h, t in parts))
FILE = st.sampled_from(["a.md", "b.md", "c/d.md", "z.txt"])
CHANGE = st.tuples(FILE, st.none() | TEXT)  # None deletes
RUNS = st.lists(st.lists(CHANGE, min_size=1, max_size=3), min_size=1, max_size=4)


def current(folder: Path) -> Path:
    return folder / str(json.loads((folder / "current.json").read_text())["generation"])


@settings(max_examples=25)
@given(RUNS, st.booleans())
def test_whatever_changes_an_index_made_again_is_that_made_from_nothing(
    runs: list[list[tuple[str, str | None]]], stem: bool
) -> None:
    with tempfile.TemporaryDirectory() as root:
        knowledge, folder = Path(root, "knowledge"), Path(root, "index")
        (knowledge / "c").mkdir(parents=True)
        (knowledge / "kept.md").write_text("# Kept\n\nThe Home of Érd and Kingston, Jamaica.\n", encoding="utf-8")
        bases = [BaseSpec("k", path=knowledge)]
        for changes in runs:
            for name, text in changes:
                if text is None:
                    (knowledge / name).unlink(missing_ok=True)
                else:
                    (knowledge / name).write_text(text, encoding="utf-8")
            again = build_index(bases, folder, WordEmbedder(), stem=stem)
        fresh = Path(root, "fresh")
        assert build_index(bases, fresh, WordEmbedder(), stem=stem).index_digest == again.index_digest
        for name in (*FILES, MANIFEST):
            assert (current(folder) / name).read_bytes() == (current(fresh) / name).read_bytes(), name
        one, other = (Library.open(bases, at, WordEmbedder()) for at in (folder, fresh))
        for question in ("home plus", "Kingston", "max_rounds of Érd"):
            assert one.search(question) == other.search(question)


@pytest.mark.parametrize(("change", "embedded"), [("nothing", 1), ("stop words", 1), ("embedder", 11), ("damage", 11)])
def test_only_vectors_of_the_same_embedder_in_a_whole_index_are_used_again(
    bases: list[BaseSpec], tmp_path: Path, knowledge: Path, change: str, embedded: int
) -> None:
    folder, fresh = tmp_path / "index", tmp_path / "fresh"
    build_index(bases, folder, WordEmbedder())
    if change == "damage":
        file = current(folder) / KEYWORDS
        file.write_bytes(file.read_bytes()[:-9])
    (knowledge / "product/new.md").write_text("# New\n\nHome Plus costs more.\n")
    embedder, keep = WordEmbedder("2" if change == "embedder" else "1"), change == "stop words"
    assert build_index(bases, folder, embedder, keep_stop_words=keep).embedded == embedded
    build_index(bases, fresh, embedder, keep_stop_words=keep)
    for name in FILES:
        assert (current(folder) / name).read_bytes() == (current(fresh) / name).read_bytes(), name
