"""A Qdrant server in a thread: the REST calls that the program makes, answered by Qdrant's local mode."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from qdrant_client import QdrantClient, models

from tests.loopback import serving

KEY = "a-key"


@contextmanager
def qdrant_server() -> Iterator[tuple[str, QdrantClient]]:
    """Its address, and the client that holds its collections. Requests must carry the header api-key: KEY."""
    store = QdrantClient(location=":memory:", force_disable_check_same_thread=True)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                if self.headers.get("api-key") != KEY:
                    raise PermissionError("wrong api-key")
                with lock:
                    status, reply = (
                        200,
                        {"result": perform(self.command, self.path, json.loads(body or "{}"))},
                    )
            except PermissionError as error:
                status, reply = 403, {"status": {"error": str(error)}}
            sent = json.dumps({"time": 0.0, "status": "ok", **reply}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_PUT = do_POST = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            """Silent: the tests say what matters."""

    def perform(verb: str, path: str, body: dict[str, Any]) -> Any:
        _, _, name, *rest = path.partition("?")[0].split("/")
        match verb, rest:
            case "GET", ["exists"]:
                return {"exists": store.collection_exists(name)}
            case "PUT", []:
                sparse = {k: models.SparseVectorParams(**v) for k, v in (body.get("sparse_vectors") or {}).items()}
                dense = models.VectorParams(**body["vectors"])
                return store.create_collection(name, dense, sparse_vectors_config=sparse)
            case "GET", []:
                return store.get_collection(name).model_dump(mode="json")
            case "DELETE", []:
                return store.delete_collection(name)
            case "POST", ["points", "count"]:
                return {"count": store.count(name).count}
            case "PUT", ["points"]:
                store.upsert(name, models.Batch(**body["batch"]))
                return {"operation_id": 1, "status": "completed"}
            case "POST", ["points", "query"]:
                chosen = models.Filter(**body["filter"]) if body.get("filter") else None
                nearest = models.NearestQuery(**body["query"])
                found = store.query_points(
                    name, nearest, using=body.get("using"), query_filter=chosen, limit=body["limit"]
                )
                return {"points": [p.model_dump(exclude_none=True) for p in found.points]}
        raise AssertionError(f"{verb} {path} is not served")

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield f"http://{address}", store
