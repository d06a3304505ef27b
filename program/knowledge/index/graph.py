"""Which passages name what others are about: a graph made from the passages' own words, with no model call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from program.knowledge.index.mentions import Key, Lexicon, aliases, shared
from program.passage import Passage, embedding_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAME_SHARE = 0.3
"""What a name that two passages share weighs, against a passage that names what another is about."""

COMMON = 30
"""A name in more passages than this joins none of them."""

NEIGHBOURS = 64
"""Links kept of a passage, the strongest: a graph then grows no faster than its passages."""

PARTS = ("mentions", "about", "stamps", "links")
JOINS = 100_000  # pairs of passages whose joining entity is kept


class Graph:
    """Passages, entities, and what joins them. Read-only once made: safe from many threads.

    Sparse matrices, a row a passage, all float32:

    - `mentions` (passages, entities): 1 where the passage names the entity;
    - `about` (passages, entities): how surely it is about it, by its title and headings; passages of one name share it;
    - `stamps` (passages, entities): 1 where an attribute of the passage is or begins with the entity;
    - `links` (passages, passages): symmetric, from both of these and from shared names, none to itself.
    """

    def __init__(self, keys: Sequence[Key], mentions: Any, about: Any, stamps: Any, links: Any) -> None:
        self.keys = tuple(keys)
        self.mentions = mentions
        self.about = about
        self.stamps = stamps
        self.links = links
        self.joining = lru_cache(maxsize=JOINS)(self._joining)

    @classmethod
    def build(cls, passages: Sequence[Passage]) -> Graph:
        """Join these passages, rows as in the sequence."""
        texts = [embedding_text(p) for p in passages]
        titled = [aliases(p.title) for p in passages]
        stamped = [{name for value in p.attributes.values() for name in aliases(value)} for p in passages]
        keys = sorted(shared(texts).union(*titled, *stamped))
        number = {name: n for n, name in enumerate(keys)}
        shape = (len(passages), len(keys))
        lexicon = Lexicon(keys)
        mentions = _matrix([dict.fromkeys(sorted(lexicon.find(text)), 1.0) for text in texts], shape)
        about = _shares(_matrix([{number[name]: w for name, w in row.items()} for row in titled], shape))
        stamps = _matrix([dict.fromkeys(sorted(number[name] for name in row), 1.0) for row in stamped], shape)
        return cls(keys, mentions, about, stamps, _links(mentions, about))

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], names: Sequence[str]) -> Graph:
        """The graph that `arrays` and `names` were taken from. Raises ValueError when they do not fit."""
        from scipy.sparse import csr_array

        passages, entities = int(arrays["passages"][0]), len(names)
        made = []
        for part in PARTS:
            data, indices, indptr = (arrays[f"{part}.{piece}"] for piece in ("data", "indices", "indptr"))
            width = passages if part == "links" else entities
            made.append(csr_array((data, indices, indptr), shape=(passages, width)))
        return cls([tuple(name.split(" ")) for name in names], *made)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The matrices as plain arrays."""
        found: dict[str, NDArray[Any]] = {"passages": np.array([self.passages], np.int64)}
        for part in PARTS:
            matrix = getattr(self, part)
            pieces = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
            found |= {f"{part}.{piece}": values for piece, values in pieces.items()}
        return found

    @property
    def passages(self) -> int:
        return int(self.mentions.shape[0])

    def name(self, entity: int) -> str:
        """An entity's name, its words parted by a space."""
        return " ".join(self.keys[entity])

    @property
    def names(self) -> list[str]:
        """Every entity's name."""
        return [self.name(entity) for entity in range(len(self.keys))]

    @cached_property
    def lexicon(self) -> Lexicon:
        return Lexicon(self.keys)

    @cached_property
    def rarity(self) -> NDArray[np.float32]:
        """By entity, in (0, 1]: log(1 + passages / passages that name it) over its highest value."""
        return rarity(self.mentions)

    @cached_property
    def sureness(self) -> NDArray[np.float32]:
        """By entity, in [0, 1]: its rarity times the most that a passage is about it, 0 without any."""
        return np.asarray(self.rarity * self.about.max(axis=0).toarray().ravel(), np.float32)

    @cached_property
    def strength(self) -> NDArray[np.float32]:
        """By passage: the sum of its links, 1 where it has none."""
        total = np.asarray(self.links.sum(1), np.float32).ravel()
        return np.where(total > 0, total, np.float32(1))

    @cached_property
    def naming(self) -> Any:
        """`mentions` by entity (CSC)."""
        return self.mentions.tocsc()

    @cached_property
    def subjects(self) -> Any:
        """`about` by entity (CSC)."""
        return self.about.tocsc()

    @cached_property
    def stamping(self) -> Any:
        """`stamps` by entity (CSC)."""
        return self.stamps.tocsc()

    def named(self, text: str) -> list[int]:
        """The entities that a text names, each once, in order."""
        return list(dict.fromkeys(self.lexicon.find(text)))

    def _joining(self, one: int, other: int) -> int | None:
        """The rarest entity that two passages share, or None."""
        shared = np.intersect1d(self.entities(one), self.entities(other))
        return int(shared[int(np.argmax(self.rarity[shared]))]) if len(shared) else None

    def entities(self, row: int) -> NDArray[np.int64]:
        """The entities that a passage names, its own subject included."""
        found: NDArray[np.int64] = self.mentions.indices[self.mentions.indptr[row] : self.mentions.indptr[row + 1]]
        return found

    def subject_of(self, row: int) -> NDArray[np.int64]:
        """The entities that a passage is about."""
        found: NDArray[np.int64] = self.about.indices[self.about.indptr[row] : self.about.indptr[row + 1]]
        return found


def rarity(mentions: Any) -> NDArray[np.float32]:
    """Of each column, in (0, 1]: near 1 for a name in one passage, near 0 for one in all."""
    passages = mentions.shape[0]
    count = np.maximum(np.asarray(mentions.sum(0)).ravel(), 1.0)
    return np.asarray(np.log1p(passages / count) / np.log1p(max(passages, 1)), np.float32)


def column(matrix: Any, number: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The rows and the values of a column of a CSC matrix."""
    part = slice(matrix.indptr[number], matrix.indptr[number + 1])
    return matrix.indices[part], matrix.data[part]


def _matrix(rows: Sequence[dict[int, float]], shape: tuple[int, int]) -> Any:
    from scipy.sparse import csr_array

    values = np.array([w for row in rows for w in row.values()], np.float32)
    columns = np.array([n for row in rows for n in row], np.int64)
    starts = np.cumsum([0, *map(len, rows)])
    matrix = csr_array((values, columns, starts), shape=shape)
    matrix.sort_indices()
    return matrix


def _shares(matrix: Any) -> Any:
    """Each column scaled to sum to its highest value: passages of one title share what points to it."""
    from scipy.sparse import csr_array, diags_array

    total, highest = np.asarray(matrix.sum(0)).ravel(), matrix.max(axis=0).toarray().ravel()
    return csr_array(matrix @ diags_array((highest / np.where(total > 0, total, 1)).astype(np.float32)))


def _links(mentions: Any, about: Any) -> Any:
    """What joins two passages, by entity the square of its rarity: one names what the other is about, each
    way, and NAME_SHARE over the number of passages for a name that they share."""
    from scipy.sparse import csr_array, diags_array

    weight = rarity(mentions) ** 2
    naming = mentions @ diags_array(weight) @ about.T
    count = np.asarray(mentions.sum(0)).ravel()
    joins = np.where((count > 1) & (count <= COMMON), NAME_SHARE * weight / np.maximum(count, 1), 0).astype(np.float32)
    both = csr_array(naming + naming.T + mentions @ diags_array(joins) @ mentions.T)
    both.setdiag(0)
    both.eliminate_zeros()
    kept = _strongest(both)
    return csr_array(kept.maximum(kept.T)).astype(np.float32)


def _strongest(matrix: Any) -> Any:
    from scipy.sparse import csr_array

    values = matrix.data.copy()
    for start, end in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        if end - start > NEIGHBOURS:
            row = values[start:end]
            row[np.argsort(-row, kind="stable")[NEIGHBOURS:]] = 0
    kept = csr_array((values, matrix.indices, matrix.indptr), shape=matrix.shape)
    kept.eliminate_zeros()
    return kept
