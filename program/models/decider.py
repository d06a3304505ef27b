"""A DSPy decision client on sentence embeddings: it learns from its demonstrations, and calls no model."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from program.errors import IntegrityError
from program.knowledge.embedder import MINILM, Embedder
from program.models.features import Case, Space, case
from program.models.heads import Head, fit
from program.models.labels import label_of, options_of
from program.models.priors import Prior, prior
from program.models.reading import Rarity, Vector

HEADS_KEPT = 512
SETS_KEPT = 16
SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
DIGITS = 6  # finer differences between two machines' arithmetic are not told apart


class LocalDecider:
    """Answers decision requests with calibrated probabilities.

    Give it to DSPy as a language model (`dspy.configure(lm=LocalDecider(embedder))`). For each output field
    a head is fitted on the request's demonstrations when they are first seen, and kept; a field without
    labels for at least two of its options is answered from similarity alone, softly. The signature's own
    instructions are for language models and do not enter. The same request gets the same answer, whatever
    the order of its demonstrations. Safe from many threads.
    """

    supports_decision_requests = True

    def __init__(self, embedder: Embedder, model: str = MINILM) -> None:
        self.embedder = embedder
        self.model = model
        self.callbacks: list[Any] = []
        self.cache = False
        self.kwargs: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._sets: OrderedDict[bytes, _Demonstrations] = OrderedDict()
        self._heads: OrderedDict[str, Head] = OrderedDict()
        self._spaces: dict[str, Space] = {}

    def __call__(self, state: Mapping[str, Any], questions: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """For each field `{"noul": p}`, or `{"probabilities": {option: p}, "confidence": the largest}`."""
        described = str(state.get("input_fields") or "")
        asked = case(state["inputs"], described)
        shown = self._shown(state.get("demos") or (), questions, described)
        blocks = shown.space.blocks([asked], self.embedder)[0]
        return {field: self._answer(field, question, asked, blocks, shown) for field, question in questions.items()}

    async def acall(self, state: Mapping[str, Any], questions: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The same answer, worked out in another thread."""
        return await asyncio.to_thread(self, state, questions)

    def __deepcopy__(self, memo: dict[int, Any]) -> LocalDecider:
        return self  # copies of a program share what was fitted

    def export_heads(self) -> dict[str, NDArray[Any]]:
        """Every fitted head as named arrays, fit for safetensors; names carry digests of what was fitted on."""
        with self._lock:
            found: dict[str, NDArray[Any]] = {}
            for key, head in sorted(self._heads.items()):
                found |= {f"head.{key}.{name}": array for name, array in head.arrays().items()}
                found |= _space_arrays(key.split("-")[0], self._spaces[key.split("-")[0]])
            return found

    def import_heads(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over exported heads, so that their demonstrations need no fitting here.

        Raises IntegrityError when an array is missing or of another form.
        """
        parts: dict[str, dict[str, dict[str, NDArray[Any]]]] = {"head": {}, "space": {}}
        try:
            for name, array in arrays.items():
                kind, key, part = name.split(".")
                parts[kind].setdefault(key, {})[part] = np.asarray(array)
            spaces = {key: _space(found) for key, found in parts["space"].items()}
            heads = {key: Head.from_arrays(found) for key, found in parts["head"].items()}
            if any(key.split("-")[0] not in spaces for key in heads):
                raise KeyError("space")
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise IntegrityError(
                f"The decision heads are not as they were exported ({error}).",
                "Compile again, or restore the artifact's heads.safetensors.",
            ) from error
        with self._lock:
            self._spaces |= spaces
            for key, head in heads.items():
                self._keep(key, head)

    def _answer(
        self, field: str, question: Mapping[str, Any], asked: Case, blocks: dict[str, Vector], shown: _Demonstrations
    ) -> dict[str, Any]:
        options = options_of(question)
        before = prior(field, question, asked, blocks["bearing"], self.embedder)
        head = self._head(field, question, shown, options)
        if head is None:
            probabilities = before.probabilities(shown.counts(field, question, options))
        else:
            probabilities = head.probabilities({**blocks, "options": before.features}, len(options))
        rounded = [round(float(p), DIGITS) for p in probabilities]
        if question["type"] == "noul":
            return {"noul": rounded[1]}
        return {"probabilities": dict(zip(options, rounded, strict=True)), "confidence": max(rounded)}

    def _shown(self, demos: Sequence[Mapping[str, Any]], outputs: Mapping[str, Any], described: str) -> _Demonstrations:
        key = _bytes([described, sorted(outputs), demos])  # itself the key: comparing it costs less than a digest
        with self._lock:
            shown = self._sets.get(key)
            if shown is None:
                shown = self._sets[key] = _Demonstrations(demos, frozenset(outputs), described, self._spaces)
            self._sets.move_to_end(key)
            while len(self._sets) > SETS_KEPT:
                self._sets.popitem(last=False)
            return shown

    def _head(
        self, field: str, question: Mapping[str, Any], shown: _Demonstrations, options: Sequence[str]
    ) -> Head | None:
        key = shown.head_key(field, question, options)
        if key is None:
            return None
        with self._lock:
            head = self._heads.get(key)
            if head is None:
                head = self._fitted(field, question, shown, options)
            self._keep(key, head)
            self._spaces.setdefault(shown.digest, shown.space)
            return head

    def _fitted(
        self, field: str, question: Mapping[str, Any], shown: _Demonstrations, options: Sequence[str]
    ) -> Head:
        labelled = shown.labelled(field, question, options)
        blocks = shown.blocks(self.embedder)
        cases = [
            {**blocks[i], "options": prior(field, question, shown.cases[i], blocks[i]["bearing"], self.embedder).features}
            for i, _ in labelled
        ]
        groups = [shown.cases[i].asked for i, _ in labelled]
        return fit(cases, [label for _, label in labelled], groups, shown.space.judged_against)

    def _keep(self, key: str, head: Head) -> None:
        self._heads[key] = head
        self._heads.move_to_end(key)
        while len(self._heads) > HEADS_KEPT:
            self._heads.popitem(last=False)
        if len(self._spaces) > HEADS_KEPT:
            used = {kept.split("-")[0] for kept in self._heads}
            self._spaces = {name: space for name, space in self._spaces.items() if name in used}


class _Demonstrations:
    """A request's demonstrations, in an order of their own, read once."""

    def __init__(
        self, demos: Sequence[Mapping[str, Any]], outputs: frozenset[str], described: str, known: Mapping[str, Space]
    ) -> None:
        pairs = [({k: v for k, v in demo.items() if k not in outputs}, demo) for demo in demos]
        keyed = sorted(((_bytes(inputs, SORTED), _bytes(demo, SORTED), inputs, demo) for inputs, demo in pairs), key=lambda p: p[:2])
        self.digest = _digest(described.encode(errors="surrogatepass"), *(p[0] for p in keyed)).hex()
        self.cases = [case(inputs, described) for _, _, inputs, _ in keyed]
        self._labels = [{k: v for k, v in demo.items() if k in outputs} for _, _, _, demo in keyed]
        self._inputs = [p[0] for p in keyed]
        self._known = known
        self._blocks: list[dict[str, Vector]] | None = None
        self._keys: dict[tuple[str, bytes], str | None] = {}

    @cached_property
    def space(self) -> Space:
        return self._known.get(self.digest) or Space.of(self.cases)

    def blocks(self, embedder: Embedder) -> list[dict[str, Vector]]:
        if self._blocks is None:
            self._blocks = self.space.blocks(self.cases, embedder)
        return self._blocks

    def labelled(self, field: str, question: Mapping[str, Any], options: Sequence[str]) -> list[tuple[int, int]]:
        """(place, option) of each demonstration that has a label for the field, in an order free of other fields."""
        found = [(i, label_of(labels.get(field), question, options)) for i, labels in enumerate(self._labels)]
        pairs = [(i, label) for i, label in found if label is not None]
        return sorted(pairs, key=lambda pair: (self._inputs[pair[0]], pair[1]))

    def counts(self, field: str, question: Mapping[str, Any], options: Sequence[str]) -> list[int]:
        """How many demonstrations name each option."""
        labels = [label for _, label in self.labelled(field, question, options)]
        return [labels.count(n) for n in range(len(options))]

    def head_key(self, field: str, question: Mapping[str, Any], options: Sequence[str]) -> str | None:
        """Names the head fitted on these labels, or None when fewer than two options have one."""
        asked = (field, _bytes(question))
        if asked not in self._keys:
            labelled = self.labelled(field, question, options)
            labels = b"".join(b"%d %d;" % pair for pair in labelled)
            several = len({label for _, label in labelled}) > 1
            self._keys[asked] = f"{self.digest}-{_digest(field.encode(), asked[1], labels).hex()}" if several else None
        return self._keys[asked]


def _bytes(value: Any, option: int = orjson.OPT_NON_STR_KEYS) -> bytes:
    try:
        return orjson.dumps(value, default=str, option=option)
    except orjson.JSONEncodeError:  # half a character of UTF-16, or an integer past 64 bits
        return json.dumps(value, default=str, sort_keys=True).encode()


def _digest(*parts: bytes) -> bytes:
    hashed = blake2b(digest_size=12)
    for part in parts:
        hashed.update(len(part).to_bytes(8, "little") + part)
    return hashed.digest()


def _space_arrays(key: str, space: Space) -> dict[str, NDArray[Any]]:
    words, word_counts = space.words.arrays()
    grams, gram_counts = space.grams.arrays()
    return {
        f"space.{key}.words": words,
        f"space.{key}.word_counts": word_counts,
        f"space.{key}.grams": grams,
        f"space.{key}.gram_counts": gram_counts,
        f"space.{key}.bases": np.array(space.bases, np.uint32),
        f"space.{key}.judged_against": np.array([space.judged_against], np.uint8),
    }


def _space(arrays: Mapping[str, NDArray[Any]]) -> Space:
    return Space.from_parts(
        Rarity.from_arrays(arrays["words"], arrays["word_counts"]),
        Rarity.from_arrays(arrays["grams"], arrays["gram_counts"]),
        tuple(int(base) for base in arrays["bases"]),
        bool(arrays["judged_against"][0]),
    )
