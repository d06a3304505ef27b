"""An embedder without a model, for tests and the processes they start."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from program.models.embedded.encoder import Embedder
from program.models.text import split_words

SIZE = 64


class WordEmbedder(Embedder):
    """Texts with words in common are near each other. `computed` lists what was not already known."""

    def __init__(self, version: str = "1") -> None:
        super().__init__(f"words-{version}")
        self.computed: list[str] = []
        self.known: dict[str, NDArray[np.float32]] = {}

    @property
    def digest(self) -> str:
        return f"name:{self.name}"

    @property
    def dimension(self) -> int:
        return SIZE

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        time.sleep(float(os.environ.get("EMBED_SECONDS", "0")))
        for text in texts:
            if text not in self.known:
                self.computed.append(text)
                self.known[text] = _vector(text)
        return np.stack([self.known[t] for t in texts])

    def put(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        self.known.update(zip(texts, vectors, strict=True))


def _vector(text: str) -> NDArray[np.float32]:
    total = np.full(SIZE, 1e-3, np.float32)
    for word in split_words(text):
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
        total += np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)
    return total / np.linalg.norm(total)
