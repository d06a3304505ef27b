"""One complete index on disk: a file that is written aside, renamed into place and never changed again.

`current.json` names the file that readers open. It is replaced by a rename, so at every instant it names a complete
one, and a reader that has one open keeps it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
from ragc.knowledge.index.fusion import DECIMALS, Floats, Keywords, best_rows
from ragc.knowledge.index.graph import MATRICES, Graph
from ragc.passage import (
    NO_FILTERS,
    Filters,
    Passage,
    ReaderSets,
    ReadReport,
    decode_passage,
    decode_readers,
    embedding_text,
    keyword_text,
)
from ragc.settings import KeywordSettings
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
    """An index: row i of every part belongs to `passages[i]`, those of a base together. Read-only, for many threads.

    Keywords and graph are made of the passages, unless they are set. Vectors are searched in memory, or on a `server`.
    `file` is where it was read from, `successors` what `FolderContents` has.
    """

    file: Path | None = None
    server: QdrantVectors | None = None

    def __init__(
        self,
        passages: Sequence[Passage],
        matrix: Floats,
        embedder_digest: str,
        words: KeywordSettings | None = None,
        successors: Successors = NO_SUCCESSORS,
    ) -> None:
        self.passages, self.matrix, self.embedder_digest = tuple(passages), matrix, embedder_digest
        self.words, self.successors = words or KeywordSettings(), successors
        slices: dict[str | None, slice] = {None: slice(0, len(passages))}
        for row, passage in enumerate(passages):
            slices[passage.source] = slice(slices.get(passage.source, slice(row, row)).start, row + 1)
        self._slices = slices

    @cached_property
    def keywords(self) -> Keywords:
        """The words of the passages."""
        return Keywords.from_texts(map(keyword_text, self.passages), self.words.keep_stop_words, self.words.stem)

    @cached_property
    def graph(self) -> Graph:
        """What joins the passages."""
        return Graph.from_passages(self.passages)

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
        terms = [FORMAT, self.corpus_digest, self.embedder_digest, self.words.keep_stop_words, self.words.stem]
        return digest_text(json.dumps(terms))

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"gen-{self.index_digest.removeprefix('sha256:')[:16]}"

    def base_rows(self, base: str | None) -> slice:
        """Return the rows of a base (None: of all), or raise `KnowledgeError`."""
        if base not in self._slices:
            raise KnowledgeError(f"The index has no knowledge base {base!r}.", MEND)
        return self._slices[base]

    def admitted_rows(self, base: str | None, filters: Filters = NO_FILTERS) -> NDArray[np.intp]:
        """Return the rows of a base that the filters admit, ascending."""
        part = self.base_rows(base)
        rows = np.arange(part.start, part.stop)
        return rows if filters == NO_FILTERS else rows[[filters.admits(passage) for passage in self.passages[part]]]

    def search(self, vector: Floats, k: int, base: str | None = None, filters: Filters = NO_FILTERS) -> list[int]:
        """Return the `k` nearest rows of a base (None: of all), nearest first."""
        if self.server is not None:
            return self.server.search(vector, k, base, filters)
        part = self.base_rows(base)
        cosines = np.round(self.matrix[part] @ vector, DECIMALS)
        return [part.start + row for row in best_rows(cosines, self.admitted_rows(base, filters) - part.start, k)]

    def similarities(self, vector: Floats, rows: Sequence[int]) -> list[float]:
        """Return the cosine of each of these rows, in their order."""
        if self.server is not None:
            return self.server.similarities(vector, rows)
        cosines: list[float] = np.round(self.matrix[np.asarray(rows, np.intp)] @ vector, DECIMALS).tolist()
        return cosines

    def take_readable(self, admitted: frozenset[ReaderSets]) -> Index | None:
        """Return the part for the readers admitted; None where nothing is in it.

        It is made as if there were nothing else:
        1. The readable passages and their vectors are taken over; what superseded one is a document that is readable.
        2. Keywords and graph are made anew of them: no document frequency, length, name or link is of a hidden text.
        3. The part is kept in a file beside the whole index, for other processes and the next one.
        """
        rows = [row for row, passage in enumerate(self.passages) if passage.readers in admitted]
        if not rows:
            return None
        found = {id_: [one for one in known if one[1] in admitted] for id_, known in self.successors.items()}
        newest = {id_: next((path for path, _ in reversed(known)), "") for id_, known in found.items()}
        read = (self.passages[row] for row in rows)
        passages = [replace(p, superseded_by=newest[p.id]) if p.id in newest else p for p in read]
        superseded = {p.id: found[p.id] for p in passages if any(readers for _, readers in found.get(p.id, ()))}
        part = Index(passages, self.matrix[rows], self.embedder_digest, self.words, superseded)
        if self.file is not None:
            file = place_index(self.file.parent, f"{self.file.stem}-{part.name}")
            try:
                part = read_index(file, self.embedder_digest)
            except (KnowledgeError, OSError):  # absent, or damaged: the cost is time
                with suppress(OSError):
                    write_index(file, part)
        part.server = self.server and self.server.take_rows(rows, admitted)
        return part


def digest_text(text: str) -> str:
    """Return `sha256:` and the digest of a text, such as that of `to_lines`."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def to_lines(passages: Iterable[Passage], successors: Successors = NO_SUCCESSORS) -> str:
    """Return each passage as a line of JSON, and the successors, if any."""
    rows: list[Mapping[str, object]] = []
    for passage in passages:
        fields = (*_FIELDS, *(field for field in ("readers", "name") if getattr(passage, field)))
        rows.append({name: getattr(passage, name) for name in fields})
    rows += [{SUCCESSORS: successors}] if successors else []
    return "".join(_encode(row) + "\n" for row in rows)


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


def write_index(file: Path, index: Index) -> None:
    """Write an index whole: all of it is on the disk before the file has its name."""
    words = {"terms": list(index.keywords.terms), "names": index.graph.names}
    texts = {"passages": to_lines(index.passages, index.successors), "words": json.dumps(words, ensure_ascii=False)}
    arrays: dict[str, NDArray[Any]] = {"vectors": index.matrix}
    arrays |= {name: np.frombuffer(text.encode(), np.uint8) for name, text in texts.items()}
    matrices = {"impacts": index.keywords.impacts, **{name: getattr(index.graph, name) for name in MATRICES}}
    for name, matrix in matrices.items():
        arrays |= {f"{name}.{piece}": getattr(matrix, piece) for piece in _PIECES}
        arrays[f"{name}.shape"] = np.array(matrix.shape, np.int64)
    manifest = {
        "format": FORMAT,
        "embedder_digest": index.embedder_digest,
        "keep_stop_words": index.words.keep_stop_words,
        "stem": index.words.stem,
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
    settings = KeywordSettings(stem=manifest["stem"], stop_words="none" if manifest["keep_stop_words"] else "english")
    index = Index(passages, arrays["vectors"], embedder_digest, settings, successors)
    index.file, index.keywords, index.graph = file, keywords, graph
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
