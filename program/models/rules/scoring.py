"""How well a quotable piece of a passage answers a look-up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from program.models.embedded.encoder import Embedder
from program.models.embedded.token_vectors import HeadedText, max_sim, token_rarity
from program.models.rules.units import Unit, split_sentences
from program.models.rules.words import expected, kinds, quantities, stems

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Log-odds of holding an asked fact; fitted by logistic regression on questions of the example's training topics, then
# rounded. Look-up and whole question count half each where both are named.
SIMILAR = 5.5  # cosine of the mean of the piece's tokens, read in its passage, with that of look-up and question
MATCHED = 10.5  # mean over the tokens of look-up and question of the best cosine in the piece, by rarity
COVERED = 3.8  # share of the look-up's words, weighted by rarity, in the piece
FRAMED = 4.4  # share of them in its title and introduction alone
KIND = 1.5  # it holds a new value of the likeliest kind
OTHER_KIND = 1.3  # it holds a value of a less likely kind
RANK = 1.0  # lost for each e-fold of the passage's place: passages come best first


def score(question: str, queries: Sequence[str], found: Sequence[Unit], embedder: Embedder) -> NDArray[np.float64]:
    """Shape (queries, units): log-odds, up to a constant, that a unit holds what a query asks for."""
    passages = [_readable(list(units)) for _, units in groupby(found, lambda unit: unit.n)]
    texts = list(dict.fromkeys((question, *queries)))
    parts, asked = embedder.read(passages), embedder.read([("", (text,)) for text in texts])
    weights = token_rarity(parts)
    means = np.concatenate([part.means for part in parts]).astype(np.float64)
    near = {
        text: SIMILAR * (means @ told.means[0].astype(np.float64))
        + MATCHED * max_sim(told.names, embedder.alike(text, passages), weights)
        for text, told in zip(texts, asked, strict=True)
    }
    return np.stack([(near[question] + near[query]) / 2 for query in queries]) + _lexical(queries, found)


def by_place(found: Sequence[Unit]) -> NDArray[np.float64]:
    """Shape (units,): the log-odds that each loses by the place of its passage."""
    return np.asarray(RANK * np.log([max(unit.n, 1) for unit in found]))


def _readable(units: Sequence[Unit]) -> HeadedText:
    """The units of one passage, to be read behind its title."""
    return units[0].title, tuple(unit.text for unit in units)


def _ask(query: str) -> str:
    """The last sentence of a look-up, the one that asks."""
    sentences = split_sentences(" ".join(query.split()))
    return sentences[-1] if sentences else query


def _lexical(queries: Sequence[str], found: Sequence[Unit]) -> NDArray[np.float64]:
    asks = [_ask(query) for query in queries] if len(queries) > 1 else queries
    weights = rarity(found)
    said = [set(stems(unit.text)) for unit in found]
    framing = [set(stems(unit.context)) - own for unit, own in zip(found, said, strict=True)]
    points = np.zeros((len(queries), len(found)))
    for i, (query, ask) in enumerate(zip(queries, asks, strict=True)):
        asked = dict.fromkeys(stems(ask) or stems(query))  # in order: a sum's last bits depend on it
        total = sum(weights.get(word, weights[""]) for word in asked) or 1.0
        wanted, given = expected(ask), quantities(query)
        for j, unit in enumerate(found):
            points[i, j] = (
                COVERED * sum(weights[word] for word in asked if word in said[j])
                + FRAMED * sum(weights.get(word, weights[""]) for word in asked if word in framing[j])
            ) / total + _kind(wanted, unit, given)
    return points


def _kind(wanted: tuple[str, ...], unit: Unit, given: frozenset[tuple[str, str]]) -> float:
    held = kinds(unit.text)
    if quantities(unit.text) <= given:  # only values that the asker gave: no answer in them
        held = held & {"name", "reason"}
    if wanted and wanted[0] in held:
        return KIND
    return OTHER_KIND if held.intersection(wanted) else 0.0


def rarity(found: Sequence[Unit]) -> dict[str, float]:
    """The weight of each stem: ln(1 + pieces / pieces that hold it); `""` is the weight of any other stem."""
    counts = Counter(word for unit in found for word in set(stems(unit.text)))
    return {word: math.log(1 + len(found) / n) for word, n in counts.items()} | {"": math.log(1 + len(found))}
