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

from optimize.cli.interruption import INTERRUPTED
from optimize.cli.show import (
    DEFAULT_ARTIFACTS,
    Artifacts,
    Json,
    count_noun,
    format_number,
    format_percent,
    print_json,
    print_table,
    show_compile,
)
from optimize.compiler import LEAST_SECONDS, MOST_CALLS, MOST_SEED, MOST_TRIALS
from program.errors import DataError, SettingsError

if TYPE_CHECKING:
    from optimize.compiler.publish import Compiled
    from optimize.compiler.search import Live
    from optimize.evaluation.stats import PairedResult
    from optimize.programs.compile import CompiledProgram
    from program.knowledge.project import Project

SHOWN = (
    *("correct", "wrong", "outcome_accuracy", "routing_accuracy", "route_accuracy", "strategy_accuracy", "source_f1"),
    *("retrieval_recall", "context_recall", "context_precision", "fact_recall", "answer_precision", "supported"),
    *("sentences", "utility", "model_calls"),
)


Data = Annotated[Path, typer.Option(help="Labelled examples, JSON Lines.")]
MetricName = Annotated[str, typer.Option(help="MODULE:FUNCTION, a metric in DSPy's form.")]


def add_compile_verbs(app: typer.Typer) -> None:
    """Add the verbs `compile`, `seal` and `worker`."""
    app.command("compile")(compile_)
    app.command()(seal)
    app.command()(worker)


def _finite(value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no cap. Leave the option out for none.")
    return value


def _named(value: str | None) -> str | None:
    if value is not None and not value.strip():  # of a shell's variable that is not set
        raise typer.BadParameter("it is empty. Give a name, or leave the option out.")
    return value


def compile_(
    project: Annotated[Path, typer.Argument(help="The project folder, or MODULE:FUNCTION of a program of your own.")],
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_TRIALS,
            help="Settings that the search proposes; the 11 that every search begins with are tried besides. By default"
            " 60. With --resume: of the study in all.",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=MOST_SEED, help="Seed of the search; 0 unless given.")] = None,
    max_calls: Annotated[int | None, typer.Option(min=1, max=MOST_CALLS, help="Model calls, never more.")] = None,
    max_usd: Annotated[float | None, typer.Option(min=0, callback=_finite, help="US dollars, never more.")] = None,
    max_seconds: Annotated[
        float | None, typer.Option(min=LEAST_SECONDS, callback=_finite, help="Stop in time to be done after this long.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the last study, under its caps.")] = False,
    study: Annotated[
        str | None, typer.Option(callback=_named, help="Go on with the study of that name instead.")
    ] = None,
    origin: Annotated[
        str | None, typer.Option("--from", callback=_named, help="The version to start from and to compare with.")
    ] = None,
    promote: Annotated[
        str | None, typer.Option(callback=_named, help="Move this alias to the version, if it is detectably better.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Of a program of your own: its examples, JSON Lines.")] = None,
    metric: Annotated[str, typer.Option(help="Of a program of your own: MODULE:FUNCTION, in DSPy's form.")] = "",
    name: Annotated[str, typer.Option(help="Of a program of your own: the name of its versions.")] = "",
    optimizer: Annotated[str, typer.Option(help="ragc, or DSPy's: gepa, mipro, bootstrap, reanchor.")] = "ragc",
    artifacts: Artifacts = DEFAULT_ARTIFACTS,
    json: Json = False,
) -> None:
    """Compile a project, or a program of your own, into a new version."""
    from optimize.compiler.compile import compile_project
    from optimize.programs.examples import is_named
    from optimize.registry.aliases import promote_version, require_alias
    from program.knowledge.project import Project

    if promote:
        require_alias(promote)
    options: dict[str, Any] = {"trials": trials, "seed": seed, "max_calls": max_calls, "max_usd": max_usd}
    options |= {"max_seconds": max_seconds, "resume": resume, "study": study or "", "origin": origin or ""}
    if named := is_named(str(project)) and not project.exists():
        run = _prepare_program(str(project), data, metric, name, optimizer, artifacts)
        root = artifacts
    else:
        if data or metric or name:
            raise SettingsError(
                "--data, --metric and --name are for a program of your own code.", "Name it as MODULE:FUNCTION."
            )
        opened = Project.open(project)
        run, root = partial(compile_project, opened), opened.artifacts
    begun: set[str] = set()

    def go_on() -> str:
        again = f"Go on with: ragc compile {shlex.quote(str(project))} --resume"
        return again if any(begun) else "Nothing was begun: start it again."

    try:
        left = "stopped at once; calls on their way are lost."
        with show_compile(json, lambda: f"{left} {go_on()}") as show:

            def watched(live: Live) -> None:
                begun.add(live.study)
                show(live)

            done = run(**options, watch=watched)
    except KeyboardInterrupt:
        typer.echo(f"stopped; nothing is lost. {go_on()}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if promote and done.improved:
        promote_version(done.reference, promote, reason="compiled: better", root=root)
    if json:
        shape = _shape_program(done) if named else _shape(done)
        print_json(shape | ({"promoted": done.improved} if promote else {}))
    else:
        _table_program(done) if named else _table(done, opened)
        if promote:
            told_of = f"is {done.reference} now" if done.improved else "was not moved: there is no detectable gain"
            typer.echo(f"The alias {promote} {told_of}.")
    if not done.improved:
        raise typer.Exit(3)


def seal(
    program: Annotated[str, typer.Argument(metavar="MODULE:FUNCTION", help="What makes the program.")],
    state: Annotated[Path, typer.Argument(help="The JSON that DSPy's program.save wrote.")],
    data: Data,
    metric: MetricName,
    name: Annotated[str, typer.Option(help="The name of the program and its versions.")],
    parent: Annotated[str, typer.Option(help="The version that it came from.")] = "",
    artifacts: Artifacts = DEFAULT_ARTIFACTS,
    json: Json = False,
) -> None:
    """Publish what another optimizer learned as a version, scored on test."""
    from optimize.programs.compile import seal_program
    from optimize.programs.examples import import_function
    from program.serve.factory import make_program

    learned = make_program(import_function(program))
    try:
        learned.load(state)
    except Exception as error:  # DSPy raises what it likes
        what = f"{state} is no state of {program}: {type(error).__name__}: {error}."
        raise DataError(what, "Name the JSON that program.save(...) wrote.") from error
    reference = seal_program(
        learned, name=name, data=data, metric=import_function(metric), parent=parent, artifacts=artifacts
    )
    if json:
        print_json({"version": reference})
    else:
        typer.echo(f'{reference} is sealed. Load it: load("{reference}", {program.partition(":")[2]})')


def worker(
    project: Annotated[Path, typer.Argument(help="The project folder.")],
    study: Annotated[
        str | None, typer.Option(callback=_named, help="The study to join; the last one when not given.")
    ] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the compile to say what is searched.")] = 1800,
    json: Json = False,
) -> None:
    """Help a study that `ragc compile` began, from here or another machine."""
    from optimize.compiler.compile import join_study
    from program.knowledge.project import Project

    with show_compile(json, lambda: "interrupted") as watch:
        added = join_study(Project.open(project), study or "", watch=watch, wait=wait)
    if json:
        print_json({"trials": added})
    else:
        none = "No trial added: the study has all it was asked for, or all that its caps leave a worker."
        typer.echo(f"{count_noun(added, 'trial')} added" if added else none)


def _shape(done: Compiled) -> dict[str, Any]:
    return {
        "version": done.reference,
        "parent": done.parent,
        "verdict": done.verdict,
        "gain": _gain(done.gain),
        "gain_over_plain": _gain(done.over_plain),
        "points": {
            name: {**{k: round(v, 6) for k, v in one.items()}, "survived_folds": name in done.survived}
            for name, one in done.points.items()
        },
        "stages": list(done.stages),
        "metrics": done.after.metrics(),
        "plain": done.plain.metrics(),
        "before": done.before.metrics(),
        **{"trials": done.trials, "seconds": round(done.seconds, 1), "calls": done.calls, "usd": round(done.usd, 6)},
        "study": done.study,
        "stopped_by": done.stopped_by,
        "asked": {name: list(counts) for name, counts in done.asked.items()},
        "test_looks": done.looks,
        "label_warnings": list(done.doubts),
        "survived_folds": "balanced" in done.survived,
        "not_graded": dict(done.broken),
        "stood_in": done.stood_in,
    }


def _of(counts: tuple[int, int]) -> str:
    return f"{counts[0]} of {counts[1]}"


def _gain(found: PairedResult) -> dict[str, Any]:
    return {"difference": found.difference, "ci": list(found.ci), "p": found.p, "n": found.n, "topics": found.topics}


def _over(found: PairedResult, what: str) -> str:
    low, high = found.ci
    return f"{found.difference:+.3f} [{low:+.3f}, {high:+.3f}] over {what}"


def _table(done: Compiled, project: Project) -> None:
    from optimize.evaluation.metrics import PROPORTIONS
    from program.settings import artifacts_root

    columns = [e.metrics() for e in (done.plain, done.before, done.after)]
    rows = []
    for name in SHOWN:
        if name not in columns[-1]:
            continue
        show = format_percent if name in PROPORTIONS else format_number
        rows.append([name, *(show(column.get(name)) for column in columns), str(columns[-1][name]["n"])])
    on = count_noun(len(done.after.grades), "test question")
    title = f"{done.reference} on {on}: percent or mean [95 % interval by topic]"
    print_table(title, ["metric", "plain RAG", "parent", "compiled", "n"], rows)
    parent, plain = _over(done.gain, done.parent), _over(done.over_plain, "plain RAG")
    points = [f"{name} {one['utility']:.3f} at {one['calls']:.2f} calls" for name, one in done.points.items()]
    kept = shlex.quote(os.path.relpath(project.artifacts))
    elsewhere = "" if project.artifacts == artifacts_root() else f" --artifacts {kept}"
    typer.echo(
        f"utility, question by question: {parent}: {done.verdict}; {plain}\n"
        f"On train and dev: {', '.join(points)}\n"
        f"{count_noun(done.trials, 'setting')} tried in {done.seconds:.0f} s, {count_noun(done.calls, 'model call')}, "
        f"${done.usd:.2f}. This test split was looked at {count_noun(done.looks, 'time')}.\n"
        f'Ask it: ragc ask {done.reference}{elsewhere} "your question"'
    )
    if "balanced" not in done.survived:
        others = " and ".join(name for name in done.points if name in done.survived)
        but = f"No gain survived the folds{f' but that of {others}: `balanced`' if others else ': the setting'}"
        typer.echo(
            f"{but} is as it was before the search, or plain RAG where its gain survived in a first compile; a decider"
            " that had no demonstrations has the labelled ones."
        )
    for doubt in done.doubts:
        typer.echo(f"The labels hold {doubt}", err=True)
    if not done.gain.enough_topics:
        typer.echo(
            f"Topics tested on: {done.gain.topics}, too few for any verdict. Label questions of more topics"
            f" (ragc data check {shlex.quote(str(project.folder))}), and compile again.",
            err=True,
        )
    if done.stopped_by or any(done.asked[name][0] < done.asked[name][1] for name in ("train", "dev")):
        why = f"The cap on {done.stopped_by} was reached" if done.stopped_by else "Within its caps"
        did = {"train": "searched", "dev": "chosen", "test": "tested"}
        asked = ", ".join(f"{word} on {_of(done.asked[name])} questions of {name}" for name, word in did.items())
        typer.echo(
            f"{why}: {_of(done.asked['settings'])} settings tried, {asked}."
            " A compile under a higher cap pays for nothing again."
        )
    if done.stood_in:
        typer.echo(
            f"For models that could not be reached or read a stand-in gave {count_noun(done.stood_in, 'answer')}, on"
            " which rests what was chosen, too. Compile again when they can be; only what it answered is asked anew.",
            err=True,
        )
    for name, why in done.broken.items():
        typer.echo(f"not graded: {name} ({why})", err=True)


def _prepare_program(
    program: str, data: Path | None, metric: str, name: str, optimizer: str, artifacts: Path
) -> Callable[..., Any]:
    from optimize.programs.compile import compile_program
    from optimize.programs.examples import import_function

    if data is None or not metric or not name:
        raise SettingsError(
            f"What {program} is compiled on is not said.", "Add --data FILE --metric MODULE:FUNCTION --name NAME."
        )
    make, scored = import_function(program), import_function(metric)
    return partial(compile_program, make, data, scored, name=name, optimizer=optimizer, artifacts=artifacts)


def _shape_program(done: CompiledProgram) -> dict[str, Any]:
    told = ("parent", "verdict", "optimizer", "study", "trials", "calls", "stopped_by", "replayed")
    return {
        "version": done.reference,
        **{name: getattr(done, name) for name in told},
        "gain": _gain(done.gain),
        "metrics": done.after.metrics(),
        "before": done.before.metrics(),
        **{"seconds": round(done.seconds, 1), "usd": round(done.usd, 6), "test_looks": done.looks},
        "not_graded": dict(done.broken),
    }


def _table_program(done: CompiledProgram) -> None:
    before, after = done.before.metrics(), done.after.metrics()
    rows = [[name, format_number(before.get(name)), format_number(one), str(one["n"])] for name, one in after.items()]
    title = f"{done.reference} on {count_noun(len(done.after.grades), 'test example')}: mean [95 % interval]"
    print_table(title, ["metric", "parent", "compiled", "n"], rows)
    typer.echo(
        f"score, example by example: {_over(done.gain, done.parent)}: {done.verdict}\n"
        f"{done.optimizer}: {count_noun(done.trials, 'setting')} tried in {done.seconds:.0f} s,"
        f" {count_noun(done.calls, 'model call')}, ${done.usd:.2f}. This test split was looked at"
        f" {count_noun(done.looks, 'time')}."
    )
    if not done.replayed:
        typer.echo("The program does not do the same twice, so each setting was run anew.", err=True)
    if done.stopped_by:
        typer.echo(f"The cap on {done.stopped_by} was reached.", err=True)
    for name, why in done.broken.items():
        typer.echo(f"not graded: {name} ({why})", err=True)
