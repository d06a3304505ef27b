"""One search over everything a program can turn, against labelled questions, by replay."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from optimize.dataset import LabelledQuestion
from optimize.evaluation import Grader
from optimize.metrics import Grade
from optimize.replay import Replay
from program.parameters import Dimension, Setting, apply, space
from program.settings import UtilitySettings

ROUTING_CREDIT = 0.1
STARTUP = 6  # the settings a search starts from are better company than random ones


@dataclass(frozen=True, slots=True)
class Arm:
    """A program (through a replay) and the questions it may be judged on: its demonstrations hold none of them."""

    replay: Replay
    questions: Sequence[LabelledQuestion]


@dataclass(frozen=True, slots=True)
class Trial:
    """A setting and what it was worth: mean utility (routing credit included), and mean calls a question."""

    number: int
    setting: Setting
    worth: float
    calls: float


@dataclass(slots=True)
class Live:
    """What a search has to show while it runs."""

    stage: str = ""
    done: int = 0
    of: int = 0
    best: float | None = None
    baseline: float | None = None
    calls: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the end of the stage at the pace so far."""
        gone = time.monotonic() - self.started
        return gone / self.done * (self.of - self.done) if self.done else None


Watch = Callable[[Live], None]


def grades(arms: Sequence[Arm], setting: Mapping[str, float], weights: UtilitySettings) -> list[Grade]:
    """Every question graded by its arm under the setting."""
    graded = []
    for arm in arms:
        apply(arm.replay.program, setting)
        grader = Grader(arm.replay.program, weights, relevancy=False)
        graded += [grader(question, arm.replay(question.question)) for question in arm.questions]
    return graded


def worth(graded: Sequence[Grade]) -> float:
    """Mean utility, with a little credit for routing right so that ties fall to the better router."""
    routed = [g.metrics["routing_accuracy"] or 0.0 for g in graded if g.metrics["routing_accuracy"] is not None]
    return float(np.mean([g.utility for g in graded]) + ROUTING_CREDIT * (np.mean(routed) if routed else 0.0))


def mean_calls(graded: Sequence[Grade]) -> float:
    """Model calls a question."""
    return float(np.mean([g.metrics["model_calls"] or 0.0 for g in graded]))


class Search:
    """An Optuna study over a program's whole space."""

    def __init__(
        self, arms: Sequence[Arm], weights: UtilitySettings, seed: int, storage: str | Path | None, name: str
    ) -> None:
        self._arms = arms
        self._weights = weights
        self._space = space(arms[0].replay.program)
        self.trials: list[Trial] = []
        optuna.logging.set_verbosity(logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=STARTUP)
        self.study = optuna.create_study(
            study_name=name,
            storage=_storage(storage),
            sampler=sampler,
            direction="maximize",
            load_if_exists=True,
        )

    def run(self, starts: Sequence[Setting], trials: int, watch: Watch, live: Live, deadline: float | None) -> None:
        """Tries the starting settings, then `trials` proposals; stops early at the deadline (monotonic seconds)."""
        for start in starts:
            self.study.enqueue_trial({d.name: start[d.name] for d in self._space if d.name in start})
        live.done, live.of, live.started = 0, trials + len(starts), time.monotonic()
        for _ in range(live.of):
            if deadline is not None and time.monotonic() >= deadline and self.trials:
                break
            trial = self.study.ask()
            setting = {d.name: _suggest(trial, d) for d in self._space}
            found = self._try(trial.number, setting)
            self.study.tell(trial, found.worth)
            live.done += 1
            live.best = max(found.worth, live.best if live.best is not None else found.worth)
            watch(live)

    def best(self, n: int) -> list[Trial]:
        """The `n` best trials, best first, no setting twice."""
        ranked = sorted(self.trials, key=lambda t: (-t.worth, t.number))
        return ranked[:n]

    def _try(self, number: int, setting: Setting) -> Trial:
        graded = grades(self._arms, setting, self._weights)
        trial = Trial(number, setting, worth(graded), mean_calls(graded))
        self.trials.append(trial)
        return trial


def _suggest(trial: optuna.Trial, dimension: Dimension) -> float:
    if dimension.integral:
        return int(trial.suggest_int(dimension.name, int(dimension.low), int(dimension.high)))
    return float(
        trial.suggest_float(dimension.name, dimension.low, dimension.high, step=dimension.step, log=dimension.log)
    )


def _storage(where: str | Path | None) -> Any:
    """A journal file for a path, a database for a URL, memory for nothing."""
    if where is None:
        return None
    if isinstance(where, str):
        return optuna.storages.RDBStorage(where)
    where.parent.mkdir(parents=True, exist_ok=True)
    backend = optuna.storages.journal.JournalFileBackend(str(where))
    return optuna.storages.JournalStorage(backend)
