"""A program's own runs on labelled questions: what was asked in each, what came back, and what became of it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optimize.dataset import LabelledQuestion
from optimize.demonstrations import Demonstration
from optimize.metrics import Verdict, judge
from optimize.replay import Replay
from optimize.scoring import Arm
from program.answer import Answer
from program.deciding import prompt_inputs
from program.decisions import Decision
from program.loop import Ask, Reply, StepFailed, steps


@dataclass(frozen=True, slots=True)
class Run:
    """One question, how its answer was judged, and each predictor that was asked on the way with its reply."""

    question: LabelledQuestion
    answer: Answer
    verdict: Verdict
    asked: Sequence[tuple[Ask, Reply]]


def observed(arms: Sequence[Arm]) -> list[Run]:
    """The runs of every question of the arms; what the record lacks is performed, questions abreast."""
    return [run for arm in arms for run in _of(arm)]


def _of(arm: Arm) -> list[Run]:
    answers = arm.replay.answers([question.question for question in arm.questions])
    runs = []
    for question, answer in zip(arm.questions, answers, strict=True):
        with contextlib.suppress(Exception):  # a question that cannot be graded teaches nothing; the search names it
            verdict = judge(question, answer.outcome, answer.text)
            runs.append(Run(question, answer, verdict, _asked(arm.replay, question.question)))
    return runs


def _asked(replay: Replay, question: str) -> list[tuple[Ask, Reply]]:
    """What the loop asks of predictors on its way, from the record."""
    program = replay.program
    loop = steps(question, program, program.runtime.budget.max_rounds)
    seen: list[tuple[Ask, Reply]] = []
    try:
        requests = next(loop)
        while True:
            replies = replay.replies(requests)
            if any(reply is None for reply in replies):
                requests = loop.throw(StepFailed("no reply was recorded"))
                continue
            seen += [(r, found) for r, found in zip(requests, replies, strict=True) if isinstance(r, Ask)]
            requests = loop.send(replies)
    except StopIteration:
        return seen


def bootstrapped(runs: Sequence[Run]) -> list[Demonstration]:
    """What each predictor replied in the runs that ended well, as demonstrations; no input twice."""
    found: dict[str, Demonstration] = {}
    for run in runs:
        if not run.verdict.correct:
            continue
        for ask, reply in run.asked:
            fields = {**prompt_inputs(ask.inputs), **said(reply)}
            topic = run.question.topic or run.question.id
            found.setdefault(f"{ask.predictor} {ask.inputs!r}", Demonstration(ask.predictor, topic, fields))
    return list(found.values())


def said(reply: Mapping[str, Any]) -> dict[str, Any]:
    """A reply as plain values: of a decision what it decodes to."""
    return {name: value.value if isinstance(value, Decision) else value for name, value in reply.items()}
