"""How near a question comes to its critical path, and many at once to what their server can do.

    python benchmarks/latency.py [--quick] [--json]

A server on loopback speaks the OpenAI protocol and answers each call after 200 ms, so many at once and no more; it runs
in a process of its own. Critical path: the calls of a complex question that must follow each other (classify, split,
judge the passages, judge the whole, write, check the claims, check the answer) and the search of its parts, which takes
150 ms; the search of the question itself takes as long and runs while the classifier thinks. The server's limit: the
calls it was given, divided among its slots.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dspy
import httpx
import numpy as np
from scripted_model import Shelf, reply_to

from program.budget import Budget
from program.knowledge.library import Library
from program.models.catalog import Models
from program.rag import AgenticRAG, Runtime
from program.settings import ModelSettings

Figure = dict[str, Any]
SECONDS = 0.2  # the server takes for a call
SEARCH = 0.15  # the shelf takes for a search
PATH = (
    "classifier.route",
    "decomposer.split",
    "judge.relevance",
    "judge.sufficiency",
    "generator.answer",
    "grounder.support",
    "grounder.responsive",
)
SLOTS = 16
ALONE, ALONE_QUICK = 15, 5
TOGETHER, TOGETHER_QUICK = 100, 40
PATIENCE = Budget(max_seconds=600.0, max_tokens=10_000_000)


def serve(port: int, slots: int) -> None:
    """Answers every chat completion after `SECONDS`, `slots` at once."""
    from aiohttp import web

    free = asyncio.Semaphore(slots)
    served = 0

    async def complete(request: web.Request) -> web.Response:
        nonlocal served
        body = await request.json()
        async with free:
            await asyncio.sleep(SECONDS)
        served += 1
        message = {"role": "assistant", "content": reply_to(body["messages"][0]["content"])}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        told = {"id": "x", "object": "chat.completion", "created": 0, "model": "staged", "usage": usage}
        return web.json_response({**told, "choices": [choice]})

    async def count(request: web.Request) -> web.Response:
        return web.json_response({"served": served})

    made = web.Application(client_max_size=10_000_000)
    made.router.add_post("/v1/chat/completions", complete)
    made.router.add_get("/served", count)
    web.run_app(made, host="127.0.0.1", port=port, print=lambda *_: None)


@contextmanager
def server(slots: int) -> Iterator[str]:
    """The address of a running server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(port, slots), daemon=True)
    process.start()
    address = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            httpx.get(f"{address}/served", timeout=1.0)
            break
        except httpx.TransportError:
            time.sleep(0.1)
    try:
        yield address
    finally:
        process.terminate()
        process.join()


def program(address: str, search: float) -> AgenticRAG:
    """The `full` preset, all of whose models are that server."""
    shelf = Shelf(seconds=search)
    lm = dspy.LM("openai/staged", api_base=f"{address}/v1", api_key="none", cache=False, num_retries=0)
    names = ModelSettings(decide="openai/staged", write="openai/staged")
    library = Library([], None, None, [shelf])  # type: ignore[arg-type]  # nothing is embedded
    models = Models(lm, lm, None, names)  # type: ignore[arg-type]
    made = AgenticRAG([shelf.describe()], Runtime(library, models, PATIENCE))
    made.policy.turn(glimpse=0)  # as for any classifier that is a language model
    return made


def served(address: str) -> int:
    return int(httpx.get(f"{address}/served").json()["served"])


def alone(questions: int) -> Figure:
    """One complex question at a time over its critical path."""
    shortest = len(PATH) * SECONDS + SEARCH
    with server(slots=1000) as address:
        rag = program(address, SEARCH)

        async def ask() -> list[float]:
            await rag.aask("warm")
            seconds = []
            for n in range(questions):
                began = time.perf_counter()
                answer = await rag.aask(f"How much do jars {n} and {n + 1} hold?")
                seconds.append(time.perf_counter() - began)
                steps = {step.name for step in answer.trace.steps}
                assert steps == {"search", *PATH}, answer.trace
            return seconds

        seconds = asyncio.run(ask())
    return figure(
        "one complex question over its critical path", float(np.median(seconds)) / shortest, "<= 1.1", questions
    )


def together(questions: int) -> list[Figure]:
    """Many complex questions at once over what the server can do."""
    with server(SLOTS) as address:
        rag = program(address, 0.0)

        async def ask() -> float:
            await rag.aask("warm")
            began = time.perf_counter()
            await asyncio.gather(*(rag.aask(f"How much do jars {n} and {n + 1} hold?") for n in range(questions)))
            return time.perf_counter() - began

        before = served(address)
        seconds = asyncio.run(ask())
        calls = served(address) - before
    limit = calls / SLOTS * SECONDS
    name = f"{questions} questions at once over the server's limit"
    return [figure(name, seconds / limit, "<= 1.15", questions), figure("their calls", calls, "reported", questions)]


def figure(name: str, value: float, bar: str, n: int) -> Figure:
    """One line of the result; a bar is `<= x` or only reports."""
    sign, _, limit = bar.partition(" ")
    holds = sign != "<=" or value <= float(limit)
    return {"figure": name, "value": round(value, 4), "bar": bar, "holds": holds, "n": n}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{ALONE_QUICK} alone, {TOGETHER_QUICK} at once")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = [
        alone(ALONE_QUICK if options.quick else ALONE),
        *together(TOGETHER_QUICK if options.quick else TOGETHER),
    ]
    if options.json:
        print(json.dumps(figures))
        return
    for one in figures:
        verdict = "holds" if one["holds"] else "MISSED"
        print(f"{one['figure']:<56} {one['value']:>9.4f}  {one['bar']:<9} {verdict:<7} n={one['n']}")


if __name__ == "__main__":
    main()
