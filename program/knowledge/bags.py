"""Rows of words as arrays: a distinct word is written once, and rows are taken and joined without a loop over them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Bags:
    """The words of each row, in order and each once, with a whole number beside each.

    Row i is `places[starts[i]:starts[i + 1]]`, numbers in `words`, beside as many `values`. Words are numbered as they
    first appear, row after row, so that the same rows are the same arrays, however they came about.
    """

    words: tuple[str, ...]
    starts: NDArray[np.int64]
    places: NDArray[np.int32]
    values: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, int]]) -> Bags:
        """These rows."""
        growing = GrowingBags()
        for row in rows:
            growing.add(row)
        return growing.bags()

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], name: str) -> Bags:
        """The rows that `arrays` were taken from under that name."""
        words = arrays[f"{name}.words"].tobytes().decode().split("\n")[:-1]
        parts = (arrays[f"{name}.{part}"] for part in ("starts", "places", "values"))
        return cls(tuple(words), *parts)

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """The rows as plain arrays, each called by that name and a part's; no word may hold a line's end."""
        written = "".join(f"{word}\n" for word in self.words).encode()
        return {
            f"{name}.words": np.array(bytearray(written), np.uint8),
            f"{name}.starts": self.starts,
            f"{name}.places": self.places,
            f"{name}.values": self.values,
        }

    def followed_by(self, others: Bags, rows: NDArray[np.int64]) -> Bags:
        """Those `rows` of these and the others, which are numbered on from the last of these."""
        number = {word: at for at, word in enumerate(self.words)}
        renumbered = np.array([number.setdefault(word, len(number)) for word in others.words], np.int32)
        positions, starts = taken(np.concatenate((self.starts, self.starts[-1] + others.starts[1:])), rows)
        places = np.concatenate((self.places, renumbered[others.places]))[positions]
        met, first, again = np.unique(places, return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        words = list(number)
        return Bags(
            words=tuple(words[at] for at in met[order]),
            starts=starts,
            places=rank[again],
            values=np.concatenate((self.values, others.values))[positions],
        )

    def sums(self) -> NDArray[np.int64]:
        """Of each word, its values added up."""
        return np.bincount(self.places, self.values, len(self.words)).astype(np.int64)

    def rows_with(self, words: Iterable[int]) -> NDArray[np.int64]:
        """The rows that hold any of these words, ascending."""
        wanted = np.zeros(len(self.words), bool)
        wanted[list(words)] = True
        return rows_of(self.starts, wanted[self.places])


class GrowingBags:
    """Rows that are added one after the other, none of them kept as it came."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._ends, self._places, self._values = array("q", [0]), array("i"), array("i")

    def add(self, row: Mapping[str, int]) -> None:
        """One more row."""
        number = self._number
        self._places.extend([number.setdefault(word, len(number)) for word in row])
        self._values.extend(row.values())
        self._ends.append(len(self._places))

    def bags(self) -> Bags:
        """The rows so far."""
        parts = np.array(self._ends, np.int64), np.array(self._places, np.int32), np.array(self._values, np.int32)
        return Bags(tuple(self._number), *parts)


def taken(starts: NDArray[Any], rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the items of these rows stand, row after row, and where each row then starts."""
    lengths = (starts[1:] - starts[:-1])[rows]
    begins = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    return np.arange(begins[-1]) + np.repeat(starts[rows] - begins[:-1], lengths), begins


def rows_of(starts: NDArray[Any], items: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The rows in which any of the marked items stands, ascending."""
    return np.unique(np.repeat(np.arange(len(starts) - 1), np.diff(starts))[items])
