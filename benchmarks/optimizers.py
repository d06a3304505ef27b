"""DSPy's optimizers on ragc's program: the metric, the examples, and every call they make."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from os import devnull
from pathlib import Path
from typing import Any

import dspy
import numpy as np
from dspy.lm15 import Message, Request, Response, TextPart, Usage
from dspy.teleprompt import BootstrapFewShotWithOptuna, BootstrapFewShotWithRandomSearch, MIPROv2

from ragc.loop.rag import AgenticRAG
from ragc.optimize.compiler.runs.performer import Performer
from ragc.optimize.compiler.tasks.project import ProjectTask
from ragc.optimize.evaluation.evaluate import Grader, evaluate
from ragc.optimize.labelled.dataset import LabelledQuestion

CANDIDATES, FEW = 16, 4
GOOD = 0.5  # utility from which a run is worth showing


class Peer:
    """What an optimizer is given for a project: its metric is the project's utility; it counts what is asked."""

    def __init__(self, opened: ProjectTask, shown: Sequence[LabelledQuestion]) -> None:
        self.opened = opened
        self.shown = shown
        self.asked = self.calls = 0
        self._labels = {q.question: q for part in opened.parts.values() for q in part}
        self._grader = Grader(opened.first, opened.project.settings.utility, relevancy=False)

    def metric(self, example: Any, answer: Any, trace: Any = None) -> float:
        """The utility of an answer."""
        self.asked += 1
        self.calls += answer.usage.calls + answer.usage.decisions
        return self._grader(self._labels[example.question], answer).utility

    @staticmethod
    def examples(questions: Sequence[LabelledQuestion]) -> list[dspy.Example]:
        return [dspy.Example(question=q.question).with_inputs("question") for q in questions]

    def optimized(self, run: Callable[[AgenticRAG, list[dspy.Example], list[dspy.Example]], Any]) -> AgenticRAG:
        """The program that an optimizer makes of the uncompiled one, from train and dev; it says nothing meanwhile."""
        train, dev = self.examples(self.shown), self.examples(self.opened.parts["dev"])
        with Path(devnull).open("w") as quiet, redirect_stdout(quiet), redirect_stderr(quiet), dspy.context(trace=[]):
            found: AgenticRAG = run(self.opened.first.deepcopy(), train, dev)
        return found


def random_search(peer: Peer, seed: int, quick: bool) -> AgenticRAG:
    """BootstrapFewShotWithRandomSearch."""
    optimizer = BootstrapFewShotWithRandomSearch(
        peer.metric, num_candidate_programs=2 if quick else CANDIDATES, num_threads=1, metric_threshold=GOOD
    )
    return peer.optimized(lambda program, train, dev: optimizer.compile(program, trainset=train, valset=dev))


def optuna_search(peer: Peer, seed: int, quick: bool) -> AgenticRAG:
    """BootstrapFewShotWithOptuna."""
    optimizer = BootstrapFewShotWithOptuna(
        peer.metric, num_candidate_programs=2 if quick else CANDIDATES, num_threads=1
    )
    return peer.optimized(
        lambda program, train, dev: optimizer.compile(program, max_demos=FEW, trainset=train, valset=dev)
    )


def mipro(peer: Peer, seed: int, quick: bool) -> AgenticRAG:
    """MIPROv2 light, or a tenth of it; its instructions are written by a script."""
    script = dspy.LM("scripted/proposer", engine=_Script(), cache=False)
    few: dict[str, Any] = {"num_candidates": 2, "auto": None} if quick else {"auto": "light"}
    optimizer = MIPROv2(
        peer.metric, prompt_model=script, task_model=script, num_threads=1, metric_threshold=GOOD, seed=seed, **few
    )
    trials: dict[str, Any] = {"num_trials": 2, "minibatch": False} if quick else {}
    return peer.optimized(
        lambda program, train, dev: optimizer.compile(
            program, trainset=train, valset=dev, program_aware_proposer=False, data_aware_proposer=False, **trials
        )
    )


PEERS: dict[str, Callable[[Peer, int, bool], AgenticRAG]] = {
    "BootstrapFewShotWithRandomSearch": random_search,
    "BootstrapFewShotWithOptuna": optuna_search,
    "MIPROv2 light": mipro,
}


class _Script:
    """An engine that writes one instruction."""

    def complete(self, request: Request) -> Response:
        text = "[[ ## proposed_instruction ## ]]\nDo it with care.\n\n[[ ## completed ## ]]"
        message = Message.assistant([TextPart(text)])
        usage = Usage(input_tokens=0, output_tokens=0, total_tokens=0)
        return Response(id=None, model=request.model, message=message, finish_reason="stop", usage=usage)


@contextmanager
def calls_of() -> Iterator[Callable[[], int]]:
    """Counts the decisions and texts that a compile inside the block asks of a model."""
    counted, perform = [0], Performer.perform_calls

    def counting(self: Performer, calls: Any) -> Any:
        counted[0] += sum(call.model is not None for call in calls)
        return perform(self, calls)

    Performer.perform_calls = counting  # type: ignore[method-assign]
    try:
        yield lambda: counted[0]
    finally:
        Performer.perform_calls = perform  # type: ignore[method-assign]


@contextmanager
def decisions_capped() -> Iterator[None]:
    """Inside, a compile counts and caps each decision of the embedded decider, too, as a call."""
    decided = Performer._decide

    def capped(self: Performer, model: Any, asks: Sequence[Any]) -> Any:
        for _ in asks:
            self._spending.before_call()
            self._spending.after_call(0.0, 0.0)
        return decided(self, model, asks)

    Performer._decide = capped  # type: ignore[method-assign]
    try:
        yield
    finally:
        Performer._decide = decided  # type: ignore[method-assign]


def mean_utility(program: AgenticRAG, questions: Sequence[LabelledQuestion], weights: Any) -> float:
    """Of the program's answers."""
    return float(np.mean([grade.utility for grade in evaluate(program, questions, weights).grades]))
