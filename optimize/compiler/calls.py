"""Requests of the loop performed for the record: together where a model takes many at once, counted and capped."""

from __future__ import annotations

import contextvars
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from datetime import date
from typing import Any

import dspy

from optimize.compiler.consultation import Put
from optimize.compiler.record import Entry, Record
from optimize.compiler.refusals import is_refusal
from optimize.compiler.spending import KEPT_EVERY, Spending
from program.errors import RagcError
from program.knowledge.library import Library
from program.loop.decisions import ask_client, is_decision, is_direct, to_prompt_inputs
from program.loop.evidence import Pool
from program.loop.rag import AgenticRAG
from program.loop.state import Ask, Find, StepFailed, search_arguments
from program.models.catalog import LOCAL, price_call
from program.models.embedded.writer import WriterEngine
from program.models.language.adapter import use_adapter
from program.models.language.spending import MAX_REPLY_TOKENS, estimate_prompt_tokens
from program.models.language.spending import ModelSpending as Spent
from program.models.language.spending import track_spending as spending_of
from program.passage import Passage

ATTEMPTS = 4
ABREAST = 8  # calls to a model that is not of this process
TOGETHER = "several"  # puts of several requests are made abreast, whatever they ask

Performed = Entry | StepFailed
Asked = Sequence[tuple[Put, bytes | None]]
"""What is put, each with its digest in the record, None when it has none."""


class Calls:
    """Performs what a record does not hold. A failed call is tried again, then told as `StepFailed`; as `Refused` when
    it would fail for good."""

    def __init__(self, program: AgenticRAG, record: Record, spending: Spending, packing: Packing) -> None:
        self._program = program
        self._packing = packing
        self._record = record
        self._spending = spending

    def perform(self, puts: Asked) -> list[Performed]:
        """What each came to, in order. Raises `BudgetStop` before the call that would pass a cap."""
        results: list[Performed | None] = [None] * len(puts)
        groups: dict[tuple[str, int], list[int]] = defaultdict(list)
        for at, (put, _) in enumerate(puts):
            name = "" if isinstance(put.request, Find) else TOGETHER if put.together else put.request.predictor
            groups[name, id(put.model)].append(at)
        for places in groups.values():
            self._spending.check()
            for at, one in zip(places, self._group([puts[at] for at in places]), strict=True):
                results[at] = one
        return [r for r in results if r is not None]

    def _group(self, asked: Asked) -> list[Performed]:
        """Puts of one kind, to one model."""
        first = asked[0][0]
        if isinstance(first.request, Find):
            return self._kept(asked, self._searched([p.request for p, _ in asked if isinstance(p.request, Find)]))
        local = str(first.model.model).startswith(LOCAL)
        if local and is_direct(first.model) and is_decision(self._program.predictor(first.request.predictor)):
            return self._kept(asked, self._decided(first.model, [ask for put, _ in asked for ask in put.asks]))
        if local:
            return self._written(asked)
        pool = ThreadPoolExecutor(ABREAST)
        try:
            futures = [pool.submit(contextvars.copy_context().run, self._called, put, digest) for put, digest in asked]
            return [future.result() for future in futures]
        finally:
            pool.shutdown(cancel_futures=True)  # after a stop, calls on their way are waited for, and none is begun

    def _written(self, asked: Asked) -> list[Performed]:
        """Of a model in this process, whose calls are free unless they are capped: kept twice a second, else each."""
        every = 0.0 if self._spending.caps.calls is not None else KEPT_EVERY
        made: list[Performed] = []
        new: dict[bytes, Entry] = {}
        kept = time.monotonic()
        try:
            for put, digest in asked:
                found = self._made(put, None)
                made.append(found)
                if digest is not None and isinstance(found, Entry):
                    new[digest] = found
                if time.monotonic() - kept >= every:
                    self._record.write(new)
                    new, kept = {}, time.monotonic()
        finally:
            self._record.write(new)
        return made

    def _kept(self, asked: Asked, found: Sequence[Performed]) -> list[Performed]:
        self._record.performed += len(asked)
        new = {d: e for (_, d), e in zip(asked, found, strict=True) if d is not None and isinstance(e, Entry)}
        if isinstance(asked[0][0].request, Find):
            new = {digest: replace(entry, value=self._packing.packed(entry.value)) for digest, entry in new.items()}
        self._record.write(new)
        return list(found)

    def _searched(self, finds: Sequence[Find]) -> list[Performed]:
        library = self._program.runtime.library
        library.embedder.encode([find.query for find in finds])  # in one batch; each search finds its vector kept
        found: list[Performed] = []
        for find in finds:
            self._spending.check()
            started = time.perf_counter()
            try:
                pool = library.candidates(*search_arguments(find))
            except RagcError as error:
                found.append(StepFailed(f"search: {error.what[:200]}"))
                continue
            found.append(Entry(Pool(pool), time.perf_counter() - started))
        return found

    def _decided(self, model: Any, asks: Sequence[Ask]) -> list[Performed]:
        started = time.perf_counter()
        try:
            evidence = ask_client(self._program, model, asks)
        except RagcError as error:
            return [StepFailed(f"{asks[0].predictor}: {error.what[:200]}")] * len(asks)
        seconds = (time.perf_counter() - started) / max(len(asks), 1)
        return [Entry(found, seconds) for found in evidence]

    def _called(self, put: Put, digest: bytes | None) -> Performed:
        """One call to a model that may cost money; kept the moment it is back."""
        if digest is None:
            return self._made(put, digest)
        if (refused := self._record.refusals.final(digest)) is not None:
            return refused
        if (others := self._record.begin(digest)) is not None:
            return others
        try:
            return self._made(put, digest)
        finally:
            self._record.give_up(digest)  # stopped by a cap, failed, or not fit to be kept; else it is done with

    def _made(self, put: Put, digest: bytes | None) -> Performed:
        model = put.model
        here = model.model.startswith(LOCAL)
        apart = not hasattr(model, "endpoint")  # a lane asks the cap itself, before each request that a call comes to
        expected = self._most(put) if apart else 0.0
        refusals, failure, refused = self._record.refusals, "", digest is not None
        for _ in range(ATTEMPTS):
            if apart:
                self._spending.before_call(expected, here)
            self._record.calls += 1
            started = time.perf_counter()
            spent = Spent()
            try:
                with spending_of(cap=self._spending) as spent, use_adapter(model), dspy.track_usage() as tracker:
                    value = self._value(put, tracker)
            except Exception as error:
                if apart:
                    self._spending.after_call(expected, spent.usd, here=here)
                failure = error.what if isinstance(error, RagcError) else f"{type(error).__name__}: {error}"
                if digest is not None and is_refusal(error):
                    refusals.refused(digest, model.model)
                else:
                    refused = False
                continue
            entry = self._entry(value, model, time.perf_counter() - started, spent, tracker.get_total_tokens())
            if apart:
                self._spending.after_call(expected, entry.usd, here=here)
            self._record.performed += 1
            if spent.notes:  # another model stood in, or a default was taken
                self._record.stood_in += 1
                return replace(entry, stopgap=True)
            refusals.answered(model.model)
            if digest is not None:
                self._record.write({digest: entry})
            return entry
        why = f"{put.asks[0].predictor}: {failure[:200]}"
        return refusals.settle(digest, model.model, why) if refused and digest is not None else StepFailed(why)

    def _value(self, put: Put, tracker: Any) -> Any:
        """A text's fields, a decision's evidence, or either of each that went in one call, None where it is open."""
        ask, model = put.asks[0], put.model
        predictor = self._program.predictor(ask.predictor)
        if not is_decision(predictor):
            inputs = to_prompt_inputs(ask.inputs)
            if isinstance(engine := getattr(model, "engine", None), WriterEngine):
                value, words_in, words_out = engine.write(predictor.signature, inputs)
                tracker.add_usage(model.model, {"prompt_tokens": words_in, "completion_tokens": words_out})
                return value
            return dict(predictor(lm=model, **inputs))
        return ask_client(self._program, model, put.asks[: put.wanted])[0]

    @staticmethod
    def _entry(value: Any, model: Any, seconds: float, spent: Spent, usage: dict[str, Any]) -> Entry:
        if hasattr(model, "endpoint"):
            return Entry(value, seconds, spent.tokens_in, spent.tokens_out, spent.usd)
        totals = list(usage.values())
        tokens_in = sum(int(t.get("prompt_tokens") or t.get("input_tokens") or 0) for t in totals)
        tokens_out = sum(int(t.get("completion_tokens") or t.get("output_tokens") or 0) for t in totals)
        return Entry(value, seconds, tokens_in, tokens_out, price_call(model, tokens_in, tokens_out))

    def _most(self, put: Put) -> float:
        """The most that a call can cost, in US dollars: a token for every two bytes, and the longest reply."""
        if self._spending.caps.usd is None or put.model.model.startswith(LOCAL):
            return 0.0
        inputs = [value for ask in put.asks for value in to_prompt_inputs(ask.inputs).values()]
        tasks = len({ask.predictor for ask in put.asks})
        longest = int((put.model.kwargs or {}).get("max_tokens") or MAX_REPLY_TOKENS)
        return price_call(put.model, estimate_prompt_tokens(inputs, tasks), longest)


class Packing:
    """Pools of candidates as the record's file keeps them: of what the index holds ids, scores and how they were
    reached, of the rest all."""

    def __init__(self, library: Library) -> None:
        self._indexed = {passage.id: passage for passage in library.passages()}

    def packed(self, pool: Sequence[Passage]) -> list[Any]:
        """JSON for a pool."""
        return [self._one(passage) for passage in pool]

    def unpacked(self, value: Sequence[Any]) -> Pool:
        """The pool again."""
        return Pool(
            Passage(**{**one, "as_of": one["as_of"] and date.fromisoformat(one["as_of"])})
            if isinstance(one, dict)
            else self._indexed[one[0]].rescored(*one[1:])
            for one in value
        )

    def _one(self, passage: Passage) -> Any:
        known = self._indexed.get(passage.id)
        if known is not None and known.text == passage.text:
            return [passage.id, passage.score, passage.method, dict(passage.scores), passage.reason]
        return {field.name: getattr(passage, field.name) for field in fields(passage)}
