"""`ragc compile`: a live view while it works, a table at the end."""

from __future__ import annotations

import math
import os
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optimize.cli.interruption import INTERRUPTED, interruptible, leave, say
from optimize.cli.show import Json, count_noun, format_number, format_percent, print_json, print_table
from optimize.compiler import LEAST_SECONDS, MOST_CALLS, MOST_SEED, MOST_TRIALS

if TYPE_CHECKING:
    from optimize.compiler.publish import Compiled
    from optimize.compiler.search import Live, Watch
    from optimize.evaluation.stats import PairedResult
    from program.knowledge.project import Project

SEARCHING = "searching"
WORTH = "utility + routing credit"  # may be more than the best utility there is
BEST = f"best so far ({WORTH})"
EVERY = 10.0  # seconds between two lines of a stage's progress
STOPPING = (
    "Stopping: calls on their way are waited for, so that nothing paid is lost. Press Ctrl-C again to leave at once."
)
SHOW_CURSOR = "\r\n\x1b[?25h"  # on a line of its own, after the view
SHOWN = (
    *("correct", "wrong", "outcome_accuracy", "routing_accuracy", "route_accuracy", "strategy_accuracy", "source_f1"),
    *("retrieval_recall", "context_recall", "context_precision", "fact_recall", "answer_precision", "supported"),
    *("sentences", "utility", "model_calls"),
)


def add_compile_verbs(app: typer.Typer) -> None:
    """Add the verbs `compile` and `worker`."""
    app.command("compile")(compile_)
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
    project: Annotated[Path, typer.Argument(help="The project folder.")],
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
    json: Json = False,
) -> None:
    """Compile a project into a new version, against its labelled questions."""
    from optimize.compiler.compile import compile_project
    from optimize.registry.aliases import promote_version, require_alias
    from program.knowledge.project import Project

    opened = Project.open(project)
    if promote:
        require_alias(promote)
    begun: set[str] = set()

    def go_on() -> str:
        again = f"Go on with: ragc compile {shlex.quote(str(project))} --resume"
        return again if any(begun) else "Nothing was begun: start it again."

    try:
        left = "stopped at once; calls on their way are lost."
        with _live(json, lambda: f"{left} {go_on()}") as show:

            def watched(live: Live) -> None:
                begun.add(live.study)
                show(live)

            done = compile_project(
                opened,
                trials=trials,
                seed=seed,
                max_calls=max_calls,
                max_usd=max_usd,
                max_seconds=max_seconds,
                resume=resume,
                study=study or "",
                origin=origin or "",
                watch=watched,
            )
    except KeyboardInterrupt:
        typer.echo(f"stopped; nothing is lost. {go_on()}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if promote and done.improved:
        promote_version(done.reference, promote, reason="compiled: better", root=opened.artifacts)
    if json:
        print_json(_shape(done) | ({"promoted": done.improved} if promote else {}))
    else:
        _table(done, opened)
        if promote:
            told_of = f"is {done.reference} now" if done.improved else "was not moved: there is no detectable gain"
            typer.echo(f"The alias {promote} {told_of}.")
    if not done.improved:
        raise typer.Exit(3)


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

    with _live(json, lambda: "interrupted") as watch:
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


@contextmanager
def _live(quiet: bool, left: Callable[[], str]) -> Iterator[Watch]:
    """Show stage, trial, best so far, calls and seconds left on stderr; as lines where there is no terminal.

    Ctrl-C stops the compile in order; a second one ends the process at once, with what `left` says.
    """
    from rich.console import Console, Group
    from rich.live import Live as Screen

    console = Console(stderr=True)
    lines = _Lines()
    on_screen = console.is_terminal and not quiet
    view: Any = ""
    stage = ""
    stopping = False

    def seen() -> Any:
        return Group(view, STOPPING) if stopping else view

    def show(live: Live) -> None:
        nonlocal view, stage
        check()
        if on_screen:
            view = _view(live)
            if stage != (stage := live.stage):  # one that is over in no time is shown, too
                screen.refresh()
        elif not quiet:
            lines(live)

    def stop() -> None:
        nonlocal stopping
        stopping = True
        if not on_screen:  # else the view has it the next time that it is drawn
            say(STOPPING)

    def end() -> None:
        leave(f"{SHOW_CURSOR if on_screen else ''}{left()}")

    screen = Screen(console=console, get_renderable=seen, refresh_per_second=4, transient=True)
    with interruptible(stop, end) as check, screen if on_screen else nullcontext():
        yield show


class _Lines:
    """The same view as lines, for a log.

    One line for each stage, ten while a search goes on, and how far a stage is every EVERY seconds.
    """

    def __init__(self) -> None:
        self._told: tuple[str, int] = ("", 0)
        self._line = ""
        self._at = 0.0
        self._expected = ""

    def __call__(self, live: Live) -> None:
        if self._expected != (expected := live.expected):
            self._expected = expected
            typer.echo(f"expected: {expected}", err=True)
        tenth = 10 * live.done // live.of if live.of and live.stage == SEARCHING else 0
        new, now = live.stage != self._told[0], time.monotonic()
        if (live.stage, tenth) == self._told and now - self._at < EVERY:
            return
        line = live.stage if new or not live.done else f"{live.stage}: {_done(live)}{_best(live)}"
        self._told = (live.stage, tenth)
        if line != self._line:
            self._line, self._at = line, now
            typer.echo(line, err=True)


def _done(live: Live) -> str:
    return f"{live.done}/{live.of}" if live.of else f"{live.done} done"


def _best(live: Live) -> str:
    return f", {BEST} {live.best:.3f}" if live.stage == SEARCHING and live.best is not None else ""


def _view(live: Live) -> Any:
    from rich.table import Table

    view = Table.grid(padding=(0, 2))
    left = live.seconds_left
    view.add_row("stage", live.stage)
    view.add_row("done", _done(live) if live.of or live.done else "")
    view.add_row(f"as it was, at most ({WORTH})", "" if live.baseline is None else f"{live.baseline:.3f}")
    view.add_row(BEST, "" if live.best is None else f"{live.best:.3f}")
    view.add_row("model calls", f"{live.calls}")
    if live.expected:
        view.add_row("expected", live.expected)
    view.add_row("seconds left", "" if left is None else f"{left:.0f}")
    return view
