"""A decision's threshold or weights, fitted to labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from program.loop.policy import HEAVIEST, LEAST, LIGHTEST, MOST

GRID = 17
PASSES = 3


def best_threshold(probabilities: Sequence[float], labels: Sequence[bool]) -> float:
    """The cut in [0.02, 0.98] with the most labels right, in the middle between two probabilities, or one half.

    Of equally good cuts the one nearest to one half is taken: the least surprising.
    """
    p, y = np.asarray(probabilities, float), np.asarray(labels, bool)
    if not len(p) or y.all() or not y.any():
        return 0.5
    edges = np.unique(np.clip(p, LEAST, MOST))
    cuts = np.unique(np.concatenate([[LEAST, 0.5, MOST], (edges[1:] + edges[:-1]) / 2]))
    right = np.array([np.mean((p >= cut) == y) for cut in cuts])
    best = cuts[right >= right.max() - 1e-12]
    return float(best[np.argmin(np.abs(best - 0.5))])


def best_weights(tables: Sequence[Mapping[str, float]], labels: Sequence[str]) -> dict[str, float]:
    """Weights in [1/4, 4] for every option but the first under which most tables' heaviest option is the label.

    One option at a time, on a logarithmic grid, a few passes; of equally good weights the one nearest to 1.
    """
    if not tables:
        return {}
    options = list(tables[0])
    p = np.array([[table[option] for option in options] for table in tables])
    y = np.array([options.index(label) for label in labels])
    grid = sorted(np.geomspace(LIGHTEST, HEAVIEST, GRID), key=lambda w: abs(float(np.log(w))))
    weights = np.ones(len(options))
    for _ in range(PASSES):
        for at in range(1, len(options)):
            tried = np.tile(weights, (GRID, 1))
            tried[:, at] = grid
            right = [float(np.mean((p * w).argmax(axis=1) == y)) for w in tried]
            weights = tried[int(np.argmax(right))]  # the first of equals: nearest to 1
    return {option: float(weight) for option, weight in zip(options[1:], weights[1:], strict=True)}
