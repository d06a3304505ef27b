"""`ragc`: the command line. Verbs stand in panels by what they are for; each group of them is a file of its own."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Container, Mapping
from functools import wraps
from importlib.metadata import version
from inspect import Parameter, signature
from itertools import islice
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from ragc.errors import RagcError, explain_disk
from ragc.optimize.cli import abtest, answers, ask, compile, data, project, reader, serve, versions
from ragc.optimize.cli.examples import EXAMPLES
from ragc.optimize.cli.interruption import INTERRUPTED, end_at_once
from ragc.optimize.cli.show import AS_JSON, print_error

DEBUG = "--debug"
UNREAD = 141  # exit code when whoever read the output has left, as of what SIGPIPE ends (128 + 13)
# Threads of torch that wait by spinning starve each other when the machine is busy: fourfold slower here.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # and numpy's matrices here are too small to share


Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


class Verb(TyperCommand):
    """A command that takes an argument for text which begins with a dash and is no option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments, text behind a `--`."""
        every = [option for option in self.get_params(ctx) if isinstance(option, TyperOption)]
        takes = {name: not option.is_flag for option in every for name in (*option.opts, *option.secondary_opts)}
        options: list[str] = []
        texts: list[str] = []
        rest = iter(args)
        for argument in rest:
            if argument == "--":
                texts += rest
            elif _is_text(argument, takes):
                texts.append(argument)
            else:
                options += [argument, *islice(rest, takes.get(argument, 0))]
        return super().parse_args(ctx, [*options, "--", *texts])


def _is_text(argument: str, options: Container[str]) -> bool:
    """Tell whether an argument is no option: "-5 degrees?" is none."""
    if not argument.startswith("-") or argument == "-":
        return True
    if argument.partition("=")[0] in options:
        return False
    return any(map(str.isspace, argument)) or not argument.lstrip("-")[:1].isalpha()


class Panels(TyperGroup):
    """The verbs by what they are for."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section a panel."""
        known = {name: self.commands[name] for name in self.list_commands(ctx)}
        width = formatter.width - 6 - max(map(len, known))
        for panel, names in PANELS.items():
            with formatter.section(panel):
                formatter.write_dl([(name, known[name].get_short_help_str(width)) for name in names])


def add_verbs(app: typer.Typer, *runs: Callable[..., None], group: str = "") -> None:
    """Add each function by its name: `run_ask` is `ask`; its help ends with its examples."""
    for run in runs:
        name = run.__name__.removeprefix("run_").replace("_", "-")
        shown = EXAMPLES.get(f"{group} {name}".strip(), ())
        epilog = "\n".join(["\b", "Examples:", *(f"  {line}" for line in shown)]) if shown else None
        app.command(name, cls=Verb, epilog=epilog)(_take_json(run))


def _take_json(run: Callable[..., None]) -> Callable[..., None]:
    """Return a verb that takes `--json` besides its own options."""

    @wraps(run)
    def verb(json: bool, **options: Any) -> None:
        AS_JSON.set(json)
        run(**options)

    own = signature(run, eval_str=True)
    every = [*own.parameters.values(), Parameter("json", Parameter.KEYWORD_ONLY, default=False, annotation=Json)]
    verb.__signature__ = own.replace(parameters=every)  # type: ignore[attr-defined]
    verb.__annotations__ = {one.name: one.annotation for one in every}
    return verb


PANELS: Mapping[str, tuple[str, ...]] = {
    "Make": ("init", "doctor", "index"),
    "Ask": ("ask", "answers", "search", "eval", "serve", "trace"),
    "Compile": ("data", "compile", "seal"),
    "Versions": ("ls", "show", "verify", "diff", "promote", "rollback", "gc"),
    "Put to the test": ("compare", "experiment"),
}
app = typer.Typer(
    name="ragc",
    help="Compile agentic question answering over your own knowledge. Add --debug to any verb for tracebacks.",
    cls=Panels,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for verbs in (project, ask, answers, serve, compile, versions, abtest):
    add_verbs(app, *verbs.VERBS)
for group, grouped, about in (
    ("reader", reader.VERBS, "Train the local model that finds answers in passages."),
    ("data", data.VERBS, "Validate, count, divide, import and draft the labelled questions."),
    ("experiment", abtest.LIVE, "Put versions to the test against each other on live traffic."),
):
    below = typer.Typer(help=about, no_args_is_help=True)
    add_verbs(below, *grouped, group=group)
    app.add_typer(below, name=group, hidden=group == "reader")  # few train one: docs/models.md does


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"ragc {version('ragc')}")
        raise typer.Exit


@app.callback()
def _take_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it and exit.")
    ] = False,
) -> None:
    """Take what stands before a verb: `--version` prints the version and ends."""
    first: dict[str, logging.LogRecord] = {}
    log = logging.StreamHandler()  # a warning of the package is printed on stderr, once a command
    log.addFilter(lambda record: first.setdefault(record.getMessage(), record) is record)
    logging.getLogger("ragc").handlers = [log]


def main() -> NoReturn:
    """Run `ragc`."""
    run_app(app, "ragc")


def run_app(app: typer.Typer, name: str | None = None) -> NoReturn:
    """Run a command line; an error is two sentences and an exit code."""
    debug = DEBUG in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != DEBUG]
    try:
        app(args=arguments, prog_name=name)
    except KeyboardInterrupt:
        end_at_once()
        typer.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            sys.exit(UNREAD)  # Typer would say 1, which is a verdict here
        if end.code == INTERRUPTED:
            end_at_once()
        raise
    except Exception as error:
        if debug:
            raise
        print_error(_explain_error(error))
        sys.exit(error.exit_code if isinstance(error, RagcError) else 2 if isinstance(error, OSError) else 1)
    sys.exit(0)


def _explain_error(error: Exception) -> RagcError:
    if isinstance(error, RagcError):
        return error
    if isinstance(error, OSError) and error.strerror:  # a full disk, a folder that may not be written to
        return explain_disk(error)
    return RagcError(
        f"{type(error).__name__}: {error}", f"This is a fault of ragc's own. Add {DEBUG} for the traceback."
    )


if __name__ == "__main__":
    main()
