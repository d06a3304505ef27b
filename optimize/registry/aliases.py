"""Aliases such as `production`: promote a version, through a gate when asked, and roll back."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import orjson

from optimize.evaluation.comparison import Comparison, compare_versions
from optimize.registry.versions import locked, replace_file
from program.errors import GateError, IntegrityError, VersionError
from program.serve import manifest, reference

UNREADABLE = "unreadable"
"""What stands for the version of an alias whose file is broken, where it is told what the alias pointed at."""
Requirement = Literal["better", "no-worse"]
HISTORY = "history.jsonl"
DEFAULT_GAIN: dict[Requirement, float] = {"better": 0.0, "no-worse": -0.02}
"""The lowest gain in utility that the 95 % interval may reach down to."""


@dataclass(frozen=True, slots=True)
class Move:
    """An alias that was set: from which version (None the first time, UNREADABLE when its file was broken) to which,
    and what the gate saw."""

    name: str
    alias: str
    previous: str | None
    version: str
    gate: Comparison | None = None

    def as_dict(self) -> dict[str, Any]:
        gate = self.gate.as_dict() if self.gate else None
        return {
            "name": self.name,
            "alias": self.alias,
            "from": self.previous,
            "to": self.version,
            "gate": gate,
        }


def require_alias(alias: str) -> None:
    """Raises `VersionError` for what cannot be an alias."""
    if not reference.is_alias(alias):
        raise VersionError(f"{alias[:80]!r} cannot be an alias.", "Use a word such as production or canary.")


def promote(
    ref: str,
    alias: str,
    *,
    require: Requirement | None = None,
    min_gain: float | None = None,
    expect: str | None = None,
    reason: str = "",
    root: Path | str | None = None,
) -> Move:
    """Point `alias` at the verified version that `ref` names.

    With `require`, the version is first compared with the alias's present one on their sealed scores:
    "better" wants the verdict better, both want the 95 % interval of the gain in utility at or above
    `min_gain` (0 for better, -0.02 for no-worse). An alias that points nowhere yet has nothing to compare.
    The alias is set only if it still points where it did at the start, and at `expect` when given.
    Raises `GateError` when the gate does not pass or the alias moved, `VersionError` for a bad alias,
    `IntegrityError` when there is something to compare with and the alias cannot be read.
    """
    base = reference.artifacts_root(root)
    found = reference.resolve(ref, base)
    if not found.version:
        raise VersionError(f"{found} is not a version below {base}.", "Promote a version that was published.")
    require_alias(alias)
    manifest.verify(found.path, found.digest)
    present = _present(base, found.name, alias)
    if present == UNREADABLE and (require or expect is not None):
        raise IntegrityError(
            f"The alias {found.name}@{alias} is unreadable, so there is nothing to compare with.",
            f"Set it again without --require and --expect: ragc promote {found} --to {alias}",
        )
    if expect is not None and (wanted := reference.resolve(expect, base).version) != present:
        raise _moved(found.name, alias, present, wanted)
    gate = None
    if require and present and present != found.version:
        gate = compare_versions(f"{found.name}@{present}", str(found), root=base)
        _pass(gate, require, min_gain, str(found), f"{found.name}@{alias} ({present})")
    _set(base, found, alias, present, action="promote", reason=reason)
    return Move(found.name, alias, present, found.version, gate)


def rollback(name: str, alias: str = "production", *, reason: str = "", root: Path | str | None = None) -> Move:
    """Point `alias` back at the version it had before; again, and it goes back one further.

    Raises `VersionError` when there is no earlier version, `IntegrityError` when it is not as sealed.
    """
    base = reference.artifacts_root(root)
    if not reference.versions(base, reference.parse(name).name):
        reference.resolve(name, base)  # raises, naming what is nearest
    present = reference.read_alias(base, name, alias)["version"]
    before = previous(name, alias, base)
    if before is None:
        raise VersionError(
            f"{name}@{alias} has no earlier version than {present}.",
            f"Choose one: ragc promote REF --to {alias}",
        )
    found = reference.resolve(f"{name}@{before}", base)
    manifest.verify(found.path, found.digest)
    _set(base, found, alias, present, action="rollback", reason=reason)
    return Move(name, alias, present, found.version)


def previous(name: str, alias: str, root: Path | str | None = None) -> str | None:
    """The version a rollback would set the alias to, or None when there is none."""
    base = reference.artifacts_root(root)
    return _before(history(name, base), alias, reference.read_alias(base, name, alias)["version"])


def history(name: str, root: Path | str | None = None) -> list[dict[str, Any]]:
    """Every move of a name's aliases, oldest first: action, alias, from, to, actor, reason, ts."""
    path = reference.artifacts_root(root) / name / HISTORY
    try:
        return [orjson.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise IntegrityError(f"{path} holds a line that is not JSON.", "Remove that line.") from error


def _pass(gate: Comparison, require: Requirement, min_gain: float | None, new: str, old: str) -> None:
    """Raises `GateError` unless the comparison meets the requirement."""
    least = DEFAULT_GAIN[require] if min_gain is None else min_gain
    if gate.test.ci[0] >= least and (require == "no-worse" or gate.verdict == "better"):
        return
    raise GateError(
        f"{new} is not shown to be {require.replace('-', ' ')} than {old} by {least:+g}: {gate.text()}.",
        "Label more questions (above all more topics), lower --min-gain, or promote without --require.",
    )


def _present(base: Path, name: str, alias: str) -> str | None:
    """The version an alias points at, None when there is no such alias, UNREADABLE when its file is broken."""
    try:
        known = alias in reference.aliases(base, name)
        return reference.read_alias(base, name, alias)["version"] if known else None
    except IntegrityError:
        return UNREADABLE


def _set(
    base: Path, found: reference.VersionFolder, alias: str, present: str | None, *, action: str, reason: str
) -> None:
    """Compare and swap: the alias moves only from `present`. History is written first, so a kill between
    the two leaves a line too many, never a move that nobody can trace."""
    entry = {
        "ts": datetime.now(UTC).isoformat(timespec="seconds"),
        "action": action,
        "alias": alias,
        "from": present,
        "to": found.version,
        "actor": _actor(),
        "reason": reason,
    }
    with locked(base, found.name):
        if (now := _present(base, found.name, alias)) != present:
            raise _moved(found.name, alias, now, present)
        if not found.path.is_dir():
            raise VersionError(f"{found} was removed meanwhile.", "Promote a version that is there: ragc ls")
        lines = b"".join(orjson.dumps(line) + b"\n" for line in (*history(found.name, base), entry))
        replace_file(base / found.name / HISTORY, lines)
        target = orjson.dumps({"version": found.version, "digest": found.digest}, option=orjson.OPT_APPEND_NEWLINE)
        replace_file(base / found.name / "aliases" / f"{alias}.json", target)


def _moved(name: str, alias: str, now: str | None, expected: str | None) -> GateError:
    return GateError(
        f"{name}@{alias} points at {now or 'nothing'}, not at {expected or 'nothing'} as expected.",
        "Look at what it points at now, and promote again.",
    )


def _before(moves: Sequence[Mapping[str, Any]], alias: str, present: str) -> str | None:
    """What the alias pointed at before `present`: promotions stack up, a rollback takes one off."""
    stack: list[str] = []
    for move in (m for m in moves if m["alias"] == alias):
        if move["action"] == "rollback":
            while stack and stack[-1] != move["to"]:
                stack.pop()
        if stack[-1:] != [move["to"]]:
            stack.append(move["to"])
    if present in stack:
        while stack.pop() != present:
            continue
    earlier = [version for version in stack if version != present]
    return earlier[-1] if earlier else None


def _actor() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        return "unknown"
