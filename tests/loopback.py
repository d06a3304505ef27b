"""HTTP servers that run as long as a test needs them."""

import threading
from contextlib import contextmanager


@contextmanager
def serving(server):
    """The server's address on loopback, without a scheme; it answers inside and is gone afterwards."""
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"{server.server_address[0]}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
