"""What happened while a question was answered: a readable path, and each step with its cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson


@dataclass(frozen=True, slots=True)
class Step:
    """One request the loop made: what, on which inputs (by digest), what came back, and how long it took."""

    name: str
    inputs: str
    output: str
    milliseconds: float
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """The path of one question, as a person reads it, and its steps."""

    id: str = ""
    path: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        return " > ".join(self.path)


@dataclass(slots=True)
class TraceLog:
    """A JSONL file that traces are appended to, one line each."""

    path: Path
    lines: int = field(default=0, init=False)

    def append(self, entry: dict[str, Any]) -> None:
        """Writes one line; a line is written whole or not at all to any reader of lines."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab", buffering=0) as file:
            file.write(orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE))
        self.lines += 1

    def find(self, trace_id: str) -> dict[str, Any] | None:
        """The last entry of that id, or None. A torn last line is passed over."""
        if not self.path.is_file():
            return None
        found = None
        for line in self.path.read_bytes().splitlines():
            try:
                entry = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if entry.get("trace_id") == trace_id:
                found = entry
        return found


def new_trace_id() -> str:
    return uuid4().hex[:16]
