"""Versions below the artifacts root: publish, list, show, verify. Several processes may publish at once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from program import storage
from program.errors import IntegrityError, RagcError, SettingsError, VersionError
from program.serve import manifest, reference
from program.storage import ASIDE

LOCK = ".lock"
LOCK_SECONDS = 60.0
GIT_FILES = {
    ".gitattributes": "* -text\nhistory.jsonl merge=union\n",
    ".gitignore": f"{LOCK}\n{ASIDE}*\nexposures*.jsonl\n",
}
"""Git must not touch a sealed byte (line endings), and merges two branches' histories line by line."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A version as `ragc ls` shows it; `metrics` are the scores of its manifest.

    One that cannot be read says why, and the way out, in `broken`. So does an alias that cannot: it has no `version`.
    """

    name: str
    version: str
    digest: str
    created_at: str
    aliases: tuple[str, ...]
    parent: str | None
    metrics: Mapping[str, Any]
    broken: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The shape of `ragc ls --json`; only what is broken has the key `broken`."""
        return {key: value for key, value in asdict(self).items() if key != "broken" or value}


@dataclass(frozen=True, slots=True)
class Checked:
    """What verifying a reference found: every difference in words, none when it is sound, and what mends it.

    `note` tells what could not be tried, such as loading a version whose project is not here.
    """

    reference: str
    digest: str
    problems: tuple[str, ...]
    mend: str = ""
    note: str = ""

    @property
    def sound(self) -> bool:
        return not self.problems


def publish(name: str, fields: Mapping[str, Any], files: Mapping[str, bytes], root: Path | str | None = None) -> str:
    """Seal the files as the next version of `name` and return its reference, `name@v7`.

    `fields` are the manifest's (see `program.serve.manifest.seal`); name and version are filled in. Under the
    name's lock the folder is written aside, given the next number, and renamed: readers see a whole version
    or none, and a killed publisher leaves only a `.tmp-` folder that the next one clears away.
    Raises `VersionError` for a name that is not one.
    """
    if not reference.is_name(name) or name in reference.RESERVED:
        raise VersionError(
            f"{name[:80]!r} cannot be the name of a program.",
            "Use 1 to 63 of a-z, 0-9, '-', '_' and '.', with a letter or digit at both ends.",
        )
    base = reference.artifacts_root(root)
    with locked(base, name):
        write_git_files(base)
        folder = base / name / "versions"
        folder.mkdir(exist_ok=True)
        clear_leftovers(folder)
        number = max(map(reference.number, reference.versions(base, name)), default=0) + 1
        aside = folder / f"{ASIDE}{os.getpid()}"
        sealed = manifest.seal(aside, {**fields, "name": name, "version": f"v{number}"}, files)
        aside.rename(folder / f"v{number}-{sealed.digest[7:15]}")
        storage.sync_folder(folder)
    return f"{name}@v{number}"


def ls(name: str = "", root: Path | str | None = None) -> list[Listed]:
    """The versions of a name, or of every name, oldest first; manifests are read, not verified.

    A version or an alias that cannot be read is listed as broken, aliases last of a name.
    Raises `VersionError` when `name` is given and has no version.
    """
    base = reference.artifacts_root(root)
    if name and not reference.versions(base, reference.parse(name).name):
        reference.resolve(name, base)  # raises, naming what is nearest
    found = []
    for one in [name] if name else reference.names(base):
        pointing: dict[str, list[str]] = {}
        lost = []
        for alias in reference.aliases(base, one):
            try:
                pointing.setdefault(reference.read_alias(base, one, alias)["version"], []).append(alias)
            except (IntegrityError, VersionError) as error:
                lost.append(Listed(one, "", "", "", (alias,), None, {}, str(error)))
        for version in reference.versions(base, one):
            at = tuple(pointing.get(version, ()))
            try:
                read = read_while_there(base / one / "versions" / version)
            except IntegrityError as error:
                found.append(Listed(one, version, "", "", at, None, {}, str(error)))
                continue
            if read is not None:
                metrics = read.section("scores")
                found.append(Listed(one, version, read.digest, read.created_at, at, read.parent, metrics))
        found += lost
    return found


def read_while_there(folder: Path) -> manifest.Manifest | None:
    """A version's manifest, or None when another process has removed the whole folder since it was listed.

    Raises `IntegrityError` when the folder is there and its manifest cannot be read.
    """
    try:
        return manifest.read(folder)
    except IntegrityError:
        if folder.exists():
            raise
        return None


def show(ref: str, root: Path | str | None = None) -> manifest.Manifest:
    """The verified manifest of the version that a reference names."""
    found = reference.resolve(ref, root)
    return manifest.verify(found.path, found.digest)


def verify(ref: str, root: Path | str | None = None) -> Checked:
    """What is wrong with the version that a reference names. Raises `VersionError` when it names none."""
    try:
        found = reference.resolve(ref, root)
    except IntegrityError as error:
        return Checked(ref, "", (error.what,), error.mend)
    problems = tuple(manifest.differences(found.path, found.digest))
    return Checked(ref, found.digest, problems, manifest.mend(found.path) if problems else "")


def verify_by_loading(
    ref: str,
    root: Path | str | None = None,
    project: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Checked:
    """As `verify`, and whether the version loads here: its structure, knobs, embedding model, index and models.

    `project` is the project folder when it is not where it was at compile time; it is indexed if it never was.
    """
    checked = verify(ref, root)
    if not checked.sound:
        return checked
    found = reference.resolve(ref, root)
    if not manifest.read(found.path).section("program").get("structure"):
        return replace(checked, note="it holds no program to load")
    from program.serve.artifact import load

    try:
        load(ref, artifacts=root, project=project, progress=progress)
    except SettingsError as error:
        return replace(checked, note=f"not loaded: {error}")
    except RagcError as error:
        return replace(checked, problems=(error.what,), mend=error.mend)
    return checked


def verify_all(root: Path | str | None = None) -> list[Checked]:
    """Every version and every alias below the root, checked; an alias of a lost version is a problem."""
    base = reference.artifacts_root(root)
    found = []
    for name in reference.names(base):
        for selector in (*reference.versions(base, name), *reference.aliases(base, name)):
            try:
                found.append(verify(f"{name}@{selector}", base))
            except VersionError as error:
                if reference.is_version(selector) and not (base / name / "versions" / selector).exists():
                    continue  # removed since it was listed
                found.append(Checked(f"{name}@{selector}", "", (error.what,), error.mend))
    return found


@contextmanager
def locked(base: Path, name: str) -> Iterator[None]:
    """Hold the one lock of a name; the system frees it when its holder dies. A holder may take it again.

    Raises `RagcError` when another process holds it for a minute, `VersionError` when a folder of the name
    is a link: what is written there would land elsewhere.
    """
    from filelock import FileLock, Timeout

    for part in (base / name, base / name / "versions", base / name / "aliases"):
        if part.is_symlink():
            raise VersionError(f"{part} is a link.", "Put the folder itself in the artifacts folder.")
    (base / name).mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(base / name / LOCK, timeout=LOCK_SECONDS, is_singleton=True):
            yield
    except Timeout as error:
        raise RagcError(
            f"Another process has been writing to {name} for {LOCK_SECONDS:.0f} s.", "Wait for it, or end it."
        ) from error


def replace_file(path: Path, content: bytes) -> None:
    """Write a small file whole: a reader sees the old bytes or the new ones, also after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    storage.write_whole(path, content)


def clear_leftovers(folder: Path) -> None:
    """Remove what killed writers left aside; the caller holds the name's lock."""
    for leftover in folder.glob(f"{ASIDE}*"):
        shutil.rmtree(leftover)


def write_git_files(base: Path) -> None:
    """Put GIT_FILES below the root where they are missing."""
    for name, text in GIT_FILES.items():
        if not (base / name).exists():
            replace_file(base / name, text.encode())
