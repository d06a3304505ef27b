"""Calibrated linear heads: fitted on labelled cases, exported as plain arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from program.models.features import BLOCKS, UNIT_LENGTH
from program.models.reading import Vector

Array = NDArray[Any]
Logits = NDArray[np.float64]
Blocks = Mapping[str, Vector]
STRENGTHS = (0.5, 1.5, 5.0, 15.0, 50.0)  # of the data against the penalty (C); the first pass uses the middle one
FIRST_STRENGTH = 5.0
FAR = 4.0  # standard deviations past which a feature says no more
MANY_CLASSES = 20
MANY_CASES = 1000
FEW = 8
MOST_STEPS = 30
TEXT_SETS = (
    ("meaning",),
    ("shape",),
    ("meaning", "grams"),
    ("meaning", "shape"),
    ("meaning", "grams", "shape", "options"),
)
EVIDENCE_SETS = (
    ("bearing",),
    ("bearing", "shape"),
    ("bearing", "shape", "options"),
    ("meaning", "shape", "options"),
    ("meaning", "grams", "shape", "bases", "options"),
    BLOCKS,
)
MANY_SET = ("meaning", "grams")


@dataclass(frozen=True)
class Head:
    """A logistic regression over some blocks (one column for two classes, else a column a class), calibrated.

    A calibrated logit is `slope * logit + shift`, column by column. `classes` says which of the question's options each column
    stands for (for one column: option 1 against option 0). `n` is the number of cases it was fitted on.
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

    def probabilities(self, blocks: Blocks, options: int) -> Logits:
        """Shape (options,), summing to 1. An option that no case showed keeps a small share."""
        x = (np.concatenate([blocks[name] for name in self.blocks]) - self.mean) * self.scale
        np.clip(x, -_limit(self.blocks, blocks), _limit(self.blocks, blocks), out=x)
        logits = self.slope * (x.astype(np.float64) @ self.weights + self.bias) + self.shift
        if len(logits) == 1:
            logits = np.array([0.0, logits[0]])
        seen = _softmax(logits[None, :])[0]
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
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Head:
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
        )


def fit(cases: Sequence[Blocks], labels: Sequence[int], groups: Sequence[str], judged_against: bool) -> Head:
    """A head for labelled cases of at least two classes.

    The blocks and the strength are those of least log loss out of fold; folds keep equal `groups` (the same
    question) together. The calibration is fitted on the same out-of-fold logits. With few cases nothing is
    chosen: every block is used, held down hard.
    """
    classes, y = np.unique(np.asarray(labels, np.int32), return_inverse=True)
    folds = _folds(y, groups, 3 if len(y) > MANY_CASES else 5)
    many = len(classes) > MANY_CLASSES or len(y) > MANY_CASES
    if folds is None:
        chosen, strength, calibration = BLOCKS, 0.5, (1.0, np.zeros(len(classes) if len(classes) > 2 else 1))
    elif many:
        chosen, strength = MANY_SET, 10.0
        calibration = _calibrate(_out_of_fold(_rows(cases, chosen)[0], y, folds, strength), y)
    else:
        chosen, strength, logits = _choose(cases, y, folds, EVIDENCE_SETS if judged_against else TEXT_SETS)
        calibration = _calibrate(logits, y)
    x, mean, scale = _rows(cases, chosen)
    weights, bias = _regress(x, y, strength)
    return Head(
        chosen, mean, scale, weights.astype(np.float32), bias.astype(np.float32),
        float(np.float32(calibration[0])), calibration[1].astype(np.float32), classes, len(y),
    )  # fmt: skip


def _limit(names: Sequence[str], blocks: Blocks) -> Vector:
    return np.concatenate(
        [np.full(len(blocks[n]), 1.0 if n in UNIT_LENGTH else FAR / np.sqrt(max(len(blocks[n]), 1))) for n in names]
    ).astype(np.float32)


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
    cases: Sequence[Blocks], y: Array, folds: Array, sets: Sequence[tuple[str, ...]]
) -> tuple[tuple[str, ...], float, Logits]:
    """The blocks, the strength and their out-of-fold logits of least log loss."""
    rows = {names: _rotated(_rows(cases, names)[0]) for names in sets}
    tried = {(names, FIRST_STRENGTH): _out_of_fold(rows[names], y, folds, FIRST_STRENGTH) for names in sets}
    best = min(tried, key=lambda key: _log_loss(tried[key], y))[0]
    for strength in STRENGTHS:
        if (best, strength) not in tried:
            tried[best, strength] = _out_of_fold(rows[best], y, folds, strength)
    names, strength = min(tried, key=lambda key: _log_loss(tried[key], y))
    return names, strength, tried[names, strength]


def _rotated(x: Vector) -> Vector:
    """The same rows in the fewest coordinates: a rotation leaves a regression with a round penalty as it was."""
    if x.shape[0] >= x.shape[1]:
        return x
    values, vectors = np.linalg.eigh(x.astype(np.float64) @ x.T.astype(np.float64))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)), np.float32)


def _regress(x: Vector, y: Array, strength: float) -> tuple[Array, Array]:
    """(weights (d, k), bias (k,)): k = 1 for two classes, else one column a class."""
    classes = int(y.max()) + 1
    if classes > MANY_CLASSES or len(y) > MANY_CASES:
        return _regress_many(x, y, strength)
    rows = x.astype(np.float64)
    if classes == 2:
        found = [_newton(rows, y.astype(np.float64), strength)]
    else:
        found = [_newton(rows, (y == c).astype(np.float64), strength) for c in range(classes)]
    return np.stack([weights for weights, _ in found], 1), np.array([bias for _, bias in found])


def _regress_many(x: Vector, y: Array, strength: float) -> tuple[Array, Array]:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=strength, class_weight="balanced", tol=1e-3, max_iter=100).fit(x, y)
    return model.coef_.T, model.intercept_


def _newton(x: Array, y: Array, strength: float) -> tuple[Array, float]:
    """(weights, bias) of least log loss plus |weights|^2 / (2 strength), by Newton's method with halved steps."""
    from scipy.linalg import cho_factor, cho_solve

    rows = np.hstack([x, np.ones((len(x), 1))])
    penalty = np.full(rows.shape[1], 1.0 / strength)
    penalty[-1] = 1e-6  # the bias goes unpenalised, but for a trace that keeps separable classes finite
    found = np.zeros(rows.shape[1])

    def loss(w: Array) -> float:
        logits = rows @ w
        return float(np.sum(np.logaddexp(0.0, logits) - y * logits) + 0.5 * np.sum(penalty * w * w))

    now = loss(found)
    for _ in range(MOST_STEPS):
        p = 1.0 / (1.0 + np.exp(-np.clip(rows @ found, -40.0, 40.0)))
        slope = rows.T @ (p - y) + penalty * found
        half = rows * np.sqrt(p * (1 - p))[:, None]
        curve = half.T @ half  # one matrix with itself: half the work
        curve.flat[:: len(penalty) + 1] += penalty
        step = cho_solve(cho_factor(curve, overwrite_a=True, check_finite=False), slope, check_finite=False)
        size = 1.0
        while (after := loss(found - size * step)) > now and size > 1e-4:
            size /= 2
        found, gain, now = found - size * step, now - after, after
        if gain < 1e-7 * (1.0 + abs(now)):
            break
    return found[:-1], float(found[-1])


def _folds(y: Array, groups: Sequence[str], most: int) -> Array | None:
    """The fold of each case, groups whole and classes spread; None when there are too few cases to fold."""
    order: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        order.setdefault(group, []).append(i)
    least = min(len({groups[i] for i in np.flatnonzero(y == c)}) for c in range(int(y.max()) + 1))
    if len(y) < FEW or len(order) < FEW or least < 3:
        return None
    k = min(most, least)
    folds = np.zeros(len(y), np.int32)
    for n, members in enumerate(sorted(order.values(), key=lambda m: (sorted(y[m].tolist()), m[0]))):
        folds[members] = n % k
    return folds


def _splits(folds: Array) -> Iterator[tuple[Array, Array]]:
    for fold in range(int(folds.max()) + 1):
        yield np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)


def _out_of_fold(x: Vector, y: Array, folds: Array, strength: float) -> Logits:
    """Shape (n, k): the logits each case gets from the folds it is not in."""
    k = int(y.max()) + 1
    logits = np.zeros((len(y), 1 if k == 2 else k))
    for train, held in _splits(folds):
        weights, bias = _regress(x[train], y[train], strength)
        logits[held] = x[held].astype(np.float64) @ weights + bias
    return logits


def _softmax(logits: Logits) -> Logits:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def _log_loss(logits: Logits, y: Array) -> float:
    full = np.hstack([np.zeros((len(y), 1)), logits]) if logits.shape[1] == 1 else logits
    chosen = _softmax(full)[np.arange(len(y)), y]
    return float(-np.mean(np.log(np.maximum(chosen, 1e-12))))


def _calibrate(logits: Logits, y: Array) -> tuple[float, Array]:
    """(slope, shift): Platt's two numbers for two classes; a temperature and a share of the log prior for more.

    Each is drawn towards leaving the logits alone, as strongly as one or two cases would.
    """
    from scipy.optimize import minimize

    k = logits.shape[1]
    direction = np.ones(1) if k == 1 else np.log(np.bincount(y, minlength=k) / len(y))

    def loss(parameters: Array) -> float:
        slope, share = np.exp(parameters[0]), parameters[1]
        pull = (2 * parameters[0] ** 2 + share**2) / len(y)
        return _log_loss(slope * logits + share * direction, y) + float(pull)

    found = minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-7}).x
    return float(np.exp(found[0])), np.asarray(found[1] * direction)
