"""New instructions of a predictor, written by a language model from what it got wrong (GEPA's reflection)."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import dspy
from dspy.lm15 import Request, Response, TextPart, Usage

from optimize.compiler.candidates.demonstrations import Failure
from optimize.compiler.record import Entry, Record, digest_json
from optimize.compiler.study import Spending
from program.models.language.gateway import ProviderEngine, ProviderLM
from program.models.language.spending import track_spending
from program.models.language.transport import to_response

LONGEST = 6000  # characters of an instruction at most
SHOWN, CHARACTERS = 5, 3000  # failures in a reflection at most, and characters of each of their fields

_log = logging.getLogger(__name__)


def propose_instructions(lm: dspy.LM, program: dspy.Module, name: str, failures: Sequence[Failure]) -> list[str]:
    """Return new instructions of a predictor by GEPA's reflection, if any."""
    from dspy.teleprompt.gepa import InstructionProposer

    now = dict(program.named_predictors())[name].signature.instructions
    shown = [_shorten_texts(failure) for failure in failures[:SHOWN]]
    try:
        with dspy.context(lm=lm):
            written = InstructionProposer()({name: now}, {name: shown}, [name]) if shown else {}
    except Exception as error:  # DSPy and GEPA raise what they like
        _log.warning("no instruction for %s: %s", name, str(error)[:200])
        return []
    texts = (text.strip() for text in written.values())
    return [text for text in texts if text and text != now and len(text) <= LONGEST]


def open_proposer(model: ProviderLM, record: Record, spending: Spending) -> dspy.LM:
    """Return a model asked under the caps, its replies kept in the record."""
    return dspy.LM(model.model, engine=_Recorded(model, record, spending), cache=False, num_retries=model.num_retries)


class _Recorded:
    """An engine that answers from the record, or asks the model under the caps."""

    def __init__(self, model: ProviderLM, record: Record, spending: Spending) -> None:
        self._model = model
        self._engine = ProviderEngine(model.endpoint)
        self._record = record
        self._spending = spending

    def complete(self, request: Request) -> Response:
        """Return the reply. Raises `CallFailed`, and `BudgetStop` at a cap."""
        call = self._model.endpoint.to_call(request)
        digest = digest_json(["propose", call.model, call.messages, call.settings])
        found = self._record.read([digest]).get(digest) or self._ask(request, digest)
        text, whole = found.value
        return to_response(request.model, text, Usage(found.tokens_in, found.tokens_out), whole)

    def _ask(self, request: Request, digest: bytes) -> Entry:
        began = time.perf_counter()
        with track_spending(cap=self._spending) as spent:
            reply = self._engine.complete(request)
        self._record.calls += 1
        seconds = time.perf_counter() - began
        text = "".join(part.text for part in reply.message.parts if isinstance(part, TextPart))
        whole = reply.finish_reason != "length"
        entry = Entry([text, whole], seconds, spent.tokens_in, spent.tokens_out, spent.usd)
        self._record.write({digest: entry})
        return entry


def _shorten_texts(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _shorten_texts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shorten_texts(item) for item in value[:SHOWN]]
    return str(value)[:CHARACTERS]
