"""Whether a gain is more than chance would give, questions of one topic taken together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from optimize.evaluation.stats import paired_test


def survives(gains: Sequence[float], groups: Sequence[str]) -> bool:
    """True when the mean gain is positive and at least its standard error, questions of one topic taken together.

    Nothing survives on one topic alone: it cannot tell what the others would say.
    """
    known = [(gain, group) for gain, group in zip(gains, groups, strict=True) if np.isfinite(gain)]
    if len({group for _, group in known}) < 2:
        return False
    values, topics = zip(*known, strict=True)
    test = paired_test([0.0] * len(values), values, topics)
    return test.difference > 0 and test.difference >= test.spread / math.sqrt(test.units)
