"""What the verbs share: their common options, JSON and tables on stdout, errors and progress on stderr."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from itertools import zip_longest
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.cells import cell_len
from typer import Argument, Option

from ragc.optimize.cli.interruption import interruptible, leave, say

if TYPE_CHECKING:
    from ragc.errors import RagcError
    from ragc.knowledge.index.build import Advance
    from ragc.optimize.compiler.session import CompileProgress, Watch
    from ragc.optimize.evaluation.comparison import Comparison
    from ragc.optimize.evaluation.grades import Grade

EVERY, AGAIN = 5.0, 60.0
"""Seconds that a stage has lasted when a log is told of it, where there is no terminal, and until it is told again."""
GAP = 2  # spaces between two columns of a table
SHOWN = 3  # questions that were lost
UNWRAPPED = 16  # a cell is wrapped to no fewer columns, unless before an interval
STOPPING_CALLS = (
    "Stopping: calls on their way are waited for, so that nothing paid is lost. Press Ctrl-C again to leave at once."
)
SHOW_CURSOR = "\r\n\x1b[?25h"  # on a line of its own, after the view
STOPPING = "Stopping after this step. Press Ctrl-C again to leave at once."
PART = re.compile(r"\S*\[[-+\d.,% inf]*\]\S*|\S+")  # what stays on one line: a word, or an interval
FIGURE = re.compile(r"[-+$\[]*\d|-$|$")  # how the cells of a column of numbers begin
MARKUP = re.compile(r"[\\`*_\[\]<>|~#]")  # what Markdown would take for more than text
DEFAULT_ARTIFACTS = Path("artifacts")
Artifacts = Annotated[Path, Option("--artifacts", envvar="RAGC_ARTIFACTS", help="Where versions are kept.")]
Program = Annotated[str, Option(help="Of a program of your own code: MODULE:FUNCTION, which makes it.")]
Requirement = Literal["better", "no-worse"]  # of a new version
Moved = Annotated[Path | None, Option("--project", help="A version's project folder, when it moved since.")]
ProjectFolder = Annotated[Path, Argument(metavar="PROJECT", help="The project folder.")]
All = Annotated[bool, Option("--all", help="Every metric, tag and changed answer.")]
ALL = "Everything else: --all"
AS_JSON = ContextVar("AS_JSON", default=False)
"""Whether the verb that runs was given `--json`: then it prints no progress."""
AS_MARKDOWN = ContextVar("AS_MARKDOWN", default=False)
"""Whether tables are printed in Markdown."""


def print_json(value: Any, *, compact: bool = False) -> None:
    """Print one JSON document on stdout, `compact` on a single line."""
    import orjson

    layout = 0 if compact else orjson.OPT_INDENT_2
    typer.echo(orjson.dumps(value, option=layout | orjson.OPT_NON_STR_KEYS).decode())


def print_error(error: RagcError) -> None:
    """Print an error on stderr: in two sentences, or as one line of JSON."""
    import orjson

    line = orjson.dumps(error.as_dict(), default=str).decode() if AS_JSON.get() else f"error: {error}"
    typer.echo(line, err=True)


def print_result(value: Any, tell: Callable[[], object], exit_code: int = 0) -> None:
    """Print a result as JSON, or as `tell` prints it for people, then exit.

    Only an exit code other than 0 ends the verb.
    """
    if AS_JSON.get():
        print_json(value)
    else:
        tell()
    if exit_code:
        raise typer.Exit(exit_code)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table no wider than the terminal, or each row as a block.

    A block is printed where the table does not fit. No word, and so no id, is broken over two lines. Columns of numbers
    are right-aligned; None is a dash. Without a terminal the width is 80, or COLUMNS.
    """
    cells = [["-" if cell is None else " ".join(str(cell).split()) for cell in row] for row in rows]
    if AS_MARKDOWN.get():
        _print_markdown_table(title, columns, cells)
        return
    typer.secho(title if cells else f"{title}: none", bold=True)
    by_column = list(zip(columns, *cells, strict=True))
    widths = [max(map(cell_len, column)) for column in by_column]
    least = [max(_narrowest(head, 0), *map(_narrowest, column), 0) for head, *column in by_column]
    room = _width() - GAP * (len(columns) - 1)
    if sum(least) > room:
        if len(columns) == 2 and not any(" " in row[0] for row in cells):
            print_record("", [(name, value or "-") for name, value in cells])
            return
        for row in cells:
            print_record("\n".join(_wrap_text(row[0], _width())), list(zip(columns[1:], row[1:], strict=True)))
        return
    while sum(widths) > room:
        widths[max((width, n) for n, width in enumerate(widths) if width > least[n])[1]] -= 1
    sides = [">" if all(map(FIGURE.match, column[1:])) else "<" for column in by_column]
    for row in [list(columns), ["-" * width for width in widths], *cells] if cells else []:
        for parts in zip_longest(*map(_wrap_text, row, widths), fillvalue=""):
            typer.echo((" " * GAP).join(map(_place_text, parts, widths, sides)).rstrip())


def print_losses(grades: Sequence[Grade], split: str, everything: bool = False, told: bool = True) -> None:
    """Print which questions are lost at which stage, three unless `everything`.

    The sums alone are printed where the questions are not to be `told`.
    """
    from ragc.optimize.evaluation.losses import REMEDIES, describe_losses, list_losses

    losses = list_losses(grades)
    rows = [[grade.id, grade.question, stage, REMEDIES[stage]] for stage, grade in losses if told]
    shape = [dict(zip(("id", "question", "stage", "remedy"), row, strict=True)) for row in rows]
    counts = dict(Counter(stage for stage, _ in losses))
    if AS_JSON.get():
        print_json({"split": split, "n": len(grades), "stages": counts, "losses": shape})
        return
    typer.echo(describe_losses(losses, len(grades), split))
    shown = rows if everything else rows[:SHOWN]
    if shown:
        more = "" if everything or len(shown) == len(rows) else f"; all {len(rows)}: --all"
        print_table(f"still wrong{more}", ["id", "question", "lost", "remedy"], shown)


@contextmanager
def print_markdown(wanted: bool) -> Iterator[None]:
    """Have tables printed in Markdown, where that is wanted."""
    before = AS_MARKDOWN.set(wanted)
    try:
        yield
    finally:
        AS_MARKDOWN.reset(before)


def _print_markdown_table(title: str, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    typer.echo(f"\n**{title}**" if cells else f"\n**{title}**: none")
    for row in [columns, ["---"] * len(columns), *cells] if cells else []:
        typer.echo(("\n| " if row is columns else "| ") + " | ".join(map(escape_markdown, row)) + " |")
    typer.echo("")


def escape_markdown(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return MARKUP.sub(r"\\\g<0>", text)


def print_record(title: str, fields: Sequence[tuple[str, str]]) -> None:
    """Print a title, if any, and its fields, each on a line; empty ones are left out."""
    typer.echo(title, nl=bool(title))
    label = min(max((cell_len(name) for name, _ in fields), default=0), _width() // 2) + GAP
    for name, value in fields:
        lines = [""] * (cell_len(name) + GAP > label) + _wrap_text(value, max(_width() - GAP - label, UNWRAPPED))
        for head, line in zip_longest([name], lines, fillvalue="") if value else ():
            typer.echo(f"{'':{GAP}}{_place_text(head, label)}{line}".rstrip())


def _width() -> int:
    return shutil.get_terminal_size().columns


def _place_text(text: str, width: int, side: str = "<") -> str:
    return f"{text:{side}{max(width + len(text) - cell_len(text), 0)}}"


def _narrowest(cell: str, unwrapped: int = UNWRAPPED) -> int:
    """Return to how few columns a cell may be wrapped."""
    return max(*map(cell_len, PART.findall(cell)), 0 if "[" in cell else min(cell_len(cell), unwrapped), 0)


def _wrap_text(text: str, width: int) -> list[str]:
    """Return the lines of a text, none wider than `width` unless one part is."""
    lines = [""]
    for part in PART.findall(text):
        longer = f"{lines[-1]} {part}".strip()
        lines[-1:] = [longer] if not lines[-1] or cell_len(longer) <= width else [lines[-1], part]
    return lines


def print_metrics(
    title: str,
    sides: Mapping[str, Mapping[str, Any]],
    lead: int = -1,
    timed: bool = True,
    only: Sequence[str] = (),
) -> None:
    """Print the metrics of several sides beside each other, `only` those named.

    The rows are those of the leading side; unless `timed`, seconds are left out: they are of answers of the record.
    """
    from ragc.optimize.evaluation.evaluate import tabulate_metrics

    if only:
        sides = {name: {one: side[one] for one in only if one in side} for name, side in sides.items()}
    rows = [[name, *cells, n] for name, cells, n in tabulate_metrics([*sides.values()], lead, timed=timed)]
    print_table(title, ["metric", *sides, "n"], rows)


def print_comparison(found: Comparison, line: str = "", all_: bool = True) -> None:
    """Print the verdict in a line, three metrics and the guardrails; all with `all_`."""
    from ragc.optimize.evaluation.comparison import SUBGROUPS
    from ragc.optimize.evaluation.grades import FIRST
    from ragc.optimize.evaluation.stats import format_interval, format_number, format_p

    typer.echo(line or found.describe())
    others, guards = [], []
    for name in found.others if all_ else filter(found.others.__contains__, FIRST):
        test = found.others[name]
        is_b = test.verdict.replace("no_detectable_difference", "none detectable")
        figures = [f"{test.difference:+.4g}", format_interval(test.ci), format_p(test.p).removeprefix("= "), test.n]
        others.append([name, *figures, is_b])
    print_table("other metrics", ("metric", "B - A", "95 % interval", "p (Holm)", "n", "difference"), others)
    for guard in found.guardrails:
        limits = [format_number(value, "+.3g") for value in (guard.worse_by, guard.limit)]
        guards.append([str(guard), *limits, guard.state.replace("_", " ")])
    print_table("guardrails", ("may get worse by", "worse by", "95 % limit", "state"), guards)
    changed = f"{count_noun(len(found.flipped), 'answer')} changed"
    if not all_:
        typer.echo(f"{changed}. {ALL}")
        return
    if found.by_tag:
        tags = [[tag, f"{i.value:+.3f}", format_interval(i.ci), i.n] for tag, i in found.by_tag.items()]
        print_table(f"{found.metric} by tag", ("tag", "B - A", "95 % interval", "n"), tags)
        typer.echo(SUBGROUPS)
    flipped = [[one["id"], one["a"], one["b"], one.get("question", "")] for one in found.flipped]
    print_table(changed, ("id", "A", "B", "question"), flipped)


def count_noun(n: int, noun: str) -> str:
    """Return `1 question` or `2 questions`, for a noun that takes an s."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def describe_looks(looks: int, of: str) -> str:
    """Return how often the scores on something were seen."""
    return f"{of} looked at {count_noun(looks, 'time')}."


def print_warnings(warnings: Iterable[str]) -> None:
    """Print each on stderr."""
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)


def name_artifacts(folder: Path) -> str:
    """Return the option that names a folder of versions, if one is needed."""
    from ragc.settings import artifacts_root

    return "" if folder.resolve() == artifacts_root() else f" --artifacts {shlex.quote(os.path.relpath(folder))}"


def refuse_beside(option: str, value: object, **others: object) -> None:
    """Raise `SettingsError` for options that a given one would have ignored."""
    from ragc.errors import SettingsError

    if value and (ignored := [f"--{name}" for name, given in others.items() if given]):
        raise SettingsError(
            f"{option} does not go together with {' and '.join(ignored)}.", "Leave the one or the other out."
        )


class Cadence:
    """When a log is told how far work is: of a stage that is new to it, and then once a minute."""

    def __init__(self) -> None:
        self._stage, self._told = "", 0.0

    def is_due(self, stage: str, seconds: float) -> bool:
        """Tell whether it is time for a line, so many seconds after the work began."""
        due = stage != self._stage or seconds >= self._told + AGAIN
        if due:
            self._stage, self._told = stage, seconds
        return due


@contextmanager
def show_work(
    label: str, stopping: str = "", left: Callable[[], str] | None = None, patient: bool = False
) -> Iterator[Callable[..., None]]:
    """Show on stderr how far work is.

    In a terminal it is a bar, beside JSON nothing, else a line for each stage that lasts, and another every minute.
    Yields what is called with a label, how much is done and of how much, further figures as texts, and `once`, a line
    that a log has once. It is where Ctrl-C stops the work at the latest. `stopping` is shown at the first Ctrl-C; where
    `left` is given, the second one ends the process at once, with what it returns.
    """
    from rich.console import Console, Group
    from rich.live import Live as Screen
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.text import Text

    quiet = AS_JSON.get()
    console = Console(stderr=True)
    on_screen = console.is_terminal and not console.is_dumb_terminal and not quiet
    count = TextColumn("{task.fields[count]}")
    bar = Progress(TextColumn("{task.description}"), BarColumn(30), count, TimeElapsedColumn(), TimeRemainingColumn())
    bar.add_task(label, total=None, count="")
    (task,) = bar.tasks
    below: list[str] = []
    notices: list[str] = []
    over = Event()

    def tell(label: str, done: int, of: int, *figures: str, once: str = "", unit: str = "") -> None:
        check()
        if label != task.description:
            task.total = None
        count = f"{done} of {of} {unit}".strip() if of else f"{done} done" if done else ""
        bar.update(task.id, description=label, completed=done, total=of or None, count=count)
        below[:] = figures
        if once and once not in notices:
            announce(once)

    def announce(line: str) -> None:
        notices.append(line)  # the view has it the next time that it is drawn
        if line and not on_screen and (line == stopping or not quiet):
            say(line)

    def go_on() -> None:
        cadence = Cadence()
        while not over.wait(EVERY):
            if cadence.is_due(task.description, seconds := task.elapsed or 0.0):
                figures = filter(None, [task.fields["count"], *below, f"{int(seconds) // 60}:{int(seconds) % 60:02}"])
                say(f"{task.description}: {', '.join(figures)}")

    def end() -> None:
        if left is not None:
            leave(f"{SHOW_CURSOR if on_screen else ''}{left()}")

    def view() -> Group:
        return Group(bar, *map(Text, (*below, *notices)))

    lines = Thread(target=go_on, daemon=True)
    screen = Screen(console=console, get_renderable=view, refresh_per_second=4, transient=True)
    with interruptible(lambda: announce(stopping), end, patient) as check, screen if on_screen else nullcontext():
        if not (quiet or on_screen):
            lines.start()
        try:
            yield tell
        finally:
            over.set()
            if lines.is_alive():
                lines.join()


@contextmanager
def show_progress(label: str, patient: bool = False) -> Iterator[Advance]:
    """Show how far something is on stderr.

    Of what is `patient` the first Ctrl-C stops the work where it is advanced, of all else at once.
    """
    with show_work(label, STOPPING if patient else "", patient=patient) as tell:
        yield partial(tell, label)


@contextmanager
def show_opening() -> Iterator[Advance]:
    """Show that something is opened, and how far what changed is indexed, on stderr."""
    with show_work("opening") as tell:
        yield partial(tell, "indexing")


@contextmanager
def show_compile(left: Callable[[], str]) -> Iterator[Watch]:
    """Show a compile's stage, trial, best so far and calls on stderr.

    Ctrl-C stops the compile in order; a second one ends the process at once, with what `left` says.
    """
    from ragc.optimize.report.estimate import format_minutes, name_steps

    least = math.inf

    with show_work("starting", stopping=STOPPING_CALLS, left=left) as tell:

        def show(progress: CompileProgress) -> None:
            nonlocal least
            known = {"best so far": progress.best, "as it was": progress.baseline}
            worth = ", ".join(f"{name} {x:.3f}" for name, x in known.items() if x is not None)
            figures = [f"{worth} ({progress.worth})"] if worth else []
            figures += [count_noun(progress.calls, "model call")] if progress.calls else []
            expected = progress.expected.describe()
            if (minutes := progress.minutes_left) is not None:
                slower = round(minutes) > least
                least = min(least, max(1, round(minutes)))
                figures.append(f"about {format_minutes(minutes)} left{', as it is slower than planned' * slower}")
            once = f"expected: {expected}" if expected else ""
            tell(progress.stage, progress.done, progress.of, *figures, once=once, unit=name_steps(progress.stage))

        yield show
