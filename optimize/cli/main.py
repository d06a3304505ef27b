"""`ragc`: the command line. Each group of verbs is a file of its own; none has logic of its own."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import typer

from optimize.cli import ab, ask, data, project, registry, search, trace, versions
from optimize.cli import compile as compile_
from optimize.cli.interruption import INTERRUPTED
from program.errors import RagcError

DEBUG = "--debug"
UNREAD = 141  # exit code when whoever read the output has left, as of what SIGPIPE ends (128 + 13)
# Threads of torch that wait by spinning starve each other when the machine is busy: fourfold slower here.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # and numpy's matrices here are too small to share

app = typer.Typer(
    name="ragc",
    help="Compile agentic question answering over your own knowledge. Add --debug to any verb for tracebacks.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for verbs in (project, search, ask, data, compile_, registry, versions, ab, trace):
    verbs.register(app)


def main() -> NoReturn:
    """Runs the command line: an error is one sentence what, one how to mend it, and its exit code."""
    debug = DEBUG in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != DEBUG]
    try:
        app(args=arguments, prog_name="ragc")
    except RagcError as error:
        if debug:
            raise
        typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            sys.exit(UNREAD)  # Typer and Rich would say 1, which is a verdict here
        raise
    except Exception as error:
        if debug:
            raise
        if isinstance(error, OSError) and error.strerror:  # a full disk, a folder that may not be written to
            where = error.filename or "a file"
            typer.echo(f"error: {error.strerror}: {where}. Free space, or mend access to it.", err=True)
            sys.exit(2)
        typer.echo(
            f"error: {type(error).__name__}: {error} This is a fault of ragc's own. Add {DEBUG} for the traceback.",
            err=True,
        )
        sys.exit(1)
    sys.exit(0)


if __name__ == "__main__":
    main()
