"""Where traces go: files of JSON lines that many processes append to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from logging.handlers import RotatingFileHandler
from pathlib import Path
from threading import Event
from typing import Any

import orjson
from filelock import FileLock

LARGEST = 20_000_000  # bytes of a file of traces before the next is begun
FILES = 5


@dataclass(frozen=True, slots=True)
class LineLog:
    """A JSONL file that many threads and processes append to; a full one is put aside and a new one begun.

    The newest is at `path`, older ones at `path.1`, `path.2` and so on, `files` of them at most.
    """

    path: Path
    largest: int = LARGEST
    files: int = FILES

    def append(self, entry: Mapping[str, Any]) -> None:
        """Writes one line, in one write to the end of the file, so that no two are ever mixed."""
        line = orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)
        try:
            self._append(line)
        except FileNotFoundError:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._append(line)

    def entries(self, unread: Callable[[str], None] = lambda place: None) -> Iterator[dict[str, Any]]:
        """Every entry, oldest first. A line that is none, as a full disk leaves one, is skipped; `unread` is told
        its place."""
        older = [self.path.with_name(f"{self.path.name}.{n}") for n in range(self.files, 0, -1)]
        for path in (*older, self.path):
            if not path.is_file():
                continue
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if (entry := _parsed(line)) is not None:
                        yield entry
                    else:
                        unread(f"{path} line {number}")

    def _append(self, line: bytes) -> None:
        with self.path.open("ab", buffering=0) as file:
            file.write(line)
            full = file.tell() >= self.largest
        if full:
            self._begin_anew()

    def _begin_anew(self) -> None:
        with FileLock(f"{self.path}.lock"):
            if self.path.is_file() and self.path.stat().st_size >= self.largest:  # another process may have been first
                handler = RotatingFileHandler(self.path, backupCount=self.files, delay=True)
                handler.doRollover()
                handler.close()


@dataclass(frozen=True, slots=True)
class TraceLog:
    """Where traces go: all of them, those whose confidence calls for a review, and those answered unretrieved."""

    folder: Path
    review_below: float = 0.0
    name: str = "traces.jsonl"
    unwritable: Event = field(default_factory=Event, repr=False, compare=False)  # said once, not at every question

    @property
    def traces(self) -> LineLog:
        """One line for each question."""
        return LineLog(self.folder / self.name)

    @property
    def review(self) -> LineLog:
        """The answers a person should look at."""
        return LineLog(self.folder / "review.jsonl")

    @property
    def audit(self) -> LineLog:
        """The answers given without a look-up."""
        return LineLog(self.folder / "audit.jsonl")


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        entry = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return entry if isinstance(entry, dict) else None
