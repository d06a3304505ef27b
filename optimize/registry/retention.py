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

from optimize.registry.aliases import version_before
from optimize.registry.versions import hold_lock, read_if_present
from program.errors import IntegrityError, VersionError
from program.serve import reference
from program.serve.experiment_design import EXPERIMENTS
from program.serve.manifest import verify_folder
from program.settings import artifacts_root
from program.storage import ASIDE, sync_folder


@dataclass(frozen=True, slots=True)
class Retention:
    """Whether a version stays."""

    name: str
    """The name of the program."""
    version: str
    """The version's folder."""
    size: int
    """The size in bytes."""
    reason: str
    """Why it stays; empty when it goes."""
    broken: str = ""
    """What is wrong with a version that stays because it cannot be read, and the way out."""

    @property
    def goes(self) -> bool:
        """True when nothing keeps the version."""
        return not self.reason


def collect_garbage(
    keep: int, name: str = "", *, force: bool = False, root: Path | str | None = None
) -> list[Retention]:
    """Tell which versions of a name, or of every name, stay; with `force`, remove those that go.

    The newest `keep` numbers that can be read stay, all that cannot, and so does whatever an alias points at or
    would roll back to, the parent of any version that is there, and what a file below `experiments` names. Under
    the name's lock; a removal that is killed halfway leaves no partial version. Raises `VersionError` for `keep`
    below 1 or an unknown name, `IntegrityError` when an experiment or an alias cannot be read: then nothing is
    removed.
    """
    if keep < 1:
        raise VersionError(f"{keep} versions cannot be kept.", "Keep at least 1.")
    base = artifacts_root(root)
    if name:
        reference.require_name(base, name)
    names = reference.find_names(base)
    named = _read_experiments(base) | {parent for other in names for parent in _read_parents(base, other)}
    found = []
    for one in [name] if name else names:
        with hold_lock(base, one):
            fates = _decide_retention(base, one, keep, named)
            folder = base / one / "versions"
            for fate in (fate for fate in fates if fate.goes and force):
                aside = folder / f"{ASIDE}gone-{fate.version}"
                (folder / fate.version).rename(aside)
                shutil.rmtree(aside)
            sync_folder(folder)
        found += fates
    return found


def _decide_retention(base: Path, name: str, keep: int, named: set[str]) -> list[Retention]:
    known = reference.find_versions(base, name)
    digests, broken = _read_digests(base, name)
    newest = sorted({reference.version_number(v) for v in digests})[-keep:]
    reasons = dict.fromkeys(broken, "cannot be read")
    reasons |= {v: f"among the newest {keep}" for v in digests if reference.version_number(v) in newest}
    for alias in reference.find_aliases(base, name):
        reasons.setdefault(reference.read_alias(base, name, alias)["version"], f"is {alias}")
        if before := version_before(name, alias, base):
            reasons.setdefault(before, f"{alias} would roll back to it")
    parents = _read_parents(base, name)  # again, under the lock: a child may have been published since
    for version, digest in digests.items():
        if any(_refers_to(text, name, version, digest) for text in parents):
            reasons.setdefault(version, "is a parent")
        elif any(_refers_to(text, name, version, digest) for text in named):
            reasons.setdefault(version, "is a parent, or named in an experiment")
    return [
        Retention(name, v, _folder_size(base / name / "versions" / v), reasons.get(v, ""), broken.get(v, ""))
        for v in known
        if v in digests or v in broken
    ]


def _read_digests(base: Path, name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the digest of each sound version, and why each other one is not sound."""
    digests, broken = {}, {}
    for version in reference.find_versions(base, name):
        folder = base / name / "versions" / version
        try:
            if sealed := read_if_present(folder):
                verify_folder(folder)
                digests[version] = sealed.digest
        except IntegrityError as error:
            broken[version] = str(error)
    return digests, broken


def _read_parents(base: Path, name: str) -> set[str]:
    """Return the parents of a name's versions; of a version that cannot be read, whatever text it still holds."""
    found = set()
    for version in reference.find_versions(base, name):
        folder = base / name / "versions" / version
        try:
            if (sealed := read_if_present(folder)) and sealed.parent:
                found.add(sealed.parent)
        except IntegrityError:
            with suppress(OSError):
                found.add((folder / reference.MANIFEST).read_text(encoding="utf-8", errors="replace"))
    return found


def _read_experiments(base: Path) -> set[str]:
    """Return every text in the JSON files of the experiments."""
    found: set[str] = set()
    for path in sorted((base / EXPERIMENTS).rglob("*.json")):
        try:
            found |= set(_find_texts(orjson.loads(path.read_bytes())))
        except (OSError, ValueError) as error:
            what = f"{path} is unreadable, so what it names is unknown."
            raise IntegrityError(what, "Restore it, or remove the experiment.") from error
    return found


def _find_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        for inner in value.values():
            yield from _find_texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _find_texts(inner)


def _refers_to(text: str, name: str, version: str, digest: str) -> bool:
    """Tell whether a text is a reference to a version, its folder, or its digest."""
    if version in text or digest in text:
        return True
    found = re.fullmatch(rf"{re.escape(name)}@(?:({reference.NUMBER})|(sha256:[0-9a-f]{{8,64}}))", text)
    if found is None:
        return False
    return found[1] == f"v{reference.version_number(version)}" if found[1] else digest.startswith(found[3])


def _folder_size(folder: Path) -> int:
    """Return the bytes in a folder; 0 for one that may not be looked into."""
    with suppress(PermissionError):
        return sum(path.stat(follow_symlinks=False).st_size for path in folder.iterdir())
    return 0
