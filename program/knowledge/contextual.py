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
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float32]

Span = tuple[int, int]

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


class TokenModel(Protocol):
    """A model that gives a vector to each token of a text. `room` is how many tokens it reads at once."""

    @property
    def room(self) -> int: ...

    def spans(self, text: str) -> list[Span]:
        """Where each token of the whole text begins and ends."""
        ...

    def token_vectors(self, text: str) -> tuple[list[str], list[Span], Array]:
        """The names, the places and the vectors of its first tokens, any that mark begin and end left out."""
        ...


def read(model: TokenModel, head: str, pieces: Sequence[str]) -> list[Tokens]:
    """The tokens of each piece, read behind `head` and beside its neighbours.

    Pieces that do not fit into the model's window together are read in several, each behind the head, which is cut
    to a quarter of it; what of a single piece does not fit is left out.
    """
    spans, most = model.spans(head), int(model.room * HEAD_SHARE)
    if len(spans) > most:
        head, spans = head[: spans[most][0]].rstrip(), spans[:most]
    lengths = [len(model.spans(piece)) for piece in pieces]
    found: list[Tokens] = []
    for window in _windows(pieces, lengths, model.room - len(spans)):
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


def _read(model: TokenModel, head: str, pieces: Sequence[str]) -> list[Tokens]:
    text, places = head, []
    for piece in pieces:
        text += " " if text else ""
        places.append((len(text), len(text) + len(piece)))
        text += piece
    names, spans, vectors = model.token_vectors(text)
    found = []
    for start, end in places:
        at = [n for n, (a, b) in enumerate(spans) if start <= a < b <= end]
        found.append(Tokens.of([names[n] for n in at], vectors[at]))
    return found


def _unit(vectors: Array) -> Array:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-9), np.float32)
