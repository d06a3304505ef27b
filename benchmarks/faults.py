"""Language models under fire: faults, a dead server, a crowd, first tokens, memory, and a cascade.

    python benchmarks/faults.py [--quick] [--json] [--only NAME[,NAME]]

The server is the stand-in of tests/support/provider.py, in a process of its own as a real one is, spoken to through
LiteLLM and HTTP. It keeps its own books of calls and tokens, and ragc's accounting must equal them. Every question is
different. The crowd and the stream ask a server that answers after 200 ms.
The parts, for --only: faults, dead, crowd, torture, stream, memory, cascade.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tests.support
sys.path.insert(0, str(Path(__file__).parent))

import dspy
from apart import serve_apart
from cascade import cascade_figures
from dspy.utils.exceptions import LMError
from figures import Figure, figure, show
from goods import AT_ONCE, Tally, ask_all, program_at, question
from load import crowd, memory, stream

from program import Outcome
from program.models.catalog import Models, open_models
from program.models.language.adapter import use_adapter
from program.models.language.spending import track_spending
from program.models.language.transport import CallFailed
from program.settings import ModelSettings, ProviderSettings
from tests.support.provider import FAULTS, Provider, Script, serve
from tests.support.replies import obliging

TORTURE = Path(__file__).parents[1] / "tests" / "program" / "models" / "torture.jsonl"
MODEL = "openai/stand-in"
DECIDED: Mapping[str, Any] = {
    "noul": {"supported": {"type": "noul", "instructions": "The passages state the claim."}},
    "choice": {
        "route": {"type": "choice", "instructions": "", "criteria": {"direct": "", "simple": "", "complex": ""}}
    },
}
WRITTEN = {
    "list": dspy.Signature("question -> sub_queries: list[str]", "Split."),
    "pair": dspy.Signature("question -> missing, next_query", "Say what is missing."),
    "text": dspy.Signature("question -> answer", "Answer."),
}
SHARE = 0.2
ALL_AT_ONCE = 0.5
PATIENCE = 90.0  # seconds more than its outage that the dead server's part may take


def faults(provider: Provider, folder: Path, n: int, names: tuple[str, ...] = FAULTS) -> Iterator[Figure]:
    """Each fault at `SHARE` in turn, then all at once at `ALL_AT_ONCE`."""
    mixes: dict[str, Mapping[str, float]] = {name: {name: SHARE} for name in names}
    mixes["all at once"] = dict.fromkeys(FAULTS, ALL_AT_ONCE / len(FAULTS))
    for name, mix in mixes.items():
        place = folder / name.replace(" ", "-")
        yield from under(provider, place, name, mix, n)
        yield from under(provider, place / "streamed", f"{name}, streamed", mix, n, streamed=True)


def under(
    provider: Provider, folder: Path, name: str, mix: Mapping[str, float], n: int, streamed: bool = False
) -> list[Figure]:
    """n questions to a server with these faults; or to plain RAG, whose every request is a streamed text."""
    provider.follow(Script())
    rag = program_at(
        provider.url,
        folder,
        provider="call_seconds = 2\nretries = 2",
        models='decide = "local/minilm"\nwrite = "openai/stand-in"' if streamed else "",
    )
    rag = rag.plain() if streamed else rag
    rag(question(-1))  # loads what is loaded once
    provider.follow(Script(mix, seed=n))
    tally = asyncio.run(ask_all(rag, range(n), AT_ONCE, streamed=streamed))
    for error in tally.errors[:3]:
        print(f"{name}: {error}", file=sys.stderr)
    befell = sum(provider.faults.values())
    figures = tally.figures(name, n, provider)
    if streamed and "huge" in mix:  # the rest of it is not waited for, so that only the server knows what it sent
        figures = [f for f in figures if "tokens" not in f["figure"]]
    return [*figures, figure(f"{name}: faults that befell requests", befell, ">= 1", provider.calls)]


def dead(provider: Provider, folder: Path, n: int, seconds: float) -> list[Figure]:
    """The server is gone for a while in the middle: the circuit opens, the embedded models answer, it closes again."""
    provider.follow(Script(delay=0.01))
    terms = "call_seconds = 2\nretries = 1\nbreaker_after = 4\nbreaker_seconds = 0.5"
    rag = program_at(provider.url, folder / "dead", provider=terms)
    rag(question(-1))
    lane = rag.runtime.models.decide.endpoint

    async def through() -> tuple[list[Tally], bool]:
        before = await ask_all(rag, range(n // 4), AT_ONCE)
        provider.stop()
        until, during, at = time.perf_counter() + seconds, [], n // 4
        while time.perf_counter() < until:
            during.append(await ask_all(rag, range(at, at + AT_ONCE), AT_ONCE))
            at += AT_ONCE
        opened = lane.breaker.opened is not None
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
        figure("dead server: the circuit opened", float(opened), ">= 1", 1),
        figure("dead server: answered meanwhile by the embedded models", stood_in, "report", len(gone)),
        figure("dead server: served by the model again", well / max(1, n // 4 - 1), ">= 1", n // 4 - 1),
    ]


def torture() -> list[Figure]:
    """Malformed replies of the server: mended without a second call, or refused; never taken for another value."""
    lines = [json.loads(line) for line in TORTURE.read_text(encoding="utf-8").splitlines()]
    mendable = [line for line in lines if line["expect"] is not None]
    mended = wrong = counted = 0
    with serve() as provider:
        terms = ProviderSettings(model={MODEL: {"api_base": provider.url}}, retries=0, fallback=False)
        models = open_models(ModelSettings(decide=MODEL, write=MODEL), terms)
        for line in lines:
            provider.follow(Script(replies=((r"\A", line["reply"]),)))
            got, calls = reading(models, line)
            mended += got == line["expect"] is not None and calls == 1
            wrong += got is not None and got != line["expect"]
            counted += calls == provider.calls
    return [
        figure("torture list: mended without a second call", mended / len(mendable), ">= 0.95", len(mendable)),
        figure("torture list: wrong values accepted", wrong, "<= 0", len(lines)),
        figure("torture list: calls counted as the server does", counted / len(lines), ">= 1", len(lines)),
        figure("torture list: replies", len(lines), ">= 60", len(lines)),
    ]


def reading(models: Models, line: Mapping[str, Any]) -> tuple[Any, int]:
    """What a reply of the list is read as, or None when it is refused in the end; and the calls that it took."""
    with track_spending() as spent:
        try:
            got = _value(models, line["kind"])
        except (CallFailed, LMError):  # of an empty reply
            got = None
    return None if any("safe default" in note for note in spent.notes) else got, spent.calls


def _value(models: Models, kind: str) -> Any:
    if kind in DECIDED:
        (answer,) = models.decide(
            state={"instructions": "Decide.", "inputs": {"x": "y"}}, questions=DECIDED[kind]
        ).values()
        if "noul" in answer:
            return answer["noul"] >= 0.5
        return max(answer["probabilities"], key=answer["probabilities"].get)
    with use_adapter(models.write):
        return dict(dspy.Predict(WRITTEN[kind])(lm=models.write, question="x"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer questions, under a minute")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="", help="some parts, with commas")
    options = parser.parse_args()
    quick = options.quick
    with tempfile.TemporaryDirectory() as place, serve_apart(obliging) as at:
        folder = Path(place)
        some = ("rate_limited", "stalled") if quick else FAULTS
        parts: dict[str, Callable[[], Iterable[Figure]]] = {
            "faults": lambda: faults(at, folder, 12 if quick else 500, some),
            "dead": lambda: dead(at, folder, 16 if quick else 200, 1.5 if quick else 10.0),
            "crowd": lambda: crowd(at, folder, 40 if quick else 200, 0.2),
            "torture": torture,
            "stream": lambda: stream(at, folder, 5 if quick else 40),
            "memory": lambda: memory(at, folder, 200 if quick else 20_000, 100 if quick else 2_000),
            "cascade": lambda: cascade_figures(quick),
        }
        wanted = options.only.split(",") if options.only else list(parts)
        show((one for name in wanted for one in parts[name]()), options.json)


if __name__ == "__main__":
    main()
