"""An answer made of sentences and table rows of the passages, each followed by its citation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from program.knowledge.embedder import Embedder
from program.knowledge.source import AUTHORITY
from program.models.scoring import score
from program.models.split import split
from program.models.units import Unit, render, units
from program.models.words import names, quantities, stems
from program.signatures import Excerpt

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOTHING = "I found nothing about this in the knowledge."
CLOSE = 2.2  # log-odds below the best at which a further piece is still worth saying
CLOSE_STRICT = 0.6
RIVAL = 2.0  # log-odds below the best at which a better authority may still replace it
ALIKE = 0.55  # cosine from which two pieces with differing numbers are taken to state the same thing
LINK = 1.0  # log-odds gained by a piece that names what an earlier piece found
_NOW = re.compile(r"\b(?:now|nowadays|currently|current|latest|newest|today|these days|this (?:week|month|year|winter|summer|season)|at the moment|right now|still|as things stand|at present)\b", re.IGNORECASE)
_PAST = re.compile(r"\b(?:in|before|until|during|under the|of|from) (?:\w+ )?((?:19|20)\d\d)\b", re.IGNORECASE)


def extract(question: str, sub_queries: Sequence[str], passages: Sequence[Excerpt], most: int, strict: bool, embedder: Embedder) -> str:
    """At most `most` pieces, in the order of the look-ups they answer, each as `piece [n]`.

    Every piece is a sentence or table row of passage n, word for word. `strict` keeps only pieces nearly as
    good as the best. Passages without anything quotable give NOTHING.
    """
    found = list(chain.from_iterable(units(passage) for passage in passages))
    if not found:
        return NOTHING
    queries = list(sub_queries) if len(sub_queries) > 1 else list(split(question))
    chosen = choose(question, queries, found, passages, most, strict, embedder)
    return " ".join(cite(shown(found[j], question, queries), found[j].n) for j in chosen)


def cite(text: str, n: int) -> str:
    """The text as a claim: closed by a full stop when it has none, and its passage's number."""
    return f"{text if text[-1] in '.!?' else text + '.'} [{n}]"


def choose(
    question: str, queries: Sequence[str], found: Sequence[Unit], passages: Sequence[Excerpt], most: int, strict: bool, embedder: Embedder
) -> list[int]:
    """Indices into `found`, grouped by look-up, within one look-up the best piece first."""
    points = score(question, queries, found, embedder)
    vectors = embedder.encode([unit.text for unit in found])
    alike = vectors @ vectors.T
    trust = _trust(question, passages)
    picked: list[list[int]] = []
    for row in points:
        linked = row + LINK * _bridged(question, found, [j for js in picked for j in js])
        picked.append(_best(linked, found, alike, trust, [j for js in picked for j in js]))
    room = max(1, most)
    per_query = max(1, room // len(queries))
    close = CLOSE_STRICT if strict else CLOSE
    out: list[list[int]] = []
    for row, ranked in zip(points, picked, strict=True):
        keep = [j for j in ranked if row[j] >= row[ranked[0]] - close]
        out.append(keep[: 1 if strict else per_query])
    return list(dict.fromkeys(chain.from_iterable(out)))[:room]


def _best(row: NDArray[np.float64], found: Sequence[Unit], alike: NDArray[np.float32], trust: dict[int, tuple[int, ...]], before: Sequence[int]) -> list[int]:
    """The pieces from best to worst, without those that a more trusted piece contradicts."""
    order = [int(j) for j in np.argsort(-row, kind="stable")]
    kept: list[int] = []
    for j in order[:12]:
        rivals = [k for k in order[:12] if k != j and _contradict(found[j], found[k], float(alike[j, k]))]
        if any(trust[found[k].n] > trust[found[j].n] and row[k] >= row[j] - RIVAL for k in rivals):
            continue
        if any(k in kept for k in rivals):
            continue
        kept.append(j)
    return kept or order[:1]


def _contradict(one: Unit, other: Unit, alike: float) -> bool:
    """Same subject, other numbers: they come from different passages and share a unit, not its value."""
    if one.n == other.n or alike < ALIKE:
        return False
    a, b = quantities(one.text), quantities(other.text)
    shared = {unit for unit, _ in a if unit} & {unit for unit, _ in b if unit}
    return any({v for u, v in a if u == unit}.isdisjoint(v for u, v in b if u == unit) for unit in shared)


def _trust(question: str, passages: Sequence[Excerpt]) -> dict[int, tuple[int, ...]]:
    """What orders rival passages, by number: authority, then date; a question about now or then: date first."""
    past = _PAST.search(question)
    now = bool(_NOW.search(question))

    def rank(passage: Excerpt) -> tuple[int, ...]:
        day = (passage.as_of or date.min).toordinal()
        authority = AUTHORITY.get(passage.authority, AUTHORITY["reviewed"])
        if past and passage.as_of:
            return (-abs(passage.as_of.year - int(past[1])), authority, day)
        return (day, authority) if now else (authority, day)

    return {passage.n: rank(passage) for passage in passages}


def _bridged(question: str, found: Sequence[Unit], before: Sequence[int]) -> NDArray[np.float64]:
    """1 for each piece that names something which an earlier piece found and the question did not name."""
    asked = set(stems(question))
    bridges = {name for j in before[:3] for name in names(found[j].text) if not set(stems(name)) & asked}
    return np.array([float(any(name in unit.text for name in bridges)) for unit in found])


def shown(unit: Unit, question: str, queries: Sequence[str]) -> str:
    """The unit as it is quoted: of a wide table row, the first cell and the columns asked about."""
    if len(unit.cells) < 3:
        return unit.text
    asked = {word for text in (question, *queries) for word in stems(text)}
    wanted = [pair for pair in unit.cells[1:] if asked & set(stems(pair[0]))]
    return render([unit.cells[0], *wanted]) if wanted else unit.text
