"""A decision that is put, the demonstrations it comes with, and what can be said of it before any demonstration."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import orjson

from ragc.models.embedded.encoder import Embedder
from ragc.models.embedded.features import (
    VERSION,
    Case,
    FeatureSpace,
    Vector,
    WordRarity,
    compare_turns,
    read_case,
    word_set,
)
from ragc.models.embedded.heads import Head
from ragc.models.embedded.reader import Reader
from ragc.signatures import BASE_PREFIX, NEEDS_BASE, FollowsOn, words_of

FOLLOWS_ON = words_of(FollowsOn, "follows_on")
"""The words of a decision for which there is a prior: a field of the same name is anybody's."""
TRUE = frozenset({"true", "yes", "1", "1.0"})
FALSE = frozenset({"false", "no", "0", "0.0"})
SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
MOST_OPTIONS = 12  # more, and their similarities add nothing to the embedding itself
WARMTH = 0.1  # cosine difference that makes one option e times as likely as another
FEW_ASKED = 8  # different questions, of which no fold could be left out
WARY = 4.0  # the reader's logits that count for one

Demos = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Question:
    """One decision asked for: the output field, and its type, instructions and criteria as DSPy puts them."""

    field: str
    put: Mapping[str, Any]
    peers: tuple[str, ...] = ()
    """What is put for the other knowledge bases, where it is asked if one is needed."""
    alone: bool = True
    """Whether nothing else is asked of the same inputs: what is asked of evidence alone is what it states."""

    @classmethod
    def from_questions(cls, field: str, questions: Mapping[str, Mapping[str, Any]]) -> Question:
        """Return the field's question."""
        put = {name: cls(name, questions[name]) for name in sorted(questions)}
        others = [one.told for name, one in put.items() if name != field and put[field].base and one.base]
        return cls(field, questions[field], tuple(others), len(questions) == 1)

    @property
    def base(self) -> str:
        """The knowledge base that is asked about: `billing` of `base_billing`."""
        return self.field.removeprefix(BASE_PREFIX) if self.told.startswith(NEEDS_BASE) else ""

    @property
    def told(self) -> str:
        """The instructions, or the field's name without any."""
        said = self.put.get("instructions")
        return said if isinstance(said, str) else str(said or self.field)

    @property
    def follows(self) -> bool:
        """Whether it is asked if a question follows on from a conversation."""
        return self.told == FOLLOWS_ON

    @cached_property
    def options(self) -> tuple[str, ...]:
        """The keys of the probabilities: `("false", "true")` for a noul, levels for a score."""
        criteria = self.put.get("criteria") or ()
        if self.put["type"] == "noul":
            return ("false", "true")
        return tuple(map(str, range(len(criteria)))) if self.put["type"] == "score" else tuple(criteria)

    @cached_property
    def digest(self) -> bytes:
        """Identity of what is asked; an option's place counts, as a head's columns are in the criteria's order."""
        return _digest(self.field.encode(), to_json_bytes([self.put, self.options, self.peers]))

    def label_of(self, value: Any) -> int | None:
        """Return the index of the option that a demonstration names, if any.

        A label is a plain value or a decision as DSPy serialises it, an object with a `value` (and, for a score, a
        `level`). A score between two levels counts for the nearer.
        """
        is_score = self.put["type"] == "score"
        if isinstance(value, Mapping):
            level = value.get("level")
            value = level if is_score and level is not None else value.get("value")
        if is_score:
            return min(max(round(float(value)), 0), len(self.options) - 1) if isinstance(value, int | float) else None
        text = str(value)
        if self.put["type"] == "noul":
            word = text.strip().lower()
            return 1 if word in TRUE else 0 if word in FALSE else None
        return self.options.index(text) if text in self.options else None


class DemonstrationSet:
    """A request's demonstrations, parsed once and kept in one order, whatever order they come in.

    `inputs` are the names that hold what is judged, `questions` is what is put of it; `read_by` tells the models that
    read the inputs.
    """

    def __init__(
        self,
        demos: Demos,
        inputs: Collection[str],
        questions: Mapping[str, Mapping[str, Any]],
        described: str,
        read_by: str,
    ) -> None:
        given = [{k: v for k, v in demo.items() if k in inputs} for demo in demos]
        labels = [{k: v for k, v in demo.items() if k in questions} for demo in demos]
        written = [to_json_bytes(g, SORTED) for g in given]
        order = sorted(range(len(demos)), key=lambda n: (written[n], to_json_bytes(labels[n], SORTED)))
        self.described = described
        self.cases = [read_case(given[n], described) for n in order]
        self._written = [written[n] for n in order]
        self._labels = [labels[n] for n in order]
        self.digest = _digest(VERSION, read_by.encode(), to_json_bytes(described), *self._written).hex()
        self._keys: dict[bytes, str | None] = {}
        self._blocks: list[dict[str, Vector]] = []

    @cached_property
    def space(self) -> FeatureSpace:
        """What these demonstrations fix for every case read in their light."""
        return FeatureSpace.from_cases(self.cases)

    def compute_blocks(self, embedder: Embedder, reader: Reader) -> list[dict[str, Vector]]:
        """Return the blocks of every case, computed once."""
        self._blocks = self._blocks or self.space.compute_blocks(self.cases, embedder, reader)
        return self._blocks

    def labelled(self, question: Question) -> list[tuple[int, int]]:
        """Return the place and option of each demonstration labelled in this field."""
        found = [(n, question.label_of(own.get(question.field))) for n, own in enumerate(self._labels)]
        pairs = [(n, label) for n, label in found if label is not None]
        return sorted(pairs, key=lambda pair: (self._written[pair[0]], pair[1]))

    def head_key(self, question: Question) -> str | None:
        """Return the name of the head fitted on these labels, if any.

        None is fitted when fewer than two options have a label, nor on evidence or a conversation of fewer than
        FEW_ASKED questions: what the reader says by itself is better than that.
        """
        if question.digest not in self._keys:
            labels = self.labelled(question)
            several = len({label for _, label in labels}) > 1
            if question.alone and any(question.follows or self.cases[n].evidence for n, _ in labels):
                several = several and len({self.cases[n].asked for n, _ in labels}) >= FEW_ASKED
            told = _digest(question.digest, *(self._written[n] + b"%d" % label for n, label in labels))
            self._keys[question.digest] = f"{self.digest}-{told.hex()}" if several else None
        return self._keys[question.digest]


def to_json_bytes(value: Any, option: int = orjson.OPT_NON_STR_KEYS) -> bytes:
    """Return JSON of any value; what JSON cannot hold is written as its `str`."""
    try:
        return orjson.dumps(value, default=str, option=option)
    except orjson.JSONEncodeError:  # half a character of UTF-16, or an integer past 64 bits
        return json.dumps(value, default=str, sort_keys=True).encode()


def _digest(*parts: bytes) -> bytes:
    """Return 12 bytes that differ when any part, or where one ends, differs."""
    hashed = blake2b(digest_size=12)
    for part in parts:
        hashed.update(len(part).to_bytes(8, "little") + part)
    return hashed.digest()


def answer_untaught(
    question: Question, case: Case, blocks: Mapping[str, Vector], embedder: Embedder, rarity: WordRarity, prior: Head
) -> tuple[Vector, Vector]:
    """Return the logits of who saw no demonstration, and what a head may use too.

    The logits, one an option, come from the question put, its options, and the inputs; those of what a quotation states
    come from `prior`, and so do those of whether a question follows on.
    """
    if question.follows and case.turns:
        row = compare_turns(case, embedder)
        logit = prior.calibrated_logits({"options": row})[0]
        return np.array([0.0, logit], np.float32), np.append(row, np.float32(logit))
    if question.alone and case.quoted:
        return np.array([0.0, prior.calibrated_logits(blocks)[0]], np.float32), np.zeros(0, np.float32)
    if question.put["type"] == "noul":
        return _answer_noul(question, case, blocks, embedder, rarity)
    criteria = question.put.get("criteria") or {}
    told = criteria.values() if isinstance(criteria, Mapping) else criteria
    named = [re.sub(r"\W+", " ", label.replace("_", " ")).strip() for label in question.options]
    named = named if question.put["type"] == "choice" else [""] * len(named)
    texts = [f"{name}: {said}" if said else name for name, said in zip(named, told, strict=True)]
    sims = embedder.encode(texts) @ embedder.encode([case.asked])[0]
    return (sims - sims.mean()) / WARMTH, sims if len(question.options) <= MOST_OPTIONS else sims[:0]


def _answer_noul(
    question: Question, case: Case, blocks: Mapping[str, Vector], embedder: Embedder, rarity: WordRarity
) -> tuple[Vector, Vector]:
    asked, *rows = embedder.encode([case.asked, question.told, *question.peers])
    near, *others = (float(row @ asked) for row in rows)
    beside = others or [near]
    own = _compare_base(case, blocks, question.base, rarity)
    if case.evidence and question.alone:
        logit = float(blocks["answers"].max()) / WARY
    elif question.peers and own[0]:
        logit = 4.0 * (near - max(beside)) + 4.0 * own[2] + 0.5
    else:
        logit = 4.0 * (near - 0.3)
    soft = np.array([0.0, 1.1 * np.tanh(logit)], np.float32)  # at most .75, at least .25
    return soft, np.array([near, near - max(beside), near - sum(beside) / len(beside), *own], np.float32)


def _compare_base(case: Case, blocks: Mapping[str, Vector], base: str, rarity: WordRarity) -> list[float]:
    """Return how the evidence of one knowledge base stands beside the others': ten numbers, 0 without any.

    In order: whether there is any; its best similarity, and its lead in that; one over its best rank; its share of the
    first three and of all; the share of the question's words that it covers, and its lead; how surely it answers, and
    its lead.
    """
    own = np.array([bool(base) and text.base == base for text in case.evidence], bool)
    if not own.any():
        return [0.0] * 10
    sims, answers = blocks["similarities"], blocks["answers"]
    ranks = np.flatnonzero(own[np.argsort(-sims, kind="stable")])
    covers = []
    for some in (own, ~own):
        held = (word_set(text.embedded) for text, is_some in zip(case.evidence, some, strict=True) if is_some)
        covers.append(rarity.share_of(word_set(case.asked), frozenset[str]().union(*held)))
    leads = [float(of[own].max() - of[~own].max()) if not own.all() else 0.0 for of in (sims, answers)]
    return [
        *(1.0, float(sims[own].max()), leads[0], 1 / (1 + float(ranks[0])), float((ranks < 3).sum()) / 3, own.mean()),
        *(covers[0], covers[0] - covers[1], float(answers[own].max()), leads[1]),
    ]
