"""What searches found earlier, on disk by what was searched and how: a cache that may be deleted at any time."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping, Sequence
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from program.knowledge.index.generation import Index
from program.passage import Passage
from program.storage import VectorFile

MOST = 200_000_000  # bytes of a file, about; what a search found takes 10 to 20 kB


class PoolFile:
    """A file of candidate lists that several processes may read and add to. Safe from many threads.

    A passage of the index is kept by its id, any other whole. What other code of this package found is not taken
    for what this would.
    """

    def __init__(self, path: Path, most: int = MOST) -> None:
        self.path = path
        self._most = most
        self._lock = threading.Lock()
        self._opened: tuple[int, VectorFile] | None = None

    def get(self, key: Sequence[object], index: Index | None) -> tuple[Passage, ...] | None:
        """What was found under that key, exactly; None when nothing is kept."""
        text = _text(key)
        with self._lock:
            found = self._file().get([text]).get(text)
        if found is None:
            return None
        try:
            return tuple(_passage(entry, index) for entry in orjson.loads(found))
        except (ValueError, TypeError, KeyError):  # a damaged entry is found anew
            return None

    def put(self, key: Sequence[object], found: Sequence[Passage], index: Index | None) -> None:
        """Keeps what was found under that key."""
        rows: Mapping[str, int] = index.rows if index else {}
        content = orjson.dumps([_entry(p, p.id in rows) for p in found])
        with self._lock:
            self._file().put({_text(key): content})

    def _file(self) -> VectorFile:
        """The open file; after a fork, one of the new process's own."""
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), VectorFile(self.path, self._most)
        return self._opened[1]


def _text(key: Sequence[object]) -> str:
    return repr((_code(), *key))


def _entry(passage: Passage, indexed: bool) -> Any:
    scores = {name: float(score) for name, score in passage.scores.items()}
    if indexed:
        return [passage.id, float(passage.score), passage.method, scores, passage.reason]
    return passage.rescored(float(passage.score), passage.method, scores)


def _passage(entry: Any, index: Index | None) -> Passage:
    if isinstance(entry, list):
        if index is None:
            raise KeyError(entry[0])
        return index.passages[index.rows[entry[0]]].rescored(*entry[1:])
    return Passage(**{**entry, "as_of": date.fromisoformat(entry["as_of"]) if entry["as_of"] else None})


@lru_cache(maxsize=1)
def _code() -> str:
    """Identifies the code that searches."""
    found = hashlib.sha256()
    for path in sorted(Path(__file__).parents[2].rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()
