"""What happened while a question was answered: a readable path, and each step with its cost."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class TraceLog:
    """A JSONL file that traces are appended to, one line each."""

    path: Path

    def append(self, entry: dict[str, Any]) -> None:
        """Writes one line; a line is written whole or not at all to any reader of lines."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab", buffering=0) as file:
            file.write(orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE))


def new_trace_id() -> str:
    return uuid4().hex[:16]
