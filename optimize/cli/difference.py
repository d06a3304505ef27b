"""A difference of two versions for people: on a terminal, or as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer

from optimize.cli.show import print_table
from optimize.evaluation.comparison import Comparison
from optimize.registry.diff import Difference, Edit

SHOWN = 5
"""Demonstrations and flipped questions that are shown; --json has all."""
CONTEXT = 40
MARKS = {"same": "", "out": "-", "in": "+"}
SCORE_COLUMNS = ("metric", "B - A", "95 % interval", "n")


def print_difference(found: Difference) -> None:
    """The whole difference on stdout."""
    typer.echo(f"{found.a} -> {found.b}")
    if found.same_program:
        typer.echo("the same program")
    for wording in found.wording:
        typer.echo(f"\n{wording.of}")
        typer.echo("  " + "".join(_plain(edit) for edit in wording.edits).replace("\n", "\n  ").rstrip())
    for demos in found.demonstrations:
        typer.echo(
            f"\n{demos.of}: {len(demos.came)} demonstrations came, {len(demos.went)} went, {demos.stayed} stayed"
        )
        for mark, shown in (("+", demos.came), ("-", demos.went)):
            for demo in shown[:SHOWN]:
                typer.echo(f"  {mark} {_line(demo)}")
            if len(shown) > SHOWN:
                typer.echo(f"  {mark} ... and {len(shown) - SHOWN} more")
    for title, changed in _tables(found):
        print_table(title, ("name", "A", "B"), [(n, _value(x), _value(y)) for n, (x, y) in changed.items()])
    if found.scores is None:
        typer.echo(f"scores not compared: {found.unscored}")
        return
    typer.echo(f"\n{found.scores.text()}")
    print_table("scores", SCORE_COLUMNS, _score_rows(found.scores))
    flipped = found.scores.flipped
    if flipped:
        print_table(
            f"{len(flipped)} answers changed",
            ("id", "A", "B", "question"),
            [(f["id"], f["a"], f["b"], f.get("question", "")) for f in flipped],
        )


def as_markdown(found: Difference) -> str:
    """The whole difference as GitHub Markdown."""
    return "\n".join(_markdown(found)) + "\n"


def _markdown(found: Difference) -> Iterator[str]:
    yield f"## `{found.a}` -> `{found.b}`\n"
    if found.same_program:
        yield "The same program.\n"
    if found.scores is None:
        yield f"Scores not compared: {_cell(found.unscored)}\n"
    else:
        yield f"**{_cell(found.scores.text())}**\n"
        yield from _table(SCORE_COLUMNS, _score_rows(found.scores))
    for wording in found.wording:
        yield f"### {_cell(wording.of)}\n"
        yield "```diff"
        for op, text in wording.edits:
            for line in text.strip().splitlines():
                # A fence inside the text must not end this one.
                yield f"{MARKS[op] or ' '} {line}".replace("```", "'''")
        yield "```\n"
    for demos in found.demonstrations:
        yield f"### {_cell(demos.of)}: {len(demos.came)} demonstrations came, {len(demos.went)} went\n"
        shown = [("came", demo) for demo in demos.came[:SHOWN]] + [("went", demo) for demo in demos.went[:SHOWN]]
        yield from _table(("", "demonstration"), [(way, _line(demo)) for way, demo in shown])
    for title, changed in _tables(found):
        yield f"### {title}\n"
        yield from _table(("name", "A", "B"), [(n, _value(x), _value(y)) for n, (x, y) in changed.items()])
    if found.scores and found.scores.flipped:
        yield f"### {len(found.scores.flipped)} answers changed\n"
        flips = [(f["id"], f["a"], f["b"], f.get("question", "")) for f in found.scores.flipped]
        yield from _table(("id", "A", "B", "question"), flips)


def _tables(found: Difference) -> Iterator[tuple[str, Mapping[str, tuple[Any, Any]]]]:
    """The groups of changed values that have any, each with its title."""
    groups = {f"thresholds and knobs ({found.point})": found.settings, **found.sections}
    yield from ((title.replace("env", "packages"), changed) for title, changed in groups.items() if changed)


def _score_rows(scores: Comparison) -> list[tuple[str, ...]]:
    tests = {scores.metric: scores.test, **scores.others}
    return [(name, f"{t.difference:+.4g}", f"[{t.ci[0]:+.4g}, {t.ci[1]:+.4g}]", str(t.n)) for name, t in tests.items()]


def _plain(edit: Edit) -> str:
    op, text = edit
    if op == "same":
        return text if len(text) <= 2 * CONTEXT else f"{text[:CONTEXT]}...{text[-CONTEXT:]}"
    inner = text.rstrip()
    return f"[{MARKS[op]}{inner}{MARKS[op]}]{text[len(inner) :]}"


def _line(demo: Mapping[str, Any]) -> str:
    labels = ", ".join(f"{k}={v}" for k, v in demo.items() if k != "question")
    return f"{demo.get('question', '')} ({labels})" if labels else str(demo.get("question", ""))


def _value(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if rows:
        yield "| " + " | ".join(columns) + " |"
        yield "|" + "---|" * len(columns)
        yield from ("| " + " | ".join(_cell(c) for c in row) + " |" for row in rows)
        yield ""


def _cell(text: str) -> str:
    """Text that cannot break a table or a heading, nor become a tag or a link."""
    flat = " ".join(text.split())
    return "".join(f"\\{c}" if c in r"\`*_{}[]<>|#" else c for c in flat)
