"""What happened, as it happened: one append-only JSONL file a process, and what survives of it.

Rows: `opened` (by which design and with which key, at the head of a process), `exposure` (a unit is about to be
answered by an arm), `measured` (that answer's seconds, tokens, error), `outcome` (what the caller says came of it).
They are joined by request id. No question, no answer and no plain unit is written.
"""

from __future__ import annotations

import hmac
import os
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from program.errors import ExperimentError

KEY = "RAGC_UNIT_KEY"
PATTERN = "exposures-*.jsonl"
MIN_KEY = 16
Row = Mapping[str, Any]


def unit_key() -> bytes:
    """The secret that units are pseudonymised with. Raises `ExperimentError` when it is absent or short."""
    key = os.environ.get(KEY, "")
    if len(key) < MIN_KEY:
        what = f"{KEY} has {len(key)} characters, at least {MIN_KEY} are needed" if key else f"{KEY} is not set"
        raise ExperimentError(
            f"{what}: users would be logged under a name that can be guessed.",
            f"Set it to one secret on every host, for example: export {KEY}=$(openssl rand -hex 32)",
        )
    return key.encode()


def pseudonym(key: bytes, experiment: str, unit: str) -> str:
    """32 hexadecimal digits for a unit: the same throughout an experiment, unlinkable without the key."""
    return hmac.digest(key, f"{experiment}\0{unit}".encode(errors="surrogatepass"), "sha256")[:16].hex()


def fingerprint(key: bytes) -> str:
    """Eight hexadecimal digits by which two hosts' keys can be told apart."""
    return hmac.digest(key, b"ragc exposure log", "sha256")[:4].hex()


class ExposureLog:
    """This process's file: a row is one write to the end of it, so neither threads nor a kill mix rows."""

    def __init__(self, folder: Path, experiment: str, seal: str, key: bytes) -> None:
        host = re.sub(r"[^a-z0-9.-]", "-", socket.gethostname().lower()) or "host"
        self.path = folder / f"exposures-{host}-{os.getpid()}.jsonl"
        self._experiment = experiment
        self._opened = {"design": seal, "key": fingerprint(key)}
        self._descriptor = -1
        self._lock = threading.Lock()

    def append(self, kind: str, **fields: Any) -> None:
        """Writes one row with the time. Raises `OSError` when the disk does not take it."""
        with self._lock:
            if self._descriptor < 0:
                self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
                # A process id comes again, and an earlier holder may have been killed in the middle of a row.
                torn = os.fstat(self._descriptor).st_size > 0
                self._write((b"\n" if torn else b"") + self._line("opened", self._opened))
            self._write(self._line(kind, fields))

    def _line(self, kind: str, fields: Row) -> bytes:
        row = {"kind": kind, "ts": round(time.time(), 3), "experiment": self._experiment, **fields}
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)

    def _write(self, line: bytes) -> None:
        written = os.write(self._descriptor, line)
        if written < len(line):  # a full disk: what follows starts on a line of its own
            os.close(self._descriptor)
            self._descriptor = -1
            raise OSError(f"{self.path} took {written} of {len(line)} bytes")


class LogReader:
    """Reads the files of a folder, from where it stopped the last time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.torn = 0
        self._read: dict[Path, int] = {}

    def rows(self, *, last: bool = False) -> Iterator[Row]:
        """The rows that came since. A row still being written is left for the next time, unless this is the `last`;
        a line that is not a row is counted in `torn` and passed over."""
        for path in sorted(self.folder.glob(PATTERN)):
            self._read.setdefault(path, 0)
            yield from self._new(path, last)

    @property
    def files(self) -> int:
        return len(self._read)

    def _new(self, path: Path, last: bool) -> Iterator[Row]:
        with path.open("rb") as file:
            file.seek(self._read[path])
            for line in file:
                if not (line.endswith(b"\n") or last):
                    break
                self._read[path] += len(line)
                if line != b"\n":
                    yield from self._parsed(line)

    def _parsed(self, line: bytes) -> Iterator[Row]:
        try:
            row = orjson.loads(line)
        except ValueError:
            row = None
        if isinstance(row, dict) and isinstance(row.get("ts"), float | int) and isinstance(row.get("kind"), str):
            yield row
        else:
            self.torn += 1
