"""Questions asked of a provider with faults, or gone for a while, and how ragc's books compare with the server's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ragc import Answer
from ragc.loop.rag import AgenticRAG
from tests.support.goods import ask_about, program_at
from tests.support.provider import Provider, Script

AT_ONCE = 8
SECONDS = 30.0  # that a question may take
EMBEDDED = 'decide = "local/reader"\nwrite = "openai/stand-in"'


@dataclass(slots=True)
class Asked:
    """What became of a lot of questions."""

    answers: list[Answer] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    late: int = 0
    calls_beside: int = 0
    """By how many calls the books differ from the server's."""
    tokens_beside: int = 0
    """By how many tokens the books differ from the server's."""


@dataclass(slots=True)
class Outage:
    """What became of questions before, during and after a server was gone."""

    asked: int
    lots: list[Asked]

    @property
    def ended(self) -> int:
        """How many questions ended in an outcome."""
        return sum(len(lot.answers) for lot in self.lots)

    @property
    def embedded(self) -> list[bool]:
        """Whether the embedded models answered, of each question meanwhile."""
        return [bool(answer.degraded) for lot in self.lots[1:-2] for answer in lot.answers]

    @property
    def served_again(self) -> list[bool]:
        """Whether the model answered, of each question afterwards."""
        return [not answer.degraded for answer in self.lots[-1].answers]


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


def ask_under_faults(
    provider: Provider, folder: Path, mix: Mapping[str, float], n: int, streamed: bool = False
) -> Asked:
    """Ask n questions of a server with these faults; of plain RAG where each request is a streamed text."""
    provider.follow(Script())
    # A server that is late only for want of a processor is waited for. What one mix opened is closed in the next.
    terms = f"call_seconds = {2 if 'stalled' in mix else 10}\nretries = 2\nbreaker_seconds = 0.1"
    rag = program_at(provider.url, folder, provider=terms, models=EMBEDDED if streamed else "", seconds=SECONDS)
    rag = rag.plain() if streamed else rag
    rag(ask_about(-1))  # loads what is loaded once
    provider.follow(Script(mix, seed=n))
    found = asyncio.run(ask_all(rag, range(n), streamed))
    until = time.perf_counter() + SECONDS
    while provider.in_flight and time.perf_counter() < until:
        time.sleep(0.01)  # the server books a request at its end, which may be after the last word was read
    usages = [answer.usage for answer in found.answers]
    found.calls_beside = abs(sum(usage.calls for usage in usages) - provider.calls)
    if not (streamed and "huge" in mix):  # the rest of it is not waited for: only the server knows what it sent
        booked = sum(usage.tokens_in + usage.tokens_out for usage in usages)
        found.tokens_beside = abs(booked - provider.tokens_in - provider.tokens_out)
    return found


def ask_through_outage(provider: Provider, folder: Path, n: int, seconds: float) -> Outage:
    """Ask while the server is gone for a while: the embedded models answer, and then the model again."""
    provider.follow(Script(delay=0.01))
    rag = program_at(provider.url, folder, provider="call_seconds = 2\nretries = 1\nbreaker_seconds = 0.5")
    rag(ask_about(-1))
    lots, at = [asyncio.run(ask_all(rag, range(n)))], n
    provider.stop()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        lots.append(asyncio.run(ask_all(rag, range(at, at + AT_ONCE))))
        at += AT_ONCE
    provider.start()
    time.sleep(1.0)
    lots.append(asyncio.run(ask_all(rag, [at])))  # while the circuit is open, one request tries
    lots.append(asyncio.run(ask_all(rag, range(at + 1, at + n))))
    return Outage(at + n, lots)
