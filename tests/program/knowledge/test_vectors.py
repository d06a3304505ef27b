from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from program.knowledge.index.selection import Selection, best

from program.errors import KnowledgeError
from program.knowledge.index.vectors import ArrayVectors, QdrantVectors, VectorStore, connect, open_qdrant
from program.passage import NO_FILTERS, Filters, Passage

DAYS = [None, date(2024, 5, 1), date(2025, 6, 30), date(2026, 11, 3)]
PASSAGES = [
    Passage(
        id=f"{base}/{n}",
        source=base,
        title="t",
        text="x",
        as_of=DAYS[n % 4],
        authority=1 + n % 3,
        attributes={"team": f"Team {n % 5}"} if n % 2 else {},
    )
    for base in ("product", "billing", "web")
    for n in range(40)
]
FILTERS = [
    NO_FILTERS,
    Filters(min_authority=3),
    Filters(not_before=date(2025, 6, 30)),
    Filters(not_after=date(2025, 6, 30)),
    Filters(not_before=date(2024, 1, 1), not_after=date(2025, 12, 31), min_authority=2),
    Filters(not_before=date(2030, 1, 1)),
    Filters(attributes=(("team", "team 3"),)),
    Filters(min_authority=2, attributes=(("team", "Team 1"), ("team", "team 1"))),
    Filters(attributes=(("city", ""),)),
]


def unit(rows: int, seed: int) -> np.ndarray:
    made = np.random.default_rng(seed).standard_normal((rows, 24)).astype(np.float32)
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True))


MATRIX = unit(len(PASSAGES), 1)


@pytest.fixture(scope="module")
def qdrant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QdrantVectors]:
    selection, folder = Selection(PASSAGES), tmp_path_factory.mktemp("qdrant")
    with open_qdrant(folder=folder) as client:
        QdrantVectors(client, "passages").write(MATRIX, selection, [p.id for p in PASSAGES])
    with open_qdrant(folder=folder) as client:  # read back from the disk
        yield QdrantVectors(client, "passages")


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("base", [None, "product", "web"])
def test_qdrant_and_the_array_find_the_same_rows_with_the_same_cosines(
    qdrant: QdrantVectors, base: str | None, filters: Filters
) -> None:
    array = ArrayVectors(MATRIX, Selection(PASSAGES))
    for query in unit(3, 2):
        expected = array.search(query, 7, base, filters)
        found = qdrant.search(query, 7, base, filters)
        assert [row for row, _ in found] == [row for row, _ in expected]
        np.testing.assert_allclose([c for _, c in found], [c for _, c in expected], atol=3e-6)
        assert all(filters.admits(PASSAGES[row]) for row, _ in found)


def test_similarities_are_the_cosines_of_just_those_rows(qdrant: QdrantVectors) -> None:
    query, rows = unit(1, 3)[0], [70, 3, 99]
    stores: list[VectorStore] = [qdrant, ArrayVectors(MATRIX, Selection(PASSAGES))]
    for store in stores:
        np.testing.assert_allclose(store.similarities(query, rows), MATRIX[rows] @ query, atol=3e-6)
        assert store.similarities(query, []) == []
        assert store.search(query, 0) == []


def test_a_collection_says_whether_it_holds_an_index() -> None:
    with open_qdrant() as client:
        store = QdrantVectors(client, "few")
        store.write(MATRIX, Selection(PASSAGES), [p.id for p in PASSAGES])
        assert store.holds(len(PASSAGES))
        assert not store.holds(3)
        store.delete()
        assert not store.holds(len(PASSAGES))


def test_every_point_carries_its_passage_id_and_base(qdrant: QdrantVectors) -> None:
    points, _ = qdrant.client.scroll("passages", limit=200)
    assert {p.id: (p.payload["base"], p.payload["passage"]) for p in points} == {
        row: (p.source, p.id) for row, p in enumerate(PASSAGES)
    }


def test_a_server_that_does_not_answer_is_an_error_without_its_password() -> None:
    url = "http://user:secret@127.0.0.1:9"
    with pytest.raises(KnowledgeError, match=r"Qdrant in 127.0.0.1:9") as caught:
        QdrantVectors(connect(url), "passages", url).holds(1)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{"result": {',
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>",
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=["closed", "cut", "a page", "overloaded"],
)
def test_a_server_that_is_lost_in_the_middle_of_a_reply_is_an_error(reply: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    with server.accept()[0] as caller:
                        caller.recv(65536)
                        caller.sendall(reply)

        threading.Thread(target=answer, daemon=True).start()
        store = QdrantVectors(connect(f"http://127.0.0.1:{server.getsockname()[1]}"), "passages", "the server")
        with pytest.raises(KnowledgeError, match=r"Qdrant in the server did not do as asked.*ragc index"):
            store.search(MATRIX[0], 5)
        with pytest.raises(KnowledgeError, match=r"Qdrant in the server did not do as asked"):
            store.sparse({0: 1.0}, 5)


def test_an_unindexed_base_is_an_error() -> None:
    with pytest.raises(KnowledgeError, match=r"no knowledge base 'legal'"):
        ArrayVectors(MATRIX, Selection(PASSAGES)).search(MATRIX[0], 3, "legal")


@pytest.mark.parametrize("filters", FILTERS)
def test_a_selection_admits_what_the_filters_admit(filters: Filters) -> None:
    rows = Selection(PASSAGES).admitted("billing", filters)
    assert rows.tolist() == [n for n, p in enumerate(PASSAGES) if p.source == "billing" and filters.admits(p)]


@settings(max_examples=60)
@given(arrays(np.float64, 30, elements=st.sampled_from([0.0, 0.25, 0.5, 1.0])), st.integers(0, 40))
def test_the_best_rows_are_those_of_a_full_sort_with_the_lower_row_first(scores: np.ndarray, k: int) -> None:
    rows = np.arange(5, 30)
    expected = sorted(rows.tolist(), key=lambda row: (-scores[row], row))[:k]
    assert best(scores, rows, k) == expected
