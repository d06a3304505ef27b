"""Online A/B tests from the outside: start one, stop one, look how it goes, and report the verdict.

A look ends an experiment that must end: nothing in the service does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import orjson

from optimize.abtest.arm_statistics import (
    COSTS,
    ArmReport,
    Contrast,
    GuardCheck,
    LogAccounting,
    SizeMismatch,
    average_measures,
    check_guards,
    compare_arms,
    compare_sizes,
    merge_rows,
    warn_of_missing,
)
from optimize.registry.versions import hold_lock
from program.errors import ExperimentError
from program.serve import manifest, reference
from program.serve.experiment_store import (
    DESIGN,
    EXPERIMENTS,
    ArmDesign,
    Design,
    ExperimentState,
    MetricGuard,
    end_experiment,
    experiment_folder,
    log_files,
    read_design,
    read_exposures,
    read_state,
)
from program.settings import artifacts_root
from program.storage import write_whole

OnlineVerdict = Literal["better", "worse", "halted", "no_detectable_difference", "undecided"]
ALPHA = 0.05
REPORT = "report.json"
EXIT_CODES: dict[OnlineVerdict, int] = {
    "better": 0,
    "worse": 1,
    "halted": 1,
    "no_detectable_difference": 3,
    "undecided": 3,
}


def start_experiment(
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
    """Begin an experiment; every process that opens it assigns by its design.

    `arms` are letters with references, the control first; `weights` default to equal ones. `primary` is an outcome
    that the service will record (more is better, unless its name is a cost), `guards` are such as "latency_s<=3".
    Raises `ExperimentError` when the design cannot work or the name is taken, `VersionError` or `IntegrityError` when
    a version is not there or not sound.
    """
    folder = experiment_folder(name, artifacts)
    weights = tuple(weights) or (1.0,) * len(arms)
    _require_design(arms, weights, primary, max_units, include)
    design = Design(
        id=folder.name,
        arms=tuple(_design_arm(n, ref, w, artifacts) for (n, ref), w in zip(arms.items(), weights, strict=True)),
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


def stop_experiment(name: str, reason: str = "", artifacts: str | Path | None = None) -> ExperimentState:
    """Send everyone to the control, for good; one that has ended stays as it ended."""
    folder, _ = read_design(name, artifacts)
    return end_experiment(folder, "stopped", reason or "stopped by hand")


@dataclass(frozen=True, slots=True)
class OnlineReport:
    """What the logs of an experiment say now, and its state after this look."""

    folder: Path
    """The experiment's folder."""
    design: Design
    """The design as it was sealed."""
    state: ExperimentState
    """Whether it still runs; if not, why."""
    verdict: OnlineVerdict
    """What is known of the challengers."""
    reason: str
    """Why it was halted, or why nothing can be said."""
    arms: tuple[ArmReport, ...]
    """What each arm did."""
    contrasts: tuple[Contrast, ...]
    """Each challenger against the control."""
    measures: Mapping[str, Mapping[str, float]]
    """Means over requests, by name and arm."""
    mismatch: SizeMismatch
    """The arms' sizes against their weights."""
    guards: tuple[GuardCheck, ...]
    """Every guard, for every challenger."""
    warnings: tuple[str, ...]
    """What makes the comparison doubtful without halting it."""
    accounting: LogAccounting
    """Rows read, and what could not be used."""
    files: int
    """Exposure files read."""

    @property
    def units(self) -> int:
        """Units that count."""
        return sum(self.mismatch.counts)

    @property
    def proposal(self) -> str:
        """The command, for a person to run, that promotes the best challenger."""
        if self.verdict != "better":
            return ""
        sign = -1 if self.design.primary in COSTS else 1
        ends = {c.arm: min(sign * end_ for end_ in c.ci) for c in self.contrasts if c.verdict == "better" and c.ci}
        best = max(ends, key=ends.__getitem__)
        version = next(arm.version for arm in self.design.arms if arm.name == best)
        return f"ragc promote {version} --to production --reason {self.design.id}"

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `ragc ab report --json`."""
        return {
            "experiment": self.design.id,
            "status": self.state.status,
            "verdict": self.verdict,
            "reason": self.reason,
            "primary": self.design.primary,
            "units": self.units,
            "max_units": self.design.max_units,
            "arms": [asdict(arm) for arm in self.arms],
            "contrasts": [asdict(contrast) for contrast in self.contrasts],
            "measures": {name: dict(means) for name, means in self.measures.items()},
            "mismatch": {
                "expected": list(self.mismatch.expected),
                "log10_e": self.mismatch.log_e / math.log(10),
                "p": self.mismatch.p,
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


def look_at_experiment(name: str, artifacts: str | Path | None = None, logs: Sequence[str | Path] = ()) -> OnlineReport:
    """Read the logs of an experiment, and end it when it must end.

    It is halted by a guard that a challenger breaks, by arms of the wrong sizes and by logs of several keys; it is
    complete when it has seen its units. `logs` are further folders of exposure files, copied from other hosts.
    Raises `ExperimentError` when there is no such experiment or folder, `IntegrityError` when its design was changed.
    """
    folder, design = read_design(name, artifacts)
    if missing := [str(place) for place in logs if not Path(place).is_dir()]:
        raise ExperimentError(f"{', '.join(missing)} is not a folder.", "Name folders of exposures-*.jsonl files.")
    files = [path for place in (folder, *map(Path, logs)) for path in log_files(place)]
    merged = merge_rows(design, chain.from_iterable(map(read_exposures, files)))
    sizes, guards = compare_sizes(design, merged), tuple(check_guards(design, merged))
    state = read_state(folder)
    if state.running and (reason := _find_halt_reason(merged.accounting, sizes, guards)):
        state = end_experiment(folder, "halted", reason)
    if state.running and len(merged.units) >= design.max_units:
        state = end_experiment(folder, "complete", f"{len(merged.units)} units were seen")
    arms, contrasts = compare_arms(design, merged)
    warnings = tuple(warn_of_missing(design, merged))
    verdict, reason = _decide_verdict(state, contrasts, warnings)
    return OnlineReport(
        folder=folder,
        design=design,
        state=state,
        verdict=verdict,
        reason=reason,
        arms=tuple(arms),
        contrasts=tuple(contrasts),
        measures=average_measures(design, merged),
        mismatch=sizes,
        guards=guards,
        warnings=warnings,
        accounting=merged.accounting,
        files=len(files),
    )


def look_at_experiments(artifacts: str | Path | None = None) -> list[OnlineReport]:
    """Look at every experiment below the artifacts folder, by name."""
    found = sorted((artifacts_root(artifacts) / EXPERIMENTS).glob(f"*/{DESIGN}"))
    return [look_at_experiment(path.parent.name, artifacts) for path in found]


def report_experiment(name: str, artifacts: str | Path | None = None, logs: Sequence[str | Path] = ()) -> OnlineReport:
    """Look at an experiment, and keep the report as `report.json`."""
    found = look_at_experiment(name, artifacts, logs)
    write_whole(found.folder / REPORT, orjson.dumps(found.as_dict(), option=orjson.OPT_INDENT_2))
    return found


def _find_halt_reason(accounting: LogAccounting, sizes: SizeMismatch, guards: Sequence[GuardCheck]) -> str:
    """Return why everyone must get the control, or nothing."""
    if accounting.keys > 1:
        return f"the logs were written with {accounting.keys} keys, so a unit has more than one pseudonym"
    if sizes.found:
        counts = ", ".join(f"{n} instead of {e:.0f}" for n, e in zip(sizes.counts, sizes.expected, strict=True))
        return f"sample ratio mismatch: {counts} units"
    return "; ".join(
        f"{check.arm} breaks {check.guard} more often than the control" for check in guards if check.broken
    )


def _decide_verdict(
    state: ExperimentState, contrasts: Sequence[Contrast], warnings: Sequence[str]
) -> tuple[OnlineVerdict, str]:
    """Return the verdict and its reason."""
    if state.status == "halted":
        return "halted", state.reason
    if warnings:
        return "undecided", warnings[0]
    verdicts = [contrast.verdict for contrast in contrasts]
    if "better" in verdicts:
        return "better", ""
    if all(verdict == "worse" for verdict in verdicts):
        return "worse", ""
    return ("undecided", "it still runs") if state.running else ("no_detectable_difference", state.reason)


def _design_arm(name: str, ref: str, weight: float, artifacts: str | Path | None) -> ArmDesign:
    found = reference.resolve(ref, artifacts)
    if not found.version:
        raise ExperimentError(
            f"{ref} is a folder outside the registry.", "Name a published version, such as support@v8."
        )
    manifest.verify_folder(found.path, found.digest)
    return ArmDesign(name, str(found), found.digest, weight)


def _require_design(
    arms: Mapping[str, str], weights: Sequence[float], primary: str, max_units: int, include: float
) -> None:
    """Raise `ExperimentError` for a design that cannot work."""
    example = "A=support@v7 B=support@v8"
    for wrong, what, mend in (
        (len(arms) < 2, "An experiment needs two arms or more.", f"Name them: {example}"),
        (not all(map(str.isidentifier, arms)), "An arm's name is not one word.", f"Use letters: {example}"),
        (
            len(weights) != len(arms),
            f"{len(weights)} weights do not fit {len(arms)} arms.",
            "Give one a arm: --weights 90,10",
        ),
        (not all(0 < w < math.inf for w in weights), "A weight is not above 0.", "Leave an arm out that nobody gets."),
        (not primary, "No outcome was named to judge by.", "Say which one the service records: --primary resolved"),
        (not 0 < include <= 1, "--include is not above 0 and at most 1.", "Give the share of users that take part."),
        (max_units < 1, "--max-units is not above 0.", "Say after how many users to give up."),
    ):
        if wrong:
            raise ExperimentError(what, mend)
