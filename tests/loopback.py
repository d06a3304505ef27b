"""HTTP servers that run as long as a test needs them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[str]:
    """The server's address on loopback, without a scheme; it answers inside and is gone afterwards."""
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"{server.server_address[0]}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
