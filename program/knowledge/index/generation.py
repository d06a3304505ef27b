"""One complete index on disk: a folder that is written aside, renamed into place and never changed again.

`current.json` names the generation readers open. It is replaced by a rename, so at every instant it names a
complete one, and a reader that has one open keeps it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from program.errors import KnowledgeError
from program.knowledge.index.graph import Graph
from program.knowledge.index.graph_search import GraphSearch
from program.knowledge.index.keywords import ArrayKeywords, Keywords, KeywordStore
from program.knowledge.index.passagefile import corpus_digest, lines_of, read_passages, write_lines
from program.knowledge.index.selection import Selection
from program.knowledge.index.vectors import ArrayVectors, VectorStore
from program.passage import Passage, embedding_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORMAT = 4
CURRENT = "current.json"
MANIFEST = "manifest.json"
PASSAGES = "passages.jsonl"
TERMS = "terms.json"
KEYWORDS = "keywords.safetensors"
VECTORS = "vectors.safetensors"
ENTITIES = "entities.json"
GRAPH = "graph.safetensors"
FILES = (PASSAGES, TERMS, KEYWORDS, VECTORS, ENTITIES, GRAPH)
MEND = "Run: ragc index PROJECT"


@dataclass(frozen=True)
class Index:
    """An index in memory: row i of every part belongs to `passages[i]`. Read-only, safe from many threads."""

    passages: tuple[Passage, ...]
    matrix: NDArray[np.float32]
    keywords: Keywords
    graph: Graph
    selection: Selection
    vectors: VectorStore
    lexical: KeywordStore
    embedder_digest: str

    @classmethod
    def of(
        cls,
        passages: Sequence[Passage],
        matrix: NDArray[np.float32],
        keywords: Keywords,
        graph: Graph,
        embedder_digest: str,
    ) -> Index:
        """The index of these passages, searched in memory; those of one base must stand together."""
        selection = Selection(passages)
        vectors, lexical = ArrayVectors(matrix, selection), ArrayKeywords(keywords, selection)
        return cls(tuple(passages), matrix, keywords, graph, selection, vectors, lexical, embedder_digest)

    @cached_property
    def graph_search(self) -> GraphSearch:
        """Walks over the graph, from what text search finds."""
        return GraphSearch(self)

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each passage id."""
        return {p.id: row for row, p in enumerate(self.passages)}

    @cached_property
    def corpus_digest(self) -> str:
        """Identifies the passages, whatever embeds them."""
        return corpus_digest(lines_of(self.passages))

    @cached_property
    def index_digest(self) -> str:
        """Identifies passages, embedder, keyword settings and format together."""
        split = self.keywords.keep_stop_words, self.keywords.stem
        return index_digest(self.corpus_digest, self.embedder_digest, *split)


def index_digest(corpus: str, embedder: str, keep_stop_words: bool, stem: bool = True) -> str:
    """`sha256:` and the digest of everything that an index depends on."""
    made_of = json.dumps([FORMAT, corpus, embedder, keep_stop_words, stem])
    return f"sha256:{hashlib.sha256(made_of.encode()).hexdigest()}"


def generation_name(digest: str) -> str:
    """The folder name of the index with that digest."""
    return f"gen-{digest.removeprefix('sha256:')[:16]}"


def current(folder: Path) -> str:
    """The name of the generation readers open, or an empty string when there is none yet.

    Raises KnowledgeError when `current.json` is damaged.
    """
    try:
        return str(json.loads((folder / CURRENT).read_bytes())["generation"])
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KnowledgeError(f"{folder / CURRENT} cannot be read: {error}.", MEND) from error


def point_to(folder: Path, generation: str) -> None:
    """Make `generation` the one readers open; atomic, and on the disk when this returns."""
    aside = folder / f"{CURRENT}.new"
    aside.write_text(json.dumps({"generation": generation}), encoding="utf-8")
    _sync(aside)
    aside.replace(folder / CURRENT)
    _sync(folder)


def write(aside: Path, index: Index, lines: Sequence[str]) -> None:
    """Write an index into the empty folder `aside`, the manifest of sizes and digests last.

    `lines` are its passages as `lines_of` gives them.
    """
    from safetensors.numpy import save_file

    write_lines(aside / PASSAGES, lines)
    (aside / TERMS).write_text(json.dumps(list(index.keywords.terms)), encoding="utf-8")
    save_file(index.keywords.arrays(), aside / KEYWORDS)
    save_file({"vectors": index.matrix}, aside / VECTORS)
    (aside / ENTITIES).write_text(json.dumps(index.graph.names, ensure_ascii=False), encoding="utf-8")
    save_file(index.graph.arrays(), aside / GRAPH)
    corpus = corpus_digest(lines)
    split = index.keywords.keep_stop_words, index.keywords.stem
    manifest = {
        "format": FORMAT,
        "index_digest": index_digest(corpus, index.embedder_digest, *split),
        "corpus_digest": corpus,
        "embedder_digest": index.embedder_digest,
        "keep_stop_words": split[0],
        "stem": split[1],
        "passages": len(index.passages),
        "files": {name: _digest(aside / name) for name in FILES},
    }
    (aside / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def publish(aside: Path, place: Path) -> None:
    """Move a written folder to its place, everything in it on the disk first; what is there is replaced."""
    for path in sorted(aside.rglob("*"), reverse=True):
        _sync(path)
    _sync(aside)
    if place.exists():
        damaged = place.with_name(f"aside-{place.name}")
        place.rename(damaged)
        aside.rename(place)
        shutil.rmtree(damaged)
    else:
        aside.rename(place)
    _sync(place.parent)


def intact(place: Path) -> bool:
    """True when every file of a generation is there and has its digest."""
    try:
        files = json.loads((place / MANIFEST).read_bytes())["files"]
        return all(_digest(place / name) == digest for name, digest in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def read(place: Path, embedder_digest: str) -> Index:
    """The index in a generation's folder.

    Raises FileNotFoundError when the folder is gone, KnowledgeError when it was made by another format or
    embedder, or is damaged.
    """
    from safetensors.numpy import load_file

    try:
        manifest: dict[str, Any] = json.loads((place / MANIFEST).read_bytes())
        _check(manifest, embedder_digest)
        passages = read_passages(place / PASSAGES)
        terms: Sequence[str] = json.loads((place / TERMS).read_bytes())
        split = manifest["keep_stop_words"], manifest["stem"]
        keywords = Keywords.from_arrays(load_file(place / KEYWORDS), terms, *split)
        matrix = load_file(place / VECTORS)["vectors"]
        graph = Graph.from_arrays(load_file(place / GRAPH), json.loads((place / ENTITIES).read_bytes()))
        if not len(passages) == len(matrix) == keywords.impacts.shape[0] == graph.passages == manifest["passages"]:
            raise ValueError("its parts differ in length")
    except (KnowledgeError, FileNotFoundError):
        raise
    except Exception as error:  # safetensors raises its own class, which is no subclass of ValueError
        raise KnowledgeError(f"The index in {place} is damaged: {error}.", MEND) from error
    return Index.of(passages, matrix, keywords, graph, embedder_digest)


def known_vectors(place: Path, embedder_digest: str) -> dict[str, NDArray[np.float32]]:
    """Read the vectors of an index by their texts: none of one that is damaged, or of another embedder."""
    from safetensors.numpy import load_file

    try:
        if not intact(place) or json.loads((place / MANIFEST).read_bytes())["embedder_digest"] != embedder_digest:
            return {}
        texts = map(embedding_text, read_passages(place / PASSAGES))
        return dict(zip(texts, load_file(place / VECTORS)["vectors"], strict=True))
    except Exception:  # whatever another format holds in their place: the cost is time
        return {}


def _check(manifest: Mapping[str, Any], embedder_digest: str) -> None:
    if manifest["format"] != FORMAT:
        raise KnowledgeError(f"The index has format {manifest['format']}; this program reads {FORMAT}.", MEND)
    if manifest["embedder_digest"] != embedder_digest:
        raise KnowledgeError(
            f"The index was made with another embedding model ({manifest['embedder_digest'][:23]}... against "
            f"{embedder_digest[:23]}...).",
            f"{MEND}, or set [models] embed back.",
        )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
