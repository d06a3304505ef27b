"""What every route of a server shares: questions asked a few at a time, errors in OpenAI's shape, units of cookies."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import traceback
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import uuid4

import orjson
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse

from program.answer import Answer
from program.errors import QuestionError, VersionError
from program.passage import Readers
from program.serve.experiment_store import read_unit_key
from program.server.access import AccessError
from program.server.feedback import FeedbackLog
from program.server.metrics import Metrics
from program.server.programs import Programs

AT_WORK = 32  # questions answered at once
WAITING = 128  # questions that wait for that, at most
RETRY_AFTER = 5  # seconds after which a client that was turned away may try again
_LOG = logging.getLogger("ragc.server")
Messages = Sequence[dict[str, str]]


@dataclass(slots=True)
class Work:
    """The programs of a server, and the questions it works on."""

    programs: Programs
    feedback: FeedbackLog
    metrics: Metrics = field(default_factory=Metrics)
    pairs: OrderedDict[str, tuple[list[str], list[str]]] = field(default_factory=OrderedDict)
    """The comparisons that may still be voted on: versions as they are named here, and as they answered."""
    waiting: int = 0
    """Questions at work or waiting."""
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_WORK))

    def require_room(self) -> None:
        """Raise the error of status 429 where too many questions wait already."""
        if self.waiting >= AT_WORK + WAITING:
            what = "Too many questions are waiting. Ask again in a few seconds."
            raise HTTPException(429, what, {"Retry-After": str(RETRY_AFTER)})

    async def ask(
        self, program: Any, question: str, history: Messages = (), unit: str = "", readers: Readers = ()
    ) -> Answer:
        """Return the answer of a program, or of the unit's arm, for these groups."""
        async with self._take_place(program, unit) as assigned:
            answer: Answer = await assigned.aask(question, history, readers)
        self.metrics.count_answer(answer)
        return answer

    async def stream(
        self, program: Any, question: str, history: Messages = (), unit: str = "", readers: Readers = ()
    ) -> AsyncIterator[Any]:
        """Yield the events of an answer, the answer last."""
        async with (
            self._take_place(program, unit) as assigned,
            aclosing(assigned.stream(question, history, readers)) as events,
        ):
            async for event in events:
                if isinstance(event, Answer):
                    self.metrics.count_answer(event)
                yield event

    @asynccontextmanager
    async def _take_place(self, program: Any, unit: str) -> AsyncIterator[Any]:
        """Wait for a place among the questions at work, and give the program, or the unit's arm."""
        self.waiting += 1
        try:
            async with self._room:
                with self.programs.assign(program, unit) as assigned:
                    yield assigned
        finally:
            self.waiting -= 1

    def record_vote(self, versions: Sequence[str], preferred: str) -> None:
        """Write which of two versions, or arms, somebody preferred; empty for neither."""
        if self.programs.experiment is not None:
            self.programs.experiment.record_vote(versions, preferred)
        else:
            self.feedback.write_vote(versions, preferred)
        self.metrics.count_event("vote", preferred or "neither")


class JsonResponse(JSONResponse):
    """A reply in JSON, written by the library that the traces are written by."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return orjson.dumps(content)


def work_of(request: HTTPConnection) -> Work:
    """Return the work of the server that a request came to."""
    return cast(Work, request.app.state.work)


def readers_of(request: HTTPConnection) -> list[str]:
    """Return the groups of whoever asks."""
    return [*request.auth.scopes]


def explain_failure(error: Exception) -> tuple[int, dict[str, Any]]:
    """Return the status and the body, in OpenAI's shape, of an error.

    A client learns what it can mend. Anything else is logged with the place it came from, without its message: that may
    hold what somebody asked.
    """
    status, kind, code, param = 400, "invalid_request_error", None, None
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        param = ".".join(map(str, first["loc"])) or None
        message = f"{param}: {first['msg']}." if param else f"{first['msg']}."
    elif isinstance(error, QuestionError):
        message, param = str(error), "messages"
    elif isinstance(error, VersionError):
        status, message, code, param = 404, str(error), "model_not_found", "model"
    elif isinstance(error, HTTPException | AccessError):
        status, message = error.status_code, error.detail
        kind = "rate_limit_error" if status == 429 else kind
    else:
        status, kind, message = 500, "server_error", "The question could not be answered. The server's log says why."
        _LOG.error("%s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
    return status, {"error": {"message": message, "type": kind, "param": param, "code": code}}


def read_unit(cookie: str | None) -> tuple[str, str]:
    """Return the unit of a signed cookie and no cookie, or a new unit and its cookie."""
    unit, _, signature = (cookie or "").partition(".")
    if hmac.compare_digest(signature.encode(), _sign_unit(unit).encode()):
        return unit, ""
    unit = uuid4().hex
    return unit, f"{unit}.{_sign_unit(unit)}"


def _sign_unit(unit: str) -> str:
    return hmac.new(read_unit_key(), f"ragc cookie\0{unit}".encode(), hashlib.sha256).hexdigest()
