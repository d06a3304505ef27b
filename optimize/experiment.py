"""Online A/B tests from the outside: start one, stop one, see how it goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from optimize.registry import locked
from program import manifest, reference
from program.design import (
    DESIGN,
    EXPERIMENTS,
    ArmDesign,
    Design,
    Guard,
    State,
    end,
    experiment_folder,
    read_design,
    read_state,
)
from program.errors import ExperimentError
from program.exposures import LogReader
from program.tally import Tally

ALPHA = 0.05


def start(
    name: str,
    arms: Mapping[str, str],
    *,
    weights: Sequence[float] = (),
    primary: str = "",
    guards: Sequence[str] = (),
    max_units: int,
    include: float = 1.0,
    shadow: bool = False,
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
    _check(arms, weights, primary, max_units, include, shadow)
    design = Design(
        id=folder.name,
        arms=tuple(_arm(n, ref, w, artifacts) for (n, ref), w in zip(arms.items(), weights, strict=True)),
        primary=primary,
        guards=tuple(Guard.parse(text) for text in guards),
        include=include,
        max_units=max_units,
        shadow=shadow,
        alpha=ALPHA,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    with locked(reference.artifacts_root(artifacts), EXPERIMENTS):
        if (folder / DESIGN).exists():
            raise ExperimentError(
                f"There is an experiment {design.id} already.", "A design never changes: choose another name."
            )
        folder.mkdir(exist_ok=True)
        manifest.write_whole(folder / DESIGN, design.content())
    return read_design(name, artifacts)[1]


def stop(name: str, reason: str = "", artifacts: str | Path | None = None) -> State:
    """Send everyone to the control, for good. One that has ended before stays as it ended."""
    folder, _ = read_design(name, artifacts)
    return end(folder, "stopped", reason or "stopped by hand")


@dataclass(frozen=True, slots=True)
class Progress:
    """An experiment, whether it runs, and how many units it has seen."""

    design: Design
    state: State
    units: int


def progress(name: str, artifacts: str | Path | None = None) -> Progress:
    """How far an experiment is. Raises `ExperimentError` when there is none."""
    folder, design = read_design(name, artifacts)
    tally = Tally(design)
    tally.add(LogReader(folder).rows(last=True))
    return Progress(design, read_state(folder), len(tally.merged().units))


def experiments(artifacts: str | Path | None = None) -> list[Progress]:
    """Every experiment below the artifacts folder, by name."""
    found = sorted((reference.artifacts_root(artifacts) / EXPERIMENTS).glob(f"*/{DESIGN}"))
    return [progress(path.parent.name, artifacts) for path in found]


def _arm(name: str, ref: str, weight: float, artifacts: str | Path | None) -> ArmDesign:
    found = reference.resolve(ref, artifacts)
    if not found.version:
        raise ExperimentError(
            f"{ref} is a folder outside the registry.", "Name a published version, such as support@v8."
        )
    manifest.verify(found.path, found.digest)
    return ArmDesign(name, str(found), found.digest, weight)


def _check(
    arms: Mapping[str, str], weights: Sequence[float], primary: str, max_units: int, include: float, shadow: bool
) -> None:
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
        if not primary and not shadow
        else ("nobody sees a shadow, so no outcome comes of it", "Judge it by guards: leave --primary out.")
        if primary and shadow
        else ("--include is not above 0 and at most 1", "Give the share of users that take part.")
        if not 0 < include <= 1
        else ("--max-units is not above 0", "Say after how many users to give up.")
        if max_units < 1
        else None
    )
    if problem:
        what, mend = problem
        raise ExperimentError(f"{what[0].upper()}{what[1:]}.", mend)
