"""A program's own runs on labelled questions: what was asked in each, what came back, and what became of it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optimize.compiler.demonstrations import Demonstration
from optimize.compiler.scoring import Arm
from optimize.evaluation.metrics import Correctness, judge_answer
from optimize.labelled.dataset import LabelledQuestion
from program.answer import Answer
from program.loop.decisions import Decision, to_prompt_inputs
from program.loop.state import Ask, Reply


@dataclass(frozen=True, slots=True)
class Run:
    """One question, how its answer was judged, and each predictor that was asked on the way with its reply."""

    question: LabelledQuestion
    answer: Answer
    verdict: Correctness
    asked: Sequence[tuple[Ask, Reply]]


def observed(arms: Sequence[Arm]) -> list[Run]:
    """The runs of every question of the arms; what the record lacks is performed, questions abreast."""
    return [run for arm in arms for run in _of(arm)]


def _of(arm: Arm) -> list[Run]:
    texts = [question.question for question in arm.questions]
    answers, asked = arm.replay.answers(texts), arm.replay.asked(texts)
    runs = []
    for question, answer, each in zip(arm.questions, answers, asked, strict=True):
        with contextlib.suppress(Exception):  # a question that cannot be graded teaches nothing; the search names it
            runs.append(Run(question, answer, judge_answer(question, answer.outcome, answer.text), each))
    return runs


def bootstrapped(runs: Sequence[Run]) -> list[Demonstration]:
    """What each predictor replied in the runs that ended well, as demonstrations; no input twice."""
    found: dict[str, Demonstration] = {}
    for run in runs:
        if not run.verdict.correct:
            continue
        for ask, reply in run.asked:
            fields = {**to_prompt_inputs(ask.inputs), **said(reply)}
            topic = run.question.cluster
            found.setdefault(f"{ask.predictor} {ask.inputs!r}", Demonstration(ask.predictor, topic, fields))
    return list(found.values())


def said(reply: Mapping[str, Any]) -> dict[str, Any]:
    """A reply as plain values: of a decision what it decodes to."""
    return {name: value.value if isinstance(value, Decision) else value for name, value in reply.items()}
