"""Aliases such as `production`: promote a version, through a gate when asked, and roll back."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import orjson

from ragc.errors import GateError, IntegrityError, RagcError, VersionError
from ragc.optimize.evaluation.comparison import Comparison
from ragc.optimize.registry.versions import compare_versions, hold_lock, open_published
from ragc.serve.reference import Manifest, is_alias, list_aliases, read_alias, require_name, resolve, resolve_noted
from ragc.settings import artifacts_root
from ragc.storage import write_whole

Requirement = Literal["better", "no-worse"]
HISTORY = "history.jsonl"


@dataclass(frozen=True, slots=True)
class AliasMove:
    """An alias that was set."""

    name: str
    alias: str
    previous: str | None  # the version it pointed at; None the first time, or when its file was broken
    version: str
    gate: Comparison | None = None  # with the version before, else with the one that it was compiled from
    against: str = ""  # the version that it was compared with, or why it was not


def require_alias(alias: str) -> None:
    """Raise `VersionError` for what cannot be an alias."""
    if not is_alias(alias):
        raise VersionError(f"{alias[:80]!r} cannot be an alias.", "Use a word such as production or canary.")


def promote_version(
    ref: str,
    alias: str,
    *,
    require: Requirement | None = None,
    min_gain: float | None = None,
    expect: str | None = None,
    reason: str = "",
    root: Path | str | None = None,
) -> AliasMove:
    """Point an alias at the verified version that a reference names.

    The version is compared, on their sealed scores, with the alias's present one, else with the one that it was
    compiled from. With `require` the verdict on utility decides: "better" wants that one, "no-worse" any but worse.
    With `min_gain` the 95 % interval of the gain must not reach below it. Raises `GateError` when the gate does not
    pass, there is nothing to compare with, or the alias moved meanwhile or is not at `expect`, `VersionError` for a bad
    alias, `IntegrityError` when an alias to compare with cannot be read, `DataError` for scores that do not compare.
    """
    base, gated = artifacts_root(root), require is not None or min_gain is not None
    require_alias(alias)
    found = open_published(ref, base)
    present = _read_present(base, found.name, alias)
    if present is None and (gated or expect is not None) and alias in list_aliases(base, found.name):
        read_alias(base, found.name, alias)  # raises: it is broken, so there is nothing to compare with
    if expect is not None and (wanted := resolve(expect, base).version) != present:
        raise _explain_move(found.name, alias, present, wanted)
    against = f"{found.name}@{present}" if present else found.parent or ""
    if gated and not against:
        what = (
            f"{found} cannot be compared: {found.name}@{alias} points at nothing, and it was compiled from no version."
        )
        raise GateError(what, "Promote it without --require, or set the alias to what it is to be compared with first.")
    gate = None
    if against and (gated or against != str(found)):
        try:
            gate = compare_versions(against, str(found), root=base, by="promote")
        except RagcError as error:
            if gated:
                raise
            against = f"{against}: {error.what}"
    if gate is not None and gated:
        _require_gain(gate, require, min_gain, new=str(found), old=against)
    _set_alias(base, found, alias, present, action="promote", reason=reason)
    return AliasMove(found.name, alias, present, found.version, gate, against)


def roll_back(name: str, alias: str = "production", *, reason: str = "", root: Path | str | None = None) -> AliasMove:
    """Point an alias back at the version it had before.

    Done again, it goes back one further. Raises `VersionError` when there is no earlier version, `IntegrityError` when
    it is not as sealed.
    """
    base = artifacts_root(root)
    require_name(base, name)
    present = read_alias(base, name, alias)["version"]
    before = version_before(name, alias, base)
    if before is None:
        what = f"{name}@{alias} has no earlier version than {present}."
        raise VersionError(what, f"Choose one: ragc promote REF --to {alias}")
    noted = f"The version of {name}@{alias} before {present} is"
    resolve_noted(noted, f"{name}@{before}", base, f"choose another: ragc promote REF --to {alias}")
    found = open_published(f"{name}@{before}", base)
    _set_alias(base, found, alias, present, action="rollback", reason=reason)
    return AliasMove(name, alias, present, found.version)


def version_before(name: str, alias: str, base: Path) -> str | None:
    """Return the version that a rollback would set an alias to, or None.

    Promotions stack up, and a rollback takes one off.
    """
    present = read_alias(base, name, alias)["version"]
    stack: list[str] = []
    for move in (move for move in read_history(name, base) if move["alias"] == alias):
        while move["action"] == "rollback" and stack and stack[-1] != move["to"]:
            stack.pop()
        if stack[-1:] != [move["to"]]:
            stack.append(move["to"])
    while present in stack and stack.pop() != present:
        continue
    return next((version for version in reversed(stack) if version != present), None)


def read_history(name: str, root: Path | str | None = None) -> list[dict[str, Any]]:
    """Read the moves (action, alias, from, to, actor, reason, ts), oldest first."""
    path = artifacts_root(root) / name / HISTORY
    try:
        return [orjson.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise IntegrityError(f"{path} holds a line that is not JSON.", "Remove that line.") from error


def _require_gain(gate: Comparison, require: Requirement | None, min_gain: float | None, *, new: str, old: str) -> None:
    if gate.verdict != "better" if require == "better" else require and gate.verdict == "worse":
        what = f"{new} is not detectably better than {old}" if require == "better" else f"{new} is worse than {old}"
    elif min_gain is not None and gate.ci[0] < min_gain:
        what = f"The gain of {new} over {old} may be below {min_gain:+g}"
    else:
        return
    mend = "Label more questions (above all more topics), lower --min-gain, or promote without --require."
    raise GateError(f"{what}: {gate.describe()}.", mend)


def _read_present(base: Path, name: str, alias: str) -> str | None:
    """Return the version an alias points at; None when there is none, or its file is broken."""
    try:
        return read_alias(base, name, alias)["version"]
    except (VersionError, IntegrityError):
        return None


def _set_alias(base: Path, found: Manifest, alias: str, present: str | None, *, action: str, reason: str) -> None:
    """Move an alias from `present`, and only from there.

    History is written first, so a kill between the two leaves a line too many, never a move that nobody can trace.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    move = {"action": action, "alias": alias, "from": present, "to": found.version}
    entry = {"ts": now, **move, "actor": _user_name(), "reason": reason}
    with hold_lock(base, found.name):
        if (moved := _read_present(base, found.name, alias)) != present:
            raise _explain_move(found.name, alias, moved, present)
        if not found.path.is_dir():
            raise VersionError(f"{found} was removed meanwhile.", "Promote a version that is there: ragc ls")
        if found.version != present:
            lines = b"".join(orjson.dumps(line) + b"\n" for line in (*read_history(found.name, base), entry))
            write_whole(base / found.name / HISTORY, lines)
        place = base / found.name / "aliases" / f"{alias}.json"
        place.parent.mkdir(exist_ok=True)
        target = {"version": found.version, "digest": found.digest}
        write_whole(place, orjson.dumps(target, option=orjson.OPT_APPEND_NEWLINE))


def _explain_move(name: str, alias: str, now: str | None, expected: str | None) -> GateError:
    what = f"{name}@{alias} points at {now or 'nothing'}, not at {expected or 'nothing'} as expected."
    return GateError(what, "Look at what it points at now, and promote again.")


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        return "unknown"
