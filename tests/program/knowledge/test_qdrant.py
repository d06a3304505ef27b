"""A Qdrant collection finds what the array finds: in a folder, in memory, on a real server at QDRANT_URL."""

import os
import socket
import threading
from contextlib import closing, suppress

import numpy as np
import pytest
from qdrant_client import QdrantClient
from word_embedder import WordEmbedder

from ragc.errors import KnowledgeError
from ragc.knowledge.index.build import build_index
from ragc.knowledge.index.qdrant import QdrantVectors, connect_server
from ragc.knowledge.index.store import Index
from ragc.knowledge.library import Library
from ragc.passage import NO_FILTERS, Filters, Passage
from ragc.settings import Settings

QUESTION = "how many days until a yearly plan is refunded"
TEAMS = [{}, *({"team": f"Team {n}"} for n in range(5))]
PASSAGES = [
    Passage(f"{base}/{n}", base, "t", "x", attributes=TEAMS[n % 6])
    for base in ("product", "billing", "web")
    for n in range(40)
]
FILTERS = [
    NO_FILTERS,
    Filters(attributes=(("team", "team 3"),)),
    Filters(attributes=(("team", "Team 1"), ("team", "team 1"))),
    Filters(attributes=(("city", ""),)),
]


def unit(rows, seed):
    made = np.random.default_rng(seed).standard_normal((rows, 24)).astype(np.float32)
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True))


MATRIX = unit(len(PASSAGES), 1)


@pytest.fixture(scope="module")
def folder_store(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("qdrant"))
    with closing(QdrantClient(path=folder)) as client:
        QdrantVectors(client, "passages").write_rows(MATRIX, PASSAGES)
    with closing(QdrantClient(path=folder)) as client:  # read back from the disk
        yield QdrantVectors(client, "passages")


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("base", [None, "product", "web"])
def test_a_folder_finds_the_rows_of_the_array_under_every_filter(folder_store, base, filters):
    array = Index(PASSAGES, MATRIX, "")
    admitted = [n for n, p in enumerate(PASSAGES) if base in (None, p.source) and filters.admits(p)]
    assert array.admitted_rows(base, filters).tolist() == admitted
    for query in unit(3, 2):
        expected, found = array.search(query, 7, base, filters), folder_store.search(query, 7, base, filters)
        assert found == expected
        np.testing.assert_allclose(folder_store.similarities(query, found), array.similarities(query, found), atol=3e-6)


REPLIES = {
    "closed": b"",
    "cut": b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{"result": {',
    "a page": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>",
    "overloaded": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
    "a refused key": b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("reply", REPLIES)
def test_a_server_that_answers_badly_is_an_error_without_its_password(reply, monkeypatch):
    monkeypatch.setenv("QDRANT_API_KEY", "a-key")
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            with suppress(OSError):
                while True:
                    with server.accept()[0] as caller:
                        heard.append(caller.recv(65536).lower())
                        caller.sendall(REPLIES[reply])

        threading.Thread(target=answer, daemon=True).start()
        url = f"http://user:secret@127.0.0.1:{server.getsockname()[1]}"
        store = QdrantVectors(connect_server(url), "passages", url)
        for ask in (lambda: store.search(MATRIX[0], 5), lambda: store.similarities(MATRIX[0], [1])):
            with pytest.raises(KnowledgeError, match=r"Qdrant in 127.0.0.1:\d+ did not do as asked") as caught:
                ask()
            assert "secret" not in str(caught.value)
        assert b"api-key: a-key" in heard[0]


class Server:
    """An index filled to a server, and opened with it or without."""

    def __init__(self, url, store, bases, folder):
        self.url, self.store, self.bases, self.folder = url, store, bases, folder

    @property
    def settings(self):
        return Settings(name="shop", knowledge={}, qdrant={"url": self.url})

    def build(self):
        return build_index(self.bases, self.folder, WordEmbedder(), settings=self.settings)

    def open(self):
        return Library.open(self.bases, self.folder, WordEmbedder(), settings=self.settings)

    def near(self):
        return Library.open(self.bases, self.folder, WordEmbedder())

    def drop(self):
        for place in self.folder.glob("gen-*"):
            self.store.delete_collection(place.stem)


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.server)])
def server(request, bases, tmp_path, monkeypatch):
    url = "http://memory"
    if request.param == "real":
        url = os.environ.get("QDRANT_URL", "")  # `docker compose up -d qdrant` starts one
        if not url:
            pytest.skip("QDRANT_URL is not set")
        store = connect_server(url)
    else:
        store = QdrantClient(location=":memory:")
        monkeypatch.setattr(store, "close", lambda: None)  # a server outlives its clients
        monkeypatch.setattr("ragc.knowledge.index.qdrant.QdrantClient", lambda **_: store)
    found = Server(url, store, bases, tmp_path / "index")
    yield found
    found.drop()


def test_a_search_on_the_server_finds_what_a_search_in_the_folder_finds(server):
    server.build()
    far, near = server.open(), server.near()
    assert far.index is not None and isinstance(far.index.server, QdrantVectors) and not far.searches_here(["product"])
    for depth, filters in ((2, Filters()), (60, Filters()), (60, Filters(attributes=(("team", "none"),)))):
        here, there = (library.search(QUESTION, k=5, depth=depth, filters=filters) for library in (near, far))
        assert [p.id for p in there] == [p.id for p in here]
        assert [p.score for p in there] == pytest.approx([p.score for p in here], abs=1e-3)


def test_indexing_fills_the_server_once_and_drops_what_no_reader_needs(server, knowledge):
    assert not server.build().unchanged
    assert server.build().unchanged
    for n in range(3):
        (knowledge / f"product/new{n}.md").write_text(f"# New {n}\n\nText {n}.\n")
        server.build()
    names = {c.name for c in server.store.get_collections().collections if c.name.startswith("gen-")}
    assert names >= {p.stem for p in server.folder.glob("gen-*")} and len(list(server.folder.glob("gen-*"))) == 2


def test_a_server_that_lost_the_index_is_named_and_filled_again(server):
    server.build()
    library = server.open()
    server.drop()
    with pytest.raises(KnowledgeError, match=r"Qdrant in .* did not do as asked.*ragc index"):
        library.search(QUESTION)
    with pytest.raises(KnowledgeError, match=r"does not hold this index.*ragc index"):
        server.open()
    report = server.build()
    assert not report.unchanged and report.embedded == 0
    assert server.open().search(QUESTION)
