"""A server on loopback that answers every POST as a function of its body says."""

import json
from contextlib import contextmanager
from types import SimpleNamespace

from tests.loopback import serving


@contextmanager
def responding(respond=None):
    """A running server, with its `url`, and as `authorization` the header of the last request.

    `respond` takes the body of a request, and gives status, headers, content type and bytes.
    """
    server = SimpleNamespace(respond=respond, authorization="")

    def answer(request):
        server.authorization = request.headers.get("Authorization", "")
        status, extra, kind, content = server.respond(json.loads(request.body))
        return status, {"Content-Type": kind, "Content-Length": str(len(content)), **extra}, content

    with serving(answer) as place:
        server.url = f"http://{place}"
        yield server
