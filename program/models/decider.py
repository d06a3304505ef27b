"""A DSPy decision client on sentence embeddings: it learns from its demonstrations, and calls no model."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from program.errors import IntegrityError
from program.models.demonstrations import Demonstrations, Question, as_bytes
from program.models.encoder import MINILM, Embedder
from program.models.features import Case, Space, case
from program.models.headfile import HeadFile
from program.models.onevsrest import Fitted, fit_decision, from_arrays
from program.models.priors import prior
from program.models.reading import Vector

HEADS_KEPT = 512
SETS_KEPT = 16
DIGITS = 6  # finer differences are those between two machines' arithmetic


class LocalDecider:
    """Answers decision requests with calibrated probabilities.

    Give it to DSPy as a language model (`dspy.configure(lm=LocalDecider(embedder))`). For each output field
    a head is fitted on the request's demonstrations when they are first seen, and kept; a field with no
    labels for two of its options is answered from similarity and coverage, softly. The signature's
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
        self._shown: OrderedDict[bytes, Demonstrations] = OrderedDict()
        self._heads: OrderedDict[str, Fitted] = OrderedDict()
        self._spaces: dict[str, Space] = {}
        self._file: HeadFile | None = None

    def remember_in(self, folder: Path, version: str) -> None:
        """Keeps heads in a file there, too, so that another process need not fit them again.

        `version` names the code that fits them: what other code fitted is not read.
        """
        with self._lock:
            self._file = HeadFile(folder, version)

    def close_file(self) -> None:
        """Lets go of its file, which must not be open when this process forks; the next use opens it anew."""
        with self._lock:
            if self._file is not None:
                self._file.close()

    def __call__(
        self, state: Mapping[str, Any], questions: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        """For each field `{"noul": p}`, or `{"probabilities": {option: p}, "confidence": the largest}`."""
        return self.batch(state, questions, [state["inputs"]])[0]

    def batch(
        self,
        state: Mapping[str, Any],
        questions: Mapping[str, Mapping[str, Any]],
        inputs: Sequence[Mapping[str, Any]],
    ) -> list[dict[str, dict[str, Any]]]:
        """The same for several inputs under one request's demonstrations, each as if asked alone."""
        described = str(state.get("input_fields") or "")
        cases = [case(one, described) for one in inputs]
        shown = self._demonstrations({**state, "inputs": inputs[0]}, sorted(questions))
        blocks = self._space(shown).blocks(cases, self.embedder)
        put = {name: Question.of(name, questions) for name in questions}
        return [
            {name: self._answer(question, asked, found, shown) for name, question in put.items()}
            for asked, found in zip(cases, blocks, strict=True)
        ]

    async def acall(
        self, state: Mapping[str, Any], questions: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        """The same answer, worked out in another thread."""
        return await asyncio.to_thread(self, state, questions)

    def __deepcopy__(self, memo: dict[int, Any]) -> LocalDecider:
        return self  # copies of a program share what was fitted

    def export_heads(
        self, requests: Iterable[tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Fitted heads as named arrays, fit for safetensors; names carry digests of demonstrations.

        Those that the given requests (state and questions, as they were put) make use of, or all.
        """
        with self._lock:
            wanted = set(self._heads) if requests is None else {k for r in requests for k in self._keys(*r)}
            found: dict[str, NDArray[Any]] = {}
            for key in sorted(wanted & set(self._heads)):
                space = _space_of(key)
                found |= _head_arrays(key, self._heads[key]) | _space_arrays(space, self._spaces[space])
            return found

    def import_heads(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over exported heads, so that their demonstrations need no fitting here.

        Raises `IntegrityError` when an array is missing, of another form, or holds what is no number.
        """
        parts: dict[str, dict[str, dict[str, NDArray[Any]]]] = {"head": {}, "space": {}}
        try:
            for name, array in arrays.items():
                kind, key, part = name.split(".")
                parts[kind].setdefault(key, {})[part] = np.asarray(array)
                # an inner node with one way to go; of one head of several the part is numbered
                unsplit = np.isposinf(array) if part.endswith("tree_threshold") else False
                if array.dtype.kind == "f" and not (np.isfinite(array) | unsplit).all():
                    raise ValueError(f"{name} is not finite")
            spaces = {key: Space.from_arrays(found) for key, found in parts["space"].items()}
            heads = {key: from_arrays(found) for key, found in parts["head"].items()}
            if lost := {_space_of(key) for key in heads} - set(spaces):
                raise KeyError(*lost)
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise IntegrityError(
                f"The decision heads are not as they were exported ({error}).",
                "Compile again, or restore the artifact's heads.safetensors.",
            ) from error
        with self._lock:
            self._spaces |= spaces
            for key, head in heads.items():
                self._keep(key, head)

    def _keys(self, state: Mapping[str, Any], questions: Mapping[str, Mapping[str, Any]]) -> set[str]:
        shown = self._demonstrations(state, sorted(questions))
        return {key for n in questions if (key := shown.head_key(Question.of(n, questions))) is not None}

    @cached_property
    def _reader(self) -> str:
        return self.embedder.digest

    def _answer(
        self, question: Question, asked: Case, blocks: Mapping[str, Vector], shown: Demonstrations
    ) -> dict[str, Any]:
        before = prior(question, asked, blocks["bearing"], self.embedder, self._space(shown).words)
        head = self._head(question, shown)
        if head is None:
            probabilities = before.probabilities(shown.counts(question))
        else:
            known = {**blocks, "options": before.features}
            probabilities = head.probabilities(known, len(question.options))
        rounded = [round(float(p), DIGITS) for p in probabilities]
        if question.put["type"] == "noul":
            return {"noul": rounded[1]}
        shares = dict(zip(question.options, rounded, strict=True))
        return {"probabilities": shares, "confidence": max(rounded)}

    def _demonstrations(self, state: Mapping[str, Any], outputs: list[str]) -> Demonstrations:
        demos, described = state.get("demos") or (), str(state.get("input_fields") or "")
        inputs = sorted(state["inputs"])
        key = as_bytes([described, inputs, outputs, demos])  # kept whole: no digest is as quick
        with self._lock:
            shown = self._shown.get(key)
            if shown is None:
                shown = self._shown[key] = Demonstrations(demos, inputs, outputs, described, self._reader)
            self._shown.move_to_end(key)
            while len(self._shown) > SETS_KEPT:
                self._shown.popitem(last=False)
            return shown

    def _space(self, shown: Demonstrations) -> Space:
        return self._spaces.get(shown.digest) or shown.space

    def _head(self, question: Question, shown: Demonstrations) -> Fitted | None:
        key = shown.head_key(question)
        if key is None:
            return None
        with self._lock:
            head = self._heads.get(key) or self._remembered(key)
            if head is None:
                head = self._fitted(question, shown)
                if self._file is not None:
                    spaces = _space_arrays(shown.digest, self._spaces[shown.digest])
                    self._file.put({key: _head_arrays(key, head), shown.digest: spaces})
            self._keep(key, head)
            return head

    def _remembered(self, key: str) -> Fitted | None:
        """The head as another process fitted it; None when the file does not hold it whole."""
        if self._file is not None:
            with contextlib.suppress(IntegrityError):
                self.import_heads(self._file.get(key, _space_of(key)))
        return self._heads.get(key)

    def _fitted(self, question: Question, shown: Demonstrations) -> Fitted:
        space = self._spaces.setdefault(shown.digest, shown.space)
        rows = shown.blocks(space, self.embedder)
        alike = shown.groups()
        cases, labels, groups = [], [], []
        for place, label in shown.labelled(question):
            one = shown.cases[place]
            options = prior(question, one, rows[place]["bearing"], self.embedder, space.words).features
            cases.append({**rows[place], "options": options})
            labels.append(label)
            groups.append(alike[place])
        return fit_decision(cases, labels, groups, space.judged_against)

    def _keep(self, key: str, head: Fitted) -> None:
        self._heads[key] = head
        self._heads.move_to_end(key)
        while len(self._heads) > HEADS_KEPT:
            gone, _ = self._heads.popitem(last=False)
            if not any(_space_of(kept) == _space_of(gone) for kept in self._heads):
                self._spaces.pop(_space_of(gone), None)


def _head_arrays(key: str, head: Fitted) -> dict[str, NDArray[Any]]:
    return {f"head.{key}.{part}": array for part, array in head.arrays().items()}


def _space_arrays(key: str, space: Space) -> dict[str, NDArray[Any]]:
    return {f"space.{key}.{part}": array for part, array in space.arrays().items()}


def _space_of(head_key: str) -> str:
    return head_key.partition("-")[0]
