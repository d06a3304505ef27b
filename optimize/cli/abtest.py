"""`ragc compare` and `experiment`: versions put to the test, on labelled questions and on live traffic."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from ragc.errors import DataError, ExperimentError
from ragc.optimize.cli import show

if TYPE_CHECKING:
    from ragc.optimize.abtest.offline import OfflineTest
    from ragc.optimize.abtest.online import OnlineReport
    from ragc.serve.experiment_store import Design

ExperimentName = Annotated[str, Argument(metavar="NAME", help="Such as exp-2026-11-refunds; exp- may be left out.")]


def run_compare(
    refs: Annotated[list[str], Argument(metavar="REF...", help="The control, then those that are to be better.")],
    against: Annotated[
        str, Option(help="The control of a single REF: an alias or number of the same name, or NAME@...")
    ] = "production",
    metric: Annotated[str, Option(help="What the verdict is on; MODULE:FUNCTION beside --program.")] = "utility",
    data: Annotated[Path | None, Option(help="Ask all versions anew, on this labelled file.")] = None,
    point: Annotated[str, Option(help="Operating point; other than balanced is asked anew.")] = "balanced",
    repeats: Annotated[int, Option(min=1, help="Ask anew, each question so often, and average.")] = 1,
    guard: Annotated[
        list[str] | None,
        Option(help="May get worse by at most, as wrong:0.02 or seconds:25%; exit code 1 if breached."),
    ] = None,
    html: Annotated[Path | None, Option(help="Write a page with the intervals and changed answers.")] = None,
    md: Annotated[bool, Option("--md", help="Print Markdown, for the summary of a step of CI.")] = False,
    project: show.Moved = None,
    program: show.Program = "",
    all_: show.All = False,
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
) -> None:
    """Compare versions with the one in use, question by question.

    Sealed scores are compared, of the documents of then; --data asks all anew, over those of now. Exit code 0: one is
    better. 1: none is and one is worse, or breaches a --guard. 3: no detectable difference.
    """
    from ragc.optimize.abtest.offline import Asking, compare_offline
    from ragc.optimize.evaluation.comparison import PRIMARY, parse_margin
    from ragc.serve.artifact import DEFAULT_POINT

    if len(refs) == 1:
        refs = [against if "@" in against else f"{refs[0].partition('@')[0]}@{against}", *refs]
    margins = [parse_margin(text) for text in guard or ()]
    show.refuse_beside("--program", program, point=point != DEFAULT_POINT, project=project)
    with show.show_progress("asking") as advance:
        asking = None
        if program:
            from ragc.optimize.compiler.tasks.examples import import_task
            from ragc.optimize.compiler.tasks.module import compare_anew, open_version

            task = import_task(program, data, metric, "--data FILE")
            tasks = [open_version(ref, *task, artifacts) for ref in refs]
            asked = [example.question for example in tasks[0].examples]
            asking = Asking(asked, partial(compare_anew, tasks, repeats, advance), metric)
        found = compare_offline(
            refs,
            PRIMARY if program else metric,
            asking=asking,
            data=data,
            point=point,
            repeats=repeats,
            margins=margins,
            root=artifacts,
            project=project,
            progress=advance,
        )
    if html is not None:
        _write_page(html, found)
    shape = {**asdict(found.arms[0]), "warnings": found.warnings, "looks": found.looks}
    if md and not show.AS_JSON.get():
        names = ", ".join(map(show.escape_markdown, refs[1:]))
        typer.echo(f"### {names} against {show.escape_markdown(refs[0])}\n")
    with show.print_markdown(md):
        show.print_result(shape if len(found.arms) == 1 else found, lambda: _print_arms(found, all_), found.exit_code)


def _print_arms(found: OfflineTest, all_: bool) -> None:
    for arm in found.arms:
        show.print_comparison(arm, arm.describe() if len(found.arms) == 1 else f"{arm.b}: {arm.describe()}", all_)
    typer.echo(show.describe_looks(found.looks, "These questions, or some of them, were"))
    show.print_warnings(found.warnings)


def _write_page(path: Path, found: OfflineTest) -> None:
    from ragc.optimize.report.page import render_ab_page

    try:
        path.write_text(render_ab_page(found), encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}.", "Name a file in a folder.") from error


def run_start(
    name: ExperimentName,
    arms: Annotated[list[str], Argument(help="A=support@v7 B=support@v8: the control first.")],
    max_units: Annotated[int, Option(help="Give up after this many users.")],
    primary: Annotated[str, Option(help="The outcome, recorded by the service, that the verdict is on.")],
    weights: Annotated[str, Option(help="Shares of the arms, such as 90,10; equal when left out.")] = "",
    guard: Annotated[
        list[str] | None, Option(help='What every answer should keep to, such as "latency_s<=3" or "error<=0".')
    ] = None,
    include: Annotated[float, Option(help="The share of users that take part.")] = 1.0,
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
) -> None:
    """Begin an experiment. Services take part with `ragc.Experiment.open(NAME)`."""
    from ragc.optimize.abtest.online import start_experiment

    design = start_experiment(
        name,
        _parse_arms(arms),
        weights=_parse_weights(weights),
        primary=primary,
        guards=guard or (),
        max_units=max_units,
        include=include,
        artifacts=artifacts,
    )
    began = f"{design.id} began: " + ", ".join(f"{a.name} {a.version} ({a.weight:g})" for a in design.arms)
    show.print_result(design, lambda: typer.echo(f"{began}\n{_tell_next(design, artifacts)}"))
    show.print_warnings(filter(None, [design.alike]))


def run_report(
    name: Annotated[str, Argument(metavar="[NAME]", help="One experiment; all are listed when left out.")] = "",
    logs: Annotated[list[Path] | None, Option(help="Another host's folder of exposure files.")] = None,
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
) -> None:
    """Report on an experiment, or list all. What must end is ended; look as often as you like.

    Exit code 0: a challenger is better. 1: worse, or halted. 3: nothing can be said (yet). Of a list, 1 if one halted.
    """
    from ragc.optimize.abtest.online import EXIT_CODES, look_at_experiments, report_experiment

    if not name:
        _print_list(look_at_experiments(artifacts))
        return
    found = report_experiment(name, artifacts, logs or ())
    show.print_result(found.as_dict(), lambda: _print_report(found), EXIT_CODES[found.verdict])


def run_stop(
    name: ExperimentName,
    reason: Annotated[str, Option(help="Why, for the record.")] = "",
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
) -> None:
    """Send everyone to the control, for good."""
    from ragc.optimize.abtest.online import stop_experiment

    state = stop_experiment(name, reason, artifacts)
    show.print_result(state, lambda: typer.echo(f"{state.status}: {state.reason}"))


def _tell_next(design: Design, artifacts: Path) -> str:
    """Return in lines how a service takes part, and what reports on it."""
    from ragc.serve.experiment_store import KEY, find_arm

    own, elsewhere = find_arm(design.control, artifacts).kind, show.name_artifacts(artifacts)
    given = [f'"{design.id}"', "make" if own else "", f'artifacts="{artifacts.resolve()}"' if elsewhere else ""]
    ways = f"Experiment.open({', '.join(filter(None, given))})"
    ways += "" if own else f", or: ragc serve {design.id}{elsewhere}"
    key = "" if os.environ.get(KEY) else f"Set one secret on every host: export {KEY}=$(openssl rand -hex 32)"
    lines = [key, f"In the service: {ways}", f"Then: ragc experiment report {design.id}{elsewhere}"]
    return "\n".join(filter(None, lines))


def _print_list(found: Sequence[OnlineReport]) -> None:
    rows, shapes = [], []
    for one, design, state in ((one, one.design, one.state) for one in found):
        arms = [{"name": arm.name, "version": arm.version, "weight": arm.weight} for arm in design.arms]
        counts = {"units": one.units, "max_units": design.max_units}
        opened = {"experiment": design.id, "created_at": design.created_at, "arms": arms}
        shapes.append({**opened, **counts, **asdict(state)})
        named = " / ".join(f"{arm.name} {arm.version}" for arm in design.arms)
        units = f"{one.units} of {design.max_units}"
        rows.append([design.id, state.status, units, named, design.created_at, state.reason])
    columns = ("experiment", "status", "units", "arms", "since", "reason")
    halted = any(one.state.status == "halted" for one in found)
    show.print_result(shapes, lambda: show.print_table("experiments", columns, rows), int(halted))


def _print_report(found: OnlineReport) -> None:
    from ragc.optimize.evaluation.stats import format_interval, format_number

    typer.echo(f"{found.design.id}: {found.verdict.replace('_', ' ')}" + (f" ({found.reason})" if found.reason else ""))
    arms = []
    for arm in found.arms:
        difference = format_number(arm.difference) if arm.verdict else "control"
        mean, interval = format_number(arm.mean, ".4g"), format_interval(arm.ci or ())
        name = f"{arm.arm} {arm.version}"
        arms.append([name, arm.units, f"{arm.expected:.0f}", arm.measured, mean, difference, interval])
    columns = ("arm", "units", "by weight", "with outcome", found.design.primary, "difference", "95 % at every look")
    show.print_table("arms", columns, arms)
    guards = []
    for check in found.guards:
        rates = (f"{failed} of {failed + fine}" for failed, fine in (check.control, check.challenger))
        guards.append([f"{check.guard} ({check.arm})", *rates, f"{check.log10_e:.1f}", f"{check.needed:.1f}"])
    show.print_table("units that break a guard", ("guard", "control", "challenger", "log10 e", "halts at"), guards)
    names = [arm.arm for arm in found.arms]
    means = [
        [name, *(f"{by_arm[arm]:.4g}" if arm in by_arm else None for arm in names)]
        for name, by_arm in found.measures.items()
    ]
    show.print_table("means over requests", ("measure", *names), means)
    counts = asdict(found.accounting)
    rest = [f"{counts[what]} {what}" for what in ("unusable", "crossed", "unmatched") if counts[what]]
    read = [show.count_noun(found.files, "file"), show.count_noun(found.accounting.rows, "row"), *rest]
    typer.echo(f"read: {', '.join(read)}")
    show.print_warnings([*filter(None, [found.design.alike]), *found.warnings])
    if found.proposal:
        typer.echo(f"proposed, not done: {found.proposal}")


def _parse_arms(given: Sequence[str]) -> dict[str, str]:
    """Read `A=support@v7`."""
    pairs = [arm.partition("=") for arm in given]
    found = {name: ref for name, _, ref in pairs}
    if len(found) < len(pairs) or not all(name and ref for name, _, ref in pairs):
        raise ExperimentError(f"{' '.join(given)[:80]!r} does not name arms.", "Write A=support@v7 B=support@v8.")
    return found


def _parse_weights(given: str) -> list[float]:
    """Read `90,10`."""
    try:
        return [float(part) for part in given.split(",") if part.strip()]
    except ValueError as error:
        raise ExperimentError(f"{given[:80]!r} is not a list of weights.", "Write --weights 90,10.") from error


VERBS, LIVE = (run_compare,), (run_start, run_report, run_stop)
