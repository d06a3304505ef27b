"""The local writer: a `dspy.LM` that answers the generative signatures by extraction, without a model."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dspy
from dspy.lm15 import Message, Request, Response, TextPart, Usage, response_to_events

from program.errors import ModelError
from program.models.embedded.encoder import Embedder
from program.models.embedded.reader import READER, Reader
from program.models.rules.arithmetic import solve_arithmetic
from program.models.rules.query_rewriting import ask_back, next_query, plan_look_ups, rewrite_query
from program.models.rules.quoting import quote_answer
from program.signatures import Excerpt

SENTENCES = 3  # of an answer, when the prompt does not say
_ADAPTER = dspy.ChatAdapter()
_OUTPUTS_START = "Your output fields are:\n"
_STRUCTURE_START = "All interactions will be structured"
_OBJECTIVE_START = "In adhering to this structure"
_FIELD = re.compile(r"^\d+\. `(\w+)`", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class WriterPrompt:
    """The last turn of a conversation: input texts by field name, and the outputs wanted, in order."""

    inputs: Mapping[str, str]
    outputs: tuple[str, ...]
    as_json: bool

    def read_list(self, name: str) -> list[Any]:
        """Return a list-valued input; empty when the field is absent."""
        found = json.loads(self.inputs.get(name) or "[]")
        return found if isinstance(found, list) else [found]

    def read_passages(self) -> list[Excerpt]:
        """Return the numbered passages."""
        return [Excerpt.model_validate(item) for item in self.read_list("passages")]


def local_writer(embedder: Embedder, reader: Reader) -> dspy.LM:
    """Return a language model that writes by rule.

    It answers Decompose, FollowUp, Missing, Clarify, Generate and AnswerDirectly. It splits, selects, quotes and
    computes, so the same request always gives the same reply and no fact is in an answer that is not in a passage; a
    direct question that is not arithmetic gets an empty answer. English only.
    """
    engines = {"engine": WriterEngine(embedder, reader), "async_engine": AsyncWriterEngine(embedder, reader)}
    return dspy.LM(READER, **engines, cache=False)


class WriterEngine:
    """DSPy's engine of the local writer; safe from many threads. Usage is counted in words."""

    def __init__(self, embedder: Embedder, reader: Reader) -> None:
        self._embedder, self._reader = embedder, reader

    def complete(self, request: Request) -> Response:
        """Return the reply.

        Raises `ModelError` for a prompt whose outputs it cannot fill.
        """
        prompt = read_prompt(request)
        text = format_reply(prompt, fill_outputs(prompt, self._embedder))
        words_in, words_out = _count_words(prompt), len(text.split())
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant([TextPart(text)]),
            finish_reason="stop",
            usage=Usage(input_tokens=words_in, output_tokens=words_out, total_tokens=words_in + words_out),
        )

    def write(self, signature: type[dspy.Signature], inputs: Mapping[str, Any]) -> tuple[dict[str, Any], int, int]:
        """Return a signature's outputs as `dspy.Predict` would, and the words in and out.

        Only the last turn and the reply go through DSPy, which saves most of the time. Raises `ModelError` for outputs
        it cannot fill.
        """
        turn = _ADAPTER.format_user_message_content(signature, dict(inputs), main_request=True)
        given = _split_fields(turn, list(signature.input_fields))
        prompt = WriterPrompt(given, tuple(signature.output_fields), as_json=False)
        text = format_reply(prompt, fill_outputs(prompt, self._embedder))
        return dict(_ADAPTER.parse(signature, text)), _count_words(prompt), len(text.split())

    def stream(self, request: Request) -> Iterator[Any]:
        """Yield the reply as events, a word at a time.

        Listeners look for a field's end between pieces.
        """
        yield from _split_words(self.complete(request))


class AsyncWriterEngine(WriterEngine):
    """The same engine, awaited; its work is computation, so it runs in a thread and blocks no loop."""

    async def complete(self, request: Request) -> Response:
        """Return the reply.

        Raises `ModelError` for a prompt whose outputs it cannot fill.
        """
        return await asyncio.to_thread(super().complete, request)

    async def stream(self, request: Request) -> AsyncIterator[Any]:  # type: ignore[override]
        """Yield the reply as events, a word at a time."""
        for event in _split_words(await self.complete(request)):
            yield event


def _split_words(response: Response) -> Iterator[Any]:
    for event in response_to_events(response):
        delta: Any = getattr(event, "delta", None)
        text = getattr(delta, "text", "")
        for word in re.findall(r"\s*\S+\s*", text):
            yield replace(event, delta=replace(delta, text=word))
        if not text:
            yield event


def fill_outputs(prompt: WriterPrompt, embedder: Embedder) -> dict[str, str | Sequence[Any]]:
    """Return the outputs that the prompt wants, by name.

    Raises `ModelError` when they are none it knows.
    """
    question = prompt.inputs.get("question", "")
    match prompt.outputs:
        case ("sub_queries", "details"):
            queries, waits = plan_look_ups(question)
            return {"sub_queries": queries, "details": [one.model_dump() for one in waits]}
        case ("query",):
            draft = prompt.inputs.get("draft", question)
            return {"query": rewrite_query(question, draft, prompt.read_passages(), embedder)}
        case ("missing", "next_query"):
            return {"missing": "", "next_query": next_query(question, prompt.read_passages(), embedder)}
        case ("clarifying_question",):
            return {"clarifying_question": ask_back(prompt.read_passages())}
        case ("answer",) if "passages" in prompt.inputs:
            asked = [str(item) for item in prompt.read_list("sub_queries")]
            most = int(prompt.inputs.get("sentences") or SENTENCES)
            strict = prompt.inputs.get("strict", "").strip().lower() == "true"
            passages = prompt.read_passages()
            return {"answer": quote_answer(question, asked, passages, embedder, most=most, strict=strict)}
        case ("answer",):
            return {"answer": solve_arithmetic(question)}
    raise ModelError(
        f"The local writer cannot fill {', '.join(prompt.outputs) or 'a signature without outputs'}.",
        "Name a language model in [models] write for this signature.",
    )


def read_prompt(request: Request) -> WriterPrompt:
    """Return the fields of a request made by DSPy's ChatAdapter or JSONAdapter.

    List-valued inputs are one line of JSON, so a marker inside a passage never begins a line. A question may hold
    anything, but it comes first: fields are read from the last backwards. Raises `ModelError` for another adapter's
    request.
    """
    shape = _text_of(request.system).partition(_OBJECTIVE_START)[0]
    inputs_part, found, rest = shape.partition(_OUTPUTS_START)
    if not found:
        raise ModelError(
            "The local writer was asked in a format it does not read.",
            "Use dspy.ChatAdapter or dspy.JSONAdapter with it, or name a language model in [models] write.",
        )
    outputs = tuple(_FIELD.findall(rest.partition(_STRUCTURE_START)[0]))
    turn = [_text_of(message.parts) for message in request.messages if message.role == "user"][-1]
    inputs = _split_fields(turn, _FIELD.findall(inputs_part))
    return WriterPrompt(inputs, outputs, "Outputs will be a JSON object" in rest)


def format_reply(prompt: WriterPrompt, values: Mapping[str, str | Sequence[Any]]) -> str:
    """Return the values as text that the prompt's adapter parses back to them."""
    if prompt.as_json:
        return json.dumps({name: values[name] for name in prompt.outputs}, ensure_ascii=False)
    told = {n: v if isinstance(v, str) else json.dumps(list(v), ensure_ascii=False) for n, v in values.items()}
    parts = [f"[[ ## {name} ## ]]\n{told[name]}" for name in prompt.outputs]
    return "\n\n".join([*parts, "[[ ## completed ## ]]\n"])


def _text_of(parts: Any) -> str:
    if parts is None or isinstance(parts, str):
        return parts or ""
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


def _split_fields(turn: str, names: Sequence[str]) -> dict[str, str]:
    """Return the input texts of a conversation's last turn by field name; `names` in the order in which they stand."""
    text = turn.rpartition("\n\nRespond with ")[0] or turn
    found: dict[str, str] = {}
    for name in reversed(names):
        marker = f"[[ ## {name} ## ]]\n"
        # The first field opens the message: what looks like its marker further on is its own text.
        at = 0 if name == names[0] and text.startswith(marker) else text.rfind(marker)
        if at >= 0:
            found[name] = text[at + len(marker) :].strip()
            text = text[:at]
    return found


def _count_words(prompt: WriterPrompt) -> int:
    return sum(len(value.split()) for value in prompt.inputs.values())
