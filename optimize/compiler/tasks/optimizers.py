"""DSPy's own optimizers, by the names that `ragc compile --optimizer` has for them."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import dspy
from dspy.utils import parallelizer
from dspy.utils.callback import BaseCallback

from ragc.errors import BudgetStop, DataError, ModelError, RagcError, SettingsError
from ragc.optimize.compiler.tasks.examples import Metric, score_prediction

RAGC = "ragc"
Examples = Sequence[dspy.Example]


def require_optimizer(name: str) -> None:
    """Raise `SettingsError` for an unknown name."""
    if name not in (RAGC, *OPTIMIZERS):
        raise SettingsError(f"There is no optimizer {name!r}.", f"Use one of: {', '.join([RAGC, *OPTIMIZERS])}.")


def run_optimizer(name: str, program: dspy.Module, parts: Sequence[Examples], metric: Metric, seed: int) -> dspy.Module:
    """Return a program as one of DSPy's optimizers compiled it on train and dev.

    One that a cap stops keeps the best it had found. Raises `ModelError` when it writes and there is no language model,
    `DataError` when it gives up.
    """
    models = (dspy.settings.lm, *(predictor.lm for predictor in program.predictors()))
    writer = next((one for one in models if isinstance(one, dspy.BaseLM)), None)
    if name in WRITERS and writer is None:
        what = f"{name} writes instructions, and no language model is set."
        raise ModelError(what, "Call dspy.configure(lm=...) where the program is made, or take bootstrap or reanchor.")

    def scored(example: Any, prediction: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None) -> Any:
        score, feedback = score_prediction(metric, example, prediction)
        said = feedback or f"The score was {score:g}."
        return dspy.Prediction(score=score, feedback=said) if name == "gepa" else score

    train, dev = parts
    student = program.deepcopy()
    for predictor in student.predictors():
        predictor.lm = predictor.lm or dspy.settings.lm
    best = BestSoFar()
    callbacks = [best, *(dspy.settings.callbacks or [])]
    # Those that show demonstrations forget the models of predictors, so a writer stands in for all while they learn.
    with dspy.context(lm=writer or dspy.settings.lm, callbacks=callbacks), _quiet():
        try:
            learned: dspy.Module = OPTIMIZERS[name](student, list(train), list(dev or train), scored, seed, writer)
        except BudgetStop:
            if best.program is None:
                raise
            learned = best.program.deepcopy()
        except RagcError:
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise DataError(f"{name} gave up: {why[:LONGEST]}.", "Mend that, or take another optimizer.") from error
        finally:
            best.over = True
    for _, part in learned.named_sub_modules():
        part._compiled = False
    for (_, predictor), (_, own) in zip(learned.named_predictors(), program.named_predictors(), strict=True):
        predictor.lm = own.lm
    return learned


class BestSoFar(BaseCallback):
    """The program that did best where an optimizer evaluated one on the most examples.

    Once the optimizer is `over`, what it left in threads asks no model any more.
    """

    def __init__(self) -> None:
        self.program: dspy.Module | None = None
        self.over = False
        self._rank: tuple[int, float] = (0, -math.inf)
        self._asked: dict[str, tuple[dspy.Module, int]] = {}

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Raise `BudgetStop` once the optimizer is over."""
        if self.over:
            raise BudgetStop("calls")

    def on_evaluate_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Note what is evaluated."""
        program: dspy.Module = inputs["program"].deepcopy()
        vars(program).pop("forward", None)  # by which DSPy collects its traces
        self._asked[call_id] = program, len(inputs.get("devset") or instance.devset)

    def on_evaluate_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Keep it where it does better."""
        program, count = self._asked.pop(call_id)
        if exception is None and (rank := (count, float(outputs.score))) > self._rank:
            self.program, self._rank = program, rank


@contextmanager
def _quiet() -> Iterator[None]:
    """Show no bar of DSPy's and none of its steps; what fails is still told."""
    logger, bar = logging.getLogger("dspy"), parallelizer.tqdm.tqdm
    level, begin = logger.level, bar.__init__

    def begin_hidden(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **{**kwargs, "disable": True})

    bar.__init__ = begin_hidden
    logger.setLevel(logging.ERROR)
    try:
        with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing):
            yield
    finally:
        bar.__init__ = begin
        logger.setLevel(level)


def _bootstrap(program: dspy.Module, train: Any, dev: Any, metric: Any, seed: int, writer: Any) -> Any:
    optimizer = dspy.BootstrapFewShot(metric=metric)
    try:
        return optimizer.compile(program, trainset=train)
    except BudgetStop:
        shown: Mapping[str, list[Any]] = getattr(optimizer, "name2traces", {})
        if not any(shown.values()):
            raise
    for name, predictor in program.named_predictors():
        predictor.demos = shown[name]
    return program


def _mipro(program: dspy.Module, train: Any, dev: Any, metric: Any, seed: int, writer: Any) -> Any:
    optimizer = dspy.MIPROv2(metric=metric, auto="light", seed=seed, prompt_model=writer)
    return optimizer.compile(program, trainset=train, valset=dev)


def _gepa(program: dspy.Module, train: Any, dev: Any, metric: Any, seed: int, writer: Any) -> Any:
    return dspy.GEPA(metric=metric, auto="light", reflection_lm=writer, seed=seed).compile(
        program, trainset=train, valset=dev
    )


def _reanchor(program: dspy.Module, train: Any, dev: Any, metric: Any, seed: int, writer: Any) -> Any:
    from dspy.experimental import ReAnchor

    return ReAnchor(metric, require_cache=False).compile(program, trainset=train)


LONGEST = 300  # characters of an error that is shown
WRITERS = ("mipro", "gepa")
OPTIMIZERS: Mapping[str, Callable[..., Any]] = {
    "gepa": _gepa,
    "mipro": _mipro,
    "bootstrap": _bootstrap,
    "reanchor": _reanchor,
}
