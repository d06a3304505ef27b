"""A cross-encoder's word on the best passages: it reads the question and a passage together. Optional."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from program.errors import ModelError
from program.knowledge.index.fusion import GRAPH, WEIGHT, ranking
from program.passage import Passage, embedding_text

READ = 20
"""Passages of a base that are read, the best by the default fusion."""


class Reranker:
    """A sentence-transformers cross-encoder by name or folder, loaded at the first question. Thread-safe."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()

    def rerank(self, question: str, pool: Sequence[Passage]) -> list[Passage]:
        """The pool in its order; the best READ of it with a `rerank` part in [0, 1].

        Raises ModelError when the model cannot be loaded.
        """
        best = [at for at, _ in ranking(pool, WEIGHT, READ, graph=GRAPH)]
        if not best:
            return list(pool)
        from torch.nn import Sigmoid

        pairs = [(question, embedding_text(pool[at])) for at in best]
        with self._lock:
            # Of several labels the last is the one that says yes.
            raw = self._model.predict(pairs, activation_fn=Sigmoid(), show_progress_bar=False)
        scores = np.asarray(raw, np.float64).reshape(len(best), -1)[:, -1]
        read = dict(zip(best, scores, strict=True))
        return [
            p.rescored(p.score, None, {**p.scores, "rerank": float(read[at])}) if at in read else p
            for at, p in enumerate(pool)
        ]

    @cached_property
    def _model(self) -> Any:
        from sentence_transformers import CrossEncoder

        try:
            return CrossEncoder(self.name, device="cpu")
        except (OSError, ValueError) as error:
            raise ModelError(
                f"The cross-encoder {self.name!r} cannot be loaded: {error}.",
                "Name a sentence-transformers cross-encoder or its folder in [models] rerank, or leave it empty.",
            ) from error
