"""What passages state of the things they name, as triples read by a language model once a passage."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import orjson

from program.knowledge.source import Passage, embedding_text

Triple = tuple[str, str, str]
"""Subject, relation, object."""

_TABLE = "CREATE TABLE IF NOT EXISTS relations (passage BLOB PRIMARY KEY, triples BLOB NOT NULL) WITHOUT ROWID"


class Extractor(Protocol):
    """Reads passages. `digest` identifies the model and its prompt; `calls` and `usd` are what it has taken so far."""

    @property
    def digest(self) -> str: ...

    @property
    def calls(self) -> int: ...

    @property
    def usd(self) -> float: ...

    def extract(self, passages: Sequence[Passage]) -> Iterator[tuple[int, Sequence[Triple]]]:
        """The position and the triples of each passage that was read; it ends early when it is out of means."""
        ...


@dataclass(frozen=True, slots=True)
class Read:
    """Passages read now, kept from earlier, and not read (no edges from these); calls and US dollars."""

    asked: int = 0
    reused: int = 0
    unread: int = 0
    calls: int = 0
    usd: float = 0.0


NOTHING_READ = Read()


def read_relations(
    passages: Sequence[Passage], extractors: Mapping[str, Extractor], path: Path
) -> tuple[list[tuple[Triple, ...]], Read]:
    """The triples of every passage whose base has an extractor, in order, none for the others, and what it took.

    Kept in the file at `path` as they come, by a digest of the passage's text and the extractor: only passages that
    changed are read again, and a run that was stopped goes on. A file that cannot be used costs calls, nothing else.
    """
    found: list[tuple[Triple, ...]] = [()] * len(passages)
    if not extractors:
        return found, NOTHING_READ
    keys = {n: _key(p, extractors[p.source]) for n, p in enumerate(passages) if p.source in extractors}
    reused = asked = 0
    with _File(path) as file:
        known = file.known()
        missing: dict[str, list[int]] = {base: [] for base in extractors}
        for n, key in keys.items():
            if key in known:
                found[n], reused = known[key], reused + 1
            else:
                missing[passages[n].source].append(n)
        for base, rows in missing.items():
            for at, triples in extractors[base].extract([passages[n] for n in rows]):
                found[rows[at]], asked = tuple(triples), asked + 1
                file.put(keys[rows[at]], triples)
        file.drop(known.keys() - set(keys.values()))
    taken = list(extractors.values())
    unread = len(keys) - reused - asked
    return found, Read(asked, reused, unread, sum(e.calls for e in taken), sum(e.usd for e in taken))


def digest_of(triples: Sequence[Sequence[Triple]]) -> str:
    """`sha256:` and the digest of the triples, passage by passage; empty when there are none."""
    return f"sha256:{hashlib.sha256(orjson.dumps(list(triples))).hexdigest()}" if any(triples) else ""


class _File:
    """Triples by passage, in SQLite; a damaged file is made anew."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db: sqlite3.Connection | None = None

    def __enter__(self) -> _File:
        for _ in range(2):
            try:
                self._db = sqlite3.connect(self.path, timeout=5.0, isolation_level=None)
                self._db.execute(_TABLE)
                break
            except sqlite3.Error:
                self._db = None
                self.path.unlink(missing_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._db is not None:
            self._db.close()

    def known(self) -> dict[bytes, tuple[Triple, ...]]:
        try:
            rows = self._db.execute("SELECT passage, triples FROM relations").fetchall() if self._db else []
            return {key: tuple((s, r, o) for s, r, o in orjson.loads(kept)) for key, kept in rows}
        except (sqlite3.Error, ValueError):
            return {}

    def put(self, key: bytes, triples: Sequence[Triple]) -> None:
        self._write("INSERT OR REPLACE INTO relations VALUES (?, ?)", [(key, orjson.dumps(list(triples)))])

    def drop(self, keys: set[bytes]) -> None:
        self._write("DELETE FROM relations WHERE passage = ?", [(key,) for key in keys])

    def _write(self, statement: str, rows: Sequence[tuple[bytes, ...]]) -> None:
        try:
            if self._db is not None:
                self._db.executemany(statement, rows)
        except sqlite3.Error:
            self._db = None


def _key(passage: Passage, extractor: Extractor) -> bytes:
    text = f"{extractor.digest}\n{embedding_text(passage)}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
