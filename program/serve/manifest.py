"""The sealed folder: files, and a manifest that holds the digest of each; any change to a byte is found."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from program.errors import IntegrityError, RagcError
from program.serve.reference import MANIFEST, VERSION, is_name, resolve, version_number
from program.storage import sync_folder

SCHEMA = {"major": 2, "minor": 0}
KINDS = (".json", ".jsonl", ".safetensors", ".html")
"""What a sealed folder may hold: data only, nothing that runs when it is read. Only the report is HTML."""
RECORDS = frozenset(["scores.jsonl", "report.html"])
"""Files about a program rather than of it: their timings and dates do not count as its content."""
SHOWN = 200  # characters of why something cannot be read
RESTORE = "Restore it from a copy, or compile a new version: ragc compile PROJECT"
COMPILE_AGAIN = "Compile it again with this ragc (ragc compile PROJECT), or install the ragc that wrote it."
FOREIGN = "its schema is"
_UNSEALED = "0" * 64
_CANONICAL = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY
_SEAL = re.compile(rb'^  "seal": "sha256:([0-9a-f]{64})"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SealedFile:
    """The name, the bytes' number and the bytes' digest of one file of a sealed folder."""

    path: str
    """The name of the file in the folder."""
    size: int
    """The number of its bytes."""
    digest: str
    """The digest of its bytes."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a version."""

    folder: Path
    """The sealed folder."""
    digest: str
    """The digest of the manifest's bytes, which is the version's own."""
    files: tuple[SealedFile, ...]
    """The sealed files."""
    fields: Mapping[str, Any]
    """All that the manifest says, keys of a newer minor schema included."""
    name: str
    """The name of the program."""
    version: str
    """The version number alone: `v7`."""
    created_at: str
    """The time of sealing, UTC, ISO 8601."""
    content_digest: str
    """The digest of the program alone: equal for two versions that hold the same one."""

    @property
    def label(self) -> str:
        """The name and the number, `helpdesk@v7`, as messages say them."""
        return f"{self.name}@{self.version}"

    @property
    def parent(self) -> str | None:
        """The reference of the version that this one was compiled from."""
        return self.fields.get("parent")

    def section(self, name: str) -> Mapping[str, Any]:
        """Return a table of the manifest, such as `points`; empty when there is none."""
        found = self.fields.get(name)
        return found if isinstance(found, Mapping) else {}


def seal_folder(folder: Path, manifest: Mapping[str, Any], files: Mapping[str, bytes]) -> Manifest:
    """Write files and their manifest to a new folder, down to the disk.

    `manifest` gives name, version, parent and any tables; all else is filled in. Raises `IntegrityError` for a kind of
    file that is not data, `FileExistsError` when the folder exists.
    """
    for name, content in files.items():
        if problem := _find_unsuitable(name, content):
            raise IntegrityError(f"{name} cannot be sealed: {problem}.", "Seal JSON and safetensors only.")
    fields = {"parent": None, "created_at": datetime.now(UTC).isoformat(timespec="seconds"), **manifest} | {
        "schema": SCHEMA,
        "files": [{"path": n, "size": len(c), "digest": digest_of(c)} for n, c in sorted(files.items())],
        "content_digest": _digest_program(files),
        "seal": f"sha256:{_UNSEALED}",
    }
    blank = orjson.dumps(fields, option=_CANONICAL)
    seal = f'\n  "seal": "{digest_of(blank)}"'.encode()
    sealed = blank.replace(f'\n  "seal": "sha256:{_UNSEALED}"'.encode(), seal)
    folder.mkdir(parents=True)
    for name, content in {**files, MANIFEST: sealed}.items():
        with (folder / name).open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    sync_folder(folder)
    return read_manifest(folder)


def open_version(given: str | Path, root: Path | str | None = None) -> Manifest:
    """Return the manifest of a version named or in a folder, each byte checked."""
    found = resolve(given, root)
    return verify_folder(found.path, found.digest)


def verify_folder(folder: Path, digest: str = "") -> Manifest:
    """Return the manifest of a folder in which every byte is as it was sealed.

    `digest`, when given, is the version digest expected. Raises `IntegrityError` that lists every difference: changed,
    missing and surplus files, sizes, a foreign schema, a changed manifest.
    """
    if found := find_differences(folder, digest):
        what = f"{folder} is not as it was sealed: {'; '.join(found)}."
        mend = COMPILE_AGAIN if found[0].startswith(FOREIGN) else RESTORE
        raise IntegrityError(what, mend, path=str(folder), differences=found)
    return read_manifest(folder)


def read_manifest(folder: Path) -> Manifest:
    """Read a manifest, its files unchecked. Raises `IntegrityError`."""
    try:
        content = (folder / MANIFEST).read_bytes()
        fields = orjson.loads(content)
        if not isinstance(fields.get("parent"), str | None):
            raise TypeError("a parent is a reference")
        files = tuple(SealedFile(str(f["path"]), int(f["size"]), str(f["digest"])) for f in fields["files"])
        texts = (str(fields.get(key, "")) for key in ("name", "version", "created_at", "content_digest"))
        return Manifest(folder, digest_of(content), files, fields, *texts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise IntegrityError.unreadable(folder / MANIFEST, "Restore the folder from a copy.") from error


def find_differences(folder: Path, digest: str = "") -> list[str]:
    """List in words every way in which a folder is not as it was sealed.

    A seal finds accidents and careless edits. It is not a signature: whoever rewrites the files can rewrite the
    manifest, which is what `digest`, kept elsewhere, is for.
    """
    try:
        manifest = read_manifest(folder)
    except IntegrityError as error:
        return [error.what.rstrip(".")]
    major = manifest.section("schema").get("major")
    if major != SCHEMA["major"]:
        return [f"{FOREIGN} {major}, this program reads {SCHEMA['major']}"]
    found = _find_manifest_differences(manifest, digest)
    listed = {file.path: file for file in manifest.files}
    present = {path.name for path in folder.iterdir()} - {MANIFEST}
    for name in sorted(listed.keys() | present):
        problem = _find_file_difference(folder / name, listed.get(name)) if name in present else "is missing"
        found += [f"{name} {problem}"] if problem else []
    return found


@contextmanager
def refuse_unreadable(what: object) -> Iterator[None]:
    """Raise `IntegrityError` when sealed content makes no sense to its reader.

    Digests tell that files are as they were sealed, not that a ragc wrote them: the block should do little else.
    """
    try:
        yield
    except (RagcError, ImportError, OSError, MemoryError):
        raise
    except Exception as error:  # safetensors raises its own class, which is no subclass of ValueError
        why = f"{type(error).__name__}: {str(error)[:SHOWN]}"
        raise IntegrityError(f"{what} cannot be read ({why}).", RESTORE) from error


def digest_of(content: bytes) -> str:
    """Return `sha256:` and 64 hexadecimal digits."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _digest_program(files: Mapping[str, bytes]) -> str:
    """Digest the names and bytes of a program's files, without dates and timings."""
    counted = sorted(files.keys() - RECORDS)
    return digest_of("".join(f"{digest_of(files[name])} {name}\n" for name in counted).encode())


def _find_unsuitable(name: str, content: bytes) -> str:
    if not is_name(name) or name == MANIFEST:
        return "its name is not a plain lower-case file name"
    if not name.endswith(KINDS):
        return f"only {', '.join(KINDS)} are"
    try:
        if name.endswith(".json"):
            orjson.loads(content)
        elif name.endswith(".jsonl"):
            _ = [orjson.loads(line) for line in content.splitlines()]
        elif name.endswith(".safetensors"):
            orjson.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    except ValueError:
        return f"it is not {name.rpartition('.')[2]}"
    return ""


def _find_manifest_differences(manifest: Manifest, digest: str) -> list[str]:
    found = []
    content = (manifest.folder / MANIFEST).read_bytes()
    seals = _SEAL.findall(content)
    blank = _SEAL.sub(f'  "seal": "sha256:{_UNSEALED}"'.encode(), content)
    named = re.fullmatch(VERSION, manifest.folder.name)
    if len(seals) != 1 or digest_of(blank) != f"sha256:{seals[0].decode()}":
        found.append(f"{MANIFEST} was changed")
    elif digest and digest != manifest.digest:
        found.append(f"{MANIFEST} is {manifest.digest} instead of {digest}")
    elif named and (manifest.digest[7:15] != named[2] or manifest.version != f"v{version_number(named[0])}"):
        found.append(f"{MANIFEST} is of another version: {manifest.version}-{manifest.digest[7:15]}")
    unsafe = [f.path for f in manifest.files if not is_name(f.path) or not f.path.endswith(KINDS)]
    return found + [f"{path!r} may not be in a version" for path in unsafe]


def _find_file_difference(path: Path, sealed: SealedFile | None) -> str:
    if sealed is None:
        return "is surplus"
    if path.is_symlink() or not path.is_file():
        return "is not a plain file"
    content = path.read_bytes()
    if len(content) != sealed.size:
        return f"has {len(content)} bytes instead of {sealed.size}"
    return "" if digest_of(content) == sealed.digest else "was changed"
