"""HTTP servers that run as long as a test needs them."""

import ssl
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace


@contextmanager
def serving(answer, host="127.0.0.1", certificate=None):
    """The address of a server, without a scheme, gone after the block; HTTPS with a certificate.

    `answer` takes a request (method, path, headers, body), and gives status, headers and bytes.
    """

    class Handler(BaseHTTPRequestHandler):
        def respond(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = SimpleNamespace(method=self.command, path=self.path, headers=self.headers, body=body)
            status, headers, content = answer(request)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = respond

        def handle(self):
            self.close_connection = True
            with suppress(OSError):  # whoever asked has left
                super().handle()

        def log_message(self, *_):
            """Silent: the tests say what matters."""

    server = ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
