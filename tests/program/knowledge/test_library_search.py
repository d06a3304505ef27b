"""The library over an index: what a search finds, by which parts, kept for whom; and what ranks it."""

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi
from word_embedder import WordEmbedder

from ragc import storage
from ragc.errors import KnowledgeError
from ragc.knowledge.documents import KEPT_BYTES, MOST_KEPT, PASSAGE_BYTES, count_kept
from ragc.knowledge.index.build import build_index
from ragc.knowledge.index.fusion import STRATEGIES, Keywords, fuse, rank_positions
from ragc.knowledge.library import Library
from ragc.knowledge.testing import SourceConformance
from ragc.loop.evidence import rank_pool
from ragc.loop.policy import Policy
from ragc.passage import NO_FILTERS, Filters, Passage, Source, SourceCard
from ragc.settings import DocumentsSettings
from ragc.storage import DiskCache
from ragc.text.words import split_words

QUESTION = "how many days until a yearly plan is refunded"
BASES = ["product", "billing", "web"]


class Orders(Source):
    """A source made elsewhere, of one row."""

    def describe(self):
        return SourceCard("orders", "tables", "orders")

    def candidates(self, query, depth, filters=NO_FILTERS):
        return [Passage("orders#1", "orders", "t", "a row", 0.9, "sql")]


class Down(Orders):
    """A source that fails."""

    def describe(self):
        return SourceCard("down", "web", "nothing")

    def candidates(self, query, depth, filters=NO_FILTERS):
        raise KnowledgeError("The search provider of down answered with status 500.", "Look whether it works.")


@pytest.fixture
def folder(bases, tmp_path):
    build_index(bases, tmp_path / "index", WordEmbedder())
    return tmp_path / "index"


@pytest.fixture
def library(bases, folder, embedder):
    return Library.open(bases, folder, embedder, [Orders()])


class TestDocumentsAreASource(SourceConformance):
    @pytest.fixture(params=["product", "web"])
    def source(self, library, request):
        return library.sources[request.param]

    @pytest.fixture
    def query(self):
        return "how long is video kept on a plan when remote unlock is down"


def test_a_search_pools_its_sources_with_one_embedding_of_the_query_under_its_filters(library, embedder):
    kinds = [(c.name, c.kind) for c in library.describe()]
    assert kinds == [("product", "documents"), ("billing", "documents"), ("web", "web"), ("orders", "tables")]
    found = library.search(QUESTION, BASES, k=4, weight=0.5)
    assert found[0].source == "billing" and len(found) == 4 and embedder.computed == [QUESTION]
    assert {p.source for p in library.search(QUESTION, k=20)} == {*BASES, "orders"}
    assert library.search(QUESTION, [], k=20) == []
    only = library.sources["billing"].search("four cells in a Warden lock", 10)
    assert {p.source for p in only} == {"billing"} and len(only) == 3
    assert library.search(QUESTION, BASES, 20, filters=Filters(attributes=(("team", "none"),))) == []


def test_names_that_are_unknown_twice_or_not_indexed_are_errors(library, bases, folder, embedder, knowledge, tmp_path):
    with pytest.raises(KnowledgeError, match=r"no source 'legal'.*product, billing, web, orders"):
        library.search(QUESTION, ["legal"])
    with pytest.raises(KnowledgeError, match=r"no knowledge base 'more'.*ragc index"):
        Library.open({**bases, "more": DocumentsSettings(path=str(knowledge))}, folder, embedder)
    with pytest.raises(KnowledgeError, match=r"Two sources have the name 'orders'"):
        Library.open(bases, folder, embedder, [Orders(), Orders()])
    alone = Library.open({}, tmp_path / "none", embedder, [Orders()])  # needs no index
    assert [p.id for p in alone.search("orders of May", k=3)] == ["orders#1"] and alone.passages() == []


def test_a_source_that_fails_is_left_out_and_told_unless_all_do(bases, folder, embedder):
    library = Library.open(bases, folder, embedder, [Down()])
    told = []
    found = library.candidates(QUESTION, failed=lambda name, error: told.append((name, error.what)))
    assert {p.source for p in found} == set(BASES)
    assert told == [("down", "The search provider of down answered with status 500.")]
    with pytest.raises(KnowledgeError, match="status 500"):
        library.search(QUESTION, ["down"])


def test_a_cache_keeps_bytes_for_every_reader_and_makes_room(tmp_path):
    cache = DiskCache(tmp_path / "cache.sqlite", max_bytes=400_000)
    cache.put({"a": b"damaged"})
    cache.put({"a": b"whole", "half \ud800 a character": b"2"})
    for reader in (cache, DiskCache(tmp_path / "cache.sqlite")):
        assert reader.get(["a", "b", "half \ud800 a character"]) == {"a": b"whole", "half \ud800 a character": b"2"}
    for n in range(20):
        cache.put({f"{n} {k}": bytes(1_000) for k in range(100)})
    assert set(cache.get(["a", "0 0", "19 99"])) == {"19 99"}
    assert (tmp_path / "cache.sqlite").stat().st_size < 1_000_000


def test_a_lock_on_a_cache_costs_what_was_to_be_kept_meanwhile_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "WAIT", 0.1)
    monkeypatch.setattr(storage, "PAUSE", 1.0)
    path = tmp_path / "cache.sqlite"
    held, opened_later = DiskCache(path), DiskCache(path)
    held.put({"a": b"1"})
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # as another process that drops its oldest entries
        for cache in (held, opened_later):
            cache.put({"b": b"2"})
            assert cache.get(["a", "b"]) == {"a": b"1"}
        other.execute("COMMIT")
    time.sleep(storage.PAUSE)
    for cache, key in ((held, "b"), (opened_later, "c")):
        cache.put({key: b"3"})
        assert cache.get(["a", key]) == {"a": b"1", key: b"3"}


FILLER = {
    f"hall-{n:02}.md": f"# Hall {n}\n\nA hall of {n} rooms stands by a lake and was painted grey." for n in range(30)
}
HOUSES = {
    "kraus.md": "---\nteam: survey\n---\n# Kraus House\n\nThe house was built by a brewer and stands in Missouri.",
    "meramec.md": "# Meramec River\n\nIn Missouri the longest stream rises near Salem and bends past many bluffs.",
    "salem.md": "# Ohio Canal\n\nA canal in Ohio that boats left long ago, cut by hand over nine years.",
}
STATE = "Where does the longest stream rise in the state of Kraus House?"


@pytest.fixture
def houses(write, tmp_path, embedder):
    for name, text in (FILLER | HOUSES).items():
        base = write(name, text)
    bases = {"notes": DocumentsSettings(kind="graph", path=str(base))}
    build_index(bases, tmp_path / "houses", embedder)
    return Library.open(bases, tmp_path / "houses", embedder)


def test_what_a_named_thing_mentions_leads_to_the_passage_about_it(houses):
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


def test_an_attribute_that_the_question_names_raises_its_passages_and_filters_hold(houses):
    found = houses.candidates(STATE, filters=Filters(attributes=(("team", "Survey"),)))
    assert [p.title for p in found] == ["Kraus House"]
    for question, higher in (("a house of the survey", True), ("a house of the brewer", False)):
        kraus = next(p for p in houses.candidates(question) if p.title == "Kraus House")
        assert ("survey" in kraus.reason) == higher


def ids(passages):
    return [p.id for p in passages]


TERM = st.sampled_from([*"abcdefgh", "é", "鍵"])
CORPUS = st.lists(st.lists(TERM, max_size=12), min_size=1, max_size=20).filter(any)


@given(st.integers(0, 10**8))
def test_the_scores_of_several_questions_are_kept_as_far_as_they_fit(passages):
    kept = count_kept(passages)
    assert 1 <= kept <= MOST_KEPT
    assert kept == 1 or kept * passages * PASSAGE_BYTES <= KEPT_BYTES


@given(CORPUS, st.lists(TERM | st.just("unseen"), max_size=6))
def test_scores_are_those_of_rank_bm25(corpus, query):
    scores = Keywords.from_texts(map(" ".join, corpus), keep_stop_words=True, stem=False).scores(" ".join(query))
    np.testing.assert_allclose(scores, BM25Okapi(corpus).get_scores(query), rtol=1e-12, atol=1e-12)


def test_words_are_stems_in_any_script_with_numbers_whole_and_without_function_words():
    assert split_words("The company’s LOCKS locked at 4.50, v3.8") == ["compani", "lock", "lock", "4.50", "v3", "8"]
    assert split_words("Größe Ärger") == split_words("größe A\u0308rger")
    assert split_words("日本語 鍵") == ["日", "本", "語", "日本", "本語", "鍵"]
    assert split_words("iPhone用の1,200円, 요금은") == [
        *("iphon", "用", "の", "用の", "1,200", "円", "요", "금", "은", "요금", "금은"),
    ]
    assert split_words("What is the refund?", keep_stop_words=True) == ["what", "is", "the", "refund"]
    assert Keywords.from_texts(["the lock", "a key", "a door"]).scores("the").tolist() == [0, 0, 0]
    assert Keywords.from_texts(["", "..."]).scores("lock").tolist() == [0.0, 0.0]
    assert Keywords.from_texts([]).scores("lock").tolist() == []
    texts = [f"running{n} generalisations{n} happily{n}" for n in range(400)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(split_words, texts * 2))
    assert found[:400] == found[400:] == [split_words(t) for t in texts]


CJK = st.text("東京都の料金は円時間カタカナー한국어요금韩國語", min_size=1, max_size=12)


@given(CJK, CJK, CJK, st.sampled_from(["", " ", "。", "2400", "iPhone"]))
def test_what_stands_in_a_text_that_no_space_parts_is_found_by_any_stretch_of_it(before, asked, after, between):
    text = f"{before}{between}{asked}{after}"
    assert {*split_words(asked)} <= {*split_words(text)}
    others = ["今日も晴れです", "the fee is 5", "가나다", "a word in half of the texts weighs nothing"]
    scores = Keywords.from_texts([text, *others] * 4).scores(asked)
    assert scores[0] == max(scores) and scores[0] > scores[2]


PART = st.floats(-1, 1, allow_subnormal=False)
SCORES = st.fixed_dictionaries({}, optional={"dense": PART, "keyword": st.floats(0, 40, allow_subnormal=False)})


def passage(id, scores, method="dense", score=0.0):
    return Passage(id, "s", "t", f"text {id}", score, method, scores=scores)


POOL = [
    passage("a", {"dense": 0.9, "keyword": 0.0}),
    passage("b", {"dense": 0.5, "keyword": 8.0}),
    passage("c", {"dense": 0.1, "keyword": 4.0}),
]


def test_a_fusion_is_the_published_sum():
    convex = {p.id: p.score for p in fuse(POOL, 0.6, 3)}
    assert convex == pytest.approx({"b": 0.6 * 0.5 + 0.4, "a": 0.6, "c": 0.4 * 0.5})
    assert ids(fuse(POOL, 1.0, 3)) == ["a", "b", "c"] and ids(fuse(POOL, 0.0, 3)) == ["b", "c", "a"]
    assert fuse([], 0.5, 3) == fuse(POOL, 0.5, 0) == []


def test_a_missing_part_is_the_lowest_and_a_source_without_parts_keeps_its_score_and_method():
    pool = [*POOL, passage("d", {"dense": 0.9}), passage("e", {"keyword": 8.0})]
    pool += [passage("f", {"dense": 0.2, "keyword": 2.0}, "web")]
    pool += [passage(id, {}, "sql", score) for id, score in (("g", 0.7), ("h", 3.0))]
    found = {p.id: p for p in fuse(pool, 0.5, 9)}
    assert found["d"].score == pytest.approx(found["a"].score) == pytest.approx(found["e"].score) == 0.5
    assert (found["g"].score, found["h"].score) == (0.7, 1.0)
    assert " ".join(found[id].method for id in "abcdefg") == "dense both both dense keyword web sql"


@given(st.lists(SCORES, max_size=30), st.floats(0, 1), st.integers(1, 40), st.randoms())
def test_results_are_the_first_k_of_one_order_in_zero_to_one_whatever_the_order_of_the_pool(scores, weight, k, random):
    pool = [passage(f"p{n:03}", parts) for n, parts in enumerate(scores)]
    found = fuse(pool, weight, k)
    assert len(found) == min(k, len(pool)) and all(0 <= p.score <= 1 for p in found)
    assert found == sorted(found, key=lambda p: (-p.score, p.id))
    positions = rank_positions(pool, weight, k)
    assert [(pool[at].id, score) for at, score in positions] == [(p.id, p.score) for p in found]
    random.shuffle(pool)
    assert fuse(pool, weight, k) == found


TEXTS = st.lists(st.tuples(SCORES, st.sampled_from(["one", "two", "three", "four"])), max_size=30)


@given(TEXTS, st.floats(0, 1), st.integers(1, 6))
def test_copies_of_a_text_count_as_one_passage_the_best_of_them_before_k_is_cut(parts, weight, k):
    pool = [Passage(f"p{n:03}", "s", "t", text, scores=scores) for n, (scores, text) in enumerate(parts)]
    found, every = fuse(pool, weight, k), fuse([replace(p, text=p.id) for p in pool], weight, 30)
    assert len(found) == min(k, len({p.text for p in pool}))
    texts = {p.id: p.text for p in pool}
    for one in found:
        same = [p for p in every if texts[p.id] == one.text]
        assert (one.id, one.score, one.copies) == (same[0].id, same[0].score, tuple(p.id for p in same[1:]))
    assert ids(found) == [p.id for p in every if p.id in ids(found)]
    tuning = replace(Policy().tuning(), k=k, dense_weight=weight, graph_weight=0.0)
    assert [(p.id, p.copies) for p in rank_pool(pool, tuning)] == [(p.id, p.copies) for p in found]


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, 1),
        ({"title": "Lamp > Price"}, 1),
        ({"title": "Kettle > Refunds"}, 2),
        ({"as_of": date(2026, 1, 1)}, 2),
        ({"superseded_by": "docs/c.md"}, 2),
        ({"authority": 1}, 2),
    ],
)
def test_the_same_text_of_another_heading_date_or_authority_is_no_copy(fields, count):
    one = Passage("docs/a.md#x", "docs", "Kettle > Price", "It is open.", scores={"dense": 0.5})
    assert len(fuse([one, replace(one, id="docs/b.md#x", **fields)], 0.5, 8)) == count


def test_a_text_that_stands_on_a_hundred_pages_leaves_room_for_the_others(tmp_path, embedder):
    banner, asked = "Call the office for the price of a parcel or of a lamp.", "What is the price of a parcel?"
    for n in range(100):
        (tmp_path / f"p{n:03}.md").write_text(f"# Page\n## Contact\n{banner}\n")
    (tmp_path / "x.md").write_text("# Parcels\nA parcel to an island has a price of 7 euros.\n")
    bases = {"docs": DocumentsSettings(path=str(tmp_path))}
    build_index(bases, tmp_path / "index", WordEmbedder())
    library = Library.open(bases, tmp_path / "index", embedder)
    assert "docs/x.md#parcels" in ids(library.candidates(asked, depth=20))
    first, second = library.search(asked, k=2)
    copies = [f"docs/p{n:03}.md#contact" for n in range(100)]
    page = first if first.copies else second
    assert {first.id, second.id} == {copies[0], "docs/x.md#parcels"} and page.copies == tuple(copies[1:])
