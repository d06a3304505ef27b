"""DSPy's own optimizers, by the names that `ragc compile --optimizer` has for them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any

import dspy

from optimize.compiler.tasks.examples import Metric, score_prediction
from program.errors import BudgetStop, ModelError, SettingsError

RAGC = "ragc"
Examples = Sequence[dspy.Example]


def require_optimizer(name: str) -> None:
    """Raise `SettingsError` for an unknown name."""
    if name not in (RAGC, *OPTIMIZERS):
        raise SettingsError(f"There is no optimizer {name!r}.", f"Use one of: {', '.join([RAGC, *OPTIMIZERS])}.")


def run_optimizer(name: str, program: dspy.Module, parts: Sequence[Examples], metric: Metric, seed: int) -> dspy.Module:
    """Return a program as one of DSPy's optimizers compiled it on train and dev.

    GEPA that a cap stops keeps the best it had found. Raises `ModelError` when it writes and there is no language
    model.
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
    # Those that show demonstrations forget the models of predictors, so a writer stands in for all while they learn.
    with dspy.context(lm=writer or dspy.settings.lm), redirect_stdout(sys.stderr):  # they print
        learned: dspy.Module = OPTIMIZERS[name](student, list(train), list(dev or train), scored, seed, writer)
    for _, part in learned.named_sub_modules():
        part._compiled = False
    for (_, predictor), (_, own) in zip(learned.named_predictors(), program.named_predictors(), strict=True):
        predictor.lm = own.lm
    return learned


def _mipro(program: dspy.Module, train: Any, dev: Any, metric: Any, seed: int, writer: Any) -> Any:
    optimizer = dspy.MIPROv2(metric=metric, auto="light", seed=seed, prompt_model=writer)
    return optimizer.compile(program, trainset=train, valset=dev)


def _reanchor(program: dspy.Module, train: Any, dev: Any, metric: Any, seed: int, writer: Any) -> Any:
    from dspy.experimental import ReAnchor

    return ReAnchor(metric, require_cache=False).compile(program, trainset=train)


def _gepa(program: dspy.Module, train: Any, dev: Any, metric: Any, seed: int, writer: Any) -> Any:
    best = _BestCandidate()
    kept = {"callbacks": [best]}
    optimizer = dspy.GEPA(metric=metric, auto="light", reflection_lm=writer, seed=seed, gepa_kwargs=kept)
    try:
        return optimizer.compile(program, trainset=train, valset=dev)
    except BudgetStop:
        if best.texts is None:
            raise
    for name, predictor in program.named_predictors():
        predictor.signature = predictor.signature.with_instructions(best.texts[name])
    return program


class _BestCandidate:
    """Hears from GEPA which instructions, by predictor, are the best so far."""

    texts: Mapping[str, str] | None = None

    def on_valset_evaluated(self, event: Mapping[str, Any]) -> None:
        if event["is_best_program"]:
            self.texts = event["candidate"]


WRITERS = ("mipro", "gepa")
OPTIMIZERS: Mapping[str, Callable[..., Any]] = {
    "gepa": _gepa,
    "mipro": _mipro,
    "bootstrap": lambda program, train, dev, metric, *_: dspy.BootstrapFewShot(metric=metric).compile(
        program, trainset=train
    ),
    "reanchor": _reanchor,
}
