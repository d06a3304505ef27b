"""A server on loopback that answers every POST as a function of its body says."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.loopback import serving


class Responder(ThreadingHTTPServer):
    """`respond` takes the body of a request, and gives status, headers, content type and bytes.

    `authorization` is the header of the last one.
    """

    daemon_threads = True
    respond = None
    authorization = ""


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.authorization = self.headers.get("Authorization", "")
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status, extra, kind, content = self.server.respond(body)
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **extra}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def handle(self):
        try:
            super().handle()
        except ConnectionError:  # whoever asked has left
            self.close_connection = True

    def log_message(self, *arguments):
        pass


@contextmanager
def responding(respond=None):
    """A running server, with its `url`."""
    server = Responder(("127.0.0.1", 0), Handler)
    server.respond = respond
    with serving(server) as place:
        server.url = f"http://{place}"
        yield server
