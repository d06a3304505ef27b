"""A real HTTP server on the loopback address whose answers a test sets by path."""

import json
import ssl
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
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

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = SimpleNamespace(method=self.command, path=self.path, headers=dict(self.headers), body=body)
            second.requests.append(request)
            reply = second.replies.get(self.path.partition("?")[0], Reply("not here", 404))
            reply.before()
            content, kind = reply.sent()
            self.send_response(reply.status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            if reply.location:
                self.send_header("Location", reply.location)
            self.end_headers()
            with suppress(OSError):  # the client had enough
                self.wfile.write(content)

        do_GET = do_POST = answer

        def log_message(self, *_):
            """Silent: the tests say what matters."""

    server = ThreadingHTTPServer((host, 0), Handler)
    if certificate is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    second.url = f"http://{host}:{server.server_port}"
    with serving(server):
        yield second
