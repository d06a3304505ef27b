"""Under a cap: the training questions on which every setting that a search begins with can be tried."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from optimize.journal import Journal
from optimize.proposals import within
from optimize.scoring import Arm
from optimize.spending import Caps
from program.errors import BudgetStop
from program.parameters import apply, space

if TYPE_CHECKING:
    from optimize.preparation import Preparation

REACH = "reach"
SHARE = 0.43  # of what may be spent before the test, how much may be gone when the settings to begin with were tried


def cut_to_reach(ready: Preparation, journal: Journal, worker: bool) -> None:
    """Leaves in the arms the topics on which the cap lets all starts but "as it is" be run; all where it lets none.

    Better every start on some of the questions than a few on all: what they come to is compared. A study notes which,
    for its workers and for whoever resumes it; one that has trials, or no cap, is left as it is.
    """
    noted = journal.attributes.get(REACH)
    if noted is None:
        if ready.spending.caps == Caps() or journal.trials():
            return
        noted = journal.awaited(REACH) if worker else _reached(ready)
        if not worker:
            journal.note(REACH, noted)
    kept = frozenset(noted)
    arms = [Arm(arm.replay, [one for one in arm.questions if one.id in kept]) for arm in ready.arms]
    ready.arms = [arm for arm in arms if arm.questions] or ready.arms


def _reached(ready: Preparation) -> list[str]:
    """The questions, topic by topic in the order of the arms, that can be run under every start."""
    before, reached = ready.spending.caps, []
    ready.spending.caps = before.reduced(SHARE)
    found = space(ready.arms[0].replay.program)
    with suppress(BudgetStop):
        for arm in ready.arms:
            for topic in dict.fromkeys(question.cluster for question in arm.questions):
                questions = [question for question in arm.questions if question.cluster == topic]
                for start in ready.starts[1:]:
                    apply(arm.replay.program, within(found, start))
                    arm.replay.answers([question.question for question in questions])
                reached += [question.id for question in questions]
    ready.spending.caps = before
    return reached
