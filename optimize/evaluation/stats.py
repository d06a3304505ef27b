"""Intervals and tests for measured questions, honest about questions that share a topic.

Questions of one topic share documents, so they succeed and fail together: a test that takes them as
independent finds differences that are not there (false positives of .14 to .23 instead of .05).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ragc.errors import DataError
from ragc.optimize.labelled.units import MIN_UNITS

ALPHA = 0.05
POWER = 0.8
ANY = (-math.inf, math.inf)
RESAMPLES = 9999
_DECIMALS = 9
_LEAST = 1e-12  # what is smaller, as a share, is rounding
_BATCH = 200_000  # signs drawn at a time: as many as fit a processor's cache, several times as fast as all at once
_SIZES = {6: 1.79, 7: 1.33, 8: 1.19, 9: 1.09}
"""By units, the mean over standard deviation that the sign-flip test finds with a chance of 80 %, simulated; from ten
units on it is the t-test's."""

Groups = Sequence[Hashable] | NDArray[np.int64] | None
Floats = NDArray[np.float64]
Numbers = float | NDArray[Any]
Verdict = Literal["better", "worse", "no_detectable_difference"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its 95 % interval, which holds it; infinite ends mean that nothing can be said."""

    value: float
    ci: tuple[float, float]
    n: int


@dataclass(frozen=True, slots=True)
class PairedResult:
    """B minus A on the same questions."""

    difference: float
    ci: tuple[float, float]
    p: float
    """The two-sided p-value of the sign-flip test."""
    n: int
    topics: int
    """The number of topics; 0 when none are known."""
    mde: float
    """The smallest true difference found with a chance of 80 %; infinite with too few topics."""
    enough_topics: bool
    """Whether there are enough units for the test to speak."""
    units: int
    """The number of topics, and questions without one, that are taken as independent."""
    spread: float
    """The standard deviation between the units."""
    verdict: Verdict = "no_detectable_difference"
    """Whether B is better or worse than A, at p < ALPHA."""

    def describe_for(self, metric: str) -> str:
        """Return the verdict on a metric, with the difference that could be seen."""
        figures = f"{metric} {format_estimate(self.difference, self.ci, '+.3f')}, p {format_p(self.p)}"
        figures += f", {self.n} question{'s' * (self.n != 1)}"
        figures += f", {self.topics} topic{'s' * (self.topics != 1)}" if self.topics else ""
        if self.verdict != "no_detectable_difference":
            return f"{self.verdict}: {figures}"
        seen = f"could have seen {self.mde:.3f}" if self.enough_topics else f"fewer than {MIN_UNITS} topics"
        return f"no detectable difference ({seen}): {figures}"

    def correct(self, p: float) -> Self:
        """Return the result with a p-value that is corrected upwards."""
        return replace(self, p=p, verdict=self.verdict if p < ALPHA else "no_detectable_difference")


def format_p(p: float) -> str:
    """Return a p-value as it is printed: `= 0.042`, or `< 0.001`."""
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def format_number(value: float | None, form: str = "+.4g") -> str:
    """Return a number as printed, a dash for None and for what is not finite."""
    return "-" if value is None or not math.isfinite(value) else format(value, form)


def format_interval(ends: Sequence[float | None], form: str = "+.4g") -> str:
    """Return `[-0.02, +0.41]`, a dash for an unknown end and for no end at all."""
    texts = [format_number(end, form) for end in ends]
    return f"[{', '.join(texts)}]" if {*texts} - {"-"} else "-"


def format_estimate(value: float, ends: Sequence[float | None], form: str = "+.4g") -> str:
    """Return `+0.2 [-0.02, +0.41]`, a value and its interval, `+0.2 [-]` without one."""
    return f"{format_number(value, form)} [{format_interval(ends, form).strip('[]')}]"


def mean_interval(
    values: Sequence[float], groups: Groups = None, *, proportion: bool = False, within: tuple[float, float] = ANY
) -> Interval:
    """Return the mean of values with its 95 % interval, clustered on `groups`.

    Cluster-robust standard error and Student's t with (groups - 1) degrees of freedom; one value, or one group, has no
    interval. No end lies outside of `within`, the range of a value, [0, 1] with `proportion`, unless a value does. When
    all values of a proportion are 0 or 1 the interval is Clopper and Pearson's at the effective number of values.
    Raises `DataError` when there is no value.
    """
    data = _require_finite(values)
    mean, n = float(data.mean().clip(data.min(), data.max())), len(data)  # a sum of equal numbers is rounded
    spread = _measure_spread(data, groups)
    if not spread.freedom:
        return Interval(mean, ANY, n)
    least, most = (0.0, 1.0) if proportion else within
    if proportion and np.isin(data, (0.0, 1.0)).all():
        size = count_effective(mean, spread.error, n, len(spread.sums), ALPHA / 2)
        low, high = map(float, limit_share(mean, size, ALPHA / 2))
    else:
        reach = _t_quantile(1 - ALPHA / 2, spread.freedom) * spread.error
        low = max(mean - reach, min(least, float(data.min())))
        high = min(mean + reach, max(most, float(data.max())))
    return Interval(mean, (min(low, mean), max(high, mean)), n)


def count_effective(share: Numbers, error: Numbers, n: Numbers, topics: Numbers, alpha: float) -> Floats:
    """Return the effective number of answers behind shares with standard errors.

    So many independent answers would have that error, fewer by the degrees of freedom of few topics (Korn and Graubard
    1998, Survey Methodology 24:193). A share without an error, such as 0 or 1, rests on as many as there are topics:
    what no topic showed says nothing of how alike the answers of a topic are. One topic alone is worth nothing.
    """
    from scipy.special import stdtrit

    share, error, n, topics = (np.asarray(one, float) for one in (share, error, n, topics))
    with np.errstate(divide="ignore", invalid="ignore"):
        fewer = (stdtrit(n - 1, 1 - alpha) / stdtrit(topics - 1, 1 - alpha)) ** 2
        alike = np.where(error > 0, share * (1 - share) / error**2 * fewer, topics)
    found: Floats = np.where(topics == n, n, np.where(topics > 1, alike, 0.0))
    return found


def limit_share(share: Numbers, size: Numbers, alpha: float) -> tuple[Floats, Floats]:
    """Return Clopper and Pearson's limits of shares of `size` answers.

    Each, the lower and the upper, is at 1 - `alpha`.
    """
    from scipy.special import betaincinv

    hits = np.minimum(share, 1.0) * np.asarray(size, float)
    misses = size - hits
    low = np.where(hits > 0, betaincinv(np.maximum(hits, _LEAST), misses + 1, alpha), 0.0)
    return low, np.where(misses > 0, betaincinv(hits + 1, np.maximum(misses, _LEAST), 1 - alpha), 1.0)


def paired_test(
    a: Sequence[float],
    b: Sequence[float],
    groups: Groups = None,
    *,
    seed: int = 0,
    within: tuple[float, float] = ANY,
    cost: bool = False,
) -> PairedResult:
    """Test B against A, value by value, with a cluster sign-flip test.

    `within`, the range of a difference, bounds the interval alone; of a `cost`, less is better. Raises `DataError`
    when the lengths differ or are 0.
    """
    if len(a) != len(b):
        raise DataError(f"{len(a)} values cannot be paired with {len(b)}.", "Score both on the same questions.")
    differences = _require_finite(b) - _require_finite(a)
    n = len(differences)
    interval = mean_interval(differences.tolist(), groups, within=within)
    spread = _measure_spread(differences, groups)
    units, p = len(spread.sums), _flip_signs(spread.sums, seed)
    found = PairedResult(
        difference=interval.value,
        ci=interval.ci,
        p=p,
        n=n,
        topics=len({g for g in groups if g not in {None, ""}}) if groups is not None else 0,
        mde=_detectable_difference(spread.error, units),
        enough_topics=units >= MIN_UNITS,
        units=units,
        spread=spread.error * math.sqrt(units),
        verdict="better" if (interval.value > 0) != cost else "worse",
    )
    return found.correct(p if interval.value else 1.0)


def one_sided_limits(
    values: Sequence[float], groups: Groups = None, alpha: float = ALPHA, size: float = 1.0
) -> tuple[float, float]:
    """Return the lower and the upper limit of the mean, each at 1 - `alpha`.

    Student's t over topics. Towards a side on which few topics lie far off, the third over the second moment of the
    topics is the size of a rare change, and the limit is that of a count of such changes (an expansion of Garwood's
    for Poisson's distribution, 1936), else two or three of them would make it too near. Where no two values differ, the
    limits lie as far off as what was never seen may reach, with changes of `size` or as large as the mean. One value,
    or one group, has no limit.
    """
    data = _require_finite(values)
    mean, n, spread = float(data.mean()), len(data), _measure_spread(data, groups)
    if not spread.freedom:
        return ANY
    if not spread.error:
        reach = share_unseen(len(spread.sums), alpha) * max(size, abs(mean))
        return mean - reach, mean + reach
    t, second = _t_quantile(1 - alpha, spread.freedom), float((spread.residuals**2).sum())
    rare = float((spread.residuals**3).sum()) / second / n if second else 0.0
    low, high = (far * (2 + t * t) / 3 + t * math.hypot(spread.error, far) for far in (max(-rare, 0.0), max(rare, 0.0)))
    return mean - low, mean + high


def share_unseen(topics: int, alpha: float = ALPHA) -> float:
    """Return how frequent what no topic showed may be (the "rule of three")."""
    return float(1 - alpha ** (1 / topics))


def reach_unseen(values: Sequence[float], groups: Groups, size: float) -> float:
    """Return by how much topics of a kind never seen may move the mean of values.

    Each moves it as the topic does that moves it most, or as one whose values are all `size` where none does.
    """
    sums = _measure_spread(data := _require_finite(values), groups).sums
    return share_unseen(len(sums)) * (float(np.abs(sums).max()) * len(sums) / len(data) or size)


def correct_holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return the p-values corrected for their number (Holm 1979)."""
    corrected, least = {}, 0.0
    for place, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        least = min(1.0, max(least, (len(p_values) - place) * p_values[name]))
        corrected[name] = least
    return {name: corrected[name] for name in p_values}


@dataclass(frozen=True, slots=True)
class _Spread:
    error: float  # 0 where no two values differ
    freedom: int
    sums: Floats
    residuals: Floats


def _require_finite(values: Sequence[float]) -> Floats:
    data = np.asarray(values, dtype=np.float64)
    if not len(data) or not np.isfinite(data).all():
        raise DataError("There is no number to average, or one is not finite.", "Leave unmeasured questions out.")
    return data


def number_groups(groups: Sequence[Hashable] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of groups, from 0 on.

    None and "" stand for a group of their own each.
    """
    if isinstance(groups, np.ndarray):
        return np.unique(groups, return_inverse=True)[1]
    named: dict[Hashable, int] = {}
    keys = (("", n) if group in {None, ""} else (group,) for n, group in enumerate(groups))
    return np.array([named.setdefault(key, len(named)) for key in keys], int)


def _measure_spread(data: Floats, groups: Groups) -> _Spread:
    """Return the cluster-robust spread (Liang and Zeger 1986), which questions asked several times do not narrow.

    Where groups do not differ, each counts as one value.
    """
    n, codes = len(data), number_groups([None] * len(data) if groups is None else groups)
    if len(codes) != n:
        raise DataError(f"{n} values cannot be grouped by {len(codes)} topics.", "Give each value its topic.")
    rounding, count = _LEAST * float(np.abs(data).sum()), int(codes.max()) + 1
    sums, residuals = (np.bincount(codes, one).astype(np.float64) for one in (data, data - data.mean()))
    residuals[np.abs(residuals) <= rounding] = 0.0
    error = math.sqrt(count / max(count - 1, 1) * float((residuals**2).sum())) / n
    if not error and np.ptp(data) > rounding:
        error = float(data.std()) / math.sqrt(count)
    return _Spread(error, count - 1, sums, residuals)


def _flip_signs(sums: NDArray[np.float64], seed: int) -> float:
    """Return the two-sided p of a mean under random signs of the units' sums.

    Exact when there are no more than RESAMPLES patterns, else from so many seeded ones. It is the p of
    `scipy.stats.permutation_test(..., permutation_type="samples")`, which takes several times as long.
    """
    scale = float(np.abs(sums).max())
    differing = sums[np.abs(sums) > scale * 10**-_DECIMALS] / scale if scale > 0 else sums[:0]
    units = len(differing)
    if units < 2:
        return 1.0  # one difference is as likely in either direction
    # Rounded, so that sign patterns that tie are not told apart by the order of summation.
    seen = round(abs(float(differing.sum())), _DECIMALS)

    def count_as_far(positive: NDArray[Any]) -> int:
        totals = 2.0 * (positive.astype(np.float64) @ differing) - differing.sum()
        return int((np.round(np.abs(totals), _DECIMALS) >= seen).sum())

    if (patterns := 1 << units) <= RESAMPLES:
        return count_as_far((np.arange(patterns)[:, None] >> np.arange(units)) & 1) / patterns
    rng, rows, wide = np.random.default_rng(seed), max(1, _BATCH // units), math.ceil(units / 8)
    hits = 0
    for start in range(0, RESAMPLES, rows):
        drawn = np.frombuffer(rng.bytes(min(rows, RESAMPLES - start) * wide), np.uint8)
        hits += count_as_far(np.unpackbits(drawn.reshape(-1, wide), axis=1, count=units))
    return (hits + 1) / (RESAMPLES + 1)


def _t_quantile(share: float, freedom: float) -> float:
    """Return a quantile of Student's t without `scipy.stats`, slow to import."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, share))


def _detectable_difference(error: float, units: int) -> float:
    """Return the smallest difference that the sign-flip test sees with 80 % power.

    The standard deviation of few units is too small on average; c4 corrects that (Holtzman 1950). When no two values
    differ, it is the fewest units that must change before the test can speak, MIN_UNITS of them.
    """
    if units < MIN_UNITS:
        return math.inf
    if error == 0:
        return MIN_UNITS / units
    c4 = math.sqrt(2 / (units - 1)) * math.exp(math.lgamma(units / 2) - math.lgamma((units - 1) / 2))
    return _detectable_size(units) / c4 * error * math.sqrt(units)


@lru_cache(maxsize=256)
def _detectable_size(units: int) -> float:
    """Return the detectable mean over the standard deviation of the units."""
    from scipy.optimize import brentq
    from scipy.special import nctdtr

    if units in _SIZES:
        return _SIZES[units]
    freedom, reach = units - 1, _t_quantile(1 - ALPHA / 2, units - 1)

    def lack_power(shift: float) -> float:
        return float(1 - nctdtr(freedom, shift, reach) + nctdtr(freedom, shift, -reach)) - POWER

    return float(brentq(lack_power, 0, 5)) / math.sqrt(units)
