"""How long a language model takes for a call here: measured once, kept with the project, followed by its time limits.

A model on the processor of a laptop answers in ten or twenty seconds what a provider answers in one. A limit that
`ragc.toml` sets itself stays as it is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from ragc.models.language.spending import Cap, track_spending
from ragc.settings import ProviderSettings, Settings
from ragc.storage import write_whole

FILE = "pace.json"
UNANSWERED = "Check the name, the key and that its server runs."
PATIENCE = 4  # how many times as long as the measured call a call may take
LONGEST = 600.0  # seconds that the measured call may take, where `ragc.toml` sets no limit
CALLS = 8  # calls of the slowest model that the time of a question is room for
_PASSAGE = "The kettle holds two litres, boils in three minutes and is guaranteed for four years. " * 12
PROBE = "\n\n".join([_PASSAGE] * 4) + "\n\nQuestion: How much does the kettle hold? Answer in one sentence."
"""A prompt of about the length of a writer's."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What one call of a writer's length took."""

    seconds: float
    tokens_in: int
    tokens_out: int


def measure_pace(model: Any, cap: Cap | None = None) -> Pace:
    """Return what a call takes, booked at the cap. Raises what the model raises."""
    began = time.perf_counter()
    with track_spending(cap=cap) as spent:
        model(PROBE)
    return Pace(round(time.perf_counter() - began, 2), spent.tokens_in, spent.tokens_out)


def allow_long_calls(provider: ProviderSettings) -> ProviderSettings:
    """Return settings under which a model that is not known to be slow is measured."""
    known = "call_seconds" in provider.model_fields_set
    return provider if known else provider.model_copy(update={"call_seconds": LONGEST})


def read_paces(folder: Path) -> dict[str, Pace]:
    """Return the paces kept in a project's private folder, by model."""
    try:
        return {name: Pace(**found) for name, found in orjson.loads((folder / FILE).read_bytes()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def note_pace(folder: Path, name: str, pace: Pace) -> None:
    """Keep the pace of a model."""
    folder.mkdir(parents=True, exist_ok=True)
    paces = {**read_paces(folder), name: pace}
    write_whole(folder / FILE, orjson.dumps({name: asdict(one) for name, one in sorted(paces.items())}))


def follow_paces(settings: Settings, paces: Mapping[str, Pace]) -> Settings:
    """Return settings with time for the slowest model, those set by hand kept."""
    slowest = max((pace.seconds for pace in paces.values()), default=0.0)
    budget, provider = settings.budget, settings.provider
    if "max_seconds" not in budget.model_fields_set:
        budget = budget.model_copy(update={"max_seconds": max(budget.max_seconds, CALLS * slowest)})
    if "call_seconds" not in provider.model_fields_set:
        provider = provider.model_copy(update={"call_seconds": max(provider.call_seconds, PATIENCE * slowest)})
    return settings.model_copy(update={"budget": budget, "provider": provider})
