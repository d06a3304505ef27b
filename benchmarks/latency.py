"""How near a question comes to the calls that it needs, many at once to what their server can do, and the first word.

    python benchmarks/latency.py [--quick] [--json]

The stand-in server on loopback, in a process of its own, answers each call after 200 ms, so many at once and no more.
Beside a question stand its kinds of calls, one after the other: below 1 some overlap. The server's limit is the calls
it was given, divided among its slots. Beside the first word of a streamed answer stands the server's own first word. A
question that a DSPy callback watches is asked of the shipped example, or of a copy of the project before any compile,
in turn with the same question unwatched. A question whose decisions a client takes 200 ms for is asked and awaited in
turn: both ways wait for all of them at once.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.managers import BaseManager, NamespaceProxy  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any

import dspy
from dspy.utils.callback import BaseCallback
from figures import ROOT, Figure, figure, run_benchmark

from ragc.answer import Progress, Token
from ragc.loop.rag import AgenticRAG
from ragc.models.requests import Answers, DecisionClient, Questions, State
from ragc.optimize.labelled.dataset import read_labelled
from ragc.serve.opening import open_latest
from tests.support.goods import ask_about, program_at
from tests.support.provider import Brain, Provider, Script
from tests.support.replies import obliging

SECONDS = 0.2  # that the server takes for a call
SLOTS = 8
EXAMPLE = ROOT / "data" / "tallowgate"
PATIENCE = 600.0  # seconds that a question may take


class ProviderApart(NamespaceProxy):
    """The way to a server in another process; its attributes are those of `Provider`."""

    _exposed_ = ("__getattribute__", "follow", "start", "stop")

    def follow(self, script: Script) -> None:
        self._callmethod("follow", (script,))

    def start(self) -> None:
        self._callmethod("start")


class ServerProcess(BaseManager):
    """The server's process."""


ServerProcess.register("Provider", Provider, ProviderApart)


@contextmanager
def serve_apart(brain: Brain) -> Iterator[ProviderApart]:
    """Serve from a process of its own; `brain` is a module's function."""
    with ServerProcess(ctx=get_context("spawn")) as manager:
        provider = manager.Provider(Script(), brain)  # type: ignore[attr-defined]
        provider.start()
        yield provider


def measure_alone(provider: ProviderApart, folder: Path, n: int) -> Iterator[Figure]:
    provider.follow(Script(delay=SECONDS))
    rag = program_at(provider.url, folder / "alone", seconds=PATIENCE)
    rag(ask_about(-1))  # loads what is loaded once

    async def ask_each() -> list[float]:
        ratios = []
        for number in range(n):
            began = time.perf_counter()
            answer = await rag.aask(ask_about(number))
            calls = {step.name for step in answer.trace.steps} - {"search"}
            ratios.append((time.perf_counter() - began) / (len(calls) * SECONDS))
        return ratios

    ratios = asyncio.run(ask_each())
    yield figure("one question over its kinds of calls in a row", statistics.median(ratios), "<= 1.10", n)
    yield figure("the best of them", min(ratios), "reported", n)


def measure_together(provider: ProviderApart, folder: Path, n: int) -> Iterator[Figure]:
    rag = program_at(provider.url, folder / "together", provider=f"concurrency = {4 * SLOTS}", seconds=PATIENCE)
    rag(ask_about(-1))
    provider.follow(Script(delay=SECONDS, at_once=SLOTS))

    async def ask_all() -> float:
        began = time.perf_counter()
        await asyncio.gather(*(rag.aask(ask_about(number)) for number in range(n)))
        return time.perf_counter() - began

    worked, seconds = time.process_time(), asyncio.run(ask_all())
    worked, calls = time.process_time() - worked, provider.calls
    yield figure(f"{n} questions at once over the server's limit", seconds / (calls / SLOTS * SECONDS), "<= 1.15", n)
    yield figure("their calls", calls, "reported", n)
    yield figure("processor ms of ours a call", 1000 * worked / calls, "reported", calls)


def measure_stream(provider: ProviderApart, folder: Path, n: int) -> Iterator[Figure]:
    provider.follow(Script(delay=SECONDS, token_delay=0.03))
    models = 'decide = "local/reader"\nwrite = "openai/stand-in"'
    rag = program_at(provider.url, folder / "stream", models=models).plain()
    rag(ask_about(-1))
    late = [asyncio.run(time_first_word(rag, ask_about(number), provider)) for number in range(n)]
    yield figure("streaming: ms to the first word beyond the server's own", statistics.median(late), "<= 30", n)


async def time_first_word(rag: AgenticRAG, question: str, provider: ProviderApart) -> float:
    """Return the milliseconds to the first word, the server's own taken off."""
    began = first = 0.0
    async for event in rag.stream(question):
        if isinstance(event, Progress) and not first:
            began = time.perf_counter()
        elif isinstance(event, Token):
            first = first or time.perf_counter() - began
    return 1000 * (first - provider.first)


class SlowDecider(DecisionClient):
    """A client that is awaited 200 ms for each decision, which it upholds."""

    awaits = True

    async def acall(self, state: State, questions: Questions) -> Answers:
        await asyncio.sleep(SECONDS)
        return {name: {"noul": 0.9} for name in questions}


def measure_asked(folder: Path, n: int) -> Iterator[Figure]:
    rag = program_at("http://127.0.0.1:9", folder / "asked", models='decide = "local/reader"', seconds=PATIENCE)
    rag.policy.turn(k=12, keep_at_most=12)
    rag.generator.states.lm = SlowDecider("slow/decider")
    seconds: dict[str, list[float]] = {"asked": [], "awaited": []}
    ways = ("asked", rag), ("awaited", lambda question: asyncio.run(rag.aask(question)))
    for number in range(-2, 2 * n):  # a question is new to both, and the first two load what is loaded once
        way, ask = ways[(number + number // 2) % 2]
        began = time.perf_counter()
        answer = ask(ask_about(number))
        if number >= 0:
            seconds[way].append(time.perf_counter() - began)
    decided = [step.name for step in answer.trace.steps].count("generator.states")
    asked, awaited = (statistics.median(times) for times in seconds.values())
    yield figure(f"a question with {decided} decisions of 200 ms: seconds where it is asked", asked, "reported", n)
    yield figure("seconds where it is awaited", awaited, "reported", n)
    yield figure("asked over awaited", asked / awaited, "<= 1.05", n)


class Watching(BaseCallback):
    """A callback that counts the modules, decisions and searches that it is told of."""

    told = 0

    def on_module_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        self.told += 1


def measure_watched(n: int) -> Iterator[Figure]:
    rag = open_latest(EXAMPLE).deepcopy()
    rag.runtime = replace(rag.runtime, observers=())
    questions = [one.question for one in read_labelled(EXAMPLE / "labelled.jsonl")[:n]]
    watching, added, same = Watching(), [], 0
    for question in questions:
        rag(question)  # reads and fits what is kept
        seconds = {}
        for callbacks in ([], [watching]):
            times = []
            for _ in range(3):
                began = time.perf_counter()
                with dspy.context(callbacks=callbacks):
                    answer = rag(question)
                times.append(time.perf_counter() - began)
            seconds[answer.text, answer.trace.path, bool(callbacks)] = min(times)
        (text, path, _), watched = seconds
        same += watched[:2] == (text, path)
        added.append(1000 * (seconds[watched] - seconds[text, path, False]))
    yield figure("watched by a callback: questions answered alike", same / n, ">= 1", n)
    yield figure("watched by a callback: ms more a question", statistics.median(added), "<= 10", n)
    yield figure("what it is told of a question", watching.told / n / 3, "reported", n)


def measure(quick: bool) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as place, serve_apart(obliging) as provider:
        yield from measure_alone(provider, Path(place), 5 if quick else 15)
        yield from measure_together(provider, Path(place), 30 if quick else 100)
        yield from measure_asked(Path(place), 3 if quick else 15)
        yield from measure_stream(provider, Path(place), 5 if quick else 40)
    yield from measure_watched(20 if quick else 60)


if __name__ == "__main__":
    run_benchmark(__doc__, measure)
