"""What the last index holds of texts that are still there, so that making the next one takes what changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from program.knowledge.entities import Mentioned
from program.knowledge.generation import (
    ENTITIES,
    FORMAT,
    GRAPH,
    MANIFEST,
    PASSAGES,
    SPELLING,
    VECTORS,
    intact,
)
from program.knowledge.graph import Graph
from program.knowledge.passagefile import read_passages
from program.knowledge.source import Passage, embedding_text, keyword_text
from program.knowledge.spelling import VERSION, Spelling

if TYPE_CHECKING:
    from numpy.typing import NDArray

Texts = tuple[str, str]
"""A passage's text as it is embedded, and as keyword search reads it."""


@dataclass(frozen=True, slots=True)
class Last:
    """The last index, as far as it can be used again: `vectors` by text, and row by row what its texts are made of.

    Without `spelling` every text is read anew; without `graph` names are looked for in every text.
    """

    vectors: dict[str, NDArray[np.float32]]
    rows: dict[Texts, int] = field(default_factory=dict)
    spelling: Spelling | None = None
    graph: Graph | None = None

    def spelt(
        self, passages: Sequence[Passage], keep_stop_words: bool, stem: bool
    ) -> tuple[Spelling, NDArray[np.int64]]:
        """The spelling of these passages, and the row that each has in the last index, or -1."""
        rows = np.array([self.rows.get(_texts(p), -1) for p in passages], np.int64)
        new = rows < 0
        fresh = Spelling.of((p for p, unknown in zip(passages, new, strict=True) if unknown), keep_stop_words, stem)
        if self.spelling is None:
            return fresh, rows
        numbered_on = len(self.spelling.terms) + np.cumsum(new) - 1
        return self.spelling.followed_by(fresh, np.where(new, numbered_on, rows)), rows

    def mentioned(self, rows: NDArray[np.int64]) -> Mentioned | None:
        """The names that the last index found in the passages with these rows there."""
        return Mentioned(self.graph.keys, self.graph.mentions, rows) if self.graph else None


def read_last(place: Path, embedder_digest: str, keep_stop_words: bool, stem: bool) -> Last:
    """What can be used again of the index in `place`: of a damaged one nothing, of another format the vectors,
    of another embedder all but these, under other keyword settings the vectors."""
    from safetensors.numpy import load_file

    last = Last({})
    try:
        manifest: dict[str, Any] = json.loads((place / MANIFEST).read_bytes())
        if not intact(place):
            return last
        passages = read_passages(place / PASSAGES)
        if manifest["embedder_digest"] == embedder_digest:
            vectors = load_file(place / VECTORS)["vectors"]
            last = Last(dict(zip((embedding_text(p) for p in passages), vectors, strict=True)))
        made_of = manifest["format"], manifest["keep_stop_words"], manifest["stem"], manifest.get("spelling")
        if made_of == (FORMAT, keep_stop_words, stem, VERSION):
            rows = {_texts(p): row for row, p in enumerate(passages)}
            spelling = Spelling.from_arrays(load_file(place / SPELLING))
            graph = Graph.from_arrays(load_file(place / GRAPH), json.loads((place / ENTITIES).read_bytes()))
            last = Last(last.vectors, rows, spelling, graph)
    except Exception:  # whatever another format holds in their place: the cost is time
        pass
    return last


def _texts(passage: Passage) -> Texts:
    return embedding_text(passage), keyword_text(passage)
