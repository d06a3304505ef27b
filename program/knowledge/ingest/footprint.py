"""What folders of files look like from outside: whether anything in them may have changed since they were indexed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from program.knowledge.bases import BaseSpec

Seen = tuple[str, int, int]
"""A file's path under its base, its bytes, and when it was written, in nanoseconds."""


def footprint(bases: Sequence[BaseSpec], settings: str = "") -> str:
    """A digest of every file's path, size and time, of how each base is read, and of `settings`; no file is opened.

    A thousand files take about 8 ms. A folder that is absent or closed is as an empty one.
    """
    found = hashlib.sha256(settings.encode())
    for base in bases:
        found.update(repr((base.name, base.kind, base.chunk_tokens, base.max_megabytes)).encode())
        found.update(repr(sorted(_seen(Path(base.path)))).encode("utf-8", "surrogateescape"))
    return found.hexdigest()


def _seen(path: Path) -> Iterator[Seen]:
    """Every file that reading the base may look at, links to files by what they lead to."""
    if path.is_file():
        status = path.stat()
        yield path.name, status.st_size, status.st_mtime_ns
    folders = [(str(path), "")]
    while folders:
        folder, within = folders.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    name = f"{within}{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        folders.append((entry.path, f"{name}/"))
                    else:
                        yield name, *_status(entry)
        except OSError:
            continue


def _status(entry: os.DirEntry[str]) -> tuple[int, int]:
    try:
        status = entry.stat()
    except OSError:  # a link to nothing
        return -1, -1
    return status.st_size, status.st_mtime_ns
