"""What can be said of a decision before any demonstration: soft answers from similarity and coverage."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from program.knowledge.embedder import Embedder
from program.models.bearing import NAMES
from program.models.features import Case, card, own_base
from program.models.labels import options_of
from program.models.reading import Vector

MOST_OPTIONS = 12  # more, and their similarities add nothing to the embedding itself
WARMTH = 0.1  # cosine difference that makes one option e times as likely as another
ABOUT_EVIDENCE = re.compile(r"\b(?:passages?|excerpts?|documents?|evidence|text|states?|draft|context)\b", re.IGNORECASE)
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


def prior(field: str, question: Mapping[str, Any], case: Case, found: Vector, embedder: Embedder) -> Prior:
    """The answer of someone who knows only the question put, its options, and the inputs.

    `found` is what `bearing` says of the case.
    """
    asked = embedder.encode([case.asked])[0]
    options = options_of(question)
    if question["type"] == "noul":
        return _noul(field, question, case, asked, found, embedder)
    criteria = question.get("criteria") or {}
    told = criteria.values() if isinstance(criteria, Mapping) else criteria
    named = [label if question["type"] == "choice" else "" for label in options]
    sims = embedder.encode([card(label, said) for label, said in zip(named, told, strict=True)]) @ asked
    logits = (sims - sims.mean()) / WARMTH
    return Prior(logits.astype(np.float64), sims if len(options) <= MOST_OPTIONS else sims[:0])


def _noul(
    field: str, question: Mapping[str, Any], case: Case, asked: Vector, found: Vector, embedder: Embedder
) -> Prior:
    said = question.get("instructions")
    told = embedder.encode([said if isinstance(said, str) else str(said or field)])[0]
    rows = embedder.encode([t.embedded for t in case.evidence])
    near = float(told @ asked)
    base = own_base(case, rows @ asked if len(rows) else np.zeros(0, np.float32), field)
    if case.evidence and ABOUT_EVIDENCE.search(str(said)):
        logit = _bearing_logit(found)
    else:
        logit = 4.0 * (near - 0.3) + (3.0 * base[1] if base[0] else 0.0)
    logit = 1.1 * float(np.tanh(logit))  # at most .75, at least .25
    return Prior(np.array([0.0, logit]), np.array([near, logit, *base], np.float32))


def _bearing_logit(found: Vector) -> float:
    covered = float(found[AT["cover_union"]]) + 0.5 * float(found[AT["chain_any"]])
    return 3.0 * (covered - 0.8) + 1.5 * (float(found[AT["top"]]) - 0.5)
