"""What the verbs share: their common options, JSON and tables on stdout, errors and progress on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optimize.cli.interruption import interruptible, say

if TYPE_CHECKING:
    from program.errors import RagcError
    from program.knowledge.index.build import Advance

WIDEST = 10_000  # characters of a line in a file or a pipe
STOPPING = "Stopping after this step. Press Ctrl-C again to leave at once."
DEFAULT_ARTIFACTS = Path("artifacts")
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Artifacts = Annotated[Path, typer.Option("--artifacts", envvar="RAGC_ARTIFACTS", help="Where versions are kept.")]
ProjectFolder = Annotated[Path, typer.Argument(metavar="PROJECT", help="The project folder.")]


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


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table as wide as the terminal, or as its cells where there is none.

    The first column is left-aligned, the others right.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for n, column in enumerate(columns):
        table.add_column(column, justify="left" if n == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # a cell may hold [brackets]
    console = Console()
    if not console.is_terminal:  # an id stays whole in a file
        console.width = WIDEST
        console.width = max(console.measure(table).maximum, 1)
    console.print(title, style="italic", soft_wrap=True)
    console.print(table)


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


def format_percent(measure: Mapping[str, Any] | None) -> str:
    """Return `91.2 [88.0, 94.1]` in percent, or a dash."""
    return format_number(measure, digits=1, scale=100)


def format_number(measure: Mapping[str, Any] | None, digits: int = 2, scale: float = 1) -> str:
    """Return `1.25 [1.10, 1.40]`, or a dash."""
    if measure is None:
        return "-"
    low, high = (f"{scale * end:.{digits}f}" for end in measure["ci"])
    return f"{scale * measure['value']:.{digits}f} [{low}, {high}]"


def format_interval(ends: Sequence[float]) -> str:
    """Return `[-0.02, +0.41]` with the signs of both ends."""
    return f"[{ends[0]:+.4g}, {ends[1]:+.4g}]"
