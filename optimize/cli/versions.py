"""`ragc diff`, `log`, `gc`: what changed, where it came from, what may go."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optimize.cli.registry import DEFAULT_ARTIFACTS, Artifacts, headline, say_none
from optimize.cli.show import Json, counted, print_json, print_table
from program.errors import IntegrityError, RagcError

if TYPE_CHECKING:
    from optimize.compiler.publish import LineageNode


def register(app: typer.Typer) -> None:
    """Adds the verbs."""
    app.command("diff")(diff)
    app.command("log")(log)
    app.command("gc")(gc)


def diff(
    a: Annotated[str, typer.Argument(help="The version before.")],
    b: Annotated[str, typer.Argument(help="The version after.")],
    point: Annotated[str, typer.Option(help="Whose thresholds and knobs: quality, balanced or economy.")] = "balanced",
    md: Annotated[bool, typer.Option("--md", help="Print Markdown, for a pull request.")] = False,
    artifacts: Artifacts = DEFAULT_ARTIFACTS,
    json: Json = False,
) -> None:
    """What changed from A to B: wording, demonstrations, thresholds, data, models, scores, answers."""
    from optimize.cli.difference import as_markdown, print_difference
    from optimize.registry import diff as diffs

    if md and json:
        raise RagcError("Both --md and --json were given.", "Give one of them.")
    found = diffs.diff_versions(a, b, point, artifacts)
    if json:
        print_json(found.as_dict())
    elif md:
        typer.echo(as_markdown(found))
    else:
        print_difference(found)


def log(
    name: Annotated[str, typer.Argument(help="The program.")],
    artifacts: Artifacts = DEFAULT_ARTIFACTS,
    json: Json = False,
) -> None:
    """Draws which version was compiled from which, and lists the moves of the aliases."""
    from optimize.compiler.publish import build_lineage
    from optimize.registry.aliases import read_history

    lines = build_lineage(name, artifacts)
    moves = read_history(name, artifacts)
    if json:
        print_json({"lineage": [_nested(line) for line in lines], "moves": moves})
        return
    _print_tree(name, lines)
    if moves:
        rows = [
            (m["alias"], f"{m['from'] or 'nothing'} -> {m['to']}", m["action"], m["ts"], m["actor"], m["reason"])
            for m in moves
        ]
        print_table("moves of aliases", ("alias", "move", "action", "when", "who", "why"), rows)


def gc(
    keep: Annotated[int, typer.Option(min=1, help="Of each program, how many of the newest versions stay.")],
    name: Annotated[str, typer.Argument(help="One program; all when left out.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would go; the default.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Remove what goes.")] = False,
    artifacts: Artifacts = DEFAULT_ARTIFACTS,
    json: Json = False,
) -> None:
    """Removes old versions; never one with an alias, a parent, one to roll back to, or one in an experiment.

    One that cannot be read is named, and stays: exit code 4.
    """
    from optimize.registry.retention import collect_garbage as collect

    if dry_run and force:
        raise RagcError("Both --dry-run and --force were given.", "Give one of them.")
    fates = collect(keep, name, force=force, root=artifacts)
    if not fates and not json:
        say_none(artifacts)
        return
    if json:
        kept = [{key: value for key, value in asdict(f).items() if key != "broken" or value} for f in fates]
        print_json([{**k, "goes": f.goes, "removed": f.goes and force} for k, f in zip(kept, fates, strict=True)])
    else:
        word = "removed" if force else "would go"
        rows = [(f"{f.name}@{f.version}", f"{f.size / 2**20:.2f} MB", f.reason or word) for f in fates]
        print_table("versions", ("version", "size", "stays because"), rows)
        gone = [f for f in fates if f.goes]
        size = sum(f.size for f in gone) / 2**20
        hint = "" if force or not gone else " To remove them, add --force."
        typer.echo(f"{len(gone)} of {counted(len(fates), 'version')} {word}, {size:.2f} MB.{hint}")
    if broken := [f for f in fates if f.broken]:
        for fate in broken:
            typer.echo(f"error: {fate.name}@{fate.version} stays: {fate.broken}", err=True)
        raise typer.Exit(IntegrityError.exit_code)


def _print_tree(name: str, lines: list[LineageNode]) -> None:
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    def grow(above: Tree, line: LineageNode) -> None:
        one = line.listed
        told = [one.version, one.created_at, headline(one.metrics), *(f"<- {alias}" for alias in one.aliases)]
        if line.lost:
            told.append(f"(from {line.lost}, which is not here)")
        if one.broken:
            told.append(f"broken: {one.broken}")
        branch = above.add(Text("  ".join(part for part in told if part)))
        for child in line.children:
            grow(branch, child)

    tree = Tree(Text(name))
    for line in lines:
        grow(tree, line)
    Console(width=160).print(tree)


def _nested(line: LineageNode) -> dict[str, Any]:
    one = line.listed
    return {
        "version": one.version,
        "digest": one.digest,
        "created_at": one.created_at,
        "aliases": list(one.aliases),
        "parent": one.parent,
        "lost": line.lost,
        **({"broken": one.broken} if one.broken else {}),
        "children": [_nested(child) for child in line.children],
    }
