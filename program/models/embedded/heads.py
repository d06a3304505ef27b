"""Calibrated decisions fitted on labelled cases: logistic regressions over blocks of features, held as plain arrays.

The blocks and the strength of a regression are those of least log loss out of fold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragc.models.embedded.features import BLOCKS, UNIT_LENGTH, Vector

Array = NDArray[Any]
Logits = NDArray[np.float64]
Blocks = Mapping[str, Vector]
Names = tuple[str, ...]
Folds = Sequence[tuple[Array, Array]]
WEAK, MIDDLE, STRONG = 0.5, 5.0, 50.0  # strengths of the data against the penalty (C)
FAR = 4.0  # standard deviations past which a feature says no more
TEXT_SETS = ("meaning", "shape", "meaning grams", "meaning shape", "meaning grams shape options")
# Of what evidence states: what the question is about would tell one topic of the demonstrations from another.
READ_SETS = ("reading statement", "reading statement shape", "reading statement options shape")
EVIDENCE_SETS = (
    "options shape",
    "reading statement options shape",
    "meaning options reading statement shape bases",
    "meaning grams shape reading statement bases options",
)
MANY_SET = "meaning grams"
MANY_CLASSES, MANY_CASES = 10, 600  # past which fitting is slow
FEW_CASES = 8  # with fewer there are no folds
PULL = 0.2  # strength, over the number of questions, with which what was fitted elsewhere holds a statement's weights
STEPS, LEVEL = 500, 1e-4  # of a fit at most; the slope at which it ends
FLAT = 1e-5  # a spread, or a length beside the longest, in which all rows are taken to be alike


@dataclass(frozen=True)
class Head:
    """A calibrated logistic regression over some blocks: one column for two classes, else a column a class."""

    blocks: NDArray[np.uint8]  # places in BLOCKS
    mean: Vector
    scale: Vector
    weights: Vector
    bias: Vector
    calibration: Vector  # a slope, then a shift a column: a calibrated logit is `slope * logit + shift`
    classes: NDArray[np.int32]  # the options that were seen, one a column; of two the column is the second's
    n: NDArray[np.int32]  # the number of cases it was fitted on; shape (1,)

    def probabilities(self, blocks: Blocks, options: int) -> Logits:
        """Return shape (options,), summing to 1, with a small share for unseen options."""
        logits = self.calibrated_logits(blocks)
        floor = 0.5 / (int(self.n[0]) + 2)
        shares = np.full(options, floor)
        shares[self.classes] = np.maximum(softmax(logits[None, :])[0], floor)
        return np.asarray(shares / shares.sum())

    def calibrated_logits(self, blocks: Blocks) -> Logits:
        """Return shape (columns,)."""
        logits = self.standardise(blocks).astype(np.float64) @ self.weights + self.bias
        return np.asarray(self.calibration[0] * logits + self.calibration[1:])

    def standardise(self, blocks: Blocks) -> Vector:
        """Return the features that the weights are for, none past 1; shape (width,)."""
        raw = np.concatenate([blocks[BLOCKS[i]] for i in self.blocks])
        return np.asarray(np.clip((raw - self.mean) * self.scale, -1, 1))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Head:
        """Return the head of these arrays, which are its fields.

        Raises KeyError, IndexError or ValueError when they do not fit together.
        """
        found = cls(**{field.name: arrays[field.name] for field in fields(cls)})
        width, columns = found.weights.shape
        lengths = [len(part) for part in (found.mean, found.scale, found.bias, found.calibration, found.n)]
        known = columns == len(found.classes) > 2 or (columns, len(found.classes)) == (1, 2)
        if not known or lengths != [width, width, columns, columns + 1, 1] or found.blocks.max() >= len(BLOCKS):
            raise ValueError("shapes differ")
        return found


def fit_decision(
    cases: Sequence[Blocks], labels: Sequence[int], groups: Sequence[str], sets: Sequence[str] = TEXT_SETS
) -> Head:
    """Fit what decides among the options that `labels` name, at least two.

    Folds keep equal `groups` (the same question) together. With few cases nothing is chosen among the `sets` of blocks:
    the last is used.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    classes, y = np.unique(np.asarray(labels, np.int32), return_inverse=True)
    calibration = np.append(1.0, np.zeros(len(classes) if len(classes) > 2 else 1))
    names, strength = tuple(sets[-1].split()), WEAK
    # The systems are small: threads cost more than they bring, and may add up in another order.
    with threadpool_limits(1, user_api="blas"):
        if folds := split_folds(y, groups):
            tried_sets = _affordable_sets(sets, len(classes), len(y))
            rows = {tried: _rotate(_standardise(cases, tried)[0])[0] for tried in tried_sets}
            names, strength, logits = _choose(rows, y, folds)
            calibration = calibrate_logits(logits, y)
        x, mean, scale = _standardise(cases, names)
        found, directions = _rotate(x)
        weights, bias = _fit_logistic(found, y, strength)
    return Head(
        blocks=np.array([BLOCKS.index(name) for name in names], np.uint8),
        mean=mean,
        scale=scale,
        weights=(weights if directions is None else directions @ weights).astype(np.float32, order="C"),
        bias=bias.astype(np.float32),
        calibration=calibration.astype(np.float32),
        classes=classes,
        n=np.array([len(y)], np.int32),
    )


def fit_statement(cases: Sequence[Blocks], labels: Sequence[int], groups: Sequence[str], prior: Head) -> Head:
    """Fit how probably a piece states what is asked; `groups` are the questions.

    The pieces of a question compete in one softmax with "none of them" (a conditional logit, McFadden 1974; of several
    right ones the sum counts), which fits their order and not only each by itself. Weights are drawn to the prior's,
    the less the more questions there are. Where they do not beat it on questions left out, the prior is returned.
    """
    from sklearn.model_selection import GroupKFold

    x, y = np.stack([prior.standardise(case) for case in cases]).astype(np.float64), np.asarray(labels, bool)
    _, asked = np.unique(np.asarray(groups), return_inverse=True)
    count = int(asked.max()) + 1
    start = np.append(prior.weights[:, 0], prior.bias).astype(np.float64)
    if count < FEW_CASES:
        return prior
    found = np.zeros(len(y))
    for inside, outside in GroupKFold(min(5, count)).split(x, y, asked):
        fitted = _fit_competing(x[inside], y[inside], asked[inside], start)
        found[outside] = x[outside] @ fitted[:-1] + fitted[-1]
    if _compete(found, y, asked)[0] >= _compete(x @ start[:-1] + start[-1], y, asked)[0]:
        return prior
    weights = _fit_competing(x, y, asked, start)
    return replace(
        prior,
        weights=weights[:-1, None].astype(np.float32),
        bias=weights[-1:].astype(np.float32),
        calibration=calibrate_competing(found, y, asked).astype(np.float32),
        n=np.array([len(y)], np.int32),
    )


def calibrate_competing(logits: Array, y: Array, asked: Array, lost: Array | float = 0.0) -> Array:
    """Return the slope and the shift that calibrate logits in a softmax.

    It is that of the pieces of each question, of which one is right or none. What the pieces have `lost` is taken off
    behind slope and shift, which are drawn towards leaving the logits alone, as strongly as one or two questions would.
    """
    count = len(np.unique(asked))
    return np.array(_fit_line(lambda slope, shift: _compete(slope * logits + shift - lost, y, asked)[0], count))


def _fit_competing(x: Array, y: Array, asked: Array, start: Array) -> Array:
    """Return weights and, last, the bias, near those of the start."""
    from scipy.optimize import minimize

    pull = PULL / len(np.unique(asked))

    def loss_at(given: Array) -> tuple[float, Array]:
        loss, slope = _compete(x @ given[:-1] + given[-1], y, asked)
        off = np.append(given[:-1] - start[:-1], 0.0)
        return loss + pull * float(off @ off), np.append(slope @ x, slope.sum()) + 2 * pull * off

    return np.asarray(minimize(loss_at, start, jac=True, method="L-BFGS-B").x)


def _compete(logits: Array, y: Array, asked: Array) -> tuple[float, Array]:
    """Return the mean log loss of each question's right pieces, or of none, and its slope in each logit."""
    names, asked = np.unique(asked, return_inverse=True)
    top = np.zeros(len(names))
    np.maximum.at(top, asked, logits)
    powers = np.exp(logits - top[asked])
    every = np.bincount(asked, powers) + np.exp(-top)
    right = np.bincount(asked, powers * y)
    has = np.bincount(asked, y) > 0
    loss = np.log(every) - np.where(has, np.log(np.where(has, np.maximum(right, 1e-300), 1.0)), -top)
    slope = powers / every[asked] - np.where(y, powers / np.where(right > 0, right, 1.0)[asked], 0.0)
    return float(loss.mean()), slope / len(names)


def _standardise(cases: Sequence[Blocks], names: Names) -> tuple[Vector, Vector, Vector]:
    """Return (rows, mean, scale) of some blocks side by side, no number of which is past 1."""
    raw = np.stack([np.concatenate([case[name] for name in names]) for case in cases])
    unit = np.concatenate([np.full(len(cases[0][name]), name in UNIT_LENGTH) for name in names])
    spread = raw.std(0)
    scale = np.where(unit, 1.0, (spread > FLAT) / (FAR * np.maximum(spread, FLAT))).astype(np.float32)
    mean = np.where(unit, np.float32(0), raw.mean(0))
    return np.clip((raw - mean) * scale, -1, 1), mean, scale


def _rotate(x: Vector) -> tuple[Array, Array | None]:
    """Return the rows in the directions (d, r) in which they lie, when these are fewer than the columns.

    Rotation changes no regression with a round penalty.
    """
    if x.shape[0] >= x.shape[1]:
        return x, None
    wide = x.astype(np.float64)
    values, vectors = np.linalg.eigh(wide @ wide.T)
    lengths = np.sqrt(np.maximum(values, FLAT**2))
    kept = lengths >= FLAT * lengths[-1]
    return vectors[:, kept] * lengths[kept], wide.T @ (vectors[:, kept] / lengths[kept])


def _affordable_sets(sets: Sequence[str], classes: int, cases: int) -> list[Names]:
    """Return the sets of blocks to choose from: one when fitting is slow."""
    if classes > MANY_CLASSES or (cases > MANY_CASES and sets is TEXT_SETS):
        return [tuple(MANY_SET.split())]
    named = [tuple(told.split()) for told in sets]
    return [names for names in named if cases <= MANY_CASES or "grams" not in names]


def _choose(rows: Mapping[Names, Array], y: Array, folds: Folds) -> tuple[Names, float, Logits]:
    """Return the blocks, the strength and their out-of-fold logits of least log loss."""
    tried = {(names, MIDDLE): _predict_out_of_fold(x, y, folds, MIDDLE) for names, x in rows.items()}
    best, _ = min(tried, key=lambda one: log_loss(tried[one], y))
    if len(rows) > 1:
        tried |= {(best, other): _predict_out_of_fold(rows[best], y, folds, other) for other in (WEAK, STRONG)}
    names, strength = min(tried, key=lambda one: log_loss(tried[one], y))
    return names, strength, tried[names, strength]


def split_folds(y: Array, groups: Sequence[str]) -> Folds:
    """Return for each fold the places outside and inside it.

    Groups stay whole, and classes are spread. There are none when a class has too few groups to be in each.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    of_class = [len({groups[i] for i in np.flatnonzero(y == c).tolist()}) for c in range(int(y.max()) + 1)]
    if len(set(groups)) < FEW_CASES or min(of_class) < 3:
        return []
    count = min(3 if len(y) > MANY_CASES else 5, *of_class)
    folds = list(StratifiedGroupKFold(count).split(y[:, None], y, groups))
    return folds if all(len(np.unique(y[train])) == len(of_class) for train, _ in folds) else []


def _fit_logistic(x: Array, y: Array, strength: float) -> tuple[Array, Array]:
    """Return the weights (d, k) and the bias (k,); k is 1 for two classes, else one column a class."""
    from sklearn import config_context
    from sklearn.linear_model import LogisticRegression

    with config_context(assume_finite=True, skip_parameter_validation=True):
        model = LogisticRegression(C=strength, tol=LEVEL, max_iter=STEPS).fit(x, y)
    return model.coef_.T, model.intercept_


def _predict_out_of_fold(x: Array, y: Array, folds: Folds, strength: float) -> Logits:
    """Return shape (n, k): the logits each case gets from the folds it is not in."""
    k = int(y.max()) + 1
    logits = np.zeros((len(y), 1 if k == 2 else k))
    for train, held in folds:
        weights, bias = _fit_logistic(x[train], y[train], strength)
        logits[held] = x[held].astype(np.float64) @ weights + bias
    return logits


def softmax(logits: Logits) -> Logits:
    """Return shares that sum to 1 in each row; one column is the second class."""
    full = np.hstack([np.zeros_like(logits), logits]) if logits.shape[1] == 1 else logits
    powers = np.exp(full - full.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def log_loss(logits: Logits, y: Array) -> float:
    """Return the mean log loss."""
    return float(-np.log(np.maximum(softmax(logits)[np.arange(len(y)), y], 1e-12)).mean())


def calibrate_logits(logits: Logits, y: Array) -> Array:
    """Return the slope and the shifts that calibrate logits.

    They are Platt's numbers for two classes, a temperature and a share of the log prior for more. Each is drawn towards
    leaving the logits alone, as strongly as one or two cases would.
    """
    k = logits.shape[1]
    direction = np.ones(1) if k == 1 else np.log(np.bincount(y, minlength=k) / len(y))
    slope, shift = _fit_line(lambda slope, shift: log_loss(slope * logits + shift * direction, y), len(y))
    return np.append(slope, shift * direction)


def _fit_line(loss_of: Callable[[float, float], float], count: int) -> tuple[float, float]:
    """Return the slope and the shift of least loss, drawn to 1 and 0 as strongly as one or two of `count` cases do."""
    from scipy.optimize import minimize

    def loss_at(given: Array) -> float:
        pull = (2 * given[0] ** 2 + given[1] ** 2) / count
        return loss_of(np.exp(given[0]), given[1]) + float(pull)

    found = minimize(loss_at, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-7}).x
    return np.exp(found[0]), found[1]
