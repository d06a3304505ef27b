"""Whether a version was compiled on the very questions it is tested on, and how that is kept from happening."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

from program.serve.manifest import Manifest

LEARNT_FROM = ("train", "dev")
DIGITS = 16


def question_digest(text: str) -> str:
    """Identifies a question by its words: 16 hexadecimal digits, the same whatever its case and spacing."""
    return hashlib.sha256(" ".join(text.casefold().split()).encode()).hexdigest()[:DIGITS]


def places(manifests: Collection[Manifest]) -> dict[str, str]:
    """By digest the split that a question was in when versions were compiled: the one it was learnt from most, if any
    was learnt from it."""
    found: dict[str, str] = {}
    for part in (*LEARNT_FROM, "test"):
        for manifest in manifests:
            for digest in manifest.section("data").get(part, {}).get("questions", ()):
                found.setdefault(digest, part)
    return found


def overlap_warning(manifest: Manifest, questions: Iterable[str]) -> str:
    """A sentence when questions of the test were compile data of the version, or nobody can tell; else nothing."""
    version = f"{manifest.name}@{manifest.version}"
    if manifest.section("optimizer").get("name", "none") == "none":
        return ""
    data = manifest.section("data")
    known = [data[part]["questions"] for part in LEARNT_FROM if "questions" in data.get(part, {})]
    if not known:
        return f"{version} does not say which questions it was compiled on, so an overlap would not be seen."
    asked = {question_digest(question) for question in questions}
    if shared := len(asked & {digest for part in known for digest in part}):
        return f"{version} was compiled on {shared} of these {len(asked)} questions: its scores on them prove nothing."
    return ""
