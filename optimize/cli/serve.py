"""`ragc serve` and `trace`: a version, an experiment or a project over HTTP, and what the traces of a program tell."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

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


def run_trace(
    where: Annotated[str, Argument(help="The project folder, or a file of traces.")],
    trace_id: Annotated[str, Argument(metavar="[ID]", help="A trace's id, or its beginning: its steps alone.")] = "",
    review: Annotated[bool, Option("--review", help="List the answers that a person should look at.")] = False,
) -> None:
    """Show the monitoring figures of all traces, or the steps of one."""
    from ragc.optimize.report.monitoring import find_trace, list_queue, open_log, summarise_traces

    log = open_log(where)
    if trace_id:
        show.refuse_beside("ID", trace_id, review=review)
        entry = find_trace(log, trace_id)
        show.print_result(entry, lambda: _print_trace(entry))
        return
    found: Any = list_queue(log) if review else summarise_traces(log)
    if review:
        title, columns = "to review", ["trace", "confidence", "question", "answer"]
        rows = [[e["trace_id"], f"{e['confidence']:.2f}", e["question"], e["text"]] for e in found]
    else:
        title, columns = show.count_noun(found["n"], "question"), ["figure", "value"]
        rows = [[name, _format_figure(value)] for name, value in found.items()]
    show.print_result(found, lambda: show.print_table(title, columns, rows))


def _print_trace(entry: Mapping[str, Any]) -> None:
    typer.echo(f"{entry['question']}\n{entry['text']}")
    typer.echo(f"{entry['outcome']} | confidence {entry['confidence']:.2f} | stopped by {entry['stopped_by']}")
    typer.echo(" > ".join(entry["path"]))
    rows = []
    for step in entry["steps"]:
        scores = " ".join(f"{score:.3f}" for score in step["scores"].values())
        tokens = f"{step['tokens_in']}+{step['tokens_out']}"
        rows.append([step["name"], step["output"], scores, tokens, f"{step['ms']:.1f}"])
    show.print_table(f"trace {entry['trace_id']}", ["step", "output", "scores", "tokens", "ms"], rows)


def _format_figure(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_format_figure(part)}" for name, part in value.items()) or "-"
    if isinstance(value, tuple):
        return f"{show.count_noun(len(value), 'line')}, the first {value[0]}" if value else "-"
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


VERBS = (run_serve, run_trace)
