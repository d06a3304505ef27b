"""One complete index on disk: a file that is written aside, renamed into place and never changed again.

`current.json` names the file that readers open. It is replaced by a rename, so at every instant it names a complete
one, and a reader that has one open keeps it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from safetensors import safe_open
from safetensors.numpy import load_file, save
from scipy.sparse import csc_array, csr_array

from ragc.errors import KnowledgeError
from ragc.knowledge.index.graph import MATRICES, Graph
from ragc.knowledge.index.keywords import ArrayKeywords, Keywords
from ragc.knowledge.index.vectors import ArrayVectors, Floats, Selection
from ragc.passage import Passage, ReaderSets, ReadReport, decode_passage, decode_readers, embedding_text
from ragc.storage import digest_file, write_whole

if TYPE_CHECKING:
    from ragc.knowledge.index.qdrant import QdrantVectors

FORMAT = 7
CURRENT = "current.json"
SUCCESSORS = "successors"
MEND = "Run: ragc index PROJECT"
_FIELDS = ("id", "source", "title", "text", "method", "as_of", "authority", "superseded_by", "link", "attributes")
Successors = Mapping[str, Sequence[tuple[str, ReaderSets]]]
NO_SUCCESSORS: Successors = {}
_PIECES = ("data", "indices", "indptr")
_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False, default=date.isoformat).encode


class Index:
    """An index in memory: row i of every part belongs to `passages[i]`, those of a base together. Read-only.

    It is searched in memory, unless `vectors` ask elsewhere. `file` is where it was read from, and
    `successors` what `FolderContents` has.
    """

    file: Path | None = None
    successors: Successors = NO_SUCCESSORS

    def __init__(
        self, passages: Sequence[Passage], matrix: Floats, keywords: Keywords, graph: Graph, embedder_digest: str
    ) -> None:
        self.passages = tuple(passages)
        self.matrix, self.keywords, self.graph, self.embedder_digest = matrix, keywords, graph, embedder_digest
        self.selection = Selection(self.passages)
        self.vectors: ArrayVectors | QdrantVectors = ArrayVectors(matrix, self.selection)
        self.lexical = ArrayKeywords(keywords, self.selection)

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each passage id."""
        return {p.id: row for row, p in enumerate(self.passages)}

    @cached_property
    def readers(self) -> frozenset[ReaderSets]:
        """Who may read what, wherever not all may."""
        superseding = (readers for found in self.successors.values() for _, readers in found)
        return frozenset(filter(None, (*(p.readers for p in self.passages), *superseding)))

    @cached_property
    def corpus_digest(self) -> str:
        """A digest of the passages, whatever embeds them."""
        return digest_text(to_lines(self.passages, self.successors))

    @cached_property
    def index_digest(self) -> str:
        """A digest of passages, embedder, keyword settings and format together."""
        return digest_index(self.corpus_digest, self.embedder_digest, self.keywords.keep_stop_words, self.keywords.stem)


def digest_index(corpus: str, embedder: str, keep_stop_words: bool, stem: bool = True) -> str:
    """Return `sha256:` and the digest of everything that an index depends on."""
    return digest_text(json.dumps([FORMAT, corpus, embedder, keep_stop_words, stem]))


def digest_text(text: str) -> str:
    """Return `sha256:` and the digest of a text, such as that of `to_lines`."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def to_lines(passages: Iterable[Passage], successors: Successors = NO_SUCCESSORS) -> str:
    """Return each passage as a line of JSON, and the successors, if any."""
    rows = ({name: getattr(passage, name) for name in _fields_of(passage)} for passage in passages)
    return "".join(_encode(row) + "\n" for row in (*rows, *([{SUCCESSORS: successors}] if successors else [])))


def _fields_of(passage: Passage) -> Sequence[str]:
    return (*_FIELDS, *(field for field in ("readers", "name") if getattr(passage, field)))


def name_generation(digest: str) -> str:
    """Return the name of the index with that digest."""
    return f"gen-{digest.removeprefix('sha256:')[:16]}"


def place_index(folder: Path, name: str) -> Path:
    """Return the file of an index."""
    return folder / f"{name}.safetensors"


@dataclass(frozen=True, slots=True)
class Current:
    """The index that readers open, and the files that it was made of."""

    generation: str = ""  # the index; empty: there is none
    sha256: str = ""  # the digest of its file
    files: str = ""  # the fingerprint of the files of the bases
    read: ReadReport = field(default_factory=ReadReport)  # what was read of them


_CURRENT = TypeAdapter(Current)


def read_current(folder: Path) -> Current:
    """Return what readers open; raises `KnowledgeError` when its note is damaged."""
    try:
        return _CURRENT.validate_json((folder / CURRENT).read_bytes())
    except FileNotFoundError:
        return Current()
    except (OSError, ValidationError) as error:
        raise KnowledgeError(f"{folder / CURRENT} cannot be read: {error}.", MEND) from error


def find_intact(folder: Path) -> str:
    """Return the index that readers open; empty when there is none, or it is damaged."""
    with suppress(KnowledgeError, OSError):
        current = read_current(folder)
        if current.generation and digest_file(place_index(folder, current.generation)) == current.sha256:
            return current.generation
    return ""


def set_current(folder: Path, name: str, files: str, read: ReadReport) -> None:
    """Make a written index the one that readers open, at once and on the disk."""
    current = Current(name, digest_file(place_index(folder, name)), files, read)
    write_whole(folder / CURRENT, _CURRENT.dump_json(current))


def write_index(file: Path, index: Index, lines: str) -> None:
    """Write an index and its `to_lines` whole.

    All of it is on the disk before the file has its name.
    """
    words = {"terms": list(index.keywords.terms), "names": index.graph.names}
    texts = {"passages": lines, "words": json.dumps(words, ensure_ascii=False)}
    arrays: dict[str, NDArray[Any]] = {"vectors": index.matrix}
    arrays |= {name: np.frombuffer(text.encode(), np.uint8) for name, text in texts.items()}
    matrices = {"impacts": index.keywords.impacts, **{name: getattr(index.graph, name) for name in MATRICES}}
    for name, matrix in matrices.items():
        arrays |= {f"{name}.{piece}": getattr(matrix, piece) for piece in _PIECES}
        arrays[f"{name}.shape"] = np.array(matrix.shape, np.int64)
    manifest = {
        "format": FORMAT,
        "embedder_digest": index.embedder_digest,
        "keep_stop_words": index.keywords.keep_stop_words,
        "stem": index.keywords.stem,
        "passages": len(index.passages),
    }
    write_whole(file, save(arrays, {"manifest": json.dumps(manifest)}))


def read_index(file: Path, embedder_digest: str) -> Index:
    """Return the index in a file.

    Raises `FileNotFoundError` when the file is gone, `KnowledgeError` when it was made by another format or embedder,
    or is damaged.
    """
    try:
        manifest = _read_manifest(file)
        _check_manifest(manifest, embedder_digest)
        arrays = load_file(file)
        passages, successors = _read_passages(arrays)
        words = orjson.loads(arrays["words"].tobytes())
        impacts = _read_matrix(arrays, "impacts", csc_array)
        keywords = Keywords(impacts, words["terms"], manifest["keep_stop_words"], manifest["stem"])
        names = [tuple(name.split(" ")) for name in words["names"]]
        graph = Graph(names, *(_read_matrix(arrays, name, csr_array) for name in MATRICES))
        if not len(passages) == len(arrays["vectors"]) == impacts.shape[0] == graph.passages == manifest["passages"]:
            raise ValueError("its parts differ in length")
    except (KnowledgeError, FileNotFoundError):
        raise
    except Exception as error:  # safetensors raises its own class, which is no subclass of ValueError
        raise KnowledgeError(f"The index in {file} is damaged: {error}.", MEND) from error
    index = Index(passages, arrays["vectors"], keywords, graph, embedder_digest)
    index.file, index.successors = file, successors
    return index


def read_vectors(file: Path, embedder_digest: str) -> dict[str, Floats]:
    """Return the vectors of an index of that embedder by their texts.

    An index of another format or embedder has none.
    """
    try:
        if _read_manifest(file)["embedder_digest"] != embedder_digest:
            return {}
        arrays = load_file(file)
        return dict(zip(map(embedding_text, _read_passages(arrays)[0]), arrays["vectors"], strict=True))
    except Exception:  # whatever another format holds in their place: the cost is time
        return {}


def _read_manifest(file: Path) -> dict[str, Any]:
    with safe_open(file, "np") as parts:
        manifest: dict[str, Any] = json.loads(parts.metadata()["manifest"])
    return manifest


def _read_matrix(arrays: Mapping[str, NDArray[Any]], name: str, kind: Any) -> Any:
    """Return the sparse matrix of that name. Raises `ValueError` when its arrays do not fit."""
    return kind(tuple(arrays[f"{name}.{piece}"] for piece in _PIECES), shape=arrays[f"{name}.shape"])


def _read_passages(arrays: Mapping[str, NDArray[Any]]) -> tuple[list[Passage], Successors]:
    rows = [*map(orjson.loads, arrays["passages"].tobytes().splitlines())]
    successors = rows.pop()[SUCCESSORS] if rows and SUCCESSORS in rows[-1] else {}
    known = {id_: [(path, decode_readers(sets)) for path, sets in found] for id_, found in successors.items()}
    return [*map(decode_passage, rows)], known


def _check_manifest(manifest: Mapping[str, Any], embedder_digest: str) -> None:
    if manifest["format"] != FORMAT:
        raise KnowledgeError(f"The index has format {manifest['format']}; this program reads {FORMAT}.", MEND)
    if manifest["embedder_digest"] != embedder_digest:
        raise KnowledgeError(
            f"The index was made with another embedding model ({manifest['embedder_digest'][:23]}... against "
            f"{embedder_digest[:23]}...).",
            f"{MEND}, or set [models] embed back.",
        )
