"""A DSPy decision client on the embedder and the reader: it learns from its demonstrations, and calls no model."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragc.errors import IntegrityError
from ragc.models.embedded.demonstrations import DemonstrationSet, Question, answer_untaught, to_json_bytes
from ragc.models.embedded.encoder import Embedder, shared_embedder
from ragc.models.embedded.features import Case, Vector, read_case
from ragc.models.embedded.heads import (
    EVIDENCE_SETS,
    READ_SETS,
    TEXT_SETS,
    Head,
    fit_decision,
    fit_statement,
)
from ragc.models.embedded.reader import READER, Reader, shared_reader
from ragc.models.requests import DecisionClient
from ragc.storage import keep_last

HEADS_KEPT = 512
SETS_KEPT = 16
DIGITS = 6  # finer differences are those between two machines' arithmetic

Arrays = dict[str, NDArray[Any]]
State = Mapping[str, Any]
Questions = Mapping[str, Mapping[str, Any]]


class LocalDecider(DecisionClient):
    """A client that answers decision requests with calibrated probabilities. Safe from many threads.

    Give it to DSPy as a language model. For each output field a head is fitted on the request's demonstrations when
    they are first seen, and kept; a field with no labels for two of its options is answered from similarity and
    from what the reader finds, softly. The same request gets the same answer, whatever the order of its demonstrations.
    """

    cache = True  # what it fitted is kept, and no answer costs a request

    def __init__(self, embedder: Embedder, reader: Reader) -> None:
        super().__init__(READER)
        self.embedder, self.reader = embedder, reader
        self._lock = threading.RLock()
        self._sets: OrderedDict[bytes, DemonstrationSet] = OrderedDict()
        self._heads: OrderedDict[str, Head] = OrderedDict()

    def launch(self, *_: Any) -> None:
        """Begin nothing, as BetterTogether asks of each model; `kill` ends nothing."""

    kill = launch

    def dump_state(self) -> None:
        """Return nothing: a saved predictor that is answered here names no model."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Save what was fitted and the names of the models, which are opened where it is loaded."""
        return reopen_decider, (self.embedder.name, self.reader.name, self.export_heads())

    def __call__(self, state: State, questions: Questions) -> dict[str, dict[str, Any]]:
        """Return for each field `{"noul": p}`, or `{"probabilities": {option: p}, "confidence": the largest}`."""
        return self.batch(state, questions, [state["inputs"]])[0]

    async def acall(self, state: State, questions: Questions) -> dict[str, dict[str, Any]]:
        """Return the same answer, worked out in another thread."""
        return await asyncio.to_thread(self, state, questions)

    def batch(
        self, state: State, questions: Questions, inputs: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, dict[str, Any]]]:
        """Return the answers for several inputs, each as if asked alone.

        They share one request's demonstrations.
        """
        shown = self._demonstrations({**state, "inputs": inputs[0]}, questions)
        cases = [read_case(one, shown.described) for one in inputs]
        blocks = shown.space.compute_blocks(cases, self.embedder, self.reader)
        put = {name: Question.from_questions(name, questions) for name in questions}
        return [
            {name: self._answer(question, *one, shown) for name, question in put.items()}
            for one in zip(cases, blocks, strict=True)
        ]

    def export_heads(self, requests: Iterable[tuple[State, Questions]] | None = None) -> Arrays:
        """Return fitted heads as named arrays, fit for safetensors.

        Names carry digests of demonstrations. The heads are those that the given requests (state and questions, as they
        were put) make use of, or all.
        """
        with self._lock:
            wanted = set(self._heads)
            if requests is not None:
                put = ((self._demonstrations(state, asked), asked) for state, asked in requests)
                wanted &= {
                    shown.head_key(Question.from_questions(n, asked)) or "" for shown, asked in put for n in asked
                }
            return {f"head.{k}.{part}": array for k in sorted(wanted) for part, array in vars(self._heads[k]).items()}

    def import_heads(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over exported heads, so that their demonstrations need no fitting here.

        Raises `IntegrityError` when an array is missing, of another form, or holds what is no number.
        """
        parts: dict[str, Arrays] = {}
        try:
            for name, array in arrays.items():
                kind, key, part = name.split(".")
                if kind != "head" or (array.dtype.kind == "f" and not np.isfinite(array).all()):
                    raise ValueError(f"{name} is no part of a head, or not finite")
                parts.setdefault(key, {})[part] = np.asarray(array)
            heads = {key: Head.from_arrays(found) for key, found in parts.items()}
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise IntegrityError(
                f"The decision heads are not as they were exported ({error}).",
                "Compile again, or restore the artifact's heads.safetensors.",
            ) from error
        with self._lock:
            keep_last(self._heads, heads, HEADS_KEPT)

    @cached_property
    def _priors(self) -> dict[str, Head]:
        return {name: Head.from_arrays(arrays) for name, arrays in self.reader.priors.items()}

    def _prior(self, question: Question) -> Head:
        return self._priors["follows_on" if question.follows else "statement"]

    def _answer(
        self, question: Question, asked: Case, blocks: Mapping[str, Vector], shown: DemonstrationSet
    ) -> dict[str, Any]:
        before, options = answer_untaught(
            question, asked, blocks, self.embedder, shown.space.words, self._prior(question)
        )
        if head := self._head_of(question, shown):
            probabilities = head.probabilities({**blocks, "options": options}, len(question.options))
        else:  # labels of one option only move the answer as its prior would
            labels = [label for _, label in shown.labelled(question)]
            labels = labels if len(set(labels)) == 1 else []
            shares = np.exp(before - before.max()) * [1 + labels.count(n) for n in range(len(before))]
            probabilities = shares / shares.sum()
        rounded = [round(float(p), DIGITS) for p in probabilities]
        if question.put["type"] == "noul":
            return {"noul": rounded[1]}
        return {"probabilities": dict(zip(question.options, rounded, strict=True)), "confidence": max(rounded)}

    def _demonstrations(self, state: State, questions: Questions) -> DemonstrationSet:
        demos, described = state.get("demos") or (), str(state.get("input_fields") or "")
        inputs, told = (
            sorted(state["inputs"]),
            sorted((name, put.get("instructions")) for name, put in questions.items()),
        )
        key = to_json_bytes([described, inputs, told, demos])  # kept whole: no digest is as quick
        with self._lock:
            read_by = f"{self.embedder.digest} {self.reader.digest}"
            found = self._sets.get(key) or DemonstrationSet(demos, inputs, questions, described, read_by)
            keep_last(self._sets, {key: found}, SETS_KEPT)
            return found

    def _head_of(self, question: Question, shown: DemonstrationSet) -> Head | None:
        """Return the head of these labels, fitted at the first time; None when they name fewer than two options."""
        if (key := shown.head_key(question)) is None:
            return None
        with self._lock:
            head = self._heads.get(key) or self._fit_head(question, shown)
            keep_last(self._heads, {key: head}, HEADS_KEPT)
            return head

    def _fit_head(self, question: Question, shown: DemonstrationSet) -> Head:
        rows = shown.compute_blocks(self.embedder, self.reader)
        places, labels = zip(*shown.labelled(question), strict=True)
        groups = [shown.cases[n].asked for n in places]
        if question.alone and all(shown.cases[n].quoted for n in places):
            return fit_statement([rows[n] for n in places], labels, groups, self._prior(question))
        cases = []
        for n in places:
            given = question, shown.cases[n], rows[n], self.embedder, shown.space.words, self._prior(question)
            cases.append({**rows[n], "options": answer_untaught(*given)[1]})
        read = question.follows or any(case.evidence for case in shown.cases)
        sets: Sequence[str] = TEXT_SETS if not read else READ_SETS if question.alone else EVIDENCE_SETS
        return fit_decision(cases, labels, groups, sets)


def reopen_decider(embed: str, read: str, heads: Mapping[str, NDArray[Any]]) -> LocalDecider:
    """Return a decider on the embedder and the reader of those names, with its heads."""
    decider = LocalDecider(shared_embedder(embed), shared_reader(read))
    decider.import_heads(heads)
    return decider
