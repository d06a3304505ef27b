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

from ragc.errors import ExperimentError, IntegrityError, VersionError
from ragc.optimize.abtest import arm_statistics
from ragc.optimize.abtest.sequential import log_e_multinomial
from ragc.optimize.registry.versions import hold_lock, open_published
from ragc.serve import experiment_store as store
from ragc.settings import artifacts_root
from ragc.storage import read_json_rows, write_whole

OnlineVerdict = Literal["better", "worse", "halted", "no_detectable_difference", "undecided"]
ALPHA = 0.05
REPORT = "report.json"
EXIT_CODES = {"better": 0, "worse": 1, "halted": 1, "no_detectable_difference": 3, "undecided": 3}


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
) -> store.Design:
    """Begin an experiment; every process that opens it assigns by its design.

    `arms` are letters with references, the control first; `weights` default to equal ones. `primary` is an outcome
    that the service will record (more is better, unless its name is a cost), `guards` are such as "latency_s<=3".
    Raises `ExperimentError` when the design cannot work or the name is taken, `VersionError` or `IntegrityError` when
    a version is not there or not sound.
    """
    folder = store.experiment_folder(name, artifacts)
    weights = tuple(weights) or (1.0,) * len(arms)
    _require_design(arms, weights, primary, max_units, include)
    sealed = {name: open_published(ref, artifacts) for name, ref in arms.items()}
    if len({(one.kind, one.name) for one in sealed.values()}) > 1:
        named = [f"{n} {one.label} ({'your own code' if one.kind else 'a project'})" for n, one in sealed.items()]
        what = f"The arms are versions of different programs: {', '.join(named)}."
        raise ExperimentError(what, "Name versions of one: A=support@v7 B=support@v8")
    pairs = zip(sealed.items(), weights, strict=True)
    design = store.Design(
        id=folder.name,
        arms=tuple(store.ArmDesign(name, str(one), one.digest, weight) for (name, one), weight in pairs),
        primary=primary,
        guards=tuple(store.MetricGuard.parse(text) for text in guards),
        include=include,
        max_units=max_units,
        alpha=ALPHA,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    with hold_lock(artifacts_root(artifacts), store.EXPERIMENTS):
        if (folder / store.DESIGN).exists():
            what = f"There is an experiment {design.id} already."
            raise ExperimentError(what, "A design never changes: choose another name.")
        folder.mkdir(exist_ok=True)
        write_whole(folder / store.DESIGN, design.content())
    return store.read_design(name, artifacts)[1]


def stop_experiment(name: str, reason: str = "", artifacts: str | Path | None = None) -> store.ExperimentState:
    """Send everyone to the control, for good; one that has ended stays as it ended."""
    folder, _ = store.read_design(name, artifacts)
    return store.end_experiment(folder, "stopped", reason or "stopped by hand")


@dataclass(frozen=True, slots=True)
class OnlineReport:
    """What the logs of an experiment say now, and its state after this look."""

    design: store.Design
    state: store.ExperimentState
    verdict: OnlineVerdict
    reason: str  # why it was halted, or why nothing can be said
    arms: tuple[arm_statistics.ArmReport, ...]  # the control first
    measures: Mapping[str, Mapping[str, float]]  # means over requests, by name and arm
    guards: tuple[arm_statistics.GuardCheck, ...]
    warnings: tuple[str, ...]  # what makes the comparison doubtful without halting it
    accounting: arm_statistics.LogAccounting
    files: int

    @property
    def units(self) -> int:
        """Units that count."""
        return sum(arm.units for arm in self.arms)

    @property
    def proposal(self) -> str:
        """The command, for a person to run, that promotes the best challenger."""
        if self.verdict != "better":
            return ""
        sign = -1 if self.design.primary in arm_statistics.COSTS else 1
        ends = {
            arm.version: min(sign * end for end in arm.ci) for arm in self.arms if arm.verdict == "better" and arm.ci
        }
        return f"ragc promote {max(ends, key=ends.__getitem__)} --to production --reason {self.design.id}"

    def as_dict(self) -> dict[str, Any]:
        """Return the shape of `ragc experiment report --json`."""
        figures = asdict(self)
        design, state = figures.pop("design"), figures.pop("state")
        named = {"experiment": design["id"], **{key: design[key] for key in ("primary", "max_units")}}
        return {**named, "status": state["status"], "units": self.units, **figures, "proposal": self.proposal}


def look_at_experiment(name: str, artifacts: str | Path | None = None, logs: Sequence[str | Path] = ()) -> OnlineReport:
    """Read the logs of an experiment, and end it when it must end.

    It is halted by a guard that a challenger breaks, by arms of the wrong sizes and by logs of several keys; it is
    complete when it has seen its units. `logs` are further folders of exposure files, copied from other hosts.
    Raises `ExperimentError` when there is no such experiment or folder, `IntegrityError` when its design was changed.
    """
    folder, design = store.read_design(name, artifacts)
    if missing := [str(place) for place in logs if not Path(place).is_dir()]:
        raise ExperimentError(f"{', '.join(missing)} is not a folder.", "Name folders of exposures-*.jsonl files.")
    files = [path for place in (folder, *map(Path, logs)) for path in store.log_files(place)]
    merged = arm_statistics.merge_rows(design, chain.from_iterable(map(read_json_rows, files)))
    arms, guards = arm_statistics.compare_arms(design, merged), arm_statistics.check_guards(design, merged)
    state = store.read_state(folder)
    if state.running and (reason := _find_halt_reason(design, merged, arms, guards)):
        state = store.end_experiment(folder, "halted", reason)
    if state.running and len(merged.units) >= design.max_units:
        seen = "1 unit was seen" if len(merged.units) == 1 else f"{len(merged.units)} units were seen"
        state = store.end_experiment(folder, "complete", seen)
    warnings = arm_statistics.warn_of_missing(design, arms)
    verdict, reason = _decide_verdict(state, arms, warnings)
    for arm in design.arms:
        try:
            store.find_arm(arm, artifacts)
        except (VersionError, IntegrityError) as error:
            warnings.append(str(error))
    return OnlineReport(
        design=design,
        state=state,
        verdict=verdict,
        reason=reason,
        arms=tuple(arms),
        measures=arm_statistics.average_measures(design, merged),
        guards=tuple(guards),
        warnings=tuple(warnings),
        accounting=merged.accounting,
        files=len(files),
    )


def look_at_experiments(artifacts: str | Path | None = None) -> list[OnlineReport]:
    """Look at every experiment below the artifacts folder, by name."""
    found = sorted((artifacts_root(artifacts) / store.EXPERIMENTS).glob(f"*/{store.DESIGN}"))
    return [look_at_experiment(path.parent.name, artifacts) for path in found]


def report_experiment(name: str, artifacts: str | Path | None = None, logs: Sequence[str | Path] = ()) -> OnlineReport:
    """Look at an experiment, and keep the report as `report.json`."""
    found = look_at_experiment(name, artifacts, logs)
    write_whole(
        store.experiment_folder(name, artifacts) / REPORT, orjson.dumps(found.as_dict(), option=orjson.OPT_INDENT_2)
    )
    return found


def _find_halt_reason(
    design: store.Design,
    merged: arm_statistics.MergedLogs,
    arms: Sequence[arm_statistics.ArmReport],
    guards: Sequence[arm_statistics.GuardCheck],
) -> str:
    """Return why everyone must get the control, or nothing."""
    if (keys := merged.accounting.keys) > 1:
        return f"the logs were written with {keys} keys, so a unit has more than one pseudonym"
    if float(log_e_multinomial([arm.units for arm in arms], design.weights)) >= arm_statistics.MISMATCH:
        return f"sample ratio mismatch: {', '.join(f'{a.units} instead of {a.expected:.0f}' for a in arms)} units"
    return "; ".join(f"{one.arm} breaks {one.guard} more often than the control" for one in guards if one.broken)


def _decide_verdict(
    state: store.ExperimentState, arms: Sequence[arm_statistics.ArmReport], warnings: Sequence[str]
) -> tuple[OnlineVerdict, str]:
    if state.status == "halted":
        return "halted", state.reason
    if warnings:
        return "undecided", warnings[0]
    verdicts = [arm.verdict for arm in arms[1:]]
    if "better" in verdicts:
        return "better", ""
    if set(verdicts) == {"worse"}:
        return "worse", ""
    return ("undecided", "it still runs") if state.running else ("no_detectable_difference", state.reason)


def _require_design(
    arms: Mapping[str, str], weights: Sequence[float], primary: str, max_units: int, include: float
) -> None:
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
        (
            not store.is_name_of_outcome(primary),
            f"{primary[:40]!r} is no outcome to judge by.",
            "Name one that the service records, in letters, digits and underscores: --primary resolved",
        ),
        (not 0 < include <= 1, "--include is not above 0 and at most 1.", "Give the share of users that take part."),
        (max_units < 1, "--max-units is not above 0.", "Say after how many users to give up."),
    ):
        if wrong:
            raise ExperimentError(what, mend)
