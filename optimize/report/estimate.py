"""What a compile comes to before it spends: calls, minutes and money, by how long a measured call takes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from dspy.utils.exceptions import LMError

from ragc.knowledge.project import Project
from ragc.models.catalog import is_local, open_endpoint
from ragc.models.language.gateway import ProviderLM
from ragc.models.language.pace import Pace, allow_long_calls, measure_pace, read_paces
from ragc.models.language.spending import Cap

WRITTEN, DECIDED = (3, 2), (8, 5)
"""Calls of a writing and of a deciding language model for a question of train and dev, and for one of the test."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a compile comes to, about: calls to language models, minutes, and US dollars."""

    calls: int
    minutes: float
    usd: float

    def describe(self) -> str:
        """Return the estimate in a line."""
        minutes = f"{self.minutes:,.0f} minutes" if self.minutes >= 1.5 else "a minute"
        if not self.calls:
            return f"about {minutes}"
        return f"about {self.calls:,} calls to language models, {minutes}, US$ {self.usd:,.2f}"


def list_asked(project: Project) -> list[str]:
    """Return the language models that decide and write, each once."""
    models = project.settings.models
    named = dict.fromkeys((models.write, models.query, models.decide, models.judge))
    return [name for name in named if name and not is_local(name)]


def measure_model(project: Project, name: str, cap: Cap) -> Pace | None:
    """Return how long a call to a language model takes; None when it does not answer.

    What that means is said where the model is asked. Raises `BudgetStop` at the cap.
    """
    with suppress(LMError):
        provider = allow_long_calls(project.settings.provider)
        return measure_pace(ProviderLM(open_endpoint(name, provider)), cap)
    return None


def estimate_cost(project: Project, searched: int, tested: int, most: int | None, local: float) -> Expected:
    """Return what a compile with an empty record comes to by the paces measured.

    `searched` and `tested` are questions, `most` the cap on calls, `local` the seconds of work of this machine.
    """
    models, paces = project.settings.models, read_paces(project.private)
    calls: dict[str, int] = {}
    for name, (of_search, of_test) in ((models.write, WRITTEN), (models.decide, DECIDED)):
        if not is_local(name):
            calls[name] = calls.get(name, 0) + of_search * searched + of_test * tested
    total = sum(calls.values())
    share = min(1.0, most / total) if most is not None and total else 1.0
    seconds, usd = local, 0.0
    for name, count in calls.items():
        pace, endpoint = paces.get(name), open_endpoint(name, project.settings.provider)
        if pace is not None:
            seconds += count * share * pace.seconds / endpoint.terms.concurrency
            usd += count * share * endpoint.price(pace.tokens_in, pace.tokens_out)
    return Expected(round(total * share), seconds / 60, usd)
