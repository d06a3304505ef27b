from __future__ import annotations

from pathlib import Path

import pytest
from word_embedder import WordEmbedder

from program.errors import KnowledgeError
from program.knowledge.documents import Documents
from program.knowledge.index.build import build_index, open_index
from program.knowledge.ingest.folder import BaseSpec
from program.knowledge.testing import SourceConformance
from program.passage import Source, SourceCard


@pytest.fixture
def documents(bases: list[BaseSpec], tmp_path: Path, embedder: WordEmbedder) -> dict[str, Documents]:
    build_index(bases, tmp_path / "index", embedder)
    index = open_index(tmp_path / "index", embedder)
    return {b.name: Documents(b.card(), index, embedder) for b in bases}


class TestDocumentsAreASource(SourceConformance):
    @pytest.fixture
    def source(self, documents: dict[str, Documents]) -> Source:
        return documents["product"]

    @pytest.fixture
    def query(self) -> str:
        return "how long is video kept on a plan"


class TestSavedPagesAreASource(SourceConformance):
    @pytest.fixture
    def source(self, documents: dict[str, Documents]) -> Source:
        return documents["web"]

    @pytest.fixture
    def query(self) -> str:
        return "why was remote unlock down"


def test_a_search_looks_into_its_own_base_only(documents: dict[str, Documents]) -> None:
    found = documents["billing"].search("four cells in a Warden lock", 10)
    assert {p.source for p in found} == {"billing"} and len(found) == 3


def test_every_candidate_has_all_parts_even_where_one_search_missed_it(
    documents: dict[str, Documents],
) -> None:
    for depth in (1, 2, 9):
        found = documents["product"].candidates("door cells GBP", depth)
        assert len(found) <= 2 * depth + (depth + 1) // 2
        assert all(set(p.scores) == {"dense", "keyword", "graph"} for p in found)


def test_keyword_scores_of_different_bases_compare(documents: dict[str, Documents]) -> None:
    index = documents["product"].index
    scores = index.keywords.scores("video refunded months")
    for source in documents.values():
        for passage in source.candidates("video refunded months", 9):
            assert passage.scores["keyword"] == scores[index.rows[passage.id]]


def test_the_method_says_whether_a_word_matched_and_saved_pages_say_web(
    documents: dict[str, Documents],
) -> None:
    methods = {p.method for p in documents["product"].candidates("cells", 9)}
    assert methods == {"dense", "both"}
    assert {p.method for p in documents["web"].search("hosting fault", 9)} == {"web"}


def test_a_base_that_is_not_indexed_is_named_at_once(documents: dict[str, Documents]) -> None:
    source = documents["product"]
    with pytest.raises(KnowledgeError, match="no knowledge base 'legal'"):
        Documents(SourceCard("legal", "documents", "contracts"), source.index, source.embedder)
