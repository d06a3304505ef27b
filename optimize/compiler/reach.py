"""Under a cap: the training questions on which the settings that a search begins with can be tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

from optimize.compiler.journal import Journal
from optimize.compiler.proposals import within
from optimize.compiler.scoring import Arm
from optimize.compiler.spending import CHOICE_SHARE, REACH_SHARE, Caps
from optimize.labelled.dataset import LabelledQuestion
from program.errors import BudgetStop
from program.loop.policy import Setting, apply_setting, find_dimensions

if TYPE_CHECKING:
    from optimize.compiler.preparation import Preparation

REACH = "reach"
LEAST = 2  # topics that are kept in any case: with fewer no fold can be left out

Topic = tuple[Arm, Sequence[LabelledQuestion]]
"""The questions of one topic, in the arm that has it."""
T = TypeVar("T")


def cut_to_reach(ready: Preparation, journal: Journal, worker: bool) -> None:
    """Leaves in the arms the topics on which the cap lets the starts but "as it is" be run, two at least.

    Better every start on some of the questions than a few on all: what they come to is compared. A study notes which,
    for its workers and for whoever resumes it. One that has no cap, or had trials before it had one, keeps all.
    """
    noted = journal.attributes.get(REACH)
    if noted is None:
        if ready.spending.caps == Caps():
            return
        if worker:
            noted = journal.awaited(REACH, ready.spending.check)
        else:
            noted = [one.id for arm in ready.arms for one in arm.questions] if journal.trials() else _reached(ready)
            journal.note(REACH, noted)
    kept = frozenset(noted)
    arms = [Arm(arm.replay, [one for one in arm.questions if one.id in kept]) for arm in ready.arms]
    ready.arms = [arm for arm in arms if arm.questions]


def _reached(ready: Preparation) -> list[str]:
    """The questions of the topics reached by the share of the cap that is for it."""
    found = find_dimensions(ready.arms[0].replay.program)

    def run(start: Setting, topics: Sequence[Topic]) -> None:
        for arm, questions in topics:
            apply_setting(arm.replay.program, within(found, start))
            arm.replay.answers([question.question for question in questions])

    before = ready.spending.caps
    ready.spending.caps = before.reduced(REACH_SHARE / CHOICE_SHARE)
    reached, _ = within_reach(_round_robin(ready.arms), ready.starts[1:], run)
    ready.spending.caps = before
    return [question.id for _, questions in reached for question in questions]


def within_reach(
    topics: Sequence[T], settings: Sequence[Setting], run: Callable[[Setting, Sequence[T]], Any]
) -> tuple[list[T], list[Setting]]:
    """What a cap lets be run: two topics under one setting after the other; then, under all of these, topic by topic.

    The topics, the first two in any case, and the settings that were run on all of them.
    """
    reached, ran = list(topics[:LEAST]), list[Setting]()
    with suppress(BudgetStop):
        for setting in settings:
            run(setting, reached)
            ran.append(setting)
        for more in topics[LEAST:]:
            for setting in ran:
                run(setting, [more])
            reached.append(more)
    return reached, ran


def _round_robin(arms: Sequence[Arm]) -> list[Topic]:
    """The topics of the arms, one of each arm in turn: they are folds, and none is to stand for the others."""
    columns = []
    for arm in arms:
        topics: dict[str, list[LabelledQuestion]] = {}
        for question in arm.questions:
            topics.setdefault(question.cluster, []).append(question)
        columns.append([(arm, questions) for questions in topics.values()])
    return [topic for topic in chain.from_iterable(zip_longest(*columns)) if topic is not None]
