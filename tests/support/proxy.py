"""A reverse proxy that signs users in, as a process of its own: nginx where it is installed, else a stand-in.

    python tests/support/proxy.py PORT UPSTREAM SENDS    SENDS: JSON of the headers that go upstream

Users sign in with their name as password. `$host`, `$http_host` and `$groups` stand for what nginx means by them.
"""

import base64
import http.client
import json
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
GROUPS = {"ann": "finance,reviewers", "bob": ""}
CONFIG = """
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  map $remote_user $groups {{ default ""; {groups} }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
{location}
    }}
  }}
}}
"""


@contextmanager
def proxying(folder, upstream, location):
    """The port of a proxy before a server; `location` are the lines in its block of nginx's configuration."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "help.users").write_text("".join(f"{user}:{{PLAIN}}{user}\n" for user in GROUPS))
    location = location.replace("/etc/nginx/help.users", str(folder / "help.users"))
    if NGINX:
        groups = " ".join(f'{user} "{names}";' for user, names in GROUPS.items())
        lines = location.replace("127.0.0.1:8000", upstream)
        (folder / "nginx.conf").write_text(CONFIG.format(folder=folder, groups=groups, port=port, location=lines))
        command = [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf")]
    else:
        words = [line.split(None, 2) for line in location.splitlines() if line.strip().startswith("proxy_set_header")]
        sends = {name: value.partition(";")[0] for _, name, value in words}
        command = [sys.executable, __file__, str(port), upstream, json.dumps(sends)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.02)
            assert process.poll() is None, (folder / "error.log").read_text() if NGINX else "the stand-in ended"
            yield port
        finally:
            process.terminate()


class Proxy(BaseHTTPRequestHandler):
    """Sends on each request of whoever is signed in."""

    upstream, sends = "", {}

    def respond(self):
        scheme, _, value = self.headers.get("Authorization", "").partition(" ")
        user, _, password = base64.b64decode(value).decode().partition(":") if scheme == "Basic" else ("", "", "")
        if user not in GROUPS or password != user:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="help"')
            self.end_headers()
            return
        host = self.headers.get("Host", "")
        means = {"$host": host.partition(":")[0], "$http_host": host, "$groups": GROUPS[user], "$scheme": "http"}
        sent = {"Host": self.upstream, **{name: means.get(value, value) for name, value in self.sends.items()}}
        hidden = {name.lower() for name in (*sent, "Connection")}
        kept = {name: value for name, value in self.headers.items() if name.lower() not in hidden}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = http.client.HTTPConnection(self.upstream, timeout=60)
        connection.request(self.command, self.path, body, {**kept, **{k: v for k, v in sent.items() if v}})
        reply = connection.getresponse()
        self.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        self.end_headers()
        while piece := reply.read1():
            self.wfile.write(piece)
            self.wfile.flush()
        connection.close()

    do_GET = do_POST = do_HEAD = respond

    def log_message(self, *_):
        """Silent."""


if __name__ == "__main__":
    Proxy.upstream, Proxy.sends = sys.argv[2], json.loads(sys.argv[3])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Proxy).serve_forever()
