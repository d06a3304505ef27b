"""Which code is running: evidence and versions are told apart by it."""

from __future__ import annotations

import hashlib
import inspect
from functools import lru_cache
from pathlib import Path

import program as program_package


@lru_cache(maxsize=1)
def source_digest() -> str:
    """Identifies the code of `program`: its files' names and contents."""
    return _digest(Path(inspect.getfile(program_package)).parent)


@lru_cache(maxsize=1)
def replay_digest() -> str:
    """Identifies the code that runs a program and notes what it read: that of `program` and of `optimize`."""
    return source_digest() + _digest(Path(__file__).parents[1])


def _digest(root: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"sha256:{found.hexdigest()}"
