"""A server on loopback, over a small project."""

import threading
from contextlib import contextmanager

import pytest

QUESTION = "How much water does the Merle hold?"


@contextmanager
def serving(target, **options):
    """The address of a server that runs in a thread; it answers inside and is gone afterwards."""
    app_module = pytest.importorskip("ragc.server.app")
    server = app_module.make_server(app_module.open_app(str(target), **options), "127.0.0.1", 0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
