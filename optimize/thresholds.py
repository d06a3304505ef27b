"""A decision's threshold, fitted to labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from program.parameters import LEAST, MOST


def best_threshold(probabilities: Sequence[float], labels: Sequence[bool]) -> float:
    """The cut in [0.02, 0.98] with the most labels right; in the middle of the widest such gap.

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
