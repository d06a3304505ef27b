"""What every route of a server shares: questions asked a few at a time, errors in OpenAI's shape, units of cookies."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import hmac
import logging
import os
import sys
import traceback
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import orjson
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response

from ragc.answer import Answer
from ragc.errors import QuestionError, VersionError, describe_fault
from ragc.serve.experiment_store import read_unit_key
from ragc.server.access import AccessError
from ragc.server.feedback import AskedBy, FeedbackLog
from ragc.server.metrics import Metrics
from ragc.server.programs import Programs

COOKIE, OPEN_WEBUI = "ragc_unit", "X-OpenWebUI-User-Id"
AT_WORK = 32  # questions answered at once, where language models or live sources are waited for
AT_ONCE = os.cpu_count() or 1
"""Questions at once where the embedded models do all: more would only take processor time from each other."""
NICENESS = 5  # of their threads, behind the event loop: it tells that the server is well, and takes what is asked
WAITING = 256  # questions that wait for that, at most
RETRY_AFTER = 5  # seconds after which a client that was turned away may try again
_LOG = logging.getLogger("ragc.server")
Result = TypeVar("Result")
Messages = Sequence[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks: the groups, a digest of the key, and in an experiment the unit that always gets the same arm."""

    readers: Sequence[str] = ()
    key: str = ""
    unit: str | None = ""
    """Empty where nobody says who it is; None where a program is asked by its name."""
    by_cookie: bool = False
    """Whether a cookie says who it is, as every request of a browser does."""

    def pseudonymize(self, counts: bool = False) -> AskedBy:
        """Return the asker as it is kept, without a name.

        `counts` says whether the answer is one of an experiment.
        """
        return AskedBy(self.key, _sign("asker", self.unit) if self.unit else "", self.by_cookie, counts)


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
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(AT_ONCE, "ragc answers", _give_way))
    """They answer where the embedded models do all."""
    _streams: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    """Room for answers that are streamed there: the event loop has part of their work."""

    def require_room(self) -> None:
        """Raise the error of status 429 where too many questions wait already."""
        if self.waiting >= AT_WORK + WAITING:
            what = "Too many questions are waiting. Ask again in a few seconds."
            raise HTTPException(429, what, {"Retry-After": str(RETRY_AFTER)})

    async def ask(
        self, program: Any, question: str, asker: Asker, tell: Callable[[Answer], Result], history: Messages = ()
    ) -> Result:
        """Return what `tell` makes of the answer of a program, or of the unit's arm."""
        threads, given = self._threads if self.programs.is_embedded else None, (question, history, asker.readers)
        async with self._take_place(program, asker.unit, self._room) as assigned:
            answer = None if threads else await assigned.aask(*given)

            def finish() -> Result:
                return tell(self._note_answer(answer or assigned(*given), asker, assigned))

            context = contextvars.copy_context()  # of this request, for spans and DSPy's settings
            return await asyncio.get_running_loop().run_in_executor(threads, context.run, finish)

    async def stream(self, program: Any, question: str, asker: Asker, history: Messages = ()) -> AsyncIterator[Any]:
        """Yield the events of an answer, the answer last."""
        room = self._streams if self.programs.is_embedded else self._room
        async with (
            self._take_place(program, asker.unit, room) as assigned,
            aclosing(assigned.stream(question, history, asker.readers)) as events,
        ):
            async for event in events:
                if isinstance(event, Answer):
                    await run_in_threadpool(self._note_answer, event, asker, assigned)
                yield event

    def _note_answer(self, answer: Answer, asker: Asker, assigned: Any) -> Answer:
        """Return an answer, counted; who asked is kept, for nobody else may judge it."""
        self.metrics.count_answer(answer)
        asked_by = asker.pseudonymize(counts=bool(getattr(assigned, "request_id", "")))
        self.feedback.note_asker(answer.trace.id, asked_by)
        return answer

    @asynccontextmanager
    async def _take_place(self, program: Any, unit: str | None, room: asyncio.Semaphore) -> AsyncIterator[Any]:
        """Wait for a place among the questions at work, and give the program, or the unit's arm."""
        self.waiting += 1
        try:
            async with room:
                with self.programs.assign(program, unit) as assigned:
                    yield assigned
        finally:
            self.waiting -= 1


def _give_way() -> None:
    """Put the calling thread behind the others of this process, where the system can."""
    if sys.platform == "linux":  # elsewhere it would be the whole process
        os.nice(NICENESS)


async def record(write: Callable[..., Result], *args: Any) -> Result:
    """Return what a write returns, made in a thread.

    One that the disk refuses is told as such, and logged in a line: of a full disk nothing is learned from the place in
    the code where it was met.
    """
    try:
        return await run_in_threadpool(write, *args)
    except OSError as error:
        _LOG.error("not recorded: %s", error)
        raise HTTPException(500, f"It was not recorded: {error.strerror or 'the disk refuses it'}.") from None


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
        own = first.get("ctx", {}).get("error")  # a sentence of this server's, or why a text is no JSON
        message = f"{param or 'The body'} {describe_fault(first)}."
        if own is not None:
            message = str(own) if isinstance(own, ValueError) else f"{first['msg']}."
    elif isinstance(error, QuestionError):
        message, param = str(error), "messages"
    elif isinstance(error, VersionError):
        status, message, code, param = 404, str(error), "model_not_found", "model"
    elif isinstance(error, HTTPException | AccessError):
        status, message = error.status_code, error.detail
        kind = "rate_limit_error" if status == 429 else "server_error" if status >= 500 else kind
    else:
        status, kind, message = 500, "server_error", "The question could not be answered. The server's log says why."
        _LOG.error("%s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
    return status, {"error": {"message": message, "type": kind, "param": param, "code": code}}


def asker_of(request: HTTPConnection, named: str | None = "") -> Asker:
    """Return who asks: `named` by the body, else by Open WebUI's header or a cookie.

    None asks for no arm.
    """
    asker = Asker(readers_of(request), request.user.username, named)
    if work_of(request).programs.experiment is None or named is None:
        return replace(asker, unit=None)
    if unit := named or request.headers.get(OPEN_WEBUI, ""):
        return replace(asker, unit=unit)
    return replace(asker, unit=read_unit(request) or "", by_cookie=True)


def read_unit(request: HTTPConnection) -> str | None:
    """Return the unit of a signed cookie, None without one.

    It is empty where a first question told none.
    """
    unit, _, signature = request.cookies.get(COOKIE, "").partition(".")
    return unit if hmac.compare_digest(signature.encode(), _sign("cookie", unit).encode()) else None


def keep_unit(request: HTTPConnection, response: Response, unit: str) -> None:
    """Have a browser keep a unit, where an experiment runs and it keeps none yet."""
    if work_of(request).programs.experiment is not None and read_unit(request) is None:
        cookie, secure = f"{unit}.{_sign('cookie', unit)}", request.url.scheme == "https"
        response.set_cookie(COOKIE, cookie, max_age=31_536_000, httponly=True, samesite="strict", secure=secure)


def _sign(what: str, unit: str) -> str:
    return hmac.new(read_unit_key(), f"ragc {what}\0{unit}".encode(errors="surrogatepass"), hashlib.sha256).hexdigest()
