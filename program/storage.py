"""Files on disk: a small file written whole, and a cache of what was computed of texts."""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

ASIDE = ".tmp-"  # how the name of a file that is being written begins
MOST = 1_000_000_000  # bytes of a file, about: past them, the older half makes room
_TABLE = "CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB NOT NULL)"
_OLDER = "DELETE FROM vectors WHERE rowid <= (SELECT (min(rowid) + max(rowid)) / 2 FROM vectors)"


class VectorFile:
    """A file of vectors, as bytes, that several processes may read and add to.

    Texts are kept as digests, though what was computed of one may tell its words. The file is opened when it is first
    used; one that cannot be read or written is left alone: the cost is time.
    """

    def __init__(self, path: Path, most: int = MOST) -> None:
        self.path = path
        self._most = most
        self._db: sqlite3.Connection | None = None
        self._unusable = False

    def close(self) -> None:
        """Lets go of the file, which must not be open when this process forks; the next use opens it anew."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def get(self, texts: Sequence[str]) -> dict[str, bytes]:
        """What is kept of those texts."""
        found: dict[str, bytes] = {}
        if (db := self._opened()) is None:
            return found
        try:
            for text in texts:
                row = db.execute("SELECT vector FROM vectors WHERE text = ?", (_key(text),)).fetchone()
                if row is not None:
                    found[text] = row[0]
        except sqlite3.Error:
            return {}
        return found

    def put(self, vectors: Mapping[str, bytes]) -> None:
        """Keeps what was computed of each text, in the place of what was kept; in a full file, the older half makes
        room."""
        if (db := self._opened()) is None:
            return
        rows = [(_key(text), vector) for text, vector in vectors.items()]
        try:
            db.execute("BEGIN IMMEDIATE")
            if _used(db) > self._most:
                db.execute(_OLDER)
            db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
            db.execute("COMMIT")
        except sqlite3.Error:
            self._give_up()

    def _opened(self) -> sqlite3.Connection | None:
        if self._db is None and not self._unusable:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._db = sqlite3.connect(self.path, timeout=5.0, check_same_thread=False, isolation_level=None)
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = OFF")  # losing the last rows in a power cut costs nothing
                self._db.execute(_TABLE)
            except (OSError, sqlite3.Error):
                self._give_up()
        return self._db

    def _give_up(self) -> None:
        self._db, self._unusable = None, True


def _used(db: sqlite3.Connection) -> int:
    """Bytes of the file's pages that hold something."""
    pages, free, size = (
        int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file so that a reader sees the old bytes or the new ones, also after a power cut."""
    aside = path.with_name(f"{ASIDE}{path.name}-{secrets.token_hex(4)}")
    with aside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have the system put a folder's entries on disk, where it can (Windows cannot)."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
