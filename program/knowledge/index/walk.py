"""How near each passage is to a question in the graph, and by which way: no model call, only sparse products.

A walk: personalised PageRank (Haveliwala 2002) over the links, restarted at the passages best by text and at those
about what the question names. And hops: from a good passage to one joined to it by an entity that the question
does not name, weighed by how well the second passage meets what the first leaves open. A passage whose words repeat
what the best one already meets is no second piece of evidence, and loses (Carbonell and Goldstein 1998).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from program.knowledge.index.fusion import GRAPH
from program.knowledge.index.graph import Graph, column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from program.knowledge.index.keywords import Keywords

    Floats = NDArray[np.float32]
    Word = tuple[NDArray[np.int64], NDArray[np.float32]]
    Hops = dict[int, tuple[int, int]]

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
LONGEST = 3  # passages in a way that is shown


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as the walk takes it: its words, its unit vector, its stems."""

    text: str
    vector: Floats
    terms: Sequence[str]


@dataclass(frozen=True, slots=True)
class Reach:
    """What the graph says of every passage for one question: `scores` in [0, 1], shape (passages,)."""

    graph: Graph
    scores: Floats
    mass: Floats
    named: Mapping[int, int]
    stamped: Mapping[int, int]
    starts: frozenset[int]
    hops: Hops

    def way(self, row: int, titles: Sequence[str]) -> str:
        """How a passage was reached: titles of passages, the entities between them in quotes.

        Empty when its text found it and nothing that the question names leads to it. `titles` are those of all
        passages.
        """
        steps, seen, by_text = [titles[row]], {row}, row in self.starts
        while row not in self.named and row not in self.stamped and len(seen) < LONGEST:
            before = self._before(row)
            if before is None or before[0] in seen:
                break
            row, entity = before
            steps = [titles[row], f'"{self.graph.name(entity)}"', *steps]
            seen.add(row)
        entity_named = self.named.get(row, self.stamped.get(row))
        if entity_named is not None:
            return " > ".join(["question", f'"{self.graph.name(entity_named)}"', *steps])
        return "" if by_text or len(steps) == 1 else " > ".join(steps)

    def _before(self, row: int) -> tuple[int, int] | None:
        """The passage that most of a passage's score came from, and the entity that joins the two."""
        if row in self.hops:
            return self.hops[row]
        links = self.graph.links
        rows = links.indices[links.indptr[row] : links.indptr[row + 1]]
        if not len(rows):
            return None
        given = links.data[links.indptr[row] : links.indptr[row + 1]] * self.mass[rows] / self.graph.strength[rows]
        before = int(rows[int(np.argmax(given))])
        entity = self.graph.joining(before, row)
        return None if entity is None or not given.max() > 0 else (before, entity)


def reach(graph: Graph, keywords: Keywords, matrix: Floats, asked: Asked, text: Floats) -> Reach:
    """`text` is the fused text score of every passage in [0, 1], 0 where text search did not bring it.

    The walk and the hops count in full when the question names, rarely and unmistakably, what a passage is
    about, and UNNAMED when it names nothing of the kind: then its text is the better guide.
    """
    entities = graph.named(asked.text)
    stamped = {int(row): e for e in entities for row in column(graph.stamping, e)[0] if text[row] > 0}
    stamp = np.zeros_like(text)
    stamp[list(stamped)] = STAMPED
    found = text + stamp
    starts = _best(found, STARTS)
    restart = np.zeros_like(text)
    restart[starts] = found[starts]
    restart /= max(float(restart.sum()), 1e-9)
    topics, named = _named(graph, entities)
    if named:
        share = NAMED * min(_surest(graph, entities) / SURE, 1.0)
        restart = (1 - share) * restart + share * topics / topics.sum()
    mass = _scaled(_walk(graph, restart))
    words = [column(keywords.impacts, keywords.terms[t]) for t in dict.fromkeys(asked.terms) if t in keywords.terms]
    hop, hops = _hop(graph, words, matrix, asked, (1 - TEXT) * mass + TEXT * text, frozenset(entities))
    reached = (mass + HOP * hop) / (1 + HOP)
    first = int(np.argmax((1 - GRAPH) * text + GRAPH * reached))
    reached = np.maximum(reached - REPEATED * _repeated(words, first, len(text)), 0)
    scores = np.minimum(_surety(graph, entities, starts[:TRUSTED]) * reached + stamp, 1)
    return Reach(graph, scores, mass, named, stamped, frozenset(map(int, starts)), hops)


def _named(graph: Graph, entities: Sequence[int]) -> tuple[Floats, dict[int, int]]:
    """What the question gives to each passage about what it names, and by which entity."""
    topics = np.zeros(graph.passages, np.float32)
    named: dict[int, int] = {}
    for entity in entities:
        rows, shares = column(graph.subjects, entity)
        topics[rows] += shares * graph.rarity[entity] ** 2
        named |= {int(row): entity for row in rows}
    return topics, named


def _surety(graph: Graph, entities: Sequence[int], starts: NDArray[np.intp]) -> float:
    """How far the graph is to be trusted: in full when the question names a rare thing that few passages are about,
    or such a thing joins the passage best by text to another; UNNAMED else, when text is the better guide."""
    surest = _surest(graph, entities)
    for row in map(int, starts):
        own = set(map(int, graph.subject_of(row)))
        joining = [e for e in map(int, graph.entities(row)) if e not in own or len(column(graph.naming, e)[0]) > 1]
        surest = max(surest, _surest(graph, joining))
    return UNNAMED + (1 - UNNAMED) * min(surest / SURE, 1.0)


def _surest(graph: Graph, entities: Sequence[int]) -> float:
    """The highest sureness among entities, 0 without any."""
    return max((float(graph.sureness[e]) for e in entities), default=0.0)


def _walk(graph: Graph, restart: Floats) -> Floats:
    mass = restart
    for _ in range(STEPS):
        mass = RESTART * restart + (1 - RESTART) * (graph.links @ (mass / graph.strength))
    return mass


def _repeated(words: Sequence[Word], first: int, passages: int) -> Floats:
    """How much of what a question's words give to each passage, they give to the passage `first`, too; the most that
    they give to any is 1, and `first` itself repeats nothing."""
    met, whole = np.zeros(passages, np.float32), np.zeros(passages, np.float32)
    for rows, impact in words:
        whole[rows] += impact
        if _holds(rows, first):
            met[rows] += impact
    met[first] = 0
    return np.asarray(np.clip(met / max(float(whole.max(initial=0)), 1e-9), 0, 1), np.float32)


def _hop(
    graph: Graph, words: Sequence[Word], matrix: Floats, asked: Asked, base: Floats, named: frozenset[int]
) -> tuple[Floats, Hops]:
    """The best hop to each passage, the highest 1, and where the hops of the passages' came from."""
    best = np.zeros_like(base)
    hops: Hops = {}
    for seed in _best(base, HOPS):
        joined, by = _joined(graph, int(seed), named)
        rows = np.flatnonzero(joined)
        if not len(rows):
            continue
        met = np.zeros_like(base)
        for passages, impact in words:
            if not _holds(passages, seed):
                met[passages] += impact
        left = asked.vector - RESIDUAL * (asked.vector @ matrix[seed]) * matrix[seed]
        near = _spread(matrix[rows] @ left)
        hop = base[seed] * joined[rows] * (DENSE * near + (1 - DENSE) * _scaled(met)[rows])
        better = hop > best[rows]
        best[rows[better]] = hop[better]
        hops |= {int(row): (int(seed), int(by[row])) for row in rows[better]}
    return _scaled(best), hops


def _joined(graph: Graph, seed: int, named: frozenset[int]) -> tuple[Floats, NDArray[np.int64]]:
    """How strongly an entity joins each passage to the seed, and which does; those the question names join none."""
    most = max(COMMON_SHARE * graph.passages, 10)
    joined = np.zeros(graph.passages, np.float32)
    by = np.zeros(graph.passages, np.int64)
    for entity in map(int, graph.entities(seed)):
        naming, subjects = column(graph.naming, entity)[0], column(graph.subjects, entity)[0]
        if entity in named or len(naming) > most:
            continue
        rarity = graph.rarity[entity]
        for rows, strength in ((naming, MENTIONED * rarity), (subjects, rarity)):
            stronger = rows[joined[rows] < strength]
            joined[stronger], by[stronger] = strength, entity
    joined[seed] = 0
    return joined, by


def _holds(ascending: NDArray[np.integer], value: int) -> bool:
    at = int(np.searchsorted(ascending, value))
    return at < len(ascending) and int(ascending[at]) == value


def _scaled(values: Floats) -> Floats:
    """Divided by the highest, when that is above zero."""
    return np.asarray(values / max(float(values.max(initial=0)), 1e-9), np.float32)


def _spread(values: Floats) -> Floats:
    """Min-max normalised to [0, 1]."""
    return _scaled(values - values.min())


def _best(scores: Floats, k: int) -> NDArray[np.intp]:
    """The rows of the `k` highest scores above zero, best first, the lower row first among equals."""
    order = np.argsort(-scores, kind="stable")[:k]
    return order[scores[order] > 0]
