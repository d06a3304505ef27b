"""What can be said of a decision before any demonstration: soft answers from similarity and coverage."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from program.models.demonstrations import Question
from program.models.encoder import Embedder
from program.models.features import Case, card
from program.models.reading import Rarity, Vector
from program.models.rules.evidence_features import FEATURE_NAMES, read_words

MOST_OPTIONS = 12  # more, and their similarities add nothing to the embedding itself
WARMTH = 0.1  # cosine difference that makes one option e times as likely as another
ABOUT_EVIDENCE = re.compile(r"\b(?:passages?|excerpts?|documents?|evidence|text|states?|draft)\b", re.I)
OWN, PRESENT, LEAD = 9, 0, 2
AT = {name: n for n, name in enumerate(FEATURE_NAMES)}


@dataclass(frozen=True)
class Prior:
    """`logits` over the options, and the `features` a head may use (the logits among them)."""

    logits: NDArray[np.float64]
    features: Vector

    def probabilities(self, counts: Sequence[int]) -> NDArray[np.float64]:
        """Shape (options,), summing to 1; labels of one option only move the answer as its prior would."""
        logits = self.logits + np.log(np.asarray(counts, np.float64) + 1)
        powers = np.exp(logits - logits.max())
        return np.asarray(powers / powers.sum())


def prior(question: Question, case: Case, found: Vector, embedder: Embedder, rarity: Rarity) -> Prior:
    """The answer of someone who knows only the question put, its options, and the inputs.

    `found` is what `bearing` says of the case.
    """
    if question.put["type"] == "noul":
        return _noul(question, case, found, embedder, rarity)
    options, criteria = question.options, question.put.get("criteria") or {}
    asked = embedder.encode([case.asked])[0]
    told = criteria.values() if isinstance(criteria, Mapping) else criteria
    named = [label if question.put["type"] == "choice" else "" for label in options]
    sims = embedder.encode([card(label, said) for label, said in zip(named, told, strict=True)]) @ asked
    logits = (sims - sims.mean()) / WARMTH
    return Prior(logits.astype(np.float64), sims if len(options) <= MOST_OPTIONS else sims[:0])


def _noul(question: Question, case: Case, found: Vector, embedder: Embedder, rarity: Rarity) -> Prior:
    texts = (case.asked, question.told, *question.peers, *(t.embedded for t in case.evidence))
    asked, told, *others = embedder.encode(texts)
    nears = np.array([told @ asked, *(row @ asked for row in others[: len(question.peers)])], np.float32)
    sims = np.array([row @ asked for row in others[len(question.peers) :]], np.float32)
    near, beside = float(nears[0]), nears[1:] if len(nears) > 1 else nears
    own = of_base(case, sims, question.base, rarity)
    if case.evidence and not question.peers and ABOUT_EVIDENCE.search(question.told):
        logit = _bearing_logit(found)
    elif question.peers and own[PRESENT]:
        logit = 4.0 * (near - float(beside.max())) + 4.0 * own[LEAD] + 0.5
    else:
        logit = 4.0 * (near - 0.3)
    logit = 1.1 * float(np.tanh(logit))  # at most .75, at least .25
    features = [near, near - float(beside.max()), near - float(beside.mean()), logit, *own]
    return Prior(np.array([0.0, logit]), np.array(features, np.float32))


def of_base(case: Case, sims: Vector, base: str, rarity: Rarity) -> list[float]:
    """How the evidence of one knowledge base stands beside the others': OWN numbers, 0 without any.

    In order: whether there is any, its best similarity, its lead over the others' best, whether it comes
    first, its share of the first three and of all, one over its best rank, the share of the question's words
    that it covers, and its lead in that over what the others cover.
    """
    order = np.argsort(-sims, kind="stable").tolist()
    ranks = [rank for rank, i in enumerate(order) if base and case.evidence[i].base == base]
    if not ranks:
        return [0.0] * OWN
    best = float(sims[order[ranks[0]]])
    other = max((float(sims[i]) for i in order if case.evidence[i].base != base), default=best)
    words = read_words("", case.asked).words
    whole = rarity.of_all(words) + 1e-9
    covers = [0.0, 0.0]
    for own in (False, True):
        held = [read_words(t.title, t.text).words for t in case.evidence if (t.base == base) is own]
        covers[own] = rarity.of_all(words & frozenset().union(*held)) / whole
    return [
        1.0, best, best - other, float(ranks[0] == 0), sum(r < 3 for r in ranks) / 3, len(ranks) / len(order),
        1 / (1 + ranks[0]), covers[1], covers[1] - covers[0],
    ]  # fmt: skip


def _bearing_logit(found: Vector) -> float:
    covered = float(found[AT["cover_union"]]) + 0.5 * float(found[AT["chain_any"]])
    return 3.0 * (covered - 0.8) + 1.5 * (float(found[AT["top"]]) - 0.5)
