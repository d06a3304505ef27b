"""Files on disk: a small file written whole, lines of JSON by many processes, and a cache, with memory before it."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import orjson

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Result = TypeVar("Result")

ASIDE = ".tmp-"  # how the name of a file that is being written begins
MAX_BYTES = 1_000_000_000  # of a cache file, about
_TABLE = "CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY, value BLOB NOT NULL)"
_DROP_OLDEST = "DELETE FROM entries WHERE rowid <= (SELECT (15 * min(rowid) + max(rowid)) / 16 FROM entries)"
WAIT, PAUSE = 5.0, 30.0  # seconds for a lock, and until a file is tried again that could not be used


class SqliteFile:
    """A SQLite file that threads and processes share. It is opened when it is used, and closed before a fork."""

    def __init__(self, path: Path, tables: Sequence[str], wait: float, synchronous: str = "NORMAL") -> None:
        self.path, self._wait = path, wait
        self._begins = ("PRAGMA journal_mode = WAL", f"PRAGMA synchronous = {synchronous}", *tables)
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        _files.add(self)

    @property
    def is_open(self) -> bool:
        return self._db is not None

    def close(self) -> None:
        """Close the file; the next use opens it."""
        with self._lock:
            if self._db is not None:
                self._db.close()
            self._db = None

    def use(self, action: Callable[[sqlite3.Connection], Result]) -> Result:
        """Return an action's result; what it reads waits for nobody who writes."""
        with self._lock:
            if self._db is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                db = sqlite3.connect(self.path, timeout=self._wait, check_same_thread=False, isolation_level=None)
                for command in self._begins:
                    db.execute(command)
                self._db = db
            return action(self._db)

    def transact(self, action: Callable[[sqlite3.Connection], Result]) -> Result:
        """Return the result of an action that is done as a whole, or not at all."""

        def begin(db: sqlite3.Connection) -> Result:
            db.execute("BEGIN IMMEDIATE")
            with db:
                return action(db)

        return self.use(begin)


_files: WeakSet[SqliteFile] = WeakSet()


def _close_all() -> None:
    for file in list(_files):
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_close_all)


class DiskCache:
    """A SQLite file of bytes by text that may be deleted at any time.

    Several threads and processes may share one file. Texts are kept as digests. A full file drops its oldest sixteenth.
    A file that cannot be written is left alone for PAUSE seconds: the cost is time.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self.path, self._max_bytes, self._again = path, max_bytes, 0.0
        self._file = SqliteFile(path, [_TABLE], WAIT, "OFF")  # losing the last rows in a power cut costs nothing
        self.close = self._file.close

    def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Return the values of those keys that are kept."""

        def read(db: sqlite3.Connection) -> dict[str, Any]:
            select = "SELECT value FROM entries WHERE key = ?"
            return {key: db.execute(select, (_digest_key(key),)).fetchone() for key in keys}

        rows = self._try(self._file.use, read, self._file.is_open) or {}
        return {key: row[0] for key, row in rows.items() if row}

    def put(self, values: Mapping[str, bytes]) -> None:
        """Keep each value under its key, in place of an earlier one."""
        rows = [(_digest_key(key), value) for key, value in values.items()]

        def write(db: sqlite3.Connection) -> None:
            while _count_bytes(db) > self._max_bytes and db.execute(_DROP_OLDEST).rowcount:
                pass
            db.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?)", rows)

        if rows:
            self._try(self._file.transact, write)

    def _try(self, use: Callable[..., Result], action: Callable[..., Any], at_once: bool = False) -> Result | None:
        if at_once or time.monotonic() >= self._again:
            try:
                return use(action)
            except (OSError, sqlite3.Error):
                self._again = time.monotonic() + PAUSE
        return None


class Remembered(Generic[Key, Value]):
    """Values that are dear to make: the last `most` in memory and, once there is a folder, all of them in a file.

    `write` and `read` turn a value into bytes and back, `name` a key into text. Safe from many threads.
    """

    def __init__(
        self,
        most: int,
        write: Callable[[Value], bytes],
        read: Callable[[bytes], Value],
        name: Callable[[Key], str] = str,
    ) -> None:
        self._most, self._write, self._read, self._name = most, write, read, name
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, Value] = OrderedDict()
        self._file: DiskCache | None = None

    def use_file(self, folder: Path, kind: str, digest: str) -> None:
        """Keep the values in a file, too; `digest` is of what they are made with."""
        path = folder / f"{kind}-{hashlib.sha256(digest.encode()).hexdigest()[:12]}.sqlite"
        with self._lock:
            if self._file is None or self._file.path != path:
                self._file = DiskCache(path)

    def put(self, values: Mapping[Key, Value]) -> None:
        """Keep values in memory that were made before."""
        with self._lock:
            keep_last(self._kept, values, self._most)

    def get(self, keys: Sequence[Key], make: Callable[[list[Key]], Iterable[Value]]) -> list[Value]:
        """Return the value of each key; those that are not kept are made together."""
        with self._lock:
            known, file = {key: self._kept[key] for key in keys if key in self._kept}, self._file
        if new := {key: self._name(key) for key in keys if key not in known}:
            found = file.get([*new.values()]) if file else {}
            known |= {key: self._read(found[name]) for key, name in new.items() if name in found}
            if lacking := [key for key in new if key not in known]:
                made = dict(zip(lacking, make(lacking), strict=True))
                if file:
                    file.put({new[key]: self._write(value) for key, value in made.items()})
                known |= made
        self.put({key: known[key] for key in keys})
        return [known[key] for key in keys]


def keep_last(kept: OrderedDict[Key, Value], new: Mapping[Key, Value], most: int) -> None:
    """Put new entries last, and drop the first ones past `most`."""
    for key, value in new.items():
        kept.pop(key, None)
        kept[key] = value
    while len(kept) > most:
        kept.popitem(last=False)


def _count_bytes(db: sqlite3.Connection) -> int:
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in names)
    return (pages - free) * size


def _digest_key(key: str) -> bytes:
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@lru_cache
def digest_code(root: Path, parts: str = "**/*.py") -> str:
    """Return the digest of a folder's Python files, by name and content."""
    found = hashlib.sha256()
    for path in sorted(path for part in parts.split() for path in root.glob(part)):
        found.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"sha256:{found.hexdigest()}"


def digest_file(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def name_file(path: Path) -> Iterator[None]:
    """Have an `OSError` of the block name this file; of a full disk it names none."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file that a reader sees old or new, also after a power cut.

    Raises `OSError`, which names the file, when the disk does not take it; nothing is left of it then.
    """
    aside = path.with_name(f"{ASIDE}{path.name}-{secrets.token_hex(4)}")
    try:
        with name_file(path):
            write_through(aside, content)
        aside.replace(path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise
    sync_folder(path.parent)


def write_through(path: Path, content: bytes) -> None:
    """Write a new file down to the disk."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left half written; nobody may be writing there."""
    for leftover in [*folder.rglob(f"{ASIDE}*")]:
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def append_row(path: Path, row: Mapping[str, Any]) -> int:
    """Append a line of JSON to a file of many processes, and return the file's size.

    It goes out in one write, which the system mixes with no other, on a line of its own whatever a kill left of the one
    before. Raises `OSError`, which names the file, when the disk does not take it.
    """
    with name_file(path), path.open("a+b", buffering=0) as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
        line = b"\n" * (file.read(1) not in (b"", b"\n")) + orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
        if file.write(line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return file.tell()


def read_json_rows(path: Path) -> Iterator[dict[str, Any] | None]:
    """Yield the rows of a file of JSON lines, None for a line that is none."""
    with path.open("rb") as file:
        yield from map(decode_row, filter(bytes.strip, file))


def decode_row(line: bytes) -> dict[str, Any] | None:
    """Return a row of JSON, None for a line that is none."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return row if isinstance(row, dict) else None


def sync_folder(folder: Path) -> None:
    """Have the system put a folder's entries on disk, where it can (Windows cannot)."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
