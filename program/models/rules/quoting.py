"""An answer quoted from the passages, with a citation behind each piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from program.models.rules.scoring import Contradictions, Encoder, place_penalty, rank_trust, score_units, stem_rarity
from program.models.rules.sentences import Quotable, mark_rows, quoted_text, split_quotables
from program.models.rules.splitting import split_question
from program.models.rules.words import asks_person, content_stems, find_names, find_people
from program.signatures import Excerpt

NOTHING = "I found nothing about this in the knowledge."
CLOSE = 3.0  # log-odds below the best at which a further piece is still worth saying
CLOSE_STRICT = 0.8
RIVAL = 1.4  # log-odds below the best at which a better authority may still replace it
APART = 0.3  # how much of what a piece says to the other look-ups counts against it in this one
SETTLED = 2.0  # log-odds ahead of the next free piece at which one already chosen answers this look-up too
ROW = 1.4  # log-odds gained by a table row that the question names, lost by its siblings
HOP = 2.0  # log-odds gained, for each rare word shared, by the person to whom an earlier piece points
LINK = 0.7  # log-odds gained by a piece that names what another look-up found


def quote_answer(
    question: str,
    sub_queries: Sequence[str],
    passages: Sequence[Excerpt],
    embedder: Encoder,
    *,
    most: int,
    strict: bool,
) -> str:
    """Return the pieces of the passages that answer the question.

    At most `most` come, in the order of the look-ups they answer, each as `piece [n]`: a sentence or table row of
    passage n, word for word. `strict` keeps only pieces nearly as good as the best. Passages without anything quotable
    give NOTHING.
    """
    found = split_quotables(passages)
    if not found:
        return NOTHING
    looked_up = [query for query in sub_queries if query.strip()]
    queries = looked_up if len(looked_up) > 1 else list(split_question(question))
    rivals, trust = Contradictions(found, embedder), rank_trust(question, passages)
    points = _unit_points(question, queries, found, embedder)
    said: list[str] = []
    for j in _choose_units(question, found, points, rivals, trust, most=most, strict=strict):
        said.append(_cite_unit(quoted_text(found[j], question, queries, " ".join(said)), found[j].n))
    return " ".join(said)


def _cite_unit(text: str, n: int) -> str:
    closed = text.rstrip("\"'”’)")[-1:] in set(".!?:")
    return f"{text if closed else text + '.'} [{n}]"


def _unit_points(
    question: str, queries: Sequence[str], found: Sequence[Quotable], embedder: Encoder
) -> NDArray[np.float64]:
    points = score_units(question, queries, found, embedder)
    if len(queries) > 1:
        others = (points.sum(axis=0) - points) / (len(queries) - 1)
        points = points - APART * others
    points += ROW * mark_rows(question, found)
    points -= place_penalty(found)
    return points


def _choose_units(
    question: str,
    found: Sequence[Quotable],
    points: NDArray[np.float64],
    rivals: Contradictions,
    trust: Mapping[int, tuple[int, ...]],
    *,
    most: int,
    strict: bool,
) -> list[int]:
    """Return indices into `found`, grouped by look-up, within one look-up the best unit first."""
    room = max(1, most)
    share = 1 if strict else max(1, room // len(points))
    picked: list[list[int]] = [[] for _ in points]
    for turn in range(share):
        for i, row in enumerate(points):
            taken = [j for js in picked for j in js]
            said = {found[j].text for j in taken}
            elsewhere = [js[0] for k, js in enumerate(picked) if k != i and js]
            linked = row + LINK * _mark_bridges(question, found, elsewhere)
            ranked = _rank_consistent(linked, found, rivals, trust)
            free = [j for j in ranked if found[j].text not in said]
            if turn == 0 and ranked[0] in taken and (not free or linked[ranked[0]] - linked[free[0]] > SETTLED):
                continue
            if free and linked[free[0]] >= linked[ranked[0]] - (CLOSE_STRICT if strict else CLOSE):
                picked[i].append(free[0])
    chosen = list(dict.fromkeys(chain.from_iterable(picked)))[:room]
    hop = _find_person(question, found, chosen, points.max(axis=0))
    if hop is None:
        return chosen
    return [*(chosen if len(chosen) < room else chosen[:-1] if room > 1 else []), hop]


def _find_person(
    question: str, found: Sequence[Quotable], chosen: Sequence[int], points: NDArray[np.float64]
) -> int | None:
    """Return the unit that names the person asked for, when those chosen name only an office."""
    told = " ".join(found[j].text for j in chosen)
    if not asks_person(question) or find_people(told, question):
        return None
    weights, bridge = stem_rarity(found), set(content_stems(told)) - set(content_stems(question))
    best, top = None, 0.0
    for j, unit in enumerate(found):
        shared = bridge & set(content_stems(unit.text))
        if j in chosen or not shared or not find_people(unit.text, question):
            continue
        merit = float(points[j]) + HOP * sum(weights[word] for word in shared) / weights[""]
        if best is None or merit > top:
            best, top = j, merit
    return best


def _rank_consistent(
    row: NDArray[np.float64], found: Sequence[Quotable], rivals: Contradictions, trust: Mapping[int, tuple[int, ...]]
) -> list[int]:
    """Return units from best to worst, without those that a more trusted one contradicts."""
    order = [int(j) for j in np.argsort(-row, kind="stable")]
    kept: list[int] = []
    first = order[:12]
    against = rivals.find_among(first)
    for j in first:
        if any(trust[found[k].n] > trust[found[j].n] and row[k] >= row[j] - RIVAL for k in against[j]):
            continue
        if any(k in kept for k in against[j]):
            continue
        kept.append(j)
    return kept or order[:1]


def _mark_bridges(question: str, found: Sequence[Quotable], before: Sequence[int]) -> NDArray[np.float64]:
    """Return 1 for each unit with a name that another look-up found and the question lacks."""
    asked = set(content_stems(question))
    bridges = {name for j in before for name in find_names(found[j].text) if not set(content_stems(name)) & asked}
    return np.array([float(any(name in unit.text for name in bridges)) for unit in found])
