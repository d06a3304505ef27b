from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from program.knowledge.index.keywords import Keywords, split_words

TERM = st.sampled_from([*"abcdefgh", "é", "日本"])
CORPUS = st.lists(st.lists(TERM, max_size=12), min_size=1, max_size=20).filter(any)


@given(CORPUS, st.lists(TERM | st.just("unseen"), max_size=6))
def test_scores_are_those_of_rank_bm25(corpus: list[list[str]], query: list[str]) -> None:
    expected = BM25Okapi(corpus).get_scores(query)
    np.testing.assert_array_equal(Keywords.of_words(corpus).scores_of(query), expected)


@given(CORPUS, st.lists(TERM, max_size=6))
def test_scores_survive_being_saved_as_arrays(corpus: list[list[str]], query: list[str]) -> None:
    made = Keywords.of_words(corpus)
    again = Keywords.from_arrays(made.arrays(), list(made.terms))
    np.testing.assert_array_equal(again.scores_of(query), made.scores_of(query))


def test_texts_without_a_word_score_nothing() -> None:
    assert Keywords.build(["", "..."]).scores("lock").tolist() == [0.0, 0.0]
    assert Keywords.build([]).scores("lock").tolist() == []


def test_words_are_stems_in_any_script_with_numbers_and_versions_whole() -> None:
    assert split_words("The company’s LOCKS locked at 4.50, v3.8") == ["compani", "lock", "lock", "4.50", "v3", "8"]
    assert split_words("Größe Ärger") == split_words("GRÖSSE".lower().replace("ss", "ß") + " A\u0308rger")
    assert split_words("日本語 鍵") == ["日本語", "鍵"]


def test_function_words_are_left_out_unless_kept() -> None:
    assert split_words("What is the refund?") == ["refund"]
    assert split_words("What is the refund?", keep_stop_words=True) == ["what", "is", "the", "refund"]
    assert Keywords.build(["the lock", "a key", "a door"], keep_stop_words=True).scores("the")[0] > 0
    assert Keywords.build(["the lock", "a key", "a door"]).scores("the").tolist() == [0, 0, 0]


def test_many_threads_stem_alike() -> None:
    texts = [f"running{n} generalisations{n} happily{n}" for n in range(400)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(split_words, texts * 2))
    assert found[:400] == found[400:] == [split_words(t) for t in texts]
