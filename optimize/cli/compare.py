"""`ragc compare`: versions put to the test against the one in use, on labelled questions."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from ragc.errors import DataError
from ragc.optimize.cli import show

if TYPE_CHECKING:
    from ragc.optimize.abtest.offline import OfflineTest


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


VERBS = (run_compare,)
