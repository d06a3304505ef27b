"""What each arm of an online A/B test did: exposure logs joined to units, and how the arms compare."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal

from ragc.errors import ExperimentError
from ragc.optimize.abtest.sequential import Moments, choose_horizon, compare_means, log_e_multinomial, log_e_rates
from ragc.optimize.evaluation.comparison import LOWER_IS_BETTER
from ragc.serve.experiment_store import Design, MetricGuard, require_outcome

Values = Mapping[str, float]
Row = Mapping[str, Any]  # of an exposure log
COSTS = LOWER_IS_BETTER | {"latency_s", "error", "fallback", "clarify", "abstain", "failed"}
VALUED = ("measured", "outcome")  # the kinds of rows that hold values
MISMATCH = math.log(1000)
"""The log evidence from which arms count as of wrong size: under the right weights once in 1,000 experiments."""


@dataclass(frozen=True, slots=True)
class ExposedUnit:
    """A unit that was answered by one arm."""

    arm: str
    requests: tuple[Values, ...]  # the values of each, the first request first


@dataclass(frozen=True, slots=True)
class LogAccounting:
    """How many rows were read, and what could not be used."""

    rows: int
    unusable: int  # torn by a kill, not well formed, or of another experiment, design or version
    crossed: int  # units seen in two arms, which are left out
    unmatched: int  # requests with values and without an exposure
    keys: int  # keys that units were pseudonymised with; more than one gives a unit two names


@dataclass(frozen=True, slots=True)
class MergedLogs:
    """The units that count, by pseudonym."""

    units: Mapping[str, ExposedUnit]
    accounting: LogAccounting


def merge_rows(design: Design, rows: Iterable[Row | None]) -> MergedLogs:
    """Join rows to units; the result is the same whatever the order of the rows.

    A unit counts once; one seen in two arms does not count. A row that is not of this experiment, not well formed, or
    None (torn) is counted and passed over. The first exposure of a request counts, and the last value of a name.
    """
    read = list(rows)
    used = [row for row in read if row is not None and _is_usable(design, row)]
    exposures: dict[str, tuple[float, str, str]] = {}  # by request: when first, arm, unit
    exposed = (row for row in used if row["kind"] == "exposure")
    for at, arm, unit, request in sorted((r["ts"], r["arm"], r["unit"], r["request"]) for r in exposed):
        exposures.setdefault(request, (at, arm, unit))
    valued = [row for row in used if row["kind"] in VALUED]
    traced = {(row["trace"], row["request"]) for row in valued if row.get("trace")}
    requests: dict[str, str] = dict(sorted(traced, reverse=True))  # by trace id: the first of its requests
    values: dict[str, dict[str, float]] = {}
    found: list[tuple[float, float, str, str]] = sorted(
        (row["ts"], value, row["request"], name) for row in valued for name, value in row["values"].items()
    )
    for _, value, key, name in found:  # the last value counts
        values.setdefault(requests.get(key, key), {})[name] = value
    seen: dict[str, list[tuple[float, str, str]]] = {}
    for request, (at, arm, unit) in exposures.items():
        seen.setdefault(unit, []).append((at, request, arm))
    units = {
        unit: ExposedUnit(asked[0][2], tuple(values.get(request, {}) for _, request, _ in sorted(asked)))
        for unit, asked in sorted(seen.items())
        if len({arm for *_, arm in asked}) == 1
    }
    accounting = LogAccounting(
        rows=len(read),
        unusable=len(read) - len(used),
        crossed=len(seen) - len(units),
        unmatched=len(values.keys() - exposures.keys()),
        keys=len({row["key"] for row in used if row["kind"] == "opened"}),
    )
    return MergedLogs(units, accounting)


def _is_usable(design: Design, row: Row) -> bool:
    """Tell whether a row is well formed, and of this experiment, its design and its versions."""
    kind = row.get("kind")
    texts = {"opened": ["design", "key"], "exposure": ["request", "unit", "arm", "digest"]}
    names = texts.get(str(kind), ["request"])
    if row.get("experiment") != design.id or not _is_number(row.get("ts")):
        return False
    if not all(isinstance(row.get(name), str) for name in names) or not isinstance(row.get("trace", ""), str):
        return False
    if kind == "opened":
        return bool(row["design"] == design.seal)
    if kind == "exposure":
        return (row["arm"], row["digest"]) in [(arm.name, arm.digest) for arm in design.arms]
    values = row.get("values")
    if kind not in VALUED or not isinstance(values, dict) or not all(map(_is_number, values.values())):
        return False
    return kind == "measured" or all(map(_is_outcome, values.items()))


def _is_outcome(pair: tuple[str, float]) -> bool:
    """Tell whether somebody may have recorded that: no figure that is measured."""
    try:
        require_outcome(*pair)
    except ExperimentError:
        return False
    return True


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


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
    """What one arm did, and its primary outcome against the control's; the control has nothing to compare."""

    arm: str
    version: str
    units: int
    expected: float  # the units that the arm's weight promises
    measured: int  # units with a primary outcome
    mean: float | None  # the mean primary outcome of a request; None without any
    difference: float | None = None  # None for the control, and while one of the two has no unit with an outcome
    ci: tuple[float, float] | None = None  # the interval, which holds at every look; None while it is endless
    verdict: Literal["better", "worse", "undecided"] | None = None  # whether the interval leaves out zero, and where


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


def compare_arms(design: Design, merged: MergedLogs) -> list[ArmReport]:
    """Return what each arm did, the control first, the others against it."""
    outcomes: dict[str, list[list[float]]] = {arm.name: [] for arm in design.arms}  # of each unit, which may have none
    for unit in merged.units.values():
        outcomes[unit.arm].append([v[design.primary] for v in unit.requests if design.primary in v])
    moments = {arm: Moments.from_outcomes(users) for arm, users in outcomes.items()}
    binary = all(value in {0.0, 1.0} for users in outcomes.values() for user in users for value in user)
    alpha, horizon = design.alpha / len(design.challengers), choose_horizon(design.max_units)
    reports = []
    for arm in design.arms:
        own, units = moments[arm.name], len(outcomes[arm.name])
        expected = len(merged.units) * arm.weight / sum(design.weights)
        mean = float(own.mean()) if own.units else None
        report = ArmReport(arm.name, arm.version, units, expected, int(own.units), mean)
        if arm != design.control:
            report = replace(report, verdict="undecided")
            control = moments[design.control.name]
            if control.units and own.units:
                found = compare_means(control, own, alpha=alpha, horizon=horizon, binary=binary)
                report = replace(report, **_decide_contrast(design, *map(float, found)))
        reports.append(report)
    return reports


def _decide_contrast(design: Design, difference: float, reach: float) -> dict[str, Any]:
    interval = None if math.isinf(reach) else (difference - reach, difference + reach)
    gained = (difference > 0) != (design.primary in COSTS)
    verdict = "undecided" if abs(difference) <= reach else "better" if gained else "worse"
    return {"difference": difference, "ci": interval, "verdict": verdict}


def average_measures(design: Design, merged: MergedLogs) -> dict[str, dict[str, float]]:
    """Return by name and arm the mean over requests of what was recorded."""
    totals: dict[str, dict[str, list[float]]] = {}
    for unit in merged.units.values():
        for name, value in (pair for values in unit.requests for pair in values.items()):
            totals.setdefault(name, {}).setdefault(unit.arm, []).append(value)
    names = [arm.name for arm in design.arms]
    return {name: {arm: fmean(by[arm]) for arm in names if arm in by} for name, by in sorted(totals.items())}


def warn_of_missing(design: Design, arms: Sequence[ArmReport]) -> list[str]:
    """Return a warning where one arm lacks outcomes more than another."""
    if float(log_e_multinomial([arm.measured for arm in arms], design.weights)) < MISMATCH:
        return []
    by_arm = " and ".join(f"{arm.measured} of {arm.arm}'s" for arm in arms)
    return [f"outcomes came from {by_arm} units: the missing ones may be what differs"]
