"""A real HTTP server on the loopback address whose answers a test sets by path."""

import json
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.loopback import serving


@dataclass
class Reply:
    content: bytes | str | dict[str, Any] | list[Any] = b""
    status: int = 200
    kind: str = ""
    location: str = ""
    before: Callable[[], object] = field(default=lambda: None)

    def sent(self):
        if isinstance(self.content, dict | list):
            return json.dumps(self.content).encode(), self.kind or "application/json"
        content = self.content.encode() if isinstance(self.content, str) else self.content
        return content, self.kind or "text/html; charset=utf-8"


@dataclass
class WebServer:
    """`replies` by path without the query; `requests` lists what was asked."""

    url: str
    replies: dict = field(default_factory=dict)
    requests: list = field(default_factory=list)

    def asked(self, path):
        return [r for r in self.requests if r.path.partition("?")[0] == path]


@contextmanager
def web_server(host="127.0.0.1", served=None, certificate=None):
    """A server of its own, or a second address of one that is there; HTTPS with a certificate."""
    second = WebServer("", served.replies, served.requests) if served else WebServer("")

    def answer(request):
        second.requests.append(request)
        reply = second.replies.get(request.path.partition("?")[0], Reply("not here", 404))
        reply.before()
        content, kind = reply.sent()
        location = {"Location": reply.location} if reply.location else {}
        return reply.status, {"Content-Type": kind, "Content-Length": str(len(content)), **location}, content

    with serving(answer, host, certificate) as place:
        second.url = f"http://{place}"
        yield second
