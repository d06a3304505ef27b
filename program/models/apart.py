"""The stand-in provider in a process of its own, as a real one is: what it costs is not the client's.

    with serve_apart(Script(delay=0.2), "program.models.script:obliging") as provider:
        ...  # openai/<any name> with api_base = provider.url
        provider.books()  # what the server itself counted

`python -m program.models.apart` is the server; it takes its orders, a line of JSON each, from its standard input.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from program.models.script import Script
from program.models.testing import Provider
from program.models.tokens import count_text


@dataclass(frozen=True, slots=True)
class Books:
    """What a server counted since its script was set: its calls, their tokens, the most requests it had at once.

    `first` is how long after its arrival the last streamed request was given its first word, in seconds; `processor`
    the processor seconds of the server's process; `faults` how often each fault befell a request.
    """

    calls: int
    tokens_in: int
    tokens_out: int
    most_in_flight: int
    first: float
    processor: float
    faults: Mapping[str, int]


class ProviderApart:
    """The way to a running server's process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.port = 0

    @property
    def url(self) -> str:
        """What to give as `api_base`."""
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        """Listens, on the same port as before when it was stopped."""
        self.port = self._order({"do": "start"})

    def stop(self) -> None:
        """Cuts every connection and listens no more."""
        self._order({"do": "stop"})

    def follow(self, script: Script) -> None:
        """Behaves by another script from now on, and begins its books anew."""
        self._order({"do": "follow", "script": asdict(script)})

    def books(self) -> Books:
        return Books(**self._order({"do": "books"}))

    def _order(self, order: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def serve_apart(script: Script | None = None, brain: str = "") -> Iterator[ProviderApart]:
    """The server, listening on a free port of 127.0.0.1 until the block is left.

    `brain` is the `module:function` that replies; without one the script does.
    """
    command = [sys.executable, "-m", "program.models.apart", brain]
    own = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}  # it finds what we find
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=own) as process:
        try:
            provider = ProviderApart(process)
            provider.follow(script or Script())
            provider.start()
            yield provider
        finally:
            process.kill()


def main(brain: str) -> None:
    """Serves, and does as it is told until its standard input ends."""
    module, _, name = brain.partition(":")
    provider = Provider(Script(), getattr(importlib.import_module(module), name) if brain else None)
    count_text("stand-in", "x")  # loads the counter now, not in the time of the first request
    for line in sys.stdin:
        print(json.dumps(_done(provider, json.loads(line))), flush=True)


def _done(provider: Provider, order: Mapping[str, Any]) -> Any:
    match order["do"]:
        case "start":
            provider.start()
            return provider.port
        case "stop":
            return provider.stop()
        case "follow":
            return provider.follow(Script(**order["script"]))
    books = Books(
        provider.calls,
        provider.tokens_in,
        provider.tokens_out,
        provider.most_in_flight,
        provider.first,
        time.process_time(),
        dict(provider.faults),
    )
    return asdict(books)


if __name__ == "__main__":
    main(sys.argv[1])
