"""`ragc ls`, `show`, `verify`, `promote`, `rollback`, `diff` and `gc`: the versions of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from ragc.errors import IntegrityError, RagcError
from ragc.optimize.cli import show

if TYPE_CHECKING:
    from ragc.optimize.registry.aliases import AliasMove
    from ragc.optimize.registry.diff import Difference, Edit
    from ragc.optimize.registry.retention import Retention
    from ragc.serve.reference import Manifest

HEADLINE = ("utility", "correct", "wrong")
FIGURES = (
    *(*HEADLINE, "selective_risk", "outcome_accuracy", "routing_accuracy", "retrieval_recall", "fact_recall"),
    *("model_calls", "usd"),
)
MOST_MOVED = 10  # settings that are shown; --all has all
SHOWN = 5  # demonstrations of a predictor that are shown; --json has all
CONTEXT = 40
MARKS = {"same": "", "out": "-", "in": "+"}
Ref = Annotated[str, Argument(help="name@v7, name@production, name@latest, name, or a folder.")]
Reason = Annotated[str, Option(help="Why, for the history.")]


def run_ls(
    name: Annotated[str, Argument(help="One program; all when left out.")] = "",
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
) -> None:
    """List the versions, oldest first, and of one program the moves of its aliases.

    What cannot be read is named as broken.
    """
    from ragc.optimize.registry import versions as registry
    from ragc.optimize.registry.aliases import read_history

    found = registry.list_versions(name, artifacts)
    rows = []
    for v in found:
        scores = f"broken: {v.broken}" if v.broken else _format_scores(v.metrics)
        rows.append([f"{v.name}@{v.version}".rstrip("@"), ", ".join(v.aliases), v.created_at, v.parent, scores])
    columns = ("version", "aliases", "created", "parent", "scores")

    def tell() -> None:
        if not rows:
            _say_none(artifacts)
            return
        show.print_table("versions", columns, rows)
        if moves := read_history(name, artifacts) if name else ():
            ways = [(m["alias"], f"{m['from'] or 'nothing'} -> {m['to']}") for m in moves]
            whys = [[move[key] for key in ("action", "ts", "actor", "reason")] for move in moves]
            heads = ("alias", "move", "action", "when", "who", "why")
            show.print_table("moves of aliases", heads, [[*a, *b] for a, b in zip(ways, whys, strict=True)])

    show.print_result(found, tell)


def run_show(ref: Ref, artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS) -> None:
    """Show what one version is, after checking every byte of it."""
    from ragc.serve.manifest import open_version

    found = open_version(ref, artifacts)
    show.print_result({**found.fields, "digest": found.digest}, lambda: _print_version(found))


def _print_version(found: Manifest) -> None:
    """Print on one screen what a version is, what it scored, and what sets it apart."""
    from ragc.loop.policy import Risk
    from ragc.optimize.evaluation.risk import check_risk
    from ragc.optimize.evaluation.stats import Interval
    from ragc.optimize.labelled.dataset import SPLITS
    from ragc.optimize.registry import versions as registry
    from ragc.optimize.registry.diff import flatten, trace_origin
    from ragc.serve.artifact import DEFAULT_POINT

    root = found.path.parents[2] if found.version else None
    lineage, moved, demonstrations = trace_origin(found, root)
    scores, data = found.section("scores"), found.section("data")
    listed = registry.list_versions(found.name, root) if found.version else []
    tables: dict[str, Mapping[str, Any]] = {
        "questions": {name: data[name].get("n") for name in SPLITS if name in data},
        **{name: found.section(name) for name in ("optimizer", "cost", "knowledge", "models")},
        "demonstrations": demonstrations,
    }
    fields = {
        "sealed": found.created_at,
        "lineage": " > ".join(lineage),
        "aliases": ", ".join(alias for one in listed if one.version == found.version for alias in one.aliases),
    }
    for name, table in tables.items():
        entries = [f"{key} {value}" for key, value in flatten(table).items() if value not in ("", None)]
        fields[name] = ", ".join(entry for entry in entries if " sha256:" not in entry)
    show.print_record(f"{found.label}\n{'':{show.GAP}}{found.digest}", list(fields.items()))
    sides = {
        name: {key: Interval(**side[key]) for key in FIGURES if "ci" in side.get(key, ())}
        for name, side in (("plain RAG", scores.get("plain")), ("this version", scores))
        if side
    }
    if any(sides.values()):
        show.print_metrics("on test: percent or mean [95 % interval by topic]", sides)
    if stated := found.section("risk").get(DEFAULT_POINT):
        tested = Interval(**scores["selective_risk"]) if "selective_risk" in scores else None
        typer.echo(f"Stated risk: {Risk(**stated).describe()}. {check_risk(Risk(**stated), tested)}")
    if moved:
        rows = [[name, *map(_format_value, change.values())] for name, change in moved.items()]
        title = f"{show.count_noun(len(moved), 'setting')} of {DEFAULT_POINT} moved"
        show.print_table(title, ("name", found.parent or "", found.label), rows[:MOST_MOVED])
        if len(moved) > MOST_MOVED:
            typer.echo(f"... and {len(moved) - MOST_MOVED} more: ragc diff {found.parent} {found.label}")
    typer.echo(f"Every field: ragc show {found} --json")


def _format_value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def run_verify(
    ref: Annotated[str, Argument(help="A version; or give --all.")] = "",
    all_: Annotated[bool, Option("--all", help="Every version and every alias; bytes only.")] = False,
    project: show.Moved = None,
    program: show.Program = "",
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
) -> None:
    """Check that a version is as sealed, and loads. Exit code 4 if not."""
    from ragc.optimize.compiler.tasks.examples import import_function
    from ragc.optimize.registry import versions as registry

    if bool(ref) == all_:
        raise RagcError("Nothing, or too much, was named to verify.", "Give one reference, or --all.")
    show.refuse_beside("--program", program, project=project)
    if all_:
        checked = registry.verify_all(artifacts)
    else:
        with show.show_opening() as advance:
            make = import_function(program) if program else None
            checked = [registry.verify_by_loading(ref, artifacts, project, advance, make)]
    rows = [(c.reference, "; ".join(c.problems) or ", ".join(filter(None, ("sound", c.note)))) for c in checked]
    title = "verified" if all(c.sound for c in checked) else "not as sealed"
    shapes = [{**asdict(c), "ok": c.sound} for c in checked]
    show.print_result(shapes, lambda: show.print_table(title, ("version", "state"), rows))
    if mends := list(dict.fromkeys(c.mend for c in checked if not c.sound)):
        show.print_error(IntegrityError("Not everything is sound.", " ".join(mends)))
        raise typer.Exit(IntegrityError.exit_code)


def run_promote(
    ref: Ref,
    to: Annotated[str, Option(help="The alias to set, such as production.")],
    require: Annotated[
        show.Requirement | None,
        Option(help="Compare with the alias's version first, else with the parent; exit code 1 if that fails."),
    ] = None,
    min_gain: Annotated[
        float | None, Option(help="What the 95 % interval of the gain must not reach below, as -0.02.")
    ] = None,
    expect: Annotated[str | None, Option(help="Only if the alias points at this version now.")] = None,
    reason: Reason = "",
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
) -> None:
    """Point an alias at a version, and tell how it compares with the one before it."""
    from ragc.optimize.registry.aliases import promote_version

    options: dict[str, Any] = {"require": require, "min_gain": min_gain, "expect": expect, "reason": reason}
    _print_move(promote_version(ref, to, **options, root=artifacts))


def run_rollback(
    name: Annotated[str, Argument(help="The program.")],
    alias: Annotated[str, Option(help="The alias to set back.")] = "production",
    reason: Reason = "",
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
) -> None:
    """Point an alias back at the version it had before."""
    from ragc.optimize.registry.aliases import roll_back

    _print_move(roll_back(name, alias, reason=reason, root=artifacts))


def run_diff(
    a: Annotated[str, Argument(help="The version before.")],
    b: Annotated[str, Argument(help="The version after.")],
    point: Annotated[str, Option(help="Whose thresholds and knobs: quality, balanced or economy.")] = "balanced",
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
) -> None:
    """Show what changed from A to B. Wording, settings and scores are compared."""
    from ragc.optimize.registry.diff import diff_versions

    found = diff_versions(a, b, point, artifacts)
    show.print_result(found, lambda: _print_difference(found))


def run_gc(
    keep: Annotated[int, Option(min=1, help="Of each program, how many of the newest versions stay.")],
    name: Annotated[str, Argument(help="One program; all when left out.")] = "",
    force: Annotated[bool, Option("--force", help="Remove what goes; without it, only tell.")] = False,
    artifacts: show.Artifacts = show.DEFAULT_ARTIFACTS,
) -> None:
    """Remove old versions that nothing points at.

    One with an alias, one to roll back to, a parent, and one in an experiment stay. One that cannot be read is named,
    and stays: exit code 4.
    """
    from ragc.optimize.registry.retention import collect_garbage

    fates = collect_garbage(keep, name, force=force, root=artifacts)
    show.print_result(fates, lambda: _print_fates(fates, force) if fates else _say_none(artifacts))
    if broken := [f for f in fates if f.broken]:
        for fate in broken:
            show.print_error(IntegrityError(f"{fate.name}@{fate.version} stays: {fate.broken}"))
        raise typer.Exit(IntegrityError.exit_code)


def _print_fates(fates: Sequence[Retention], force: bool) -> None:
    word = "removed" if force else "would go"
    rows = [(f"{f.name}@{f.version}", f"{f.size / 2**20:.2f} MB", f.reason or word) for f in fates]
    show.print_table("versions", ("version", "size", "stays because"), rows)
    gone = [f for f in fates if f.goes]
    size = sum(f.size for f in gone) / 2**20
    hint = "" if force or not gone else " To remove them, add --force."
    typer.echo(f"{len(gone)} of {show.count_noun(len(fates), 'version')} {word}, {size:.2f} MB.{hint}")


def _print_move(move: AliasMove) -> None:
    way = "still" if move.previous == move.version else f"{move.previous or 'nothing'} ->"
    line = f"{move.name}@{move.alias}: {way} {move.version}"
    if move.gate is not None:
        line += f"\n{move.version} against {move.against}, on the test of both ({move.gate.describe()})"
    elif move.against:
        line += f"\nnot compared with {move.against}"
    moved = {"name": move.name, "alias": move.alias, "from": move.previous, "to": move.version}
    show.print_result({**moved, "gate": move.gate, "against": move.against}, lambda: typer.echo(line))


def _say_none(artifacts: Path) -> None:
    from ragc.settings import artifacts_root

    where = artifacts_root(artifacts)
    typer.echo(f"There is no version in {where}. Name another folder with --artifacts, or compile.", err=True)


def _format_scores(metrics: Mapping[str, Any]) -> str:
    """Return the leading scores of a manifest in a few words."""
    measures = ((name, metrics.get(name)) for name in HEADLINE)
    return ", ".join(f"{name} {m['value']:.3f}" for name, m in measures if m and m.get("value") is not None)


def _print_difference(found: Difference) -> None:
    from ragc.optimize.registry.diff import SECTIONS

    typer.echo(f"{found.a} -> {found.b}")
    if found.same_program:
        typer.echo("the same program")
    for of, edits in found.wording.items():
        text = "".join(map(_mark_edit, edits))
        typer.echo(f"\n{of}\n  " + text.replace("\n", "\n  ").rstrip())
    for of, demos in found.demonstrations.items():
        came, went = demos["came"], demos["went"]
        typer.echo(f"\n{of}: {len(came)} demonstrations came, {len(went)} went, {demos['stayed']} stayed")
        for mark, shown in (("+", came), ("-", went)):
            typer.echo("".join(f"  {mark} {_format_demonstration(demo)}\n" for demo in shown[:SHOWN]), nl=False)
            if len(shown) > SHOWN:
                typer.echo(f"  {mark} ... and {len(shown) - SHOWN} more")
    titles = {"settings": f"thresholds and knobs ({found.point})", "env": "packages"}
    for section in ("settings", *SECTIONS):
        rows = [[name, *map(_format_value, change.values())] for name, change in getattr(found, section).items()]
        if rows:
            show.print_table(titles.get(section, section), ("name", "A", "B"), rows)
    if found.scores:
        show.print_comparison(found.scores)
    else:
        typer.echo(f"scores not compared: {found.unscored}")


def _mark_edit(edit: Edit) -> str:
    op, text = edit
    if op == "same":
        return text if len(text) <= 2 * CONTEXT else f"{text[:CONTEXT]}...{text[-CONTEXT:]}"
    inner = text.rstrip()
    return f"[{MARKS[op]}{inner}{MARKS[op]}]{text[len(inner) :]}"


def _format_demonstration(demo: Mapping[str, Any]) -> str:
    labels = ", ".join(f"{k}={v}" for k, v in demo.items() if k != "question")
    return f"{demo.get('question', '')} ({labels})" if labels else str(demo.get("question", ""))


VERBS = (run_ls, run_show, run_verify, run_promote, run_rollback, run_diff, run_gc)
