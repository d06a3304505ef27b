"""Online A/B tests from the outside: start one, stop one, look how it goes, and report the verdict.

A look ends an experiment that must end: nothing in the service does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import orjson

from optimize.abtest.aggregation import Accounting, Merged, merge
from optimize.abtest.arms import (
    COSTS,
    MISMATCH,
    ArmReport,
    Contrast,
    GuardCheck,
    Mismatch,
    contrasts_of,
    guard_checks,
    measures_of,
    mismatch,
    outcomes_of,
    unfinished_units,
)
from optimize.abtest.sequential import log_e_multinomial
from optimize.registry.versions import hold_lock
from program.errors import ExperimentError
from program.serve import manifest, reference
from program.serve.experiment_design import (
    DESIGN,
    EXPERIMENTS,
    ArmDesign,
    Design,
    ExperimentState,
    MetricGuard,
    end_experiment,
    experiment_folder,
    read_design,
    read_state,
)
from program.serve.exposures import log_files, read_rows
from program.settings import artifacts_root
from program.storage import write_whole

Verdict = Literal["better", "worse", "halted", "no_detectable_difference", "undecided"]
ALPHA = 0.05
REPORT = "report.json"
EXIT_CODES: dict[Verdict, int] = {
    "better": 0,
    "worse": 1,
    "halted": 1,
    "no_detectable_difference": 3,
    "undecided": 3,
}


def start(
    name: str,
    arms: Mapping[str, str],
    *,
    weights: Sequence[float] = (),
    primary: str,
    guards: Sequence[str] = (),
    max_units: int,
    include: float = 1.0,
    artifacts: str | Path | None = None,
) -> Design:
    """Begin an experiment: from now on every process that opens it assigns by this design, which never changes.

    `arms` are letters with references, the control first; `weights` default to equal ones. `primary` is an outcome
    that the service will record (more is better, unless its name is a cost), `guards` are such as "latency_s<=3".
    Raises `ExperimentError` when the design cannot work or the name is taken, `VersionError` or `IntegrityError` when
    a version is not there or not sound.
    """
    folder = experiment_folder(name, artifacts)
    weights = tuple(weights) or (1.0,) * len(arms)
    _check(arms, weights, primary, max_units, include)
    design = Design(
        id=folder.name,
        arms=tuple(_arm(n, ref, w, artifacts) for (n, ref), w in zip(arms.items(), weights, strict=True)),
        primary=primary,
        guards=tuple(MetricGuard.parse(text) for text in guards),
        include=include,
        max_units=max_units,
        alpha=ALPHA,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    with hold_lock(artifacts_root(artifacts), EXPERIMENTS):
        if (folder / DESIGN).exists():
            raise ExperimentError(
                f"There is an experiment {design.id} already.", "A design never changes: choose another name."
            )
        folder.mkdir(exist_ok=True)
        write_whole(folder / DESIGN, design.content())
    return read_design(name, artifacts)[1]


def stop(name: str, reason: str = "", artifacts: str | Path | None = None) -> ExperimentState:
    """Send everyone to the control, for good. One that has ended before stays as it ended."""
    folder, _ = read_design(name, artifacts)
    return end_experiment(folder, "stopped", reason or "stopped by hand")


@dataclass(frozen=True, slots=True)
class Look:
    """What the logs of an experiment say now, and its state after this look."""

    folder: Path
    design: Design
    state: ExperimentState
    merged: Merged
    mismatch: Mismatch
    guards: tuple[GuardCheck, ...]
    files: int

    @property
    def units(self) -> int:
        return len(self.merged.units)


def look(name: str, artifacts: str | Path | None = None, logs: Sequence[str | Path] = ()) -> Look:
    """Read the logs of an experiment, and end it when it must end.

    It is halted by a guard that a challenger breaks, by arms of the wrong sizes and by logs of several keys; it is
    complete when it has seen its units. `logs` are further folders of exposure files, copied from other hosts.
    Raises `ExperimentError` when there is no such experiment or folder, `IntegrityError` when its design was changed.
    """
    folder, design = read_design(name, artifacts)
    if missing := [str(place) for place in logs if not Path(place).is_dir()]:
        raise ExperimentError(f"{', '.join(missing)} is not a folder.", "Name folders of exposures-*.jsonl files.")
    files = [path for place in (folder, *map(Path, logs)) for path in log_files(place)]
    merged = merge(design, chain.from_iterable(map(read_rows, files)))
    sizes, checks = mismatch(design, merged), guard_checks(design, merged)
    state = _conclude(folder, design, merged, sizes, checks)
    return Look(folder, design, state, merged, sizes, tuple(checks), len(files))


def look_at_all(artifacts: str | Path | None = None) -> list[Look]:
    """Look at every experiment below the artifacts folder, by name."""
    found = sorted((artifacts_root(artifacts) / EXPERIMENTS).glob(f"*/{DESIGN}"))
    return [look(path.parent.name, artifacts) for path in found]


@dataclass(frozen=True, slots=True)
class OnlineReport:
    """What an experiment says now. `proposal` is a command for a person to run, or not; nothing is promoted."""

    design: Design
    state: ExperimentState
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
    proposal: str

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `ragc ab report --json`."""
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
            "accounting": {"files": self.files, **asdict(self.accounting)},
            "proposal": self.proposal,
        }


def report(name: str, artifacts: str | Path | None = None, logs: Sequence[str | Path] = ()) -> OnlineReport:
    """Make the report of a look, and keep it as `report.json`. Raises what `look` raises."""
    seen = look(name, artifacts, logs)
    design, merged = seen.design, seen.merged
    arms, contrasts = contrasts_of(design, merged)
    warnings = tuple(_warnings(design, merged))
    verdict, reason = _verdict(seen.state, contrasts, warnings)
    found = OnlineReport(
        design=design,
        state=seen.state,
        verdict=verdict,
        reason=reason,
        arms=tuple(arms),
        contrasts=tuple(contrasts),
        measures=measures_of(design, merged),
        mismatch=seen.mismatch,
        mismatch_p=_chi_square(seen.mismatch),
        guards=seen.guards,
        warnings=warnings,
        accounting=merged.accounting,
        files=seen.files,
        proposal=_proposal(design, contrasts) if verdict == "better" else "",
    )
    write_whole(seen.folder / REPORT, orjson.dumps(found.as_dict(), option=orjson.OPT_INDENT_2))
    return found


def _conclude(
    folder: Path, design: Design, merged: Merged, sizes: Mismatch, checks: Sequence[GuardCheck]
) -> ExperimentState:
    """Return the experiment's state, after ending it if the logs say that it must end."""
    state = read_state(folder)
    if not state.running:
        return state
    if reason := _halt_reason(merged, sizes, checks):
        return end_experiment(folder, "halted", reason)
    if len(merged.units) >= design.max_units:
        return end_experiment(folder, "complete", f"{len(merged.units)} units were seen")
    return state


def _halt_reason(merged: Merged, sizes: Mismatch, checks: Sequence[GuardCheck]) -> str:
    """Say why to send everyone to the control, or nothing."""
    if merged.accounting.keys > 1:
        return f"the logs were written with {merged.accounting.keys} keys, so a unit has more than one pseudonym"
    if sizes.found:
        counts = ", ".join(f"{n} instead of {e:.0f}" for n, e in zip(sizes.counts, sizes.expected, strict=True))
        return f"sample ratio mismatch: {counts} units"
    return "; ".join(
        f"{check.arm} breaks {check.guard} more often than the control" for check in checks if check.broken
    )


def _warnings(design: Design, merged: Merged) -> Iterator[str]:
    """Yield what makes the comparison doubtful without halting anything."""
    outcomes, unfinished = outcomes_of(design, merged), unfinished_units(merged)
    measured = [sum(map(bool, outcomes[arm.name])) for arm in design.arms]
    left = [unfinished[arm.name] for arm in design.arms]
    if float(log_e_multinomial(measured, design.weights)) >= math.log(MISMATCH):
        yield f"outcomes came from {_by_arm(design, measured)} units: the missing ones may be what differs"
    if float(log_e_multinomial(left, design.weights)) >= math.log(MISMATCH):
        yield f"questions were begun and never finished by {_by_arm(design, left)} units"


def _by_arm(design: Design, counts: Sequence[int]) -> str:
    return " and ".join(f"{n} of {arm.name}'s" for n, arm in zip(counts, design.arms, strict=True))


def _verdict(state: ExperimentState, contrasts: Sequence[Contrast], warnings: Sequence[str]) -> tuple[Verdict, str]:
    if state.status == "halted":
        return "halted", state.reason
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
    """Return the command that promotes the challenger with the highest lower end."""
    sign = -1 if design.primary in COSTS else 1
    best = max(
        (c for c in contrasts if c.verdict == "better" and c.ci), key=lambda c: min(sign * end_ for end_ in c.ci or ())
    )
    version = next(arm.version for arm in design.arms if arm.name == best.arm)
    return f"ragc promote {version} --to production --reason {design.id}"


def _chi_square(sizes: Mismatch) -> float:
    """Return the familiar p of the arms' sizes at a single look, to print beside the evidence."""
    if not sum(sizes.counts) or not all(sizes.expected):
        return 1.0
    from scipy.stats import chisquare

    return float(chisquare(sizes.counts, sizes.expected).pvalue)


def _arm(name: str, ref: str, weight: float, artifacts: str | Path | None) -> ArmDesign:
    found = reference.resolve(ref, artifacts)
    if not found.version:
        raise ExperimentError(
            f"{ref} is a folder outside the registry.", "Name a published version, such as support@v8."
        )
    manifest.verify_folder(found.path, found.digest)
    return ArmDesign(name, str(found), found.digest, weight)


def _check(arms: Mapping[str, str], weights: Sequence[float], primary: str, max_units: int, include: float) -> None:
    problem = (
        ("an experiment needs two arms or more", "Name them: A=support@v7 B=support@v8")
        if len(arms) < 2
        else ("an arm's name is not one word", "Use letters: A=support@v7 B=support@v8")
        if not all(arm.isidentifier() for arm in arms)
        else (f"{len(weights)} weights do not fit {len(arms)} arms", "Give one a arm: --weights 90,10")
        if len(weights) != len(arms)
        else ("a weight is not above 0", "Leave an arm out that nobody is to get.")
        if not all(0 < weight < float("inf") for weight in weights)
        else ("no outcome was named to judge by", "Say which one the service records: --primary resolved")
        if not primary
        else ("--include is not above 0 and at most 1", "Give the share of users that take part.")
        if not 0 < include <= 1
        else ("--max-units is not above 0", "Say after how many users to give up.")
        if max_units < 1
        else None
    )
    if problem:
        what, mend = problem
        raise ExperimentError(f"{what[0].upper()}{what[1:]}.", mend)
