"""Evidence that may be looked at as often as one likes: the multinomial e-process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

NEAR = 100.0
"""How near to the weights the alternative is sought: 100 finds shares that are a few points off soonest."""
WIDE = 10.0
"""For rare events: a few of them, of which one arm has twice or three times its due."""


def log_e_multinomial(counts: ArrayLike, weights: ArrayLike, concentration: float = NEAR) -> NDArray[np.float64] | Any:
    """The logarithm of the evidence that counts do not come from the weights; shape of `counts` without its last axis.

    `counts` has the arms on its last axis, `weights` are positive. The likelihood of a Dirichlet-multinomial with
    mean `weights` over that of the multinomial itself: if the weights are right it reaches 1 / a, ever, with a chance
    of at most a, however often one looks (Lindon and Malek 2022, Anytime-valid inference for multinomial count data).
    """
    from scipy.special import gammaln

    n = np.asarray(counts, dtype=np.float64)
    share = np.asarray(weights, dtype=np.float64)
    share = share / share.sum()
    prior = concentration * share
    total = gammaln(concentration) - gammaln(concentration + n.sum(-1))
    return total + (gammaln(prior + n) - gammaln(prior) - n * np.log(share)).sum(-1)


def log_e_rates(failures: ArrayLike, successes: ArrayLike, weights: ArrayLike) -> NDArray[np.float64] | Any:
    """The logarithm of the evidence that arms do not fail at one rate.

    If they do, failures fall on the arms as the weights say, and so do successes: the mean of the two e-processes is
    one again, and it is the failures that speak when they are rare.
    """
    both = (log_e_multinomial(failures, weights, WIDE), log_e_multinomial(successes, weights, WIDE))
    return np.logaddexp(*both) - np.log(2)
