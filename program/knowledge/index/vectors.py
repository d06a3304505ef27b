"""Dense search: an array in memory, or a Qdrant collection; and the rows that a search may return.

Qdrant's local folder admits one process at a time, so readers of a folder use the index's own array; with a server's
address set, they ask the server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from program.errors import KnowledgeError
from program.passage import NO_FILTERS, Filters, Passage

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

Floats = NDArray[np.float32]

BATCH = 256
WORDS = "words"  # the collection's sparse vectors: a weight for each term of a text
DECIMALS = 6  # the last bits of a product depend on how many rows are multiplied at once
Hits = list[tuple[int, float]]  # rows of an index with their scores, best first, the lower row first among equals


class Selection:
    """The rows of an index by base (a slice, as its passages stand together), date, authority and attributes."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.bases = [p.source for p in passages]
        self.days = np.array([p.as_of.toordinal() if p.as_of else 0 for p in passages], np.int64)  # 0: undated
        self.authority = np.array([p.authority for p in passages], np.int64)
        self.attributes = [p.attributes for p in passages]
        self._slices: dict[str | None, slice] = {None: slice(0, len(passages))}
        for row, base in enumerate(self.bases):
            start = self._slices[base].start if base in self._slices else row
            self._slices[base] = slice(start, row + 1)

    def base_rows(self, base: str | None) -> slice:
        """Return the rows of a base (None: of all), or raise `KnowledgeError`."""
        if base not in self._slices:
            raise KnowledgeError(f"The index has no knowledge base {base!r}.", "Run: ragc index PROJECT")
        return self._slices[base]

    def admitted_rows(self, base: str | None, filters: Filters = NO_FILTERS) -> NDArray[np.intp]:
        """Return the rows of a base that the filters admit, ascending."""
        part = self.base_rows(base)
        days, keep = self.days[part], self.authority[part] >= filters.min_authority
        if filters.not_before is not None:
            keep &= days >= filters.not_before.toordinal()
        if filters.not_after is not None:
            keep &= (days > 0) & (days <= filters.not_after.toordinal())
        rows: NDArray[np.intp] = np.flatnonzero(keep) + part.start
        if filters.attributes:
            rows = rows[[filters.has_attributes(self.attributes[row]) for row in rows]]
        return rows


def best_rows(scores: NDArray[np.floating], rows: NDArray[np.intp], k: int) -> list[int]:
    """Return the `k` best of these rows, the lower row first among equals."""
    if k <= 0 or not len(rows):
        return []
    if k < len(rows):
        own = scores[rows]
        rows = rows[own >= np.partition(own, len(rows) - k)[len(rows) - k]]
    return [int(row) for row in rows[np.argsort(-scores[rows], kind="stable")[:k]]]


class ArrayVectors:
    """Exact search over an array of unit rows. Safe from many threads."""

    def __init__(self, matrix: Floats, selection: Selection) -> None:
        self.matrix = matrix
        self.selection = selection

    def search(self, vector: Floats, k: int, base: str | None = None, filters: Filters = NO_FILTERS) -> Hits:
        """Return the `k` nearest rows of a base (None: of all), with their cosines."""
        part = self.selection.base_rows(base)
        cosines = np.round(self.matrix[part] @ vector, DECIMALS)
        rows = self.selection.admitted_rows(base, filters) - part.start
        return [(part.start + row, float(cosines[row])) for row in best_rows(cosines, rows, k)]

    def similarities(self, vector: Floats, rows: Sequence[int]) -> list[float]:
        """Return the cosine of each of these rows, in their order."""
        return [float(c) for c in np.round(self.matrix[np.asarray(rows, np.intp)] @ vector, DECIMALS)]


class QdrantVectors:
    """The same over one Qdrant collection, whose points are numbered by row."""

    def __init__(self, client: QdrantClient, collection: str, where: str = "") -> None:
        self.client = client
        self.collection = collection
        self.where = where

    def search(self, vector: Floats, k: int, base: str | None = None, filters: Filters = NO_FILTERS) -> Hits:
        return self._query(vector.tolist(), k, _to_conditions(base, filters)) if k > 0 else []

    def similarities(self, vector: Floats, rows: Sequence[int]) -> list[float]:
        found = dict(self._query(vector.tolist(), len(rows), _only_rows(rows))) if len(rows) else {}
        return [found[row] for row in rows]

    def search_words(self, query: Mapping[int, float], k: int, base: str | None, filters: Filters) -> Hits:
        """Return the `k` best rows that share a term, by their sparse vectors."""
        return self._query(_to_sparse(query), k, _to_conditions(base, filters), WORDS)

    def score_words(self, query: Mapping[int, float], rows: Sequence[int]) -> Hits:
        """Return the scores of those of these rows that share a term."""
        return self._query(_to_sparse(query), len(rows), _only_rows(rows), WORDS)

    def write_rows(self, matrix: Floats, selection: Selection, ids: Sequence[str], words: Any | None = None) -> None:
        """Make the collection anew, with what filters ask for and `words` (CSR)."""
        from qdrant_client import models

        with reporting_errors(self.where):
            if self.client.collection_exists(self.collection):
                self.client.delete_collection(self.collection)
            size = models.VectorParams(size=matrix.shape[1], distance=models.Distance.COSINE)
            sparse = {WORDS: models.SparseVectorParams(modifier=models.Modifier.IDF)} if words is not None else None
            self.client.create_collection(self.collection, vectors_config=size, sparse_vectors_config=sparse)
            for start in range(0, len(matrix), BATCH):
                rows = range(start, min(start + BATCH, len(matrix)))
                vectors: Any = matrix[start : rows.stop].tolist()
                if words is not None:
                    parts = [slice(words.indptr[row], words.indptr[row + 1]) for row in rows]
                    weights = [dict(zip(words.indices[p].tolist(), words.data[p].tolist(), strict=True)) for p in parts]
                    vectors = {"": vectors, WORDS: [_to_sparse(weight) for weight in weights]}
                payloads = [_to_payload(selection, ids, row) for row in rows]
                batch = models.Batch(ids=list(rows), vectors=vectors, payloads=payloads)
                self.client.upsert(self.collection, batch, wait=True)

    def holds_rows(self, count: int, words: bool = False) -> bool:
        """Tell whether the collection has this many points, and their `words` if wanted."""
        with reporting_errors(self.where):
            if not self.client.collection_exists(self.collection):
                return False
            if words and WORDS not in (self.client.get_collection(self.collection).config.params.sparse_vectors or {}):
                return False
            return int(self.client.count(self.collection, exact=True).count) == count

    def delete_collection(self) -> None:
        """Remove the collection, if it is there."""
        with reporting_errors(self.where):
            self.client.delete_collection(self.collection)

    def _query(
        self, query: list[float] | models.SparseVector, k: int, chosen: models.Filter | None, using: str | None = None
    ) -> Hits:
        with reporting_errors(self.where):
            points = self.client.query_points(
                self.collection, query=query, using=using, limit=k, query_filter=chosen, with_payload=False
            ).points
        found = [(int(p.id), round(p.score, DECIMALS)) for p in points]
        return sorted(found, key=lambda hit: (-hit[1], hit[0]))


@contextmanager
def open_qdrant(url: str = "", folder: Path | None = None) -> Iterator[QdrantClient]:
    """Yield a client of the server at `url`, of a local folder, or of memory."""
    from qdrant_client import QdrantClient

    local = {"path": str(folder)} if folder else {"location": ":memory:"}
    client = connect_server(url) if url else QdrantClient(**local)
    try:
        yield client
    finally:
        client.close()


def connect_server(url: str) -> QdrantClient:
    """Return a client of the server at `url`, its key from QDRANT_API_KEY."""
    from qdrant_client import QdrantClient

    with reporting_errors(url):
        return QdrantClient(url=url, api_key=os.environ.get("QDRANT_API_KEY"), check_compatibility=False)


@contextmanager
def reporting_errors(where: str) -> Iterator[None]:
    """Turn what a Qdrant client raises into a `KnowledgeError` that names the place."""
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


def _to_payload(selection: Selection, ids: Sequence[str], row: int) -> dict[str, Any]:
    day = int(selection.days[row])
    return {
        "base": selection.bases[row],
        "passage": ids[row],
        "authority": int(selection.authority[row]),
        "attributes": [f"{key}={value.casefold()}" for key, value in selection.attributes[row].items()],
    } | ({"day": day} if day else {})  # left out when undated, so that a date filter does not match


def _to_sparse(weights: Mapping[int, float]) -> models.SparseVector:
    from qdrant_client import models

    return models.SparseVector(indices=list(weights), values=list(weights.values()))


def _only_rows(rows: Sequence[int]) -> models.Filter:
    from qdrant_client import models

    return models.Filter(must=[models.HasIdCondition(has_id=[*rows])])


def _to_conditions(base: str | None, filters: Filters) -> models.Filter | None:
    from qdrant_client import models

    must: list[models.Condition] = []
    if base is not None:
        must.append(models.FieldCondition(key="base", match=models.MatchValue(value=base)))
    for key, value in filters.attributes:
        pair = f"{key}={value.casefold()}"
        must.append(models.FieldCondition(key="attributes", match=models.MatchValue(value=pair)))
    if filters.min_authority > 0:
        must.append(models.FieldCondition(key="authority", range=models.Range(gte=filters.min_authority)))
    if filters.not_before is not None or filters.not_after is not None:
        first = filters.not_before.toordinal() if filters.not_before else None
        last = filters.not_after.toordinal() if filters.not_after else None
        must.append(models.FieldCondition(key="day", range=models.Range(gte=first, lte=last)))
    return models.Filter(must=must) if must else None
