"""Calibrated linear heads: fitted on labelled cases, exported as plain arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from program.models.features import BLOCKS, UNIT_LENGTH
from program.models.reading import Vector
from program.models.regression import (
    MANY_CASES,
    MANY_CLASSES,
    Array,
    Logits,
    calibrate,
    folds,
    log_loss,
    out_of_fold,
    regress,
    rotated,
    softmax,
    splits,
)
from program.models.trees import Trees, grow

Blocks = Mapping[str, Vector]
STRENGTHS = (0.5, 1.5, 5.0, 15.0, 50.0)  # of the data against the penalty (C)
FIRST_STRENGTH = 5.0  # under which the blocks are chosen
FAR = 4.0  # standard deviations past which a feature says no more
TEXT_SETS = (
    ("meaning",),
    ("shape",),
    ("meaning", "grams"),
    ("meaning", "shape"),
    ("meaning", "grams", "shape", "options"),
)
EVIDENCE_SETS = (
    ("near",),
    ("near", "shape"),
    ("bearing",),
    ("bearing", "shape"),
    ("options",),
    ("shape", "options"),
    ("bearing", "shape", "options"),
    ("meaning", "shape", "options"),
    ("meaning", "grams", "shape", "bases", "options"),
    BLOCKS,
)
MANY_SET = ("meaning", "grams")
UNSURE, TELLING = 0.35, 0.95  # trees are tried between this log loss and this part of the classes' entropy


@dataclass(frozen=True)
class Head:
    """A logistic regression over some blocks (one column for two classes, else a column a class), calibrated.

    A calibrated logit is `slope * logit + shift`, column by column. `classes` are the options that were
    seen, one a column (of two, the column is the second's); `n` is the number of cases it was fitted on.
    With `trees` the logit is the mean of theirs and the regression's.
    """

    blocks: tuple[str, ...]
    mean: Vector
    scale: Vector
    weights: Vector
    bias: Vector
    slope: float
    shift: Vector
    classes: NDArray[np.int32]
    n: int
    trees: Trees | None = None

    def probabilities(self, blocks: Blocks, options: int) -> Logits:
        """Shape (options,), summing to 1. An option that no case showed keeps a small share."""
        x = (np.concatenate([blocks[name] for name in self.blocks]) - self.mean) * self.scale
        np.clip(x, -_limit(self.blocks, blocks), _limit(self.blocks, blocks), out=x)
        raw = x.astype(np.float64) @ self.weights + self.bias
        if self.trees:
            raw = (raw + self.trees.logits(x[None, :])) / 2
        logits = self.slope * raw + self.shift
        if len(logits) == 1:
            logits = np.array([0.0, logits[0]])
        seen = softmax(logits[None, :])[0]
        floor = 0.5 / (self.n + 2)
        shares = np.full(options, floor)
        shares[self.classes] = np.maximum(seen, floor)
        return np.asarray(shares / shares.sum())

    def arrays(self) -> dict[str, Array]:
        """Everything it is, by name."""
        return {
            "blocks": np.array([BLOCKS.index(name) for name in self.blocks], np.uint8),
            "mean": self.mean,
            "scale": self.scale,
            "weights": self.weights,
            "bias": self.bias,
            "calibration": np.append(np.float32(self.slope), self.shift).astype(np.float32),
            "classes": self.classes,
            "n": np.array([self.n], np.int32),
            **(self.trees.arrays() if self.trees else {}),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Head:
        """The head that `arrays` came from. Raises KeyError or ValueError when they do not fit together."""
        width, columns = arrays["weights"].shape
        classes = len(arrays["classes"])
        lengths = [len(arrays[name]) for name in ("mean", "scale", "bias", "calibration")]
        known = columns == classes > 2 or (columns, classes) == (1, 2)
        if not known or lengths != [width, width, columns, columns + 1]:
            raise ValueError("shapes differ")
        return cls(
            blocks=tuple(BLOCKS[i] for i in arrays["blocks"]),
            mean=arrays["mean"],
            scale=arrays["scale"],
            weights=arrays["weights"],
            bias=arrays["bias"],
            slope=float(arrays["calibration"][0]),
            shift=arrays["calibration"][1:],
            classes=arrays["classes"],
            n=int(arrays["n"][0]),
            trees=Trees.from_arrays(arrays, width),
        )


def fit(cases: Sequence[Blocks], labels: Sequence[int], groups: Sequence[str], judged_against: bool) -> Head:
    """A head for labelled cases of at least two classes.

    The blocks and the strength are those of least log loss out of fold; folds keep equal `groups` (the same
    question) together. Where a decision on evidence stays unsure, small trees are averaged in if that helps
    out of fold. The calibration is fitted on the same out-of-fold logits. With few cases nothing is chosen:
    every block is used, held down hard.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    # The systems are small: threads cost more than they bring, and may add up in another order.
    with threadpool_limits(1, user_api="blas"):
        return _fit(cases, labels, groups, judged_against)


def _fit(cases: Sequence[Blocks], labels: Sequence[int], groups: Sequence[str], judged_against: bool) -> Head:
    classes, y = np.unique(np.asarray(labels, np.int32), return_inverse=True)
    fold_of = folds(y, groups, 3 if len(y) > MANY_CASES else 5)
    chosen: tuple[str, ...] = BLOCKS
    strength, slope = 0.5, 1.0
    shift = np.zeros(len(classes) if len(classes) > 2 else 1)
    trees = None
    if fold_of is not None:
        sets = _sets(len(classes), len(y), judged_against)
        chosen, strength, logits = _choose(cases, y, fold_of, sets)
        if len(classes) == 2 and "bearing" in chosen and _has_room(logits, y):
            logits, trees = _with_trees(cases, y, fold_of, chosen, logits)
        slope, shift = calibrate(logits, y)
    x, mean, scale = _rows(cases, chosen)
    weights, bias = regress(x.astype(np.float64), y, strength)
    return Head(
        chosen, mean, scale, weights.astype(np.float32, order="C"), bias.astype(np.float32),
        float(np.float32(slope)), shift.astype(np.float32), classes, len(y), trees,
    )  # fmt: skip


def _sets(classes: int, cases: int, judged_against: bool) -> tuple[tuple[str, ...], ...]:
    """The sets of blocks to choose from: one when fitting is slow."""
    if classes > MANY_CLASSES or (cases > MANY_CASES and not judged_against):
        return (MANY_SET,)
    sets = EVIDENCE_SETS if judged_against else TEXT_SETS
    return tuple(s for s in sets if not UNIT_LENGTH & set(s)) if cases > MANY_CASES else sets


def _has_room(logits: Logits, y: Array) -> bool:
    """True when the regression found something, and left much open: trees refine, and do not find from nothing."""
    share = float(np.mean(y))
    entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
    return bool(UNSURE < log_loss(logits, y) < TELLING * entropy)


def _with_trees(
    cases: Sequence[Blocks], y: Array, fold_of: Array, chosen: tuple[str, ...], logits: Logits
) -> tuple[Logits, Trees | None]:
    """Trees beside the regression, and the mean of both out of fold, where that mean has less log loss."""
    x = _rows(cases, chosen)[0]
    ends = np.cumsum([0, *(len(cases[0][name]) for name in chosen)])
    grown_on = [n for n, name in enumerate(chosen) if name not in UNIT_LENGTH]
    columns = [c for n in grown_on for c in range(ends[n], ends[n + 1])]
    both = logits.copy()
    for train, held in splits(fold_of):
        both[held, 0] = (both[held, 0] + grow(x[train], y[train], columns).logits(x[held])) / 2
    return (both, grow(x, y, columns)) if log_loss(both, y) < log_loss(logits, y) else (logits, None)


def _limit(names: Sequence[str], blocks: Blocks) -> Vector:
    widths = [(name, len(blocks[name])) for name in names]
    ends = [np.full(w, 1.0 if name in UNIT_LENGTH else FAR / np.sqrt(max(w, 1))) for name, w in widths]
    return np.concatenate(ends).astype(np.float32)


def _rows(cases: Sequence[Blocks], names: Sequence[str]) -> tuple[Vector, Vector, Vector]:
    """(rows, mean, scale): blocks side by side, each of mean square length 1, so that none drowns another."""
    raw = np.stack([np.concatenate([case[name] for name in names]) for case in cases])
    mean, scale, at = np.zeros(raw.shape[1], np.float32), np.ones(raw.shape[1], np.float32), 0
    for name in names:
        width = len(cases[0][name])
        part = slice(at, at + width)
        if name not in UNIT_LENGTH and width:
            spread = raw[:, part].std(0)
            mean[part] = raw[:, part].mean(0)
            scale[part] = np.where(spread > 1e-5, 1 / np.maximum(spread, 1e-5), 0.0) / np.sqrt(width)
        at += width
    limit = _limit(names, cases[0])
    return np.clip((raw - mean) * scale, -limit, limit), mean, scale


def _choose(
    cases: Sequence[Blocks], y: Array, fold_of: Array, sets: Sequence[tuple[str, ...]]
) -> tuple[tuple[str, ...], float, Logits]:
    """The blocks, the strength and their out-of-fold logits of least log loss."""
    rows = {names: rotated(_rows(cases, names)[0]) for names in sets}
    tried = {names: out_of_fold(rows[names], y, fold_of, FIRST_STRENGTH) for names in sets}
    best = min(tried, key=lambda names: log_loss(tried[names], y))
    found, strength = tried[best], FIRST_STRENGTH
    if best == MANY_SET and len(sets) == 1:
        return best, strength, found
    middle = STRENGTHS.index(FIRST_STRENGTH)
    for side in (STRENGTHS[:middle][::-1], STRENGTHS[middle + 1 :]):
        for other in side:  # the loss has one valley in the strength: walk each way until it rises
            logits = out_of_fold(rows[best], y, fold_of, other)
            if log_loss(logits, y) >= log_loss(found, y):
                break
            found, strength = logits, other
    return best, strength, found
