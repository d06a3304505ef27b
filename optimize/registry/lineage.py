"""Versions as families: which was compiled from which."""

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
class LineageNode:
    """A version with those compiled from it, oldest first."""

    listed: Listed  # the version
    children: tuple[LineageNode, ...]  # the versions compiled from it
    lost: str = ""  # a parent that is not there any more


def build_lineage(name: str, root: Path | str | None = None) -> list[LineageNode]:
    """Return the versions of `name` as trees; one without a known parent begins one."""
    found = [one for one in list_versions(name, root) if one.version]
    above = {one.version: _find_parent(one, found) for one in found}

    def grow(one: Listed) -> LineageNode:
        children = tuple(grow(child) for child in found if above[child.version] == one.version)
        return LineageNode(one, children, (one.parent or "") if above[one.version] is None else "")

    return [grow(one) for one in found if above[one.version] is None]


def read_ancestors(ref: str, root: Path | str | None = None) -> list[Manifest]:
    """Return the manifests of a version and of those it was compiled from."""
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


def _find_parent(one: Listed, known: Sequence[Listed]) -> str | None:
    """Return the parent's version folder. Only an older number counts: no hand-made manifest closes a circle."""
    name, _, wanted = (one.parent or "").partition("@")
    fitting = [
        other.version
        for other in known
        if name == one.name
        and wanted in {other.version, f"v{reference.version_number(other.version)}"}
        and reference.version_number(other.version) < reference.version_number(one.version)
    ]
    return fitting[0] if len(fitting) == 1 else None
