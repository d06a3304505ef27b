"""What the passages leave open: the query that would find it, and the question to ask back."""

from __future__ import annotations

import re
from collections.abc import Sequence

from program.models.embedded.encoder import Embedder
from program.models.rules.options import options
from program.models.rules.scoring import rarity, score
from program.models.rules.split import split
from program.models.rules.units import Unit, units
from program.models.rules.words import KINDS, STOP, asks_person, expected, kinds, names, people, stems
from program.signatures import Excerpt

NEW_WORDS = 6  # of the nearest piece that a refocused query takes over
PAGES = 3
_WORDS = re.compile(r"[\w][\w’'.:%/-]*[\w%]|\w")
_WH = re.compile(
    r"^(?:(?:by|for|from|in|to|on|at|with|of|within|after)\s+)?(?:who"
    r"|whom|whose|what|which|when|where|why|how(?: (?:much|many|long|often"
    r"|far|soon))?)\b",
    re.IGNORECASE,
)


def next_query(question: str, passages: Sequence[Excerpt], embedder: Embedder) -> str:
    """Return one query for what the passages leave open.

    It is made of the look-up that they answer least: it keeps the words that they do not hold and adds the
    bridge, the name found beside the others and not in the question, through which a second look-up can reach the rest.
    """
    queries = split(question)
    found = units(passages)
    if not found:
        return queries[0]
    points = score(question, queries, found, embedder)
    weakest, least = queries[-1], float("inf")
    for query, row in zip(queries, points, strict=True):
        best = found[int(row.argmax())]
        wanted = expected(query)
        if asks_person(query):
            unanswered = not people(best.text, question)
        else:
            unanswered = bool(wanted) and not _new_kinds(best, question).intersection(wanted)
        if row.max() - 2.0 * unanswered < least:
            weakest, least = query, float(row.max() - 2.0 * unanswered)
    bridge = _bridge(question, found, points.max(axis=0).tolist())
    nearest = found[int(points[queries.index(weakest)].argmax())]
    return _refocused(weakest, nearest, bridge)


def _new_kinds(unit: Unit, question: str) -> set[str]:
    held = {kind for kind in kinds(unit.text) if kind in KINDS}
    fresh = [name for name in names(unit.text) if not set(stems(name)) & set(stems(question))]
    return held | ({"name"} if fresh else set())


def _content(text: str) -> list[str]:
    return [word for word in _WORDS.findall(text) if word.lower() not in STOP]


def _bridge(question: str, found: Sequence[Unit], points: Sequence[float]) -> str:
    """The name to go on from: not in the question, beside its rarest words, in a piece that scores well."""
    asked, weights = set(stems(question)), rarity(found)
    best, top = "", 0.0
    for unit, point in zip(found, points, strict=True):
        worth = sum(weights[word] for word in asked & set(stems(unit.text)))
        for name in names(unit.text):
            own = set(stems(name))
            if not worth or not own or own & asked:
                continue
            merit = worth + max(weights.get(word, 0.0) for word in own) + point / 4
            if merit > top:
                best, top = name, merit
    return best


def _refocused(query: str, nearest: Unit, bridge: str) -> str:
    """What `nearest` leaves open of the query, then what it adds: the bridge and its first new words.

    `Who leads the team that runs payroll?` beside `Payroll is run by the Harbour team.` gives
    `Who leads Harbour?`.
    """
    opening = found[0] if (found := _WH.match(query)) else ""
    covered, given = set(stems(nearest.text)), set(stems(f"{query} {bridge}"))
    open_ = [word for word in _content(query) if not set(stems(word)) & covered]
    new = [word for word in _content(nearest.text) if not set(stems(word)) & given]
    words = [opening, *(word for word in open_ if word.lower() not in opening.lower().split()), bridge]
    return " ".join(word for word in [*words, *new[:NEW_WORDS]] if word) + "?"


def clarify(question: str, passages: Sequence[Excerpt], embedder: Embedder) -> str:
    """One question back that offers two to four options of one kind, as the passages name them.

    Where they name none it offers the pages found, and without two of these asks for the product, plan or case.
    """
    found = units(passages)
    if found:
        points = score(question, [question], found, embedder)[0]
        ranked = [found[int(i)] for i in (-points).argsort(kind="stable")]
        wanted = expected(question)
        telling = [unit for unit in ranked if kinds(unit.text).intersection(wanted)]
        if open_ := options(question, [*telling, *(unit for unit in ranked if unit not in telling)], passages):
            asked = f"Which {open_.kind} do you mean:" if open_.kind else "Do you mean"
            return f"{asked} {_either(open_.names)}?"
    pages = list(dict.fromkeys(passage.title.partition(" > ")[0] for passage in passages))[:PAGES]
    if len(pages) > 1:
        return f"Which of these is it about: {_either(pages)}?"
    return "Which product, plan or case do you mean?"


def _either(texts: Sequence[str]) -> str:
    *firsts, last = texts
    return f"{', '.join(firsts)} or {last}"
