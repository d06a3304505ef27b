"""A compile with a real language model, killed at random moments and given again: which requests it sends twice.

    python benchmarks/interruptions.py --base-url http://127.0.0.1:8081/v1 --model qwen [--kills 5] [--max-calls 60]

A small project is made here, and compiled through a server on loopback that passes each request on to the model and
counts it by its content. A request under way at a kill is not recorded and has to be sent again; no other may be.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
from figures import ROOT, Figure, figure, show
from machines import make_project

from ragc.models.language.provider import key_variable

LONGEST = 60.0  # seconds until a kill, at most
PATIENCE = 600.0


class CountingServer(ThreadingHTTPServer):
    """Passes each request on to the model's server, and counts what was sent and what came back whole."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target, self.sent, self.answered, self.under_way = target.removesuffix("/v1"), Counter[str](), 0, 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: CountingServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.sent[hashlib.sha256(body).hexdigest()] += 1
            self.server.under_way += 1
        try:
            reply = httpx.post(
                self.server.target + self.path, content=body, headers={"Content-Type": "application/json"}, timeout=None
            )
            self.send_response(reply.status_code)
            self.send_header("Content-Type", reply.headers["Content-Type"])
            self.send_header("Content-Length", str(len(reply.content)))
            self.end_headers()
            self.wfile.write(reply.content)
            self.wfile.flush()
        except OSError:
            return  # the compile was killed
        finally:
            with self.server.lock:
                self.server.under_way -= 1

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", required=True, help="the server of the model, in OpenAI's protocol")
    parser.add_argument("--model", required=True, help="its name there")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--max-calls", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="other moments")
    parser.add_argument("--quick", action="store_true", help="one kill of a compile of ten calls")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.kills, options.max_calls = 1, 10
    with tempfile.TemporaryDirectory() as folder:
        show(measure(Path(folder), options), options.json)


def measure(folder: Path, options: argparse.Namespace) -> Iterator[Figure]:
    """Kill a compile so many times, let it end, and tell what was sent."""
    server = CountingServer(options.base_url)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    make_project(folder, 8)
    name = f"openai/{options.model}"
    with (folder / "ragc.toml").open("a", encoding="utf-8") as toml:
        toml.write(
            f'[models]\nwrite = "{name}"\n[budget]\nmax_seconds = {PATIENCE}\n[provider]\nfallback = false\n'
            f'call_seconds = {PATIENCE}\n[provider.model."{name}"]\napi_base = "{server.url}"\n'
            "usd_in = 0\nusd_out = 0\nconcurrency = 1\n"
        )
    rng, lost, kills = random.Random(options.seed), 0, 0
    while kills < options.kills:
        process = start_compile(folder, server.url, options.max_calls)
        began, wait = time.monotonic(), rng.uniform(5, LONGEST)
        while process.poll() is None and time.monotonic() - began < wait:
            time.sleep(0.05)
        if process.poll() is not None:
            break
        with server.lock:
            lost += server.under_way
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
        print(f"kill {kills} after {wait:.0f} s: {server.sent.total()} requests so far", file=sys.stderr)
    ended = start_compile(folder, server.url, options.max_calls) if kills == options.kills else process
    code = ended.wait()
    twice = server.sent.total() - len(server.sent)
    yield figure("exit status of the last compile", code, "<= 0", 1)
    yield figure("kills of the compile at work", kills, f">= {options.kills}", options.kills)
    yield figure("requests sent", server.sent.total(), "reported", kills)
    yield figure("requests under way at a kill", lost, "reported", kills)
    yield figure("requests sent twice, less those under way at a kill", max(twice - lost, 0), "<= 0", len(server.sent))


def start_compile(folder: Path, url: str, calls: int) -> subprocess.Popen[bytes]:
    """Begin a compile, or go on with it, in a process group of its own."""
    command = [sys.executable, "-m", "ragc.optimize.cli.main", "compile", str(folder)]
    command += ["--max-calls", str(calls), "--trials", "8"]
    variables = {**os.environ, key_variable(url): "none", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=variables, start_new_session=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
