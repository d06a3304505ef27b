"""How near each passage is to a question in the graph, and by which way, from sparse products alone.

A walk: personalised PageRank (Haveliwala 2002) over the links, restarted at the passages best by text and at those
about what the question names. And hops: from a good passage to one joined to it by an entity that the question does
not name, weighed by how well the second passage meets what the first leaves open. A passage whose words repeat what
the best one already meets is no second piece of evidence, and loses (Carbonell and Goldstein 1998).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragc.knowledge.index.fusion import GRAPH, Floats, Keywords, best_rows
from ragc.knowledge.index.graph import Graph

RESTART = 0.3
STEPS = 10
STARTS = 6  # passages found by text that the walk restarts at
HOPS = 8  # passages that hops start from
HOP = 0.6  # what a hop counts beside the walk's 1
TEXT = 0.25  # what the text score counts in choosing where hops start; the walk counts the rest
MENTIONED = 0.5  # what a passage that only mentions the joining entity counts, against one that is about it
RESIDUAL = 0.7  # how much of the first passage's direction is taken out of the question's vector
DENSE = 0.3  # the share of the vectors in how well a passage meets what is left open; words have the rest
COMMON_SHARE = 0.05  # an entity in more of the passages than this joins no hop
UNNAMED = 0.1  # what the walk counts when the question names nothing that a passage is about
SURE = 0.5  # the sureness of a named entity from which the walk counts in full
NAMED = 0.7  # the share of the restart that goes to what the question surely names; what text finds has the rest
REPEATED = 0.4  # what a passage loses that meets only words of the question which the best passage meets, too
TRUSTED = 1  # passages best by text that are taken to be what the question means
STAMPED = 0.3  # what an attribute that the question names adds to a passage found by text
MAX_WAY = 3  # passages in a way that is shown


@dataclass(frozen=True, slots=True)
class GraphScores:
    """What the graph says of every passage for one question: `scores` in [0, 1].

    `before` has for each row that from which most of the walk came, -1 where none did. `named` and `stamped` give the
    entity of the question by which a passage is entered, `hops` the passage and the entity that a hop came by; `starts`
    were found by text.
    """

    graph: Graph
    scores: Floats
    before: NDArray[np.int64]
    named: Mapping[int, int]
    stamped: Mapping[int, int]
    starts: frozenset[int]
    hops: Mapping[int, tuple[int, int]]

    def explain_way(self, row: int, titles: Sequence[str]) -> str:
        """Return the way to a passage: titles, the entities between them in quotes.

        Empty when its text found it and nothing that the question names leads to it. `titles` are those of all
        passages.
        """
        names, steps, seen, by_text = self.graph.keys, [titles[row]], {row}, row in self.starts
        while row not in self.named and row not in self.stamped and len(seen) < MAX_WAY:
            before = self._find_previous(row)
            if before is None or before[0] in seen:
                break
            row, entity = before
            steps = [titles[row], f'"{" ".join(names[entity])}"', *steps]
            seen.add(row)
        entered = self.named.get(row, self.stamped.get(row))
        if entered is not None:
            return " > ".join(["question", f'"{" ".join(names[entered])}"', *steps])
        return "" if by_text or len(steps) == 1 else " > ".join(steps)

    def _find_previous(self, row: int) -> tuple[int, int] | None:
        """Return where most of a passage's score came from, and their rarest entity."""
        if row in self.hops:
            return self.hops[row]
        before = int(self.before[row])
        shared = self.graph.find_shared(before, row) if before >= 0 else None
        return None if shared is None else (before, shared)


def score_passages(
    graph: Graph, keywords: Keywords, matrix: Floats, *, question: str, vector: Floats, text: Floats
) -> GraphScores:
    """Return the graph's scores for a question and its unit vector.

    `matrix` holds the passages' vectors; `text` is the fused text score of every passage in [0, 1], 0 where text
    search did not bring it. The walk and the hops count in full when the question names, rarely and unmistakably,
    what a passage is about, and UNNAMED when it names nothing of the kind: then its text is the better guide.
    """
    entities = list(dict.fromkeys(graph.lexicon.find_names(question)))
    stamped = {int(row): e for e in entities for row in graph.passages_of(e, "stamps")[0] if text[row] > 0}
    stamp = np.zeros_like(text)
    stamp[list(stamped)] = STAMPED
    starts = _top_rows(text + stamp, STARTS)
    restart = np.zeros_like(text)
    restart[starts] = (text + stamp)[starts]
    restart /= max(float(restart.sum()), 1e-9)
    topics, named = _find_topics(graph, entities)
    if named:
        share = NAMED * min(_max_sureness(graph, entities) / SURE, 1.0)
        restart = (1 - share) * restart + share * topics / topics.sum()
    mass = restart
    for _ in range(STEPS):
        mass = RESTART * restart + (1 - RESTART) * (graph.links @ (mass / graph.strength))
    mass = _scale_to_one(mass)
    terms = dict.fromkeys(keywords.split_text(question))
    words = keywords.impacts[:, [keywords.terms[term] for term in terms if term in keywords.terms]].tocsr()
    base = (1 - TEXT) * mass + TEXT * text
    hop, hops = _find_hops(graph, words, matrix, vector, base, frozenset(entities))
    reached = (mass + HOP * hop) / (1 + HOP)
    first = int(np.argmax((1 - GRAPH) * text + GRAPH * reached))
    reached = np.maximum(reached - REPEATED * _measure_repetition(words, first), 0)
    scores = np.minimum(_measure_trust(graph, entities, starts[:TRUSTED]) * reached + stamp, 1)
    return GraphScores(graph, scores, _find_sources(graph, mass), named, stamped, frozenset(starts), hops)


def _find_sources(graph: Graph, mass: Floats) -> NDArray[np.int64]:
    """Return for each row the first of those that give it most by their links, -1 where none gives anything."""
    links, before = graph.links, np.full(graph.passages, -1, np.int64)
    linked = np.flatnonzero(np.diff(links.indptr))
    if len(linked):
        given = links.data * mass[links.indices] / graph.strength[links.indices]
        most = np.maximum.reduceat(given, links.indptr[linked])
        best = np.flatnonzero(given == np.repeat(most, np.diff(links.indptr)[linked]))
        rows, firsts = np.unique(np.searchsorted(links.indptr, best, side="right") - 1, return_index=True)
        before[rows] = np.where(given[best[firsts]] > 0, links.indices[best[firsts]], -1)
    return before


def _find_topics(graph: Graph, entities: Sequence[int]) -> tuple[Floats, dict[int, int]]:
    """Return what the question's entities give to each passage about them, and which."""
    about = graph.by_entity["about"][:, entities].tocoo()
    named = {int(row): entities[column] for row, column in zip(about.row, about.col, strict=True)}
    return about @ graph.rarity[entities] ** 2, named


def _measure_trust(graph: Graph, entities: Sequence[int], starts: Sequence[int]) -> float:
    """Return how far the graph is to be trusted, from UNNAMED to 1.

    In full when the question names a rare thing that few passages are about, or such a thing joins the passage best
    by text to another.
    """
    surest = _max_sureness(graph, entities)
    for row in starts:
        own = set(map(int, graph.entities_of(row, "about")))
        mentioned = map(int, graph.entities_of(row, "mentions"))
        joining = [e for e in mentioned if e not in own or len(graph.passages_of(e, "mentions")[0]) > 1]
        surest = max(surest, _max_sureness(graph, joining))
    return UNNAMED + (1 - UNNAMED) * min(surest / SURE, 1.0)


def _max_sureness(graph: Graph, entities: Iterable[int]) -> float:
    return max((float(graph.sureness[e]) for e in entities), default=0.0)


def _measure_repetition(words: Any, first: int) -> Floats:
    """Return how much of a question's words each passage shares with `first`, at most 1; 0 for itself."""
    met = words @ _held_words(words, first)
    met[first] = 0
    return np.asarray(np.clip(met / max(float(words.sum(axis=1).max(initial=0)), 1e-9), 0, 1), np.float32)


def _held_words(words: Any, row: int) -> NDArray[np.bool_]:
    """Return which of a question's words a passage has."""
    held: NDArray[np.bool_] = words[[row]].toarray()[0] != 0
    return held


def _find_hops(
    graph: Graph, words: Any, matrix: Floats, vector: Floats, base: Floats, named: frozenset[int]
) -> tuple[Floats, dict[int, tuple[int, int]]]:
    """Return the best hop to each passage, the highest 1, and how it came."""
    best = np.zeros_like(base)
    hops: dict[int, tuple[int, int]] = {}
    for seed in _top_rows(base, HOPS):
        joined, by = _join_seed(graph, seed, named)
        rows = np.flatnonzero(joined)
        if not len(rows):
            continue
        met = words @ ~_held_words(words, seed)
        near = matrix[rows] @ (vector - RESIDUAL * (vector @ matrix[seed]) * matrix[seed])
        open_met = DENSE * _scale_to_one(near - near.min()) + (1 - DENSE) * _scale_to_one(met)[rows]
        hop = base[seed] * joined[rows] * open_met
        better = hop > best[rows]
        best[rows[better]] = hop[better]
        hops |= {int(row): (seed, int(by[row])) for row in rows[better]}
    return _scale_to_one(best), hops


def _join_seed(graph: Graph, seed: int, named: frozenset[int]) -> tuple[Floats, NDArray[np.int64]]:
    """Return how strongly an entity, not `named`, joins each passage to the seed."""
    most = max(COMMON_SHARE * graph.passages, 10)
    joined = np.zeros(graph.passages, np.float32)
    by = np.zeros(graph.passages, np.int64)
    for entity in map(int, graph.entities_of(seed, "mentions")):
        naming, subjects = (graph.passages_of(entity, part)[0] for part in ("mentions", "about"))
        if entity in named or len(naming) > most:
            continue
        rarity = graph.rarity[entity]
        for rows, strength in ((naming, MENTIONED * rarity), (subjects, rarity)):
            stronger = rows[joined[rows] < strength]
            joined[stronger], by[stronger] = strength, entity
    joined[seed] = 0
    return joined, by


def _scale_to_one(values: Floats) -> Floats:
    """Return the values over the highest, when that is above zero."""
    return np.asarray(values / max(float(values.max(initial=0)), 1e-9), np.float32)


def _top_rows(scores: Floats, k: int) -> list[int]:
    return best_rows(scores, np.flatnonzero(scores > 0), k)
