"""The report of an online A/B test: logs of all hosts merged, what holds them back, and the verdict in a word."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from optimize.arms import COSTS, ArmReport, Contrast, contrasts_of, measures_of, outcomes_of, unfinished_units
from program.design import Design, State, read_design
from program.eprocess import log_e_multinomial
from program.errors import ExperimentError
from program.exposures import LogReader
from program.manifest import write_whole
from program.safety import MISMATCH, GuardCheck, Mismatch, conclude, guard_checks, mismatch
from program.tally import Accounting, Merged, Tally

Verdict = Literal["better", "worse", "halted", "passed", "no_detectable_difference", "undecided"]
REPORT = "report.json"
EXIT_CODES: dict[Verdict, int] = {
    "better": 0,
    "passed": 0,
    "worse": 1,
    "halted": 1,
    "no_detectable_difference": 3,
    "undecided": 3,
}


@dataclass(frozen=True, slots=True)
class OnlineReport:
    """What an experiment says now. `proposal` is a command for a person to run, or not; nothing is promoted."""

    design: Design
    state: State
    verdict: Verdict
    reason: str
    arms: tuple[ArmReport, ...]
    contrasts: tuple[Contrast, ...]
    measures: Mapping[str, Mapping[str, float]]
    mismatch: Mismatch
    mismatch_p: float
    guards: tuple[GuardCheck, ...]
    warnings: tuple[str, ...]
    accounting: Accounting
    files: int
    torn: int
    proposal: str

    def as_dict(self) -> dict[str, Any]:
        """The shape of `ragc ab report --json`."""
        return {
            "experiment": self.design.id,
            "status": self.state.status,
            "verdict": self.verdict,
            "reason": self.reason,
            "primary": self.design.primary,
            "units": sum(self.mismatch.counts),
            "max_units": self.design.max_units,
            "arms": [asdict(arm) for arm in self.arms],
            "contrasts": [asdict(contrast) for contrast in self.contrasts],
            "measures": {name: dict(means) for name, means in self.measures.items()},
            "mismatch": {
                "expected": list(self.mismatch.expected),
                "log10_e": self.mismatch.log_e / math.log(10),
                "p": self.mismatch_p,
                "found": self.mismatch.found,
            },
            "guards": [
                {
                    "guard": str(check.guard),
                    "arm": check.arm,
                    "control": list(check.control),
                    "challenger": list(check.challenger),
                    "log10_e": check.log_e / math.log(10),
                    "broken": check.broken,
                }
                for check in self.guards
            ],
            "warnings": list(self.warnings),
            "accounting": {"files": self.files, "torn": self.torn, **asdict(self.accounting)},
            "proposal": self.proposal,
        }


def report(name: str, artifacts: str | Path | None = None, logs: Sequence[str | Path] = ()) -> OnlineReport:
    """The report now, also kept as `report.json`; it ends the experiment when that must end.

    `logs` are further folders of exposure files, copied from other hosts. Raises `ExperimentError` when there is no
    such experiment or folder, `IntegrityError` when its design was changed.
    """
    folder, design = read_design(name, artifacts)
    if missing := [str(place) for place in logs if not Path(place).is_dir()]:
        raise ExperimentError(f"{', '.join(missing)} is not a folder.", "Name folders of exposures-*.jsonl files.")
    readers = [LogReader(Path(place)) for place in (folder, *logs)]
    tally = Tally(design)
    for reader in readers:
        tally.add(reader.rows(last=True))
    merged = tally.merged()
    sizes, checks = mismatch(design, merged), guard_checks(design, merged)
    state = conclude(folder, design, merged, sizes, checks)
    arms, contrasts = contrasts_of(design, merged)
    warnings = list(_warnings(design, merged))
    verdict, reason = _verdict(design, state, contrasts, merged, warnings)
    found = OnlineReport(
        design=design,
        state=state,
        verdict=verdict,
        reason=reason,
        arms=tuple(arms),
        contrasts=tuple(contrasts),
        measures=measures_of(design, merged),
        mismatch=sizes,
        mismatch_p=_chi_square(sizes),
        guards=tuple(checks),
        warnings=tuple(warnings),
        accounting=merged.accounting,
        files=sum(reader.files for reader in readers),
        torn=sum(reader.torn for reader in readers),
        proposal=_proposal(design, contrasts) if verdict == "better" else "",
    )
    write_whole(folder / REPORT, orjson.dumps(found.as_dict(), option=orjson.OPT_INDENT_2))
    return found


def _warnings(design: Design, merged: Merged) -> Iterator[str]:
    """What makes the comparison doubtful without halting anything."""
    if design.shadow:
        return
    outcomes, unfinished = outcomes_of(design, merged), unfinished_units(merged)
    measured = [sum(map(bool, outcomes[arm.name])) for arm in design.arms]
    left = [unfinished[arm.name] for arm in design.arms]
    if float(log_e_multinomial(measured, design.weights)) >= math.log(MISMATCH):
        yield f"outcomes came from {_by_arm(design, measured)} units: the missing ones may be what differs"
    if float(log_e_multinomial(left, design.weights)) >= math.log(MISMATCH):
        yield f"questions were begun and never finished by {_by_arm(design, left)} units"


def _by_arm(design: Design, counts: Sequence[int]) -> str:
    return " and ".join(f"{n} of {arm.name}'s" for n, arm in zip(counts, design.arms, strict=True))


def _verdict(
    design: Design, state: State, contrasts: Sequence[Contrast], merged: Merged, warnings: Sequence[str]
) -> tuple[Verdict, str]:
    if state.status == "halted":
        return "halted", state.reason
    if design.shadow:
        seen = len(merged.units)
        passed = seen >= design.max_units
        return ("passed" if passed else "undecided"), f"{seen} of {design.max_units} units, no guard broken"
    if warnings:
        return "undecided", warnings[0]
    said = [contrast.verdict for contrast in contrasts]
    if "better" in said:
        return "better", ""
    if all(verdict == "worse" for verdict in said):
        return "worse", ""
    ended = not state.running
    return ("no_detectable_difference" if ended else "undecided"), (state.reason if ended else "it still runs")


def _proposal(design: Design, contrasts: Sequence[Contrast]) -> str:
    """The command that promotes the challenger with the highest lower end."""
    sign = -1 if design.primary in COSTS else 1
    best = max(
        (c for c in contrasts if c.verdict == "better" and c.ci), key=lambda c: min(sign * end_ for end_ in c.ci or ())
    )
    version = next(arm.version for arm in design.arms if arm.name == best.arm)
    return f"ragc promote {version} --to production --reason {design.id}"


def _chi_square(sizes: Mismatch) -> float:
    """The familiar p of the arms' sizes at a single look, to print beside the evidence."""
    if not sum(sizes.counts) or not all(sizes.expected):
        return 1.0
    from scipy.stats import chisquare

    return float(chisquare(sizes.counts, sizes.expected).pvalue)
