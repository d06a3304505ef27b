"""From a reference such as `helpdesk@production` to the one version folder it names."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from program.errors import IntegrityError, VersionError

ENVIRONMENT = "RAGC_ARTIFACTS"
DEFAULT = "artifacts"
MANIFEST = "manifest.json"
NAME = r"[a-z0-9](?:[-._a-z0-9]{0,61}[a-z0-9])?"
VERSION = r"v([1-9][0-9]{0,8})-([0-9a-f]{8})"
NUMBER = r"v([1-9][0-9]{0,8})"
DIGEST = r"sha256:([0-9a-f]{8,64})"
LATEST = "latest"
DEVICES = frozenset(["con", "prn", "aux", "nul", *(f"{d}{n}" for d in ("com", "lpt") for n in range(10))])
RESERVED = frozenset(["experiments"])


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference taken apart: `selector` is `latest`, `v7`, `v7-3fa9c1d2`, `sha256:...` or an alias."""

    name: str
    selector: str = LATEST

    def __str__(self) -> str:
        return f"{self.name}@{self.selector}"


@dataclass(frozen=True, slots=True)
class VersionFolder:
    """A version on disk; `digest` is its manifest's, name and version are empty outside the root."""

    path: Path
    digest: str
    name: str = ""
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name}@{self.version}" if self.version else str(self.path)


def is_name(text: str) -> bool:
    """True for a portable name: one path segment on every system, lower case, 1 to 63 characters."""
    return re.fullmatch(NAME, text) is not None and ".." not in text and text.split(".", 1)[0] not in DEVICES


def name_from(text: str) -> str:
    """A portable name near to the text: `mein-buro` of `mein Büro`; `project` when nothing of it is left."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:63].rstrip("-")
    return name if is_name(name) and name not in RESERVED else "project"


def is_alias(text: str) -> bool:
    """True for a name an alias may have: not `latest`, and not to be mistaken for a version."""
    return is_name(text) and text != LATEST and re.match(r"v[0-9]", text) is None


def is_version(text: str) -> bool:
    """True for the name of a version folder: `v7-3fa9c1d2`."""
    return re.fullmatch(VERSION, text) is not None


def artifacts_root(root: Path | str | None = None) -> Path:
    """The artifacts folder: `root` when given, else `RAGC_ARTIFACTS`, else `./artifacts`; absolute."""
    return Path(root or os.environ.get(ENVIRONMENT) or DEFAULT).resolve()


def parse(given: str | Path) -> Reference:
    """`name`, `name@v7`, `name@v7-3fa9c1d2`, `name@sha256:...` or `name@alias`, taken apart.

    Raises `VersionError` for anything else; a bare name means its latest version.
    """
    text = _text(given)
    name, at, selector = text.partition("@")
    if not at:
        selector = LATEST
    known = selector == LATEST or any(re.fullmatch(p, selector) for p in (VERSION, NUMBER, DIGEST))
    if not is_name(name) or name in RESERVED or not (known or is_alias(selector)):
        raise VersionError(
            f"{_shown(text)} is not a reference to a version.",
            "Write name@v7, name@v7-3fa9c1d2, name@sha256:..., name@production, name@latest or a folder.",
        )
    return Reference(name, selector)


def resolve(given: str | Path, root: Path | str | None = None) -> VersionFolder:
    """The version folder that a reference, or the path of a folder, names.

    A reference stays below `artifacts_root(root)` and goes through no link. A folder may lie anywhere; it
    is recognised by a path separator or by holding a manifest. Raises `VersionError` when nothing or more
    than one version fits, `IntegrityError` when an alias names other bytes than it was set to.
    """
    text = _text(given)
    base = artifacts_root(root)
    if _is_path(text):
        return _folder(text, base)
    try:
        reference = parse(text)
        candidates = _candidates(reference, base)
    except VersionError:
        if (folder := _held(text)) is not None:
            return _sealed(folder, base)
        raise
    if len(candidates) > 1:
        options = " and ".join(f"{reference.name}@{v}" for v in candidates)
        raise VersionError(f"{reference} is ambiguous: {options}.", "Name one of them in full.")
    found = _sealed(base / reference.name / "versions" / candidates[0], base)
    if is_alias(reference.selector):
        expected = read_alias(base, reference.name, reference.selector)["digest"]
        if found.digest != expected:
            raise IntegrityError(
                f"{reference} was set to {expected}, but {found} is now {found.digest}.",
                "Restore the version's manifest.json, or promote another version to the alias.",
            )
    return found


def names(root: Path) -> list[str]:
    """The names that have versions below `root`, sorted; one whose first version is still being written has none."""
    return [n for n in _entries(root) if is_name(n) and n not in RESERVED and versions(root, n)]


def versions(root: Path, name: str) -> list[str]:
    """The version folders of a name, oldest number first: `v7-3fa9c1d2`."""
    found = [v for v in _entries(root / name / "versions") if re.fullmatch(VERSION, v)]
    return sorted(found, key=lambda v: (number(v), v))


def number(version: str) -> int:
    """The 7 of `v7-3fa9c1d2` or `v7`."""
    return int(version[1:].partition("-")[0])


def aliases(root: Path, name: str) -> list[str]:
    """The aliases of a name, sorted."""
    stems = [f.removesuffix(".json") for f in _entries(root / name / "aliases") if f.endswith(".json")]
    return [a for a in stems if is_alias(a)]


def read_alias(root: Path, name: str, alias: str) -> dict[str, str]:
    """What an alias says: `{"version": "v7-3fa9c1d2", "digest": "sha256:..."}`.

    Raises `VersionError` when the name has no such alias, `IntegrityError` when its file is not one.
    """
    if alias not in (known := aliases(root, name)):
        raise _unknown(Reference(name, alias), [*known, *versions(root, name)], root)
    path = _inside(root / name / "aliases" / f"{alias}.json", root)
    try:
        found = json.loads(path.read_bytes())
        version, digest = found["version"], found["digest"]
        sound = re.fullmatch(VERSION, version) and re.fullmatch(DIGEST, digest)
    except (OSError, ValueError, KeyError, TypeError):
        sound = None
    if not sound:
        raise IntegrityError(
            f"The alias {name}@{alias} is unreadable.", f"Set it again with: ragc promote REF --to {alias}"
        )
    return {"version": version, "digest": digest}


def _candidates(reference: Reference, base: Path) -> list[str]:
    """The version folders that fit a reference; never empty."""
    known = versions(base, reference.name) if reference.name in _entries(base) else []
    if not known:
        raise _unknown(Reference(reference.name, ""), names(base), base)
    chosen = reference.selector
    if chosen == LATEST:
        fitting = [v for v in known if number(v) == number(known[-1])]
    elif re.fullmatch(NUMBER, chosen):
        fitting = [v for v in known if number(v) == number(chosen)]
    elif found := re.fullmatch(DIGEST, chosen):
        fitting = [v for v in known if v.endswith(found[1][:8])]
        folder = base / reference.name / "versions"
        fitting = [v for v in fitting if _sealed(folder / v, base).digest.startswith(chosen)]
    elif re.fullmatch(VERSION, chosen):
        fitting = [v for v in known if v == chosen]
    else:
        target = read_alias(base, reference.name, chosen)["version"]
        fitting = [v for v in known if v == target]
        if not fitting:
            raise VersionError(
                f"{reference} points at {target}, which is not there.",
                f"Restore it, or set the alias to another version: ragc promote REF --to {chosen}",
            )
    if not fitting:
        raise _unknown(reference, [*aliases(base, reference.name), *known], base)
    return fitting


def _unknown(reference: Reference, known: Sequence[str], base: Path) -> VersionError:
    """The error for a name (empty selector) or a selector that does not exist, with what is nearest to it."""
    wanted = reference.selector or reference.name
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5) or list(known)[-3:]
    if reference.selector:
        options = ", ".join(f"{reference.name}@{n}" for n in near)
        return VersionError(f"There is no {reference}.", f"Nearest: {options}.")
    mend = f"Nearest: {', '.join(near)}." if near else "Name another folder, or make one with: ragc compile PROJECT"
    return VersionError(f"There is no version of {reference.name} in the artifacts folder {base}.", mend)


def _text(given: object) -> str:
    """What was given to name a version, as text. Raises `VersionError` when it is neither text nor a path."""
    if isinstance(given, str | Path):
        return str(given)
    raise VersionError(
        f"A version is named by text or a Path, not by {_shown(repr(given))[1:-1]}.",
        "Write name@v7, name@production, name@latest or a folder.",
    )


def _is_path(text: str) -> bool:
    return text.startswith((".", "/")) or ("@" not in text and any(c in text for c in ("/", os.sep, ":")))


def _held(text: str) -> Path | None:
    """The folder at a path when it holds a manifest, with links resolved."""
    try:
        folder = Path(text)
        return folder.resolve() if text and (folder / MANIFEST).is_file() else None
    except (OSError, ValueError):
        return None


def _folder(text: str, base: Path) -> VersionFolder:
    if (folder := _held(text)) is None:
        raise VersionError(
            f"{_shown(text)} is not the folder of a version: it holds no {MANIFEST}.",
            "Name a folder such as artifacts/NAME/versions/v7-3fa9c1d2, or NAME@latest.",
        )
    return _sealed(folder, base)


def _sealed(folder: Path, base: Path) -> VersionFolder:
    """The version folder at `folder`, with its digest; named when it is one of the root's."""
    inside = folder.is_relative_to(base)
    path = _inside(folder / MANIFEST, base) if inside else folder / MANIFEST
    try:
        digest = "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise IntegrityError(f"{folder} holds no readable {MANIFEST}.", "Restore the folder.") from error
    parts = folder.relative_to(base).parts if inside else ()
    if len(parts) == 3 and is_name(parts[0]) and parts[1] == "versions" and re.fullmatch(VERSION, parts[2]):
        return VersionFolder(folder, digest, parts[0], parts[2])
    return VersionFolder(folder, digest)


def _inside(path: Path, base: Path) -> Path:
    """The path itself; raises `VersionError` when it, or a folder on the way, is a link or leaves `base`."""
    if path.resolve() != path or not path.is_relative_to(base):
        raise VersionError(f"{path} is a link.", "Put the folder itself in the artifacts folder.")
    return path


def _entries(folder: Path) -> list[str]:
    """The names in a folder that are not links, sorted; none when there is no such folder."""
    try:
        with os.scandir(folder) as found:
            return sorted(entry.name for entry in found if not entry.is_symlink())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "...")
