"""An answer made of sentences and table rows of the passages, each followed by its citation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from program.models.embedded.encoder import Embedder
from program.models.rules.rivals import Rivals, trusted
from program.models.rules.rows import row_marks, shown
from program.models.rules.scoring import by_place, rarity, score
from program.models.rules.split import split
from program.models.rules.units import Unit, units
from program.models.rules.words import asks_person, names, people, stems
from program.signatures import Excerpt

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOTHING = "I found nothing about this in the knowledge."
CLOSE = 3.0  # log-odds below the best at which a further piece is still worth saying
CLOSE_STRICT = 0.8
RIVAL = 1.4  # log-odds below the best at which a better authority may still replace it
APART = 0.3  # how much of what a piece says to the other look-ups counts against it in this one
# Log-odds ahead of the next free piece at which one already chosen answers this look-up too.
SETTLED = 2.0
ROW = 1.4  # log-odds gained by a table row that the question names, lost by its siblings
HOP = 2.0  # log-odds gained, for each rare word shared, by the person to whom an earlier piece points
LINK = 0.7  # log-odds gained by a piece that names what another look-up found


def extract(
    question: str,
    sub_queries: Sequence[str],
    passages: Sequence[Excerpt],
    embedder: Embedder,
    *,
    most: int,
    strict: bool,
) -> str:
    """At most `most` pieces, in the order of the look-ups they answer, each as `piece [n]`.

    Every piece is a sentence or table row of passage n, word for word. `strict` keeps only pieces nearly as
    good as the best. Passages without anything quotable give NOTHING.
    """
    found = units(passages)
    if not found:
        return NOTHING
    looked_up = [query for query in sub_queries if query.strip()]
    queries = looked_up if len(looked_up) > 1 else list(split(question))
    chosen = choose(question, queries, found, passages, embedder, most=most, strict=strict)
    said: list[str] = []
    for j in chosen:
        said.append(cite(shown(found[j], question, queries, " ".join(said)), found[j].n))
    return " ".join(said)


def cite(text: str, n: int) -> str:
    """The text as a claim: closed by a full stop when it has none, and its passage's number."""
    closed = text.rstrip("\"'”’)")[-1:] in set(".!?:")
    return f"{text if closed else text + '.'} [{n}]"


def choose(
    question: str,
    queries: Sequence[str],
    found: Sequence[Unit],
    passages: Sequence[Excerpt],
    embedder: Embedder,
    *,
    most: int,
    strict: bool,
) -> list[int]:
    """Indices into `found`, grouped by look-up, within one look-up the best piece first."""
    points = score(question, queries, found, embedder)
    if len(queries) > 1:
        others = (points.sum(axis=0) - points) / (len(queries) - 1)
        points = points - APART * others
    points += ROW * row_marks(question, found)
    points -= by_place(found)
    rivals = Rivals(found, embedder)
    trust = trusted(question, passages)
    room = max(1, most)
    share = 1 if strict else max(1, room // len(queries))
    picked: list[list[int]] = [[] for _ in queries]
    for turn in range(share):
        for i, row in enumerate(points):
            taken = [j for js in picked for j in js]
            said = {found[j].text for j in taken}
            elsewhere = [js[0] for k, js in enumerate(picked) if k != i and js]
            linked = row + LINK * _bridged(question, found, elsewhere)
            ranked = _best(linked, found, rivals, trust)
            free = [j for j in ranked if found[j].text not in said]
            if turn == 0 and ranked[0] in taken and (not free or linked[ranked[0]] - linked[free[0]] > SETTLED):
                continue
            if free and linked[free[0]] >= linked[ranked[0]] - (CLOSE_STRICT if strict else CLOSE):
                picked[i].append(free[0])
    chosen = list(dict.fromkeys(chain.from_iterable(picked)))[:room]
    hop = _hop(question, found, chosen, points.max(axis=0))
    if hop is None:
        return chosen
    return [*(chosen if len(chosen) < room else chosen[:-1] if room > 1 else []), hop]


def _hop(question: str, found: Sequence[Unit], chosen: Sequence[int], points: NDArray[np.float64]) -> int | None:
    """The piece that names the person asked for, when those chosen name only an office or a team.

    It shares words with the chosen pieces that the question does not have: `the head of Stores` leads to the
    piece that says who heads Stores.
    """
    told = " ".join(found[j].text for j in chosen)
    if not asks_person(question) or people(told, question):
        return None
    weights, bridge = rarity(found), set(stems(told)) - set(stems(question))
    best, top = None, 0.0
    for j, unit in enumerate(found):
        shared = bridge & set(stems(unit.text))
        if j in chosen or not shared or not people(unit.text, question):
            continue
        merit = float(points[j]) + HOP * sum(weights[word] for word in shared) / weights[""]
        if best is None or merit > top:
            best, top = j, merit
    return best


def _best(
    row: NDArray[np.float64],
    found: Sequence[Unit],
    rivals: Rivals,
    trust: dict[int, tuple[int, ...]],
) -> list[int]:
    """The pieces from best to worst, without those that a more trusted piece contradicts."""
    order = [int(j) for j in np.argsort(-row, kind="stable")]
    kept: list[int] = []
    first = order[:12]
    against = rivals.among(first)
    for j in first:
        if any(trust[found[k].n] > trust[found[j].n] and row[k] >= row[j] - RIVAL for k in against[j]):
            continue
        if any(k in kept for k in against[j]):
            continue
        kept.append(j)
    return kept or order[:1]


def _bridged(question: str, found: Sequence[Unit], before: Sequence[int]) -> NDArray[np.float64]:
    """1 for each piece that names what another look-up found and the question did not name."""
    asked = set(stems(question))
    bridges = {name for j in before for name in names(found[j].text) if not set(stems(name)) & asked}
    return np.array([float(any(name in unit.text for name in bridges)) for unit in found])
