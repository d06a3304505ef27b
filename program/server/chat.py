"""`POST /v1/chat/completions` and `GET /v1/models`, as OpenAI defines them, with citations in every reply.

A draft that the answer does not say is withdrawn, and what was sent cannot be. So a stream tells its progress as
`reasoning_content`, and then the text that counts; `stream_options.include_drafts` has drafts as they come, and a chunk
with `withdrawn` where one does not count.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal
from uuid import uuid4

import anyio
import orjson
from pydantic import BaseModel, field_validator
from sse_starlette.sse import EventSourceResponse
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from program.answer import Answer, Citation, Outcome
from program.knowledge.library import Library
from program.loop.question_meter import Progress, Token, Withdrawn
from program.loop.rag import check_question
from program.passage import Readers
from program.server.way import put_into_words
from program.server.work import JsonResponse, Work, explain_failure, read_unit, readers_of, work_of
from program.text.pieces import MARK, split_claims, split_pieces
from program.text.words import split_words

GRACE = 30.0  # seconds that a stream under way may take when the server stops, and a send to a slow reader
COOKIE = "ragc_unit"


class Part(BaseModel):
    """A part of a message's content; only text is read."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """A message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | tuple[Part, ...] | None = None

    @field_validator("content")
    @classmethod
    def _join_parts(cls, content: str | tuple[Part, ...] | None) -> str:
        return content if isinstance(content, str) else "\n".join(part.text for part in content or ())


class StreamOptions(BaseModel):
    """What a stream holds besides."""

    include_usage: bool = False
    include_drafts: bool = False


class ChatRequest(BaseModel):
    """The body of a request; keys of OpenAI's that change nothing here are passed over."""

    model: str
    messages: tuple[Message, ...]
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    user: str = ""
    n: Literal[1] = 1

    @field_validator("stream_options", "user", mode="before")
    @classmethod
    def _read_null(cls, value: Any, info: Any) -> Any:
        return cls.model_fields[info.field_name].default if value is None else value

    @property
    def question(self) -> str:
        """The last message, which the user's must be."""
        return str(self.messages[-1].content) if self.messages and self.messages[-1].role == "user" else ""

    @property
    def history(self) -> list[dict[str, str]]:
        """The messages before the question."""
        return [message.model_dump() for message in self.messages[:-1]]


async def answer_chat(request: Request) -> Response:
    """Answer the last message of a conversation."""
    work = work_of(request)
    asked = ChatRequest.model_validate_json(await request.body())
    check_question(asked.question)
    program = await work.programs.find(asked.model)
    unit, cookie = asked.user, ""
    if work.programs.experiment is not None and asked.model == work.programs.default and not unit:
        unit, cookie = read_unit(request.cookies.get(COOKIE))
    work.require_room()
    if asked.stream:
        events = _stream_chunks(work, program, asked, unit, readers_of(request))
        response: Response = EventSourceResponse(
            events,
            sep="\n",
            send_timeout=GRACE,
            shutdown_event=anyio.Event(),
            shutdown_grace_period=GRACE,
        )
    else:
        answer = await work.ask(program, asked.question, asked.history, unit, readers_of(request))
        message = {"role": "assistant", "content": answer.text, "refusal": None, "annotations": _annotate(answer, work)}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        head = {"id": f"chatcmpl-{answer.trace.id}", "object": "chat.completion", "created": int(time.time())}
        usage = {"usage": _count_tokens(answer)}
        response = JsonResponse({**head, "model": asked.model, "choices": [choice], **usage, **describe(answer, work)})
    if cookie:
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, cookie, max_age=31_536_000, httponly=True, samesite="strict", secure=secure)
    return response


async def _stream_chunks(
    work: Work, program: Any, asked: ChatRequest, unit: str, readers: Readers
) -> AsyncIterator[str]:
    """Yield the chunks of an answer as JSON; what fails midway ends in a chunk with the error."""
    head = {"id": f"chatcmpl-{uuid4().hex}", "object": "chat.completion.chunk", "created": int(time.time())}
    head["model"] = asked.model

    def chunk(delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return orjson.dumps({**head, "choices": [choice], **more}).decode()

    yield chunk({"role": "assistant", "content": ""})
    drafts = asked.stream_options.include_drafts
    try:
        async for event in work.stream(program, asked.question, asked.history, unit, readers):
            if isinstance(event, Progress):
                yield chunk({"reasoning_content": f"{put_into_words(event.note)}\n"})
            elif isinstance(event, Token) and drafts:
                yield chunk({"content": event.text})
            elif isinstance(event, Withdrawn) and drafts:
                yield chunk({}, withdrawn=True)
            elif isinstance(event, Answer):
                if not drafts:
                    yield chunk({"content": event.text})
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
    fixed = {"object": "model", "created": 0, "owned_by": "ragc"}
    return JsonResponse({"object": "list", "data": [{"id": model, **fixed} for model in models]})


def describe(answer: Answer, work: Work) -> dict[str, Any]:
    """Return what an answer says besides its text.

    Each citation has its passage and the places of what was quoted.
    """
    found = answer.as_dict()
    library = work.programs.library
    pairs = zip(found["citations"], answer.citations, strict=True)
    citations = [{**shown, **_quote(answer, one, library)} for shown, one in pairs]
    names = ("outcome", "confidence", "stopped_by", "version", "trace_id", "degraded", "path")
    way = [put_into_words(note) for note in answer.trace.path]
    return {"citations": citations, **{name: found[name] for name in names}, "way": way}


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
]
