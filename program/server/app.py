"""The application: every route behind the same checks, and the server that runs it until it is stopped."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import uvicorn
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ragc.errors import RagcError, SettingsError
from ragc.serve.follow import free_memory
from ragc.server import chat, page
from ragc.server.access import KEYS, OPEN, Access
from ragc.server.feedback import FeedbackLog
from ragc.server.metrics import CONTENT_TYPE
from ragc.server.programs import Programs
from ragc.server.tools import mount_tools, refuse_stream
from ragc.server.work import JsonResponse, Work, explain_failure, work_of

if TYPE_CHECKING:
    from ragc.serve.opening import Advance

MOST_BYTES = 1_000_000  # of a request's body
MOST_HEADERS = 100
BACKLOG = 2048  # connections that the system keeps until they are accepted
SECONDS = 30  # until a request's head, and then its body, has come
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HOSTS = "RAGC_SERVE_HOSTS"
"""The environment variable that holds the names under which browsers reach the server, parted by spaces or commas."""
UNKNOWN = "Not Found"  # what Starlette says of a route that is not there
ROUTES_OF_API = "Questions go to POST /v1/chat/completions; GET /v1/models lists the models."
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s/@:\[\]]+)(?::[0-9]*)?")
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
_UNCACHED = {**_HEADERS, "Cache-Control": "no-store"}


class RequestGuard:
    """Refuses what another site's page may have sent and what is too long, and puts security headers on every response.

    It answers under the names in `RAGC_SERVE_HOSTS` and this machine's own: no other site can then have a browser ask
    it. Where a request needs a key, and no name is set, it answers under any. What an asker is told is kept by no
    cache, for it may be for their groups alone.
    """

    def __init__(self, app: Starlette) -> None:
        names = re.split(r"[\s,]+", os.environ.get(HOSTS, "").lower())
        self._app, self._names = app, tuple(filter(None, names))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; a failure, which is logged where it is answered, ends here."""

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS if scope["path"].startswith("/static/") else _UNCACHED)
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = {**scope, "app": self._app, "path": scope["path"].rstrip("/") or "/"}
        if (error := self._find_fault(scope)) is not None:
            await _explain(HTTPConnection(scope), error)(scope, receive, send_guarded)
        else:
            with suppress(Exception):
                await self._app(scope, _limit_time(receive), send_guarded)

    def _find_fault(self, scope: Scope) -> HTTPException | None:
        """Return why a request is refused before it is read."""
        headers = Headers(scope=scope)
        if len(scope["headers"]) > MOST_HEADERS:
            return HTTPException(431, f"A request may have {MOST_HEADERS} headers.")
        if int(headers.get("content-length", 0)) > MOST_BYTES:
            return HTTPException(413, f"A request may have {MOST_BYTES:,} bytes.")
        host, any_name = headers.get("host", ""), self._app.state.needs_key and not self._names
        if scope["path"] not in OPEN and not any_name and not _is_named(host, (*LOOPBACK, *self._names)):
            what = f"This server does not answer under the name {host[:80]!r}."
            return HTTPException(400, f"{what} If it is reached by that name, set {HOSTS} to it.")
        if scope["method"] not in ("GET", "HEAD") and not self._is_same_origin(headers):
            what = f"A page of another site may not post here, and this server was reached as {host[:80]!r}."
            return HTTPException(403, f"{what} If it stands behind a proxy, set {HOSTS} to the host of its pages.")
        return None

    def _is_same_origin(self, headers: Headers) -> bool:
        """Tell whether a request comes from a page of this server, or from no page at all.

        A proxy's `X-Forwarded-Host` counts: no page of another site can send one without asking first.
        """
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        place = urlsplit(origin or "").netloc.lower()
        own = (headers.get("host", ""), headers.get("x-forwarded-host", "").partition(",")[0].strip())
        same = origin is None or (place != "" and (place in map(str.lower, own) or _is_named(place, self._names)))
        return same and site in ("same-origin", "none")


def _is_named(place: str, names: Sequence[str]) -> bool:
    """Tell whether a host, with or without a port, has one of these names; `*.` stands for any name below another."""
    found = _HOST.fullmatch(place.lower())
    return found is not None and any(found[1] == n or (n[:2] == "*." and found[1].endswith(n[1:])) for n in names)


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


def make_app(programs: Programs, access: Access) -> Starlette:
    """Return the ASGI application over programs."""
    work = Work(programs, FeedbackLog(programs.project))
    tools = mount_tools(work, MOST_BYTES)
    app = Starlette(
        routes=[
            *chat.ROUTES,
            *page.ROUTES,
            Route("/healthz", PlainTextResponse("ok\n"), methods=["GET"]),  # heard once the program is open
            Route("/readyz", tell_readiness),
            Route("/metrics", tell_metrics),
            Route("/mcp", refuse_stream, methods=["GET"]),
            *tools.routes,
        ],
        middleware=[Middleware(AuthenticationMiddleware, backend=access, on_error=_explain)],
        exception_handlers=dict.fromkeys((HTTPException, ValidationError, RagcError, Exception), _explain),
        lifespan=tools.router.lifespan_context,
        max_body_size=MOST_BYTES,
    )
    app.router.redirect_slashes = False  # which leads to whichever host the client named, without TLS
    app.state.work, app.state.needs_key = work, access.needs_key
    return app


def _explain(request: HTTPConnection, error: Exception) -> Response:
    """Return the response to an error: a page for a browser, else JSON in OpenAI's shape."""
    status, body = explain_failure(error)
    work_of(request).metrics.count_event("error", str(status))
    headers = getattr(error, "headers", None)
    is_browser = "text/html" in request.headers.get("accept", "")
    if body["error"]["message"] == UNKNOWN:
        asked = f"{request.scope['method']} {request.scope['path'][:80]}"
        body["error"]["message"] = f"{UNKNOWN}: {asked} is not served. {'' if is_browser else ROUTES_OF_API}".strip()
    if is_browser:
        context = {"message": body["error"]["message"]}
        return page.TEMPLATES.TemplateResponse(Request(request.scope), "error.html", context, status, headers)
    return JsonResponse(body, status, headers=headers)


async def tell_readiness(request: Request) -> Response:
    """Tell that the server answers, and on a second line where documents changed since they were indexed."""
    changed = await run_in_threadpool(work_of(request).programs.tell_unindexed)
    return PlainTextResponse(f"ok\n{changed}\n" if changed else "ok\n")


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


class Server(uvicorn.Server):
    """A server that tells its address once it listens there.

    While it runs, what was open before is not searched for garbage: a search of it stops all threads for .4 s.
    """

    def __init__(self, config: uvicorn.Config, tell: Callable[[str], object]) -> None:
        super().__init__(config)
        self._tell = tell

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, or raise `SettingsError`: uvicorn would end the process."""
        host, sockets = self.config.host, sockets or open_sockets(self.config.host, self.config.port)
        free_memory()
        gc.freeze()
        await super().startup(sockets)
        self._tell(f"http://{f'[{host}]' if ':' in host else host}:{sockets[0].getsockname()[1]}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what was asked, and close."""
        await super().shutdown(sockets)
        gc.unfreeze()


def open_sockets(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen at each address of a host."""
    opened: list[socket.socket] = []
    try:
        for family, *_, address in dict.fromkeys(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)):
            opened.append(socket.create_server(address[:2], family=family, backlog=BACKLOG))
    except OSError as error:
        for one in opened:
            one.close()
        why = str(error.strerror).partition(" (")[0]
        what = f"The server cannot listen at {host}, port {port}: {why}."
        raise SettingsError(what, "Choose another with --host or --port.") from error
    return opened


def make_server(app: Starlette, host: str, port: int, tell: Callable[[str], object] = lambda url: None) -> Server:
    """Return a server that a signal ends once what streams is told.

    It tells the address at which it listens.
    """
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
    return Server(config, tell)
