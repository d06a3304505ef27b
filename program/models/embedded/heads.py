"""Calibrated decisions fitted on labelled cases, exported as plain arrays: logistic regressions and small trees.

The blocks of features and the strength of the regression are those of least log loss out of fold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
TREES, TREE_RATE = 80, 0.05


@dataclass(frozen=True)
class Trees:
    """Boosted trees of depth two, held as three arrays, for what a sum of features cannot say."""

    feature: NDArray[np.int32]
    """Columns of the root, its left and its right node; shape (trees, 3)."""
    threshold: NDArray[np.float64]
    """A case turns left where its feature is at most this; shape (trees, 3)."""
    leaf: NDArray[np.float64]
    """What a leaf adds to the log odds, left to right; shape (trees, 4)."""

    def predict_logits(self, x: Vector) -> Logits:
        """Return shape (n,) for rows of shape (n, columns)."""
        trees = np.arange(len(self.leaf))
        right = x[:, self.feature[:, 0]] > self.threshold[:, 0]
        node = 1 + right.astype(np.int64)
        values = x[np.arange(len(x))[:, None], self.feature[trees, node]]
        further = values > self.threshold[trees, node]
        return np.asarray(self.leaf[trees, 2 * right + further].sum(1))

    def to_arrays(self) -> dict[str, Array]:
        """Return everything it is, by name."""
        return {"tree_feature": self.feature, "tree_threshold": self.threshold, "tree_leaf": self.leaf}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], width: int) -> Trees | None:
        """Return the trees of these arrays, or None without any. Raises ValueError when they do not fit."""
        if "tree_leaf" not in arrays:
            return None
        found = cls(arrays["tree_feature"], arrays["tree_threshold"], arrays["tree_leaf"])
        count = len(found.leaf)
        shapes = (found.feature.shape, found.threshold.shape, found.leaf.shape)
        if shapes != ((count, 3), (count, 3), (count, 4)) or not 0 <= found.feature.max(initial=0) < width:
            raise ValueError("tree shapes differ")
        return found


@dataclass(frozen=True)
class Head:
    """A calibrated logistic regression over some blocks; with `trees` the logit is the mean of both.

    There is one column for two classes, else a column a class. A calibrated logit is `slope * logit + shift`.
    """

    blocks: tuple[str, ...]
    mean: Vector
    scale: Vector
    weights: Vector
    bias: Vector
    slope: float
    shift: Vector
    classes: NDArray[np.int32]
    """The options that were seen, one a column; of two the column is the second's."""
    n: int
    """The number of cases it was fitted on."""
    trees: Trees | None = None

    def probabilities(self, blocks: Blocks, options: int) -> Logits:
        """Return shape (options,), summing to 1; an option that no case showed keeps a small share."""
        limit = _clip_limit(self.blocks, tuple(len(blocks[name]) for name in self.blocks))
        x = (np.concatenate([blocks[name] for name in self.blocks]) - self.mean) * self.scale
        np.clip(x, -limit, limit, out=x)
        raw = x.astype(np.float64) @ self.weights + self.bias
        if self.trees:
            raw = (raw + self.trees.predict_logits(x[None, :])) / 2
        logits = self.slope * raw + self.shift
        if len(logits) == 1:
            logits = np.array([0.0, logits[0]])
        floor = 0.5 / (self.n + 2)
        shares = np.full(options, floor)
        shares[self.classes] = np.maximum(softmax(logits[None, :])[0], floor)
        return np.asarray(shares / shares.sum())

    def to_arrays(self) -> dict[str, Array]:
        """Return everything it is, by name."""
        return {
            "blocks": np.array([BLOCKS.index(name) for name in self.blocks], np.uint8),
            "mean": self.mean,
            "scale": self.scale,
            "weights": self.weights,
            "bias": self.bias,
            "calibration": np.append(np.float32(self.slope), self.shift).astype(np.float32),
            "classes": self.classes,
            "n": np.array([self.n], np.int32),
            **(self.trees.to_arrays() if self.trees else {}),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Head:
        """Return the head of these arrays. Raises KeyError or ValueError when they do not fit together."""
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


@dataclass(frozen=True)
class OneVsRest:
    """One head an option, each with the blocks that tell it best from all others.

    What sets one option apart may be two numbers (nothing found is near), and another the whole build of the
    question; a single regression over all blocks drowns the first in the second.
    """

    heads: tuple[Head, ...]
    classes: NDArray[np.int32]
    """The option that each head tells."""
    n: int
    """The number of cases they were fitted on."""

    def probabilities(self, blocks: Blocks, options: int) -> Logits:
        """Return shape (options,), summing to 1; an option that no case showed keeps a small share."""
        floor = 0.5 / (self.n + 2)
        shares = np.full(options, floor)
        shares[self.classes] = [max(float(head.probabilities(blocks, 2)[1]), floor) for head in self.heads]
        return np.asarray(shares / shares.sum())

    def to_arrays(self) -> dict[str, Array]:
        """Return everything it is, by name: each head's arrays behind its place."""
        named = {f"{i}_{name}": array for i, head in enumerate(self.heads) for name, array in head.to_arrays().items()}
        return {"one_vs_rest": self.classes, "cases": np.array([self.n], np.int32), **named}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> OneVsRest:
        """Return the heads of these arrays. Raises KeyError or ValueError when they do not fit together."""
        classes = arrays["one_vs_rest"]
        parts: list[dict[str, Array]] = [{} for _ in classes]
        for name, array in arrays.items():
            place, _, part = name.partition("_")
            if place.isdigit():
                parts[int(place)][part] = array
        return cls(tuple(Head.from_arrays(part) for part in parts), classes, int(arrays["cases"][0]))


FittedDecision = Head | OneVsRest


def load_decision(arrays: Mapping[str, Array]) -> FittedDecision:
    """Return the decision of these arrays. Raises KeyError or ValueError when they do not fit together."""
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
        return OneVsRest(tuple(heads), classes, len(cases))


def _fit_head(design: _Design, labels: NDArray[np.int32], groups: Sequence[str], judged_against: bool) -> Head:
    classes, y = np.unique(labels, return_inverse=True)
    fold_of = assign_folds(y, groups, 3 if len(y) > MANY_CASES else 5)
    chosen: tuple[str, ...] = BLOCKS
    strength, slope, trees = 0.5, 1.0, None
    shift = np.zeros(len(classes) if len(classes) > 2 else 1)
    if fold_of is not None:
        chosen, strength, logits = _choose_blocks(design, y, fold_of, _block_sets(len(classes), len(y), judged_against))
        if len(classes) == 2 and "bearing" in chosen and _leaves_room(logits, y):
            logits, trees = _add_trees(design, y, fold_of, chosen, logits)
        slope, shift = calibrate_logits(logits, y)
    weights, bias = fit_logistic(design.rows(chosen).astype(np.float64), y, strength)
    return Head(
        blocks=chosen,
        mean=design.means(chosen),
        scale=design.scales(chosen),
        weights=weights.astype(np.float32, order="C"),
        bias=bias.astype(np.float32),
        slope=float(np.float32(slope)),
        shift=shift.astype(np.float32),
        classes=classes,
        n=len(y),
        trees=trees,
    )


class _Design:
    """The cases' blocks, standardised once: each of mean square length 1, so that none drowns another."""

    def __init__(self, cases: Sequence[Blocks]) -> None:
        self._parts = {name: _standardise(np.stack([case[name] for case in cases]), name) for name in BLOCKS}
        self._reduced: dict[tuple[str, ...], Vector] = {}

    def rows(self, names: Sequence[str]) -> Vector:
        return np.concatenate([self._parts[name][0] for name in names], axis=1)

    def means(self, names: Sequence[str]) -> Vector:
        return np.concatenate([self._parts[name][1] for name in names])

    def scales(self, names: Sequence[str]) -> Vector:
        return np.concatenate([self._parts[name][2] for name in names])

    def reduced(self, names: tuple[str, ...]) -> Vector:
        """Return the rows in the fewest coordinates: rotation changes no regression with a round penalty."""
        if names not in self._reduced:
            x = self.rows(names)
            self._reduced[names] = x if x.shape[0] >= x.shape[1] else rotate_rows(x)[0].astype(np.float32)
        return self._reduced[names]

    def tree_columns(self, names: Sequence[str]) -> list[int]:
        """Return the places of the columns that trees may split: those of blocks that are no directions."""
        ends = np.cumsum([0, *(self._parts[name][0].shape[1] for name in names)]).tolist()
        kept = [n for n, name in enumerate(names) if name not in UNIT_LENGTH]
        return [column for n in kept for column in range(ends[n], ends[n + 1])]


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


def _block_sets(classes: int, cases: int, judged_against: bool) -> tuple[tuple[str, ...], ...]:
    """Return the sets of blocks to choose from: one when fitting is slow."""
    if classes > MANY_CLASSES or (cases > MANY_CASES and not judged_against):
        return (MANY_SET,)
    sets = EVIDENCE_SETS if judged_against else TEXT_SETS
    return tuple(s for s in sets if not UNIT_LENGTH & set(s)) if cases > MANY_CASES else sets


def _choose_blocks(
    design: _Design, y: Array, fold_of: Array, sets: Sequence[tuple[str, ...]]
) -> tuple[tuple[str, ...], float, Logits]:
    """Return the blocks, the strength and their out-of-fold logits of least log loss."""
    tried = {names: predict_out_of_fold(design.reduced(names), y, fold_of, FIRST_STRENGTH) for names in sets}
    losses = {names: log_loss(logits, y) for names, logits in tried.items()}
    best = min(losses, key=losses.__getitem__)
    found, least, strength = tried[best], losses[best], FIRST_STRENGTH
    if best == MANY_SET and len(sets) == 1:
        return best, strength, found
    middle = STRENGTHS.index(FIRST_STRENGTH)
    for side in (STRENGTHS[:middle][::-1], STRENGTHS[middle + 1 :]):
        for other in side:  # the loss has one valley in the strength: walk each way until it rises
            logits = predict_out_of_fold(design.reduced(best), y, fold_of, other)
            if (loss := log_loss(logits, y)) >= least:
                break
            found, least, strength = logits, loss, other
    return best, strength, found


def _leaves_room(logits: Logits, y: Array) -> bool:
    """Tell whether the regression found something, and left much open: trees refine, and do not find from nothing."""
    share = float(np.mean(y))
    entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
    return bool(UNSURE < log_loss(logits, y) < TELLING * entropy)


def _add_trees(
    design: _Design, y: Array, fold_of: Array, chosen: tuple[str, ...], logits: Logits
) -> tuple[Logits, Trees | None]:
    """Return the mean of regression and trees out of fold, and the trees, where that mean has less log loss."""
    x, columns = design.rows(chosen), design.tree_columns(chosen)
    both = logits.copy()
    for train, held in split_folds(fold_of):
        both[held, 0] = (both[held, 0] + grow_trees(x[train], y[train], columns).predict_logits(x[held])) / 2
    return (both, grow_trees(x, y, columns)) if log_loss(both, y) < log_loss(logits, y) else (logits, None)


def grow_trees(x: Vector, y: Array, columns: Sequence[int]) -> Trees:
    """Fit stochastic gradient boosting (Friedman 2002) for y in {0, 1} on some columns of x; the seed is fixed."""
    from sklearn import config_context
    from sklearn.ensemble import GradientBoostingClassifier

    place = np.asarray(columns, np.int32)
    model = GradientBoostingClassifier(
        n_estimators=TREES,
        learning_rate=TREE_RATE,
        max_depth=2,
        subsample=0.5,
        max_features=0.3,
        min_samples_leaf=8,
        random_state=0,
    )
    with config_context(assume_finite=True, skip_parameter_validation=True):  # a sixth of it all
        model.fit(x[:, place], y)
    feature = np.zeros((TREES, 3), np.int32)
    threshold = np.full((TREES, 3), np.inf)
    leaf = np.zeros((TREES, 4))
    for n, (one,) in enumerate(model.estimators_):
        tree = one.tree_
        for at, turns in enumerate(((), (0,), (1,))):  # that lead to the three inner nodes
            node = _node_at(tree, turns)
            if tree.children_left[node] >= 0:
                feature[n, at], threshold[n, at] = place[tree.feature[node]], tree.threshold[node]
        ways = ((0, 0), (0, 1), (1, 0), (1, 1))
        leaf[n] = [TREE_RATE * tree.value[_node_at(tree, turns)].item() for turns in ways]
    share = float(np.mean(y))
    leaf[0] += np.log(share / (1 - share))  # where boosting starts
    return Trees(feature, threshold, leaf)


def _node_at(tree: Any, turns: Sequence[int]) -> int:
    """Return the node reached from the root, or the leaf at which the way ends early."""
    node = 0
    for turn in turns:
        onward = (tree.children_left, tree.children_right)[turn][node]
        node = int(onward) if onward >= 0 else node
    return node
