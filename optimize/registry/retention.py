"""Which versions may go, and their going: whole folders, never one that something still points at."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from optimize.registry.aliases import previous
from optimize.registry.versions import locked, read_while_there
from program import storage
from program.errors import IntegrityError, VersionError
from program.serve import manifest, reference
from program.storage import ASIDE

EXPERIMENTS = "experiments"


@dataclass(frozen=True, slots=True)
class Fate:
    """A version, its size in bytes, and why it stays; an empty `reason` means that it goes.

    One that cannot be read stays: `broken` says what is wrong with it, and the way out.
    """

    name: str
    version: str
    size: int
    reason: str
    broken: str = ""

    @property
    def goes(self) -> bool:
        return not self.reason


def gc(keep: int, name: str = "", *, force: bool = False, root: Path | str | None = None) -> list[Fate]:
    """Every version of `name` (of every name when empty) with its fate; with `force`, those that go are removed.

    The newest `keep` numbers that can be read stay, all that cannot, and so does whatever an alias points at or
    would roll back to, the parent of any version that is there, and what a file below `experiments` names. Under
    the name's lock; a removal that is killed halfway leaves no partial version. Raises `VersionError` for `keep`
    below 1 or an unknown name, `IntegrityError` when an experiment or an alias cannot be read: then nothing is
    removed.
    """
    if keep < 1:
        raise VersionError(f"{keep} versions cannot be kept.", "Keep at least 1.")
    base = reference.artifacts_root(root)
    if name and not reference.versions(base, reference.parse(name).name):
        reference.resolve(name, base)  # raises, naming what is nearest
    names = [name] if name else reference.names(base)
    named = _named_in_experiments(base) | {p for other in reference.names(base) for p in _parents(base, other)}
    found = []
    for one in names:
        with locked(base, one):
            fates = _fates(base, one, keep, named)
            folder = base / one / "versions"
            for fate in (f for f in fates if f.goes and force):
                aside = folder / f"{ASIDE}gone-{fate.version}"
                (folder / fate.version).rename(aside)
                shutil.rmtree(aside)
            storage.sync_folder(folder)
        found += fates
    return found


def _fates(base: Path, name: str, keep: int, named: set[str]) -> list[Fate]:
    known = reference.versions(base, name)
    digests, broken = _read(base, name)
    newest = sorted({reference.number(v) for v in digests})[-keep:]
    reasons = dict.fromkeys(broken, "cannot be read")
    reasons |= {v: f"among the newest {keep}" for v in digests if reference.number(v) in newest}
    for alias in reference.aliases(base, name):
        reasons.setdefault(reference.read_alias(base, name, alias)["version"], f"is {alias}")
        if before := previous(name, alias, base):
            reasons.setdefault(before, f"{alias} would roll back to it")
    # Read again under the lock: a child may have been published since.
    parents = _parents(base, name)
    for version, digest in digests.items():
        if any(_names(text, name, version, digest) for text in parents):
            reasons.setdefault(version, "is a parent")
        elif any(_names(text, name, version, digest) for text in named):
            reasons.setdefault(version, "is a parent, or named in an experiment")
    return [
        Fate(name, v, _size(base / name / "versions" / v), reasons.get(v, ""), broken.get(v, ""))
        for v in known
        if v in digests or v in broken
    ]


def _read(base: Path, name: str) -> tuple[dict[str, str], dict[str, str]]:
    """The digest of each version of `name`, and of each that cannot be read, or is not as it was sealed, why."""
    digests, broken = {}, {}
    for version in reference.versions(base, name):
        folder = base / name / "versions" / version
        try:
            if sealed := read_while_there(folder):
                manifest.verify(folder)
                digests[version] = sealed.digest
        except IntegrityError as error:
            broken[version] = str(error)
    return digests, broken


def _parents(base: Path, name: str) -> set[str]:
    """The references that versions of `name` were compiled from; of one that cannot be read whatever it still says."""
    found = set()
    for version in reference.versions(base, name):
        folder = base / name / "versions" / version
        try:
            if (sealed := read_while_there(folder)) and sealed.parent:
                found.add(sealed.parent)
        except IntegrityError:
            with suppress(OSError):
                found.add((folder / reference.MANIFEST).read_text(encoding="utf-8", errors="replace"))
    return found


def _named_in_experiments(base: Path) -> set[str]:
    """Every text in the JSON files of the experiments."""
    found: set[str] = set()
    for path in sorted((base / EXPERIMENTS).rglob("*.json")):
        try:
            found |= set(_texts(orjson.loads(path.read_bytes())))
        except (OSError, ValueError) as error:
            raise IntegrityError(
                f"{path} is unreadable, so what it names is unknown.", "Restore it, or remove the experiment."
            ) from error
    return found


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _names(text: str, name: str, version: str, digest: str = "") -> bool:
    """Whether a text is a reference to this version, its folder, or its digest."""
    if version in text or (digest and digest in text):
        return True
    found = re.fullmatch(rf"{re.escape(name)}@(?:({reference.NUMBER})|(sha256:[0-9a-f]{{8,64}}))", text)
    if found is None:
        return False
    return found[1] == f"v{reference.number(version)}" if found[1] else digest.startswith(found[3])


def _size(folder: Path) -> int:
    """Bytes; 0 of a folder that may not be looked into."""
    with suppress(PermissionError):
        return sum(path.stat(follow_symlinks=False).st_size for path in folder.iterdir())
    return 0
