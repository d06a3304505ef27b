"""Language models under fire: faults, a dead server, a crowd, first tokens, memory, and a cascade.

    python benchmarks/faults.py [--quick] [--json] [--only NAME[,NAME]]

The server is the stand-in of program/models/apart.py, in a process of its own as a real one is, spoken to through
LiteLLM and HTTP. It keeps its own books of calls and tokens, and ragc's accounting must equal them. Every question is
different and no reply is remembered. The crowd and the stream ask a server that answers after 200 ms.
The parts, for --only: faults, dead, crowd, torture, stream, memory, cascade.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parent))

from cascade import cascade_figures, show

from program import Answer, Outcome, open_program
from program.drivers import Progress, Token
from program.models.apart import Books, ProviderApart, serve_apart
from program.models.repair import Unreadable
from program.models.script import FAULTS, Script
from program.models.typed import read_decisions, read_texts
from program.rag import AgenticRAG

Figure = dict[str, Any]
TORTURE = Path(__file__).parents[1] / "tests" / "program" / "models" / "torture.jsonl"
GOODS = "kettle toaster lamp heater fan mixer scale radio clock shaver blender grinder".split()
SHARE = 0.2
ALL_AT_ONCE = 0.5
AT_ONCE = 8
OBLIGING = "program.models.script:obliging"
SECONDS = 30.0  # of one question
PATIENCE = 90.0  # seconds more than its outage that the dead server's part may take
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def figure(name: str, value: float, bar: str, n: int) -> Figure:
    """One line of the result. A `bar` is `<= x` or `>= x`; any other only reports."""
    sign, _, limit = bar.partition(" ")
    holds = value <= float(limit) if sign == "<=" else value >= float(limit) if sign == ">=" else True
    return {"figure": name, "value": round(value, 4), "bar": bar, "holds": holds, "n": n}


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
    toml += f"[provider]\nremember = 0\n{provider}\n"
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

    def figures(self, name: str, asked: int, books: Books) -> list[Figure]:
        calls = sum(a.usage.calls for a in self.answers)
        tokens = sum(a.usage.tokens_in + a.usage.tokens_out for a in self.answers)
        return [
            figure(f"{name}: questions that end in an outcome", len(self.answers) / asked, ">= 1", asked),
            figure(f"{name}: exceptions", len(self.errors), "<= 0", asked),
            figure(f"{name}: later than their deadline", self.late, "<= 0", asked),
            figure(f"{name}: calls counted beside the server's", abs(calls - books.calls), "<= 0", books.calls),
            figure(
                f"{name}: tokens counted beside the server's",
                abs(tokens - books.tokens_in - books.tokens_out),
                "<= 0",
                books.tokens_in + books.tokens_out,
            ),
        ]


async def ask_all(rag: AgenticRAG, numbers: range, at_once: int, seconds: float = SECONDS) -> Tally:
    """Asks the questions, so many at once."""
    tally, free = Tally(), asyncio.Semaphore(at_once)

    async def one(n: int) -> None:
        async with free:
            began = time.perf_counter()
            try:
                answer = await rag.aask(question(n))
            except Exception as error:
                tally.errors.append(f"{type(error).__name__}: {error}")
                return
            assert isinstance(answer.outcome, Outcome)
            tally.answers.append(answer)
            tally.late += time.perf_counter() - began > seconds

    await asyncio.gather(*(one(n) for n in numbers))
    return tally


def faults(provider: ProviderApart, folder: Path, n: int, names: tuple[str, ...] = FAULTS) -> list[Figure]:
    """Each fault at `SHARE` in turn, then all at once at `ALL_AT_ONCE`."""
    mixes: dict[str, Mapping[str, float]] = {name: {name: SHARE} for name in names}
    mixes["all at once"] = dict.fromkeys(FAULTS, ALL_AT_ONCE / len(FAULTS))
    return [f for name, mix in mixes.items() for f in under(provider, folder / name.replace(" ", "-"), name, mix, n)]


def under(provider: ProviderApart, folder: Path, name: str, mix: Mapping[str, float], n: int) -> list[Figure]:
    """n questions to a server with these faults."""
    provider.follow(Script())
    rag = program_at(provider.url, folder, provider="call_seconds = 2\nretries = 2")
    rag(question(-1))  # loads what is loaded once
    provider.follow(Script(mix, seed=n))
    tally = asyncio.run(ask_all(rag, range(n), AT_ONCE))
    for error in tally.errors[:3]:
        print(f"{name}: {error}", file=sys.stderr)
    return tally.figures(name, n, provider.books())


def dead(provider: ProviderApart, folder: Path, n: int, seconds: float) -> list[Figure]:
    """The server is gone for a while in the middle: the circuit opens, the embedded models answer, it closes again."""
    provider.follow(Script(delay=0.01))
    terms = "call_seconds = 2\nretries = 1\nbreaker_after = 4\nbreaker_seconds = 0.5"
    rag = program_at(provider.url, folder / "dead", provider=terms)
    rag(question(-1))
    lane = rag.runtime.models.decide.lane

    async def through() -> tuple[list[Tally], float]:
        before = await ask_all(rag, range(n // 4), AT_ONCE)
        provider.stop()
        until, during, at = time.perf_counter() + seconds, [], n // 4
        while time.perf_counter() < until:
            during.append(await ask_all(rag, range(at, at + AT_ONCE), AT_ONCE))
            at += AT_ONCE
        opened = lane.breaker.times_opened
        provider.start()
        await asyncio.sleep(1.0)
        after = await ask_all(rag, range(at, at + n // 4), 1)
        return [before, *during, after], opened

    tallies, opened = asyncio.run(asyncio.wait_for(through(), seconds + PATIENCE))
    asked = n // 4 * 2 + AT_ONCE * (len(tallies) - 2)
    ended = sum(len(tally.answers) for tally in tallies)
    gone = [answer for tally in tallies[1:-1] for answer in tally.answers]
    stood_in = sum(answer.outcome == Outcome.ANSWERED for answer in gone) / max(1, len(gone))
    well = sum(not any("decided" in note for note in a.trace.path) for a in tallies[-1].answers[1:])
    return [
        figure("dead server: questions that end in an outcome", ended / asked, ">= 1", asked),
        figure("dead server: exceptions", sum(len(tally.errors) for tally in tallies), "<= 0", asked),
        figure("dead server: times the circuit opened", opened, ">= 1", 1),
        figure("dead server: answered meanwhile by the embedded models", stood_in, "report", len(gone)),
        figure("dead server: served by the model again", well / max(1, n // 4 - 1), ">= 1", n // 4 - 1),
    ]


def crowd(provider: ProviderApart, folder: Path, n: int, delay: float, allowed: int = 8) -> list[Figure]:
    """Many questions at once, few requests allowed: never more, and hardly ever fewer."""
    provider.follow(Script(delay=delay))
    terms = f"concurrency = {allowed}\ncall_seconds = 60"
    rag = program_at(provider.url, folder / "crowd", provider=terms, seconds=3600)
    rag(question(-1))
    provider.follow(Script(delay=delay))
    began, worked, server = time.perf_counter(), time.process_time(), provider.books().processor
    tally = asyncio.run(ask_all(rag, range(n), n, 3600))
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    books = provider.books()
    rate, limit = books.calls / seconds, allowed / delay
    milliseconds, servers = 1000 * worked / books.calls, 1000 * (books.processor - server) / books.calls
    return [
        figure("crowd: most requests in flight", books.most_in_flight, f"<= {allowed}", books.calls),
        figure(f"crowd: throughput over the limit of {limit:g} a second", rate / limit, ">= 0.95", books.calls),
        figure("crowd: processor ms of ours a call", milliseconds, "report", books.calls),
        figure("crowd: processor ms of the server a call", servers, "report", books.calls),
        figure("crowd: questions that end in an outcome", len(tally.answers) / n, ">= 1", n),
    ]


def torture() -> list[Figure]:
    """Malformed replies: mended without a second call, or refused; never taken for another value."""
    lines = [json.loads(line) for line in TORTURE.read_text(encoding="utf-8").splitlines()]
    mendable = [line for line in lines if line["expect"] is not None]
    mended = wrong = 0
    for line in lines:
        got = reading(line)
        mended += got is not None and got == line["expect"]
        wrong += got is not None and got != line["expect"]
    return [
        figure("torture list: mended without a second call", mended / len(mendable), ">= 0.95", len(mendable)),
        figure("torture list: wrong values accepted", wrong, "<= 0", len(lines)),
        figure("torture list: replies", len(lines), ">= 60", len(lines)),
    ]


def reading(line: Mapping[str, Any]) -> Any:
    """What a reply of the list is read as, or None when it is refused."""
    questions = {
        "noul": {"supported": {"type": "noul", "instructions": "The passages state the claim."}},
        "choice": {"route": {"type": "choice", "criteria": {"direct": "", "simple": "", "complex": ""}}},
    }
    try:
        if line["kind"] in questions:
            (answer,) = read_decisions(line["reply"], questions[line["kind"]]).values()
            if "noul" in answer:
                return answer["noul"] >= 0.5
            return max(answer["probabilities"], key=answer["probabilities"].get)
        outputs = {"list": {"sub_queries": True}, "pair": {"missing": False, "next_query": False}}
        return read_texts(line["reply"], outputs.get(line["kind"], {"answer": False}))
    except Unreadable:
        return None


def stream(provider: ProviderApart, folder: Path, n: int) -> list[Figure]:
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


async def _first(rag: AgenticRAG, text: str, provider: ProviderApart) -> tuple[float, float]:
    began = first = 0.0
    async for event in rag.stream(text):
        if isinstance(event, Progress) and not first:
            began = time.perf_counter()
        elif isinstance(event, Token):
            first = first or time.perf_counter() - began
    servers = provider.books().first
    return first / (1.05 * servers + 0.020), 1000 * (first - servers)


def memory(provider: ProviderApart, folder: Path, n: int, settle: int) -> list[Figure]:
    """Growth of the process from the `settle`-th question to the n-th, one model call each."""
    provider.follow(Script())
    models = 'decide = "local/minilm"\nwrite = "openai/stand-in"'
    rag = program_at(provider.url, folder / "memory", models=models).plain()

    async def through() -> float:
        await _many(rag, range(settle))
        before = _megabytes()
        await _many(rag, range(settle, n))
        return _megabytes() - before

    grown = asyncio.run(through())
    return [figure(f"memory: MB grown after the first {settle:,} questions", grown, "<= 20", n)]


async def _many(rag: AgenticRAG, numbers: range) -> None:
    for start in range(numbers.start, numbers.stop, AT_ONCE):
        await asyncio.gather(*(rag.aask(question(n)) for n in range(start, min(start + AT_ONCE, numbers.stop))))


def _megabytes() -> float:
    import gc

    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer questions, under a minute")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="", help="some parts, with commas")
    options = parser.parse_args()
    quick = options.quick
    with tempfile.TemporaryDirectory() as place, serve_apart(brain=OBLIGING) as at:
        folder = Path(place)
        some = ("rate_limited", "stalled") if quick else FAULTS
        parts: dict[str, Callable[[], list[Figure]]] = {
            "faults": lambda: faults(at, folder, 12 if quick else 500, some),
            "dead": lambda: dead(at, folder, 16 if quick else 200, 1.5 if quick else 10.0),
            "crowd": lambda: crowd(at, folder, 40 if quick else 200, 0.2),
            "torture": torture,
            "stream": lambda: stream(at, folder, 5 if quick else 40),
            "memory": lambda: memory(at, folder, 200 if quick else 20_000, 100 if quick else 2_000),
            "cascade": lambda: cascade_figures(quick),
        }
        wanted = options.only.split(",") if options.only else list(parts)
        found = [f for name in wanted for f in parts[name]()]
    show(found, options.json)


if __name__ == "__main__":
    main()
