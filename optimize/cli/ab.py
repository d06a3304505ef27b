"""`ragc ab`: versions put to the test against each other."""

from __future__ import annotations

import typer

from optimize.cli.offline import offline


def register(app: typer.Typer) -> None:
    """Adds `ab` and its verbs."""
    ab = typer.Typer(no_args_is_help=True, help="Two versions put to the test against each other.")
    ab.callback()(lambda: None)  # with one verb, Typer would otherwise leave its name out
    ab.command("offline")(offline)
    app.add_typer(ab, name="ab")
