"""`ragc serve`: a version, an experiment or a project over HTTP, for programs and for people."""

from __future__ import annotations

import ctypes
import logging
from contextlib import suppress
from typing import Annotated

import typer
from typer import Argument, Option

from ragc.errors import require_packages
from ragc.optimize.cli import show

FILES = 65_536  # open at once, connections among them; shells often start with 1,024
ARENA_MAX, ARENAS = -8, 2  # of glibc's mallopt: with an arena for each thread, freed memory is scattered and stays


def run_serve(
    target: Annotated[str, Argument(help="A version (name@production is followed), an experiment, a project folder.")],
    host: Annotated[str, Option(help="The address to listen at; this machine only.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="The port.")] = 8000,
    point: Annotated[str, Option(help="Operating point: quality, balanced or economy.")] = "",
    project: show.Moved = None,
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
) -> None:
    """Serve it: an OpenAI route, MCP, a page to ask, compare and review, metrics."""
    require_packages("`ragc serve`", "serve", "starlette", "uvicorn", "sse_starlette", "mcp")
    from ragc.server.app import make_server, open_app

    _raise_limits()
    # Set up before the MCP SDK does: a failure is lines of text for whatever collects them, not a box of 80 columns.
    logging.basicConfig(level=logging.ERROR, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    log = logging.getLogger("ragc")
    log.handlers = []  # a command's prints a warning once and without its time
    log.setLevel(logging.WARNING)
    with show.show_opening() as advance:
        app = open_app(target, host, artifacts, project, point or None, advance)
    name = app.state.work.programs.default
    make_server(app, host, port, lambda url: typer.echo(f"Serving {name} at {url}", err=True)).run()


def _raise_limits() -> None:
    """Let the process hold as many connections as it may, and little freed memory, where the system knows how."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = FILES if hard == resource.RLIM_INFINITY else min(hard, FILES)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(ARENA_MAX, ARENAS)


VERBS = (run_serve,)
