"""What each arm of an online A/B test did: its outcomes, its measured means, and how the challengers compare."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from optimize.comparison import LOWER_IS_BETTER
from optimize.sequential import Moments, difference, horizon_of
from program.design import ArmDesign, Design
from program.tally import Merged, Values

COSTS = LOWER_IS_BETTER | {"latency_s", "error", "fallback", "clarify", "abstain"}


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


def outcomes_of(design: Design, merged: Merged) -> dict[str, list[list[float]]]:
    """Each arm's units with the primary outcomes of their requests; a unit may have none yet."""
    found: dict[str, list[list[float]]] = {arm.name: [] for arm in design.arms}
    for unit in merged.units.values():
        found[unit.arm].append([v[design.primary] for v in unit.requests if design.primary in v])
    return found


def unfinished_units(merged: Merged) -> Counter[str]:
    """Units an arm that have a request of which nothing was measured."""
    return Counter(unit.arm for unit in merged.units.values() if any("error" not in v for v in unit.requests))


def contrasts_of(design: Design, merged: Merged) -> tuple[list[ArmReport], list[Contrast]]:
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
    if design.shadow:
        return arms, []
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
    """The mean over requests of everything that was measured or recorded, by name and arm; a shadow's too."""
    totals: dict[str, dict[str, list[float]]] = {}
    for unit in merged.units.values():
        seen: Mapping[str, tuple[Values, ...]] = {unit.arm: unit.requests, **unit.shadows}
        for arm, requests in seen.items():
            for name, value in ((name, value) for values in requests for name, value in values.items()):
                totals.setdefault(name, {}).setdefault(arm, []).append(value)
    order = [arm.name for arm in design.arms]
    return {
        name: {arm: math.fsum(by_arm[arm]) / len(by_arm[arm]) for arm in order if arm in by_arm}
        for name, by_arm in sorted(totals.items())
    }
