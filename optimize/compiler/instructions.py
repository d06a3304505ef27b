"""New instructions for a predictor, written by a language model: by MIPROv2's proposer from what went well, and by
GEPA's reflection on what went wrong."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import dspy
from dspy.lm15 import Message, Request, Response, TextPart, Usage

from optimize.compiler.record import Entry, Record, key_of
from optimize.compiler.spending import Spending
from program.loop.rag import AgenticRAG
from program.models.language.gateway import ProviderEngine, ProviderLM
from program.models.language.spending import track_spending as spending_of

LONGEST = 6000  # characters of an instruction; a longer one is no instruction
SHOWN = 5  # failures in a reflection
CHARACTERS = 3000  # of each of its fields

Failure = Mapping[str, Any]
"""GEPA's form: `Inputs`, `Generated Outputs` and `Feedback`."""

_log = logging.getLogger(__name__)


class Proposer:
    """Writes instructions. What a proposal cost is paid once: replies are kept in the record, by content.

    Raises `BudgetStop` before a call that would pass a cap. The same program, seed and record give the same texts.
    """

    def __init__(self, model: ProviderLM, record: Record, spending: Spending, seed: int) -> None:
        self._lm = dspy.LM(model.model, engine=_Recorded(model, record, spending), cache=False, num_retries=0)
        self._seed = seed

    def propose(
        self, program: AgenticRAG, name: str, good: Sequence[Mapping[str, Any]], failures: Sequence[Failure]
    ) -> list[str]:
        """New instructions of a predictor, the hand-written one not among them; none when the model fails.

        `good` are demonstrations of it.
        """
        now = program.predictor(name).signature.instructions
        written = []
        for way in (self._grounded, self._reflected):
            try:
                written += way(program, name, good, failures)
            except Exception as error:  # DSPy and GEPA raise what they like
                _log.warning("no instruction for %s: %s", name, str(error)[:200])
        kept = (text.strip() for text in written)
        return [text for text in dict.fromkeys(kept) if text and text != now and len(text) <= LONGEST]

    def _grounded(
        self, program: AgenticRAG, name: str, good: Sequence[Mapping[str, Any]], failures: Sequence[Failure]
    ) -> list[str]:
        """MIPROv2's, from examples and with a tip; the program's code and a summary of the data are left out."""
        from dspy.propose.grounded_proposer import TIPS, GroundedProposer

        rng = random.Random(f"{self._seed} {name}")
        proposer = GroundedProposer(
            self._lm, program, [], program_aware=False, use_dataset_summary=False, use_instruct_history=False, rng=rng
        )
        names = [called for called, _ in program.named_predictors()]
        at = names.index(name)
        shown = [{**demo, "augmented": True} for demo in good[:SHOWN]]
        sets: dict[int, list[Any]] = {at: [[], shown]}
        tip = TIPS[rng.choice(["simple", "description"])]
        with _quiet():
            return [
                proposer.propose_instruction_for_predictor(
                    program, program.predictor(name), at, sets, 1 if shown else 0, {}, tip
                )
            ]

    def _reflected(
        self, program: AgenticRAG, name: str, good: Sequence[Mapping[str, Any]], failures: Sequence[Failure]
    ) -> list[str]:
        """GEPA's, from failures."""
        from dspy.teleprompt.gepa import InstructionProposer

        with dspy.context(lm=self._lm):
            found = InstructionProposer()(
                {name: program.predictor(name).signature.instructions},
                {name: [_short(failure) for failure in failures[:SHOWN]]},
                [name],
            )
        return list(found.values())


class _Recorded:
    """An engine that answers from the record, else asks the model under the caps."""

    def __init__(self, model: ProviderLM, record: Record, spending: Spending) -> None:
        self._model = model
        self._engine = ProviderEngine(model.endpoint)
        self._record = record
        self._spending = spending

    def complete(self, request: Request) -> Response:
        """The reply. Raises `CallFailed`, and `BudgetStop` before a call that would pass a cap."""
        call = self._engine.call(request)
        digest = key_of(["propose", call.model, call.messages, call.settings])
        found = self._record.read([digest]).get(digest) or self._record.begin(digest)
        if found is None:
            found = self._asked(request, digest)
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

    def _asked(self, request: Request, digest: bytes) -> Entry:
        began = time.perf_counter()
        try:
            with spending_of(cap=self._spending) as spent:
                reply = self._engine.complete(request)
        except BaseException:
            self._record.give_up(digest)
            raise
        self._record.calls += 1
        seconds = time.perf_counter() - began
        text = "".join(part.text for part in reply.message.parts if isinstance(part, TextPart))
        whole = reply.finish_reason != "length"
        entry = Entry([text, whole], seconds, spent.tokens_in, spent.tokens_out, spent.usd)
        self._record.write({digest: entry})
        return entry


@contextmanager
def _quiet() -> Iterator[None]:
    """Without DSPy's remark that its own proposer puts in fields that were switched off."""

    def other(record: logging.LogRecord) -> bool:
        return "not in signature" not in record.getMessage()

    logger = logging.getLogger("dspy.predict.predict")
    logger.addFilter(other)
    try:
        yield
    finally:
        logger.removeFilter(other)


def _short(value: Any) -> Any:
    """The value, its texts cut to what a prompt can bear."""
    if isinstance(value, Mapping):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_short(item) for item in value[:SHOWN]]
    return str(value)[:CHARACTERS]
