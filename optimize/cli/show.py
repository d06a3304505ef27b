"""What verbs share: JSON on stdout, tables on stdout, progress on stderr."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optimize.cli.interruption import interruptible

if TYPE_CHECKING:
    from program.knowledge.index.build import Advance

WIDEST = 10_000  # characters of a line in a file or a pipe
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    import orjson

    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode())


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout, as wide as the terminal, or as its cells in a file or a pipe: an id stays whole there.

    The first column is left-aligned, the others right.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for n, column in enumerate(columns):
        table.add_column(column, justify="left" if n == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # a cell may hold [brackets]
    console = Console()
    if not console.is_terminal:
        console.width = WIDEST
        console.width = max(console.measure(table).maximum, 1)
    console.print(title, style="italic", soft_wrap=True)
    console.print(table)


@contextmanager
def progress(label: str, quiet: bool = False) -> Iterator[Advance]:
    """A bar with rate and time left on stderr; nothing when `quiet` or when stderr is no terminal.

    Advancing it is where Ctrl-C stops the work at the latest.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:.0f}/s" if task.speed else "")

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeLeft(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )

    def advance(done: int, of: int) -> None:
        check()
        bar.update(task, completed=done, total=of)

    with interruptible() as check, bar:
        task = bar.add_task(label, total=None)
        yield advance


def counted(n: int, what: str) -> str:
    """`1 question`, `2 questions`: for a word that takes an s."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def percent(measure: dict[str, Any] | None) -> str:
    """`91.2 [88.0, 94.1]`, or a dash."""
    if measure is None:
        return "-"
    low, high = measure["ci"]
    return f"{100 * measure['value']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def number(measure: dict[str, Any] | None, digits: int = 2) -> str:
    """`1.25 [1.10, 1.40]`, or a dash."""
    if measure is None:
        return "-"
    low, high = measure["ci"]
    return f"{measure['value']:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
