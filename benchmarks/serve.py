"""What serving adds to a question, and how many questions a second it keeps, beside asking in process.

    python benchmarks/serve.py [--quick] [--json]

The server is a process of its own, `ragc serve` over the shipped example at its current version. In process the same program is asked: one question after another, and by as many threads as there are clients. Both sides
take turns, on the same questions, asked before so that both keep what they keep.
"""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from figures import ROOT, Figure, figure, run_benchmark

from optimize.labelled.dataset import read_labelled
from program.serve.opening import open_latest

EXAMPLE = ROOT / "data" / "tallowgate"
CLIENTS, QUESTIONS, ROUNDS = 32, 40, 5
Ask = Callable[[str], object]


@contextmanager
def serve_apart(port: int) -> Iterator[int]:
    """Serve the example from a process of its own until the block ends; then it must end by itself."""
    command = [sys.executable, "-m", "optimize.cli.main", "serve", str(EXAMPLE), "--port", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            try:
                http.client.HTTPConnection("127.0.0.1", port, timeout=5).request("GET", "/readyz")
                break
            except OSError:
                time.sleep(0.2)
        yield port
    finally:
        process.terminate()
        process.wait(60)


def ask_over_http(port: int, question: str) -> object:
    """Return what the server replies, over a connection of the question's own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    body = json.dumps({"model": EXAMPLE.name, "messages": [{"role": "user", "content": question}]})
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    found = reply.read()
    connection.close()
    assert reply.status == 200, found
    return found


def time_each(ask: Ask, questions: Sequence[str]) -> list[float]:
    times = []
    for question in questions:
        began = time.perf_counter()
        ask(question)
        times.append(time.perf_counter() - began)
    return times


def count_rate(ask: Ask, questions: Sequence[str]) -> float:
    """Return how many questions a second CLIENTS threads ask."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        began = time.perf_counter()
        for _ in pool.map(ask, questions):
            pass
        return len(questions) / (time.perf_counter() - began)


def measure(quick: bool) -> Iterator[Figure]:
    questions = [one.question for one in read_labelled(EXAMPLE / "labelled.jsonl") if one.split != "test"]
    questions = questions[:: len(questions) // QUESTIONS][: 10 if quick else QUESTIONS]
    rag = open_latest(EXAMPLE)
    with serve_apart(8765) as port:
        sides: tuple[Ask, Ask] = (rag, lambda question: ask_over_http(port, question))
        for ask in sides:
            time_each(ask, questions)
        added, rates = [], []
        for _ in range(2 if quick else ROUNDS):
            alone, served = (time_each(ask, questions) for ask in sides)
            added += [1000 * (over - one) for one, over in zip(alone, served, strict=True)]
            inside, outside = (count_rate(ask, questions * 4) for ask in sides)
            rates.append((outside / inside, inside, outside))
    n = len(added)
    yield figure("added by the server to a question, p50, one client, ms", statistics.median(added), "<= 3", n)
    share, inside, outside = (statistics.median(found) for found in zip(*rates, strict=True))
    asked = len(rates) * len(questions) * 4
    yield figure(f"{CLIENTS} clients: questions a second over asking in process", share, ">= 0.90", asked)
    yield figure("in process, questions a second", inside, "reported", asked)
    yield figure("served, questions a second", outside, "reported", asked)


if __name__ == "__main__":
    run_benchmark(__doc__, measure)
