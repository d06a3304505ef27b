"""Texts as the vectors of their tokens, each read in its context: what late interaction compares.

A sentence embedded alone loses what it speaks of; its tokens, read amid the passage, keep it ("late chunking",
Guenther et al. 2024, arXiv 2409.04701). Texts are compared token by token (MaxSim, Khattab & Zaharia 2020,
arXiv 2004.12832).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import orjson

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float32]

Span = tuple[int, int]
Passage = tuple[str, tuple[str, ...]]  # the head, and the pieces behind it

HEAD_SHARE = 0.25  # of a window, at most, is given to the head
ANYWHERE = ""  # the weight of a token that no counted text holds


@dataclass(frozen=True)
class Tokens:
    """The tokens of some pieces of text, one piece after another.

    `names` has each token's, `vectors` (tokens, dimension) its unit vector; `starts` (pieces,) says where each piece
    begins, and `means` (pieces, dimension) holds the unit vector of its mean. Vectors have half precision: the tokens
    of a passage are kept by the thousand. A piece without tokens has one that has no name, and a vector of zeros.
    """

    names: tuple[str, ...]
    starts: NDArray[np.int32]
    vectors: NDArray[np.float16]
    means: NDArray[np.float16]

    @classmethod
    def of(cls, names: Sequence[str], vectors: Array) -> Tokens:
        """One piece, from vectors of any length."""
        if not len(vectors):
            names, vectors = [""], np.zeros((1, vectors.shape[1]), np.float32)
        return cls(tuple(names), np.zeros(1, np.int32), _unit(vectors), _unit(vectors.mean(axis=0, keepdims=True)))

    @classmethod
    def joined(cls, parts: Sequence[Tokens]) -> Tokens:
        """The pieces of all parts."""
        before = np.cumsum([0, *(len(part.names) for part in parts)])
        return cls(
            tuple(name for part in parts for name in part.names),
            np.concatenate([part.starts + n for part, n in zip(parts, before, strict=False)]).astype(np.int32),
            np.concatenate([part.vectors for part in parts]),
            np.concatenate([part.means for part in parts]),
        )

    def __len__(self) -> int:
        """How many pieces."""
        return len(self.starts)

    @cached_property
    def held(self) -> Mapping[str, int]:
        """By name of a token, how many pieces hold it."""
        return Counter(name for piece in self for name in set(piece.names))

    def __iter__(self) -> Iterator[Tokens]:
        """Each piece by itself."""
        ends = [*self.starts[1:].tolist(), len(self.names)]
        for n, (start, end) in enumerate(zip(self.starts.tolist(), ends, strict=True)):
            first = np.zeros(1, np.int32)
            yield Tokens(self.names[start:end], first, self.vectors[start:end], self.means[n : n + 1])

    def to_bytes(self) -> bytes:
        """All of it, for `from_bytes`."""
        told = orjson.dumps([self.names, self.starts.tolist()])
        return len(told).to_bytes(4, "little") + told + self.vectors.tobytes() + self.means.tobytes()

    @classmethod
    def from_bytes(cls, kept: bytes) -> Tokens:
        end = 4 + int.from_bytes(kept[:4], "little")
        names, starts = orjson.loads(kept[4:end])
        rows = np.frombuffer(kept, np.float16, offset=end).reshape(len(names) + len(starts), -1)
        return cls(tuple(names), np.array(starts, np.int32), rows[: len(names)], rows[len(names) :])


class TokenModel(Protocol):
    """A model that gives a vector to each token of a text. `room` is how many tokens it reads at once."""

    @property
    def room(self) -> int: ...

    def spans(self, text: str) -> list[Span]:
        """Where each token of the whole text begins and ends."""
        ...

    def token_vectors(self, texts: Sequence[str]) -> list[tuple[list[str], list[Span], Array]]:
        """Of each text the names, the places and the vectors of its first tokens, any that mark begin and end left
        out. A text's vectors do not depend on the others."""
        ...


def read(model: TokenModel, passages: Sequence[Passage]) -> list[Tokens]:
    """The tokens of each passage's pieces, read behind its head and beside their neighbours.

    Pieces that do not fit into the model's window together are read in several, each behind the head, which is cut
    to a quarter of it; what of a single piece does not fit is left out.
    """
    windows = [list(_windows(model, head, pieces)) for head, pieces in passages]
    found = iter(model.token_vectors([text for parts in windows for text, _ in parts]))
    return [
        Tokens.joined([piece for _, places in parts for piece in _pieces(places, *next(found))]) for parts in windows
    ]


def rarity(parts: Sequence[Tokens]) -> Mapping[str, float]:
    """The weight of each token: ln(1 + pieces / pieces that hold it); `ANYWHERE` has that of a token in none."""
    counts, n = Counter[str](), sum(len(part) for part in parts)
    for part in parts:
        counts.update(part.held)
    return {name: math.log(1 + n / held) for name, held in counts.items()} | {ANYWHERE: math.log(1 + n)}


def alike(query: Tokens, pieces: Tokens) -> NDArray[np.float64]:
    """Shape (tokens of the query, pieces), in [-1, 1]: the best cosine of each token in each piece."""
    cosines = query.vectors.astype(np.float32) @ pieces.vectors.astype(np.float32).T
    return np.maximum.reduceat(cosines, pieces.starts, axis=1).astype(np.float64)


def max_sim(names: Sequence[str], best: NDArray[np.float64], weights: Mapping[str, float]) -> NDArray[np.float64]:
    """Shape (pieces,), in [-1, 1]: the mean, by weight, over a query's tokens of their `best` cosine in each piece."""
    weight = np.array([weights.get(name, weights[ANYWHERE]) for name in names])
    return np.asarray(weight @ best / weight.sum())


def _windows(model: TokenModel, head: str, pieces: Sequence[str]) -> Iterator[tuple[str, list[Span]]]:
    """The texts that are read, and where in each the pieces lie."""
    spans, most = model.spans(head), int(model.room * HEAD_SHARE)
    if len(spans) > most:
        head, spans = head[: spans[most][0]].rstrip(), spans[:most]
    text, places, left = head, list[Span](), model.room - len(spans)
    for piece in pieces:
        length = len(model.spans(piece))
        if places and length > left:
            yield text, places
            text, places, left = head, [], model.room - len(spans)
        text += " " if text else ""
        places.append((len(text), len(text) + len(piece)))
        text += piece
        left -= length
    yield text, places


def _pieces(places: Sequence[Span], names: Sequence[str], spans: Sequence[Span], vectors: Array) -> Iterator[Tokens]:
    for start, end in places:
        at = [n for n, (a, b) in enumerate(spans) if start <= a < b <= end]
        yield Tokens.of([names[n] for n in at], vectors[at])


def _unit(vectors: Array) -> NDArray[np.float16]:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-9), np.float16)
