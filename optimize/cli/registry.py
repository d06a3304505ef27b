"""`ragc ls`, `show`, `verify`, `promote`, `rollback`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from optimize.cli.show import Json, print_json, print_table, progress
from program.errors import IntegrityError, RagcError

if TYPE_CHECKING:
    from optimize.registry.aliases import AliasMove

Artifacts = Annotated[Path, typer.Option("--artifacts", envvar="RAGC_ARTIFACTS", help="Where versions are kept.")]
DEFAULT_ARTIFACTS = Path("artifacts")
Ref = Annotated[str, typer.Argument(help="name@v7, name@production, name@latest, name, or a folder.")]
Reason = Annotated[str, typer.Option(help="Why, for the history.")]
HEADLINE = ("utility", "correct", "wrong")


def register(app: typer.Typer) -> None:
    """Adds the verbs."""
    app.command("ls")(ls)
    app.command("show")(show)
    app.command("verify")(verify)
    app.command("promote")(promote)
    app.command("rollback")(rollback)


def ls(
    name: Annotated[str, typer.Argument(help="One program; all when left out.")] = "",
    artifacts: Artifacts = DEFAULT_ARTIFACTS,
    json: Json = False,
) -> None:
    """The versions, oldest first; what cannot be read is named as broken."""
    from optimize.registry import versions as registry

    found = registry.list_versions(name, artifacts)
    if json:
        print_json([v.as_dict() for v in found])
        return
    if not found:
        say_none(artifacts)
        return
    rows = [
        (
            f"{v.name}@{v.version}" if v.version else v.name,
            ", ".join(v.aliases),
            v.created_at,
            v.parent or "",
            f"broken: {v.broken}" if v.broken else headline(v.metrics),
        )
        for v in found
    ]
    print_table("versions", ("version", "aliases", "created", "parent", "scores"), rows)


def show(ref: Ref, artifacts: Artifacts = DEFAULT_ARTIFACTS, json: Json = False) -> None:
    """One version's manifest, after checking every byte of it."""
    from optimize.registry import versions as registry

    found = registry.open_version(ref, artifacts)
    fields = {**found.fields, "digest": found.digest}
    if json:
        print_json(fields)
    else:
        print_table(f"{found.name}@{found.version}", ("field", "value"), _flat(fields))


def verify(
    ref: Annotated[str, typer.Argument(help="A version; or give --all.")] = "",
    all_: Annotated[bool, typer.Option("--all", help="Every version and every alias; bytes only.")] = False,
    project: Annotated[Path | None, typer.Option(help="The project folder, when it moved since.")] = None,
    artifacts: Artifacts = DEFAULT_ARTIFACTS,
    json: Json = False,
) -> None:
    """Checks that every byte is as it was sealed and, for one version, that it loads here. Exit code 4 if not."""
    from optimize.registry import versions as registry

    if bool(ref) == all_:
        raise RagcError("Nothing, or too much, was named to verify.", "Give one reference, or --all.")
    if all_:
        checked = registry.verify_all(artifacts)
    else:
        with progress("indexing", quiet=json) as advance:
            checked = [registry.verify_by_loading(ref, artifacts, project, advance)]
    if json:
        print_json([{**asdict(c), "ok": c.sound} for c in checked])
    else:
        rows = [(c.reference, "; ".join(c.problems) or ", ".join(filter(None, ("sound", c.note)))) for c in checked]
        print_table("verified", ("version", "state"), rows)
    if mends := list(dict.fromkeys(c.mend for c in checked if not c.sound)):
        typer.echo(f"error: Not everything is sound. {' '.join(mends)}", err=True)
        raise typer.Exit(IntegrityError.exit_code)


def promote(
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
    artifacts: Artifacts = DEFAULT_ARTIFACTS,
    json: Json = False,
) -> None:
    """Points an alias at a version."""
    from optimize.registry import aliases

    move = aliases.promote_version(
        ref, to, require=require, min_gain=min_gain, expect=expect, reason=reason, root=artifacts
    )
    _print_move(move, json)


def rollback(
    name: Annotated[str, typer.Argument(help="The program.")],
    alias: Annotated[str, typer.Option(help="The alias to set back.")] = "production",
    reason: Reason = "",
    artifacts: Artifacts = DEFAULT_ARTIFACTS,
    json: Json = False,
) -> None:
    """Points an alias back at the version it had before."""
    from optimize.registry import aliases

    _print_move(aliases.roll_back(name, alias, reason=reason, root=artifacts), json)


def _print_move(move: AliasMove, json: bool) -> None:
    if json:
        print_json(move.as_dict())
        return
    gate = f" ({move.gate.text()})" if move.gate else ""
    typer.echo(f"{move.name}@{move.alias}: {move.previous or 'nothing'} -> {move.version}{gate}")


def say_none(artifacts: Path) -> None:
    """Says that no version is kept there."""
    from program.settings import artifacts_root

    where = artifacts_root(artifacts)
    typer.echo(f"There is no version in {where}. Name another folder with --artifacts, or compile.", err=True)


def headline(metrics: Mapping[str, Any]) -> str:
    """The leading scores of a manifest in a few words."""
    measures = ((name, metrics.get(name)) for name in HEADLINE)
    return ", ".join(f"{name} {m['value']:.3f}" for name, m in measures if m and m.get("value") is not None)


def _flat(fields: Mapping[str, Any], above: str = "") -> list[tuple[str, str]]:
    """Nested fields as dotted names and plain values."""
    rows = []
    for name, value in sorted(fields.items()):
        if isinstance(value, Mapping):
            rows += _flat(value, f"{above}{name}.")
        else:
            rows.append((f"{above}{name}", "" if value is None else str(value)))
    return rows
