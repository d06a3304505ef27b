"""What each arm of an online A/B test did: its size, outcomes, measured means and guards, and how the arms compare."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from optimize.abtest.aggregation import Merged, Values
from optimize.abtest.sequential import Moments, difference, horizon_of, log_e_multinomial, log_e_rates
from optimize.evaluation.comparison import LOWER_IS_BETTER
from program.serve.experiment_design import ArmDesign, Design, MetricGuard

COSTS = LOWER_IS_BETTER | {"latency_s", "error", "fallback", "clarify", "abstain"}
MISMATCH = 1000.0
"""The evidence from which the arms' sizes count as wrong: under the right weights once in 1,000 experiments."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Units an arm against the weights."""

    counts: tuple[int, ...]
    expected: tuple[float, ...]
    log_e: float

    @property
    def found(self) -> bool:
        return self.log_e >= math.log(MISMATCH)


@dataclass(frozen=True, slots=True)
class GuardCheck:
    """A challenger against the control on one guard: units that breach it and units that do not, in each."""

    guard: MetricGuard
    arm: str
    control: tuple[int, int]
    challenger: tuple[int, int]
    log_e: float
    needed: float

    @property
    def broken(self) -> bool:
        """True when the challenger breaches it more often than the control, beyond doubt."""
        return self.log_e >= self.needed and _share(self.challenger) > _share(self.control)


@dataclass(frozen=True, slots=True)
class ArmReport:
    """One arm: units exposed, units with an outcome, the mean outcome of their requests, and units with a request that
    was begun and neither answered nor failed: it still runs, its caller gave up, or its process died."""

    arm: str
    version: str
    units: int
    measured: int
    mean: float | None
    unfinished: int


@dataclass(frozen=True, slots=True)
class Contrast:
    """A challenger's primary outcome minus the control's; the interval holds at every look; None: endless."""

    arm: str
    difference: float
    ci: tuple[float, float] | None
    verdict: Literal["better", "worse", "undecided"]


def mismatch(design: Design, merged: Merged) -> Mismatch:
    """Compare the arms' sizes with what their weights promise."""
    counts = merged.exposed(design)
    whole = sum(design.weights)
    expected = tuple(sum(counts) * weight / whole for weight in design.weights)
    return Mismatch(tuple(counts), expected, float(log_e_multinomial(counts, design.weights)))


def guard_checks(design: Design, merged: Merged) -> list[GuardCheck]:
    """Check every guard for every challenger, the design's alpha shared out among them."""
    pairs = [(guard, arm) for guard in design.guards for arm in design.challengers]
    return [_guard_check(design, merged, guard, arm, math.log(len(pairs) / design.alpha)) for guard, arm in pairs]


def breaches(units: Iterable[Iterable[Values]], guard: MetricGuard) -> tuple[int, int]:
    """Count units that breach a guard in at least one request, and units that were measured and never do."""
    failed = fine = 0
    for requests in units:
        measured = [guard.breached(values[guard.metric]) for values in requests if guard.metric in values]
        failed += any(measured)
        fine += bool(measured) and not any(measured)
    return failed, fine


def outcomes_of(design: Design, merged: Merged) -> dict[str, list[list[float]]]:
    """Return each arm's units with the primary outcomes of their requests; a unit may have none yet."""
    found: dict[str, list[list[float]]] = {arm.name: [] for arm in design.arms}
    for unit in merged.units.values():
        found[unit.arm].append([v[design.primary] for v in unit.requests if design.primary in v])
    return found


def unfinished_units(merged: Merged) -> Counter[str]:
    """Count by arm the units that have a request of which nothing was measured."""
    return Counter(unit.arm for unit in merged.units.values() if any("error" not in v for v in unit.requests))


def contrasts_of(design: Design, merged: Merged) -> tuple[list[ArmReport], list[Contrast]]:
    """Return what each arm did, and each challenger against the control."""
    outcomes = outcomes_of(design, merged)
    unfinished = unfinished_units(merged)
    moments = {arm: Moments.of(users) for arm, users in outcomes.items()}
    arms = [
        ArmReport(
            arm.name,
            arm.version,
            len(outcomes[arm.name]),
            int(moments[arm.name].units),
            float(moments[arm.name].mean()) if moments[arm.name].units else None,
            unfinished[arm.name],
        )
        for arm in design.arms
    ]
    binary = all(value in {0.0, 1.0} for users in outcomes.values() for user in users for value in user)
    return arms, [_contrast(design, moments, arm, binary) for arm in design.challengers]


def _contrast(design: Design, moments: dict[str, Moments], arm: ArmDesign, binary: bool) -> Contrast:
    alpha = design.alpha / len(design.challengers)
    mean, reach = map(
        float,
        difference(
            moments[design.control.name],
            moments[arm.name],
            alpha=alpha,
            horizon=horizon_of(design.max_units),
            binary=binary,
        ),
    )
    if math.isinf(reach):
        return Contrast(arm.name, mean, None, "undecided")
    good = mean if design.primary not in COSTS else -mean
    verdict: Literal["better", "worse", "undecided"] = (
        "undecided" if abs(mean) <= reach else "better" if good > 0 else "worse"
    )
    return Contrast(arm.name, mean, (mean - reach, mean + reach), verdict)


def measures_of(design: Design, merged: Merged) -> dict[str, dict[str, float]]:
    """Return the mean over requests of everything that was measured or recorded, by name and arm."""
    totals: dict[str, dict[str, list[float]]] = {}
    for unit in merged.units.values():
        for name, value in ((name, value) for values in unit.requests for name, value in values.items()):
            totals.setdefault(name, {}).setdefault(unit.arm, []).append(value)
    order = [arm.name for arm in design.arms]
    return {
        name: {arm: math.fsum(by_arm[arm]) / len(by_arm[arm]) for arm in order if arm in by_arm}
        for name, by_arm in sorted(totals.items())
    }


def _guard_check(
    design: Design, merged: Merged, guard: MetricGuard, challenger: ArmDesign, needed: float
) -> GuardCheck:
    arms = (design.control, challenger)
    counted = [
        breaches((unit.requests for unit in merged.units.values() if unit.arm == arm.name), guard) for arm in arms
    ]
    failed, fine = zip(*counted, strict=True)
    evidence = float(log_e_rates(failed, fine, [arm.weight for arm in arms]))
    return GuardCheck(guard, challenger.name, counted[0], counted[1], evidence, needed)


def _share(counts: tuple[int, int]) -> float:
    return counts[0] / max(1, sum(counts))
