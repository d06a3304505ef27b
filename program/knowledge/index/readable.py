"""The part of an index that somebody may read, made as if there were nothing else.

1. The readable passages and their vectors are taken over; what superseded one is a document that is readable, too.
2. Keywords and graph are made anew of them: no document frequency, length, name or link is of a hidden text.
3. The part is kept in a file beside the whole index, for other processes and the next one.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from ragc.knowledge.index import store
from ragc.knowledge.index.graph import Graph
from ragc.knowledge.index.keywords import Keywords
from ragc.knowledge.index.store import Index, Successors
from ragc.knowledge.index.vectors import ArrayVectors
from ragc.passage import Passage, ReaderSets, keyword_text


def take_readable(whole: Index, admitted: frozenset[ReaderSets]) -> Index | None:
    """Return the part for the readers admitted; None where nothing is in it."""
    rows = [row for row, passage in enumerate(whole.passages) if passage.readers in admitted]
    if not rows:
        return None
    found = {id_: [one for one in known if one[1] in admitted] for id_, known in whole.successors.items()}
    passages = [_find_successor(whole.passages[row], found) for row in rows]
    superseded = {p.id: found[p.id] for p in passages if any(readers for _, readers in found.get(p.id, ()))}
    lines, words = store.to_lines(passages, superseded), whole.keywords
    digest = store.digest_index(store.digest_text(lines), whole.embedder_digest, words.keep_stop_words, words.stem)
    file = whole.file and whole.file.with_name(f"{whole.file.stem}-{store.name_generation(digest)}{whole.file.suffix}")
    part = None
    with suppress(Exception):  # absent, or damaged: the cost is time
        part = store.read_index(file, whole.embedder_digest) if file else None
    if part is None:
        keywords = Keywords.from_texts(map(keyword_text, passages), words.keep_stop_words, words.stem)
        part = Index(passages, whole.matrix[rows], keywords, Graph.from_passages(passages), whole.embedder_digest)
        part.successors = superseded
        with suppress(OSError):
            if file:
                store.write_index(file, part, lines)
    if not isinstance(whole.vectors, ArrayVectors):
        part.vectors = whole.vectors.take_rows(rows, admitted)  # words stay here: the server counts what others read
    return part


def _find_successor(passage: Passage, found: Successors) -> Passage:
    """Return the passage, superseded by the newest document that is readable."""
    if passage.id not in found:
        return passage
    return replace(passage, superseded_by=next((path for path, _ in reversed(found[passage.id])), ""))
