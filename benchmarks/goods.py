"""A project of twelve short documents whose models are the stand-in, questions without end, and what became of them."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from figures import Figure, figure

from program import Answer, Outcome, open_program
from program.loop.rag import AgenticRAG
from tests.support.provider import Provider

GOODS = "kettle toaster lamp heater fan mixer scale radio clock shaver blender grinder".split()
AT_ONCE = 8
SECONDS = 30.0  # of one question


def write_project(folder: Path, url: str, provider: str = "", models: str = "", seconds: float = SECONDS) -> Path:
    """A project of twelve short documents whose models are the stand-in at `url`."""
    place = folder / "knowledge"
    place.mkdir(parents=True, exist_ok=True)
    for n, good in enumerate(GOODS):
        text = f"# The {good}\n## Guarantee\nThe {good} is guaranteed for {n + 2} years.\n"
        text += f"## Price\nThe {good} costs GBP {10 + 3 * n}.\n## Power\nThe {good} draws {100 * n + 50} watts.\n"
        (place / f"{good}.md").write_text(text, encoding="utf-8")
    models = models or 'decide = "openai/stand-in"\nwrite = "openai/stand-in"'
    toml = f'name = "goods"\n[models]\n{models}\n[budget]\nmax_seconds = {seconds}\n'
    toml += f"[provider]\n{provider}\n"
    toml += f'[provider.model."openai/stand-in"]\napi_base = "{url}"\n[knowledge.goods]\npath = "knowledge"\n'
    (folder / "ragc.toml").write_text(toml, encoding="utf-8")
    return folder


def program_at(url: str, folder: Path, **settings: Any) -> AgenticRAG:
    """The project's program, looking at two passages a question."""
    rag = open_program(write_project(folder, url, **settings))
    rag.policy.turn(k=2, max_rounds=1)
    return rag


def question(n: int) -> str:
    """The n-th question; all differ."""
    about = ("How long is the {} guaranteed", "What does the {} cost", "How many watts does the {} draw")[n % 3]
    return f"{about.format(GOODS[n % len(GOODS)])}? ({n})"


@dataclass(slots=True)
class Tally:
    """What became of a lot of questions."""

    answers: list[Answer] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    late: int = 0

    def figures(self, name: str, asked: int, provider: Provider) -> list[Figure]:
        calls = sum(a.usage.calls for a in self.answers)
        served = provider.tokens_in + provider.tokens_out
        tokens = sum(a.usage.tokens_in + a.usage.tokens_out for a in self.answers)
        return [
            figure(f"{name}: questions that end in an outcome", len(self.answers) / asked, ">= 1", asked),
            figure(f"{name}: exceptions", len(self.errors), "<= 0", asked),
            figure(f"{name}: later than their deadline", self.late, "<= 0", asked),
            figure(f"{name}: calls counted beside the server's", abs(calls - provider.calls), "<= 0", provider.calls),
            figure(
                f"{name}: tokens counted beside the server's",
                abs(tokens - served),
                "<= 0",
                served,
            ),
        ]


async def ask_all(
    rag: AgenticRAG, numbers: range, at_once: int, seconds: float = SECONDS, streamed: bool = False
) -> Tally:
    """Asks the questions, so many at once."""
    tally, free = Tally(), asyncio.Semaphore(at_once)

    async def one(n: int) -> None:
        async with free:
            began = time.perf_counter()
            try:
                asked = question(n)
                answer = [e async for e in rag.stream(asked)][-1] if streamed else await rag.aask(asked)
            except Exception as error:
                tally.errors.append(f"{type(error).__name__}: {error}")
                return
            assert isinstance(answer.outcome, Outcome)
            tally.answers.append(answer)
            tally.late += time.perf_counter() - began > seconds

    await asyncio.gather(*(one(n) for n in numbers))
    return tally
