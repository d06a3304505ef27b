"""The local writer: a `dspy.LM` that answers the generative signatures by extraction, without a model."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import dspy
from dspy.lm15 import Message, Request, Response, TextPart, Usage, response_to_events

from program.errors import ModelError
from program.models.encoder import Embedder, shared_embedder
from program.models.prompt import Prompt, fields, read, reply
from program.models.rules.arithmetic import solve_arithmetic
from program.models.rules.query_rewriting import ask_back, next_query, plan_look_ups, rewrite_query
from program.models.rules.quoting import quote_answer

MODEL = "local/extract-v1"
SENTENCES = 3  # of an answer, when the prompt does not say
_ADAPTER = dspy.ChatAdapter()


def local_writer(embedder: Embedder) -> dspy.LM:
    """A language model for Decompose, FollowUp, Missing, Clarify, Generate and AnswerDirectly.

    It generates nothing: it splits, selects, quotes and computes by rule, so the same request always gives
    the same reply and no fact is in an answer that is not in a passage. It uses no network. It knows no
    open-domain facts: a direct question that is not arithmetic gets an empty answer. English only.
    Demonstrations and reworded instructions do not change it.
    """
    engine = WriterEngine(embedder)
    return dspy.LM(MODEL, engine=engine, async_engine=AsyncWriterEngine(engine), cache=False)


class WriterEngine:
    """Replies to one request; safe from many threads. Usage is counted in words."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def complete(self, request: Request) -> Response:
        """Raises `ModelError` for a prompt whose outputs it cannot fill."""
        prompt = read(request)
        text = reply(prompt, answer(prompt, self._embedder))
        words_in = sum(len(value.split()) for value in prompt.inputs.values())
        words_out = len(text.split())
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant([TextPart(text)]),
            finish_reason="stop",
            usage=Usage(input_tokens=words_in, output_tokens=words_out, total_tokens=words_in + words_out),
        )

    def write(self, signature: type[dspy.Signature], inputs: Mapping[str, Any]) -> tuple[dict[str, Any], int, int]:
        """A signature's outputs as `dspy.Predict` would return them, and the words in and out.

        The prompt's last turn and the reply are written and read by DSPy, all around them is left out: of a thousand
        calls it is most of the work. Raises `ModelError` for outputs it cannot fill.
        """
        turn = _ADAPTER.format_user_message_content(signature, dict(inputs), main_request=True)
        prompt = Prompt(fields(turn, list(signature.input_fields)), tuple(signature.output_fields), as_json=False)
        text = reply(prompt, answer(prompt, self._embedder))
        words_in = sum(len(value.split()) for value in prompt.inputs.values())
        return dict(_ADAPTER.parse(signature, text)), words_in, len(text.split())

    def stream(self, request: Request) -> Iterator[Any]:
        """The reply as stream events, a word at a time: listeners look for a field's end between pieces."""
        yield from _by_word(self.complete(request))

    def dump_state(self) -> dict[str, str]:
        return {"embedder": self._embedder.name}

    @classmethod
    def load_state(cls, state: Mapping[str, str]) -> WriterEngine:
        return cls(shared_embedder(state["embedder"]))


class AsyncWriterEngine:
    """The same replies, awaited. The work is computation, so it runs in a thread and blocks no loop."""

    def __init__(self, engine: WriterEngine) -> None:
        self._engine = engine

    async def complete(self, request: Request) -> Response:
        import asyncio

        return await asyncio.to_thread(self._engine.complete, request)

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        for event in _by_word(await self.complete(request)):
            yield event

    def dump_state(self) -> dict[str, str]:
        return self._engine.dump_state()

    @classmethod
    def load_state(cls, state: Mapping[str, str]) -> AsyncWriterEngine:
        return cls(WriterEngine.load_state(state))


def _by_word(response: Response) -> Iterator[Any]:
    for event in response_to_events(response):
        delta: Any = getattr(event, "delta", None)
        text = getattr(delta, "text", "")
        for word in re.findall(r"\s*\S+\s*", text):
            yield replace(event, delta=replace(delta, text=word))
        if not text:
            yield event


def answer(prompt: Prompt, embedder: Embedder) -> dict[str, str | Sequence[Any]]:
    """The outputs that the prompt wants, by name. Raises `ModelError` when they are none it knows."""
    question = prompt.inputs.get("question", "")
    match prompt.outputs:
        case ("sub_queries", "details"):
            queries, waits = plan_look_ups(question)
            return {"sub_queries": queries, "details": [one.model_dump() for one in waits]}
        case ("query",):
            return {"query": rewrite_query(question, prompt.inputs.get("draft", question), prompt.excerpts(), embedder)}
        case ("missing", "next_query"):
            return {"missing": "", "next_query": next_query(question, prompt.excerpts(), embedder)}
        case ("clarifying_question",):
            return {"clarifying_question": ask_back(prompt.excerpts())}
        case ("answer",) if "passages" in prompt.inputs:
            text = quote_answer(
                question,
                prompt.texts("sub_queries"),
                prompt.excerpts(),
                embedder,
                most=int(prompt.inputs.get("sentences") or SENTENCES),
                strict=prompt.inputs.get("strict", "").strip().lower() == "true",
            )
            return {"answer": text}
        case ("answer",):
            return {"answer": solve_arithmetic(question)}
    raise ModelError(
        f"The local writer cannot fill {', '.join(prompt.outputs) or 'a signature without outputs'}.",
        "Name a language model in [models] write for this signature.",
    )
