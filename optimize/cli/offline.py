"""`ragc ab offline`: versions on the same labelled questions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optimize.cli.registry import DEFAULT_ARTIFACTS, Artifacts
from optimize.cli.show import Json, print_json, print_table, progress

if TYPE_CHECKING:
    from optimize.abtest.offline import Arm, OfflineTest


def offline(
    a: Annotated[str, typer.Argument(help="The version in use: the control.")],
    b: Annotated[list[str], typer.Argument(help="The version that is to be better; or several.")],
    metric: Annotated[str, typer.Option(help="The one metric the verdict is on.")] = "utility",
    data: Annotated[Path | None, typer.Option(help="Ask all versions anew, on this labelled file.")] = None,
    point: Annotated[str, typer.Option(help="Operating point; other than balanced is asked anew.")] = "balanced",
    repeats: Annotated[int, typer.Option(min=1, help="Ask anew, each question so often, and average.")] = 1,
    guard: Annotated[
        list[str] | None,
        typer.Option(help="May get worse by at most, as wrong:0.02 or seconds:25%; exit code 1 if it is breached."),
    ] = None,
    effect: Annotated[float | None, typer.Option(help="Tell how many questions would show this difference.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with the intervals and changed answers.")] = None,
    project: Annotated[
        Path | None, typer.Option(help="To ask anew: the versions' project folder, when it moved since.")
    ] = None,
    artifacts: Artifacts = DEFAULT_ARTIFACTS,
    json: Json = False,
) -> None:
    """Compares versions with A, question by question.

    Exit code 0: one is better. 1: none is and one is worse, or a --guard is breached. 3: no detectable difference.
    """
    from optimize.abtest.offline import compare_offline
    from optimize.evaluation.comparison import parse_margin

    margins = [parse_margin(text) for text in guard or ()]
    with progress("asking", quiet=json) as advance:
        found = compare_offline(
            [a, *b],
            metric,
            data=data,
            point=point,
            repeats=repeats,
            margins=margins,
            effect=effect,
            root=artifacts,
            project=project,
            progress=advance,
        )
    if html is not None:
        _write(html, found)
    if json:
        print_json(found.as_dict())
    else:
        for arm in found.arms:
            _print_arm(found, arm)
        for warning in found.warnings:
            typer.echo(f"warning: {warning}", err=True)
    raise typer.Exit(found.exit_code)


def _write(path: Path, found: OfflineTest) -> None:
    from optimize.report.abpage import as_page
    from program.errors import DataError

    try:
        path.write_text(as_page(found), encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}.", "Name a file in a folder.") from error


def _print_arm(found: OfflineTest, arm: Arm) -> None:
    """The verdict, guardrails, the other metrics, tags, and the answers that changed class."""
    from optimize.abtest.offline import SUBGROUPS
    from optimize.evaluation.comparison import judge_difference
    from optimize.evaluation.stats import format_p

    one = arm.comparison
    typer.echo(one.text() if len(found.arms) == 1 else f"{arm.version}: {one.text()}")
    if arm.needed:
        typer.echo(f"A difference of {found.effect:g} would take about {arm.needed} questions of such topics.")
    others = [
        (
            name,
            f"{test.difference:+.4g}",
            f"[{test.ci[0]:+.4g}, {test.ci[1]:+.4g}]",
            format_p(test.p).removeprefix("= "),
            str(test.n),
            judge_difference(name, test).replace("_", " "),
        )
        for name, test in one.others.items()
    ]
    print_table("other metrics", ("metric", "B - A", "95 % interval", "p (Holm)", "n", "verdict"), others)
    guards = [
        (
            str(g.margin),
            *(("-", "-") if g.n == 0 else (f"{g.worse:+.3g}", f"{g.limit:+.3g}")),
            g.state.replace("_", " "),
        )
        for g in one.guardrails
    ]
    print_table("guardrails", ("may get worse by", "worse by", "95 % limit", "state"), guards)
    if one.by_tag:
        tags = [(t, f"{i.mean:+.3f}", f"[{i.low:+.3f}, {i.high:+.3f}]", str(i.n)) for t, i in one.by_tag.items()]
        print_table(f"{one.metric} by tag", ("tag", "B - A", "95 % interval", "n"), tags)
        typer.echo(SUBGROUPS)
    if one.flipped:
        flipped = [(f["id"], f["a"], f["b"], f.get("question", "")) for f in one.flipped]
        print_table("answers that changed", ("id", "A", "B", "question"), flipped)
