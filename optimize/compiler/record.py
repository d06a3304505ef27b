"""What was asked and what came back, kept by content: in memory, and in a file that outlives the process.

Several processes may share the file: what one of them paid for, the others read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import threading
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson

from optimize.compiler.refusals import Refusals
from optimize.compiler.store import LEASE, Made, Store
from program.errors import RecordError
from program.loop.decisions import to_jsonable

POLL = 0.05


@dataclass(frozen=True, slots=True)
class Entry:
    """What came back, and what it cost when it was performed. A `stopgap` took another's place, and is not kept."""

    value: Any
    seconds: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0
    stopgap: bool = False


class Record:
    """Entries by content. `kept` is this process's memory, by any key; the store goes by digests of the content.

    `place` is a file, or the URL of a database; without one everything stays in memory. `performed` counts what had to
    be done anew, `replayed` what was read from the store, `calls` the texts and decisions asked of a model,
    `stood_in` the answers of a stand-in; `refusals` are of this process. Safe from many threads. Raises `RecordError`
    when the store cannot be read or written.
    """

    def __init__(self, place: Path | str | None = None) -> None:
        self.kept: dict[Hashable, Entry] = {}
        self.performed = 0
        self.replayed = 0
        self.calls = 0
        self.stood_in = 0
        self.refusals = Refusals()
        self.store = None if place is None else Store(place)
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._begun: set[bytes] = set()
        self._runs: list[tuple[bytes, bytes]] = []
        self._flushed = time.monotonic()
        self._lock = threading.Lock()
        self._idle = threading.Event()

    def read(self, digests: Iterable[bytes]) -> dict[bytes, Entry]:
        """The entries of those digests that the store holds."""
        wanted = list(dict.fromkeys(digests))
        if self.store is None or not wanted:
            return {}
        found = {key: Entry(orjson.loads(value), s, i, o, usd) for key, value, s, i, o, usd in self.store.read(wanted)}
        self.replayed += len(found)
        return found

    def write(self, entries: Mapping[bytes, Entry]) -> None:
        """Puts entries into the store, all or none; what it holds already stays."""
        if self.store is None or not entries:
            return
        self.store.write(
            [
                {
                    "key": key,
                    "value": orjson.dumps(entry.value, default=to_jsonable, option=orjson.OPT_SERIALIZE_NUMPY),
                    "seconds": entry.seconds,
                    "tokens_in": entry.tokens_in,
                    "tokens_out": entry.tokens_out,
                    "usd": entry.usd,
                }
                for key, entry in entries.items()
            ]
        )
        self._landed(entries)

    def begin(self, digest: bytes) -> Entry | None:
        """None when the call is this process's to make; else what another process got for it, once it has.

        However long the call takes, no other makes it: until it is written or given up, this process answers for it.
        """
        if self.store is None:
            return None
        while not self.store.take(digest, self._owner, _alive):
            found = self.read([digest])
            if digest in found:
                return found[digest]
            time.sleep(POLL)
        with self._lock:
            self._begun.add(digest)
            if len(self._begun) == 1:
                self._idle = threading.Event()
                threading.Thread(target=self._answering, args=(self.store, self._idle), daemon=True).start()
        return None

    def give_up(self, digest: bytes) -> None:
        """Says that the call begun failed, so that another process may try."""
        if self.store is not None:
            self.store.give_up(digest, self._owner)
            self._landed([digest])

    def runs(self, keys: Sequence[bytes], after: float = 0.0) -> list[Made]:
        """The runs kept under those keys, added past a moment; none where they cannot be read: that costs time only."""
        with contextlib.suppress(RecordError):
            return [] if self.store is None or not keys else self.store.runs(keys, after)
        return []

    def keep_run(self, key: bytes, value: bytes) -> None:
        """Keeps a run, to be written by `flush` or `close`."""
        self._runs.append((key, value))

    def flush(self, every: float = 0.0) -> None:
        """Writes the runs kept, if it is so many seconds since the last; one that cannot be written costs time only."""
        if time.monotonic() - self._flushed < every:
            return
        runs, self._runs, self._flushed = self._runs, [], time.monotonic()
        if self.store is not None and runs:
            with contextlib.suppress(RecordError):
                self.store.add_runs(runs)

    def close(self) -> None:
        """Lets go of the store; the next use opens it anew."""
        if self.store is not None:
            self.flush()
            self.store.close()

    def _landed(self, digests: Iterable[bytes]) -> None:
        with self._lock:
            self._begun.difference_update(digests)
            if not self._begun:
                self._idle.set()

    def _answering(self, store: Store, idle: threading.Event) -> None:
        """Renews the lease of the calls on their way, until there is none."""
        while not idle.wait(LEASE / 4):
            with contextlib.suppress(RecordError):  # the call itself will tell
                store.renew(self._owner)


def key_of(content: Any) -> bytes:
    """Names a JSON value in the store: 16 bytes."""
    return hashlib.blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def _alive(owner: str) -> bool:
    """False when the owner is a process of this machine that is gone."""
    host, pid = owner.split(":")[:2]
    if host != socket.gethostname():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # somebody else's process
    return True
