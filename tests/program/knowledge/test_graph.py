"""The graph through the library: what a hop finds, by which way, and that it is kept with the index."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from program.knowledge.index.generation import GRAPH
from word_embedder import WordEmbedder

from program.errors import KnowledgeError
from program.knowledge.index.build import build_index, open_index
from program.knowledge.index.fusion import STRATEGIES
from program.knowledge.ingest.folder import BaseSpec
from program.knowledge.library import Library
from program.passage import Filters

FILLER = [f"# Hall {n}\n\nA hall of {n} rooms stands by a lake and was painted grey." for n in range(30)]
FILES = {
    "kraus.md": "---\nteam: survey\n---\n# Kraus House\n\nThe house was built by a brewer and stands in Missouri.",
    "meramec.md": "# Meramec River\n\nIn Missouri the longest stream rises near Salem and bends past many bluffs.",
    "salem.md": "# Ohio Canal\n\nA canal in Ohio that boats left long ago, cut by hand over nine years.",
    **{f"hall-{n:02}.md": text for n, text in enumerate(FILLER)},
}
QUESTION = "Where does the longest stream rise in the state of Kraus House?"


@pytest.fixture
def library(write: Callable[[str, str], Path], tmp_path: Path, embedder: WordEmbedder) -> Library:
    for name, text in FILES.items():
        folder = write(name, text)
    bases = [BaseSpec("notes", kind="graph", path=folder)]
    build_index(bases, tmp_path / "index", embedder)
    return Library.open(bases, tmp_path / "index", embedder)


def test_what_a_named_thing_mentions_leads_to_the_passage_about_it(library: Library) -> None:
    found = {p.title: p for p in library.candidates(QUESTION)}
    assert found["Kraus House"].reason == 'question > "kraus house" > Kraus House'
    assert found["Meramec River"].reason == 'question > "kraus house" > Kraus House > "missouri" > Meramec River'
    assert found["Meramec River"].scores["graph"] > found["Ohio Canal"].scores["graph"] if "Ohio Canal" in found else 1


def test_what_repeats_the_best_passage_stands_behind_what_adds_to_it(
    write: Callable[[str, str], Path], tmp_path: Path, embedder: WordEmbedder
) -> None:
    plane = "# Harlow {}\n\nThe Harlow {} was a plane of the Harlow works, flown from a Lexow barge."
    for n in (23, 24, 25, 26):
        folder = write(f"harlow-{n}.md", plane.format(n, n))
    write("lexow.md", "# Lexow barge\n\nSuch a ship was first made in 1911 and carried mail.")
    for name, text in FILES.items():
        write(name, text)
    bases = [BaseSpec("notes", path=folder)]
    build_index(bases, tmp_path / "index", embedder)
    library = Library.open(bases, tmp_path / "index", embedder)
    found = [p.title for p in library.search("Of which works was the plane Harlow 23?", k=5)]
    assert found[0] == "Harlow 23" and "Lexow barge" in found[:3]


def test_the_graph_is_a_part_of_every_score_between_zero_and_one(library: Library) -> None:
    pool = library.candidates(QUESTION)
    assert all(0 <= p.scores["graph"] <= 1 for p in pool)
    assert max(p.scores["graph"] for p in pool) > 0.5


def test_a_base_of_kind_graph_is_searched_by_the_graph(library: Library) -> None:
    weight, share = STRATEGIES["graph"]
    by_strategy = library.search(QUESTION, k=5, weight=weight, graph=share)
    assert library.sources["notes"].search(QUESTION, 5) == by_strategy
    assert {p.title for p in by_strategy[:2]} == {"Kraus House", "Meramec River"}


def test_a_passage_that_only_the_graph_reached_is_in_the_pool_and_says_so(library: Library) -> None:
    found = library.candidates("the Kraus House", depth=1)
    assert {p.title for p in found} >= {"Kraus House"}
    deeper = library.candidates("the Kraus House", depth=4)
    assert any(p.method == "graph" and p.title == "Meramec River" for p in deeper)


def test_filters_hold_for_what_the_graph_brings(library: Library) -> None:
    found = library.candidates(QUESTION, filters=Filters(attributes=(("team", "Survey"),)))
    assert [p.title for p in found] == ["Kraus House"]


def test_an_attribute_that_the_question_names_raises_its_passages(library: Library) -> None:
    for question, higher in (("a house of the survey", True), ("a house of the brewer", False)):
        kraus = next(p for p in library.candidates(question) if p.title == "Kraus House")
        assert ("survey" in kraus.reason) == higher


def test_the_graph_is_kept_with_the_index(library: Library, tmp_path: Path) -> None:
    assert library.index is not None
    kept = open_index(tmp_path / "index", WordEmbedder()).graph
    assert kept.keys == library.index.graph.keys
    for name, values in library.index.graph.arrays().items():
        np.testing.assert_array_equal(kept.arrays()[name], values)
    links = kept.links.toarray()
    np.testing.assert_array_equal(links, links.T)
    assert not links.diagonal().any()


def test_a_damaged_graph_is_named_and_mended_by_indexing(library: Library, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    live = folder / str(json.loads((folder / "current.json").read_text())["generation"])
    (live / GRAPH).write_bytes(b"nonsense")
    with pytest.raises(KnowledgeError, match=r"damaged.*ragc index"):
        open_index(folder, WordEmbedder())
    build_index([BaseSpec("notes", kind="graph", path=tmp_path / "base")], folder, WordEmbedder())
    assert open_index(folder, WordEmbedder()).graph.passages == len(FILES)


def test_an_index_of_an_older_format_is_refused_until_it_is_made_again(library: Library, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    manifest = folder / str(json.loads((folder / "current.json").read_text())["generation"]) / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 1}))
    with pytest.raises(KnowledgeError, match=r"format 1.*ragc index"):
        open_index(folder, WordEmbedder())
    renamed = folder / "gen-0123456789abcdef"
    manifest.parent.rename(renamed)
    (folder / "current.json").write_text(json.dumps({"generation": renamed.name}))
    report = build_index([BaseSpec("notes", kind="graph", path=tmp_path / "base")], folder, WordEmbedder())
    assert (report.embedded, report.reused) == (0, len(FILES))
    assert len(open_index(folder, WordEmbedder()).passages) == len(FILES)
