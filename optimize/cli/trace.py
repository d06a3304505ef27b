"""`ragc trace show` and `trace stats`: one question's way, and the monitoring figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from optimize.cli.show import Json, counted, print_json, print_table

Where = Annotated[str, typer.Argument(help="The project folder, or a file of traces.")]


def register(app: typer.Typer) -> None:
    """Adds the verbs."""
    verbs = typer.Typer(help="What happened: one question's steps, and the figures of all.", no_args_is_help=True)
    verbs.command()(show)
    verbs.command()(stats)
    app.add_typer(verbs, name="trace")


def show(
    trace_id: Annotated[str, typer.Argument(help="The trace's id, or its beginning.")],
    where: Where = ".",
    json: Json = False,
) -> None:
    """One question: its path, and each step with its scores, tokens and milliseconds."""
    from optimize.report.monitoring import log_of, trace_of

    entry = trace_of(log_of(where), trace_id)
    if json:
        print_json(entry)
        return
    typer.echo(entry["question"])
    typer.echo(entry["text"])
    typer.echo(f"{entry['outcome']} | confidence {entry['confidence']:.2f} | stopped by {entry['stopped_by']}")
    typer.echo(" > ".join(entry["path"]))
    rows = [
        [
            step["name"],
            step["output"],
            " ".join(f"{score:.3f}" for score in step["scores"].values()),
            f"{step['tokens_in']}+{step['tokens_out']}",
            f"{step['ms']:.1f}",
        ]
        for step in entry["steps"]
    ]
    print_table(f"trace {entry['trace_id']}", ["step", "output", "scores", "tokens", "ms"], rows)


def stats(
    where: Where = ".",
    review: Annotated[bool, typer.Option("--review", help="List the answers that a person should look at.")] = False,
    json: Json = False,
) -> None:
    """The monitoring figures of every trace kept, or one of the queues."""
    from optimize.report.monitoring import log_of, monitor, queue_of

    log = log_of(where)
    if review:
        queue = queue_of(log.review)
        if json:
            print_json(queue)
            return
        rows = [[e["trace_id"], f"{e['confidence']:.2f}", e["question"], e["text"]] for e in queue]
        print_table("to review", ["trace", "confidence", "question", "answer"], rows)
        return
    figures = monitor(log).as_dict()
    if json:
        print_json(figures)
    else:
        print_table(
            counted(figures["n"], "question"), ["figure", "value"], [[k, _shown(v)] for k, v in figures.items()]
        )


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(part)}" for name, part in value.items()) or "-"
    if isinstance(value, tuple):
        return f"{counted(len(value), 'line')}, the first {value[0]}" if value else "-"
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
