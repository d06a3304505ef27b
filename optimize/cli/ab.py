"""`ragc ab`: versions put to the test against each other, on labelled questions or on live traffic."""

from __future__ import annotations

import typer

from optimize.cli import ab_online
from optimize.cli.offline import offline


def register(app: typer.Typer) -> None:
    """Adds `ab` and its verbs."""
    ab = typer.Typer(no_args_is_help=True, help="Versions put to the test against each other.")
    ab.command("offline")(offline)
    ab_online.register(ab)
    app.add_typer(ab, name="ab")
