"""Which version was compiled from which."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from optimize.registry.versions import Listed, list_versions
from program.errors import IntegrityError, VersionError
from program.serve import reference
from program.serve.manifest import Manifest, read_manifest


@dataclass(frozen=True, slots=True)
class Line:
    """A version with those compiled from it, oldest first. `lost` names a parent that is not there any more."""

    listed: Listed
    children: tuple[Line, ...]
    lost: str = ""


def lineage(name: str, root: Path | str | None = None) -> list[Line]:
    """The versions of `name` as trees, oldest root first. Raises `VersionError` when it has no version.

    A version whose parent is gone, of another name, or ambiguous begins a tree and says so in `lost`; one that
    cannot be read begins one, too.
    """
    found = [one for one in list_versions(name, root) if one.version]
    above = {one.version: _parent(one, found) for one in found}

    def grown(one: Listed) -> Line:
        children = tuple(grown(c) for c in found if above[c.version] == one.version)
        lost = (one.parent or "") if above[one.version] is None else ""
        return Line(one, children, lost)

    return [grown(one) for one in found if above[one.version] is None]


def forebears(ref: str, root: Path | str | None = None) -> list[Manifest]:
    """The manifest of a version, of that it was compiled from, and so on, as far as they are there and can be read."""
    found: dict[Path, Manifest] = {}
    wanted: str | None = ref
    with suppress(VersionError, IntegrityError):
        while wanted:
            path = reference.resolve(wanted, root).path
            if path in found:
                break
            found[path] = read_manifest(path)
            wanted, root = found[path].parent, path.parents[2]
    return list(found.values())


def _parent(one: Listed, known: Sequence[Listed]) -> str | None:
    """The version folder of the parent. Only an older number counts: no hand-made manifest closes a circle."""
    name, _, wanted = (one.parent or "").partition("@")
    fitting = [
        other.version
        for other in known
        if name == one.name
        and wanted in {other.version, f"v{reference.version_number(other.version)}"}
        and reference.version_number(other.version) < reference.version_number(one.version)
    ]
    return fitting[0] if len(fitting) == 1 else None
