"""`ragc trace`: the monitoring figures of all questions, what is to be reviewed, and one question's steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from typer import Argument, Option

from ragc.optimize.cli.show import count_noun, print_result, print_table, refuse_beside


def run_trace(
    where: Annotated[str, Argument(help="The project folder, or a file of traces.")],
    trace_id: Annotated[str, Argument(metavar="[ID]", help="A trace's id, or its beginning: its steps alone.")] = "",
    review: Annotated[bool, Option("--review", help="List the answers that a person should look at.")] = False,
) -> None:
    """Show the monitoring figures of all traces, or the steps of one."""
    from ragc.optimize.report.monitoring import find_trace, list_queue, open_log, summarise_traces

    log = open_log(where)
    if trace_id:
        refuse_beside("ID", trace_id, review=review)
        entry = find_trace(log, trace_id)
        print_result(entry, lambda: _print_trace(entry))
        return
    found: Any = list_queue(log) if review else summarise_traces(log)
    if review:
        title, columns = "to review", ["trace", "confidence", "question", "answer"]
        rows = [[e["trace_id"], f"{e['confidence']:.2f}", e["question"], e["text"]] for e in found]
    else:
        title, columns = count_noun(found["n"], "question"), ["figure", "value"]
        rows = [[name, _format_figure(value)] for name, value in found.items()]
    print_result(found, lambda: print_table(title, columns, rows))


def _print_trace(entry: Mapping[str, Any]) -> None:
    typer.echo(f"{entry['question']}\n{entry['text']}")
    typer.echo(f"{entry['outcome']} | confidence {entry['confidence']:.2f} | stopped by {entry['stopped_by']}")
    typer.echo(" > ".join(entry["path"]))
    rows = []
    for step in entry["steps"]:
        scores = " ".join(f"{score:.3f}" for score in step["scores"].values())
        tokens = f"{step['tokens_in']}+{step['tokens_out']}"
        rows.append([step["name"], step["output"], scores, tokens, f"{step['ms']:.1f}"])
    print_table(f"trace {entry['trace_id']}", ["step", "output", "scores", "tokens", "ms"], rows)


def _format_figure(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_format_figure(part)}" for name, part in value.items()) or "-"
    if isinstance(value, tuple):
        return f"{count_noun(len(value), 'line')}, the first {value[0]}" if value else "-"
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


VERBS = (run_trace,)
