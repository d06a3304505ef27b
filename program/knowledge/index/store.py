"""Build the one index of a project's document bases, and open it. Safe to kill at any point."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from program.errors import KnowledgeError
from program.knowledge.bases import BaseSpec, check_bases
from program.knowledge.index import generation, server
from program.knowledge.index.generation import MEND, Index
from program.knowledge.index.graph import Graph
from program.knowledge.index.keywords import Keywords
from program.knowledge.index.passagefile import corpus_digest, lines_of
from program.knowledge.ingest.folder import Skipped, link_superseded, read_spec
from program.knowledge.ingest.parsedfile import ParsedFiles
from program.models.embedded.encoder import Embedder
from program.passage import Passage, embedding_text, keyword_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from program.knowledge.index.fanout import Fan

CHUNK = 128  # texts embedded between two reports of progress
WAIT = 120.0  # seconds to wait for another process that is indexing
PARSED = "parsed.sqlite"
SERVER_ABOVE = 200_000  # passages past which a server, where there is one, searches words, too

__all__ = ["BaseSpec", "IndexReport", "build_index", "open_index"]

Progress = Callable[[int, int], None]
"""Called with the texts embedded so far and in all."""


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What indexing did. `embedded` counts texts computed now, `reused` those taken from the last index."""

    index_digest: str
    corpus_digest: str
    documents: int
    passages: int
    embedded: int
    reused: int
    unchanged: bool
    skipped: tuple[Skipped, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0


def build_index(
    bases: Sequence[BaseSpec],
    folder: str | Path,
    embedder: Embedder,
    progress: Progress | None = None,
    *,
    qdrant_url: str = "",
    server_above: int = SERVER_ABOVE,
    keep_stop_words: bool = False,
    stem: bool = True,
    fan: Fan | None = None,
) -> IndexReport:
    """Index every base into `folder` (a project's `.ragc/index`), unless nothing changed.

    Readers go on with the last complete index until the new one is whole, and those that have it open keep
    it. One process indexes at a time; others wait. Files whose bytes are as they were are not parsed again, and
    texts that were embedded are not embedded again; keywords and graph are made anew of all passages. Vectors also
    go to the Qdrant server at `qdrant_url`, if any: its local folder admits one process only, so that readers would
    have no use for one; past `server_above` passages their words do, too. `fan` computes vectors in the embedder's
    place, elsewhere. Raises KnowledgeError for a base that is absent, empty or of an unknown kind.
    """
    from filelock import FileLock, Timeout

    began = time.monotonic()
    check_bases(bases)
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with FileLock(place / "lock", timeout=WAIT):
            report = _build(
                bases,
                place,
                embedder,
                progress,
                qdrant_url=qdrant_url,
                server_above=server_above,
                keep_stop_words=keep_stop_words,
                stem=stem,
                fan=fan or partial(map, embedder.encode),
            )
    except Timeout as error:
        raise KnowledgeError(
            f"Another process has been indexing {place} for over {WAIT:.0f} seconds.",
            "Wait for it, or stop it, and run `ragc index PROJECT` again.",
        ) from error
    except OSError as error:
        raise KnowledgeError(
            f"The index in {place} cannot be written: {error.strerror or error}.",
            "Free space there, or grant write permission, and run `ragc index PROJECT` again.",
        ) from error
    return replace(report, seconds=time.monotonic() - began)


def open_index(
    folder: str | Path, embedder: Embedder, *, qdrant_url: str = "", server_above: int = SERVER_ABOVE
) -> Index:
    """The last complete index of a project, its vectors put into the embedder's memory.

    Past `server_above` passages the server at `qdrant_url`, if any, is asked for words, too.

    Raises KnowledgeError when there is none, when it was made by another format or embedding model, when it
    is damaged, or when the server does not hold it.
    """
    place = Path(folder)
    for _ in range(3):  # a generation may be removed between its being named and its being opened
        name = generation.current(place)
        if not name:
            raise KnowledgeError(f"There is no index in {place}.", MEND)
        try:
            index = generation.read(place / name, embedder.digest)
            break
        except FileNotFoundError:
            time.sleep(0.05)
    else:
        raise KnowledgeError(f"The index in {place} has lost its files.", MEND)
    embedder.put([embedding_text(p) for p in index.passages], index.matrix)
    return server.served(index, name, qdrant_url, server_above) if qdrant_url else index


def _build(
    bases: Sequence[BaseSpec],
    folder: Path,
    embedder: Embedder,
    progress: Progress | None,
    *,
    qdrant_url: str,
    server_above: int,
    keep_stop_words: bool,
    stem: bool,
    fan: Fan,
) -> IndexReport:
    kept = ParsedFiles(folder / PARSED)
    reading = link_superseded([read_spec(base, kept) for base in bases])
    passages = reading.passages
    if not passages:
        raise KnowledgeError("The project has no knowledge to index.", "Add a [knowledge.NAME] to ragc.toml.")
    lines = lines_of(passages)
    corpus = corpus_digest(lines)
    digest = generation.index_digest(corpus, embedder.digest, keep_stop_words, stem)
    name = generation.generation_name(digest)
    previous = _current(folder)
    whole = generation.intact(folder / name)
    embedded = reused = 0
    if not whole:
        known = generation.known_vectors(folder / previous, embedder.digest) if previous else {}
        matrix, embedded = _embed(passages, fan, known, progress)
        reused = len(passages) - embedded
        keywords = Keywords.build(map(keyword_text, passages), keep_stop_words, stem)
        index = Index.of(passages, matrix, keywords, Graph.build(passages), embedder.digest)
        _store(folder, name, index, lines)
    served = not qdrant_url or server.fill(folder / name, embedder, qdrant_url, server_above)
    if previous != name:
        generation.point_to(folder, name)
        _drop_old(folder, {name, previous}, qdrant_url)
    return IndexReport(
        index_digest=digest,
        corpus_digest=corpus,
        documents=len(reading.documents),
        passages=len(passages),
        embedded=embedded,
        reused=reused,
        unchanged=whole and served and previous == name,
        skipped=tuple(reading.skipped),
        warnings=tuple(map(str, reading.flaws)),
    )


def _embed(
    passages: Sequence[Passage],
    fan: Fan,
    known: dict[str, NDArray[np.float32]],
    progress: Progress | None,
) -> tuple[NDArray[np.float32], int]:
    """The passages' vectors in order, and how many passages' texts had to be computed."""
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


def _store(folder: Path, name: str, index: Index, lines: Sequence[str]) -> None:
    for leftover in folder.glob("aside-*"):  # of a run that was killed: the lock says no other is running
        shutil.rmtree(leftover)
    aside = folder / f"aside-{os.getpid()}"
    aside.mkdir()
    generation.write(aside, index, lines)
    generation.publish(aside, folder / name)


def _drop_old(folder: Path, keep: set[str], qdrant_url: str) -> None:
    """Remove all generations but the new one and the one before, which a reader may be just opening."""
    for place in folder.glob("gen-*"):
        if place.name not in keep:
            if qdrant_url:
                server.drop(place.name, qdrant_url)
            shutil.rmtree(place, ignore_errors=True)


def _current(folder: Path) -> str:
    try:
        return generation.current(folder)
    except KnowledgeError:  # damaged: it is about to be written anew
        return ""
