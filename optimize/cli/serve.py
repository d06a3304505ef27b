"""`ragc serve`: a version, an experiment or a project over HTTP, for programs and for people."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer
from typer import Argument, Option

from optimize.cli import show
from program.errors import RagcError

NEEDED = ("starlette", "uvicorn", "sse_starlette", "mcp")


def run_serve(
    target: Annotated[str, Argument(help="A version (name@production is followed), an experiment, a project folder.")],
    host: Annotated[str, Option(help="The address to listen at; this machine only.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="The port.")] = 8000,
    point: Annotated[str, Option(help="Operating point: quality, balanced or economy.")] = "",
    project: show.Moved = None,
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
) -> None:
    """Serve it: an OpenAI route, MCP, a page to ask, compare and review, metrics."""
    if lacks := [name for name in NEEDED if find_spec(name) is None]:
        what = f"`ragc serve` needs {', '.join(lacks)}."
        raise RagcError(what, 'Install the extra: python -m pip install "ragc[serve]"')
    from program.server.app import make_server, open_app

    with show.show_progress("indexing") as advance:
        app = open_app(target, host, artifacts, project, point or None, advance)
    typer.echo(f"Serving {app.state.work.programs.default} at http://{host}:{port}", err=True)
    make_server(app, host, port).run()


VERBS = (run_serve,)
