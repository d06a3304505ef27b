"""Documents parsed earlier, on disk by the digest of their file: a cache that may be deleted at any time."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import orjson

from program.knowledge.ingest.convert import Unreadable
from program.knowledge.ingest.sections import Document, Parsed, parse
from program.passage import Flaw, Passage

VERSION = 3
"""Of how files are parsed: raise it when the same bytes give other passages."""

_TABLE = "CREATE TABLE IF NOT EXISTS files (base TEXT, path TEXT, digest BLOB, parsed BLOB, PRIMARY KEY (base, path))"


class Known:
    """The files of one base: parsed now, or taken from the last time when their bytes are the same."""

    def __init__(self, limit: int, megabytes: float, last: Mapping[str, tuple[bytes, bytes]]) -> None:
        self.limit = limit
        self.megabytes = megabytes
        self.last = last
        self.fresh: dict[str, tuple[bytes, bytes]] = {}
        self.met: set[str] = set()

    def parsed(self, path: str, content: bytes) -> Parsed:
        """The document in a file's bytes. Raises Unreadable, saying why, for what is not what its name says."""
        digest = hashlib.sha256(f"{VERSION} {self.limit} {self.megabytes}\n".encode() + content).digest()
        self.met.add(path)
        before, kept = self.last.get(path, (b"", b""))
        if before == digest:
            try:
                return _loaded(kept)
            except (ValueError, TypeError, KeyError):
                pass  # a damaged entry is made anew
        try:
            document, flaws = parse(path, content, self.limit, self.megabytes)
        except Unreadable as error:
            self.fresh[path] = digest, orjson.dumps({"unreadable": error.what})
            raise
        self.fresh[path] = digest, orjson.dumps({"document": document, "flaws": flaws})
        return document, flaws


class ParsedFiles:
    """Parsed files of every base in one SQLite file at `path`; with None, or one that is damaged, nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    @contextmanager
    def of(self, base: str, limit: int, megabytes: float) -> Iterator[Known]:
        """The known files of a base; those met inside the block, and only those, are known the next time."""
        known = Known(limit, megabytes, self._last(base))
        yield known
        gone = known.last.keys() - known.met
        if self.path is None or not (known.fresh or gone):
            return
        try:
            with _connected(self.path) as db:
                db.executemany("DELETE FROM files WHERE base = ? AND path = ?", [(base, path) for path in gone])
                rows = [(base, path, *entry) for path, entry in known.fresh.items()]
                db.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", rows)
        except sqlite3.Error:
            self.path.unlink(missing_ok=True)

    def _last(self, base: str) -> dict[str, tuple[bytes, bytes]]:
        if self.path is None:
            return {}
        try:
            with _connected(self.path) as db:
                rows = db.execute("SELECT path, digest, parsed FROM files WHERE base = ?", (base,)).fetchall()
        except sqlite3.Error:
            self.path.unlink(missing_ok=True)
            return {}
        return {path: (digest, parsed) for path, digest, parsed in rows}


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(path, timeout=5.0)
    try:
        db.execute(_TABLE)
        with db:
            yield db
    finally:
        db.close()


def _loaded(kept: bytes) -> Parsed:
    entry: dict[str, Any] = orjson.loads(kept)
    if "unreadable" in entry:
        raise Unreadable(entry["unreadable"])
    document = entry["document"]
    passages = tuple(Passage(**{**p, "as_of": _day(p["as_of"])}) for p in document["passages"])
    supersedes, flaws = tuple(document["supersedes"]), [Flaw(**flaw) for flaw in entry["flaws"]]
    return Document(document["path"], document["title"], _day(document["as_of"]), supersedes, passages), flaws


def _day(written: str | None) -> date | None:
    return date.fromisoformat(written) if written else None
