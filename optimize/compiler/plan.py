"""How a compile divides its caps on calls and money: what it needs most is paid for first.

1. The program as it is is asked on train. Its replies are known from then on, so that every setting that changes no
   prompt is arithmetic; and what a question costs is measured.
2. Room is kept for dev, which chooses, and for the test, by what a question costs.
3. What is left pays for other prompts, each first on every third question. What is untried is told, with its cost.

Where a cap reaches to less than the first two, each split has its share of it by how often its questions are asked.
They are asked in an order that speaks for all topics wherever it is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple, TypeVar

from ragc.answer import Usage
from ragc.errors import BudgetStop
from ragc.loop.policy import Setting, apply_setting
from ragc.optimize.compiler.runs.runner import AnyArm
from ragc.optimize.compiler.spending import Caps
from ragc.optimize.labelled.split import order_stratified

LEAST = 12  # questions of a split kept under any cap
BATCH = 8  # questions that several settings are asked at once, until a cap is reached
TUNING = 0.1  # of train's share kept for replies that only what labels teach, and other thresholds, ask for
SECONDS = {"ask": 0.2, "teach": 0.3, "try": 0.4, "fit": 0.55, "choose": 0.7, "test": 1.0}
"""Share of a cap on seconds that may be gone at the end of each stage."""
A = TypeVar("A", bound=AnyArm)


class QuestionCost(NamedTuple):
    """What a question costs on average, in calls and US dollars."""

    calls: float
    usd: float


@dataclass(frozen=True, slots=True)
class CapPlan:
    """How many questions each split has, how often each is asked at least, and what that costs on average.

    Before the splits are known every cap is divided as one on seconds.
    """

    caps: Caps
    train: int = 0
    dev: int = 0
    test: int = 0
    prompts: int = 1  # programs with other prompts among those without which there is no compile
    others: int = 0  # programs that the test asks beside them
    each: QuestionCost | None = None  # what a question costs as the program is, once that is known

    def limit(self, stage: str) -> Caps:
        """Return what may be gone at the end of a stage of SECONDS."""
        if not self.train:
            return self.caps.take_share(SECONDS[stage])
        learned, tested = self.prompts * (self.train + self.dev), (self.prompts + self.others) * self.test
        another = (self.prompts + 1) * self.dev + tested + self.test  # one more prompt is asked on dev and test, too
        least, room = {
            "ask": ((1 - 2 * TUNING) * self.train, self.train + another),
            "teach": ((self.prompts - TUNING) * self.train, another),
            "try": (self.prompts * self.train, another),
            "fit": (self.prompts * self.train, self.prompts * self.dev + tested),
            "choose": (learned, tested),
            "test": (learned + tested, 0.0),
        }[stage]
        calls, usd = self.caps.calls, self.caps.usd
        share = self.caps.take_share(least / (learned + tested))
        if self.each is not None:
            calls = None if calls is None else max(share.calls or 0, int(calls - room * self.each.calls))
            usd = None if usd is None else max(share.usd or 0.0, usd - room * self.each.usd)
            share = Caps(calls, usd)
        return replace(share, seconds=self.caps.take_share(SECONDS[stage]).seconds)

    def price_ways(self, ways: int) -> int:
        """Return the calls that so many more prompts take, of every split."""
        return round(ways * (self.train + self.dev + self.test) * self.each.calls) if self.each else 0


def ask_within(
    arms: Sequence[A], settings: Sequence[Setting], watch: Callable[[int], None]
) -> tuple[list[A], QuestionCost | None]:
    """Return the arms as far as a cap reaches, and what a question cost on average.

    The cost is that of the first setting, and LEAST questions are kept at least. Better every setting on some of the
    questions than a few on all: their scores are compared. `watch` is told how many were asked.
    """
    pairs = [(arm, question) for arm in arms for question in arm.questions]
    order = order_stratified([question for _, question in pairs])
    reached, usages = 0, list[Usage]()
    try:
        for first in range(0, len(order), BATCH):
            batch = [pairs[n] for n in order[first : first + BATCH]]
            for setting in settings:
                for arm in arms:
                    if asked := [question.asked for of, question in batch if of is arm]:
                        apply_setting(arm.replay.program, setting)
                        own = [answer.usage for answer in arm.replay.answer_all(asked)]
                        usages += own if setting is settings[0] else []
            reached = min(first + BATCH, len(order))
            watch(reached)
    except BudgetStop:
        pass
    kept = {pairs[n][1].id for n in order[: max(reached, LEAST)]}
    limited = [replace(arm, questions=[one for one in arm.questions if one.id in kept]) for arm in arms]
    each = QuestionCost(fmean(one.calls for one in usages), fmean(one.usd for one in usages)) if usages else None
    return [arm for arm in limited if arm.questions], each
