"""What the verbs share: their common options, JSON and tables on stdout, errors and progress on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from optimize.cli.interruption import interruptible, leave, say

if TYPE_CHECKING:
    from optimize.compiler.search import Live, Watch
    from optimize.evaluation.comparison import Comparison
    from program.errors import RagcError
    from program.knowledge.index.build import Advance

SEARCHING = "searching"
WORTH = "utility + routing credit"  # may be more than the best utility there is
BEST = f"best so far ({WORTH})"
EVERY = 10.0  # seconds between two lines of a stage's progress
STOPPING_CALLS = (
    "Stopping: calls on their way are waited for, so that nothing paid is lost. Press Ctrl-C again to leave at once."
)
SHOW_CURSOR = "\r\n\x1b[?25h"  # on a line of its own, after the view
WIDEST = 10_000  # characters of a line in a file or a pipe
STOPPING = "Stopping after this step. Press Ctrl-C again to leave at once."
DEFAULT_ARTIFACTS = Path("artifacts")
Json = Annotated[bool, Option("--json", help="Print JSON on stdout.")]
Artifacts = Annotated[Path, Option("--artifacts", envvar="RAGC_ARTIFACTS", help="Where versions are kept.")]
Program = Annotated[str, Option(help="Of a program of your own code: MODULE:FUNCTION, which makes it.")]
Moved = Annotated[Path | None, Option("--project", help="A version's project folder, when it moved since.")]
ProjectFolder = Annotated[Path, Argument(metavar="PROJECT", help="The project folder.")]


def add_verbs(app: typer.Typer, *runs: Callable[..., None]) -> None:
    """Add each function by its name: `run_eval_search` is `eval-search`."""
    for run in runs:
        app.command(run.__name__.removeprefix("run_").replace("_", "-"))(run)


def print_json(value: Any, *, compact: bool = False) -> None:
    """Print one JSON document on stdout, `compact` on a single line."""
    import orjson

    layout = 0 if compact else orjson.OPT_INDENT_2
    typer.echo(orjson.dumps(value, option=layout | orjson.OPT_NON_STR_KEYS).decode())


def print_error(error: RagcError, json: bool) -> None:
    """Print an error on stderr: in two sentences, or as one line of JSON."""
    import orjson

    line = orjson.dumps(error.as_dict(), default=str).decode() if json else f"error: {error}"
    typer.echo(line, err=True)


def print_result(value: Any, json: bool, tell: Callable[[], object], exit_code: int = 0) -> None:
    """Print a result as JSON, or as `tell` prints it for people, then exit.

    Only an exit code other than 0 ends the verb.
    """
    if json:
        print_json(value)
    else:
        tell()
    if exit_code:
        raise typer.Exit(exit_code)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table as wide as the terminal, or as its cells where there is none.

    The first column is left-aligned, the others right; None is a dash.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for n, column in enumerate(columns):
        table.add_column(column, justify="left" if n == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))  # a cell may hold [brackets]
    console = Console()
    if not console.is_terminal:  # an id stays whole in a file
        console.width = WIDEST
        console.width = max(console.measure(table).maximum, 1)
    console.print(title if table.row_count else f"{title}: none", style="italic", soft_wrap=True)
    if table.row_count:
        console.print(table)


def print_comparison(found: Comparison, line: str = "") -> None:
    """Print the verdict, in a line, and all that was compared besides."""
    from optimize.abtest.offline import SUBGROUPS
    from optimize.evaluation.comparison import judge_difference
    from optimize.evaluation.stats import format_interval, format_number, format_p

    typer.echo(line or found.text())
    others = []
    for name, test in found.others.items():
        p, verdict = format_p(test.p).removeprefix("= "), judge_difference(name, test).replace("_", " ")
        others.append([name, f"{test.difference:+.4g}", format_interval(test.ci), p, test.n, verdict])
    print_table("other metrics", ("metric", "B - A", "95 % interval", "p (Holm)", "n", "verdict"), others)
    guards = []
    for guard in found.guardrails:
        figures = [format_number(value, "+.3g") for value in (guard.worse, guard.limit)]
        guards.append([guard.margin, *figures, guard.state.replace("_", " ")])
    print_table("guardrails", ("may get worse by", "worse by", "95 % limit", "state"), guards)
    if found.by_tag:
        tags = [[tag, f"{i.value:+.3f}", format_interval((i.low, i.high)), i.n] for tag, i in found.by_tag.items()]
        print_table(f"{found.metric} by tag", ("tag", "B - A", "95 % interval", "n"), tags)
        typer.echo(SUBGROUPS)
    flipped = [[one["id"], one["a"], one["b"], one.get("question", "")] for one in found.flipped]
    print_table(f"{count_noun(len(flipped), 'answer')} changed", ("id", "A", "B", "question"), flipped)


@contextmanager
def show_progress(label: str, quiet: bool = False, patient: bool = False) -> Iterator[Advance]:
    """Show a bar on stderr, where it is a terminal and not `quiet`.

    Advancing it is where Ctrl-C stops the work at the latest; of what is `patient`, where the first one does.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    rate = TextColumn("{task.fields[rate]}")
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn()
    bar = Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)

    def advance(done: int, of: int) -> None:
        check()
        speed = bar.tasks[0].speed
        bar.update(task, completed=done, total=of, rate=f"{speed:.0f}/s" if speed else "")

    def announce() -> None:
        if patient:
            say(STOPPING)

    with interruptible(first=announce, patient=patient) as check, bar:
        task = bar.add_task(label, total=None, rate="")
        yield advance


def count_noun(n: int, noun: str) -> str:
    """Return `1 question` or `2 questions`, for a noun that takes an s."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def tell_looks(looks: int, of: str) -> str:
    """Return how often the scores on something were seen."""
    return f"{of} looked at {count_noun(looks, 'time')}."


@contextmanager
def show_compile(quiet: bool, left: Callable[[], str]) -> Iterator[Watch]:
    """Show stage, trial, best so far, calls and seconds left on stderr.

    As lines where there is no terminal.

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
        return Group(view, STOPPING_CALLS) if stopping else view

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
            say(STOPPING_CALLS)

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
        self._line = self._expected = ""
        self._at = 0.0

    def __call__(self, live: Live) -> None:
        if self._expected != live.expected:
            self._expected = live.expected
            typer.echo(f"expected: {live.expected}", err=True)
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
