"""The sealed folder: files, and a manifest that holds the digest of each; any change to a byte is found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from ragc.errors import IntegrityError, RagcError, SettingsError
from ragc.serve.reference import MANIFEST, Manifest, digest_of, is_name, read_manifest, resolve
from ragc.storage import name_file, sync_folder, write_through

SCHEMA = {"major": 2, "minor": 0}
KINDS = (".json", ".jsonl", ".safetensors", ".html")
"""What a sealed folder may hold: data only, nothing that runs when it is read. Only the report is HTML."""
RECORDS = frozenset(["scores.jsonl", "report.html"])
"""Files about a program rather than of it: their timings and dates do not count as its content."""
SHOWN = 200  # characters of why something cannot be read
RESTORE = "Restore it from a copy, or compile a new version by `ragc compile`."
COMPILE_AGAIN = "Compile it again with this ragc, by `ragc compile`, or install the ragc that wrote it."
FOREIGN = "its schema is"
_UNSEALED = "0" * 64
_CANONICAL = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY
_SEAL = re.compile(rb'^  "seal": "sha256:([0-9a-f]{64})"', re.MULTILINE)


def seal_folder(folder: Path, manifest: Mapping[str, Any], files: Mapping[str, bytes]) -> Manifest:
    """Write files and their manifest to a new folder, down to the disk.

    `manifest` gives name, version, parent and any tables; all else is filled in. Raises `IntegrityError` for a kind of
    file that is not data, `FileExistsError` when the folder exists.
    """
    for name, content in files.items():
        if problem := _find_unsuitable(name, content):
            raise IntegrityError(f"{name} cannot be sealed: {problem}.", "Seal JSON and safetensors only.")
    counted = sorted(files.keys() - RECORDS)  # of the program, without dates and timings
    fields = {"parent": None, "created_at": datetime.now(UTC).isoformat(timespec="seconds"), **manifest} | {
        "schema": SCHEMA,
        "files": [{"path": n, "size": len(c), "digest": digest_of(c)} for n, c in sorted(files.items())],
        "content_digest": digest_of("".join(f"{digest_of(files[name])} {name}\n" for name in counted).encode()),
        "seal": f"sha256:{_UNSEALED}",
    }
    blank = orjson.dumps(fields, option=_CANONICAL)
    seal = f'\n  "seal": "{digest_of(blank)}"'.encode()
    sealed = blank.replace(f'\n  "seal": "sha256:{_UNSEALED}"'.encode(), seal)
    folder.mkdir(parents=True)
    for name, content in {**files, MANIFEST: sealed}.items():
        with name_file(folder / name):
            write_through(folder / name, content)
    sync_folder(folder)
    return read_manifest(folder)


def open_version(given: str | Path, root: Path | str | None = None) -> Manifest:
    """Return the manifest of a version named or in a folder, each byte checked.

    Raises `IntegrityError` that lists every difference: changed, missing and surplus files, sizes, a foreign schema, a
    changed manifest.
    """
    found = resolve(given, root)
    verify_folder(found.path)
    return found


def explain_own_code(manifest: Manifest) -> SettingsError:
    """Return the error of a version whose program a function has to make."""
    what = f"{manifest.label} is a program of your own code, which no version holds."
    give = f'load("{manifest.label}", make), Experiment.open(NAME, make)'
    return SettingsError(what, f"Give the function that makes it: {give}, or ragc eval, compare, verify --program.")


def verify_folder(folder: Path) -> Manifest:
    """Return the manifest of a folder.

    Raises `IntegrityError` unless every byte is as it was sealed.
    """
    if found := find_differences(folder):
        what = f"{folder} is not as it was sealed: {'; '.join(found)}."
        mend = COMPILE_AGAIN if found[0].startswith(FOREIGN) else RESTORE
        raise IntegrityError(what, mend, path=str(folder), differences=found)
    return read_manifest(folder)


def find_differences(folder: Path) -> list[str]:
    """List in words every way in which a folder is not as it was sealed.

    A seal finds accidents and careless edits. It is not a signature: whoever rewrites the files can rewrite the
    manifest. Whoever keeps the digest elsewhere names the version by it, `name@sha256:...`.
    """
    try:
        manifest = read_manifest(folder)
    except IntegrityError as error:
        return [error.what.rstrip(".")]
    major = manifest.section("schema").get("major")
    if major != SCHEMA["major"]:
        return [f"{FOREIGN} {major}, this program reads {SCHEMA['major']}"]
    found = _find_manifest_differences(manifest)
    present = {path.name for path in folder.iterdir()} - {MANIFEST}
    for name in sorted(manifest.files.keys() | present):
        problem = _find_file_difference(folder / name, manifest.files.get(name)) if name in present else "is missing"
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


def _find_manifest_differences(manifest: Manifest) -> list[str]:
    found = []
    content = (manifest.path / MANIFEST).read_bytes()
    seals = _SEAL.findall(content)
    blank = _SEAL.sub(f'  "seal": "sha256:{_UNSEALED}"'.encode(), content)
    if len(seals) != 1 or digest_of(blank) != f"sha256:{seals[0].decode()}":
        found.append(f"{MANIFEST} was changed")
    elif manifest.version and manifest.full_label != f"{manifest.name}@{manifest.version}":
        found.append(f"{MANIFEST} is of another version: {manifest.full_label}")
    unsafe = [name for name in manifest.files if not is_name(name) or not name.endswith(KINDS)]
    return found + [f"{name!r} may not be in a version" for name in unsafe]


def _find_file_difference(path: Path, sealed: tuple[int, str] | None) -> str:
    if sealed is None:
        return "is surplus"
    if path.is_symlink() or not path.is_file():
        return "is not a plain file"
    content = path.read_bytes()
    if len(content) != sealed[0]:
        return f"has {len(content)} bytes instead of {sealed[0]}"
    return "" if digest_of(content) == sealed[1] else "was changed"
