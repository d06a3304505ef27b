"""One complete index on disk: a folder that is written aside, renamed into place and never changed again.

`current.json` names the folder that readers open. It is replaced by a rename, so at every instant it names a complete
one, and a reader that has one open keeps it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from scipy.sparse import csc_array, csr_array

from program.errors import KnowledgeError
from program.knowledge.index.graph import MATRICES, Graph
from program.knowledge.index.keywords import ArrayKeywords, Keywords
from program.knowledge.index.vectors import ArrayVectors, Selection
from program.passage import Passage, decode_passage, embedding_text
from program.storage import digest_file, sync_folder, write_whole

if TYPE_CHECKING:
    from program.knowledge.index.qdrant import QdrantKeywords, QdrantVectors

FORMAT = 6
CURRENT = "current.json"
MANIFEST = "manifest.json"
PASSAGES = "passages.jsonl"
WORDS = "words.json"  # the terms of the keywords and the names of the graph's entities
ARRAYS = "arrays.safetensors"
FILES = (PASSAGES, WORDS, ARRAYS)
MEND = "Run: ragc index PROJECT"
_FIELDS = ("id", "source", "title", "text", "method", "as_of", "authority", "superseded_by", "link", "attributes")
_PIECES = ("data", "indices", "indptr")
_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False, default=date.isoformat).encode


@dataclass(frozen=True)
class Index:
    """An index in memory: row i of every part belongs to `passages[i]`. Read-only."""

    passages: tuple[Passage, ...]
    matrix: NDArray[np.float32]
    keywords: Keywords
    graph: Graph
    selection: Selection
    vectors: ArrayVectors | QdrantVectors
    lexical: ArrayKeywords | QdrantKeywords
    embedder_digest: str

    @classmethod
    def from_parts(
        cls,
        passages: Sequence[Passage],
        matrix: NDArray[np.float32],
        keywords: Keywords,
        graph: Graph,
        embedder_digest: str,
    ) -> Index:
        """Return the index of passages, those of a base together, searched in memory."""
        selection = Selection(passages)
        vectors, lexical = ArrayVectors(matrix, selection), ArrayKeywords(keywords, selection)
        return cls(tuple(passages), matrix, keywords, graph, selection, vectors, lexical, embedder_digest)

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each passage id."""
        return {p.id: row for row, p in enumerate(self.passages)}

    @cached_property
    def corpus_digest(self) -> str:
        """A digest of the passages, whatever embeds them."""
        return digest_lines(to_lines(self.passages))

    @cached_property
    def index_digest(self) -> str:
        """A digest of passages, embedder, keyword settings and format together."""
        return digest_index(self.corpus_digest, self.embedder_digest, self.keywords.keep_stop_words, self.keywords.stem)


def digest_index(corpus: str, embedder: str, keep_stop_words: bool, stem: bool = True) -> str:
    """Return `sha256:` and the digest of everything that an index depends on."""
    made_of = json.dumps([FORMAT, corpus, embedder, keep_stop_words, stem])
    return f"sha256:{hashlib.sha256(made_of.encode()).hexdigest()}"


def digest_lines(lines: Iterable[str]) -> str:
    """Return `sha256:` and the digest of passages as `to_lines` gives them."""
    return f"sha256:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"


def to_lines(passages: Iterable[Passage]) -> list[str]:
    """Return each passage as a line of JSON."""
    return [_encode({name: getattr(passage, name) for name in _FIELDS}) + "\n" for passage in passages]


def name_generation(digest: str) -> str:
    """Return the folder name of the index with that digest."""
    return f"gen-{digest.removeprefix('sha256:')[:16]}"


def read_current(folder: Path) -> str:
    """Return the index that readers open, or nothing. Raises `KnowledgeError`."""
    try:
        return str(json.loads((folder / CURRENT).read_bytes())["generation"])
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KnowledgeError(f"{folder / CURRENT} cannot be read: {error}.", MEND) from error


def set_current(folder: Path, name: str) -> None:
    """Make `name` the index that readers open, at once and on the disk."""
    write_whole(folder / CURRENT, json.dumps({"generation": name}).encode())


def write_index(aside: Path, index: Index, lines: Sequence[str]) -> None:
    """Write an index and its `to_lines` into the empty `aside`, the manifest last."""
    with (aside / PASSAGES).open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)
    words = {"terms": list(index.keywords.terms), "names": index.graph.names}
    (aside / WORDS).write_text(json.dumps(words, ensure_ascii=False), encoding="utf-8")
    arrays: dict[str, NDArray[Any]] = {"vectors": index.matrix}
    matrices = {"impacts": index.keywords.impacts, **{name: getattr(index.graph, name) for name in MATRICES}}
    for name, matrix in matrices.items():
        arrays |= {f"{name}.{piece}": getattr(matrix, piece) for piece in _PIECES}
        arrays[f"{name}.shape"] = np.array(matrix.shape, np.int64)
    save_file(arrays, aside / ARRAYS)
    manifest = {
        "format": FORMAT,
        "embedder_digest": index.embedder_digest,
        "keep_stop_words": index.keywords.keep_stop_words,
        "stem": index.keywords.stem,
        "passages": len(index.passages),
        "files": {name: digest_file(aside / name) for name in FILES},
    }
    (aside / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def publish_index(aside: Path, place: Path) -> None:
    """Move a written folder to its place, everything in it on the disk first."""
    for path in (*aside.iterdir(), aside):
        sync_folder(path)
    damaged = place.with_name(f"aside-{place.name}")
    if place.exists():
        place.rename(damaged)
    aside.rename(place)
    shutil.rmtree(damaged, ignore_errors=True)
    sync_folder(place.parent)


def is_intact(place: Path) -> bool:
    """Tell whether every file of an index is there and has its digest."""
    try:
        files = json.loads((place / MANIFEST).read_bytes())["files"]
        return all(digest_file(place / name) == digest for name, digest in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def read_index(place: Path, embedder_digest: str) -> Index:
    """Return the index in a folder.

    Raises `FileNotFoundError` when the folder is gone, `KnowledgeError` when it was made by another format or
    embedder, or is damaged.
    """
    try:
        manifest: dict[str, Any] = json.loads((place / MANIFEST).read_bytes())
        _check_manifest(manifest, embedder_digest)
        passages = _read_passages(place)
        words: dict[str, list[str]] = json.loads((place / WORDS).read_bytes())
        arrays = load_file(place / ARRAYS)
        impacts = _read_matrix(arrays, "impacts", csc_array)
        keywords = Keywords(impacts, words["terms"], manifest["keep_stop_words"], manifest["stem"])
        names = [tuple(name.split(" ")) for name in words["names"]]
        graph = Graph(names, *(_read_matrix(arrays, name, csr_array) for name in MATRICES))
        if not len(passages) == len(arrays["vectors"]) == impacts.shape[0] == graph.passages == manifest["passages"]:
            raise ValueError("its parts differ in length")
    except (KnowledgeError, FileNotFoundError):
        raise
    except Exception as error:  # safetensors raises its own class, which is no subclass of ValueError
        raise KnowledgeError(f"The index in {place} is damaged: {error}.", MEND) from error
    return Index.from_parts(passages, arrays["vectors"], keywords, graph, embedder_digest)


def read_vectors(place: Path, embedder_digest: str) -> dict[str, NDArray[np.float32]]:
    """Return the vectors of a whole index of that embedder by their texts."""
    try:
        if not is_intact(place) or json.loads((place / MANIFEST).read_bytes())["embedder_digest"] != embedder_digest:
            return {}
        texts = map(embedding_text, _read_passages(place))
        return dict(zip(texts, load_file(place / ARRAYS)["vectors"], strict=True))
    except Exception:  # whatever another format holds in their place: the cost is time
        return {}


def _read_matrix(arrays: Mapping[str, NDArray[Any]], name: str, kind: Any) -> Any:
    """Return the sparse matrix of that name. Raises `ValueError` when its arrays do not fit."""
    return kind(tuple(arrays[f"{name}.{piece}"] for piece in _PIECES), shape=arrays[f"{name}.shape"])


def _read_passages(place: Path) -> list[Passage]:
    with (place / PASSAGES).open("rb") as file:
        return [decode_passage(orjson.loads(line)) for line in file]


def _check_manifest(manifest: Mapping[str, Any], embedder_digest: str) -> None:
    if manifest["format"] != FORMAT:
        raise KnowledgeError(f"The index has format {manifest['format']}; this program reads {FORMAT}.", MEND)
    if manifest["embedder_digest"] != embedder_digest:
        raise KnowledgeError(
            f"The index was made with another embedding model ({manifest['embedder_digest'][:23]}... against "
            f"{embedder_digest[:23]}...).",
            f"{MEND}, or set [models] embed back.",
        )
