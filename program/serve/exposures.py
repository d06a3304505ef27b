"""The exposure log of an experiment: one append-only JSONL file a process, and its reader.

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
ExposureRow = Mapping[str, Any]


def read_unit_key() -> bytes:
    """Read the secret that units are pseudonymised with. Raises `ExperimentError` when it is absent or short."""
    key = os.environ.get(KEY, "")
    if len(key) < MIN_KEY:
        what = f"{KEY} has {len(key)} characters, at least {MIN_KEY} are needed" if key else f"{KEY} is not set"
        raise ExperimentError(
            f"{what}: users would be logged under a name that can be guessed.",
            f"Set it to one secret on every host, for example: export {KEY}=$(openssl rand -hex 32)",
        )
    return key.encode()


def pseudonymize(key: bytes, experiment: str, unit: str) -> str:
    """Return a unit's pseudonym: 32 hexadecimal digits, the same throughout an experiment."""
    return hmac.digest(key, f"{experiment}\0{unit}".encode(errors="surrogatepass"), "sha256")[:16].hex()


class ExposureLog:
    """The file of one process: a row is one write to the end of it, so neither threads nor a kill mix rows.

    A forked process needs a log of its own: `pid` tells whose this one is. The first row holds eight hexadecimal
    digits by which two hosts' keys can be told apart.
    """

    def __init__(self, folder: Path, experiment: str, seal: str, key: bytes) -> None:
        host = re.sub(r"[^a-z0-9.-]", "-", socket.gethostname().lower()) or "host"
        self.pid = os.getpid()
        self.path = folder / f"exposures-{host}-{self.pid}.jsonl"
        self._experiment = experiment
        self._opened = {"design": seal, "key": hmac.digest(key, b"ragc exposure log", "sha256")[:4].hex()}
        self._descriptor = -1
        self._lock = threading.Lock()

    def append(self, kind: str, **fields: Any) -> None:
        """Write one row with the time. Raises `OSError` when the disk does not take it."""
        with self._lock:
            if self._descriptor < 0:
                self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
                # A process id comes again, and an earlier holder may have been killed in the middle of a row.
                torn = os.fstat(self._descriptor).st_size > 0
                self._write_line((b"\n" if torn else b"") + self._format_row("opened", self._opened))
            self._write_line(self._format_row(kind, fields))

    def _format_row(self, kind: str, fields: ExposureRow) -> bytes:
        row = {"kind": kind, "ts": round(time.time(), 3), "experiment": self._experiment, **fields}
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)

    def _write_line(self, line: bytes) -> None:
        written = os.write(self._descriptor, line)
        if written < len(line):  # a full disk: what follows starts on a line of its own
            os.close(self._descriptor)
            self._descriptor = -1
            raise OSError(f"{self.path} took {written} of {len(line)} bytes")


def log_files(folder: Path) -> list[Path]:
    """List the exposure files of a folder, one a process."""
    return sorted(folder.glob(PATTERN))


def read_rows(path: Path) -> Iterator[ExposureRow | None]:
    """Yield the rows of one file; None stands for a line that is not a row, such as one torn by a kill."""
    with path.open("rb") as file:
        for line in file:
            if line != b"\n":
                yield _parse_row(line)


def _parse_row(line: bytes) -> ExposureRow | None:
    try:
        row = orjson.loads(line)
    except ValueError:
        return None
    whole = isinstance(row, dict) and isinstance(row.get("ts"), float | int) and isinstance(row.get("kind"), str)
    return row if whole else None
