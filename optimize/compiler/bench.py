"""What settings come to on the questions they are chosen on: train, each topic unseen, and dev."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import chain
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from optimize.compiler.front import Candidate
from optimize.compiler.preparation import Preparation, copy_of, topics_apart
from optimize.compiler.reach import LEAST, within_reach
from optimize.compiler.scores import Floats, Scores
from optimize.compiler.scoring import Arm, Scoring
from optimize.compiler.spending import Caps, Spending
from optimize.compiler.study import Search
from optimize.compiler.survival import survives
from optimize.labelled.dataset import LabelledQuestion
from program.errors import BudgetStop
from program.loop.policy import Setting, is_candidate
from program.loop.rag import AgenticRAG


class Bench:
    """Scores settings on the questions of train (out of fold), then of dev; of its topics only those a cap reached.

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
        self._parts = [(ready.replay(final), self._dev[:half]), (ready.replay(copy_of(final)), self._dev[half:])]
        self._weights = ready.project.settings.utility
        self._capped = ready.spending.caps != Caps()
        self._scoring = self._over(self._dev)
        self.own = ready.project.settings.utility.call

    def abreast(self, spending: Spending) -> AbstractContextManager[None]:
        """Inside, the questions of dev are scored by two processes."""
        return self._scoring.abreast(spending)

    def __call__(self, setting: Setting) -> Scores:
        """Every question under a setting. Raises `BudgetStop` when a cap is reached on what is not known."""
        scores = self._search.scores(setting).beside(self._on_dev(setting))
        self._seen.add(tuple(sorted(setting.items())))
        self._progress(len(self._seen))
        return scores

    def all(self, settings: Sequence[Setting], before: Setting) -> tuple[Table, Scores]:
        """The scores of settings, and of the one from before.

        Under a cap, of as many settings as it reaches for, and dev is from now on what these could be scored on: two
        topics at least, or none. Of the one from before it is what is known, unless folds are made of train, too.
        """
        if self._capped:
            settings = self._within_reach(before, settings)
        table = self.table(settings)
        with suppress(BudgetStop):
            if not self._capped or self.held[0] == 0:
                return table, self(before)
        return table, self._search.known(before).beside(self._on_dev(before))

    def table(
        self,
        settings: Sequence[Setting],
        known: Callable[[Setting], Scores | None] = lambda one: None,
        shared: bool = False,
    ) -> Table:
        """Those of the settings that no cap keeps from being scored; of some the scores may be `known`.

        With `shared` all of them, on the questions that are known of each.
        """
        rows: list[Scores] = []
        with suppress(BudgetStop):
            rows.extend(known(one) or self(one) for one in settings)
        if shared and rows:
            known_of_all: NDArray[np.bool_] = np.all(np.isfinite([row.utility for row in rows]), axis=0)
            if known_of_all.any():
                rows = [row.on(known_of_all) for row in rows]
        return Table(settings[: len(rows)], rows, self.own)

    def _within_reach(self, before: Setting, settings: Sequence[Setting]) -> Sequence[Setting]:
        """Leaves of dev the topics that are within reach of a cap. The settings that are; all, without dev, where none
        is."""
        topics: dict[str, list[int]] = defaultdict(list)
        for place, question in enumerate(self._dev):
            topics[question.cluster].append(place)
        kept, ran = within_reach(
            list(topics.values()),
            [before, *_alternating(settings)],
            lambda setting, places: self._scoring(setting, list(chain.from_iterable(places))),
        )
        reached = [setting for setting in settings if setting in ran[1:]]
        self._dev = [self._dev[place] for place in sorted(chain.from_iterable(kept))] if reached else []
        self._scoring = self._over(self._dev)
        return reached or settings

    def _over(self, questions: Sequence[LabelledQuestion]) -> Scoring:
        """Scores those questions of dev."""
        kept = {question.id for question in questions}
        arms = [Arm(replay, [one for one in part if one.id in kept]) for replay, part in self._parts]
        return Scoring(arms, self._weights)

    def _on_dev(self, setting: Setting) -> Scores:
        return self._scoring(setting) if self._dev else Scores.none(0)

    @property
    def asked(self) -> dict[str, int]:
        """Of train and dev, how many questions are scored."""
        return {"train": len(self._train), "dev": len(self._dev)}

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
        topics = {question.cluster for question in self._dev}
        return list(range(len(self._train) if len(topics) >= LEAST else 0, len(self.questions)))

    def survives(self, gains: Floats) -> bool:
        """True when the gains of the questions in folds are more than chance would give."""
        topics = [question.cluster for question in self.questions]
        return survives([float(gains[n]) for n in self.held], [topics[n] for n in self.held])


def _alternating(settings: Sequence[Setting]) -> list[Setting]:
    """The settings, of each choice of candidates the first, then of each the second, and so on: what was learnt is what
    most needs to be seen on other questions."""
    turns: Counter[tuple[float, ...]] = Counter()
    ordered = []
    for setting in settings:
        chosen = tuple(value for name, value in sorted(setting.items()) if is_candidate(name))
        ordered.append((turns[chosen], setting))
        turns[chosen] += 1
    return [setting for _, setting in sorted(ordered, key=itemgetter(0))]


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
