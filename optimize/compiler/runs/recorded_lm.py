"""A language model whose replies are kept: what was said to the same words is not asked for again."""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import Any

import dspy
import orjson

from ragc.models.language.spending import track_spending
from ragc.optimize.compiler.record import Entry, Record, digest_json
from ragc.optimize.compiler.spending import Spending

paid: ContextVar[list[float] | None] = ContextVar("ragc_paid", default=None)  # US dollars of each call of a run


class RecordedLM(dspy.BaseLM):
    """A language model asked through a record; one of a project's also under the caps of `spending`.

    Calls of any other model are counted, and stopped at a cap, by a `CallMeter`.
    """

    def __init__(self, model: dspy.BaseLM, record: Record, spending: Spending | None = None) -> None:
        super().__init__(model.model, model_type=model.model_type, cache=False)
        self.kwargs = model.kwargs
        self._model = model
        self._record = record
        self._spending = spending

    supports_function_calling = property(lambda self: self._model.supports_function_calling)
    supports_reasoning = property(lambda self: self._model.supports_reasoning)
    supports_response_schema = property(lambda self: self._model.supports_response_schema)
    supported_params = property(lambda self: self._model.supported_params)

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Return the outputs, which count with what they cost when they were made."""
        settings = {name: value for name, value in (self.kwargs | kwargs).items() if "key" not in name}
        asked = orjson.dumps([self.model, settings, prompt, messages], default=_describe, option=orjson.OPT_SORT_KEYS)
        digest, made = digest_json(asked.decode()), list[float]()
        entry = self._record.kept.get(digest)
        if entry is None and (entry := self._record.read([digest]).get(digest)) is not None:
            self._record.reused += 1
        if entry is None:
            token, began = paid.set(made), time.perf_counter()
            try:
                with track_spending(cap=self._spending) as spent:
                    outputs = self._model(prompt, messages=messages, **kwargs)
            except Exception as error:
                self._record.note_call(self.model, f"{self.model} gave no answer ({type(error).__name__}: {error})")
                raise
            finally:
                paid.reset(token)
            self._record.note_call(self.model)
            self._record.calls += 1
            seconds, usd = time.perf_counter() - began, spent.usd + sum(made)
            entry = Entry([outputs, made], seconds, spent.tokens_in, spent.tokens_out, usd)
            if all(isinstance(one, str) for one in outputs):
                self._record.write({digest: entry})
        self._record.keep(digest, entry)
        outputs, costs = entry.value
        if (run := paid.get()) is not None:
            run += costs
        return outputs


def _describe(value: Any) -> Any:
    """Return what a setting that is no JSON value says: of a record its schema."""
    return value.model_json_schema() if hasattr(value, "model_json_schema") else repr(value)
