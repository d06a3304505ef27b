"""How a project declares a knowledge base that is a folder of files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from program.errors import KnowledgeError
from program.knowledge.ingest.chunks import TOKENS
from program.knowledge.ingest.sections import MEGABYTES
from program.passage import SourceCard

KINDS = {"documents": "dense", "graph": "dense", "web": "web"}
"""The kinds that are folders of files, each with the `method` its passages carry."""

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class BaseSpec:
    """One knowledge base; `path` is a folder or one file, `web` a folder of dated saved pages.

    `chunk_tokens` is the size of a passage; a file over `max_megabytes` is skipped.
    """

    name: str
    kind: str = "documents"
    path: str | Path = ""
    about: str = ""
    asks: tuple[str, ...] = ()
    not_: tuple[str, ...] = ()
    chunk_tokens: int = TOKENS
    max_megabytes: float = MEGABYTES

    def card(self) -> SourceCard:
        """What a router is told of it."""
        return SourceCard(self.name, self.kind, self.about, tuple(self.asks), tuple(self.not_))


def check_bases(bases: Sequence[BaseSpec]) -> None:
    """Raise KnowledgeError for a repeated or unusable name, an unknown kind, or a base without a path."""
    seen: set[str] = set()
    for base in bases:
        if not NAME.fullmatch(base.name) or base.name in seen:
            problem = "is given twice" if base.name in seen else "is not a usable name"
            raise KnowledgeError(
                f"The knowledge base name {base.name!r} {problem}.",
                "Name each base once, with letters, digits, - and _, a letter first.",
            )
        seen.add(base.name)
        if base.kind not in KINDS:
            raise KnowledgeError(
                f"The knowledge base {base.name!r} has the unknown kind {base.kind!r}.",
                f"Use one of: {', '.join(KINDS)}.",
            )
        if not str(base.path):
            raise KnowledgeError(
                f"The knowledge base {base.name!r} has no path.",
                f"Set `path` under [knowledge.{base.name}] in ragc.toml to a folder of files.",
            )
