"""The same program as tools of the Model Context Protocol, over streamable HTTP at `/mcp`."""

from __future__ import annotations

from typing import Any, cast

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection

from program.loop.rag import check_question
from program.server.chat import describe
from program.server.work import Work, readers_of

MOST_FOUND = 20


def mount_tools(work: Work, max_bytes: int) -> Starlette:
    """Return an application with the tools, which leaves hosts to the server."""
    programs = work.programs
    about = " ".join(f"{card.name}: {card.describe()}" for card in programs.library.readable_by().describe())
    server = MCPServer(programs.project.name, log_level="ERROR")

    async def ask_knowledge(question: str, context: Context) -> dict[str, Any]:
        work.require_room()
        program = await programs.find(programs.default)
        answer = await work.ask(program, check_question(question), readers=_readers_of(context))
        return {"text": answer.text, **describe(answer, work)}

    async def search_knowledge(query: str, context: Context, k: int = 8) -> list[dict[str, Any]]:
        library = await run_in_threadpool(programs.library.readable_by, _readers_of(context))
        found = await run_in_threadpool(library.search, check_question(query), None, min(max(k, 1), MOST_FOUND))
        return [{"id": p.id, "source": p.source, "title": p.title, "text": p.text} for p in found]

    asks = f"Answer a question from these knowledge bases, with citations. {about}"
    server.add_tool(ask_knowledge, description=asks)
    server.add_tool(search_knowledge, description=f"Find the best passages for a query in these bases. {about}")
    checked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    return server.streamable_http_app(
        stateless_http=True, json_response=True, max_request_body_size=max_bytes, transport_security=checked
    )


def _readers_of(context: Context) -> list[str]:
    return readers_of(cast(HTTPConnection, context.request_context.request))
