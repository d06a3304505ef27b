"""Texts as the vectors of their tokens, each read in its context: what late interaction compares.

A sentence embedded alone loses what it speaks of; its tokens, read amid the passage, keep it ("late chunking",
Guenther et al. 2024, arXiv 2409.04701). Texts are compared token by token (MaxSim, Khattab & Zaharia 2020,
arXiv 2004.12832).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float32]

HEAD_SHARE = 0.25  # of a window, at most, is given to the head
ANYWHERE = ""  # the weight of a token that no counted text holds


@dataclass(frozen=True, slots=True)
class Tokens:
    """A piece of text: the names of its tokens, their unit vectors (tokens, dimension), and the unit vector of their
    mean (dimension,). A piece without tokens has one zero vector."""

    names: tuple[str, ...]
    vectors: Array
    mean: Array

    @classmethod
    def of(cls, names: Sequence[str], vectors: Array) -> Tokens:
        """From vectors of any length."""
        if not len(vectors):
            vectors = np.zeros((1, vectors.shape[1]), np.float32)
        return cls(tuple(names), _unit(vectors), _unit(vectors.mean(axis=0)))


def read(model: Any, head: str, pieces: Sequence[str]) -> list[Tokens]:
    """The tokens of each piece, read behind `head` and beside its neighbours.

    `model` is a `SentenceTransformer`. Pieces that do not fit into its window together are read in several, each
    behind the head; what of a single piece does not fit is left out. A model that cannot say where its tokens lie
    gives each piece as one token.
    """
    if not getattr(model.tokenizer, "is_fast", False):
        vectors = np.asarray(model.encode(list(pieces), show_progress_bar=False), np.float32)
        return [Tokens.of([piece], row[None]) for piece, row in zip(pieces, vectors, strict=True)]
    lengths = [len(ids) for ids in model.tokenizer([head, *pieces], add_special_tokens=False)["input_ids"]]
    room = (model.max_seq_length or 512) - 2
    head = _cut(model, head, int(room * HEAD_SHARE)) if lengths[0] > room * HEAD_SHARE else head
    room -= min(lengths[0], int(room * HEAD_SHARE))
    found: list[Tokens] = []
    for window in _windows(pieces, lengths[1:], room):
        found += _read(model, head, window)
    return found


def rarity(texts: Iterable[Tokens]) -> Mapping[str, float]:
    """The weight of each token: ln(1 + texts / texts that hold it); `ANYWHERE` has that of a token in none."""
    counts: Counter[str] = Counter()
    total = 0
    for text in texts:
        counts.update(set(text.names))
        total += 1
    return {name: math.log(1 + total / n) for name, n in counts.items()} | {ANYWHERE: math.log(1 + total)}


def max_sim(query: Tokens, pieces: Sequence[Tokens], weights: Mapping[str, float]) -> NDArray[np.float64]:
    """Shape (pieces,), in [-1, 1]: the mean, by weight, over the query's tokens of the best cosine in each piece."""
    weight = np.array([weights.get(name, weights[ANYWHERE]) for name in query.names] or [1.0])
    starts = np.cumsum([0, *(len(piece.vectors) for piece in pieces)])[:-1]
    alike = query.vectors @ np.concatenate([piece.vectors for piece in pieces]).T
    best = np.maximum.reduceat(alike, starts, axis=1).astype(np.float64)
    return np.asarray(weight @ best / weight.sum())


def _windows(pieces: Sequence[str], lengths: Sequence[int], room: int) -> list[list[str]]:
    windows: list[list[str]] = []
    left = 0
    for piece, length in zip(pieces, lengths, strict=True):
        if not windows or length > left:
            windows.append([])
            left = room
        windows[-1].append(piece)
        left -= length
    return windows


def _read(model: Any, head: str, pieces: Sequence[str]) -> list[Tokens]:
    text, spans = head, []
    for piece in pieces:
        text += " " if text else ""
        spans.append((len(text), len(text) + len(piece)))
        text += piece
    encoded = model.tokenizer(
        text, return_offsets_mapping=True, truncation=True, max_length=model.max_seq_length or 512
    )
    vectors = model.encode([text], output_value="token_embeddings", show_progress_bar=False)[0].numpy()
    # The last bits depend on the threads at work; rounding makes a text's vectors its own.
    vectors = np.asarray(np.round(vectors, 5), np.float32)
    names = model.tokenizer.convert_ids_to_tokens(encoded["input_ids"])
    found = []
    for start, end in spans:
        at = [n for n, (a, b) in enumerate(encoded["offset_mapping"][: len(vectors)]) if start <= a < b <= end]
        found.append(Tokens.of([names[n] for n in at], vectors[at]))
    return found


def _cut(model: Any, text: str, tokens: int) -> str:
    """The beginning of the text, at most so many tokens."""
    offsets = model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    return text[: offsets[tokens][0]].rstrip() if len(offsets) > tokens else text


def _unit(vectors: Array) -> Array:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-9), np.float32)
