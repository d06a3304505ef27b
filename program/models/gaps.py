"""What the passages leave open: what is missing, the query that would find it, the question to ask back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

from program.knowledge.embedder import Embedder
from program.models.scoring import rarity, score
from program.models.split import split
from program.models.units import Unit, units
from program.models.words import KINDS, STOP, asks_person, expected, kinds, names, people, stems
from program.signatures import Excerpt

ANSWERED = 9.0  # log-odds, up to a constant, from which a piece is taken to answer a look-up
UNCOVERED = 0.3  # share of a look-up's words that no passage holds from which it counts as open
NEW_WORDS = 6  # of the nearest piece that a refocused query takes over
OPTIONS = 4
_WORDS = re.compile(r"[\w][\w’'.:%/-]*[\w%]|\w")
_WH = re.compile(
    r"^(?:(?:by|for|from|in|to|on|at|with|of|within|after)\s+)?(?:who"
    r"|whom|whose|what|which|when|where|why|how(?: (?:much|many|long|often"
    r"|far|soon))?)\b",
    re.IGNORECASE,
)
_SPLIT_TITLE = re.compile(r"\s+>\s+")


def missing(question: str, passages: Sequence[Excerpt], embedder: Embedder) -> tuple[str, str]:
    """What no passage covers, in a few words (empty when nothing), and one query to look it up.

    A look-up counts as covered when a piece answers it well and every name and number of it occurs in some
    passage. The query keeps the words not covered and adds the bridge: the name, found beside the covered
    words and not in the question, through which a second look-up can reach the rest.
    """
    queries = split(question)
    found = list(chain.from_iterable(units(passage) for passage in passages))
    if not found:
        return " ".join(_content(question)), queries[0]
    points = score(question, queries, found, embedder)
    said = {word for passage in passages for word in stems(f"{passage.title}. {passage.text}")}
    lacking: list[str] = []
    weakest, least = queries[-1], float("inf")
    for query, row in zip(queries, points, strict=True):
        best = found[int(row.argmax())]
        gone = [word for word in _content(query) if not set(stems(word)) & said]
        named = [word for word in gone if word[0].isupper() or word[0].isdigit()]
        wanted = expected(query)
        if asks_person(query):
            unanswered = not people(best.text, question)
        else:
            unanswered = bool(wanted) and not _new_kinds(best, question).intersection(wanted)
        uncovered = len(gone) >= UNCOVERED * len(_content(query))
        if row.max() < ANSWERED or unanswered:
            lacking += gone or _content(query)
        elif named or uncovered:
            lacking += gone if uncovered else named
        if row.max() - 2.0 * unanswered < least:
            weakest, least = query, float(row.max() - 2.0 * unanswered)
    bridge = _bridge(question, found, points.max(axis=0).tolist())
    nearest = found[int(points[queries.index(weakest)].argmax())]
    return " ".join(list(dict.fromkeys(lacking))[:8]), _refocused(weakest, nearest, bridge)


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
    """One question that offers two to four options, each a name or heading of the passages.

    Where fewer than two options can be told apart it asks for the product, plan or case in general.
    """
    found = list(chain.from_iterable(units(passage) for passage in passages))
    if found:
        points = score(question, [question], found, embedder)[0]
        ranked = [found[int(i)] for i in (-points).argsort(kind="stable")]
        wanted = expected(question)
        telling = [unit for unit in ranked if kinds(unit.text).intersection(wanted)] or ranked
        for options in (_row_labels(telling), _named(question, telling), _headings(passages)):
            if len(options) >= 2:
                *firsts, last = options[:OPTIONS]
                return f"Do you mean {', '.join(firsts)} or {last}?"
    return "Which product, plan or case do you mean?"


def _row_labels(ranked: Sequence[Unit]) -> list[str]:
    """First cells of the rows of the best table, when a table row is among the best pieces."""
    best = next((unit for unit in ranked[:3] if unit.cells), None)
    rows = [unit for unit in ranked if unit.cells and best is not None and unit.n == best.n]
    return list(dict.fromkeys(row.cells[0][1] for row in sorted(rows, key=lambda unit: unit.at) if row.cells[0][1]))


def _named(question: str, ranked: Sequence[Unit]) -> list[str]:
    """Names that tell the best pieces of different passages apart, one a passage, best first."""
    asked = set(stems(question))
    by_passage: dict[int, list[str]] = {}
    for unit in ranked[:8]:
        fresh = [name for name in names(f"{unit.context}. {unit.text}") if not set(stems(name)) <= asked]
        by_passage.setdefault(unit.n, fresh)
    options: list[str] = []
    for n, fresh in by_passage.items():
        elsewhere = {name for other, held in by_passage.items() if other != n for name in held}
        own = [name for name in fresh if name not in elsewhere]
        options += [name for name in (own or fresh)[:1] if name not in options]
    return options


def _headings(passages: Sequence[Excerpt]) -> list[str]:
    """The parts of the titles that not every passage shares."""
    trails = [_SPLIT_TITLE.split(passage.title) for passage in passages]
    shared = set.intersection(*(set(trail) for trail in trails)) if len(trails) > 1 else set()
    return list(
        dict.fromkeys(next((part for part in reversed(trail) if part not in shared), trail[-1]) for trail in trails)
    )
