"""Any sentence-transformers model, by name or folder, behind what the embedder asks of a model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from program.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

BATCH = 32
WINDOW = 512  # tokens read of a text by a model that does not say


class SentenceModel:
    """The model of that name, loaded at once. Raises `ModelError` when it cannot be loaded."""

    def __init__(self, name: str) -> None:
        from sentence_transformers import SentenceTransformer
        from transformers.utils.logging import disable_progress_bar, enable_progress_bar

        disable_progress_bar()  # one second's work, and it would be shown amid an answer
        try:
            self._model = SentenceTransformer(name, device="cpu")
        except (OSError, ValueError) as error:
            raise ModelError(
                f"The embedding model {name!r} cannot be loaded: {error}.",
                'Name a sentence-transformers model or folder in [models] embed, or use "local/minilm".',
            ) from error
        finally:
            enable_progress_bar()
        self._window = self._model.max_seq_length or WINDOW
        self._tells_places = getattr(self._model.tokenizer, "is_fast", False)
        self.dimension = int(self._model.get_embedding_dimension() or 0)
        self.room = self._window - 2

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape (len(texts), dimension), rows of unit length."""
        vectors = self._model.encode(
            list(texts), batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True
        )
        return np.asarray(vectors, np.float32)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where each token of a text begins and ends; words where the tokenizer does not say."""
        if not self._tells_places:
            return _words(text)
        read = self._model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return [(start, end) for start, end in read["offset_mapping"]]

    def token_vectors(self, texts: Sequence[str]) -> list[tuple[list[str], list[tuple[int, int]], NDArray[np.float32]]]:
        """Of each text the names, the places and the vectors of its first tokens; each word's own vector where the
        tokenizer does not say where its tokens lie."""
        return [self._read(text) for text in texts]

    def _read(self, text: str) -> tuple[list[str], list[tuple[int, int]], NDArray[np.float32]]:
        if not self._tells_places:
            places = _words(text)[: self.room]
            words = [text[start:end].lower() for start, end in places]
            return words, places, self.encode(words) if words else np.zeros((0, self.dimension), np.float32)
        read = self._model.tokenizer(text, return_offsets_mapping=True, truncation=True, max_length=self._window)
        vectors = self._model.encode([text], output_value="token_embeddings", show_progress_bar=False)[0].numpy()
        kept = [n for n, (start, end) in enumerate(read["offset_mapping"][: len(vectors)]) if end > start]
        names = self._model.tokenizer.convert_ids_to_tokens(read["input_ids"])
        return [names[n] for n in kept], [tuple(read["offset_mapping"][n]) for n in kept], vectors[kept]


def _words(text: str) -> list[tuple[int, int]]:
    return [word.span() for word in re.finditer(r"\S+", text)]
