"""Passages as lines of JSON, and the digest of a list of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

import orjson

from program.passage import Passage

FIELDS = ("id", "source", "title", "text", "method", "authority", "superseded_by", "link", "attributes")
_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode


def lines_of(passages: Iterable[Passage]) -> list[str]:
    """Each passage as its line."""
    return [_line(p) for p in passages]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write passages, as `lines_of` gives them, to `path`."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)


def read_passages(path: Path) -> tuple[Passage, ...]:
    """The passages in `path`. Raises OSError, ValueError, KeyError or TypeError for a file that holds none."""
    with path.open("rb") as file:
        return tuple(_passage(orjson.loads(line)) for line in file)


def corpus_digest(lines: Iterable[str]) -> str:
    """`sha256:` and the digest of the passages in order, their ids, texts, dates, authority and links."""
    sha = hashlib.sha256()
    for line in lines:
        sha.update(line.encode())
    return f"sha256:{sha.hexdigest()}"


def _line(passage: Passage) -> str:
    values: dict[str, Any] = {name: getattr(passage, name) for name in FIELDS}
    values["as_of"] = passage.as_of.isoformat() if passage.as_of else None
    return _encode(values) + "\n"


def _passage(values: dict[str, Any]) -> Passage:
    as_of = values.pop("as_of")
    return Passage(**values, as_of=date.fromisoformat(as_of) if as_of else None)
