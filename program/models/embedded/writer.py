"""The local writer: a `dspy.LM` that fills the generative signatures from what the reader finds in the passages."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import dspy
from dspy.lm15 import Message, Request, Response, TextPart, Usage, response_to_events

from program.errors import ModelError
from program.models.embedded.direct import find_reply, solve_arithmetic
from program.models.embedded.reader import READER, Reader, Reading
from program.models.embedded.splitting import split_question
from program.models.text import split_pieces
from program.signatures import Excerpt

SENTENCES = 3  # of an answer, when the prompt does not say
LEAST = -4.0  # of the score of a sentence that is quoted though none speaks for it
MOST_OPTIONS = 4  # of a question back
TITLE_STEP = " > "  # between a passage's title and its section's
_ADAPTER = dspy.ChatAdapter()
_OUTPUTS_START = "Your output fields are:\n"
_STRUCTURE_START = "All interactions will be structured"
_OBJECTIVE_START = "In adhering to this structure"
_CITATION = re.compile(r"\[\d{1,3}\]")
_MARK = re.compile(r"\[\[ ## \w+ ## \]\]")
_ENDS = frozenset(".!?:…")
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


def local_writer(reader: Reader) -> dspy.LM:
    """Return a language model that quotes what the reader finds.

    It answers Decompose, FollowUp, Missing, Clarify, Generate and AnswerDirectly. It splits, selects, quotes and
    computes, so the same request always gives the same reply and no fact is in an answer that is not in a passage; a
    direct question that is neither a greeting nor a sum gets an empty answer. English only.
    """
    engines = {"engine": WriterEngine(reader), "async_engine": AsyncWriterEngine(reader)}
    return dspy.LM(READER, **engines, cache=False)


class WriterEngine:
    """DSPy's engine of the local writer; safe from many threads. Usage is counted in words."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def complete(self, request: Request) -> Response:
        """Return the reply.

        Raises `ModelError` for a prompt whose outputs it cannot fill.
        """
        prompt = read_prompt(request)
        text = format_reply(prompt, fill_outputs(prompt, self._reader))
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
        text = format_reply(prompt, fill_outputs(prompt, self._reader))
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


def fill_outputs(prompt: WriterPrompt, reader: Reader) -> dict[str, str | Sequence[Any]]:
    """Return the outputs wanted, by name. Raises `ModelError` for unknown ones."""
    question = prompt.inputs.get("question", "")
    match prompt.outputs:
        case ("sub_queries", "details"):
            return {"sub_queries": split_question(question), "details": []}
        case ("query",):
            return {"query": _follow_up(reader, question, prompt.inputs.get("draft", question), prompt.read_passages())}
        case ("missing", "next_query"):
            missing, query = _find_missing(reader, question, prompt.read_passages())
            return {"missing": missing, "next_query": query}
        case ("clarifying_question",):
            return {"clarifying_question": _ask_back(reader, question, prompt.read_passages())}
        case ("answer",) if "passages" in prompt.inputs:
            asked = dict.fromkeys([*map(str, prompt.read_list("sub_queries")), question])
            most = int(prompt.inputs.get("sentences") or SENTENCES)
            least = 0.0 if prompt.inputs.get("strict", "").strip().lower() == "true" else LEAST
            return {"answer": _quote_pieces(reader, list(asked), prompt.read_passages(), most, least)}
        case ("answer",):
            return {"answer": find_reply(question) or solve_arithmetic(question)}
    raise ModelError(
        f"The local writer cannot fill {', '.join(prompt.outputs) or 'a signature without outputs'}.",
        "Name a language model in [models] write for this signature.",
    )


def _read(reader: Reader, question: str, passages: Sequence[Excerpt]) -> list[tuple[Reading, Excerpt]]:
    readings = reader.read(question, [(one.title, one.text) for one in passages])
    return list(zip(readings, passages, strict=True))


def _quote_pieces(reader: Reader, asked: Sequence[str], passages: Sequence[Excerpt], most: int, least: float) -> str:
    """Return the pieces that answer best, each with its passage's number.

    A piece's score is the margin of its best span plus its passage's answer logit. First comes the best piece for each
    question, then the second best for each, `most` at most, with scores above 0. When there are none, the best piece
    comes if its score is `least` at least.
    """
    ranked: list[tuple[int, float, int, str]] = []
    for question in asked:
        scored = [
            (-reading.best_within(piece.start, piece.end)[0] - reading.answers, passage.n, piece.text)
            for reading, passage in _read(reader, question, passages)
            for piece in split_pieces(passage.text)
            if not _CITATION.search(piece.text)
        ]
        ranked += [(rank, *one) for rank, one in enumerate(sorted(scored))]
    ranked.sort()
    chosen = [one for one in ranked if one[1] < 0]
    if not chosen and ranked and (best := min(ranked, key=lambda one: one[1]))[1] <= -least:
        chosen = [best]
    said: dict[str, str] = {}
    for _, _, n, text in chosen:
        closed = text if text.rstrip("\"'”’)")[-1:] in _ENDS else f"{text}."
        said.setdefault(text.casefold(), f"{closed} [{n}]")
    return " ".join(list(said.values())[:most])


def _follow_up(reader: Reader, question: str, draft: str, passages: Sequence[Excerpt]) -> str:
    """Return the draft with the question's best span behind it, unless the draft has it."""
    if not passages:
        return draft
    span = _span_text(*max(_read(reader, question, passages), key=lambda pair: pair[0].margin))
    return draft if span.casefold() in draft.casefold() else f"{draft} {span}"


def _find_missing(reader: Reader, question: str, passages: Sequence[Excerpt]) -> tuple[str, str]:
    """Return the part that the passages answer least, and a query for it; both empty when they answer all."""
    lowest, missing, title = 0.0, "", ""
    for part in split_question(question):
        read = [(reading.answers, passage.title) for reading, passage in _read(reader, part, passages)]
        answers, nearest = max(read, key=lambda pair: pair[0], default=(-math.inf, ""))
        if answers < lowest:
            lowest, missing, title = answers, part, nearest.replace(TITLE_STEP, " ")
    adds = set(title.casefold().split()) - set(missing.casefold().split())
    return missing, f"{missing} {title}" if adds else missing


def _ask_back(reader: Reader, question: str, passages: Sequence[Excerpt]) -> str:
    """Return the question which of the answers found is meant, or which of the two best passages."""
    read = sorted(_read(reader, question, passages), key=lambda pair: -pair[0].margin)
    spans: dict[str, tuple[str, Excerpt]] = {}
    for reading, passage in read:
        if reading.margin > 0 and (span := _span_text(reading, passage)):
            spans.setdefault(span.casefold(), (span, passage))
    found = list(spans.values())[:MOST_OPTIONS]
    options = _tell_apart([passage.title for _, passage in found])
    if len(found) > 1:
        options = options if len(options) > 1 else [span for span, _ in found]
        return f"Which do you mean: {', '.join(options[:-1])} or {options[-1]}?"
    options = _tell_apart([passage.title for _, passage in read[:2]])
    if len(options) > 1:
        return f"What exactly do you mean: {options[0]} or {options[1]}?"
    return "Could you say more exactly what you mean?"


def _tell_apart(titles: Sequence[str]) -> list[str]:
    """Return each title's step where the first two unlike titles last differ, each once; none of titles all alike."""
    paths = [[step.strip() for step in title.split(TITLE_STEP)] for title in titles]
    other = next((path for path in paths if path != paths[0]), None)
    if other is None:
        return []
    at = max(n for n, (one, two) in enumerate(zip_longest(paths[0], other)) if one != two)
    return list(dict.fromkeys(filter(None, (path[min(at, len(path) - 1)] for path in paths))))


def _span_text(reading: Reading, passage: Excerpt) -> str:
    return " ".join(passage.text[slice(*reading.span)].split())


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
    told = {
        # A value that holds a field's mark would end its own field.
        name: _MARK.sub("…", value) if isinstance(value, str) else json.dumps(list(value), ensure_ascii=False)
        for name, value in values.items()
    }
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
