"""Dense search: the index's own array for readers of a folder, or Qdrant, in a folder or on a server.

Qdrant's local folder admits one process at a time and is read by unpickling, so the indexing process writes
it and readers use the array; with a server's address set, readers ask the server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from program.errors import KnowledgeError
from program.knowledge.index.selection import Selection, best
from program.passage import NO_FILTERS, Filters

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from qdrant_client import QdrantClient, models

BATCH = 256
WORDS = "words"  # the collection's sparse vectors: a weight for each term of a text
DECIMALS = 6  # the last bits of a product depend on how many rows are multiplied at once


class VectorStore(Protocol):
    """Rows of unit vectors, searched by cosine. Safe from many threads."""

    def search(
        self, vector: NDArray[np.float32], k: int, base: str | None = None, filters: Filters = NO_FILTERS
    ) -> list[tuple[int, float]]:
        """The `k` nearest rows of a base (None: of all) that pass the filters, each with its cosine."""
        ...

    def similarities(self, vector: NDArray[np.float32], rows: Sequence[int]) -> list[float]:
        """The cosine of each of these rows, in their order."""
        ...


class ArrayVectors:
    """Exact search over an array in memory, shape (rows, dimension), each row of length 1."""

    def __init__(self, matrix: NDArray[np.float32], selection: Selection) -> None:
        self.matrix = matrix
        self.selection = selection

    def search(
        self, vector: NDArray[np.float32], k: int, base: str | None = None, filters: Filters = NO_FILTERS
    ) -> list[tuple[int, float]]:
        span = self.selection.span(base)
        cosines = np.round(self.matrix[span] @ vector, DECIMALS)
        rows = self.selection.admitted(base, filters) - span.start
        return [(span.start + row, float(cosines[row])) for row in best(cosines, rows, k)]

    def similarities(self, vector: NDArray[np.float32], rows: Sequence[int]) -> list[float]:
        if not len(rows):
            return []
        return [float(c) for c in np.round(self.matrix[np.asarray(rows, np.intp)] @ vector, DECIMALS)]


class QdrantVectors:
    """The same over one Qdrant collection, whose points are numbered by row."""

    def __init__(self, client: QdrantClient, collection: str, where: str = "") -> None:
        self.client = client
        self.collection = collection
        self.where = where

    def search(
        self, vector: NDArray[np.float32], k: int, base: str | None = None, filters: Filters = NO_FILTERS
    ) -> list[tuple[int, float]]:
        return self._nearest(vector, k, _conditions(base, filters)) if k > 0 else []

    def similarities(self, vector: NDArray[np.float32], rows: Sequence[int]) -> list[float]:
        from qdrant_client import models

        if not len(rows):
            return []
        chosen = models.Filter(must=[models.HasIdCondition(has_id=[*rows])])
        found = dict(self._nearest(vector, len(rows), chosen))
        return [found[row] for row in rows]

    def sparse(
        self,
        query: Mapping[int, float],
        k: int,
        base: str | None = None,
        filters: Filters = NO_FILTERS,
        rows: Sequence[int] | None = None,
    ) -> list[tuple[int, float]]:
        """The `k` best rows by the sparse vectors (of `rows` only, if given), those that share no term left out."""
        from qdrant_client import models

        chosen = _conditions(base, filters)
        if rows is not None:
            chosen = models.Filter(must=[models.HasIdCondition(has_id=[*rows])])
        asked = models.SparseVector(indices=list(query), values=list(query.values()))
        return self._points(asked, k, chosen, WORDS)

    def write(
        self, matrix: NDArray[np.float32], selection: Selection, ids: Sequence[str], words: Any | None = None
    ) -> None:
        """Make the collection anew; each point also carries what filters ask for, and its row of `words` (CSR)."""
        from qdrant_client import models

        with reaching(self.where):
            if self.client.collection_exists(self.collection):
                self.client.delete_collection(self.collection)
            size = models.VectorParams(size=matrix.shape[1], distance=models.Distance.COSINE)
            sparse = {WORDS: models.SparseVectorParams(modifier=models.Modifier.IDF)} if words is not None else None
            self.client.create_collection(self.collection, vectors_config=size, sparse_vectors_config=sparse)
            for start in range(0, len(matrix), BATCH):
                rows = range(start, min(start + BATCH, len(matrix)))
                payloads = [_payload(selection, ids, row) for row in rows]
                vectors: Any = matrix[start : rows.stop].tolist()
                if words is not None:
                    vectors = {"": vectors, WORDS: [_sparse(words, row) for row in rows]}
                batch = models.Batch(ids=list(rows), vectors=vectors, payloads=payloads)
                self.client.upsert(self.collection, batch, wait=True)

    def holds(self, count: int, words: bool = False) -> bool:
        """True when the collection is there with this many points, with sparse vectors where `words` are wanted."""
        with reaching(self.where):
            if not self.client.collection_exists(self.collection):
                return False
            if words and WORDS not in (self.client.get_collection(self.collection).config.params.sparse_vectors or {}):
                return False
            return int(self.client.count(self.collection, exact=True).count) == count

    def delete(self) -> None:
        """Remove the collection, if it is there."""
        with reaching(self.where):
            self.client.delete_collection(self.collection)

    def _nearest(self, vector: NDArray[np.float32], k: int, chosen: models.Filter | None) -> list[tuple[int, float]]:
        return self._points(vector.tolist(), k, chosen)

    def _points(
        self, query: list[float] | models.SparseVector, k: int, chosen: models.Filter | None, using: str | None = None
    ) -> list[tuple[int, float]]:
        with reaching(self.where):
            points = self.client.query_points(
                self.collection, query=query, using=using, limit=k, query_filter=chosen, with_payload=False
            ).points
        found = [(int(p.id), round(p.score, DECIMALS)) for p in points]
        return sorted(found, key=lambda hit: (-hit[1], hit[0]))


@contextmanager
def open_qdrant(url: str = "", folder: Path | None = None) -> Iterator[QdrantClient]:
    """A client of the server at `url`, or of a local folder (neither: of memory); closed at the end."""
    client = connect(url) if url else _local(folder)
    try:
        yield client
    finally:
        client.close()


def connect(url: str) -> QdrantClient:
    """A client of the server at `url`, its key from QDRANT_API_KEY; nothing is asked of the server yet."""
    from qdrant_client import QdrantClient

    with reaching(url):
        return QdrantClient(url=url, api_key=os.environ.get("QDRANT_API_KEY"), check_compatibility=False)


@contextmanager
def reaching(where: str) -> Iterator[None]:
    """Turn what a Qdrant client raises into a KnowledgeError that names the place and the way out."""
    from qdrant_client.http.exceptions import ApiException

    try:
        yield
    except (ApiException, OSError, ValueError) as error:
        place = where.rpartition("@")[2] or "its folder"
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise KnowledgeError(
            f"Qdrant in {place} did not do as asked: {reason}.",
            "Start it and check [qdrant] url and QDRANT_API_KEY, or empty the url; then run `ragc index`.",
        ) from error


def _local(folder: Path | None) -> QdrantClient:
    from qdrant_client import QdrantClient

    return QdrantClient(path=str(folder)) if folder else QdrantClient(location=":memory:")


def _payload(selection: Selection, ids: Sequence[str], row: int) -> dict[str, str | int | list[str]]:
    payload: dict[str, str | int | list[str]] = {
        "base": selection.bases[row],
        "passage": ids[row],
        "authority": int(selection.authority[row]),
        "attributes": [_pair(key, value) for key, value in selection.attributes[row].items()],
    }
    if selection.days[row]:  # left out when undated, so that a date filter does not match
        payload["day"] = int(selection.days[row])
    return payload


def _sparse(words: Any, row: int) -> models.SparseVector:
    from qdrant_client import models

    part = slice(words.indptr[row], words.indptr[row + 1])
    return models.SparseVector(indices=words.indices[part].tolist(), values=words.data[part].tolist())


def _pair(key: str, value: str) -> str:
    return f"{key}={value.casefold()}"


def _conditions(base: str | None, filters: Filters) -> models.Filter | None:
    from qdrant_client import models

    must: list[models.Condition] = []
    if base is not None:
        must.append(models.FieldCondition(key="base", match=models.MatchValue(value=base)))
    for key, value in filters.attributes:
        must.append(models.FieldCondition(key="attributes", match=models.MatchValue(value=_pair(key, value))))
    if filters.min_authority > 0:
        must.append(models.FieldCondition(key="authority", range=models.Range(gte=filters.min_authority)))
    if filters.not_before is not None or filters.not_after is not None:
        first = filters.not_before.toordinal() if filters.not_before else None
        last = filters.not_after.toordinal() if filters.not_after else None
        must.append(models.FieldCondition(key="day", range=models.Range(gte=first, lte=last)))
    return models.Filter(must=must) if must else None
