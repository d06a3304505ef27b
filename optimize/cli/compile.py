"""`ragc compile`: a live view while it works, a table at the end."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from ragc.errors import DataError, SettingsError
from ragc.optimize.cli import show
from ragc.optimize.cli.interruption import INTERRUPTED

if TYPE_CHECKING:
    from ragc.knowledge.project import Project
    from ragc.optimize.evaluation.outcome import Compiled
    from ragc.optimize.evaluation.stats import PairedResult

LONGEST = 200  # characters of why a question was not graded
OWN = "Of a program of your own"
FIRST = ("correct", "wrong", "utility")


def _named(value: str | None) -> str | None:
    if value is not None and not value.strip():  # of a shell's variable that is not set
        raise typer.BadParameter("it is empty. Give a name, or leave the option out.")
    return value


def run_compile(
    project: Annotated[Path, Argument(help="The project folder, or MODULE:FUNCTION of a program of your own.")],
    trials: Annotated[
        int | None, Option(help="Search too: sweep the knobs, then try so many settings that Optuna proposes.")
    ] = None,
    seed: Annotated[int | None, Option(help="Seed of the search; 0 unless given.")] = None,
    max_calls: Annotated[int | None, Option(help="Model calls, never more.")] = None,
    max_usd: Annotated[float | None, Option(help="US dollars, never more.")] = None,
    max_seconds: Annotated[float | None, Option(help="Seconds, no more.")] = None,
    risk: Annotated[
        float | None, Option(min=0.001, max=0.999, help="Prove that no more of the answers are wrong.")
    ] = None,
    jobs: Annotated[int | None, Option(min=1, help="Processes that share the work; one a core unless given.")] = None,
    origin: Annotated[str | None, Option("--from", callback=_named, help="The version to start from.")] = None,
    require: Annotated[
        show.Requirement | None, Option(help="Exit with 3 unless it is better than its parent, or no worse than it.")
    ] = None,
    promote: Annotated[str | None, Option(callback=_named, help="Move this alias to it, if better.")] = None,
    everything: Annotated[bool, Option("--all", help="Print every metric.")] = False,
    data: Annotated[Path | None, Option(help="Its examples, JSON Lines.", rich_help_panel=OWN)] = None,
    metric: Annotated[str, Option(help="MODULE:FUNCTION, in DSPy's form.", rich_help_panel=OWN)] = "",
    name: Annotated[str, Option(help="The name of its versions.", rich_help_panel=OWN)] = "",
    optimizer: Annotated[
        str, Option(help="ragc, or DSPy's: gepa, mipro, bootstrap, reanchor.", rich_help_panel=OWN)
    ] = "ragc",
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
) -> None:
    """Compile a project, or your own program, into a new version.

    The same command given again goes on where it was stopped: no call is made twice. Exit code 0 once a version is
    sealed, whatever came of it.
    """
    from ragc.knowledge.project import Project
    from ragc.models.embedded.encoder import count_threads
    from ragc.optimize.compiler.compile import compile_program, compile_project
    from ragc.optimize.compiler.tasks.examples import import_task, is_named
    from ragc.optimize.registry.aliases import promote_version, require_alias

    if promote:
        require_alias(promote)
    options: dict[str, Any] = {"trials": trials, "seed": seed, "max_calls": max_calls, "max_usd": max_usd}
    options |= {"max_seconds": max_seconds, "origin": origin or ""} | ({} if risk is None else {"risk": risk})
    own = {"data": data, "metric": metric, "name": name, "optimizer": "" if optimizer == "ragc" else optimizer}
    command = shlex.join(
        ["ragc", "compile", str(project), *(f"--{key}={value}" for key, value in own.items() if value)]
    )
    opened, run = None, None
    if is_named(str(project)) and not project.exists():
        if jobs is not None or risk is not None:
            what = "A program of your own code is run in one process, and states no risk."
            raise SettingsError(what, "Leave --jobs and --risk out.")
        task = import_task(str(project), data, metric, "--name NAME --data FILE", name)
        about: dict[str, Any] = {"name": name, "optimizer": optimizer, "artifacts": artifacts, "command": command}
        run, root = partial(compile_program, *task, **about), artifacts
    else:
        if any(own.values()):
            what = "--data, --metric, --name and --optimizer are for a program of your own code."
            raise SettingsError(what, "Name it as MODULE:FUNCTION.")
        opened = Project.open(project)
        run, root = partial(compile_project, opened, jobs=jobs or count_threads()), opened.artifacts
    again = "Give the same command again to go on."
    try:
        with show.show_compile(lambda: f"stopped at once; calls on their way are lost. {again}") as watch:
            done = run(**options, watch=watch)
    except KeyboardInterrupt:
        typer.echo(f"stopped; nothing is lost. {again}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    moved = bool(promote) and done.meets("better")
    if promote and moved:
        promote_version(done.reference, promote, reason="compiled: better", root=root)

    def tell() -> None:
        _print_compiled(done, opened, everything)
        if promote:
            why = "it is not proved to be better" if done.kept_risk else "the stated risk is not proved"
            why = why if done.usable else "a stand-in answered for its models"
            typer.echo(f"The alias {promote} {f'is {done.reference} now' if moved else f'was not moved: {why}'}.")

    shape = _shape(done) | ({"promoted": moved} if promote else {})
    show.print_result(shape, tell, 3 if require and not done.meets(require) else 0)


def run_seal(
    program: Annotated[str, Argument(metavar="MODULE:FUNCTION", help="What makes the program.")],
    state: Annotated[Path, Argument(help="The JSON that DSPy's program.save wrote.")],
    data: Annotated[Path, Option(help="Labelled examples, JSON Lines.")],
    metric: Annotated[str, Option(help="MODULE:FUNCTION, a metric in DSPy's form.")],
    name: Annotated[str, Option(help="The name of the program and its versions.")],
    parent: Annotated[str, Option(help="The version it is compared with; the one in use unless given.")] = "",
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
) -> None:
    """Seal what another optimizer learned as a scored version."""
    from ragc.optimize.compiler.publish import seal_program
    from ragc.optimize.compiler.tasks.examples import import_function
    from ragc.serve.factory import make_program

    make = import_function(program)
    learned = make_program(make)
    try:
        learned.load(state)
    except Exception as error:  # DSPy raises what it likes
        what = f"{state} is no state of {program}: {type(error).__name__}: {error}."
        raise DataError(what, "Name the JSON that program.save(...) wrote.") from error
    with show.show_progress("asking the test questions"):
        reference = seal_program(
            learned, name=name, data=data, metric=import_function(metric), make=make, parent=parent, artifacts=artifacts
        )
    how = f'load("{reference}", {program.partition(":")[2]})'
    show.print_result({"version": reference}, lambda: typer.echo(f"{reference} is sealed. Load it: {how}"))


def _shape(done: Compiled) -> dict[str, Any]:
    """Return the shape of `ragc compile --json`."""
    plain = ("parent", "verdict", "stage", "trials", "calls", "reused", "stopped_by", "optimizer", "replayed")
    return {
        "version": done.reference,
        **{name: getattr(done, name) for name in (*plain, "stood_in", "stood_for")},
        "gain": _gain(done.gain),
        "gain_over_plain": _gain(done.over_plain),
        "metrics": done.after.metrics(),
        "before": done.before.metrics(),
        "plain": done.plain.metrics() if done.plain else None,
        "seconds": round(done.seconds, 1),
        "usd": round(done.usd, 6),
        "test_looks": done.looks,
        "not_graded": dict(done.broken),
        "points": dict(done.points),
        "stages": list(done.stages),
        "untried": list(done.untried),
        "asked": {name: list(counts) for name, counts in done.asked.items()},
        "label_warnings": list(done.doubts),
        "losses": [{"id": grade.id, "question": grade.question, "stage": stage} for stage, grade in done.losses],
        "risk": dict(done.risks),
        "risk_coverage": done.risk_coverage,
    }


def _gain(found: PairedResult | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"difference": found.difference, "ci": list(found.ci), "p": found.p, "n": found.n, "topics": found.topics}


def _print_compiled(done: Compiled, project: Project | None, everything: bool) -> None:
    """Print what a compile came to, the sentence first; of a project also how to ask the version."""
    from ragc.optimize.evaluation.risk import describe_curves

    sealed = "was sealed before, and the same compile comes to it again" if done.repeated else "is sealed"
    typer.echo(f"{done.reference} {sealed}. {done.explain()}")
    sides = {"plain RAG": done.plain, "parent": done.before, "compiled": done.after}
    figures = {name: side.metrics() for name, side in sides.items() if side is not None}
    on = show.count_noun(len(done.after.grades), "test question" if project else "test example")
    title = f"{on}: percent or mean [95 % interval by topic]{'' if everything else '; every metric: --all'}"
    show.print_metrics(title, figures, timed=False, only=() if everything else FIRST)
    lines = done.describe_risk() + ([describe_curves(done.risk_coverage)] if done.risk_coverage and everything else [])
    asked = f"{show.count_noun(done.calls, 'call')} of language models (US$ {done.usd:.2f})" if done.calls else ""
    paid = ", ".join(filter(None, [asked, f"{done.reused:,} replies from the record" if done.reused else ""]))
    tried = f"{done.optimizer}: {show.count_noun(done.trials, 'setting')} scored in {done.seconds:.0f} s"
    lines.append(f"{', '.join(filter(None, [tried, paid]))}. {show.describe_looks(done.looks, 'This test split was')}")
    ways = _tell_ways(done, project) if project else [f'Load it: load("{done.reference}", make)']
    typer.echo("\n".join([*lines, *ways]))
    if done.learned:
        show.print_losses(done.learned, "train and dev", everything)
    if done.stopped_by or any(some < every for some, every in done.asked.values()):
        why = f"The cap on {done.stopped_by} was reached" if done.stopped_by else "Within its caps"
        parts = ", ".join(f"{some} of {every} questions of {name}" for name, (some, every) in done.asked.items())
        again = f"asked were {parts}. A compile under a higher cap pays for nothing again."
        typer.echo(f"{why}: {again if parts else f'the version holds the best that {done.optimizer} had found.'}")
    if done.untried:
        more = f" They would take about {done.lacks:,} calls more." if done.lacks else ""
        typer.echo(f"Not tried for want of room under the cap: {', '.join(done.untried)}.{more}")
    for warning in _list_warnings(done, project):
        typer.echo(warning, err=True)


def _tell_ways(done: Compiled, project: Project) -> list[str]:
    """Return how the version is asked, and by what the folder is answered."""
    from ragc.serve.reference import find_current

    current = find_current(project.artifacts, project.name)
    named = current.label if current else "the uncompiled program"
    return [
        f'Ask it: ragc ask {done.reference}{show.name_artifacts(project.artifacts)} "your question"',
        f"`ragc ask {shlex.quote(str(project.folder))}` is answered by {named}.",
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
    return [*found, *_list_broken(done)]


def _list_broken(done: Compiled) -> list[str]:
    """Return what was not answered or not graded, many of one kind in a line."""
    kinds: dict[str, list[str]] = {}
    for name, why in done.broken.items():
        kinds.setdefault(why.partition(":")[0], []).append(f"{name} ({' '.join(why.split())[:LONGEST]})")
    asked = {part: some for part, (some, _) in done.asked.items() if some} or {"test": len(done.after.grades)}
    of = f"{sum(asked.values())} questions of {', '.join(asked)}"
    return [
        f"failed: {same[0]}" if len(same) == 1 else f"{len(same)} of the {of} failed: {kind}, as {same[0]}"
        for kind, same in kinds.items()
    ]


VERBS = (run_compile, run_seal)
