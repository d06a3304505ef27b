"""The `split` field written into a file of labelled questions, all else in it left as it is."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from program.errors import DataError

_BLANK = re.compile(r"\s*")
_DECODER = json.JSONDecoder()


def write_splits(path: Path, where: Mapping[str, str]) -> int:
    """Give every question of a file that reads well its split, by id; returns how many lines changed.

    The file is replaced in one step, so that a reader sees the old one or the new one. Only the value of
    `split` changes, or is added as the last key: order, spacing and line ends stay. Raises `DataError` when
    the file cannot be written.
    """
    lines = path.read_bytes().decode("utf-8").split("\n")
    changed = 0
    for n, line in enumerate(lines):
        text = line.lstrip("\ufeff")
        if text.strip():
            split = where.get(json.loads(text)["id"])
            new = line[: len(line) - len(text)] + (_with_split(text, split) if split else text)
            changed += new != line
            lines[n] = new
    if changed:
        _replace(path, "\n".join(lines).encode())
    return changed


def _with_split(line: str, split: str) -> str:
    """The line of one JSON object with its `split` set."""
    at = line.index("{") + 1
    gap = after_key = ""
    while True:
        at = _skip(line, at)
        if line[at] == "}":
            break
        if line[at] == ",":
            end = _skip(line, at + 1)
            gap, at = line[at + 1 : end], end
        key, at = _DECODER.raw_decode(line, at)
        colon = _skip(line, at) + 1
        start = _skip(line, colon)
        after_key = line[colon:start]
        value, at = _DECODER.raw_decode(line, start)
        if key == "split":
            return line if value == split else f'{line[:start]}"{split}"{line[at:]}'
    last = len(line[:at].rstrip())
    return f'{line[:last]},{gap}"split":{after_key}"{split}"{line[last:]}'


def _skip(line: str, at: int) -> int:
    """Where the white space from `at` ends."""
    blank = _BLANK.match(line, at)
    return blank.end() if blank else at


def _replace(path: Path, content: bytes) -> None:
    target = path.resolve()  # a link stays a link
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).chmod(target.stat().st_mode)
        Path(file.name).replace(target)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}.", "Grant write permission on it.") from error
