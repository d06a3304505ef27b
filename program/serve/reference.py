"""From a reference such as `helpdesk@production` to the one version it names, and what its manifest says."""

from __future__ import annotations

import difflib
import hashlib
import logging
import os
import re
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from ragc.errors import IntegrityError, VersionError
from ragc.settings import NAME, artifacts_root

MANIFEST = "manifest.json"
NUMBER = r"v([1-9][0-9]{0,8})"
VERSION = rf"{NUMBER}-([0-9a-f]{{8}})"
DIGEST = r"sha256:([0-9a-f]{8,64})"
LATEST = "latest"
PRODUCTION = "production"
"""The alias by which a project's folder is opened."""
MOSTLY = 0.5  # share of answers
DEVICES = frozenset(["con", "prn", "aux", "nul", *(f"{d}{n}" for d in ("com", "lpt") for n in range(10))])
RESERVED = frozenset(["experiments"])
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference taken apart."""

    name: str
    """The program."""
    selector: str = LATEST
    """`latest`, `v7`, `v7-3fa9c1d2`, `sha256:...` or an alias."""

    def __str__(self) -> str:
        return f"{self.name}@{self.selector}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A version on disk, by what its manifest says."""

    path: Path
    """The sealed folder."""
    digest: str
    """The digest of the manifest's bytes, which is the version's own."""
    name: str
    """The program."""
    version: str
    """The folder, `v7-3fa9c1d2`; empty outside the artifacts folder."""
    files: Mapping[str, tuple[int, str]]
    """The size and the digest of each sealed file, by name."""
    fields: Mapping[str, Any]
    """All that the manifest says, keys of a newer minor schema included."""

    def __str__(self) -> str:
        return f"{self.name}@{self.version}" if self.version else str(self.path)

    @property
    def label(self) -> str:
        """The name and the number, `helpdesk@v7`, as messages say them."""
        return f"{self.name}@{self.fields.get('version', '')}"

    @property
    def full_label(self) -> str:
        """The label with the digest's beginning, `helpdesk@v7-3fa9c1d2`, wherever the folder is."""
        return f"{self.label}-{self.digest[7:15]}"

    @property
    def parent(self) -> str | None:
        """The reference of the version that this one was compiled from."""
        return self.fields.get("parent")

    @property
    def created_at(self) -> str:
        """The time of sealing, UTC, ISO 8601."""
        return str(self.fields.get("created_at", ""))

    @property
    def content_digest(self) -> str:
        """The digest of the program alone: equal for two versions that hold the same one."""
        return str(self.fields.get("content_digest", ""))

    @property
    def kind(self) -> str:
        """The kind of program: `module` of one's own code, empty of a project's."""
        return str(self.section("program").get("kind", ""))

    @property
    def usable(self) -> bool:
        """False when a stand-in had a hand in most of the answers by which it was chosen and tested."""
        return float(self.section("gain").get("stood_for", 0.0)) <= MOSTLY

    @property
    def verdict(self) -> str:
        """The paired test on its test against what it was compiled from: better, worse or no_detectable_difference.

        It is empty where there was no such test.
        """
        return str(self.section("gain").get("verdict", ""))

    def section(self, name: str) -> Mapping[str, Any]:
        """Return a table of the manifest, such as `points`; empty when there is none."""
        found = self.fields.get(name)
        return found if isinstance(found, Mapping) else {}


def read_manifest(folder: Path) -> Manifest:
    """Read a folder's manifest, its files unchecked. Raises `IntegrityError`."""
    try:
        content = (folder / MANIFEST).read_bytes()
        fields = orjson.loads(content)
        if not isinstance(fields.get("parent"), str | None):
            raise TypeError("a parent is a reference")
        files = {str(f["path"]): (int(f["size"]), str(f["digest"])) for f in fields["files"]}
        version = folder.name if is_version(folder.name) else ""
        return Manifest(folder, digest_of(content), str(fields.get("name", "")), version, files, fields)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise IntegrityError.unreadable(folder / MANIFEST, "Restore the folder from a copy.") from error


def digest_of(content: bytes) -> str:
    """Return `sha256:` and 64 hexadecimal digits."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def is_name(text: str) -> bool:
    """Tell whether a name is portable: one path segment on every system, lower case."""
    return re.fullmatch(NAME, text) is not None and ".." not in text and text.split(".", 1)[0] not in DEVICES


def name_from(text: str) -> str:
    """Derive a portable name: `mein-buro` of `mein Büro`, `project` of nothing."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:63].rstrip("-")
    return name if is_name(name) and name not in RESERVED else "project"


def is_alias(text: str) -> bool:
    """Tell whether an alias may have this name: not `latest`, and not like a version."""
    return is_name(text) and text != LATEST and re.match(r"v[0-9]", text) is None


def is_version(text: str) -> bool:
    """Tell whether a text is the name of a version folder: `v7-3fa9c1d2`."""
    return re.fullmatch(VERSION, text) is not None


def version_number(version: str) -> int:
    """Return the 7 of `v7-3fa9c1d2` or `v7`."""
    return int(version[1:].partition("-")[0])


def parse_reference(given: str | Path) -> Reference:
    """Take a reference apart. Raises `VersionError` for what is none.

    The forms are `name@v7`, `name@v7-3fa9c1d2`, `name@sha256:...`, `name@alias`, and `name` for its latest version.
    """
    text = _require_text(given)
    name, selector = text.split("@", 1) if "@" in text else (text, LATEST)
    known = selector == LATEST or any(re.fullmatch(p, selector) for p in (VERSION, NUMBER, DIGEST))
    if not is_name(name) or name in RESERVED or not (known or is_alias(selector)):
        raise VersionError(
            f"{_quote_text(text)} is not a reference to a version.",
            "Write name@v7, name@v7-3fa9c1d2, name@sha256:..., name@production, name@latest or a folder.",
        )
    return Reference(name, selector)


def resolve(given: str | Path, root: Path | str | None = None) -> Manifest:
    """Find the version that a reference, or the path of a folder, names.

    Its files are not checked. A reference stays below `artifacts_root(root)` and goes through no link. A folder may lie
    anywhere; it is recognised by a path separator or by holding a manifest. Raises `VersionError` when nothing or more
    than one version fits, `IntegrityError` when a manifest cannot be read, or is another than an alias was set to.
    """
    text, base = _require_text(given), artifacts_root(root)
    if (folder := _find_folder(text)) is not None:
        found = read_manifest(folder)
        return found if folder.parent == base / found.name / "versions" else replace(found, version="")
    reference = parse_reference(text)
    fitting = _find_fitting(reference, base)
    if len(fitting) > 1:
        options = [f"{reference.name}@{version}" for version in fitting]
        raise VersionError(f"{reference} is ambiguous: {' and '.join(options)}.", "Name one of them in full.")
    found = read_manifest(_require_no_link(base / reference.name / "versions" / fitting[0] / MANIFEST, base).parent)
    if is_alias(reference.selector):
        expected = read_alias(base, reference.name, reference.selector)["digest"]
        if found.digest != expected:
            what = f"{reference} was set to {expected}, but {found} is now {found.digest}."
            raise IntegrityError(what, "Restore the version's manifest.json, or promote another version to the alias.")
    return found


def resolve_noted(whose: str, version: str, root: Path | str | None, mend: str) -> Manifest:
    """Find a version noted before. Raises `VersionError` where it was deleted."""
    try:
        return resolve(version, root)
    except VersionError as error:
        what = f"{whose} {version}, which is not there any more: it was deleted."
        raise VersionError(what, f"Restore its folder, or {mend}") from error


def find_current(root: Path, name: str) -> Manifest | None:
    """Return the version that opens a project's folder, or None for no version.

    It is the one that the alias `production` names, else the newest that was compiled from another and is not worse,
    unless a stand-in answered for its models. Raises as `resolve`.
    """
    if PRODUCTION in list_aliases(root, name):
        return resolve(f"{name}@{PRODUCTION}", root)
    found = (resolve(f"{name}@{version}", root) for version in reversed(find_whole_versions(root, name)))
    return next((one for one in found if one.parent and one.verdict != "worse" and one.usable), None)


def list_programs(root: Path) -> list[str]:
    """List the names that have versions below an artifacts folder, sorted."""
    return [n for n in _list_entries(root) if is_name(n) and n not in RESERVED and find_versions(root, n)]


def find_versions(root: Path, name: str) -> list[str]:
    """List the version folders of a name, `v7-3fa9c1d2`, oldest number first."""
    found = [version for version in _list_entries(root / name / "versions") if is_version(version)]
    return sorted(found, key=lambda version: (version_number(version), version))


def find_whole_versions(root: Path, name: str) -> list[str]:
    """List the version folders of a name that hold a manifest, oldest first.

    Warns of newer ones without.
    """
    known = find_versions(root, name)
    whole = [version for version in known if (root / name / "versions" / version / MANIFEST).is_file()]
    for version in known[known.index(whole[-1]) + 1 :] if whole else ():
        warn_left_out(f"{name}@{version}", f"it holds no {MANIFEST}. Copy it whole, or remove it.")
    return whole


@cache
def warn_left_out(version: str, why: str) -> None:
    """Warn, once in a process, that a version is passed over."""
    _LOG.warning("%s is left out: %s", version, why)


def list_aliases(root: Path, name: str) -> list[str]:
    """List the aliases of a name, sorted."""
    stems = [f.removesuffix(".json") for f in _list_entries(root / name / "aliases") if f.endswith(".json")]
    return [alias for alias in stems if is_alias(alias)]


def require_name(root: Path, name: str) -> None:
    """Raise `VersionError`, naming what is nearest, when a name has no version."""
    if not find_versions(root, parse_reference(name).name):
        resolve(name, root)


def read_alias(root: Path, name: str, alias: str) -> dict[str, str]:
    """Read an alias: `{"version": "v7-3fa9c1d2", "digest": "sha256:..."}`.

    Raises `VersionError` when the name has no such alias, `IntegrityError` when its file is not one.
    """
    if alias not in (known := list_aliases(root, name)):
        raise _explain_unknown(f"{name}@{alias}", alias, [*known, LATEST, *find_versions(root, name)], f"{name}@")
    path = _require_no_link(root / name / "aliases" / f"{alias}.json", root)
    try:
        found = orjson.loads(path.read_bytes())
        version, digest = found["version"], found["digest"]
        sound = is_version(version) and re.fullmatch(DIGEST, digest)
    except (OSError, ValueError, KeyError, TypeError):
        sound = None
    if not sound:
        mend = f"Set it again with: ragc promote REF --to {alias}"
        raise IntegrityError(f"The alias {name}@{alias} is unreadable.", mend, alias=alias)
    return {"version": version, "digest": digest}


def _find_fitting(reference: Reference, base: Path) -> list[str]:
    """Return the version folders that fit a reference; never none."""
    name, chosen = reference.name, reference.selector
    known = find_versions(base, name) if name in _list_entries(base) else []
    if not known:
        raise _explain_unknown(f"version of {name} in the artifacts folder {base}", name, list_programs(base))
    if is_alias(chosen):
        target = read_alias(base, name, chosen)["version"]
        if target not in known:
            mend = f"Restore it, or set the alias to another version: ragc promote REF --to {chosen}"
            raise VersionError(f"{reference} points at {target}, which is not there.", mend)
        return [target]
    if re.fullmatch(DIGEST, chosen):
        fitting = [version for version in known if version.endswith(chosen[7:15])]
        paths = [_require_no_link(base / name / "versions" / version / MANIFEST, base) for version in fitting]
        fitting = [path.parent.name for path in paths if digest_of(path.read_bytes()).startswith(chosen)]
    else:
        if chosen == LATEST:
            known = find_whole_versions(base, name) or known
        number = known[-1].partition("-")[0] if chosen == LATEST else chosen
        fitting = [version for version in known if number in (version, version.partition("-")[0])]
    if not fitting:
        raise _explain_unknown(str(reference), chosen, [*list_aliases(base, name), *known], f"{name}@")
    return fitting


def _explain_unknown(what: str, chosen: str, known: list[str], prefix: str = "") -> VersionError:
    near = [prefix + one for one in difflib.get_close_matches(chosen, known, n=3, cutoff=0.5) or known[-3:]]
    mend = f"Nearest: {', '.join(near)}." if near else "Name another folder, or make one by `ragc compile`."
    return VersionError(f"There is no {what}.", mend, reference=prefix + chosen, nearest=near)


def _require_text(given: object) -> str:
    if isinstance(given, str | Path):
        return str(given)
    raise VersionError(
        f"A version is named by text or a Path, not by {_quote_text(repr(given))[1:-1]}.",
        "Write name@v7, name@production, name@latest or a folder.",
    )


def _find_folder(text: str) -> Path | None:
    """Return the sealed folder at a path, links resolved; None for what may be a reference."""
    with suppress(OSError, ValueError):
        if text and (Path(text) / MANIFEST).is_file():
            return Path(text).resolve()
    if text.startswith((".", "/")) or ("@" not in text and any(c in text for c in ("/", os.sep, ":"))):
        what = f"{_quote_text(text)} is not the folder of a version: it holds no {MANIFEST}."
        raise VersionError(what, "Name a folder such as artifacts/NAME/versions/v7-3fa9c1d2, or NAME@latest.")
    return None


def _require_no_link(path: Path, base: Path) -> Path:
    if path.resolve() != path or not path.is_relative_to(base):
        raise VersionError.link(path)
    return path


def _list_entries(folder: Path) -> list[str]:
    """List the names in a folder that are no links, sorted."""
    try:
        with os.scandir(folder) as found:
            return sorted(entry.name for entry in found if not entry.is_symlink())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _quote_text(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "...")
