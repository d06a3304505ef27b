"""Texts as the vectors of their tokens, each read in its context: what late interaction compares.

"Late chunking": Guenther et al. 2024, arXiv 2409.04701. MaxSim: Khattab & Zaharia 2020, arXiv 2004.12832.
"""

from __future__ import annotations

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
HeadedText = tuple[str, tuple[str, ...]]
"""A head, and the pieces of text behind it."""
HEAD_SHARE = 0.25  # of a window, at most, is given to the head


@dataclass(frozen=True)
class Tokens:
    """The tokens of some pieces of text, one piece after another, in half precision: passages are kept by the thousand.

    A piece without tokens has one that has no name, and a vector of zeros.
    """

    names: tuple[str, ...]
    """The tokens."""
    starts: NDArray[np.int32]
    """Where each piece begins; shape (pieces,)."""
    vectors: NDArray[np.float16]
    """Unit vectors of the tokens; shape (tokens, dimension)."""
    means: NDArray[np.float16]
    """Unit vectors of the pieces' means; shape (pieces, dimension)."""

    @classmethod
    def from_piece(cls, names: Sequence[str], vectors: Array) -> Tokens:
        """Return one piece, from vectors of any length."""
        if not len(vectors):
            names, vectors = [""], np.zeros((1, vectors.shape[1]), np.float32)
        return cls(tuple(names), np.zeros(1, np.int32), _to_unit(vectors), _to_unit(vectors.mean(0, keepdims=True)))

    @classmethod
    def join_pieces(cls, parts: Sequence[Tokens]) -> Tokens:
        """Return the pieces of all parts."""
        before = np.cumsum([0, *(len(part.names) for part in parts)])
        return cls(
            tuple(name for part in parts for name in part.names),
            np.concatenate([part.starts + n for part, n in zip(parts, before, strict=False)]).astype(np.int32),
            np.concatenate([part.vectors for part in parts]),
            np.concatenate([part.means for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def held(self) -> Mapping[str, int]:
        """How many pieces hold a token, by its name."""
        ends = [*self.starts[1:].tolist(), len(self.names)]
        return Counter(
            name for start, end in zip(self.starts.tolist(), ends, strict=True) for name in set(self.names[start:end])
        )

    def to_bytes(self) -> bytes:
        """Return all of it, for `from_bytes`."""
        told = orjson.dumps([self.names, self.starts.tolist()])
        return len(told).to_bytes(4, "little") + told + self.vectors.tobytes() + self.means.tobytes()

    @classmethod
    def from_bytes(cls, kept: bytes) -> Tokens:
        """Return the tokens that `to_bytes` wrote."""
        end = 4 + int.from_bytes(kept[:4], "little")
        names, starts = orjson.loads(kept[4:end])
        rows = np.frombuffer(kept, np.float16, offset=end).reshape(len(names) + len(starts), -1)
        return cls(tuple(names), np.array(starts, np.int32), rows[: len(names)], rows[len(names) :])


class TokenModel(Protocol):
    """A model that gives a vector to each token of a text."""

    @property
    def room(self) -> int:
        """How many tokens are read at once."""

    def spans(self, text: str) -> list[Span]:
        """Return where each token of the whole text begins and ends."""

    def token_vectors(self, texts: Sequence[str]) -> list[tuple[list[str], list[Span], Array]]:
        """Return each text's first tokens, their places and their vectors.

        Marks of begin and end are left out. A text's vectors do not depend on the others.
        """


def read_tokens(model: TokenModel, passages: Sequence[HeadedText]) -> list[Tokens]:
    """Return the tokens of each passage's pieces.

    They are read behind the passage's head and beside their neighbours. Pieces that do not fit into the model's window
    together are read in several; of a single piece too long for it the rest is left out.
    """
    windows = [list(_list_windows(model, head, pieces)) for head, pieces in passages]
    found = iter(model.token_vectors([text for parts in windows for text, _ in parts]))
    return [
        Tokens.join_pieces([piece for _, places in parts for piece in _cut_pieces(places, *next(found))])
        for parts in windows
    ]


def best_cosines(query: Tokens, pieces: Tokens) -> NDArray[np.float64]:
    """Return the best cosine of each token of the query in each piece.

    Its shape is (tokens of the query, pieces), its values in [-1, 1].
    """
    cosines = query.vectors.astype(np.float32) @ pieces.vectors.astype(np.float32).T
    return np.maximum.reduceat(cosines, pieces.starts, axis=1).astype(np.float64)


def _list_windows(model: TokenModel, head: str, pieces: Sequence[str]) -> Iterator[tuple[str, list[Span]]]:
    """Yield the texts that are read, and where in each the pieces lie."""
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


def _cut_pieces(
    places: Sequence[Span], names: Sequence[str], spans: Sequence[Span], vectors: Array
) -> Iterator[Tokens]:
    for start, end in places:
        at = [n for n, (a, b) in enumerate(spans) if start <= a < b <= end]
        yield Tokens.from_piece([names[n] for n in at], vectors[at])


def _to_unit(vectors: Array) -> NDArray[np.float16]:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-9), np.float16)
