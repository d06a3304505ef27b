"""How often scores on the questions of a test were looked at: each look is a draw in which chance may find favour."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson

from optimize.labelled.split import question_digest
from optimize.registry import versions as registry
from program.errors import IntegrityError
from program.serve.manifest import Manifest
from program.serve.reference import versions

LOOKS = "looks.jsonl"
"""Beside the versions of a name, to be committed with them."""
DIGITS = 8  # of a question's digest
_log = logging.getLogger(__name__)


def look(root: Path, name: str, by: str, questions: Iterable[str], identity: str = "") -> int:
    """Notes that scores on these questions are seen, and returns which look at any of them it is: 1 for the first.

    A look of the same `identity` is one, however often it is noted. Where nothing can be written, nothing is.
    """
    identity = identity or uuid4().hex[:16]
    digests = {question_digest(text)[:DIGITS] for text in questions}
    with contextlib.suppress(OSError), registry.locked(root, name):  # two at once are two looks
        return _looked(root, name, by, digests, identity)
    return _looked(root, name, by, digests, identity)


def looks_at(root: Path, name: str, questions: Iterable[str]) -> int:
    """Return how often scores on any of these questions were seen so far."""
    return _looks(root, name, list(_noted(root, name)), {question_digest(text)[:DIGITS] for text in questions}, "")


def _looks(root: Path, name: str, noted: Iterable[Mapping[str, Any]], digests: set[str], identity: str) -> int:
    """Return the number of looks at any of the questions but that of `identity`, by the notes and the versions."""
    others: dict[str, int] = {
        row["look"]: row["number"] for row in noted if row["look"] != identity and row["seen"] & digests
    }
    for manifest in sealed(root, name):
        optimizer = manifest.section("optimizer")
        tested = {digest[:DIGITS] for digest in manifest.section("data").get("test", {}).get("questions", ())}
        study = str(optimizer.get("study", manifest.version))
        if optimizer.get("name") == "ragc" and tested & digests and study != identity:
            others.setdefault(study, int(optimizer.get("test_looks", 0)))
    return max(len(others), *others.values(), 0)


def _looked(root: Path, name: str, by: str, digests: set[str], identity: str) -> int:
    noted = list(_noted(root, name))
    number = 1 + _looks(root, name, noted, digests, identity)
    if identity not in {row["look"] for row in noted}:
        line = {"look": identity, "by": by, "number": number, "questions": "".join(sorted(digests))}
        with contextlib.suppress(OSError):
            (root / name).mkdir(parents=True, exist_ok=True)
            with (root / name / LOOKS).open("ab") as file:  # on a line of its own, whatever was cut off before it
                file.write(b"\n" * bool(file.tell()) + orjson.dumps(line))
    return number


def sealed(root: Path, name: str) -> list[Manifest]:
    """The manifests of a name's versions, oldest first; one that cannot be read is left out, with a warning."""
    found = []
    for version in versions(root, name):
        try:
            found.append(registry.read_while_there(root / name / "versions" / version))
        except IntegrityError as error:
            _left_out(f"{name}@{version}", str(error))
    return [one for one in found if one is not None]


@cache
def _left_out(version: str, why: str) -> None:
    """Says so once."""
    _log.warning("%s is left out: %s", version, why)


def _noted(root: Path, name: str) -> Iterator[dict[str, Any]]:
    """Each look with the digests of its questions; a line that was cut off is left out."""
    try:
        lines = (root / name / LOOKS).read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            row = orjson.loads(line)
            told = str(row["questions"])
            seen = {told[at : at + DIGITS] for at in range(0, len(told), DIGITS)}
            yield {"look": str(row["look"]), "number": int(row["number"]), "seen": seen}
