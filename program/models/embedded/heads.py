"""Calibrated decisions fitted on labelled cases, exported as plain arrays: logistic regressions and small trees.

The blocks of features and the strength of the regression are those of least log loss out of fold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from program.models.embedded.features import BLOCKS, UNIT_LENGTH, Vector
from program.models.embedded.regression import (
    MANY_CASES,
    MANY_CLASSES,
    Array,
    Logits,
    assign_folds,
    calibrate_logits,
    fit_logistic,
    log_loss,
    predict_out_of_fold,
    rotate_rows,
    softmax,
    split_folds,
)

Blocks = Mapping[str, Vector]
Names = tuple[str, ...]
STRENGTHS = (0.5, 1.5, 5.0, 15.0, 50.0)  # of the data against the penalty (C)
FIRST_STRENGTH = 5.0  # under which the blocks are chosen
FAR = 4.0  # standard deviations past which a feature says no more
TEXT_SETS = ("meaning", "shape", "meaning grams", "meaning shape", "meaning grams shape options")
EVIDENCE_SETS = (
    "near",
    "near shape",
    "bearing",
    "bearing shape",
    "options",
    "shape options",
    "bearing shape options",
    "meaning shape options",
    "meaning grams shape bases options",
    " ".join(BLOCKS),
)
MANY_SET = "meaning grams"
UNSURE, TELLING = 0.35, 0.95  # trees are tried between this log loss and this part of the classes' entropy
TREES, TREE_RATE = 80, 0.05


@dataclass(frozen=True)
class Trees:
    """Boosted trees of depth two, held as three arrays, for what a sum of features cannot say."""

    tree_feature: NDArray[np.int32]
    """Columns of the root, its left and its right node; shape (trees, 3)."""
    tree_threshold: NDArray[np.float64]
    """A case turns left where its feature is at most this; shape (trees, 3)."""
    tree_leaf: NDArray[np.float64]
    """What a leaf adds to the log odds, left to right; shape (trees, 4)."""

    def predict_logits(self, x: Vector) -> Logits:
        """Return shape (n,) for rows of shape (n, columns)."""
        trees = np.arange(len(self.tree_leaf))
        right = x[:, self.tree_feature[:, 0]] > self.tree_threshold[:, 0]
        node = 1 + right.astype(np.int64)
        values = x[np.arange(len(x))[:, None], self.tree_feature[trees, node]]
        further = values > self.tree_threshold[trees, node]
        return np.asarray(self.tree_leaf[trees, 2 * right + further].sum(1))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], width: int) -> Trees | None:
        """Return the trees of these arrays, or None without any.

        Raises ValueError when they do not fit.
        """
        if "tree_leaf" not in arrays:
            return None
        found = cls(*(arrays[f.name] for f in fields(cls)))
        count = len(found.tree_leaf)
        shapes = [array.shape for array in vars(found).values()]
        if shapes != [(count, 3), (count, 3), (count, 4)] or not 0 <= found.tree_feature.max(initial=0) < width:
            raise ValueError("tree shapes differ")
        return found


@dataclass(frozen=True)
class Head:
    """A calibrated logistic regression over some blocks; with `trees` the logit is the mean of both.

    There is one column for two classes, else a column a class.
    """

    blocks: NDArray[np.uint8]
    """Places in `BLOCKS`."""
    mean: Vector
    scale: Vector
    weights: Vector
    bias: Vector
    calibration: Vector
    """A slope, then a shift a column: a calibrated logit is `slope * logit + shift`."""
    classes: NDArray[np.int32]
    """The options that were seen, one a column; of two the column is the second's."""
    n: NDArray[np.int32]
    """The number of cases it was fitted on; shape (1,)."""
    trees: Trees | None = None

    def probabilities(self, blocks: Blocks, options: int) -> Logits:
        """Return shape (options,), summing to 1.

        An option that no case showed keeps a small share.
        """
        names = tuple(BLOCKS[i] for i in self.blocks)
        limit = _clip_limit(names, tuple(len(blocks[name]) for name in names))
        x = (np.concatenate([blocks[name] for name in names]) - self.mean) * self.scale
        np.clip(x, -limit, limit, out=x)
        raw = x.astype(np.float64) @ self.weights + self.bias
        if self.trees:
            raw = (raw + self.trees.predict_logits(x[None, :])) / 2
        logits = float(self.calibration[0]) * raw + self.calibration[1:]
        if len(logits) == 1:
            logits = np.array([0.0, logits[0]])
        return _share_out(softmax(logits[None, :])[0], self.classes, self.n, options)

    def to_arrays(self) -> dict[str, Array]:
        """Return everything it is, by name."""
        own = {name: array for name, array in vars(self).items() if name != "trees"}
        return own | (vars(self.trees) if self.trees else {})

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Head:
        """Return the head of these arrays.

        Raises KeyError, IndexError or ValueError when they do not fit together.
        """
        width, columns = arrays["weights"].shape
        classes = len(arrays["classes"])
        lengths = [len(arrays[name]) for name in ("mean", "scale", "bias", "calibration", "n")]
        known = columns == classes > 2 or (columns, classes) == (1, 2)
        if not known or lengths != [width, width, columns, columns + 1, 1] or arrays["blocks"].max() >= len(BLOCKS):
            raise ValueError("shapes differ")
        own = {f.name: arrays[f.name] for f in fields(cls) if f.name != "trees"}
        return cls(**own, trees=Trees.from_arrays(arrays, width))


@dataclass(frozen=True)
class OneVsRest:
    """One head an option, each with the blocks that tell it best from all others.

    What sets one option apart may be two numbers (nothing found is near), and another the whole build of the
    question; a single regression over all blocks drowns the first in the second.
    """

    heads: tuple[Head, ...]
    classes: NDArray[np.int32]
    """The option that each head tells."""
    n: NDArray[np.int32]
    """The number of cases they were fitted on; shape (1,)."""

    def probabilities(self, blocks: Blocks, options: int) -> Logits:
        """Return shape (options,), summing to 1.

        An option that no case showed keeps a small share.
        """
        told = np.array([head.probabilities(blocks, 2)[1] for head in self.heads])
        return _share_out(told, self.classes, self.n, options)

    def to_arrays(self) -> dict[str, Array]:
        """Return everything it is, by name: each head's arrays behind its place."""
        named = {f"{i}_{name}": array for i, head in enumerate(self.heads) for name, array in head.to_arrays().items()}
        return {"one_vs_rest": self.classes, "cases": self.n, **named}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> OneVsRest:
        """Return the heads of these arrays.

        Raises KeyError, IndexError or ValueError when they do not fit together.
        """
        classes = arrays["one_vs_rest"]
        parts: list[dict[str, Array]] = [{} for _ in classes]
        for name, array in arrays.items():
            place, _, part = name.partition("_")
            if place.isdigit():
                parts[int(place)][part] = array
        return cls(tuple(Head.from_arrays(part) for part in parts), classes, arrays["cases"])


def _share_out(told: Logits, classes: NDArray[np.int32], n: NDArray[np.int32], options: int) -> Logits:
    floor = 0.5 / (int(n[0]) + 2)
    shares = np.full(options, floor)
    shares[classes] = np.maximum(told, floor)
    return np.asarray(shares / shares.sum())


FittedDecision = Head | OneVsRest


def load_decision(arrays: Mapping[str, Array]) -> FittedDecision:
    """Return the decision of these arrays.

    Raises KeyError, IndexError or ValueError when they do not fit together.
    """
    return OneVsRest.from_arrays(arrays) if "one_vs_rest" in arrays else Head.from_arrays(arrays)


def fit_decision(
    cases: Sequence[Blocks], labels: Sequence[int], groups: Sequence[str], judged_against: bool
) -> FittedDecision:
    """Fit what decides among the options that `labels` name, at least two.

    One head, or one an option when they are few but more than two and something is judged against evidence. Folds
    keep equal `groups` (the same question) together. With few cases nothing is chosen: every block is used.
    """
    found = np.asarray(labels, np.int32)
    classes = np.unique(found)
    design = _Design(cases)
    # The systems are small: threads cost more than they bring, and may add up in another order.
    with threadpool_limits(1, user_api="blas"):
        if not (judged_against and 2 < len(classes) <= MANY_CLASSES and len(cases) <= MANY_CASES):
            return _fit_head(design, found, groups, judged_against)
        heads = [_fit_head(design, (found == c).astype(np.int32), groups, judged_against) for c in classes]
        return OneVsRest(tuple(heads), classes, np.array([len(cases)], np.int32))


def _fit_head(design: _Design, labels: NDArray[np.int32], groups: Sequence[str], judged_against: bool) -> Head:
    classes, y = np.unique(labels, return_inverse=True)
    fold_of = assign_folds(y, groups, 3 if len(y) > MANY_CASES else 5)
    chosen: Names = BLOCKS
    strength, slope, trees = 0.5, 1.0, None
    shift = np.zeros(len(classes) if len(classes) > 2 else 1)
    if fold_of is not None:
        chosen, strength, logits = _choose_blocks(design, y, fold_of, _block_sets(len(classes), len(y), judged_against))
        if len(classes) == 2 and "bearing" in chosen:
            logits, trees = _add_trees(design, y, fold_of, chosen, logits)
        slope, shift = calibrate_logits(logits, y)
    rows, mean, scale = design.join_blocks(chosen)
    weights, bias = fit_logistic(rows.astype(np.float64), y, strength)
    return Head(
        blocks=np.array([BLOCKS.index(name) for name in chosen], np.uint8),
        mean=mean,
        scale=scale,
        weights=weights.astype(np.float32, order="C"),
        bias=bias.astype(np.float32),
        calibration=np.append(slope, shift).astype(np.float32),
        classes=classes,
        n=np.array([len(y)], np.int32),
        trees=trees,
    )


class _Design:
    """The cases' blocks, standardised once: each of mean square length 1, so that none drowns another."""

    def __init__(self, cases: Sequence[Blocks]) -> None:
        self._parts = {name: _standardise(np.stack([case[name] for case in cases]), name) for name in BLOCKS}
        self._reduced: dict[Names, Vector] = {}

    def join_blocks(self, names: Names) -> tuple[Vector, Vector, Vector]:
        """Return (rows, mean, scale) of some blocks side by side."""
        rows, mean, scale = zip(*(self._parts[name] for name in names), strict=True)
        return np.concatenate(rows, axis=1), np.concatenate(mean), np.concatenate(scale)

    def reduced(self, names: Names) -> Vector:
        """Return the rows in the fewest coordinates.

        Rotation changes no regression with a round penalty.
        """
        if names not in self._reduced:
            x = self.join_blocks(names)[0]
            self._reduced[names] = x if x.shape[0] >= x.shape[1] else rotate_rows(x)[0].astype(np.float32)
        return self._reduced[names]

    def tree_columns(self, names: Names) -> list[int]:
        """Return the places of the columns that trees may split.

        They are those of blocks that are no directions.
        """
        splits = [np.full(self._parts[name][1].shape, name not in UNIT_LENGTH) for name in names]
        return np.flatnonzero(np.concatenate(splits)).tolist()


def _standardise(raw: Vector, name: str) -> tuple[Vector, Vector, Vector]:
    """Return (rows, mean, scale) of one block."""
    width = raw.shape[1]
    mean, scale = np.zeros(width, np.float32), np.ones(width, np.float32)
    if name not in UNIT_LENGTH and width:
        spread = raw.std(0)
        mean = raw.mean(0)
        scale = (np.where(spread > 1e-5, 1 / np.maximum(spread, 1e-5), 0.0) / np.sqrt(width)).astype(np.float32)
    limit = _clip_limit((name,), (width,))
    return np.clip((raw - mean) * scale, -limit, limit), mean, scale


@lru_cache(maxsize=1024)
def _clip_limit(names: tuple[str, ...], widths: tuple[int, ...]) -> Vector:
    ends = [
        np.full(width, 1.0 if name in UNIT_LENGTH else FAR / np.sqrt(max(width, 1)))
        for name, width in zip(names, widths, strict=True)
    ]
    return np.concatenate(ends).astype(np.float32)


def _block_sets(classes: int, cases: int, judged_against: bool) -> list[Names]:
    """Return the sets of blocks to choose from: one when fitting is slow."""
    if classes > MANY_CLASSES or (cases > MANY_CASES and not judged_against):
        return [tuple(MANY_SET.split())]
    sets = [tuple(told.split()) for told in (EVIDENCE_SETS if judged_against else TEXT_SETS)]
    return [s for s in sets if cases <= MANY_CASES or not UNIT_LENGTH & set(s)]


def _choose_blocks(design: _Design, y: Array, fold_of: Array, sets: Sequence[Names]) -> tuple[Names, float, Logits]:
    """Return the blocks, the strength and their out-of-fold logits of least log loss."""
    tried = {names: predict_out_of_fold(design.reduced(names), y, fold_of, FIRST_STRENGTH) for names in sets}
    losses = {names: log_loss(logits, y) for names, logits in tried.items()}
    best = min(losses, key=losses.__getitem__)
    found, least, strength = tried[best], losses[best], FIRST_STRENGTH
    middle = STRENGTHS.index(FIRST_STRENGTH)
    for side in (STRENGTHS[:middle][::-1], STRENGTHS[middle + 1 :]) if len(sets) > 1 else ():
        for other in side:  # the loss has one valley in the strength: walk each way until it rises
            logits = predict_out_of_fold(design.reduced(best), y, fold_of, other)
            if (loss := log_loss(logits, y)) >= least:
                break
            found, least, strength = logits, loss, other
    return best, strength, found


def _add_trees(design: _Design, y: Array, fold_of: Array, chosen: Names, logits: Logits) -> tuple[Logits, Trees | None]:
    """Return the mean of regression and trees out of fold, and the trees, where that mean has less log loss.

    Trees refine what the regression found and left open; they do not find from nothing.
    """
    share, loss = float(np.mean(y)), log_loss(logits, y)
    entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
    if not UNSURE < loss < TELLING * entropy:
        return logits, None
    x, columns = design.join_blocks(chosen)[0], design.tree_columns(chosen)
    both = logits.copy()
    for train, held in split_folds(fold_of):
        both[held, 0] = (both[held, 0] + grow_trees(x[train], y[train], columns).predict_logits(x[held])) / 2
    return (both, grow_trees(x, y, columns)) if log_loss(both, y) < loss else (logits, None)


def grow_trees(x: Vector, y: Array, columns: Sequence[int]) -> Trees:
    """Fit gradient-boosted trees for y in {0, 1} on some columns of x.

    The boosting is stochastic (Friedman 2002), its seed fixed.
    """
    from sklearn import config_context
    from sklearn.ensemble import GradientBoostingClassifier

    place = np.asarray(columns, np.int32)
    how: dict[str, Any] = {"subsample": 0.5, "max_features": 0.3, "min_samples_leaf": 8, "random_state": 0}
    model = GradientBoostingClassifier(n_estimators=TREES, learning_rate=TREE_RATE, max_depth=2, **how)
    with config_context(assume_finite=True, skip_parameter_validation=True):  # a sixth of it all
        model.fit(x[:, place], y)
    feature = np.zeros((TREES, 3), np.int32)
    threshold = np.full((TREES, 3), np.inf)
    leaf = np.zeros((TREES, 4))
    for n, (one,) in enumerate(model.estimators_):
        tree = one.tree_
        turns = np.stack([tree.children_left, tree.children_right], 1)
        ends = turns[:, 0] < 0
        turns[ends] = np.flatnonzero(ends)[:, None]  # a leaf that comes early leads to itself
        inner = np.append(0, turns[0])
        split = ~ends[inner]
        feature[n, split], threshold[n, split] = place[tree.feature[inner[split]]], tree.threshold[inner[split]]
        leaf[n] = TREE_RATE * tree.value[turns[inner[1:]].ravel(), 0, 0]
    share = float(np.mean(y))
    leaf[0] += np.log(share / (1 - share))  # where boosting starts
    return Trees(feature, threshold, leaf)
