"""The one index of a project's document bases: made anew where something changed, and opened.

Indexing is safe to kill at any point. Readers go on with the last complete index until the new one is whole.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from ragc.errors import KnowledgeError, SettingsError
from ragc.knowledge.index import store
from ragc.knowledge.index.store import MEND, Index, place_index
from ragc.knowledge.ingest.folder import FolderContents, fingerprint_files, link_superseded, list_bases, read_base
from ragc.knowledge.project import Project
from ragc.models.embedded.encoder import Embedder, shared_embedder
from ragc.passage import Flaw, Passage, ReadReport, embedding_text
from ragc.settings import FileSettings, KeywordSettings, Settings, TablesSettings, default_settings
from ragc.storage import ASIDE, DiskCache

if TYPE_CHECKING:
    from ragc.knowledge.index.qdrant import QdrantVectors

INDEX = "index"  # the folder of the index in a project's private folder
PARSED = "parsed.sqlite"
ENGINES = ("local", "ray")
CHUNK = 128  # texts embedded between two reports of progress
WAIT = 120.0  # seconds to wait for another process that is indexing

Advance = Callable[[int, int], None]  # called with the texts embedded so far and in all
Fan = Callable[[Sequence[Sequence[str]]], Iterable[NDArray[np.float32]]]
"""Gives the vectors of each list of texts, in the order of the lists."""
_LOG = logging.getLogger(__name__)
_OPEN: WeakValueDictionary[Hashable, Index] = WeakValueDictionary()  # those that some program holds, searched in memory


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What indexing did."""

    index_digest: str  # a digest of passages, embedder, keyword settings and format together
    corpus_digest: str  # a digest of the passages
    documents: int  # files that were read
    passages: int  # passages in the index
    embedded: int  # texts that were embedded now
    parsed: int  # files that were read now: new, changed, or last read by another release
    reused: int  # passages whose vectors came from the last index
    unchanged: bool  # whether the index was up to date
    flaws: tuple[Flaw, ...] = ()  # what of the files was not read, or is probably not meant
    seconds: float = 0.0  # time that it took


def index_project(
    project: Project, progress: Advance | None = None, *, engine: str = "local", workers: int = 0
) -> IndexReport:
    """Index what changed in a project's document bases.

    The engine `ray` embeds on so many workers (0: one a processor) of a Ray cluster, `local` in this process. Raises
    `KnowledgeError` when a base is absent, empty or unreadable.
    """
    if engine not in ENGINES:
        raise SettingsError(f"There is no engine {engine!r}.", f"Use one of: {', '.join(ENGINES)}.")
    embedder = shared_embedder(project.settings.models.embed)
    embedder.remember_in(project.private)
    spread = nullcontext() if engine == "local" else embed_over_ray(partial(Embedder, embedder.name), workers)
    with spread as fan, project.named():
        return build_index(list_bases(project), project.private / INDEX, embedder, progress, project.settings, fan)


def update_index(project: Project, progress: Advance | None = None) -> ReadReport:
    """Index a project that was never indexed, or that changed since it was.

    What was read of its files is returned. Where the index cannot be written, a log warning says that answers are of
    the old one. Raises as `index_project`.
    """
    place, bases = project.private / INDEX, list_bases(project)
    if not bases:
        return ReadReport()
    current = store.Current()
    with suppress(KnowledgeError):
        current = store.read_current(place)
    if current.generation and current.files == _fingerprint_bases(bases, project.settings.keyword):
        return current.read
    if current.generation and not os.access(place, os.W_OK):
        _LOG.warning("%s may have changed since it was indexed, and %s cannot be written.", project.folder, place)
        return current.read
    index_project(project, progress)
    return store.read_current(place).read


def is_indexed(project: Project) -> bool:
    """Tell whether the index is of the project's documents as they are now."""
    bases = list_bases(project)
    files = store.read_current(project.private / INDEX).files if bases else ""
    return not bases or files == _fingerprint_bases(bases, project.settings.keyword)


def read_files(project: Project) -> FolderContents:
    """Return the documents of a project's bases, parsed where the cache lacks them."""
    file = project.private / INDEX / PARSED
    cache = DiskCache(file) if file.is_file() else None
    with project.named():
        return _read_bases(list_bases(project), cache)


def build_index(
    bases: Mapping[str, FileSettings],
    folder: str | Path,
    embedder: Embedder,
    progress: Advance | None = None,
    settings: Settings | None = None,
    fan: Fan | None = None,
) -> IndexReport:
    """Index every base into `folder`, unless nothing changed.

    One process indexes at a time; others wait. Files whose bytes are as they were are not parsed again, and texts
    that were embedded are not embedded again; keywords and graph are made anew of all passages. `fan` computes
    vectors in the embedder's place, elsewhere. Raises `KnowledgeError` for a base that is absent or empty.
    """
    began, place, settings = time.monotonic(), Path(folder), settings or default_settings()
    keyword = settings.keyword
    with _lock_folder(place):
        cache = DiskCache(place / PARSED)
        files = _fingerprint_bases(bases, keyword)  # before any is read: what changes meanwhile is indexed next time
        contents = _read_bases(bases, cache)
        cache.close()
        passages = contents.passages
        if not passages:
            raise KnowledgeError("The project has no knowledge to index.", "Add a [knowledge.NAME] to ragc.toml.")
        index = Index(passages, np.empty(0, np.float32), embedder.digest, keyword, contents.successors)
        name = index.name
        previous = store.find_intact(place)
        embedded = reused = 0
        if previous != name:
            known = store.read_vectors(place_index(place, previous), embedder.digest) if previous else {}
            index.matrix, embedded = _embed_passages(passages, fan or partial(map, embedder.encode), known, progress)
            reused = len(passages) - embedded
            for leftover in place.glob(f"{ASIDE}gen-*"):  # of a run that was killed: the lock says no other is running
                leftover.unlink()
            store.write_index(place_index(place, name), index)
        on_server = not settings.qdrant.url or _fill_server(place, name, embedder, settings)
        store.set_current(place, name, files, contents.report)
        if previous != name:
            _drop_old_generations(place, {name, previous}, settings.qdrant.url)
        return IndexReport(
            index_digest=index.index_digest,
            corpus_digest=index.corpus_digest,
            documents=len(contents.documents),
            passages=len(passages),
            embedded=embedded,
            parsed=contents.parsed,
            reused=reused,
            unchanged=previous == name and on_server,
            flaws=tuple(contents.flaws),
            seconds=time.monotonic() - began,
        )


def open_index(folder: str | Path, embedder: Embedder, settings: Settings | None = None) -> Index:
    """Return the last complete index in `folder`, shared by all programs over it.

    Its vectors are put into the embedder's memory, as many as it holds. Raises `KnowledgeError` when there is none,
    when it was made by another format or embedding model, when it is damaged, or when the server does not hold it.
    """
    place, settings = Path(folder), settings or default_settings()
    for _ in range(3):  # an index may be removed between its being named and its being opened
        name = store.read_current(place).generation
        if not name:
            raise KnowledgeError(f"There is no index in {place}.", MEND)
        file = place_index(place, name)
        try:
            state = file.stat()
            key = (file.resolve(), state.st_mtime_ns, state.st_ino, embedder.digest)
            if not settings.qdrant.url and (shared := _OPEN.get(key)) is not None:
                return shared
            index = store.read_index(file, embedder.digest)
            break
        except FileNotFoundError:
            time.sleep(0.05)
    else:
        raise KnowledgeError(f"The index in {place} has lost its file.", MEND)
    embedder.put([embedding_text(p) for p in index.passages], index.matrix)
    if not settings.qdrant.url:
        _OPEN[key] = index
        return index
    index.server = _ask_collection(name, settings.qdrant.url)
    if not index.server.holds_rows(len(index.passages)):
        raise KnowledgeError("The Qdrant server does not hold this index.", MEND)
    return index


def _read_bases(bases: Mapping[str, FileSettings], cache: DiskCache | None) -> FolderContents:
    return link_superseded([_read_base(name, base, cache) for name, base in bases.items()])


def _read_base(name: str, base: FileSettings, cache: DiskCache | None) -> FolderContents:
    if not isinstance(base, TablesSettings) or base.path:
        return read_base(name, base, cache).keep_to(base.reader_sets)
    from ragc.knowledge.tables import Database  # it takes long to import, and many projects have none

    return Database(name, base).read_documents().keep_to(base.reader_sets)


def _fingerprint_bases(bases: Mapping[str, FileSettings], keyword: KeywordSettings) -> str:
    return fingerprint_files(bases, repr((store.FORMAT, keyword.stem, keyword.stop_words)))


@contextmanager
def _lock_folder(place: Path) -> Iterator[None]:
    """Hold the lock of an index's folder. Raises `KnowledgeError` when it is taken, or cannot be written to."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        with FileLock(place / "lock", timeout=WAIT):
            yield
    except Timeout as error:
        raise KnowledgeError(
            f"Another process has been indexing {place} for over {WAIT:.0f} seconds.",
            "Wait for it, or stop it, and run `ragc index PROJECT` again.",
        ) from error
    except OSError as error:
        if error.filename and not Path(error.filename).is_relative_to(place):
            what = f"{error.filename} cannot be read: {error.strerror}."
            raise KnowledgeError(what, "Grant read permission on it, and run `ragc index PROJECT` again.") from error
        raise KnowledgeError(
            f"The index in {place} cannot be written: {error.strerror or error}.",
            "Free space there, or grant write permission, and run `ragc index PROJECT` again.",
        ) from error


def _embed_passages(
    passages: Sequence[Passage], fan: Fan, known: dict[str, NDArray[np.float32]], progress: Advance | None
) -> tuple[NDArray[np.float32], int]:
    """Return the passages' vectors in order, and how many texts had to be computed."""
    texts = [embedding_text(p) for p in passages]
    # Texts alike in length need little padding; the longest come first, so that time left is no underestimate.
    missing = sorted({t for t in texts if t not in known}, key=lambda t: (-len(t), t))
    chunks = [missing[start : start + CHUNK] for start in range(0, len(missing), CHUNK)]
    done = 0
    for chunk, vectors in zip(chunks, fan(chunks), strict=True):
        known.update(zip(chunk, vectors, strict=True))
        done += len(chunk)
        if progress:
            progress(done, len(missing))
    return np.stack([known[t] for t in texts]), len(missing)


def _drop_old_generations(folder: Path, keep: set[str], server: str) -> None:
    """Remove all but the new one and the one before, which may be just opened."""
    for file in (file for file in folder.glob("gen-*.safetensors") if file.stem not in keep):
        if server:
            collection = _ask_collection(file.stem, server)
            with closing(collection.client):
                collection.delete_collection()
        file.unlink()


def _ask_collection(name: str, server: str) -> QdrantVectors:
    """Return the server's collection of an index."""
    from ragc.knowledge.index.qdrant import QdrantVectors, connect_server

    return QdrantVectors(connect_server(server), name, server)


def _fill_server(folder: Path, name: str, embedder: Embedder, settings: Settings) -> bool:
    """See that the server holds an index; True when it did already."""
    index = store.read_index(place_index(folder, name), embedder.digest)
    collection = _ask_collection(name, settings.qdrant.url)
    with closing(collection.client):
        if collection.holds_rows(len(index.passages)):
            return True
        collection.write_rows(index.matrix, index.passages)
    return False


class _Worker:
    """A copy of the model in a process of its own."""

    def __init__(self, make: Callable[[], Embedder]) -> None:
        self.embedder = make()

    def read_digest(self) -> str:
        return self.embedder.digest

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.embedder.encode(texts)


@contextmanager
def embed_over_ray(make: Callable[[], Embedder], workers: int = 0) -> Iterator[Fan]:
    """Yield a fan over `workers` processes, each with its own `make()`.

    With 0 workers, one a processor. It joins the cluster that RAY_ADDRESS names, or starts one on this machine and
    ends it afterwards. Every host needs this package and the model. Raises `KnowledgeError` when Ray is not
    installed, when a worker dies, or when one has other weights than this process.
    """
    try:
        import ray
        from ray.util import ActorPool
    except ImportError as error:
        mend = 'Run: python -m pip install -c constraints.txt -e ".[ray]"'
        raise KnowledgeError("Ray is not installed.", mend) from error
    began = not ray.is_initialized()
    remote: list[Any] = []
    try:
        if began:
            ray.init(log_to_driver=False, include_dashboard=False, logging_level="ERROR")
        processors = ray.cluster_resources().get("CPU", 1.0)
        count = workers or max(int(processors), 1)
        share = min(1.0, processors / count)  # a worker that asks for more than there is would never start
        remote = [ray.remote(num_cpus=share)(_Worker).remote(make) for _ in range(count)]
        own = make().digest
        if any(digest != own for digest in ray.get([worker.read_digest.remote() for worker in remote])):
            raise KnowledgeError("A Ray worker has another embedding model.", "Install the same weights on every host.")
        yield lambda chunks: ActorPool(remote).map(lambda worker, texts: worker.encode_texts.remote(texts), chunks)
    except (ray.exceptions.RayError, ConnectionError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise KnowledgeError(
            f"Ray did not embed the texts: {reason}.",
            "Look at the cluster (`ray status`), or index without --engine ray; the last index stays as it is.",
        ) from error
    finally:
        for worker in remote:
            ray.kill(worker)
        if began:
            ray.shutdown()
