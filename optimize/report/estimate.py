"""What a compile comes to: calls, minutes and money, by how long a call and an answer take that were measured.

The minutes are those of its stages. While it runs, what is left is told by the clock: the stages to come are as much
slower than planned as those before them were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dspy.utils.exceptions import LMError, LMServerError

from ragc.errors import ModelError
from ragc.knowledge.project import Project
from ragc.models.catalog import is_local, open_endpoint
from ragc.models.language.gateway import ProviderLM
from ragc.models.language.pace import UNANSWERED, Pace, allow_long_calls, measure_pace, read_paces
from ragc.models.language.spending import Cap

WRITTEN, DECIDED = (3, 2), (8, 5)
"""Calls of a writing and of a deciding language model for a question of train and dev, and for one of the test."""
READING, SEARCHING, TESTING = "reading what is found for the questions", "searching", "testing"
LISTING, SEALING = "listing what is still wrong", "sealing"
STAGES: Mapping[str, tuple[float, float, float]] = {
    READING: (1, 0, 0.4),
    "making demonstrations": (0.23, 0, 0),
    "fitting decisions": (0.14, 0, 0),
    "trying whole ways": (0.16, 3, 0.3),
    "fitting thresholds": (0.05, 5, 0),
    SEARCHING: (0, 0, 0),
    "choosing on dev": (0.04, 1, 0),
    LISTING: (0.002, 0, 0),
    TESTING: (1.05, 0, 0.3),
    SEALING: (0.01, 0, 0),
}
"""Of each stage: how often its questions are answered anew, settings scored on train, and the share of calls."""
UNITS: Mapping[str, str] = {
    "indexing the knowledge": "files",
    "choosing candidates": "prompts",
    "fitting decisions": "fits",
    "trying whole ways": "ways",
    "fitting thresholds": "steps",
    SEARCHING: "settings",
    "choosing on dev": "settings",
}
"""What the steps of a stage are, where they are not questions."""
ATTEMPTS = 4  # calls made to measure a model that refuses some
TRUSTED = 0.03  # the share of the plan that weighs as much as what the clock says


@dataclass(frozen=True, slots=True)
class Expected:
    """What a compile comes to, about: calls to language models, seconds by stage in its order, and US dollars."""

    calls: int = 0
    stages: Mapping[str, float] = field(default_factory=dict)
    usd: float = 0.0

    @property
    def minutes(self) -> float:
        return sum(self.stages.values()) / 60

    def describe(self) -> str:
        """Return the estimate in a line; empty where nothing is known."""
        calls = f"{self.calls:,} calls to language models" if self.calls else ""
        minutes = format_minutes(self.minutes) if self.stages else ""
        usd = f"US$ {self.usd:,.2f}" if calls and minutes else ""
        told = ", ".join(filter(None, [calls, minutes, usd]))
        return told and f"about {told}"

    def tell_left(self, took: Mapping[str, float], stage: str, elapsed: float, share: float) -> float | None:
        """Return the minutes that are left, about; None of what no stage was planned for.

        `took` has the seconds of the stages that are over, `elapsed` and `share` how far the present one is.
        """
        if not self.stages:
            return None
        over, at = {_plain(name) for name in took}, _plain(stage)
        now = 0.0 if at in over else self.stages.get(at, 0.0)
        planned = sum(seconds for name, seconds in self.stages.items() if name in over) + now * share
        spent = sum(seconds for name, seconds in took.items() if _plain(name) in self.stages) + elapsed * bool(now)
        trust = TRUSTED * 60 * self.minutes
        return (spent + trust) / (planned + trust) * (60 * self.minutes - planned) / 60


def format_minutes(minutes: float) -> str:
    """Return minutes as a person says them."""
    return f"{minutes:,.0f} minutes" if minutes >= 1.5 else "a minute"


def name_steps(stage: str) -> str:
    """Return what the steps of a stage are."""
    return UNITS.get(_plain(stage), "questions")


def _plain(stage: str) -> str:
    return stage.partition(":")[0]


def list_asked(project: Project) -> list[str]:
    """Return the language models that decide and write, each once."""
    models = project.settings.models
    named = dict.fromkeys((models.write, models.query, models.decide, models.judge))
    return [name for name in named if name and not is_local(name)]


def measure_model(project: Project, name: str, cap: Cap) -> Pace:
    """Return how long a call to a language model takes.

    Raises `ModelError` when it does not answer, `BudgetStop` at the cap.
    """
    model = ProviderLM(open_endpoint(name, allow_long_calls(project.settings.provider)))
    for left in reversed(range(ATTEMPTS)):
        try:
            return measure_pace(model, cap)
        except LMError as error:  # a stand-in would answer, and what is compiled would be for that
            if not left or isinstance(error, LMServerError):  # which was repeated already
                raise ModelError(f"{error.message}.", UNANSWERED) from error
    raise AssertionError


def estimate_cost(
    project: Project, searched: int, tested: int, most: int | None, anew: float, again: float = 0.0, trials: int = 0
) -> Expected:
    """Return what a compile with an empty record comes to by the paces measured.

    `searched` and `tested` are questions, `most` the cap on calls; `anew` and `again` are the seconds that this machine
    takes to answer a question the first time, and at another setting.
    """
    models, paces = project.settings.models, read_paces(project.private)
    calls: dict[str, int] = {}
    for name, (of_search, of_test) in ((models.write, WRITTEN), (models.decide, DECIDED)):
        if not is_local(name):
            calls[name] = calls.get(name, 0) + of_search * searched + of_test * tested
    total = sum(calls.values())
    share = min(1.0, most / total) if most is not None and total else 1.0
    asked, usd, stages = 0.0, 0.0, dict[str, float]()
    for name, count in calls.items():
        pace, endpoint = paces.get(name), open_endpoint(name, project.settings.provider)
        if pace is not None:
            asked += count * share * pace.seconds / endpoint.terms.concurrency
            usd += count * share * endpoint.price(pace.tokens_in, pace.tokens_out)
    for name, (times, settings, part) in STAGES.items():
        questions = tested if name == TESTING else searched
        scored = settings + (trials if name == SEARCHING else 0)
        stages[name] = anew * times * questions + again * scored * searched + part * asked
    return Expected(round(total * share), stages, usd)
