"""What can be said of a decision before any demonstration: soft answers from similarity and coverage."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from program.knowledge.embedder import Embedder
from program.models.bearing import NAMES
from program.models.demonstrations import Question
from program.models.features import Case, card, own_base
from program.models.reading import Vector

MOST_OPTIONS = 12  # more, and their similarities add nothing to the embedding itself
WARMTH = 0.1  # cosine difference that makes one option e times as likely as another
ABOUT_EVIDENCE = re.compile(r"\b(?:passages?|excerpts?|documents?|evidence|text|states?|draft)\b", re.I)
AT = {name: n for n, name in enumerate(NAMES)}


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


def prior(question: Question, case: Case, found: Vector, embedder: Embedder) -> Prior:
    """The answer of someone who knows only the question put, its options, and the inputs.

    `found` is what `bearing` says of the case.
    """
    if question.put["type"] == "noul":
        return _noul(question, case, found, embedder)
    options, criteria = question.options, question.put.get("criteria") or {}
    asked = embedder.encode([case.asked])[0]
    told = criteria.values() if isinstance(criteria, Mapping) else criteria
    named = [label if question.put["type"] == "choice" else "" for label in options]
    sims = embedder.encode([card(label, said) for label, said in zip(named, told, strict=True)]) @ asked
    logits = (sims - sims.mean()) / WARMTH
    return Prior(logits.astype(np.float64), sims if len(options) <= MOST_OPTIONS else sims[:0])


def _noul(question: Question, case: Case, found: Vector, embedder: Embedder) -> Prior:
    said = question.put.get("instructions")
    told = said if isinstance(said, str) else str(said or question.field)
    asked, told_row, *rest = embedder.encode([case.asked, told, *(t.embedded for t in case.evidence)])
    sims = np.array([row @ asked for row in rest], np.float32)
    near = float(told_row @ asked)
    base = own_base(case, sims, question.field)
    if case.evidence and ABOUT_EVIDENCE.search(told):
        logit = _bearing_logit(found)
    else:
        logit = 4.0 * (near - 0.3) + (3.0 * base[1] if base[0] else 0.0)
    logit = 1.1 * float(np.tanh(logit))  # at most .75, at least .25
    return Prior(np.array([0.0, logit]), np.array([near, logit, *base], np.float32))


def _bearing_logit(found: Vector) -> float:
    covered = float(found[AT["cover_union"]]) + 0.5 * float(found[AT["chain_any"]])
    return 3.0 * (covered - 0.8) + 1.5 * (float(found[AT["top"]]) - 0.5)
