"""Language models under fire: each fault of a server in turn, all at once, and a server that is gone for a while.

    python benchmarks/faults.py [--quick] [--json]

The server is the stand-in of tests/support/provider.py, spoken to over HTTP. It keeps its own books of calls and
tokens, and ragc's accounting must equal them. Every question is different.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from figures import Figure, figure, run_benchmark

from tests.support.faults import ask_through_outage, ask_under_faults
from tests.support.provider import FAULTS, Provider, Script, serve
from tests.support.replies import obliging

SHARE, ALL_AT_ONCE = 0.2, 0.5


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
    found = ask_under_faults(provider, folder, mix, n, streamed)
    for error in found.errors[:3]:
        print(f"{name}: {error}", file=sys.stderr)
    served = provider.tokens_in + provider.tokens_out
    yield figure(f"{name}: questions that end in an outcome", len(found.answers) / n, ">= 1", n)
    yield figure(f"{name}: later than their deadline", found.late, "<= 0", n)
    yield figure(f"{name}: calls counted beside the server's", found.calls_beside, "<= 0", provider.calls)
    if not (streamed and "huge" in mix):
        yield figure(f"{name}: tokens counted beside the server's", found.tokens_beside, "<= 0", served)
    yield figure(f"{name}: faults that befell requests", sum(provider.faults.values()), ">= 1", provider.calls)


def measure_outage(provider: Provider, folder: Path, n: int, seconds: float) -> Iterator[Figure]:
    found = ask_through_outage(provider, folder, n, seconds)
    meanwhile, after = found.embedded, found.served_again
    stood_in = sum(meanwhile) / max(1, len(meanwhile))
    yield figure("outage: questions that end in an outcome", found.ended / found.asked, ">= 1", found.asked)
    yield figure("outage: answered meanwhile with the embedded models", stood_in, "report", len(meanwhile))
    yield figure("outage: served by the model again", sum(after) / max(1, n - 1), ">= 1", n - 1)


def measure(quick: bool) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as place, serve(Script(), obliging) as provider:
        some = ("rate_limited", "stalled") if quick else FAULTS
        yield from measure_faults(provider, Path(place), 12 if quick else 500, some)
        yield from measure_outage(provider, Path(place) / "outage", 4 if quick else 50, 1.5 if quick else 10.0)


if __name__ == "__main__":
    run_benchmark(__doc__, measure)
