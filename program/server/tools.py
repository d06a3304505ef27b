"""The same program as tools of the Model Context Protocol, over streamable HTTP at `/mcp`.

A reply is one text of JSON: a client may show an agent the text and the structured content, and each costs its tokens.
"""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import Any, NoReturn, cast

import orjson
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request

from ragc.answer import Answer
from ragc.loop.rag import check_question
from ragc.server.chat import describe
from ragc.server.work import Work, asker_of, explain_failure, readers_of

MOST_FOUND = 20
TOLD = ("nearest", "outcome", "confidence", "degraded", "reviewed", "version", "trace_id")
"""What an agent is told of an answer besides its text and citations."""
_LOG = logging.getLogger("ragc.server")


class _Tools(MCPServer):
    """A server whose errors reach the client as a sentence, and the log as a line."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Return what a tool replies. Raises `ToolError`."""
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            cause = error.__cause__
            message = explain_failure(cause)[1]["error"]["message"] if isinstance(cause, Exception) else str(error)
            _LOG.warning("%r: %s", name, message)
            raise ToolError(message) from None


def mount_tools(work: Work, max_bytes: int) -> Starlette:
    """Return an application with the tools, which leaves hosts to the server."""
    programs = work.programs
    about = " ".join(f"{card.name}: {card.describe()}" for card in programs.library.readable_by().describe())
    server = _Tools(programs.project.name, version=version("ragc"), log_level="ERROR")

    async def ask_knowledge(question: str, context: Context) -> str:
        work.require_room()
        program = await programs.find(programs.default)
        return await work.ask(program, check_question(question), asker_of(_request_of(context)), tell)

    def tell(answer: Answer) -> str:
        found = describe(answer, work)
        cited = [
            {key: one[key] for key in ("n", "id", "source", "title", "text") if key in one}
            for one in found["citations"]
        ]
        return orjson.dumps({"text": answer.text, "citations": cited, **{key: found[key] for key in TOLD}}).decode()

    async def search_knowledge(query: str, context: Context, k: int = 8) -> str:
        library = await run_in_threadpool(programs.library.readable_by, readers_of(_request_of(context)))
        found = await run_in_threadpool(library.search, check_question(query), None, min(max(k, 1), MOST_FOUND))
        told = [{"id": p.id, "source": p.source, "title": p.title, "text": p.text} for p in found]
        return orjson.dumps(told).decode()

    for tool, does in (
        (ask_knowledge, "Answer a question from these knowledge bases, with citations."),
        (search_knowledge, "Find the best passages for a query in these bases."),
    ):
        reads = ToolAnnotations(read_only_hint=True)
        server.add_tool(tool, description=f"{does} {about}", annotations=reads, structured_output=False)
    checked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    return server.streamable_http_app(
        stateless_http=True, json_response=True, max_request_body_size=max_bytes, transport_security=checked
    )


def refuse_stream(request: Request) -> NoReturn:
    """Refuse to stream what no request asked for, as a server without sessions must."""
    raise HTTPException(405, "Nothing is streamed here unasked. Send requests by POST.", {"Allow": "POST"})


def _request_of(context: Context) -> HTTPConnection:
    return cast(HTTPConnection, context.request_context.request)
