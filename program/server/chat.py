"""`POST /v1/chat/completions` and `GET /v1/models`, as OpenAI defines them, with citations in every reply.

Of a request text is read; a key that is null counts as absent, and what would change the reply and cannot is refused.
A chat window that has its conversations titled, tagged or searched for by the model is answered at once.

A draft that the answer does not say is withdrawn, and what was sent cannot be. So a stream tells its progress as
`reasoning_content`, and then the text that counts; `stream_options.include_drafts` has drafts as they come, and a chunk
with `withdrawn` where one does not count.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from textwrap import shorten
from typing import Any, Literal
from uuid import uuid4

import anyio
import orjson
from pydantic import BaseModel, ValidationInfo, field_validator, model_validator
from sse_starlette.sse import EventSourceResponse
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ragc.answer import Answer, Citation, Outcome, Progress, Token, Withdrawn
from ragc.errors import QuestionError
from ragc.knowledge.library import Library
from ragc.loop.rag import check_question
from ragc.notes import put_into_words
from ragc.server.work import JsonResponse, Work, asker_of, explain_failure, keep_unit, work_of
from ragc.text.pieces import MARK, split_claims, split_pieces
from ragc.text.words import split_words

TITLE = "title_generation"
CHORES = (TITLE, *(f"{one}_generation" for one in "follow_up tags emoji query image_prompt autocomplete".split()))
"""The tasks that Open WebUI sets a model by itself, by its names."""
LONGEST_TITLE = 80
_FIRST_ASKED = re.compile(r"^USER: (.*)", re.MULTILINE)
_FORM = re.compile(r'\{\s*"(\w+)"\s*:\s*(["\[])')  # the JSON that a template asks for
SUPPORTED: dict[str, tuple[Any, ...]] = {
    **{"response_format": ("text",), "tool_choice": ("auto", "none"), "function_call": ("auto", "none"), "n": (1,)},
    **{"logprobs": (False,), "top_logprobs": (0,), "modalities": (["text"],), "audio": (), "web_search_options": ()},
}
"""The values, or their types, of keys that would change the form of a reply; any other is refused."""
GRACE = 30.0  # seconds that a stream under way may take when the server stops, and a send to a slow reader
MODEL = {"object": "model", "created": 0, "owned_by": "ragc"}


class Nullable(BaseModel):
    """An object of a request: a key that is null counts as absent."""

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, values: Any) -> Any:
        return {k: v for k, v in values.items() if v is not None} if isinstance(values, Mapping) else values


class Message(Nullable):
    """A message of the conversation; only its text is read."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str = ""
    unread: tuple[str, ...] = ()
    """The types of its parts without text, such as `image_url`."""

    @model_validator(mode="before")
    @classmethod
    def _read_parts(cls, values: Any) -> Any:
        parts = values.get("content") if isinstance(values, Mapping) else None
        if parts is None or isinstance(parts, str):
            return values
        parts = parts if isinstance(parts, list) else [parts]
        parts = [{"text": part} if isinstance(part, str) else part for part in parts if part is not None]
        if not all(isinstance(part, Mapping) for part in parts):
            raise ValueError("The content of a message is text or a list of parts.")
        texts = [part.get("text", part.get("refusal")) for part in parts]
        if any(part.get("type") == "text" and not isinstance(part.get("text"), str) for part in parts):
            raise ValueError("A part of the type text holds no text.")
        unread = [str(p.get("type")) for p, text in zip(parts, texts, strict=True) if not isinstance(text, str)]
        return {**values, "content": "\n".join(text for text in texts if isinstance(text, str)), "unread": unread}


class StreamOptions(Nullable):
    """What a stream holds besides."""

    include_usage: bool = False
    include_drafts: bool = False


class ChatRequest(Nullable):
    """The body of a request; keys of OpenAI's that change nothing here are passed over."""

    model: str
    messages: tuple[Message, ...]
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    user: str = ""
    safety_identifier: str = ""
    metadata: dict[str, Any] = {}
    n: Any = None
    response_format: Any = None
    tool_choice: Any = None
    function_call: Any = None
    logprobs: Any = None
    top_logprobs: Any = None
    modalities: Any = None
    audio: Any = None
    web_search_options: Any = None

    @field_validator(*SUPPORTED)
    @classmethod
    def _refuse_form(cls, value: Any, info: ValidationInfo) -> None:
        kind, name = value.get("type", value) if isinstance(value, Mapping) else value, info.field_name or ""
        if kind not in SUPPORTED[name]:
            shown = kind if isinstance(kind, str) else orjson.dumps(kind).decode()
            raise ValueError(f"{name} {shown} is not supported: an answer is one text, and no tool is called.")

    @property
    def last(self) -> str:
        """The text of the last message. Raises `QuestionError` for one that has none, or is not the user's."""
        n = len(self.messages)
        if not n or self.messages[-1].role != "user":
            role = f"that of message {n} is {self.messages[-1].role}" if n else "there is none"
            raise QuestionError(f"The last message must be the user's: {role}.", "Put the question last.")
        text, unread = self.messages[-1].content, self.messages[-1].unread
        if unread and not text.strip():
            raise QuestionError(f"Only text is read; message {n} holds {', '.join(unread)}.", "Ask in words.")
        return text

    @property
    def unit(self) -> str:
        """Who asks, as far as the body says."""
        return self.user or self.safety_identifier or str(self.metadata.get("user_id") or "")

    @property
    def history(self) -> list[dict[str, str]]:
        """The messages before the question."""
        return [{"role": message.role, "content": message.content} for message in self.messages[:-1]]

    def reply_to_chore(self) -> Answer | None:
        """Return the answer to a chat window's own task, or None for a question.

        A task is told by its machine form: Open WebUI's name in `metadata.task`, or its template, whose text begins
        with `### Task:` and holds the conversation in `<chat_history>`. A title is the first question; of whatever else
        is wanted there is nothing, in the JSON that the template shows.
        """
        named = self.metadata.get("task")
        before, _, rest = self.last.partition("<chat_history>")
        history, end, _ = rest.rpartition("</chat_history>")
        if named not in CHORES and not (end and before.lstrip().startswith("### Task:")):
            return None
        shown = _FIRST_ASKED.search(history)
        first = shown[1] if shown else next(one.content for one in self.messages if one.role == "user")
        text = shorten(first, LONGEST_TITLE, placeholder=" …") if named in (None, TITLE) else ""
        if form := _FORM.search(before):
            key, value = form.groups()
            text = orjson.dumps({key: [] if value == "[" else text if key == "title" else ""}).decode()
        return Answer(text=text, outcome=Outcome.ANSWERED, confidence=1.0)


async def answer_chat(request: Request) -> Response:
    """Answer the last message of a conversation."""
    work = work_of(request)
    asked = ChatRequest.model_validate_json(await request.body())
    if (chore := asked.reply_to_chore()) is not None:
        work.programs.require_served(asked.model)
        return _stream_reply(work, asked, _yield_answer(chore)) if asked.stream else _make_reply(work, asked, chore)
    question = check_question(asked.last)
    program = await work.programs.find(asked.model)
    asker = asker_of(request, asked.unit if asked.model == work.programs.default else None)
    work.require_room()
    if asked.stream:
        response = _stream_reply(work, asked, work.stream(program, question, asker, asked.history))
    else:
        tell = partial(_make_reply, work, asked)
        response = await work.ask(program, question, asker, tell, asked.history)
    if asker.unit == "":
        keep_unit(request, response, "")  # so that this browser stays with the control, which it has seen
    return response


async def _yield_answer(answer: Answer) -> AsyncIterator[Answer]:
    yield answer


def _make_reply(work: Work, asked: ChatRequest, answer: Answer) -> Response:
    message = {"role": "assistant", "content": answer.shown, "refusal": None, "annotations": _annotate(answer, work)}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    id_ = f"chatcmpl-{answer.trace.id or uuid4().hex}"
    head = {"id": id_, "object": "chat.completion", "created": int(time.time()), "model": asked.model}
    return JsonResponse({**head, "choices": [choice], "usage": _count_tokens(answer), **describe(answer, work)})


def _stream_reply(work: Work, asked: ChatRequest, events: AsyncIterator[Any]) -> Response:
    return EventSourceResponse(
        _stream_chunks(work, asked, events),
        sep="\n",
        send_timeout=GRACE,
        shutdown_event=anyio.Event(),
        shutdown_grace_period=GRACE,
    )


async def _stream_chunks(work: Work, asked: ChatRequest, events: AsyncIterator[Any]) -> AsyncIterator[str]:
    """Yield the chunks of an answer as JSON; what fails midway ends in a chunk with the error."""
    head = {"id": f"chatcmpl-{uuid4().hex}", "object": "chat.completion.chunk", "created": int(time.time())}
    head["model"] = asked.model

    def chunk(delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return orjson.dumps({**head, "choices": [choice], **more}).decode()

    yield chunk({"role": "assistant", "content": ""})
    drafts = asked.stream_options.include_drafts
    try:
        async for event in events:
            if isinstance(event, Progress):
                yield chunk({"reasoning_content": f"{put_into_words(event.note)}\n"})
            elif isinstance(event, Token) and drafts:
                yield chunk({"content": event.text})
            elif isinstance(event, Withdrawn) and drafts:
                yield chunk({}, withdrawn=True)
            elif isinstance(event, Answer):
                if not drafts:
                    yield chunk({"content": event.shown})
                annotations = {"annotations": _annotate(event, work)}
                yield chunk(annotations, "stop", **describe(event, work))
                if asked.stream_options.include_usage:
                    yield orjson.dumps({**head, "choices": [], "usage": _count_tokens(event)}).decode()
    except Exception as error:
        yield orjson.dumps(explain_failure(error)[1]).decode()
    yield "[DONE]"


async def list_models(request: Request) -> Response:
    """List the names that `model` may be."""
    models = work_of(request).programs.list_models()
    return JsonResponse({"object": "list", "data": [{"id": model, **MODEL} for model in models]})


async def show_model(request: Request) -> Response:
    """Return what OpenAI's clients retrieve of one of these names."""
    model = request.path_params["model"]
    work_of(request).programs.require_served(model)
    return JsonResponse({"id": model, **MODEL})


def describe(answer: Answer, work: Work) -> dict[str, Any]:
    """Return what an answer says besides its text.

    Each citation has its passage and the places of what was quoted.
    """
    found = answer.as_dict()
    library = work.programs.library
    pairs = zip(found["citations"], answer.citations, strict=True)
    citations = [{**shown, **_quote(answer, one, library)} for shown, one in pairs]
    names = ("nearest", "outcome", "confidence", "stopped_by", "version", "trace_id", "degraded", "reviewed", "path")
    way = [put_into_words(note) for note in answer.trace.path]
    return {"citations": citations, **{name: found[name] for name in names}, "options": answer.options, "way": way}


def _quote(answer: Answer, citation: Citation, library: Library) -> dict[str, Any]:
    passage = library.find_passage(citation.id)
    if passage is None:
        return {}
    answered = answer.outcome is Outcome.ANSWERED  # else a passage is named, and nothing is taken from it
    return {"text": passage.text, "quotes": find_quotes(answer.text, citation.n, passage.text) if answered else []}


def find_quotes(text: str, n: int, passage: str) -> list[tuple[int, int]]:
    """Return the places in a passage of the pieces that an answer takes from it.

    A place is of the first character and behind the last. Of each claim that cites the passage they are the pieces that
    stand in the claim word for word, else the piece that shares most words with it.
    """
    found: set[tuple[int, int]] = set()
    pieces = split_pieces(passage)
    for claim in (claim for claim in split_claims(text) if n in claim.cites and pieces):
        taken = [piece for piece in pieces if piece.shown.rstrip(".;") in claim.bare]
        if not taken:
            words = set(split_words(claim.bare))
            taken = [max(pieces, key=lambda piece: (len(words & set(split_words(piece.shown))), -len(piece.shown)))]
        found |= {(piece.start, piece.end) for piece in taken}
    return sorted(found)


def _annotate(answer: Answer, work: Work) -> list[dict[str, Any]]:
    """Return the place of each mark with its citation, as OpenAI has them.

    An address is that of the passage's document, or else the passage's id.
    """
    cited = {citation.n: citation for citation in answer.citations}
    found = []
    for mark in MARK.finditer(answer.text):
        if (one := cited.get(int(mark[1]))) is not None:
            passage = work.programs.library.find_passage(one.id)
            place = {"start_index": mark.start(), "end_index": mark.end()}
            address = {"url": (passage and passage.link) or one.id, "title": one.title}
            found.append({"type": "url_citation", "url_citation": {**place, **address}})
    return found


def _count_tokens(answer: Answer) -> dict[str, int]:
    read, written = answer.usage.tokens_in, answer.usage.tokens_out
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


ROUTES = [
    Route("/v1/chat/completions", answer_chat, methods=["POST"]),
    Route("/v1/models", list_models, methods=["GET"]),
    Route("/v1/models/{model:path}", show_model, methods=["GET"]),
]
