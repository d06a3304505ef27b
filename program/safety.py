"""What halts an experiment without anyone deciding it: arms of the wrong size, and a guard that a challenger breaks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from program.design import Design, Guard, State, end, read_state
from program.eprocess import WIDE, log_e_multinomial, log_e_rates
from program.tally import Merged, breaches

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
    """A challenger against the control on one guard: units that breach it and units that do not, in each.

    In shadow mode both arms have answered the same units, and only units on which they differ are counted:
    `control` and `challenger` then hold those that only it breaches, and the rest.
    """

    guard: Guard
    arm: str
    control: tuple[int, int]
    challenger: tuple[int, int]
    log_e: float
    needed: float

    @property
    def broken(self) -> bool:
        """True when the challenger breaches it more often than the control, beyond doubt."""
        return self.log_e >= self.needed and _share(self.challenger) > _share(self.control)


def mismatch(design: Design, merged: Merged) -> Mismatch:
    """Whether the arms have the sizes that their weights promise; in shadow mode there is nothing to promise."""
    counts = merged.exposed(design)
    if design.shadow:
        return Mismatch(tuple(counts), tuple(map(float, counts)), 0.0)
    whole = sum(design.weights)
    expected = tuple(sum(counts) * weight / whole for weight in design.weights)
    return Mismatch(tuple(counts), expected, float(log_e_multinomial(counts, design.weights)))


def guard_checks(design: Design, merged: Merged) -> list[GuardCheck]:
    """Every guard for every challenger, the design's alpha shared out among them."""
    checks = len(design.guards) * len(design.challengers)
    compare = _shadowed if design.shadow else _served
    return [
        compare(design, merged, guard, n, math.log(checks / design.alpha))
        for guard in design.guards
        for n in range(1, len(design.arms))
    ]


def conclude(folder: Path, design: Design, merged: Merged, sizes: Mismatch, checks: Sequence[GuardCheck]) -> State:
    """The experiment's state, after ending it if the logs say that it must end."""
    state = read_state(folder)
    if not state.running:
        return state
    if reason := _halt_reason(merged, sizes, checks):
        return end(folder, "halted", reason)
    if len(merged.units) >= design.max_units:
        return end(folder, "complete", f"{len(merged.units)} units were seen")
    return state


def _halt_reason(merged: Merged, sizes: Mismatch, checks: Sequence[GuardCheck]) -> str:
    """Why to send everyone to the control, or nothing."""
    if merged.accounting.keys > 1:
        return f"the logs were written with {merged.accounting.keys} keys, so a unit has more than one pseudonym"
    if sizes.found:
        counts = ", ".join(f"{n} instead of {e:.0f}" for n, e in zip(sizes.counts, sizes.expected, strict=True))
        return f"sample ratio mismatch: {counts} units"
    return "; ".join(
        f"{check.arm} breaks {check.guard} more often than the control" for check in checks if check.broken
    )


def _served(design: Design, merged: Merged, guard: Guard, n: int, needed: float) -> GuardCheck:
    arms = (design.control, design.arms[n])
    counted = [
        breaches((unit.requests for unit in merged.units.values() if unit.arm == arm.name), guard) for arm in arms
    ]
    failed, fine = zip(*counted, strict=True)
    evidence = float(log_e_rates(failed, fine, [arm.weight for arm in arms]))
    return GuardCheck(guard, arms[1].name, counted[0], counted[1], evidence, needed)


def _shadowed(design: Design, merged: Merged, guard: Guard, n: int, needed: float) -> GuardCheck:
    """Under equal rates, a unit on which the two differ is as likely to be breached by either alone."""
    arm = design.arms[n].name
    only, asked = [0, 0], 0
    for unit in merged.units.values():
        pairs = [
            (a, b)
            for a, b in zip(unit.requests, unit.shadows[arm], strict=True)
            if guard.metric in a and guard.metric in b
        ]
        failed = [any(guard.breached(pair[side][guard.metric]) for pair in pairs) for side in (0, 1)]
        asked += bool(pairs)
        for side in (0, 1):
            only[side] += failed[side] and not failed[1 - side]
    evidence = float(log_e_multinomial(only, (1.0, 1.0), WIDE))
    return GuardCheck(guard, arm, (only[0], asked - only[0]), (only[1], asked - only[1]), evidence, needed)


def _share(counts: tuple[int, int]) -> float:
    return counts[0] / max(1, sum(counts))
