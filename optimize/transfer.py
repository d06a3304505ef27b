"""A version as one file, and back: a zip archive of plain files, every digest checked on both ways."""

from __future__ import annotations

import os
import shutil
import stat
import zipfile
from pathlib import Path

import orjson

from optimize.registry import clear_leftovers, locked, write_git_files
from program import manifest, reference
from program.errors import IntegrityError, VersionError
from program.manifest import ASIDE

EPOCH = (1980, 1, 1, 0, 0, 0)
MANIFEST_LIMIT = 64 * 2**20
"""Bytes of a manifest at most; the other files are as long as it says, and not one byte is read past that."""


def export_version(ref: str, file: Path | str, root: Path | str | None = None) -> manifest.Manifest:
    """Writes the verified version to `file` and returns its manifest; the same version gives the same bytes.

    Raises `IntegrityError` when the version is not as sealed, `FileExistsError` when the file exists.
    """
    found = reference.resolve(ref, root)
    sealed = manifest.verify(found.path, found.digest)
    place = Path(file)
    aside = place.with_name(f"{ASIDE}{place.name}-{os.getpid()}")
    try:
        with zipfile.ZipFile(aside, "x", zipfile.ZIP_DEFLATED) as archive:
            for name in (reference.MANIFEST, *sorted(f.path for f in sealed.files)):
                entry = zipfile.ZipInfo(name, EPOCH)
                entry.external_attr = (stat.S_IFREG | 0o644) << 16
                archive.writestr(entry, (sealed.folder / name).read_bytes(), zipfile.ZIP_DEFLATED)
        os.link(aside, place)  # unlike a rename, this never replaces a file
    finally:
        aside.unlink(missing_ok=True)
    return sealed


def import_version(file: Path | str, root: Path | str | None = None, *, digest: str = "") -> str:
    """Puts the version in `file` below the root under its own name, number and digest; returns `name@v7-3fa9c1d2`.

    A version that is there already is left as it is. `digest`, when given, is the version digest expected.
    Raises `IntegrityError` for an archive that is not one sealed version: another digest, a file too many or
    too few, a link, a name that is not plain.
    """
    base = reference.artifacts_root(root)
    contents = _read(Path(file))
    fields = orjson.loads(contents[reference.MANIFEST])
    name, number = str(fields.get("name", "")), str(fields.get("version", ""))
    full = f"{number}-{manifest.digest_of(contents[reference.MANIFEST])[7:15]}"
    if not reference.is_name(name) or name in reference.RESERVED or not reference.is_version(full):
        raise _refused(file, f"it is named {name[:80]!r} {number[:20]!r}")
    with locked(base, name):
        write_git_files(base)
        folder = base / name / "versions"
        folder.mkdir(exist_ok=True)
        clear_leftovers(folder)
        aside = folder / f"{ASIDE}{os.getpid()}"
        manifest.write_files(aside, contents)
        try:
            if wrong := manifest.differences(aside, digest):
                raise _refused(file, "; ".join(wrong))
            if full not in reference.versions(base, name):
                aside.rename(folder / full)
                manifest.sync_folder(folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    manifest.verify(folder / full)
    return f"{name}@{full}"


def _read(file: Path) -> dict[str, bytes]:
    """The archive's files by name, each no longer than the manifest says."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            if len(entries) != len(archive.infolist()):
                raise _refused(file, "it holds a name twice")
            for name, entry in entries.items():
                kind = stat.S_IFMT(entry.external_attr >> 16)
                if not reference.is_name(name) or kind not in {0, stat.S_IFREG}:
                    raise _refused(file, f"{name[:80]!r} is not a plain file in it")
            if reference.MANIFEST not in entries:
                raise _refused(file, f"it holds no {reference.MANIFEST}")
            top = _content(archive, entries[reference.MANIFEST], MANIFEST_LIMIT)
            sizes = {str(f["path"]): int(f["size"]) for f in orjson.loads(top)["files"]}
            if sizes.keys() != entries.keys() - {reference.MANIFEST}:
                raise _refused(file, f"its files are not those of its {reference.MANIFEST}")
            return {reference.MANIFEST: top} | {n: _content(archive, entries[n], size) for n, size in sizes.items()}
    except FileNotFoundError:
        raise VersionError(f"There is no file {file}.", "Name one that ragc export wrote.") from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, NotImplementedError, zipfile.BadZipFile) as error:
        raise _refused(file, str(error) or type(error).__name__) from error


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, size: int) -> bytes:
    with archive.open(entry) as stream:
        content = stream.read(size + 1)
    if len(content) > size:
        raise ValueError(f"{entry.filename} is longer than it should be")
    return content


def _refused(file: Path | str, why: str) -> IntegrityError:
    return IntegrityError(f"{file} is not a version that was exported: {why}.", "Export it again: ragc export REF FILE")
