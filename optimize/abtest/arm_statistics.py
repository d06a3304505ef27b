"""What each arm of an online A/B test did: exposure logs joined to units, and how the arms compare."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

from optimize.abtest.sequential import Moments, choose_horizon, compare_means, log_e_multinomial, log_e_rates
from optimize.evaluation.comparison import LOWER_IS_BETTER
from program.serve.experiment_store import ArmDesign, Design, ExposureRow, MetricGuard

Values = Mapping[str, float]
COSTS = LOWER_IS_BETTER | {"latency_s", "error", "fallback", "clarify", "abstain"}
MISMATCH = math.log(1000)
"""The log evidence from which arms count as of wrong size: under the right weights once in 1,000 experiments."""


@dataclass(frozen=True, slots=True)
class ExposedUnit:
    """A unit that was answered by one arm."""

    arm: str
    requests: tuple[Values, ...]  # the values of each, the first request first


@dataclass(frozen=True, slots=True)
class LogAccounting:
    """How many rows were read, and what could not be used; `foreign` rows are of another experiment."""

    rows: int = 0
    duplicates: int = 0  # exposures of a request that was exposed already
    foreign: int = 0
    malformed: int = 0
    crossed: int = 0  # units seen in two arms, which are left out
    unmatched: int = 0  # requests with values and without an exposure
    skewed: int = 0  # requests with a value dated before their exposure: two hosts whose clocks differ
    torn: int = 0  # lines that are no row, such as one cut short by a kill
    keys: int = 0  # keys that units were pseudonymised with; more than one gives a unit two names


@dataclass(frozen=True, slots=True)
class MergedLogs:
    """The units that count, by pseudonym."""

    units: Mapping[str, ExposedUnit]
    accounting: LogAccounting

    def count_exposed(self, design: Design) -> list[int]:
        """Count the units of each arm, in the order of the design's arms."""
        found = Counter(unit.arm for unit in self.units.values())
        return [found[arm.name] for arm in design.arms]

    def list_outcomes(self, design: Design) -> dict[str, list[list[float]]]:
        """Return by arm the primary outcomes of each unit; it may have none yet."""
        found: dict[str, list[list[float]]] = {arm.name: [] for arm in design.arms}
        for unit in self.units.values():
            found[unit.arm].append([v[design.primary] for v in unit.requests if design.primary in v])
        return found

    def count_unfinished(self) -> Counter[str]:
        """Count by arm the units that have a request of which nothing was measured."""
        return Counter(unit.arm for unit in self.units.values() if any("error" not in v for v in unit.requests))


def merge_rows(design: Design, rows: Iterable[ExposureRow | None]) -> MergedLogs:
    """Join rows to units; the result is the same whatever the order of the rows.

    A unit counts once; one seen in two arms does not count. A row that is not of this experiment, not well formed, or
    None (torn) is counted and passed over.
    """
    counts: Counter[str] = Counter()
    used = _UsedRows()
    for row in rows:
        counts["torn" if row is None else "rows"] += 1
        if row is not None and row.get("experiment") != design.id:
            counts["foreign"] += 1
        elif row is not None:
            try:
                used.add_row(design, row)
            except (KeyError, TypeError, ValueError, AttributeError):
                counts["malformed"] += 1
    exposures: dict[str, tuple[float, str, str]] = {}  # request: when first, arm, unit
    for at, arm, unit, request in sorted(used.exposures):
        exposures.setdefault(request, (at, arm, unit))
    requests = dict(sorted(used.traces, reverse=True))  # trace id: the first of its requests
    values: dict[str, dict[str, float]] = {}
    for _, value, key, name in sorted(used.values):  # the last value counts
        values.setdefault(requests.get(key, key), {})[name] = value
    dated = {(requests.get(key, key), at) for at, _, key, _ in used.values}
    seen: dict[str, list[tuple[float, str, str]]] = {}
    for request, (at, arm, unit) in exposures.items():
        seen.setdefault(unit, []).append((at, request, arm))
    whole = {unit: sorted(found) for unit, found in sorted(seen.items()) if len({arm for *_, arm in found}) == 1}
    units = {unit: ExposedUnit(f[0][2], tuple(values.get(key, {}) for _, key, _ in f)) for unit, f in whole.items()}
    accounting = LogAccounting(
        **counts,
        duplicates=len(used.exposures) - len(exposures),
        crossed=len(seen) - len(whole),
        unmatched=len({key for *_, key, _ in used.values if requests.get(key, key) not in exposures}),
        skewed=len({request for request, at in dated if request in exposures and at < exposures[request][0]}),
        keys=len(used.keys),
    )
    return MergedLogs(units, accounting)


@dataclass(slots=True)
class _UsedRows:
    """What the rows that can be used say."""

    exposures: list[tuple[float, str, str, str]] = field(default_factory=list)  # when, arm, unit, request
    traces: set[tuple[str, str]] = field(default_factory=set)  # trace id, request
    values: list[tuple[float, float, str, str]] = field(default_factory=list)  # when, value, request or trace id, name
    keys: set[str] = field(default_factory=set)

    def add_row(self, design: Design, row: ExposureRow) -> None:
        kind, at = row["kind"], float(row["ts"])
        if kind == "opened":
            if row["design"] != design.seal:
                raise ValueError("of another design")
            self.keys.add(row["key"])
        elif kind == "exposure":
            if (row["arm"], row["digest"]) not in [(arm.name, arm.digest) for arm in design.arms]:
                raise ValueError("of another version")
            self.exposures.append((at, row["arm"], str(row["unit"]), str(row["request"])))
        else:
            key = str(row["request"])
            found = [(at, float(value), key, name) for name, value in row["values"].items()]
            if not all(math.isfinite(value) for _, value, *_ in found):
                raise ValueError("not a number")
            if trace := str(row.get("trace", "")):
                self.traces.add((trace, key))
            self.values += found


@dataclass(frozen=True, slots=True)
class SizeMismatch:
    """Units of each arm against the weights."""

    counts: tuple[int, ...]
    expected: tuple[float, ...]  # units that the weights promise, by arm
    log10_e: float  # the evidence that the weights do not hold
    p: float  # the familiar chi-square p of a single look, to print beside the evidence
    found: bool  # whether the arms have the wrong sizes


@dataclass(frozen=True, slots=True)
class GuardCheck:
    """A challenger against the control on one guard."""

    guard: str
    arm: str
    control: tuple[int, int]  # units that breach the guard, and units that do not; so of the challenger
    challenger: tuple[int, int]
    log10_e: float  # the evidence that the two breach it at different rates
    needed: float  # the evidence at which the experiment is halted
    broken: bool  # whether the challenger breaches it more often than the control, beyond doubt


@dataclass(frozen=True, slots=True)
class ArmReport:
    """What one arm did."""

    arm: str
    version: str
    units: int
    measured: int
    mean: float | None  # the mean primary outcome of a request; None without any
    unfinished: int
    """Units with a request that neither was answered nor failed: it runs still, or its caller or process is gone."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """A challenger's primary outcome against the control's."""

    arm: str
    difference: float
    ci: tuple[float, float] | None  # the interval, which holds at every look; None while it is endless
    verdict: Literal["better", "worse", "undecided"]  # whether the interval leaves out zero, and on which side


def compare_sizes(design: Design, merged: MergedLogs) -> SizeMismatch:
    """Compare the arms' sizes with what their weights promise."""
    from scipy.stats import chisquare

    counts = merged.count_exposed(design)
    expected = tuple(sum(counts) * weight / sum(design.weights) for weight in design.weights)
    log_e = float(log_e_multinomial(counts, design.weights))
    p = float(chisquare(counts, expected).pvalue) if sum(counts) else 1.0
    return SizeMismatch(tuple(counts), expected, log_e / math.log(10), p, log_e >= MISMATCH)


def check_guards(design: Design, merged: MergedLogs) -> list[GuardCheck]:
    """Check every guard for every challenger; they share the design's alpha."""
    found = []
    needed = math.log10(max(1, len(design.guards) * len(design.challengers)) / design.alpha)
    for guard in design.guards:
        control = count_breaches(guard, merged, design.control.name)
        for arm in design.challengers:
            challenger = count_breaches(guard, merged, arm.name)
            failed, fine = zip(control, challenger, strict=True)
            log10_e = float(log_e_rates(failed, fine, (design.control.weight, arm.weight))) / math.log(10)
            shares = [bad / max(1, bad + good) for bad, good in (control, challenger)]
            broken = log10_e >= needed and shares[1] > shares[0]
            found.append(GuardCheck(str(guard), arm.name, control, challenger, log10_e, needed, broken))
    return found


def count_breaches(guard: MetricGuard, merged: MergedLogs, arm: str) -> tuple[int, int]:
    """Count an arm's units that breach a guard, and those measured that do not."""
    failed = fine = 0
    for unit in (unit for unit in merged.units.values() if unit.arm == arm):
        measured = [guard.breached(values[guard.metric]) for values in unit.requests if guard.metric in values]
        failed += any(measured)
        fine += bool(measured) and not any(measured)
    return failed, fine


def compare_arms(design: Design, merged: MergedLogs) -> tuple[list[ArmReport], list[Contrast]]:
    """Return what each arm did, and each challenger against the control."""
    outcomes, unfinished = merged.list_outcomes(design), merged.count_unfinished()
    moments = {arm: Moments.from_outcomes(users) for arm, users in outcomes.items()}
    arms = [
        ArmReport(
            arm=arm.name,
            version=arm.version,
            units=len(outcomes[arm.name]),
            measured=int(moments[arm.name].units),
            mean=float(moments[arm.name].mean()) if moments[arm.name].units else None,
            unfinished=unfinished[arm.name],
        )
        for arm in design.arms
    ]
    binary = all(value in {0.0, 1.0} for users in outcomes.values() for user in users for value in user)
    return arms, [_contrast_arm(design, moments, arm, binary) for arm in design.challengers]


def _contrast_arm(design: Design, moments: Mapping[str, Moments], arm: ArmDesign, binary: bool) -> Contrast:
    alpha, horizon = design.alpha / len(design.challengers), choose_horizon(design.max_units)
    control, challenger = moments[design.control.name], moments[arm.name]
    mean, reach = map(float, compare_means(control, challenger, alpha=alpha, horizon=horizon, binary=binary))
    interval = None if math.isinf(reach) else (mean - reach, mean + reach)
    if abs(mean) <= reach:
        return Contrast(arm.name, mean, interval, "undecided")
    return Contrast(arm.name, mean, interval, "better" if (mean > 0) != (design.primary in COSTS) else "worse")


def average_measures(design: Design, merged: MergedLogs) -> dict[str, dict[str, float]]:
    """Return by name and arm the mean over requests of what was recorded."""
    totals: dict[str, dict[str, list[float]]] = {}
    for unit in merged.units.values():
        for name, value in (pair for values in unit.requests for pair in values.items()):
            totals.setdefault(name, {}).setdefault(unit.arm, []).append(value)
    names = [arm.name for arm in design.arms]
    return {name: {arm: fmean(by[arm]) for arm in names if arm in by} for name, by in sorted(totals.items())}


def warn_of_missing(design: Design, merged: MergedLogs) -> Iterator[str]:
    """Yield a warning where one arm lacks outcomes or answers more than another."""
    outcomes, unfinished = merged.list_outcomes(design), merged.count_unfinished()
    measured = [sum(map(bool, outcomes[arm.name])) for arm in design.arms]
    left = [unfinished[arm.name] for arm in design.arms]
    for counts, text in (
        (measured, "outcomes came from {} units: the missing ones may be what differs"),
        (left, "questions were begun and never finished by {} units"),
    ):
        if float(log_e_multinomial(counts, design.weights)) >= MISMATCH:
            by_arm = (f"{n} of {arm.name}'s" for n, arm in zip(counts, design.arms, strict=True))
            yield text.format(" and ".join(by_arm))
