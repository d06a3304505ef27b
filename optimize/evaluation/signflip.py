"""The sign-flip test: how often chance signs would take a mean as far from zero as it is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

RESAMPLES = 9999
BATCH = 200_000
"""Signs drawn at a time: as many as fit a processor's cache, several times as fast as all at once."""
DECIMALS = 9


def sign_flip(sums: NDArray[np.float64], seed: int) -> float:
    """Two-sided p of the mean of `sums`, one of each independent unit, under random signs.

    Exact when there are no more than RESAMPLES patterns, else from so many seeded ones. Units that do not
    differ have no sign to flip.

    The same p as `scipy.stats.permutation_test(..., permutation_type="samples")`, which draws its patterns one
    by one and takes several times as long.
    """
    scale = float(np.abs(sums).max())
    differing = sums[np.abs(sums) > scale * 10**-DECIMALS] / scale if scale > 0 else sums[:0]
    units = len(differing)
    if units < 2:
        return 1.0  # one difference is as likely in either direction
    # Rounded, so that sign patterns that tie are not told apart by the order of summation.
    seen = round(abs(float(differing.sum())), DECIMALS)

    def as_far(positive: NDArray[Any]) -> int:
        totals = 2.0 * (positive.astype(np.float64) @ differing) - differing.sum()
        return int((np.round(np.abs(totals), DECIMALS) >= seen).sum())

    if (patterns := 1 << units) <= RESAMPLES:
        return as_far((np.arange(patterns)[:, None] >> np.arange(units)) & 1) / patterns
    rng, rows, wide = np.random.default_rng(seed), max(1, BATCH // units), math.ceil(units / 8)
    hits = 0
    for start in range(0, RESAMPLES, rows):
        drawn = np.frombuffer(rng.bytes(min(rows, RESAMPLES - start) * wide), np.uint8)
        hits += as_far(np.unpackbits(drawn.reshape(-1, wide), axis=1, count=units))
    return (hits + 1) / (RESAMPLES + 1)
