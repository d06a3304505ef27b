"""What settings come to on the questions they are chosen on: train, each topic unseen, and dev."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress

import numpy as np
from numpy.typing import NDArray

from optimize.dataset import LabelledQuestion
from optimize.front import Candidate
from optimize.preparation import Preparation, copy_of, topics_apart
from optimize.scores import Floats, Scores
from optimize.scoring import Arm, Scoring
from optimize.spending import Spending
from optimize.study import Search
from optimize.survival import survives
from program.errors import BudgetStop
from program.parameters import Setting
from program.rag import AgenticRAG

TOPICS = 2  # of dev, under which no fold of it can be left out


class Bench:
    """Scores settings on the questions of train (out of fold), then of dev; without dev once a cap is reached there.

    `held` are the questions that folds are made of: those of dev, or all where dev has too few topics for that.
    `progress` is told of how many settings were scored so far; how many it will be nobody knows before.
    """

    def __init__(
        self, ready: Preparation, search: Search, final: AgenticRAG, progress: Callable[[int], None] = lambda done: None
    ) -> None:
        self._search = search
        self._progress = progress
        self._seen: set[tuple[tuple[str, float], ...]] = set()
        self._train = [question for arm in ready.arms for question in arm.questions]
        self._dev = list(ready.parts["dev"])
        half = len(self._dev) // 2  # an arm for each of two processes
        parts = [(final, self._dev[:half]), (copy_of(final), self._dev[half:])]
        arms = [Arm(ready.replay(program), questions) for program, questions in parts]
        self._scoring = Scoring(arms, ready.project.settings.utility)
        self.own = ready.project.settings.utility.call

    def abreast(self, spending: Spending) -> AbstractContextManager[None]:
        """Inside, the questions of dev are scored by two processes."""
        return self._scoring.abreast(spending)

    def __call__(self, setting: Setting) -> Scores:
        """Every question under a setting. Raises `BudgetStop` when a cap is reached on what is not known."""
        scores = self._search.scores(setting).beside(self._scoring(setting) if self._dev else Scores.none(0))
        self._seen.add(tuple(sorted(setting.items())))
        self._progress(len(self._seen))
        return scores

    def all(self, settings: Sequence[Setting], before: Setting) -> tuple[list[Scores], Scores]:
        """The scores of settings, and of the one from before; dev is left out from now on if a cap does not reach.

        Of as many settings as a cap lets be scored, and of the one from before what is known.
        """
        try:
            return [self(setting) for setting in settings], self(before)
        except BudgetStop:
            self._dev = []
        rows: list[Scores] = []
        with suppress(BudgetStop):
            rows.extend(self(setting) for setting in settings)
        try:
            return rows, self(before)
        except BudgetStop:
            return rows, self._search.known(before)

    @property
    def broken(self) -> Mapping[str, str]:
        """Questions of dev that could not be graded, and why."""
        return self._scoring.broken

    @property
    def questions(self) -> list[LabelledQuestion]:
        """In the order of the scores."""
        return [*self._train, *self._dev]

    @property
    def held(self) -> list[int]:
        """The places of the questions that folds are made of."""
        topics = {question.topic or question.id for question in self._dev}
        return list(range(len(self._train) if len(topics) >= TOPICS else 0, len(self.questions)))

    def survives(self, gains: Floats) -> bool:
        """True when the gains of the questions in folds are more than chance would give."""
        topics = [question.topic or question.id for question in self.questions]
        return survives([float(gains[n]) for n in self.held], [topics[n] for n in self.held])


class Table:
    """Utility, calls and money of settings: a row for each, a column for every question.

    A setting that a cap kept from being scored on as many questions as another is left out: they cannot be compared.
    """

    def __init__(self, settings: Sequence[Setting], scores: Sequence[Scores], own: float) -> None:
        known = [np.isfinite(one.utility).sum() for one in scores]
        most = max(known, default=0)
        whole = [n for n, count in enumerate(known) if count == most]
        settings, scores = [settings[n] for n in whole], [scores[n] for n in whole]
        self.settings = settings
        self.utility = np.array([one.utility for one in scores])
        self._spent = np.array([one.spent for one in scores])
        self._usd = np.array([one.usd for one in scores])
        self._own = own

    def at(self, price: float) -> Floats:
        """The utilities were a call to cost `price`."""
        return np.asarray(self.utility + (self._own - price) * self._spent)

    def best(self, price: float, on: NDArray[np.bool_] | None = None) -> int:
        """The setting of most utility at that price; of equals the first."""
        values = self.at(price) if on is None else self.at(price)[:, on]
        return int(np.argmax(np.round(np.nanmean(values, axis=1), 12)))

    @property
    def candidates(self) -> list[Candidate]:
        """The settings with what each comes to."""
        means = np.nanmean([self.utility, self._spent, self._usd], axis=2).T.tolist()
        return [Candidate(setting, *mean) for setting, mean in zip(self.settings, means, strict=True)]

    def out_of_fold(self, bench: Bench, price: float, before: Scores) -> Floats:
        """The gain of each question in folds under the setting chosen without its topic, over what it was worth before.

        The settings themselves were found on train: of its questions only the choice among them is free of their own.
        """
        questions, values = bench.questions, self.at(price)
        was = before.at(price, self._own)
        gains = np.full(len(questions), np.nan)
        parts = topics_apart([questions[n] for n in bench.held])
        for part in parts if len(parts) > 1 or len(bench.held) < len(questions) else []:
            inside = {id(question) for question in part}
            left = np.array([id(question) in inside for question in questions])
            gains[left] = values[self.best(price, ~left)][left] - was[left]
        return gains
