"""What serving adds to a question, how many questions a second it keeps, and what a moving alias costs.

    python benchmarks/serve.py [--quick] [--json]

The server is a process of its own, `ragc serve` over the shipped example at its current version. In process the same
program is asked: one question after another, and by as many threads as there are clients. Both sides take turns, on the
same questions, asked before so that both keep what they keep. Then an alias of the example's first and newest versions
moves twenty times to and fro while it is asked; memory is compared with what it was after the first two moves.

    python benchmarks/serve.py --crowd WORKERS [EACH]

200 clients ask EACH (100) of the example's questions of train and dev, spread over so many servers.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from figures import ROOT, Figure, figure, run_benchmark, show
from psutil import Process

from ragc.knowledge.project import Project
from ragc.optimize.labelled.dataset import read_labelled
from ragc.optimize.registry.aliases import promote_version
from ragc.serve.opening import open_latest
from ragc.serve.reference import find_versions

EXAMPLE = ROOT / "data" / "tallowgate"
CLIENTS, QUESTIONS, ROUNDS, PORT = 32, 40, 5, 8765
MOVES, ASKED = 20, 10_000  # of the alias, and the questions asked meanwhile
CROWD, EACH = 200, 100  # clients at once, and the questions of each
Ask = Callable[[str], object]


@contextmanager
def serve_apart(*target: str, port: int = PORT) -> Iterator[int]:
    """Serve from a process of its own until the block ends, and yield its id; then it must end by itself."""
    command = [sys.executable, "-m", "ragc.optimize.cli.main", "serve", *target, "--port", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            try:
                http.client.HTTPConnection("127.0.0.1", port, timeout=5).request("GET", "/readyz")
                break
            except OSError:
                time.sleep(0.2)
        yield process.pid
    finally:
        process.terminate()
        process.wait(60)


def ask_over_http(question: str, model: str = EXAMPLE.name, port: int = PORT) -> dict[str, Any]:
    """Return what the server replies, over a connection of the question's own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": question}]})
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    found: dict[str, Any] = {"status": reply.status, **json.loads(reply.read())}
    connection.close()
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


def measure_moves(questions: Sequence[str], asked: int) -> Iterator[Figure]:
    """Ask while an alias moves."""
    name = Project.open(EXAMPLE).name
    with tempfile.TemporaryDirectory() as place:
        root = Path(shutil.copytree(Project.open(EXAMPLE).artifacts / name, Path(place) / name)).parent
        versions = find_versions(root, name)
        promote_version(f"{name}@{versions[0]}", "moving", root=root)
        alias, sizes, replies = f"{name}@moving", [], []
        target = (alias, "--artifacts", str(root), "--project", str(EXAMPLE))
        with serve_apart(*target) as process, ThreadPoolExecutor(CLIENTS) as pool:
            for move in range(MOVES):
                promote_version(f"{name}@{versions[-1 - move % 2]}", "moving", root=root)
                part = (questions[n % len(questions)] for n in range(asked // MOVES))
                replies += pool.map(partial(ask_over_http, model=alias), part)
                sizes.append(Process(process).memory_info().rss)
    amiss = [reply for reply in replies if reply["status"] != 200]
    seen = {reply.get("version", "") for reply in replies}
    yield figure(f"an alias that moves {MOVES} times: questions that failed", len(amiss), "<= 0", len(replies))
    yield figure("versions that answered", len(seen), "2 to 2", len(replies))
    yield figure("memory at the end over that after two moves", sizes[-1] / sizes[1], "<= 1.10", MOVES)


def look(pids: Sequence[int], over: Any, seen: Any) -> None:
    """Note how long the first server takes to say that it is well, and the bytes of each, until it is over.

    It has a process of its own: among the clients it would wait for them, too.
    """
    healths: list[float] = []
    sizes: list[list[int]] = []
    while not over.wait(0.25):
        sizes.append([Process(pid).memory_info().rss for pid in pids])
        connection, began = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60), time.perf_counter()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        healths.append(time.perf_counter() - began)
    seen.put((healths, sizes))


def measure_crowd(workers: int, each: int) -> Iterator[Figure]:
    """Ask by a crowd, and look at memory and at how long the server takes to say that it is well."""
    questions = [one.question for one in read_labelled(EXAMPLE / "labelled.jsonl") if one.split != "test"]
    ports, apart = [PORT + n for n in range(workers)], multiprocessing.get_context("spawn")

    def ask_patiently(n: int) -> int:
        while (reply := ask_over_http(questions[n % len(questions)], port=ports[n % workers]))["status"] == 429:
            time.sleep(0.5)
        return int(reply["status"])

    with ExitStack() as servers, ThreadPoolExecutor(CROWD) as pool:
        pids = [servers.enter_context(serve_apart(str(EXAMPLE), port=port)) for port in ports]
        list(pool.map(ask_patiently, range(8 * workers)))
        idle = sum(Process(pid).memory_info().rss for pid in pids) / workers
        over, seen = apart.Event(), apart.SimpleQueue()
        looking = apart.Process(target=look, args=[pids, over, seen])
        looking.start()
        began = time.perf_counter()
        amiss = sum(status != 200 for status in pool.map(ask_patiently, range(CROWD * each)))
        seconds = time.perf_counter() - began
        over.set()
        healths, sizes = seen.get()
        looking.join()
    asked, of = CROWD * each, f"{workers} server{'s'[: workers > 1]}, {CROWD} clients"
    yield figure(f"{of}: questions that failed", amiss, "<= 0", asked)
    yield figure(f"{of}: questions a second", asked / seconds, "reported", asked)
    yield figure(f"{of}: MB of a server before", idle / 1e6, "reported", workers)
    yield figure(f"{of}: MB of a server at most", max(map(max, sizes)) / 1e6, "reported", len(sizes))
    yield figure(f"{of}: MB of a server at the end", max(sizes[-1]) / 1e6, "reported", workers)
    yield figure(f"{of}: /healthz, slowest, s", max(healths), "reported", len(healths))
    yield figure(f"{of}: /healthz, p99, s", statistics.quantiles(healths, n=100)[98], "<= 0.2", len(healths))


def measure(quick: bool) -> Iterator[Figure]:
    questions = [one.question for one in read_labelled(EXAMPLE / "labelled.jsonl") if one.split != "test"]
    questions = questions[:: len(questions) // QUESTIONS][: 10 if quick else QUESTIONS]
    rag = open_latest(EXAMPLE)
    sides: tuple[Ask, Ask] = (rag, ask_over_http)
    with serve_apart(str(EXAMPLE)):
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
    yield from measure_moves(questions, 200 if quick else ASKED)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--crowd"]:
        show(measure_crowd(int(sys.argv[2]), int((*sys.argv[3:], EACH)[0])), as_json=False)
    else:
        run_benchmark(__doc__, measure)
