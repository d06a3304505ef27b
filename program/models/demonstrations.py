"""A decision put, and the demonstrations it comes with, in an order of their own."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import orjson

from program.models.encoder import Embedder
from program.models.features import VERSION, Space, case
from program.models.labels import label_of, options_of
from program.models.reading import Vector

LARGEST_GROUP = 8  # folds cannot be made of groups larger than one part in so many
SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


@dataclass(frozen=True, eq=False)
class Question:
    """One decision asked for: the output field, its type, instructions and criteria as DSPy puts them."""

    field: str
    put: Mapping[str, Any]
    peers: tuple[str, ...] = ()

    @classmethod
    def of(cls, field: str, questions: Mapping[str, Mapping[str, Any]]) -> Question:
        """The field's question. Its peers are what is put for other fields of one prefix (`base_...`)."""
        prefix, _, base = field.partition("_")
        others = [n for n in sorted(questions) if n != field and base and n.startswith(f"{prefix}_")]
        return cls(field, questions[field], tuple(cls(n, questions[n]).told for n in others))

    @property
    def base(self) -> str:
        """The knowledge base the field may be named after: `billing` of `base_billing`."""
        return self.field.partition("_")[2]

    @property
    def told(self) -> str:
        said = self.put.get("instructions")
        return said if isinstance(said, str) else str(said or self.field)

    @cached_property
    def options(self) -> tuple[str, ...]:
        return options_of(self.put)

    @cached_property
    def digest(self) -> bytes:
        # An option's place counts: a head's columns are in the criteria's order.
        return digest(self.field.encode(), as_bytes([self.put, self.options, self.peers]))


class Demonstrations:
    """A request's demonstrations, parsed once. Whatever order they come in, they are kept in one order.

    `inputs` and `outputs` are the names that hold what is judged and its labels. `reader` names what reads
    the inputs (an embedding model's digest): under another, `digest` is another too.
    """

    def __init__(
        self,
        demos: Sequence[Mapping[str, Any]],
        inputs: Collection[str],
        outputs: Collection[str],
        described: str,
        reader: str,
    ) -> None:
        given = [{k: v for k, v in demo.items() if k in inputs} for demo in demos]
        labels = [{k: v for k, v in demo.items() if k in outputs} for demo in demos]
        written = [as_bytes(g, SORTED) for g in given]
        order = sorted(range(len(demos)), key=lambda n: (written[n], as_bytes(labels[n], SORTED)))
        self.cases = [case(given[n], described) for n in order]
        self._written = [written[n] for n in order]
        self._labels = [labels[n] for n in order]
        self.digest = digest(VERSION, reader.encode(), as_bytes(described), *self._written).hex()
        self._keys: dict[bytes, str | None] = {}
        self._blocks: list[dict[str, Vector]] | None = None

    @cached_property
    def space(self) -> Space:
        return Space.of(self.cases)

    def blocks(self, space: Space, embedder: Embedder) -> list[dict[str, Vector]]:
        """The blocks of every case, computed once: `space` must be of these demonstrations."""
        if self._blocks is None:
            self._blocks = space.blocks(self.cases, embedder)
        return self._blocks

    def labelled(self, question: Question) -> list[tuple[int, int]]:
        """(place, option) of each labelled demonstration, in an order that other fields do not change."""
        found = [(n, label_of(own.get(question.field), question.put)) for n, own in enumerate(self._labels)]
        pairs = [(n, label) for n, label in found if label is not None]
        return sorted(pairs, key=lambda pair: (self._written[pair[0]], pair[1]))

    def groups(self) -> list[str]:
        """For each case a name that it shares with those too like it to be scored apart from it.

        These ask the same thing, or have the same text as their nearest evidence, so that what is chosen is
        what carries over to evidence not seen; unless that would put most cases together.
        """
        near = [f"\n{c.evidence[0].title}\n{c.evidence[0].text}" if c.evidence else c.asked for c in self.cases]
        joined = _joined([(c.asked, n) for c, n in zip(self.cases, near, strict=True)])
        largest = max(joined.count(name) for name in set(joined)) if joined else 0
        return joined if largest <= len(joined) / LARGEST_GROUP else [c.asked for c in self.cases]

    def counts(self, question: Question) -> list[int]:
        """How many demonstrations name each option."""
        labels = [label for _, label in self.labelled(question)]
        return [labels.count(n) for n in range(len(question.options))]

    def head_key(self, question: Question) -> str | None:
        """Names the head fitted on these labels, or None when fewer than two options have one."""
        if question.digest not in self._keys:
            labels = self.labelled(question)
            several = len({label for _, label in labels}) > 1
            told = digest(question.digest, *(self._written[n] + b"%d" % label for n, label in labels))
            self._keys[question.digest] = f"{self.digest}-{told.hex()}" if several else None
        return self._keys[question.digest]


def _joined(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """For each pair the least of all texts that chains of pairs with a text in common connect it to."""
    least: dict[str, str] = {}

    def root(text: str) -> str:
        while least.setdefault(text, text) != text:
            text = least[text]
        return text

    for one, other in pairs:
        low, high = sorted((root(one), root(other)))
        least[high] = low
    return [root(one) for one, _ in pairs]


def as_bytes(value: Any, option: int = orjson.OPT_NON_STR_KEYS) -> bytes:
    """JSON of any value; what JSON cannot hold is written as its `str`."""
    try:
        return orjson.dumps(value, default=str, option=option)
    except orjson.JSONEncodeError:  # half a character of UTF-16, or an integer past 64 bits
        return json.dumps(value, default=str, sort_keys=True).encode()


def digest(*parts: bytes) -> bytes:
    """12 bytes that differ when any part, or where one ends, differs."""
    hashed = blake2b(digest_size=12)
    for part in parts:
        hashed.update(len(part).to_bytes(8, "little") + part)
    return hashed.digest()
