"""`ragc ls`, `show`, `verify`, `promote`, `rollback`, `diff`, `log` and `gc`: the versions of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from optimize.cli import show
from program.errors import IntegrityError, RagcError

if TYPE_CHECKING:
    from optimize.evaluation.comparison import Comparison
    from optimize.registry.aliases import AliasMove
    from optimize.registry.diff import Difference, Edit
    from optimize.registry.lineage import LineageNode

HEADLINE = ("utility", "correct", "wrong")
SHOWN = 5
"""Demonstrations of a predictor that are shown; --json has all."""
CONTEXT = 40
MARKS = {"same": "", "out": "-", "in": "+"}
Ref = Annotated[str, typer.Argument(help="name@v7, name@production, name@latest, name, or a folder.")]
Reason = Annotated[str, typer.Option(help="Why, for the history.")]


def add_version_verbs(app: typer.Typer) -> None:
    """Add the verbs of the registry."""
    show.add_verbs(app, run_ls, run_show, run_verify, run_promote, run_rollback, run_diff, run_log, run_gc)


def run_ls(
    name: Annotated[str, typer.Argument(help="One program; all when left out.")] = "",
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
    json: show.Json = False,
) -> None:
    """List the versions, oldest first; what cannot be read is named as broken."""
    from optimize.registry import versions as registry

    found = registry.list_versions(name, artifacts)
    if json:
        show.print_json([v.as_dict() for v in found])
        return
    if not found:
        _say_none(artifacts)
        return
    rows = []
    for v in found:
        scores = f"broken: {v.broken}" if v.broken else _format_scores(v.metrics)
        name = f"{v.name}@{v.version}".rstrip("@")
        rows.append([name, ", ".join(v.aliases), v.created_at, v.parent or "", scores])
    show.print_table("versions", ("version", "aliases", "created", "parent", "scores"), rows)


def run_show(ref: Ref, artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS, json: show.Json = False) -> None:
    """Show one version's manifest, after checking every byte of it."""
    from optimize.registry import versions as registry
    from optimize.registry.diff import flatten

    found = registry.open_version(ref, artifacts)
    fields = {**found.fields, "digest": found.digest}
    if json:
        show.print_json(fields)
    else:
        rows = [(name, "" if value is None else str(value)) for name, value in sorted(flatten(fields).items())]
        show.print_table(found.label, ("field", "value"), rows)


def run_verify(
    ref: Annotated[str, typer.Argument(help="A version; or give --all.")] = "",
    all_: Annotated[bool, typer.Option("--all", help="Every version and every alias; bytes only.")] = False,
    project: Annotated[Path | None, typer.Option(help="The project folder, when it moved since.")] = None,
    program: show.Program = "",
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
    json: show.Json = False,
) -> None:
    """Check that all bytes are as sealed and the version loads; 4 if not."""
    from optimize.programs.examples import import_function
    from optimize.registry import versions as registry

    if bool(ref) == all_:
        raise RagcError("Nothing, or too much, was named to verify.", "Give one reference, or --all.")
    if all_:
        checked = registry.verify_all(artifacts)
    else:
        with show.show_progress("indexing", json) as advance:
            make = import_function(program) if program else None
            checked = [registry.verify_by_loading(ref, artifacts, project, advance, make)]
    if json:
        show.print_json([{**asdict(c), "ok": c.sound} for c in checked])
    else:
        rows = [(c.reference, "; ".join(c.problems) or ", ".join(filter(None, ("sound", c.note)))) for c in checked]
        show.print_table("verified", ("version", "state"), rows)
    if mends := list(dict.fromkeys(c.mend for c in checked if not c.sound)):
        show.print_error(IntegrityError("Not everything is sound.", " ".join(mends)), json)
        raise typer.Exit(IntegrityError.exit_code)


def run_promote(
    ref: Ref,
    to: Annotated[str, typer.Option(help="The alias to set, such as production.")],
    require: Annotated[
        Literal["better", "no-worse"] | None,
        typer.Option(help="Compare with the alias's present version first; exit code 1 if it does not pass."),
    ] = None,
    min_gain: Annotated[
        float | None,
        typer.Option(help="The 95 % interval of the gain must not reach below this. Default 0; -0.02 for no-worse."),
    ] = None,
    expect: Annotated[str | None, typer.Option(help="Only if the alias points at this version now.")] = None,
    reason: Reason = "",
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
    json: show.Json = False,
) -> None:
    """Point an alias at a version."""
    from optimize.registry.aliases import promote_version

    _print_move(
        promote_version(ref, to, require=require, min_gain=min_gain, expect=expect, reason=reason, root=artifacts), json
    )


def run_rollback(
    name: Annotated[str, typer.Argument(help="The program.")],
    alias: Annotated[str, typer.Option(help="The alias to set back.")] = "production",
    reason: Reason = "",
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
    json: show.Json = False,
) -> None:
    """Point an alias back at the version it had before."""
    from optimize.registry.aliases import roll_back

    _print_move(roll_back(name, alias, reason=reason, root=artifacts), json)


def run_diff(
    a: Annotated[str, typer.Argument(help="The version before.")],
    b: Annotated[str, typer.Argument(help="The version after.")],
    point: Annotated[str, typer.Option(help="Whose thresholds and knobs: quality, balanced or economy.")] = "balanced",
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
    json: show.Json = False,
) -> None:
    """Show what changed from A to B: wording, demonstrations, settings, scores."""
    from optimize.registry.diff import diff_versions

    found = diff_versions(a, b, point, artifacts)
    if json:
        show.print_json(found.as_dict())
    else:
        _print_difference(found)


def run_log(
    name: Annotated[str, typer.Argument(help="The program.")],
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
    json: show.Json = False,
) -> None:
    """Draw which version was compiled from which, and list the moves of the aliases."""
    from optimize.registry.aliases import read_history
    from optimize.registry.lineage import build_lineage

    lines = build_lineage(name, artifacts)
    moves = read_history(name, artifacts)
    if json:
        show.print_json({"lineage": [_nest_line(line) for line in lines], "moves": moves})
        return
    typer.echo(name)
    _print_lines(lines)
    if moves:
        told = [{**m, "move": f"{m['from'] or 'nothing'} -> {m['to']}"} for m in moves]
        rows = [[m[key] for key in ("alias", "move", "action", "ts", "actor", "reason")] for m in told]
        show.print_table("moves of aliases", ("alias", "move", "action", "when", "who", "why"), rows)


def run_gc(
    keep: Annotated[int, typer.Option(min=1, help="Of each program, how many of the newest versions stay.")],
    name: Annotated[str, typer.Argument(help="One program; all when left out.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would go; the default.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Remove what goes.")] = False,
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
    json: show.Json = False,
) -> None:
    """Remove old versions that nothing points at.

    One with an alias, one to roll back to, a parent, and one in an experiment stay. One that cannot be read is named,
    and stays: exit code 4.
    """
    from optimize.registry.retention import collect_garbage

    if dry_run and force:
        raise RagcError("Both --dry-run and --force were given.", "Give one of them.")
    fates = collect_garbage(keep, name, force=force, root=artifacts)
    if json:
        kept = [{key: value for key, value in asdict(f).items() if key != "broken" or value} for f in fates]
        show.print_json([{**k, "goes": f.goes, "removed": f.goes and force} for k, f in zip(kept, fates, strict=True)])
    elif not fates:
        _say_none(artifacts)
    else:
        word = "removed" if force else "would go"
        rows = [(f"{f.name}@{f.version}", f"{f.size / 2**20:.2f} MB", f.reason or word) for f in fates]
        show.print_table("versions", ("version", "size", "stays because"), rows)
        gone = [f for f in fates if f.goes]
        size = sum(f.size for f in gone) / 2**20
        hint = "" if force or not gone else " To remove them, add --force."
        typer.echo(f"{len(gone)} of {show.count_noun(len(fates), 'version')} {word}, {size:.2f} MB.{hint}")
    if broken := [f for f in fates if f.broken]:
        for fate in broken:
            show.print_error(IntegrityError(f"{fate.name}@{fate.version} stays: {fate.broken}"), json)
        raise typer.Exit(IntegrityError.exit_code)


def _print_move(move: AliasMove, json: bool) -> None:
    if json:
        show.print_json(move.as_dict())
        return
    gate = f" ({move.gate.text()})" if move.gate else ""
    typer.echo(f"{move.name}@{move.alias}: {move.previous or 'nothing'} -> {move.version}{gate}")


def _say_none(artifacts: Path) -> None:
    from program.settings import artifacts_root

    where = artifacts_root(artifacts)
    typer.echo(f"There is no version in {where}. Name another folder with --artifacts, or compile.", err=True)


def _format_scores(metrics: Mapping[str, Any]) -> str:
    """Return the leading scores of a manifest in a few words."""
    measures = ((name, metrics.get(name)) for name in HEADLINE)
    return ", ".join(f"{name} {m['value']:.3f}" for name, m in measures if m and m.get("value") is not None)


def _print_lines(lines: Sequence[LineageNode], depth: int = 1) -> None:
    for line in lines:
        one = line.listed
        parts = [one.version, one.created_at, _format_scores(one.metrics), *(f"<- {alias}" for alias in one.aliases)]
        parts.append(f"(from {line.lost}, which is not here)" if line.lost else "")
        parts.append(f"broken: {one.broken}" if one.broken else "")
        typer.echo("  " * depth + "  ".join(filter(None, parts)))
        _print_lines(line.children, depth + 1)


def _nest_line(line: LineageNode) -> dict[str, Any]:
    one = line.listed
    return {
        **{name: getattr(one, name) for name in ("version", "digest", "created_at", "aliases", "parent")},
        "lost": line.lost,
        **({"broken": one.broken} if one.broken else {}),
        "children": [_nest_line(child) for child in line.children],
    }


def _print_difference(found: Difference) -> None:
    typer.echo(f"{found.a} -> {found.b}")
    if found.same_program:
        typer.echo("the same program")
    for wording in found.wording:
        text = "".join(map(_mark_edit, wording.edits))
        typer.echo(f"\n{wording.of}\n  " + text.replace("\n", "\n  ").rstrip())
    for demos in found.demonstrations:
        went = f"{len(demos.went)} went, {demos.stayed} stayed"
        typer.echo(f"\n{demos.of}: {len(demos.came)} demonstrations came, {went}")
        for mark, shown in (("+", demos.came), ("-", demos.went)):
            typer.echo("".join(f"  {mark} {_format_demonstration(demo)}\n" for demo in shown[:SHOWN]), nl=False)
            if len(shown) > SHOWN:
                typer.echo(f"  {mark} ... and {len(shown) - SHOWN} more")
    typer.echo(f"\n{found.scores.text()}" if found.scores else f"scores not compared: {found.unscored}")
    groups = {f"thresholds and knobs ({found.point})": found.settings, **found.sections}
    for title, changed in groups.items():
        if changed:
            rows = [(name, _format_value(x), _format_value(y)) for name, (x, y) in changed.items()]
            show.print_table(title.replace("env", "packages"), ("name", "A", "B"), rows)
    if found.scores:
        _print_scores(found.scores)


def _print_scores(scores: Comparison) -> None:
    tests = {scores.metric: scores.test, **scores.others}
    rows = [(name, f"{t.difference:+.4g}", show.format_interval(t.ci), str(t.n)) for name, t in tests.items()]
    show.print_table("scores", ("metric", "B - A", "95 % interval", "n"), rows)
    if scores.flipped:
        flips = [(f["id"], f["a"], f["b"], f.get("question", "")) for f in scores.flipped]
        show.print_table(f"{len(flips)} answers changed", ("id", "A", "B", "question"), flips)


def _mark_edit(edit: Edit) -> str:
    op, text = edit
    if op == "same":
        return text if len(text) <= 2 * CONTEXT else f"{text[:CONTEXT]}...{text[-CONTEXT:]}"
    inner = text.rstrip()
    return f"[{MARKS[op]}{inner}{MARKS[op]}]{text[len(inner) :]}"


def _format_demonstration(demo: Mapping[str, Any]) -> str:
    labels = ", ".join(f"{k}={v}" for k, v in demo.items() if k != "question")
    return f"{demo.get('question', '')} ({labels})" if labels else str(demo.get("question", ""))


def _format_value(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
