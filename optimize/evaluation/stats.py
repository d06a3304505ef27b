"""Intervals and tests for measured questions, honest about questions that share a topic.

Questions of one topic share documents, so they succeed and fail together: a test that takes them as
independent finds differences that are not there (false positives of .14 to .23 instead of .05).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from optimize.evaluation.signflip import sign_flip
from program.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALPHA = 0.05
ANY = (-math.inf, math.inf)
POWER = 0.8
MIN_UNITS = 6
"""The fewest topics a sign-flip test can speak on: with five, p is never below 2 / 2**5 = .0625."""
_SIZES = {6: 1.79, 7: 1.33, 8: 1.19, 9: 1.09}
"""By number of units, the mean over standard deviation that the sign-flip test finds with a chance of 80 % in
normal values, simulated; from ten units on it is the paired t-test's."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its 95 % interval. Infinite ends mean that nothing can be said."""

    mean: float
    low: float
    high: float
    n: int


def shown_p(p: float) -> str:
    """A p-value as it is printed: `= 0.042`, or `< 0.001`, for no chance is nought."""
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


@dataclass(frozen=True, slots=True)
class PairedResult:
    """B minus A on the same questions.

    `ci` is the 95 % interval, `p` two-sided. `topics` counts the topics (0 when none are known). `mde` is
    the smallest true difference found with a chance of 80 %; infinite when there are too few topics.
    `spread` is the standard deviation between the `units` that are taken as independent: topics, or questions
    without one.
    """

    difference: float
    ci: tuple[float, float]
    p: float
    n: int
    topics: int
    mde: float
    enough_topics: bool
    units: int
    spread: float


def mean_interval(
    values: Sequence[float],
    groups: Sequence[Hashable] | None = None,
    *,
    proportion: bool = False,
    within: tuple[float, float] = ANY,
) -> Interval:
    """The mean of `values` with its 95 % interval, clustered on `groups`.

    Cluster-robust standard error and Student's t with (groups - 1) degrees of freedom; a plain t interval
    when there are fewer than two groups. A value whose group is None or "" is a group of its own. The
    standard error is never taken below that of independent values: a topic can only add uncertainty.
    No end of the interval lies outside of `within`, the range a value can have. With `proportion` that is [0, 1];
    when every value is 0 or 1 the interval is Clopper and Pearson's at the effective sample size (Korn and Graubard
    1998, Survey Methodology 24:193), so that 40 out of 40 is not taken for certainty. Raises `DataError` when there
    is no value.
    """
    data = _finite(values)
    mean, n = float(data.mean()), len(data)
    error, freedom, _ = _standard_error(data, groups)
    if proportion and np.isin(data, (0.0, 1.0)).all():
        return Interval(mean, *_clopper_pearson(mean, n, error, freedom), n)
    reach = _t(freedom) * error if error > 0 else 0.0
    low, high = (mean - reach, mean + reach) if n > 1 else ANY
    least, most = (0.0, 1.0) if proportion else within
    return Interval(mean, max(low, least), min(high, most), n)


def paired_test(
    a: Sequence[float],
    b: Sequence[float],
    groups: Sequence[Hashable] | None = None,
    *,
    seed: int = 0,
    within: tuple[float, float] = ANY,
) -> PairedResult:
    """B against A, value by value: the mean difference, its interval, and a cluster sign-flip p-value.

    Under "no difference" a topic's summed difference is as likely to be negative as positive; p is the
    share of sign patterns with a mean at least as far from zero (exact up to 13 topics that differ, else
    9,999 seeded patterns). `within`, the range a difference can have, bounds the interval and nothing else.
    Raises `DataError` when the lengths differ or are zero.
    """
    if len(a) != len(b):
        raise DataError(f"{len(a)} values cannot be paired with {len(b)}.", "Score both on the same questions.")
    differences = _finite(b) - _finite(a)
    n = len(differences)
    interval = mean_interval(differences.tolist(), groups, within=within)
    error, _, sums = _standard_error(differences, groups)
    units = len(sums)
    return PairedResult(
        difference=interval.mean,
        ci=(interval.low, interval.high),
        p=sign_flip(sums, seed),
        n=n,
        topics=len({g for g in groups if g not in {None, ""}}) if groups is not None else 0,
        mde=_detectable(error, units, n),
        enough_topics=units >= MIN_UNITS,
        units=units,
        spread=error * math.sqrt(units),
    )


def one_sided_limits(values: Sequence[float], groups: Sequence[Hashable] | None = None) -> tuple[float, float]:
    """The lower and the upper 95 % limit of the mean, each on its own; clustered as in `mean_interval`.

    When no two values differ there is no spread to go by: then the limits lie as far off as a share of values
    that were never seen in n may reach, 1 - .05**(1/n) (the "rule of three"), times the larger of 1 and the mean.
    """
    data = _finite(values)
    mean, n = float(data.mean()), len(data)
    error, freedom, _ = _standard_error(data, groups)
    reach = _quantile(1 - ALPHA, freedom) * error if error else (1 - ALPHA ** (1 / n)) * max(1.0, abs(mean))
    return mean - reach, mean + reach


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """The p-values corrected for their number (Holm 1979), under the same names."""
    if not p_values:
        return {}
    from statsmodels.stats.multitest import multipletests

    corrected = multipletests(list(p_values.values()), method="holm")[1]
    return dict(zip(p_values, map(float, corrected), strict=True))


def questions_needed(effect: float, spread: float, per_unit: float = 1.0) -> int:
    """How many questions show a true difference of `effect` with a chance of 80 %.

    `spread` is the standard deviation of the differences between independent units (topics, or questions), of
    `per_unit` questions each; for a proportion it is sqrt(discordance - effect**2). At least MIN_UNITS
    units. Raises `DataError` when the effect or the spread is not a positive number.
    """
    if not (0 < abs(effect) < math.inf and 0 < spread < math.inf):
        raise DataError(
            f"No number of questions is sure to show a difference of {effect} at a spread of {spread}.",
            "Give an effect other than 0, and versions that differ on some question.",
        )
    from statsmodels.stats.power import TTestPower

    size = abs(effect) / spread
    for few, least in _SIZES.items():
        if size >= least:
            return math.ceil(few * per_unit)
    units = float(np.squeeze(TTestPower().solve_power(effect_size=size, alpha=ALPHA, power=POWER)))
    return math.ceil(units * per_unit)


def _finite(values: Sequence[float]) -> NDArray[np.float64]:
    data = np.asarray(values, dtype=np.float64)
    if not len(data) or not np.isfinite(data).all():
        raise DataError("There is no number to average, or one is not finite.", "Leave unmeasured questions out.")
    return data


def _codes(groups: Sequence[Hashable]) -> NDArray[np.int64]:
    """Groups as integers; None and "" are a group of their own each."""
    named: dict[Hashable, int] = {}
    keys = (("", i) if g in {None, ""} else (g,) for i, g in enumerate(groups))
    return np.array([named.setdefault(key, len(named)) for key in keys], dtype=np.int64)


def _standard_error(
    data: NDArray[np.float64], groups: Sequence[Hashable] | None
) -> tuple[float, int, NDArray[np.float64]]:
    """The standard error of the mean, its degrees of freedom, and the sum of each independent unit."""
    n = len(data)
    spread = float(data.std(ddof=1)) if n > 1 and np.ptp(data) > 0 else 0.0
    alone = spread / math.sqrt(n)
    codes = _codes(groups) if groups is not None else np.arange(n)
    if len(codes) != n:
        raise DataError(f"{n} values cannot be grouped by {len(codes)} topics.", "Give each value its topic.")
    count = int(codes.max()) + 1
    if count in {1, n}:
        return alone, n - 1, data
    sums: NDArray[np.float64] = np.bincount(codes, weights=data).astype(np.float64)
    if alone == 0:
        return 0.0, count - 1, sums
    from statsmodels.regression.linear_model import OLS

    fit = OLS(data, np.ones((n, 1))).fit(cov_type="cluster", cov_kwds={"groups": codes}, use_t=True)
    return max(alone, float(fit.bse[0])), count - 1, sums


def _t(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t."""
    return _quantile(1 - ALPHA / 2, freedom)


def _quantile(share: float, freedom: int) -> float:
    """Of Student's t. Not by `scipy.stats`, which takes a second to import."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, share))


def _clopper_pearson(mean: float, n: int, error: float, freedom: int) -> tuple[float, float]:
    from scipy.special import betaincinv

    effective = min(float(n), mean * (1 - mean) / error**2) if error > 0 else float(n)
    if 0 < freedom < n - 1:
        effective *= (_t(n - 1) / _t(freedom)) ** 2
    hits, misses = effective * mean, effective * (1 - mean)
    low = float(betaincinv(hits, misses + 1, ALPHA / 2)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, misses, 1 - ALPHA / 2)) if misses > 0 else 1.0
    return low, high


def _detectable(error: float, units: int, n: int) -> float:
    """The smallest difference seen with 80 % power by the sign-flip test on `units` independent units.

    The standard deviation of few units is too small on average; c4 corrects that (Holtzman 1950). When no
    two values differ there is no spread to go by: then it is the fewest questions that must change before the
    test can speak, one in each of MIN_UNITS units.
    """
    if units < MIN_UNITS:
        return math.inf
    if error == 0:
        return MIN_UNITS / n
    c4 = math.sqrt(2 / (units - 1)) * math.exp(math.lgamma(units / 2) - math.lgamma((units - 1) / 2))
    return _detectable_size(units) / c4 * error * math.sqrt(units)


@lru_cache(maxsize=256)
def _detectable_size(units: int) -> float:
    """The detectable mean over the standard deviation of the units."""
    if units in _SIZES:
        return _SIZES[units]
    from statsmodels.stats.power import TTestPower

    return float(np.squeeze(TTestPower().solve_power(nobs=units, alpha=ALPHA, power=POWER)))
