"""Many questions at once, first words and memory: what ragc itself costs beside the server. Run by faults.py."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from pathlib import Path

from figures import Figure, figure
from goods import AT_ONCE, ask_all, program_at, question

from program.loop.metering import Progress, Token
from program.loop.rag import AgenticRAG
from tests.support.provider import Provider, Script

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
LOT = 64  # questions embedded together, so that 20,000 of them do not take an hour
HOUR = 3600.0


def crowd(provider: Provider, folder: Path, n: int, delay: float, allowed: int = AT_ONCE) -> list[Figure]:
    """Many questions at once, few requests allowed: never more.

    The server's limit is what as many bare HTTP clients get out of it that do nothing but send and read, half of
    them before and half after. Its limit on paper, with a delay and nothing else, is told beside it.
    """
    terms = f"concurrency = {allowed}\ncall_seconds = 60"
    provider.follow(Script(delay=delay))
    rag = program_at(provider.url, folder / "crowd", provider=terms, seconds=HOUR)
    rag(question(-1))
    limits = [asyncio.run(_bare(provider.url, allowed, n // 4))]
    provider.follow(Script(delay=delay))
    began, worked, server = time.perf_counter(), time.process_time(), provider.processor
    tally = asyncio.run(ask_all(rag, range(n), n, HOUR))
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    calls, server = provider.calls, provider.processor - server
    most = provider.most_in_flight
    limits.append(asyncio.run(_bare(provider.url, allowed, n // 4)))
    rate, limit, paper = calls / seconds, sum(limits) / 2, allowed / delay
    milliseconds, servers = 1000 * worked / calls, 1000 * server / calls
    return [
        figure("crowd: most requests in flight", most, f"<= {allowed}", calls),
        figure(f"crowd: throughput over the server's limit of {limit:.1f} a second", rate / limit, "report", n),
        figure(f"crowd: throughput over {paper:g} a second, its limit on paper", rate / paper, "report", n),
        figure("crowd: processor ms of ours a call", milliseconds, "report", calls),
        figure("crowd: processor ms of the server a call", servers, "report", calls),
        figure("crowd: questions that end in an outcome", len(tally.answers) / n, ">= 1", n),
    ]


async def _bare(url: str, clients: int, calls: int) -> float:
    """Requests a second that so many clients get served, each sending its next as soon as it has a reply."""
    from aiohttp import ClientSession

    passages = "\n".join(f'<passage n="{n}">\n{question(n) * 8}\n</passage>' for n in range(4))
    messages = [{"role": "system", "content": "Decide:\n- relevant (yes or no): It helps." * 10}]
    messages.append(
        {"role": "user", "content": f"{passages}\n\nDecide now: relevant. Reply with the JSON object alone."}
    )
    numbers = iter(range(calls))
    async with ClientSession() as session:

        async def one() -> None:
            for n in numbers:
                body = {"model": "stand-in", "messages": messages, "user": str(n)}
                async with session.post(f"{url}/chat/completions", json=body) as response:
                    await response.json()

        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(clients)))
        return calls / (time.perf_counter() - began)


def stream(provider: Provider, folder: Path, n: int) -> list[Figure]:
    """The first word of an answer beside the server's own first word; the median of n questions."""
    provider.follow(Script(delay=0.2, token_delay=0.03))
    models = 'decide = "local/minilm"\nwrite = "openai/stand-in"'
    rag = program_at(provider.url, folder / "stream", models=models).plain()
    rag(question(-1))
    both = sorted(asyncio.run(_first(rag, question(number), provider)) for number in range(n))
    over, beyond = both[n // 2]
    return [
        figure("streaming: first word over 1.05 x the server's own + 20 ms", over, "<= 1", n),
        figure("streaming: ms to it beyond the server's own", beyond, "report", n),
    ]


async def _first(rag: AgenticRAG, text: str, provider: Provider) -> tuple[float, float]:
    began = first = 0.0
    async for event in rag.stream(text):
        if isinstance(event, Progress) and not first:
            began = time.perf_counter()
        elif isinstance(event, Token):
            first = first or time.perf_counter() - began
    servers = provider.first
    return first / (1.05 * servers + 0.020), 1000 * (first - servers)


def memory(provider: Provider, folder: Path, n: int, settle: int) -> list[Figure]:
    """Growth of the process from the `settle`-th question to the n-th, one model call each."""
    provider.follow(Script())
    models = 'decide = "local/minilm"\nwrite = "openai/stand-in"'
    rag = program_at(provider.url, folder / "memory", models=models).plain()

    async def through() -> tuple[float, float]:
        await _many(rag, range(settle))
        before, worked = _megabytes(), time.process_time()
        await _many(rag, range(settle, n))
        return _megabytes() - before, time.process_time() - worked

    grown, worked = asyncio.run(through())
    return [
        figure(f"memory: MB grown after the first {settle:,} questions", grown, "<= 20", n),
        figure("memory: processor ms a question", 1000 * worked / (n - settle), "report", n - settle),
    ]


async def _many(rag: AgenticRAG, numbers: range) -> None:
    for lot in (numbers[at : at + LOT] for at in range(0, len(numbers), LOT)):
        rag.runtime.models.embedder.encode([question(n) for n in lot])
        tally = await ask_all(rag, lot, AT_ONCE)
        assert not tally.errors, tally.errors[0]


def _megabytes() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20
