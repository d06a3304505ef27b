"""What was asked and what came back, kept by content: in memory, and in a file that outlives the process.

Several processes may share the file: what one of them paid for, the others read.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson

from program.errors import RecordError

PATIENCE = 60.0  # seconds for which a file that is locked or away is tried again
LEASE = 300.0  # seconds after which a call that another process began is taken for lost
PAUSE = 0.05
_SCHEMA = """
CREATE TABLE IF NOT EXISTS evidence (
  key BLOB PRIMARY KEY, value BLOB NOT NULL,
  seconds REAL NOT NULL, tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL, usd REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS begun (key BLOB PRIMARY KEY, owner TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
"""
_PASSING = ("locked", "busy", "unable to open")
_MANY = 500  # keys looked up in one statement

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    """What came back, and what it cost when it was performed."""

    value: Any
    seconds: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0


class Record:
    """Entries by content. `kept` is this process's memory, by any key; the file goes by digests of the content.

    Without a path everything stays in memory. `performed` counts what had to be done anew, `replayed` what was
    read from the file, `calls` the texts and decisions asked of a model, `failed` those that failed for good.
    Safe from many threads. Raises `RecordError` when the file cannot be read or written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.kept: dict[Hashable, Entry] = {}
        self.performed = 0
        self.replayed = 0
        self.calls = 0
        self.failed = 0
        self._path = path
        self._lock = threading.Lock()
        self._owner = f"{socket.gethostname()}:{os.getpid()}"
        self._db: sqlite3.Connection | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._do(lambda db: None)

    def read(self, digests: Iterable[bytes]) -> dict[bytes, Entry]:
        """The entries of those digests that the file holds."""
        wanted = list(dict.fromkeys(digests))
        if self._path is None or not wanted:
            return {}
        found: dict[bytes, Entry] = {}
        for at in range(0, len(wanted), _MANY):
            part = wanted[at : at + _MANY]
            marks = ",".join("?" * len(part))
            rows = self._do(
                lambda db, part=part, marks=marks: db.execute(  # type: ignore[misc]
                    f"SELECT key, value, seconds, tokens_in, tokens_out, usd FROM evidence WHERE key IN ({marks})",
                    part,
                ).fetchall()
            )
            found |= {bytes(key): Entry(orjson.loads(value), *costs) for key, value, *costs in rows}
        self.replayed += len(found)
        return found

    def write(self, entries: Mapping[bytes, Entry]) -> None:
        """Puts entries into the file, all or none; what it holds already stays."""
        if self._path is None or not entries:
            return
        rows = [
            (key, orjson.dumps(e.value, option=orjson.OPT_SERIALIZE_NUMPY), e.seconds, e.tokens_in, e.tokens_out, e.usd)
            for key, e in entries.items()
        ]

        def insert(db: sqlite3.Connection) -> None:
            with db:
                db.execute("BEGIN IMMEDIATE")
                db.executemany("INSERT OR IGNORE INTO evidence VALUES (?, ?, ?, ?, ?, ?)", rows)
                db.executemany("DELETE FROM begun WHERE key = ?", [(key,) for key in entries])

        self._do(insert)

    def begin(self, digest: bytes) -> Entry | None:
        """None when the call is this process's to make; else what another process got for it, once it has."""
        if self._path is None:
            return None
        while not self._taken(digest):
            found = self.read([digest])
            if digest in found:
                return found[digest]
            time.sleep(PAUSE)
        return None

    def give_up(self, digest: bytes) -> None:
        """Says that the call begun failed, so that another process may try."""

        def delete(db: sqlite3.Connection) -> None:
            with db:
                db.execute("DELETE FROM begun WHERE key = ? AND owner = ?", (digest, self._owner))

        if self._path is not None:
            self._do(delete)

    def close(self) -> None:
        """Lets go of the file."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def _taken(self, digest: bytes) -> bool:
        """True when the call is marked as begun by this process: nobody answered it, and nobody else is at it."""

        def take(db: sqlite3.Connection) -> bool:
            with db:
                db.execute("BEGIN IMMEDIATE")
                if db.execute("SELECT 1 FROM evidence WHERE key = ?", (digest,)).fetchone():
                    return False
                row = db.execute("SELECT owner, at FROM begun WHERE key = ?", (digest,)).fetchone()
                if row and row[0] != self._owner and time.time() - row[1] < LEASE and _alive(row[0]):
                    return False
                db.execute("INSERT OR REPLACE INTO begun VALUES (?, ?, ?)", (digest, self._owner, time.time()))
                return True

        return self._do(take)

    def _do(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """The action's result; while the file is locked or away it is tried again, up to PATIENCE."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                with self._lock:
                    return action(self._opened())
            except sqlite3.Error as error:
                self.close()
                if not any(word in str(error) for word in _PASSING) or time.monotonic() > end:
                    raise RecordError(
                        f"The record of calls {self._path} cannot be used: {error}.",
                        "Free space or mend access to it, then go on with: ragc compile PROJECT --resume",
                    ) from error
                time.sleep(10 * PAUSE)

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            db = sqlite3.connect(str(self._path), timeout=PATIENCE, check_same_thread=False, isolation_level=None)
            self._db = db
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.executescript(_SCHEMA)
        return self._db


def _alive(owner: str) -> bool:
    """False when the owner is a process of this machine that is gone."""
    host, _, pid = owner.rpartition(":")
    if host != socket.gethostname():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # somebody else's process
    return True
