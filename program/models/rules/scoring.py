"""Scores of quotable units for a look-up, and units that contradict each other."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import combinations, groupby
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from program.models.rules.sentences import Quotable, split_sentences
from program.models.rules.words import content_stems, expected_kinds, find_quantities, value_kinds
from program.passage import AUTHORITY
from program.signatures import Excerpt

# Log-odds of holding an asked fact; fitted by logistic regression on questions of the example's training topics, then
# rounded. Look-up and whole question count half each where both are named.
SIMILAR = 5.5  # cosine of the mean of the piece's tokens, read in its passage, with that of look-up and question
MATCHED = 10.5  # mean over the tokens of look-up and question of the best cosine in the piece, by rarity
COVERED = 3.8  # share of the look-up's words, weighted by rarity, in the piece
FRAMED = 4.4  # share of them in its title and introduction alone
KIND = 1.5  # it holds a new value of the likeliest kind
OTHER_KIND = 1.3  # it holds a value of a less likely kind
RANK = 1.0  # lost for each e-fold of the passage's place: passages come best first
ALIKE = 0.7  # cosine from which two pieces with differing numbers are taken to state the same thing
TitledPieces = tuple[str, tuple[str, ...]]
"""A passage's title, and the texts of its units."""
_NOW = re.compile(
    r"(?i)\b(?:now|nowadays|currently|current|latest|newest|today|these days"
    r"|this (?:week|month|year|winter|summer|season)|at the moment|right now|still|as things stand|at present)\b"
)
_PAST = re.compile(r"(?i)\b(?:in|before|until|during|under the|of|from) (?:\w+ )?((?:19|20)\d\d)\b")


class PieceTokens(Protocol):
    """The tokens of some pieces of text, and how many pieces there are.

    `names` are those of all tokens, `means` has a unit vector for each piece, `held` counts the pieces with a token.
    """

    @property
    def names(self) -> Sequence[str]: ...
    @property
    def means(self) -> NDArray[np.float16]: ...
    @property
    def held(self) -> Mapping[str, int]: ...
    def __len__(self) -> int: ...


class Encoder(Protocol):
    """A text encoder: unit vectors of texts, tokens of passages, and the best cosine of each token in each piece."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]: ...
    def read(self, passages: Sequence[TitledPieces]) -> Sequence[PieceTokens]: ...
    def alike(self, text: str, passages: Sequence[TitledPieces]) -> NDArray[np.float64]: ...


def score_units(
    question: str, queries: Sequence[str], found: Sequence[Quotable], embedder: Encoder
) -> NDArray[np.float64]:
    """Return the log-odds, up to a constant, that a unit holds what a query asks for.

    The shape is (queries, units).
    """
    grouped = [list(units) for _, units in groupby(found, lambda unit: unit.n)]
    passages = [(units[0].title, tuple(unit.text for unit in units)) for units in grouped]
    texts = list(dict.fromkeys((question, *queries)))
    parts, asked = embedder.read(passages), embedder.read([("", (text,)) for text in texts])
    weights = _token_rarity(parts)
    means = np.concatenate([part.means for part in parts]).astype(np.float64)
    near = {
        text: SIMILAR * (means @ told.means[0].astype(np.float64))
        + MATCHED * _max_sim(told.names, embedder.alike(text, passages), weights)
        for text, told in zip(texts, asked, strict=True)
    }
    return np.stack([(near[question] + near[query]) / 2 for query in queries]) + _lexical_points(queries, found)


def _token_rarity(parts: Sequence[PieceTokens]) -> dict[str, float]:
    """Weigh each token by ln(1 + pieces / pieces that hold it); `""` has the weight of any other."""
    counts, n = Counter[str](), sum(len(part) for part in parts)
    for part in parts:
        counts.update(part.held)
    return {name: math.log(1 + n / held) for name, held in counts.items()} | {"": math.log(1 + n)}


def _max_sim(names: Sequence[str], best: NDArray[np.float64], weights: Mapping[str, float]) -> NDArray[np.float64]:
    """Return each piece's mean over a query's tokens of their `best` cosine, by weight (arXiv 2004.12832)."""
    weight = np.array([weights.get(name, weights[""]) for name in names])
    return np.asarray(weight @ best / weight.sum())


def place_penalty(found: Sequence[Quotable]) -> NDArray[np.float64]:
    """Return the log-odds that each unit loses by the place of its passage."""
    return np.asarray(RANK * np.log([max(unit.n, 1) for unit in found]))


def _last_sentence(query: str) -> str:
    sentences = split_sentences(" ".join(query.split()))
    return sentences[-1] if sentences else query


def _lexical_points(queries: Sequence[str], found: Sequence[Quotable]) -> NDArray[np.float64]:
    asks = [_last_sentence(query) for query in queries] if len(queries) > 1 else queries
    weights = stem_rarity(found)
    said = [set(content_stems(unit.text)) for unit in found]
    framing = [set(content_stems(unit.context)) - own for unit, own in zip(found, said, strict=True)]
    points = np.zeros((len(queries), len(found)))
    for i, (query, ask) in enumerate(zip(queries, asks, strict=True)):
        asked = dict.fromkeys(content_stems(ask) or content_stems(query))  # in order: a sum's last bits depend on it
        total = sum(weights.get(word, weights[""]) for word in asked) or 1.0
        wanted, given = expected_kinds(ask), find_quantities(query)
        for j, unit in enumerate(found):
            points[i, j] = (
                COVERED * sum(weights[word] for word in asked if word in said[j])
                + FRAMED * sum(weights.get(word, weights[""]) for word in asked if word in framing[j])
            ) / total + _kind_points(wanted, unit, given)
    return points


def _kind_points(wanted: tuple[str, ...], unit: Quotable, given: frozenset[tuple[str, str]]) -> float:
    held = value_kinds(unit.text)
    if find_quantities(unit.text) <= given:  # only values that the asker gave: no answer in them
        held = held & {"name", "reason"}
    if wanted and wanted[0] in held:
        return KIND
    return OTHER_KIND if held.intersection(wanted) else 0.0


def stem_rarity(found: Sequence[Quotable]) -> dict[str, float]:
    """Weigh each stem by ln(1 + units / units that hold it); `""` is any other stem."""
    counts = Counter(word for unit in found for word in set(content_stems(unit.text)))
    return {word: math.log(1 + len(found) / n) for word, n in counts.items()} | {"": math.log(1 + len(found))}


def _differ_in_number(one: Quotable, other: Quotable) -> bool:
    """Tell whether units of different passages give one measure different numbers."""
    if one.n == other.n:
        return False
    a, b = find_quantities(one.text), find_quantities(other.text)
    shared = {unit for unit, _ in a if unit} & {unit for unit, _ in b if unit}
    return any({v for u, v in a if u == unit}.isdisjoint(v for u, v in b if u == unit) for unit in shared)


class Contradictions:
    """Units that contradict each other: other numbers, said of the same thing.

    A pair is compared once, and only units that state other numbers are embedded.
    """

    def __init__(self, found: Sequence[Quotable], embedder: Encoder) -> None:
        self._found = found
        self._embedder = embedder
        self._known: dict[tuple[int, int], bool] = {}

    def find_among(self, places: Sequence[int]) -> dict[int, list[int]]:
        """Map each of those places to the others whose units contradict its own."""
        pairs = list(combinations(sorted(places), 2))
        new = [pair for pair in pairs if pair not in self._known]
        self._known.update(dict.fromkeys(new, False))
        other = [(j, k) for j, k in new if _differ_in_number(self._found[j], self._found[k])]
        if other:
            stating = sorted({j for pair in other for j in pair})
            texts = [
                f"{unit.context.rpartition(' > ')[2]}: {unit.text}" for unit in map(self._found.__getitem__, stating)
            ]
            vectors = dict(zip(stating, self._embedder.encode(texts), strict=True))
            self._known.update({(j, k): float(vectors[j] @ vectors[k]) >= ALIKE for j, k in other})
        against: dict[int, list[int]] = {j: [] for j in places}
        for j, k in pairs:
            if self._known[j, k]:
                against[j].append(k)
                against[k].append(j)
        return against


def rank_trust(question: str, passages: Sequence[Excerpt]) -> dict[int, tuple[int, ...]]:
    """Return what orders rival passages, by number: authority, then date.

    The date comes first when the question asks of now or of a year.
    """
    past = _PAST.search(question)
    now = bool(_NOW.search(question))

    def rank_of(passage: Excerpt) -> tuple[int, ...]:
        day = (passage.as_of or date.min).toordinal()
        authority = AUTHORITY.get(passage.authority, AUTHORITY["reviewed"])
        if past and passage.as_of:
            return (-abs(passage.as_of.year - int(past[1])), authority, day)
        return (day, authority) if now else (authority, day)

    return {passage.n: rank_of(passage) for passage in passages}
