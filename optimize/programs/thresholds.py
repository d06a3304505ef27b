"""Thresholds, cuts and weights of a program's decisions, fitted to its metric one at a time by arithmetic.

What an example is worth changes with one of them at a single point: where its decision falls the other way. So two
settings, the parameter at either end of its range, give the worth of every value between.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from optimize.compiler.scoring import Floats, Scoring, Sweeps, best_row, gain_out_of_fold, sweep_knobs
from optimize.programs.recording import Answered
from program.errors import BudgetStop
from program.loop.policy import LEVEL, Dimension, Setting, apply_setting

LIGHTEST, HEAVIEST = 1e-3, 1e3  # of a choice's options
TRIED = 40  # values of a parameter at most
MARGIN = 4.0  # times that a weight may lie past the last turn


def widen_weights(space: Sequence[Dimension]) -> list[Dimension]:
    """Return the parameters, with the weights of options in a wider range."""
    return [replace(d, low=LIGHTEST, high=HEAVIEST) if ":" in d.name and d.log else d for d in space]


def fit_decisions(
    scoring: Scoring, space: Sequence[Dimension], start: Setting, progress: Callable[[int, int], None]
) -> Sweeps:
    """Return the start with each parameter at its best, where that holds elsewhere.

    Knobs and candidates are swept after the decisions, as those of any program.
    """
    decisions = [d for d in space if ":" in d.name]
    others = [d for d in space if ":" not in d.name]
    topics = [question.cluster for question in scoring.questions]
    setting, gains, effective = dict(start), dict[str, float](), dict[str, None]()

    def list_turns() -> Iterator[Dimension]:
        yield from decisions
        yield from [d for d in decisions if d.name in gains]  # once more, as others moved meanwhile

    with suppress(BudgetStop):
        for done, d in enumerate(list_turns()):
            progress(done, len(space) + len(gains))
            before = scoring(setting).utility
            low, high = (scoring({**setting, d.name: end}).utility for end in (d.low, d.high))
            if not np.any(np.nan_to_num(low) != np.nan_to_num(high)):
                continue
            effective[d.name] = None
            turns = np.array([_find_turn(one, d, setting) for one in _answer_under(scoring, setting)])
            values = _list_values(turns, d)
            rows = [np.where(turns < value, high, low) for value in values]
            table = np.array([before, *rows])
            gain = gain_out_of_fold(table, topics, range(len(topics)))
            if _is_sure(gain, topics) and (best := best_row(table)):
                setting[d.name] = values[best - 1]
                gains[d.name] = float(np.nanmean(gain))
    swept = sweep_knobs(scoring, others, setting, progress)
    return Sweeps(swept.setting, {**gains, **swept.gains}, (*effective, *swept.effective))


def _is_sure(gain: Floats, topics: Sequence[str]) -> bool:
    """Return True for a sum of gains past its standard error over topics."""
    sums: dict[str, float] = defaultdict(float)
    for topic, one in zip(topics, np.nan_to_num(gain).tolist(), strict=True):
        sums[topic] += one
    return bool(sum(sums.values()) > math.fsum(one**2 for one in sums.values()) ** 0.5)


def _answer_under(scoring: Scoring, setting: Setting) -> list[Answered]:
    """Return the answers to all examples, which the record holds."""
    found: list[Answered] = []
    for arm in scoring.arms:
        apply_setting(arm.replay.program, setting)
        found += arm.replay.answer_all([question.question for question in arm.questions])
    return found


def _find_turn(answer: Answered, d: Dimension, setting: Setting) -> float:
    """Return the value of a parameter at which a decision on the way falls the other way; NaN where none was met."""
    name, _, of = d.name.partition(":")
    for predictor, output, found in answer.path:
        if predictor != name or of.split("=")[0].split(LEVEL)[0] != output:
            continue
        if "noul" in found:
            return float(found["noul"])
        p = found["probabilities"]
        if LEVEL in of:
            return float(sum(level * share for level, share in p.items()) / sum(p.values()))
        option = of.partition("=")[2]
        rival = max(
            (share * setting.get(f"{name}:{output}={label}", 1.0) for label, share in p.items() if label != option),
            default=0.0,
        )
        return float(rival / p[option]) if p[option] > 0 else float("inf")
    return float("nan")


def _list_values(turns: Floats, d: Dimension) -> list[float]:
    """Return values between the turns, those of the widest gaps first: of equals the first is taken."""
    inner = np.unique(turns[(turns > d.low) & (turns < d.high)])
    if len(inner) >= TRIED:
        inner = np.unique(np.quantile(inner, np.linspace(0, 1, TRIED - 1), method="nearest"))
    ends = (d.low, d.high)
    if d.log and len(inner):  # not far past the last turn
        ends = max(d.low, inner[0] / MARGIN), min(d.high, inner[-1] * MARGIN)
    edges = np.concatenate([ends[:1], inner, ends[1:]])
    scale = np.log(edges) if d.log else edges
    middles = (scale[1:] + scale[:-1]) / 2
    order = np.argsort(-(scale[1:] - scale[:-1]), kind="stable")
    values: list[float] = (np.exp(middles) if d.log else middles)[order].tolist()
    return values
