"""Language models under fire: each fault of a server in turn, all at once, and a server that is gone for a while.

    python benchmarks/faults.py [--quick] [--json]

The server is the stand-in of tests/support/provider.py, spoken to over HTTP. It keeps its own books of calls and
tokens, and ragc's accounting must equal them. Every question is different.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from figures import Figure, figure, run_benchmark

from program import Answer
from program.loop.rag import AgenticRAG
from tests.support.goods import ask_about, program_at
from tests.support.provider import FAULTS, Provider, Script, serve
from tests.support.replies import obliging

SHARE, ALL_AT_ONCE = 0.2, 0.5
AT_ONCE = 8
SECONDS = 30.0  # that a question may take
EMBEDDED = 'decide = "local/reader"\nwrite = "openai/stand-in"'


@dataclass(slots=True)
class Asked:
    """What became of a lot of questions."""

    answers: list[Answer] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    late: int = 0


async def ask_all(rag: AgenticRAG, numbers: Iterable[int], streamed: bool = False) -> Asked:
    """Ask the questions, AT_ONCE at once."""
    found, free = Asked(), asyncio.Semaphore(AT_ONCE)

    async def ask(n: int) -> None:
        async with free:
            began = time.perf_counter()
            try:
                events = [event async for event in rag.stream(ask_about(n))] if streamed else []
                found.answers.append(events[-1] if streamed else await rag.aask(ask_about(n)))
            except Exception as error:
                found.errors.append(f"{type(error).__name__}: {error}")
            found.late += time.perf_counter() - began > SECONDS

    await asyncio.gather(*map(ask, numbers))
    return found


def measure_faults(provider: Provider, folder: Path, n: int, names: tuple[str, ...]) -> Iterator[Figure]:
    mixes: dict[str, Mapping[str, float]] = {name: {name: SHARE} for name in names}
    mixes["all at once"] = dict.fromkeys(FAULTS, ALL_AT_ONCE / len(FAULTS))
    for name, mix in mixes.items():
        place = folder / name.replace(" ", "-")
        yield from measure_mix(provider, place, name, mix, n)
        yield from measure_mix(provider, place / "streamed", f"{name}, streamed", mix, n, streamed=True)


def measure_mix(
    provider: Provider, folder: Path, name: str, mix: Mapping[str, float], n: int, streamed: bool = False
) -> Iterator[Figure]:
    """Ask n questions of a server with these faults; of plain RAG where each request is a streamed text."""
    provider.follow(Script())
    terms = "call_seconds = 2\nretries = 2"
    rag = program_at(provider.url, folder, provider=terms, models=EMBEDDED if streamed else "", seconds=SECONDS)
    rag = rag.plain() if streamed else rag
    rag(ask_about(-1))  # loads what is loaded once
    provider.follow(Script(mix, seed=n))
    found = asyncio.run(ask_all(rag, range(n), streamed))
    for error in found.errors[:3]:
        print(f"{name}: {error}", file=sys.stderr)
    usages = [answer.usage for answer in found.answers]
    calls, served = sum(usage.calls for usage in usages), provider.tokens_in + provider.tokens_out
    tokens = sum(usage.tokens_in + usage.tokens_out for usage in usages)
    yield figure(f"{name}: questions that end in an outcome", len(found.answers) / n, ">= 1", n)
    yield figure(f"{name}: later than their deadline", found.late, "<= 0", n)
    yield figure(f"{name}: calls counted beside the server's", abs(calls - provider.calls), "<= 0", provider.calls)
    if not (streamed and "huge" in mix):  # the rest of it is not waited for: only the server knows what it sent
        yield figure(f"{name}: tokens counted beside the server's", abs(tokens - served), "<= 0", served)
    yield figure(f"{name}: faults that befell requests", sum(provider.faults.values()), ">= 1", provider.calls)


def measure_outage(provider: Provider, folder: Path, n: int, seconds: float) -> Iterator[Figure]:
    """The server is gone for a while in the middle: the embedded models answer, and then the model again."""
    provider.follow(Script(delay=0.01))
    rag = program_at(provider.url, folder / "outage", provider="call_seconds = 2\nretries = 1\nbreaker_seconds = 0.5")
    rag(ask_about(-1))
    before = asyncio.run(ask_all(rag, range(n)))
    provider.stop()
    until, during, at = time.perf_counter() + seconds, [], n
    while time.perf_counter() < until:
        during.append(asyncio.run(ask_all(rag, range(at, at + AT_ONCE))))
        at += AT_ONCE
    provider.start()
    time.sleep(1.0)
    first = asyncio.run(ask_all(rag, [at]))  # while the circuit is open, one request tries
    after = asyncio.run(ask_all(rag, range(at + 1, at + n)))
    gone = [answer for found in during for answer in found.answers]
    asked = 2 * n + AT_ONCE * len(during)
    ended = sum(len(found.answers) for found in (before, *during, first, after))
    stood_in = sum(bool(answer.trace.stood_in) for answer in gone) / max(1, len(gone))
    again = sum(not answer.trace.stood_in for answer in after.answers) / max(1, n - 1)
    yield figure("outage: questions that end in an outcome", ended / asked, ">= 1", asked)
    yield figure("outage: answered meanwhile with the embedded models", stood_in, "report", len(gone))
    yield figure("outage: served by the model again", again, ">= 1", n - 1)


def measure(quick: bool) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as place, serve(Script(), obliging) as provider:
        some = ("rate_limited", "stalled") if quick else FAULTS
        yield from measure_faults(provider, Path(place), 12 if quick else 500, some)
        yield from measure_outage(provider, Path(place), 4 if quick else 50, 1.5 if quick else 10.0)


if __name__ == "__main__":
    run_benchmark(__doc__, measure)
