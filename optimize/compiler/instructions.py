"""New instructions for a predictor, written by a language model from what the predictor got wrong (GEPA)."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import dspy
from dspy.lm15 import Message, Request, Response, TextPart, Usage

from optimize.compiler.demonstrations import Run, plain_values
from optimize.compiler.record import Entry, Record, digest_json
from optimize.compiler.spending import Spending
from program.loop.decisions import to_jsonable, to_prompt_inputs
from program.loop.rag import AgenticRAG
from program.models.language.gateway import ProviderEngine, ProviderLM
from program.models.language.spending import track_spending

LONGEST = 6000
"""Characters of an instruction at most."""
SHOWN, CHARACTERS = 5, 3000
"""Failures in a reflection at most, and characters of each of their fields."""

Failure = Mapping[str, Any]
"""GEPA's form: `Inputs`, `Generated Outputs` and `Feedback`."""

_log = logging.getLogger(__name__)


def propose_instructions(lm: dspy.LM, program: AgenticRAG, name: str, failures: Sequence[Failure]) -> list[str]:
    """Return new instructions of a predictor by GEPA's reflection; none without failures, or when the model fails."""
    from dspy.teleprompt.gepa import InstructionProposer

    now = program.predictor(name).signature.instructions
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
    """Return a model that is asked under the caps, and whose replies are kept in the record."""
    return dspy.LM(model.model, engine=_Recorded(model, record, spending), cache=False, num_retries=0)


class _Recorded:
    """An engine that answers from the record, or asks the model under the caps."""

    def __init__(self, model: ProviderLM, record: Record, spending: Spending) -> None:
        self._model = model
        self._engine = ProviderEngine(model.endpoint)
        self._record = record
        self._spending = spending

    def complete(self, request: Request) -> Response:
        """Return the reply. Raises `CallFailed`, and `BudgetStop` before a call that would pass a cap."""
        call = self._engine.call(request)
        digest = digest_json(["propose", call.model, call.messages, call.settings])
        found = self._record.read([digest]).get(digest) or self._ask(request, digest)
        text, whole = found.value
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant([TextPart(text)]),
            finish_reason="stop" if whole else "length",
            usage=Usage(
                input_tokens=found.tokens_in,
                output_tokens=found.tokens_out,
                total_tokens=found.tokens_in + found.tokens_out,
            ),
        )

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


def collect_failures(runs: Sequence[Run], name: str) -> list[Failure]:
    """Return the predictor's part in runs that ended badly."""
    return [
        {
            "Inputs": {n: to_jsonable(value) for n, value in to_prompt_inputs(ask.inputs).items()},
            "Generated Outputs": {n: to_jsonable(value) for n, value in plain_values(reply).items()},
            "Feedback": _write_feedback(run),
        }
        for run in runs
        if not run.verdict.correct
        for ask, reply in run.asked
        if ask.predictor == name
    ]


def _write_feedback(run: Run) -> str:
    question, word = run.question, "wrong" if run.verdict.wrong else "incomplete"
    told = f"The question was {question.question!r}. The program's outcome, {run.answer.outcome}, was {word}."
    if question.outcome is not None and question.outcome != run.answer.outcome:
        told += f" It should have been {question.outcome}."
    if question.alternatives:
        told += f" A right answer states {'; '.join(' or '.join(map(str, forms)) for forms in question.alternatives)}."
    if question.not_facts:
        told += f" It does not state {'; '.join(map(str, question.not_facts))}."
    return f"{told} The final answer was: {run.answer.text!r}"


def _shorten_texts(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _shorten_texts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shorten_texts(item) for item in value[:SHOWN]]
    return str(value)[:CHARACTERS]
