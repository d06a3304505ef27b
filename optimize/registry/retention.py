"""Which versions may go, and their going: whole folders, never one that something still points at."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from ragc.errors import IntegrityError, VersionError
from ragc.optimize.registry.aliases import version_before
from ragc.optimize.registry.versions import hold_lock
from ragc.serve import reference
from ragc.serve.experiment_store import EXPERIMENTS
from ragc.serve.manifest import verify_folder
from ragc.settings import artifacts_root
from ragc.storage import ASIDE, remove_leftovers, sync_folder

REFERENCE = re.compile(r"(?:[-._a-z0-9]+@)?(?:v[0-9]+-[0-9a-f]{8}|sha256:[0-9a-f]{8,64})|[-._a-z0-9]+@v[0-9]+")


@dataclass(frozen=True, slots=True)
class Retention:
    """Whether a version stays."""

    name: str
    version: str
    size: int
    reason: str  # why it stays; empty when it goes
    broken: str  # what is wrong with a version that stays because it cannot be read, and the way out
    goes: bool  # whether nothing keeps the version
    removed: bool  # whether it is gone


def collect_garbage(
    keep: int, name: str = "", *, force: bool = False, root: Path | str | None = None
) -> list[Retention]:
    """Tell which versions of a name, or of every name, stay.

    With `force`, those that go are removed, and what killed processes left half written. The newest `keep` numbers that
    can be read stay, all that cannot, and so does whatever an alias points at or would roll back to, any version's
    parent, and what an experiment names. Raises `VersionError` for `keep` below 1 or an unknown name; `IntegrityError`,
    and nothing is removed, when an experiment or an alias cannot be read.
    """
    if keep < 1:
        raise VersionError(f"{keep} versions cannot be kept.", "Keep at least 1.")
    base = artifacts_root(root)
    if name:
        reference.require_name(base, name)
    named = _find_references((base / EXPERIMENTS).rglob("*.json"), strict=True)
    found = []
    for one in [name] if name else reference.list_programs(base):
        with hold_lock(base, one):  # parents are read under the lock: a child may just have been published
            parents = _find_references(base.glob(f"*/versions/v*/{reference.MANIFEST}"), strict=False)
            retained = _decide_retention(base, one, keep, force, parents=parents, named=named)
            folder = base / one / "versions"
            if force:
                remove_leftovers(base / one)
            for gone in [one.version for one in retained if one.removed]:
                shutil.rmtree((folder / gone).rename(folder / f"{ASIDE}gone-{gone}"))
            sync_folder(folder)
        found += retained
    return found


def _decide_retention(
    base: Path, name: str, keep: int, force: bool, *, parents: set[str], named: set[str]
) -> list[Retention]:
    folder = base / name / "versions"
    digests, broken = {}, {}
    for version in reference.find_versions(base, name):
        try:
            digests[version] = verify_folder(folder / version).digest
        except IntegrityError as error:
            broken[version] = str(error)
    reasons = dict.fromkeys(broken, "cannot be read")
    newest = sorted({reference.version_number(version) for version in digests})[-keep:]
    reasons |= {v: f"among the newest {keep}" for v in digests if reference.version_number(v) in newest}
    for alias in reference.list_aliases(base, name):
        reasons.setdefault(reference.read_alias(base, name, alias)["version"], f"is {alias}")
        if before := version_before(name, alias, base):
            reasons.setdefault(before, f"{alias} would roll back to it")
    for texts, reason in ((parents, "is a parent"), (named, "is named in an experiment")):
        called = tuple(text.removeprefix(f"{name}@") for text in texts)
        for version, digest in digests.items():
            if version in called or version.partition("-")[0] in called or digest.startswith(called):
                reasons.setdefault(version, reason)
    found = []
    for version in sorted({*digests, *broken}, key=lambda one: (reference.version_number(one), one)):
        reason, size = reasons.get(version, ""), _folder_size(folder / version)
        goes = not reason
        found.append(Retention(name, version, size, reason, broken.get(version, ""), goes, goes and force))
    return found


def _find_references(paths: Iterable[Path], *, strict: bool) -> set[str]:
    """Find every text in files that may name a version; what cannot be read is an error, or passed over."""
    found: set[str] = set()
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
            if strict:
                orjson.loads(text)
            found.update(REFERENCE.findall(text))
        except (OSError, ValueError) as error:
            if strict:
                what = f"{path} is unreadable, so what it names is unknown."
                raise IntegrityError(what, "Restore it, or remove the experiment.") from error
    return found


def _folder_size(folder: Path) -> int:
    with suppress(PermissionError):  # of a folder that may not be looked into
        return sum(path.stat(follow_symlinks=False).st_size for path in folder.iterdir())
    return 0
