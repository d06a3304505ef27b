"""The application: every route behind the same checks, and the server that runs it until it is stopped."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import uvicorn
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from program.errors import RagcError, SettingsError
from program.server import chat, page
from program.server.access import KEYS, Access
from program.server.feedback import FeedbackLog
from program.server.metrics import CONTENT_TYPE
from program.server.programs import Programs
from program.server.tools import mount_tools
from program.server.work import JsonResponse, Work, explain_failure, work_of

if TYPE_CHECKING:
    from program.serve.opening import Advance

MOST_BYTES = 1_000_000  # of a request's body
MOST_HEADERS = 100
SECONDS = 30  # until a request's head, and then its body, has come
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class RequestGuard:
    """Refuses what another site posts and a head of too many lines, and puts security headers on every response."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; a failure, which is logged where it is answered, ends here."""

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif (error := _find_fault(scope)) is not None:
            status, body = explain_failure(error)
            await JsonResponse(body, status)(scope, receive, send_guarded)
        else:
            with suppress(Exception):
                await self._app(scope, _limit_time(receive), send_guarded)


def _find_fault(scope: Scope) -> HTTPException | None:
    """Return why a request is refused before it is read."""
    if len(scope["headers"]) > MOST_HEADERS:
        return HTTPException(431, f"A request may have {MOST_HEADERS} headers.")
    if scope["method"] not in ("GET", "HEAD") and not _is_same_origin(Headers(scope=scope)):
        return HTTPException(403, "A page of another site may not post here.")
    return None


class PromptProtocol(H11Protocol):
    """HTTP/1.1 on connections that are closed after SECONDS without a whole request's head.

    Uvicorn alone waits for one as long as the client likes.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Watch a new connection."""
        super().connection_made(transport)
        self._watch(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of a connection."""
        self._due.cancel()
        super().connection_lost(exc)

    def _watch(self, last: object) -> None:
        self._due = self.loop.call_later(SECONDS, self._close_unused, last)

    def _close_unused(self, last: object) -> None:
        """Close the connection unless a request came since the last look, or is at work."""
        if self.scope is last and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()
        else:
            self._watch(self.scope)


def _limit_time(receive: Receive) -> Receive:
    """Return what receives a request whose body comes in time, and after it the client's leave whenever that is."""
    until, whole = asyncio.get_running_loop().time() + SECONDS, False

    async def receive_in_time() -> Message:
        nonlocal whole
        try:
            async with asyncio.timeout_at(None if whole else until):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, f"The body did not come within {SECONDS} seconds.") from None
        whole = not message.get("more_body", False)
        return message

    return receive_in_time


def _is_same_origin(headers: Headers) -> bool:
    """Tell whether a request comes from a page of this server, or from no page at all."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    same = origin is None or urlsplit(origin).netloc == headers.get("host")
    return same and site in ("same-origin", "none")


def make_app(programs: Programs, access: Access) -> Starlette:
    """Return the ASGI application over programs.

    Without keys it answers under this machine's own names only, so that no other site can have a browser ask it.
    """
    work = Work(programs, FeedbackLog(programs.project))
    tools = mount_tools(work, MOST_BYTES)
    hosts = ["*"] if access.needs_key else LOOPBACK
    app = Starlette(
        routes=[
            *chat.ROUTES,
            *page.ROUTES,
            Route("/healthz", tell_health),
            Route("/readyz", tell_health),
            Route("/metrics", tell_metrics),
            *tools.routes,
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False),
            Middleware(AuthenticationMiddleware, backend=access, on_error=_explain),
        ],
        exception_handlers=dict.fromkeys((HTTPException, ValidationError, RagcError, Exception), _explain),
        lifespan=tools.router.lifespan_context,
        max_body_size=MOST_BYTES,
    )
    app.state.work = work
    return app


def _explain(request: HTTPConnection, error: Exception) -> Response:
    """Return the response to an error: a page for a browser, else JSON in OpenAI's shape."""
    status, body = explain_failure(error)
    work_of(request).metrics.count_event("error", str(status))
    headers = getattr(error, "headers", None)
    if "text/html" in request.headers.get("accept", ""):
        context = {"message": body["error"]["message"]}
        return page.TEMPLATES.TemplateResponse(Request(request.scope), "error.html", context, status, headers)
    return JsonResponse(body, status, headers=headers)


async def tell_health(request: Request) -> Response:
    """Tell that the server answers: it begins once its program is open."""
    return PlainTextResponse("ok\n")


async def tell_metrics(request: Request) -> Response:
    """Return the figures of this server."""
    work = work_of(request)
    return PlainTextResponse(work.metrics.render(work.waiting), headers={"Content-Type": CONTENT_TYPE})


def open_app(
    target: str,
    host: str = LOOPBACK[0],
    artifacts: Path | None = None,
    project: Path | None = None,
    point: str | None = None,
    progress: Advance | None = None,
) -> Starlette:
    """Open a version, an experiment or a project, and return its application.

    Raises as `load`; `SettingsError` for an address that others can reach.
    """
    access = Access.from_environment()
    if not access.needs_key and host not in (*LOOPBACK, "::1"):
        what = f"{host} can be reached from other machines, and whoever reaches it may ask."
        raise SettingsError(what, f"Set {KEYS} to a key for each who may, or listen at {LOOPBACK[0]}.")
    return make_app(Programs(target, artifacts, project, point, progress), access)


def make_server(app: Starlette, host: str, port: int) -> uvicorn.Server:
    """Return a server that a signal ends once what streams is told."""
    seconds = int(chat.GRACE) + 5
    config = uvicorn.Config(
        RequestGuard(app),
        http=PromptProtocol,  # which takes no head of more than 64 kB that comes in parts
        host=host,
        port=port,
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=seconds,
    )
    return uvicorn.Server(config)
