"""What every decision said of labelled cases whose topics it was not shown, and what it should have said."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from optimize.compiler.preparation import Preparation
from optimize.compiler.routing import ROUTE, routed
from optimize.compiler.scoring import Arm
from optimize.compiler.screening import examples
from optimize.compiler.spending import Caps
from program.errors import BudgetStop
from program.loop.decisions import is_undecided
from program.loop.policy import Setting, apply_setting

NOTHING = Caps(calls=0)


@dataclass(slots=True)
class Judged:
    """One decision on labelled cases: probabilities in [0, 1] and whether it was so.

    Of a choice among several options (`cut` false) the probability is that of the likeliest, and it was so when that
    was right; of a yes-or-no decision `parameter` names the threshold it is cut at.
    """

    parameter: str
    cut: bool = True
    chances: list[float] = field(default_factory=list)
    truths: list[bool] = field(default_factory=list)


def judged(ready: Preparation, setting: Setting) -> list[Judged]:
    """Every decision that has labels, the router's first, as it is under a setting. Makes no call that a model is paid
    for: what is not known is left out."""
    spending = ready.spending
    before, spending.caps = spending.caps, NOTHING
    try:
        return [one for one in (*_routing(ready, setting), *_others(ready, setting)) if one.chances]
    finally:
        spending.caps = before


def _routing(ready: Preparation, setting: Setting) -> Iterator[Judged]:
    for arm in ready.arms:
        apply_setting(arm.replay.program, setting)
    each = [Arm(arm.replay, [question]) for arm in ready.arms for question in arm.questions]
    routing = routed([one for one in each if _known(one)])
    choice = Judged(f"{ROUTE}:route", cut=False)
    for table, label in zip(routing.tables, routing.routes, strict=True):
        likeliest = max(table, key=table.__getitem__)
        choice.chances.append(table[likeliest])
        choice.truths.append(likeliest == label)
    yield choice
    for output in sorted(routing.chances):
        yield Judged(f"{ROUTE}:{output}", True, routing.chances[output], routing.truths[output])


def _known(arm: Arm) -> bool:
    """True when the router's decisions can be had for nothing."""
    with contextlib.suppress(BudgetStop):
        routed([arm])
        return True
    return False


def _others(ready: Preparation, setting: Setting) -> Iterator[Judged]:
    """The decisions on passages and drafts, on the cases that candidates were screened by."""
    for name in sorted({one.predictor for one in ready.demonstrations} - {ROUTE}):
        found: dict[str, Judged] = defaultdict(lambda: Judged(""))
        with contextlib.suppress(BudgetStop):
            for _, _, reply, wanted in examples(ready.arms, ready.demonstrations, name).judged(setting):
                for output, label in wanted.items():
                    if is_undecided(reply[output]):
                        continue
                    one = found[output]
                    one.parameter = f"{name}:{output}"
                    one.chances.append(reply[output].probability)
                    one.truths.append(bool(label))
        yield from found.values()
