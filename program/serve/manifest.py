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
from program.serve.reference import MANIFEST, VERSION, is_name, number
from program.storage import sync_folder

"""What the name of a file or folder begins with until it is whole."""

SCHEMA = {"major": 1, "minor": 0}
KINDS = (".json", ".jsonl", ".safetensors", ".html")
"""What a sealed folder may hold: data only, nothing that runs when it is read. Only the report is HTML."""
RECORDS = frozenset(["scores.jsonl", "report.html"])
"""Files about a program rather than of it: their timings and dates do not count as its content."""
SECTIONS = ("program", "data", "knowledge", "models", "optimizer", "points", "scores", "cost", "env", "git")
SHOWN = 200  # characters of why something cannot be read
_UNSEALED = "0" * 64
_CANONICAL = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY
_SEAL = re.compile(rb'^  "seal": "sha256:([0-9a-f]{64})"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SealedFile:
    """One file of a sealed folder: its name, bytes, and `sha256:` digest."""

    path: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest, read. `digest` is the version's own: `sha256:` of the manifest's bytes.

    `fields` holds everything the manifest says, keys of a newer minor schema included.
    """

    folder: Path
    digest: str
    files: tuple[SealedFile, ...]
    fields: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.fields.get("name", ""))

    @property
    def version(self) -> str:
        """The number alone: `v7`."""
        return str(self.fields.get("version", ""))

    @property
    def parent(self) -> str | None:
        """The reference this version was compiled from."""
        return self.fields.get("parent")

    @property
    def created_at(self) -> str:
        """UTC, ISO 8601."""
        return str(self.fields.get("created_at", ""))

    @property
    def content_digest(self) -> str:
        """The same for two versions that hold the same program."""
        return str(self.fields.get("content_digest", ""))

    def section(self, name: str) -> Mapping[str, Any]:
        """One of SECTIONS, empty when the manifest has none."""
        found = self.fields.get(name)
        return found if isinstance(found, Mapping) else {}


def seal(folder: Path, manifest: Mapping[str, Any], files: Mapping[str, bytes]) -> Manifest:
    """Write the files and their manifest to a new folder, down to the disk, and return the manifest.

    `manifest` gives name, version, parent and any of SECTIONS; the schema, the files' digests, the content
    digest, the seal and (when missing) `created_at` are filled in. Raises `IntegrityError` for a file kind
    that is not data, `FileExistsError` when the folder exists.
    """
    for name, content in files.items():
        if problem := _unsuitable(name, content):
            raise IntegrityError(f"{name} cannot be sealed: {problem}.", "Seal JSON and safetensors only.")
    listed = [
        {"path": name, "size": len(content), "digest": digest_of(content)} for name, content in sorted(files.items())
    ]
    fields = {"parent": None, "created_at": datetime.now(UTC).isoformat(timespec="seconds"), **manifest}
    fields |= {
        "schema": SCHEMA,
        "files": listed,
        "content_digest": content_digest(files),
        "seal": f"sha256:{_UNSEALED}",
    }
    blank = orjson.dumps(fields, option=_CANONICAL)
    sealed = blank.replace(
        f'\n  "seal": "sha256:{_UNSEALED}"'.encode(),
        f'\n  "seal": "{digest_of(blank)}"'.encode(),
    )
    write_files(folder, {**files, MANIFEST: sealed})
    return _view(folder, sealed)


def verify(folder: Path, digest: str = "") -> Manifest:
    """The manifest of a folder in which every byte is as it was sealed.

    `digest`, when given, is the version digest expected. Raises `IntegrityError` that lists every
    difference: changed, missing and surplus files, sizes, a foreign schema, a changed manifest.
    """
    if found := differences(folder, digest):
        raise IntegrityError(f"{folder} is not as it was sealed: {'; '.join(found)}.", mend(folder))
    return read(folder)


def mend(folder: Path) -> str:
    """What to do about a folder that does not verify."""
    try:
        major = read(folder).section("schema").get("major")
    except IntegrityError:
        major = SCHEMA["major"]
    if major == SCHEMA["major"]:
        return "Restore the folder from a copy, or compile a new version: ragc compile PROJECT"
    if isinstance(major, int) and major > SCHEMA["major"]:
        return "Install the ragc that wrote it, or a newer one; or compile it again with this one: ragc compile PROJECT"
    return "Compile it again with this ragc: ragc compile PROJECT"


def read(folder: Path) -> Manifest:
    """The manifest of a folder, its files unchecked. Raises `IntegrityError` when it cannot be read."""
    try:
        return _view(folder, (folder / MANIFEST).read_bytes())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"{folder / MANIFEST} is unreadable."
        raise IntegrityError(what, "Restore the folder from a copy.") from error


def differences(folder: Path, digest: str = "") -> list[str]:
    """Every way in which a folder is not as it was sealed, in words; empty when it is sound.

    A seal finds accidents and careless edits. It is not a signature: whoever rewrites the files can rewrite
    the manifest, which is what `digest`, kept elsewhere, is for.
    """
    try:
        manifest = read(folder)
    except IntegrityError as error:
        return [error.what.rstrip(".")]
    major = manifest.section("schema").get("major")
    if major != SCHEMA["major"]:
        return [f"its schema is {major}, this program reads {SCHEMA['major']}"]
    found = _manifest_differences(manifest, digest)
    listed = {file.path: file for file in manifest.files}
    with os.scandir(folder) as entries:
        present = {e.name: e.is_file(follow_symlinks=False) for e in entries if e.name != MANIFEST}
    for name in sorted(listed.keys() | present.keys()):
        if name not in listed:
            found.append(f"{name} is surplus")
        elif name not in present:
            found.append(f"{name} is missing")
        elif not present[name]:
            found.append(f"{name} is not a plain file")
        elif problem := _file_difference(folder / name, listed[name]):
            found.append(f"{name} {problem}")
    return found


@contextmanager
def readable(what: object) -> Iterator[None]:
    """Inside, content of versions that makes no sense to its reader is an `IntegrityError`: for what reads little else.

    Digests tell that files are as they were sealed, not that a ragc wrote them.
    """
    try:
        yield
    except (RagcError, ImportError, OSError, MemoryError):
        raise
    except Exception as error:  # safetensors raises its own class, which is no subclass of ValueError
        raise IntegrityError(
            f"{what} cannot be read ({type(error).__name__}: {str(error)[:SHOWN]}).",
            "Restore it from a copy, or compile a new version: ragc compile PROJECT",
        ) from error


def digest_of(content: bytes) -> str:
    """`sha256:` and 64 hexadecimal digits."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def content_digest(files: Mapping[str, bytes]) -> str:
    """The digest of what a program consists of: the names and bytes of its files, RECORDS left out.

    No date or timing enters it, so two compiles that end in the same program have the same one.
    """
    counted = sorted(files.keys() - RECORDS)
    return digest_of("".join(f"{digest_of(files[name])} {name}\n" for name in counted).encode())


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write a new folder of files, down to the disk. Raises `FileExistsError` when the folder exists."""
    folder.mkdir(parents=True)
    for name, content in contents.items():
        with (folder / name).open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    sync_folder(folder)


def _view(folder: Path, content: bytes) -> Manifest:
    fields = orjson.loads(content)
    if not isinstance(fields.get("parent"), str | None):
        raise TypeError("a parent is a reference")
    files = tuple(SealedFile(str(f["path"]), int(f["size"]), str(f["digest"])) for f in fields["files"])
    return Manifest(folder, digest_of(content), files, fields)


def _unsuitable(name: str, content: bytes) -> str:
    """Why a file may not be sealed, or nothing."""
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


def _manifest_differences(manifest: Manifest, digest: str) -> list[str]:
    """What is wrong with the manifest itself: its seal, its version's digest, the names it lists."""
    found = []
    content = (manifest.folder / MANIFEST).read_bytes()
    seals = _SEAL.findall(content)
    blank = _SEAL.sub(f'  "seal": "sha256:{_UNSEALED}"'.encode(), content)
    named = re.fullmatch(VERSION, manifest.folder.name)
    if len(seals) != 1 or digest_of(blank) != f"sha256:{seals[0].decode()}":
        found.append(f"{MANIFEST} was changed")
    elif digest and digest != manifest.digest:
        found.append(f"{MANIFEST} is {manifest.digest} instead of {digest}")
    elif named and (manifest.digest[7:15] != named[2] or manifest.version != f"v{number(named[0])}"):
        found.append(f"{MANIFEST} is of another version: {manifest.version}-{manifest.digest[7:15]}")
    unsafe = [f.path for f in manifest.files if not is_name(f.path) or not f.path.endswith(KINDS)]
    return found + [f"{path!r} may not be in a version" for path in unsafe]


def _file_difference(path: Path, sealed: SealedFile) -> str:
    content = path.read_bytes()
    if len(content) != sealed.size:
        return f"has {len(content)} bytes instead of {sealed.size}"
    return "" if digest_of(content) == sealed.digest else "was changed"
