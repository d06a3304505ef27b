"""Vectors computed earlier, on disk by the digest of their text: a cache that may be deleted at any time."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST = 500_000  # rows after which nothing more is kept: 750 MB of 384 floats
_TABLE = "CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID"


class VectorFile:
    """A file of vectors that several processes may read and add to.

    Texts are kept as digests only. A file that cannot be read or written is left alone: the cost is time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db: sqlite3.Connection | None = None
        self._room = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=5.0, check_same_thread=False, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = OFF")  # losing the last rows in a power cut costs nothing
            self._db.execute(_TABLE)
            self._room = MOST - int(self._db.execute("SELECT count(*) FROM vectors").fetchone()[0])
        except (OSError, sqlite3.Error):
            self._db = None

    def close(self) -> None:
        """Lets go of the file; nothing is read or kept any more."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def get(self, texts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """The vectors of those texts that have one here."""
        if self._db is None:
            return {}
        found = {}
        try:
            for text in texts:
                row = self._db.execute("SELECT vector FROM vectors WHERE text = ?", (_key(text),)).fetchone()
                if row is not None:
                    found[text] = np.frombuffer(row[0], np.float32)
        except sqlite3.Error:
            return {}
        return found

    def put(self, vectors: Mapping[str, NDArray[np.float32]]) -> None:
        """Keeps vectors, unless the file is full."""
        if self._db is None or len(vectors) > self._room:
            return
        rows = [(_key(text), vector.tobytes()) for text, vector in vectors.items()]
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
            self._db.execute("COMMIT")
            self._room -= len(rows)
        except sqlite3.Error:
            self._db = None


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
