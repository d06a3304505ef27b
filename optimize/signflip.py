"""The sign-flip test: how often chance signs would take a mean as far from zero as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

RESAMPLES = 9999
BATCH = 2_000_000
"""Signs drawn at a time, for memory."""
DECIMALS = 9


def sign_flip(sums: NDArray[np.float64], seed: int) -> float:
    """Two-sided p of the mean of `sums`, one of each independent unit, under random signs.

    Exact when there are no more than RESAMPLES patterns, else from so many seeded ones. Units that do not
    differ have no sign to flip.

    The same p as `scipy.stats.permutation_test(..., permutation_type="samples")`, which draws its patterns one
    by one and takes ten times as long.
    """
    scale = float(np.abs(sums).max())
    differing = sums[np.abs(sums) > scale * 10**-DECIMALS] / scale if scale > 0 else sums[:0]
    units = len(differing)
    if units < 2:
        return 1.0  # one difference is as likely in either direction
    # Rounded, so that sign patterns that tie are not told apart by the order of summation.
    seen = round(abs(float(differing.sum())), DECIMALS)

    def as_far(positive: NDArray[np.bool_]) -> int:
        totals = 2.0 * (positive @ differing) - differing.sum()
        return int((np.round(np.abs(totals), DECIMALS) >= seen).sum())

    if 2**units <= RESAMPLES:
        patterns = (np.arange(2**units)[:, None] >> np.arange(units)) & 1
        return as_far(patterns.astype(bool)) / len(patterns)
    rng, rows = np.random.default_rng(seed), max(1, BATCH // units)
    sizes = [min(rows, RESAMPLES - start) for start in range(0, RESAMPLES, rows)]
    hits = sum(as_far(rng.integers(0, 2, (size, units), dtype=np.uint8).astype(bool)) for size in sizes)
    return (hits + 1) / (RESAMPLES + 1)
