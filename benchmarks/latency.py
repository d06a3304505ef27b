"""How near a question comes to its critical path, and many at once to what their server can do.

    python benchmarks/latency.py [--quick] [--json]

A server on loopback speaks the OpenAI protocol and answers each call after 200 ms, so many at once and no more; it runs
in a process of its own, and ragc asks it as it asks any language model. Critical path: the calls of a complex question
that must follow each other (classify, split, judge the passages, judge the whole, write, check the claims, check the
answer) and the search of its parts, which takes 150 ms; the search of the question itself takes as long and runs while
the classifier thinks. The server's limit: the calls it was given, divided among its slots. The processor time of both
sides is reported, for on a machine that is busy with other things the ratios measure these.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).parents[1]))  # for tests.support
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from apart import serve_apart
from figures import Figure, figure, show
from scripted_model import Shelf, elaborate

from program.knowledge.library import Library
from program.loop.rag import AgenticRAG
from program.loop.state import Budget, Runtime
from program.models.catalog import open_models
from program.settings import ModelSettings, ProviderSettings
from tests.support.provider import Provider, Script

MODEL = "openai/staged"
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
SLOTS = 8
ALONE, ALONE_QUICK = 15, 5
TOGETHER, TOGETHER_QUICK = 100, 30
PATIENCE = Budget(max_seconds=600.0, max_tokens=10_000_000)


def program(provider: Provider, search: float) -> AgenticRAG:
    """The `full` preset, all of whose models are that server."""
    shelf = Shelf(seconds=search)
    terms = ProviderSettings(fallback=False, model={MODEL: {"api_base": provider.url}})  # type: ignore[dict-item]
    models = open_models(ModelSettings(decide=MODEL, write=MODEL), terms)
    library = Library([], None, None, [shelf])  # type: ignore[arg-type]  # nothing is embedded
    made = AgenticRAG([shelf.describe()], Runtime(library, models, PATIENCE))
    made.policy.turn(glimpse=0)  # as for any classifier that is a language model
    return made


def alone(provider: Provider, questions: int) -> list[Figure]:
    """One complex question at a time over its critical path."""
    shortest = len(PATH) * SECONDS + SEARCH
    provider.follow(Script(delay=SECONDS))
    rag = program(provider, SEARCH)

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

    ratios = np.array(asyncio.run(ask())) / shortest
    name = "one complex question over its critical path"
    return [
        figure(name, float(np.median(ratios)), "<= 1.10", questions),
        figure("the best of them", float(ratios.min()), "reported", questions),
    ]


def together(provider: Provider, questions: int) -> list[Figure]:
    """Many complex questions at once over what the server can do."""
    provider.follow(Script(delay=SECONDS, at_once=SLOTS))
    rag = program(provider, 0.0)

    async def ask() -> float:
        await rag.aask("warm")
        provider.follow(Script(delay=SECONDS, at_once=SLOTS))
        began = time.perf_counter()
        await asyncio.gather(*(rag.aask(f"How much do jars {n} and {n + 1} hold?") for n in range(questions)))
        return time.perf_counter() - began

    worked, servers = time.process_time(), provider.processor
    seconds = asyncio.run(ask())
    worked, servers, calls = time.process_time() - worked, provider.processor - servers, provider.calls
    name = f"{questions} questions at once over the server's limit"
    return [
        figure(name, seconds / (calls / SLOTS * SECONDS), "<= 1.15", questions),
        figure("their calls", calls, "reported", questions),
        figure("processor ms of ours a call", 1000 * worked / calls, "reported", calls),
        figure("processor ms of the server a call", 1000 * servers / calls, "reported", calls),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{ALONE_QUICK} alone, {TOGETHER_QUICK} at once")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with serve_apart(elaborate) as provider:
        figures = [
            *alone(provider, ALONE_QUICK if options.quick else ALONE),
            *together(provider, TOGETHER_QUICK if options.quick else TOGETHER),
        ]
    show(figures, options.json)


if __name__ == "__main__":
    main()
