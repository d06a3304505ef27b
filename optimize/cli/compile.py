"""`ragc compile`: a live view while it works, a table at the end."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from optimize.cli import show
from optimize.cli.interruption import INTERRUPTED
from optimize.compiler import LEAST_SECONDS, MOST_CALLS, MOST_SEED, MOST_TRIALS
from program.errors import DataError, SettingsError

if TYPE_CHECKING:
    from optimize.compiler.search import Live
    from optimize.evaluation.outcome import Compiled
    from optimize.evaluation.stats import PairedResult
    from program.knowledge.project import Project


def _finite(value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no cap. Leave the option out for none.")
    return value


def _named(value: str | None) -> str | None:
    if value is not None and not value.strip():  # of a shell's variable that is not set
        raise typer.BadParameter("it is empty. Give a name, or leave the option out.")
    return value


def run_compile(
    project: Annotated[Path, Argument(help="The project folder, or MODULE:FUNCTION of a program of your own.")],
    trials: Annotated[
        int | None,
        Option(
            min=1,
            max=MOST_TRIALS,
            help="Settings proposed, besides the 9 that every search begins with; resumed: in all. Unless given, as"
            " many as train has questions: 20 to 60, or to 250 where no language model is asked.",
        ),
    ] = None,
    seed: Annotated[int | None, Option(min=0, max=MOST_SEED, help="Seed of the search; 0 unless given.")] = None,
    max_calls: Annotated[int | None, Option(min=1, max=MOST_CALLS, help="Model calls, never more.")] = None,
    max_usd: Annotated[float | None, Option(min=0, callback=_finite, help="US dollars, never more.")] = None,
    max_seconds: Annotated[float | None, Option(min=LEAST_SECONDS, callback=_finite, help="Seconds, no more.")] = None,
    risk: Annotated[
        float | None, Option(min=0.001, max=0.999, help="Prove that no more of the answers are wrong.")
    ] = None,
    jobs: Annotated[int | None, Option(min=1, help="Processes that share the work; one a core unless given.")] = None,
    resume: Annotated[bool, Option("--resume", help="Go on with the last study, under its caps.")] = False,
    study: Annotated[str | None, Option(callback=_named, help="Go on with this one instead.")] = None,
    origin: Annotated[str | None, Option("--from", callback=_named, help="The version to start from.")] = None,
    promote: Annotated[str | None, Option(callback=_named, help="Move this alias to it, if better.")] = None,
    data: Annotated[Path | None, Option(help="Of a program of your own: its examples, JSON Lines.")] = None,
    metric: Annotated[str, Option(help="Of a program of your own: MODULE:FUNCTION, in DSPy's form.")] = "",
    name: Annotated[str, Option(help="Of a program of your own: the name of its versions.")] = "",
    optimizer: Annotated[str, Option(help="ragc, or DSPy's: gepa, mipro, bootstrap, reanchor.")] = "ragc",
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
) -> None:
    """Compile a project, or your own program, into a new version."""
    from optimize.compiler.compile import compile_program, compile_project
    from optimize.compiler.tasks.examples import import_task, is_named
    from optimize.registry.aliases import promote_version, require_alias
    from program.knowledge.project import Project
    from program.models.embedded.encoder import count_threads

    if promote:
        require_alias(promote)
    options: dict[str, Any] = {"trials": trials, "seed": seed, "max_calls": max_calls, "max_usd": max_usd}
    options |= {"risk": risk} if risk is not None else {}
    options |= {"max_seconds": max_seconds, "resume": resume, "study": study or "", "origin": origin or ""}
    opened: Project | None = None
    if is_named(str(project)) and not project.exists():
        if jobs is not None or risk is not None:
            what = "A program of your own code is run in one process, and states no risk."
            raise SettingsError(what, "Leave --jobs and --risk out.")
        task = import_task(str(project), data, metric, "--name NAME --data FILE", name)
        run: Callable[..., Any] = partial(compile_program, *task, name=name, optimizer=optimizer, artifacts=artifacts)
        root = artifacts
    else:
        if data or metric or name or optimizer != "ragc":
            what = "--data, --metric, --name and --optimizer are for a program of your own code."
            raise SettingsError(what, "Name it as MODULE:FUNCTION.")
        opened = Project.open(project)
        run, root = partial(compile_project, opened, jobs=jobs or count_threads()), opened.artifacts
    begun: set[str] = set()

    def go_on() -> str:
        again = f"Go on with: ragc compile {shlex.quote(str(project))} --resume"
        return again if any(begun) else "Nothing was begun: start it again."

    try:
        left = "stopped at once; calls on their way are lost."
        with show.show_compile(lambda: f"{left} {go_on()}") as view:

            def watched(live: Live) -> None:
                begun.add(live.study)
                view(live)

            done = run(**options, watch=watched)
    except KeyboardInterrupt:
        typer.echo(f"stopped; nothing is lost. {go_on()}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if promote and done.ready:
        promote_version(done.reference, promote, reason="compiled: better", root=root)

    def tell() -> None:
        _print_compiled(done, opened)
        if promote:
            why = "the stated risk is not proved" if done.improved else "there is no detectable gain"
            told_of = f"is {done.reference} now" if done.ready else f"was not moved: {why}"
            typer.echo(f"The alias {promote} {told_of}.")

    shape = _shape(done) | ({"promoted": done.ready} if promote else {})
    show.print_result(shape, tell, 0 if done.ready else 3)


def run_seal(
    program: Annotated[str, Argument(metavar="MODULE:FUNCTION", help="What makes the program.")],
    state: Annotated[Path, Argument(help="The JSON that DSPy's program.save wrote.")],
    data: Annotated[Path, Option(help="Labelled examples, JSON Lines.")],
    metric: Annotated[str, Option(help="MODULE:FUNCTION, a metric in DSPy's form.")],
    name: Annotated[str, Option(help="The name of the program and its versions.")],
    parent: Annotated[str, Option(help="The version that it came from.")] = "",
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
) -> None:
    """Seal what another optimizer learned as a scored version."""
    from optimize.compiler.publish import seal_program
    from optimize.compiler.tasks.examples import import_function
    from program.serve.factory import make_program

    learned = make_program(import_function(program))
    try:
        learned.load(state)
    except Exception as error:  # DSPy raises what it likes
        what = f"{state} is no state of {program}: {type(error).__name__}: {error}."
        raise DataError(what, "Name the JSON that program.save(...) wrote.") from error
    with show.show_progress("asking the test questions"):
        reference = seal_program(
            learned, name=name, data=data, metric=import_function(metric), parent=parent, artifacts=artifacts
        )
    how = f'load("{reference}", {program.partition(":")[2]})'
    show.print_result({"version": reference}, lambda: typer.echo(f"{reference} is sealed. Load it: {how}"))


def run_worker(
    project: Annotated[Path, Argument(help="The project folder.")],
    study: Annotated[str | None, Option(callback=_named, help="The study to join, if not the last.")] = None,
    wait: Annotated[float, Option(min=0, help="Seconds to wait for the compile to say what is searched.")] = 1800,
) -> None:
    """Help a study that a compile began. It may be on another machine."""
    from optimize.compiler.compile import join_study
    from program.knowledge.project import Project

    with show.show_compile(lambda: "interrupted") as watch:
        added = join_study(Project.open(project), study or "", watch=watch, wait=wait)
    none = "No trial added: the study has all it was asked for, or all that its caps leave a worker."
    show.print_result(
        {"trials": added}, lambda: typer.echo(f"{show.count_noun(added, 'trial')} added" if added else none)
    )


def _shape(done: Compiled) -> dict[str, Any]:
    """Return the shape of `ragc compile --json`."""
    told = ("parent", "verdict", "better", "study", "trials", "calls", "stopped_by", "optimizer", "replayed")
    points = {name: {key: round(value, 6) for key, value in one.items()} for name, one in done.points.items()}
    return {
        "version": done.reference,
        **{name: getattr(done, name) for name in told},
        "gain": _gain(done.gain),
        "gain_over_plain": _gain(done.over_plain),
        "metrics": done.after.metrics(),
        "before": done.before.metrics(),
        "plain": done.plain.metrics() if done.plain else None,
        "seconds": round(done.seconds, 1),
        "usd": round(done.usd, 6),
        "test_looks": done.looks,
        "not_graded": dict(done.broken),
        "points": {name: {**one, "survived_folds": name in done.survived} for name, one in points.items()},
        "survived_folds": "balanced" in done.survived,
        "stages": list(done.stages),
        "asked": {name: list(counts) for name, counts in done.asked.items()},
        "label_warnings": list(done.doubts),
        "stood_in": done.stood_in,
        "risk": dict(done.risks),
        "risk_coverage": done.risk_coverage,
    }


def _gain(found: PairedResult | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"difference": found.difference, "ci": list(found.ci), "p": found.p, "n": found.n, "topics": found.topics}


def _over(found: PairedResult, what: str) -> str:
    from optimize.evaluation.stats import format_estimate

    return f"{format_estimate(found.difference, found.ci, '+.3f')} over {what}"


def _print_compiled(done: Compiled, project: Project | None) -> None:
    """Print what a compile came to; of a project also how to ask the version."""
    from optimize.evaluation.risk import describe_curves

    on = show.count_noun(len(done.after.grades), "test question" if project else "test example")
    sides = {"plain RAG": done.plain, "parent": done.before, "compiled": done.after}
    figures = {name: side.metrics() for name, side in sides.items() if side is not None}
    show.print_metrics(f"{done.reference} on {on}: percent or mean [95 % interval by topic]", figures, timed=False)
    plain = f"; {_over(done.over_plain, 'plain RAG')}" if done.over_plain else ""
    what = "utility, question by question" if project else "score, example by example"
    lines = [f"{what}: {_over(done.gain, done.parent)}: {done.verdict}{plain}"]
    if done.points:
        points = (f"{name} {one['utility']:.3f} at {one['calls']:.2f} calls" for name, one in done.points.items())
        lines.append(f"On {done.chosen_on}: {', '.join(points)}")
    lines += done.describe_risk() + ([describe_curves(done.risk_coverage)] if done.risk_coverage else [])
    calls = f"{show.count_noun(done.calls, 'model call')}, ${done.usd:.2f}"
    tried = f"{done.optimizer}: {show.count_noun(done.trials, 'setting')} tried in {done.seconds:.0f} s, {calls}"
    lines += [f"{tried}. {show.describe_looks(done.looks, 'This test split was')}", done.explain()]
    typer.echo("\n".join([*lines, *(_tell_ways(done, project) if project else [])]))
    if done.stopped_by or any(done.asked[name][0] < done.asked[name][1] for name in ("train", "dev") if done.asked):
        why = f"The cap on {done.stopped_by} was reached" if done.stopped_by else "Within its caps"
        of = {name: "{} of {}".format(*counts) for name, counts in done.asked.items()}
        asked = (
            f": {of['settings']} settings tried, searched on {of['train']} questions of train, chosen on {of['dev']}"
            f" questions of dev, tested on {of['test']} questions of test"
        )
        again = "A compile under a higher cap pays for nothing again."
        typer.echo(f"{why}{asked if of else ''}. {again}")
    for warning in _list_warnings(done, project):
        typer.echo(warning, err=True)


def _tell_ways(done: Compiled, project: Project) -> list[str]:
    """Return how the version is asked, and by what the folder is answered."""
    from program.settings import artifacts_root

    kept = shlex.quote(os.path.relpath(project.artifacts))
    elsewhere = "" if project.artifacts == artifacts_root() else f" --artifacts {kept}"
    return [
        f'Ask it: ragc ask {done.reference}{elsewhere} "your question"',
        f"`ragc ask {shlex.quote(str(project.folder))}` is answered by {_name_current(project)}.",
    ]


def _list_warnings(done: Compiled, project: Project | None) -> list[str]:
    found = [f"The labels hold {doubt}" for doubt in done.doubts]
    if project and not done.gain.enough_topics:
        check = f"ragc data check {shlex.quote(str(project.folder))}"
        found.append(f"Topics tested on: {done.gain.topics}, too few for any verdict ({check}).")
    if done.stood_in:
        found.append(
            f"For models that could not be reached or read a stand-in gave {show.count_noun(done.stood_in, 'answer')},"
            " on which rests what was chosen, too. Compile again when they can be; only what it answered is asked anew."
        )
    if not done.replayed:
        found.append("The program does not do the same twice, so each setting was run anew.")
    return [*found, *(f"not graded: {name} ({why})" for name, why in done.broken.items())]


def _name_current(project: Project) -> str:
    from program.serve.reference import find_current

    current = find_current(project.artifacts, project.name)
    return current.label if current else "the uncompiled program"


VERBS = (run_compile, run_seal, run_worker)
