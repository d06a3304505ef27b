"""Dense search by a Qdrant collection, in place of the array in memory.

Qdrant's local folder admits one process at a time, so readers of a folder use the index's own array; with a server's
address set, they ask the server.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ApiException

from ragc.errors import KnowledgeError
from ragc.knowledge.index.fusion import DECIMALS, Floats
from ragc.passage import NO_FILTERS, Filters, Passage, ReaderSets

BATCH = 256


class QdrantVectors:
    """A Qdrant collection whose points are numbered by row; it finds what an `Index` in memory finds."""

    def __init__(self, client: QdrantClient, collection: str, where: str = "") -> None:
        self.client = client
        self.collection = collection
        self.where = where
        self._points: Sequence[int] = ()
        self._admitted: frozenset[ReaderSets] | None = None

    def take_rows(self, points: Sequence[int], admitted: frozenset[ReaderSets]) -> QdrantVectors:
        """Return what searches these points alone, as rows from 0."""
        part = QdrantVectors(self.client, self.collection, self.where)
        part._points, part._admitted = points, admitted
        return part

    def search(self, vector: Floats, k: int, base: str | None = None, filters: Filters = NO_FILTERS) -> list[int]:
        """Return the `k` nearest rows of a base (None: of all), nearest first."""
        found = self._score_points(vector, k, select_points(base, filters, self._admitted))
        return [bisect_left(self._points, point) for point in found] if self._points else [*found]

    def similarities(self, vector: Floats, rows: Sequence[int]) -> list[float]:
        """Return the cosine of each of these rows, in their order."""
        points = [self._points[row] for row in rows] if self._points else rows
        found = self._score_points(vector, len(points), select_rows(points))
        return [found[point] for point in points]

    def _score_points(self, vector: Floats, k: int, chosen: models.Filter) -> dict[int, float]:
        """Return the `k` best rows with their scores, best first, of equals the lower."""
        if k <= 0:
            return {}
        with reporting_errors(self.where):
            points = self.client.query_points(
                self.collection, query=vector.tolist(), limit=k, query_filter=chosen, with_payload=False
            ).points
        found = [(int(p.id), round(p.score, DECIMALS)) for p in points]
        return dict(sorted(found, key=lambda hit: (-hit[1], hit[0])))

    def write_rows(self, matrix: Floats, passages: Sequence[Passage]) -> None:
        """Make the collection anew, with what filters ask for."""
        points = (
            models.PointStruct(id=row, vector=matrix[row].tolist(), payload=_make_payload(passages[row]))
            for row in range(len(matrix))
        )
        with reporting_errors(self.where):
            if self.client.collection_exists(self.collection):
                self.client.delete_collection(self.collection)
            size = models.VectorParams(size=matrix.shape[1], distance=models.Distance.COSINE)
            self.client.create_collection(self.collection, vectors_config=size)
            self.client.upload_points(self.collection, points, BATCH, wait=True)

    def holds_rows(self, count: int) -> bool:
        """Tell whether the collection has this many points."""
        with reporting_errors(self.where):
            if not self.client.collection_exists(self.collection):
                return False
            return int(self.client.count(self.collection, exact=True).count) == count

    def delete_collection(self) -> None:
        """Remove the collection, if it is there."""
        with reporting_errors(self.where):
            self.client.delete_collection(self.collection)


def connect_server(url: str) -> QdrantClient:
    """Return a client of the server at `url`, its key from QDRANT_API_KEY."""
    with reporting_errors(url):
        return QdrantClient(url=url, api_key=os.environ.get("QDRANT_API_KEY"), check_compatibility=False)


@contextmanager
def reporting_errors(where: str) -> Iterator[None]:
    """Turn what a Qdrant client raises into a `KnowledgeError` that names the place."""
    try:
        yield
    except (ApiException, OSError, ValueError) as error:
        place = where.rpartition("@")[2] or "its folder"
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise KnowledgeError(
            f"Qdrant in {place} did not do as asked: {reason}.",
            "Start it and check [qdrant] url and QDRANT_API_KEY, or empty the url; then run `ragc index`.",
        ) from error


def select_rows(rows: Sequence[int]) -> models.Filter:
    """Return the filter that admits these rows."""
    return models.Filter(must=[models.HasIdCondition(has_id=[*rows])])


def select_points(base: str | None, filters: Filters, admitted: frozenset[ReaderSets] | None = None) -> models.Filter:
    """Return the filter of `Index.admitted_rows`, and of readers if any."""
    values = [("base", base)] if base is not None else []
    values += [("attributes", f"{key}={value.casefold()}") for key, value in filters.attributes]
    matches = ((key, models.MatchValue(value=value)) for key, value in values)
    must: list[models.Condition] = [models.FieldCondition(key=key, match=match) for key, match in matches]
    if admitted is not None:
        matched = models.MatchAny(any=sorted(map(json.dumps, admitted)))
        must.append(models.FieldCondition(key="readers", match=matched))
    return models.Filter(must=must)


def _make_payload(passage: Passage) -> dict[str, Any]:
    return {
        "base": passage.source,
        "passage": passage.id,
        "readers": json.dumps(passage.readers),
        "attributes": [f"{key}={value.casefold()}" for key, value in passage.attributes.items()],
    }
