"""`ragc ab`: versions put to the test against each other, on labelled questions or on live traffic."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optimize.cli.offline import offline
from optimize.cli.registry import DEFAULT_ARTIFACTS, Artifacts
from optimize.cli.show import Json, print_json, print_table
from program.errors import ExperimentError

if TYPE_CHECKING:
    from optimize.abtest.online import Look, OnlineReport

Name = Annotated[str, typer.Argument(help="The experiment, such as exp-2026-11-refunds; exp- may be left out.")]
Logs = Annotated[
    list[Path] | None, typer.Option(help="A further folder of exposure files, from another host. May be repeated.")
]


def register(app: typer.Typer) -> None:
    """Add `ab` and its verbs."""
    ab = typer.Typer(no_args_is_help=True, help="Versions put to the test against each other.")
    for verb in (offline, start, status, stop, report):
        ab.command()(verb)
    app.add_typer(ab, name="ab")


def start(
    name: Name,
    arms: Annotated[list[str], typer.Argument(help="A=support@v7 B=support@v8: the control first.")],
    max_units: Annotated[int, typer.Option(help="Give up after this many users.")],
    primary: Annotated[str, typer.Option(help="The outcome, recorded by the service, that the verdict is on.")],
    weights: Annotated[str, typer.Option(help="Shares of the arms, such as 90,10; equal when left out.")] = "",
    guard: Annotated[
        list[str] | None,
        typer.Option(help='What every answer should keep to, such as "latency_s<=3" or "error<=0". May be repeated.'),
    ] = None,
    include: Annotated[float, typer.Option(help="The share of users that take part.")] = 1.0,
    artifacts: Artifacts = DEFAULT_ARTIFACTS,
    json: Json = False,
) -> None:
    """Begin an experiment. Services take part with `program.Experiment.open(NAME)`."""
    from optimize.abtest.online import start as begin

    design = begin(
        name,
        _arms(arms),
        weights=_weights(weights),
        primary=primary,
        guards=guard or (),
        max_units=max_units,
        include=include,
        artifacts=artifacts,
    )
    if json:
        print_json(asdict(design))
        return
    typer.echo(f"{design.id} began: " + ", ".join(f"{a.name} {a.version} ({a.weight:g})" for a in design.arms))
    typer.echo(f'In the service: Experiment.open("{design.id}"). Then: ragc ab report {design.id}')


def status(
    name: Annotated[str, typer.Argument(help="One experiment; all when left out.")] = "",
    artifacts: Artifacts = DEFAULT_ARTIFACTS,
    json: Json = False,
) -> None:
    """Look at experiments, end those that must end, and list them all. Exit code 1 when one was halted."""
    from optimize.abtest.online import look, look_at_all

    found = [look(name, artifacts)] if name else look_at_all(artifacts)
    if json:
        print_json([_status(one) for one in found])
    else:
        columns = ("experiment", "status", "units", "arms", "since", "reason")
        print_table("experiments", columns, [_row(one) for one in found])
    raise typer.Exit(int(any(one.state.status == "halted" for one in found)))


def stop(
    name: Name,
    reason: Annotated[str, typer.Option(help="Why, for the record.")] = "",
    artifacts: Artifacts = DEFAULT_ARTIFACTS,
    json: Json = False,
) -> None:
    """Send everyone to the control, for good."""
    from optimize.abtest.online import stop as end

    state = end(name, reason, artifacts)
    if json:
        print_json(asdict(state))
    else:
        typer.echo(f"{state.status}: {state.reason}")


def report(name: Name, logs: Logs = None, artifacts: Artifacts = DEFAULT_ARTIFACTS, json: Json = False) -> None:
    """Look at an experiment, end it if it must end, and report, as often as you like.

    Exit code 0: a challenger is better. 1: worse, or halted. 3: nothing can be said (yet).
    """
    from optimize.abtest.online import EXIT_CODES
    from optimize.abtest.online import report as made

    found = made(name, artifacts, logs or ())
    if json:
        print_json(found.as_dict())
    else:
        _print_page(found)
    raise typer.Exit(EXIT_CODES[found.verdict])


def _status(found: Look) -> dict[str, Any]:
    design = found.design
    arms = [{"name": arm.name, "version": arm.version, "weight": arm.weight} for arm in design.arms]
    counts = {"units": found.units, "max_units": design.max_units}
    return {"experiment": design.id, "created_at": design.created_at, "arms": arms, **counts, **asdict(found.state)}


def _row(found: Look) -> tuple[str, ...]:
    design, state = found.design, found.state
    arms = " / ".join(f"{arm.name} {arm.version}" for arm in design.arms)
    units = f"{found.units} of {design.max_units}"
    return design.id, state.status, units, arms, design.created_at, state.reason


def _print_page(found: OnlineReport) -> None:
    typer.echo(f"{found.design.id}: {found.verdict.replace('_', ' ')}" + (f" ({found.reason})" if found.reason else ""))
    contrasts = {contrast.arm: contrast for contrast in found.contrasts}
    rows = []
    for arm, expected in zip(found.arms, found.mismatch.expected, strict=True):
        contrast = contrasts.get(arm.arm)
        ends = contrast.ci if contrast else None
        rows.append(
            (
                f"{arm.arm} {arm.version}",
                f"{arm.units}",
                f"{expected:.0f}",
                f"{arm.measured}",
                "-" if arm.mean is None else f"{arm.mean:.4g}",
                "control" if contrast is None else f"{contrast.difference:+.4g}",
                f"[{ends[0]:+.4g}, {ends[1]:+.4g}]" if ends else "-",
            )
        )
    columns = ("arm", "units", "by weight", "with outcome", found.design.primary, "difference", "95 % at every look")
    print_table("arms", columns, rows)
    if found.guards:
        guards = [
            (f"{c.guard} ({c.arm})", _share(c.control), _share(c.challenger), f"{c.log_e:.1f}", f"{c.needed:.1f}")
            for c in found.guards
        ]
        print_table("units that break a guard", ("guard", "control", "challenger", "log e", "halts at"), guards)
    names = [arm.arm for arm in found.arms]
    means = [
        (name, *(f"{by_arm[arm]:.4g}" if arm in by_arm else "-" for arm in names))
        for name, by_arm in found.measures.items()
    ]
    print_table("means over requests", ("measure", *names), means)
    counted = ", ".join(f"{n} {what}" for what, n in asdict(found.accounting).items() if n and what != "keys")
    typer.echo(f"read: {found.files} files" + (f", {counted}" if counted else ""))
    for warning in found.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if found.proposal:
        typer.echo(f"proposed, not done: {found.proposal}")


def _share(counts: tuple[int, int]) -> str:
    return f"{counts[0]} of {sum(counts)}"


def _arms(given: list[str]) -> dict[str, str]:
    pairs = [arm.partition("=") for arm in given]
    found = {name: ref for name, _, ref in pairs}
    if len(found) < len(pairs) or not all(name and ref for name, _, ref in pairs):
        raise ExperimentError(f"{' '.join(given)[:80]!r} does not name arms.", "Write A=support@v7 B=support@v8.")
    return found


def _weights(given: str) -> list[float]:
    try:
        return [float(part) for part in given.split(",") if part.strip()]
    except ValueError as error:
        raise ExperimentError(f"{given[:80]!r} is not a list of weights.", "Write --weights 90,10.") from error
