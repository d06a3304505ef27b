"""`ragc ab`: two versions on the same labelled questions; on live traffic, see ab_online."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from optimize.cli import ab_online
from optimize.cli.registry import DEFAULT_ARTIFACTS, Artifacts
from optimize.cli.show import Json, print_json, print_table

if TYPE_CHECKING:
    from optimize.comparison import Comparison


def register(app: typer.Typer) -> None:
    """Adds `ab` and its verbs."""
    ab = typer.Typer(no_args_is_help=True, help="Two versions put to the test against each other.")
    ab.command("offline")(offline)
    ab_online.register(ab)
    app.add_typer(ab, name="ab")


def offline(
    a: Annotated[str, typer.Argument(help="The version in use.")],
    b: Annotated[str, typer.Argument(help="The version that is to be better.")],
    metric: Annotated[str, typer.Option(help="The one metric the verdict is on.")] = "utility",
    artifacts: Artifacts = DEFAULT_ARTIFACTS,
    json: Json = False,
) -> None:
    """Compares B with A on the questions both were scored on.

    Exit code 0: B is better. 1: B is worse. 3: no detectable difference.
    """
    from optimize.comparison import EXIT_CODES, compare_versions

    found = compare_versions(a, b, metric, artifacts)
    if json:
        print_json(found.as_dict())
    else:
        _print_page(found)
    raise typer.Exit(EXIT_CODES[found.verdict])


def _print_page(found: Comparison) -> None:
    """The verdict, the other metrics, and the answers that changed class."""
    from optimize.comparison import direction

    typer.echo(found.text())
    others = [
        (
            name,
            f"{test.difference:+.4g}",
            f"[{test.ci[0]:+.4g}, {test.ci[1]:+.4g}]",
            f"{test.p:.3f}",
            str(test.n),
            direction(name, test).replace("_", " "),
        )
        for name, test in found.others.items()
    ]
    print_table("other metrics", ("metric", "B - A", "95 % interval", "p (Holm)", "n", "verdict"), others)
    if found.flipped:
        flipped = [(f["id"], f["a"], f["b"], f.get("question", "")) for f in found.flipped]
        print_table("answers that changed", ("id", "A", "B", "question"), flipped)
