"""A stand-in for a language model's server: OpenAI's chat protocol on loopback, scripted, with every fault at hand.

    with serve(Script(faults={"rate_limited": 0.2})) as provider:
        ...  # openai/<any name> with api_base = provider.url
    provider.calls, provider.tokens_in  # what the server itself counted

It runs in this process; program/models/apart.py gives it one of its own. For tests and benchmarks, of ragc and of what
is built on it. What it replies is a function of the request, or a table of patterns in the script's file.

`python -m program.models.testing SCRIPT [--port N]` serves a script's file, prints the address, and ends at Ctrl-C; a
script without replies says what a willing model would.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from aiohttp import web

from program.errors import RagcError
from program.models.completions import Served, chunk, completion, ending, of_schema
from program.models.script import Brain, Script, obliging, spoilt
from program.models.tokens import count_messages, count_text

PATIENCE = 20.0  # seconds for the server to begin or to end
_STATUS = {"rate_limited": 429, "server_error": 500, "unauthorized": 401, "overloaded": 529}


class Provider:
    """The running server: its address, its books, how many requests it has and had at once."""

    def __init__(self, script: Script, brain: Brain | None = None, port: int = 0) -> None:
        self.brain = brain
        self.in_flight = 0
        self.port = port
        self._era = 0  # the scripts so far: what a request costs is booked only while its own is followed
        self.follow(script)
        self._loop = asyncio.new_event_loop()
        self._runner: web.AppRunner | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """What to give as `api_base`."""
        return f"http://127.0.0.1:{self.port}/v1"

    def follow(self, script: Script) -> None:
        """Behaves by this script from now on, and begins its books anew."""
        self.script, self._era = script, self._era + 1
        self.calls = self.tokens_in = self.tokens_out = self.most_in_flight = 0
        self.formed = 0  # requests that named a form for the reply
        self.faults: Counter[str] = Counter()
        self.first = 0.0  # seconds from the last streamed request to its first word
        self.authorizations: set[str] = set()
        self._random = random.Random(script.seed)
        self._slots = asyncio.Semaphore(script.at_once) if script.at_once else nullcontext()

    def start(self) -> None:
        """Listens, on the same port as before when it was stopped."""
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(PATIENCE)

    def stop(self) -> None:
        """Cuts every connection and listens no more."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(PATIENCE)

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/chat/completions", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True, backlog=1024)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _fault(self) -> str:
        at = self._random.random()
        for name, share in self.script.faults.items():
            if at < share:
                return name
            at -= share
        return ""

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        era = self._era
        served = Served(self._fault(), streamed=bool(body.get("stream")))
        self.calls += 1
        self.faults.update([served.fault] if served.fault else [])
        self.authorizations.add(request.headers.get("Authorization", ""))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            async with self._slots:
                return await self._answer(request, body, served)
        finally:
            self.in_flight -= 1
            if era == self._era:
                self.tokens_in += served.tokens_in
                self.tokens_out += served.tokens_out

    async def _answer(self, request: web.Request, body: dict[str, Any], served: Served) -> web.StreamResponse:
        script, fault = self.script, served.fault
        if fault in _STATUS:
            served.status = _STATUS[fault]
            headers = {"Retry-After": str(script.retry_after)} if fault == "rate_limited" else {}
            key = request.headers.get("Authorization", "").removeprefix("Bearer ")
            told = f"Incorrect API key provided: {key}." if fault == "unauthorized" else f"scripted: {fault}"
            error = {"error": {"message": told, "type": fault, "param": None, "code": fault}}
            return web.json_response(error, status=served.status, headers=headers)
        if "response_format" in body:
            self.formed += 1
            if script.forms == "refused":
                served.status = 400
                return web.json_response({"error": {"message": "no such parameter: response_format"}}, status=400)
        began = time.perf_counter()
        served.tokens_in = count_messages(body["model"], body["messages"])
        served.cached = int(script.cached * served.tokens_in)
        if fault == "stalled":
            await asyncio.sleep(script.stall)
            return web.Response(status=504)
        await asyncio.sleep(script.delay * math.exp(self._random.gauss(0, script.spread)) if script.delay else 0)
        text = spoilt(self._reply(body), fault)
        if fault == "wrong_type":
            return web.Response(text="<html><body>Bad gateway</body></html>", content_type="text/html")
        if served.streamed:
            return await self._stream(request, body, served, text, began)
        served.tokens_out = 0 if fault in {"no_choices", "dropped", "cut_body"} else count_text(body["model"], text)
        whole = json.dumps(completion(body, served, text)).encode()
        if fault in {"dropped", "cut_body"}:
            return await self._cut(request, whole[: len(whole) // 2], len(whole), fault == "dropped")
        return web.Response(body=whole, content_type="application/json")

    def _reply(self, body: dict[str, Any]) -> str:
        """What the brain says; made to fit the form that is asked for, where it does not and forms are kept."""
        text = (self.brain or self.script.reply)(body)
        schema = (body.get("response_format") or {}).get("json_schema")
        if schema and self.script.forms == "kept" and not text.lstrip().startswith("{"):
            return json.dumps(of_schema(schema["schema"]))
        return text

    @staticmethod
    async def _cut(request: web.Request, half: bytes, length: int, drop: bool) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.content_length = length if drop else len(half)
        await response.prepare(request)
        await response.write(half)
        if drop and request.transport is not None:
            request.transport.close()
        return response

    async def _stream(
        self, request: web.Request, body: dict[str, Any], served: Served, text: str, began: float
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        words = re.findall(r"\s*\S+\s*", text)
        sent: list[str] = []
        self.first = 0.0
        async for event in self._events(body, served, words, sent):
            await response.write(b"data: " + event + b"\n\n")
            self.first = self.first or time.perf_counter() - began
        if served.fault in {"dropped", "cut_body"} and request.transport is not None:
            request.transport.close()
            return response
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _events(
        self, body: dict[str, Any], served: Served, words: list[str], sent: list[str]
    ) -> AsyncIterator[bytes]:
        cut = served.fault in {"dropped", "cut_body"}
        told = served.fault != "no_choices"
        for word in words[: len(words) // 2] if cut else words:
            if sent:
                await asyncio.sleep(self.script.token_delay)
            sent.append(word)
            served.tokens_out = count_text(body["model"], "".join(sent)) if cut else 0
            yield chunk(body, served, word, len(sent) == 1)
        if not cut:
            served.tokens_out = count_text(body["model"], "".join(sent)) if told else 0
            for event in ending(body, served):
                yield event


@contextmanager
def serve(script: Script | None = None, brain: Brain | None = None, port: int = 0) -> Iterator[Provider]:
    """The server, listening on 127.0.0.1 until the block is left; on a free port unless one is given."""
    provider = Provider(script or Script(), brain, port)
    provider.start()
    try:
        yield provider
    finally:
        provider.close()


def main() -> None:
    """Serves the script of a file until Ctrl-C (or SIGTERM)."""
    parser = argparse.ArgumentParser(prog="python -m program.models.testing", description="A stand-in provider.")
    parser.add_argument("script", help="a JSON file with the fields of program.models.script.Script")
    parser.add_argument("--port", type=int, default=0, help="of 127.0.0.1; a free one when not given")
    options = parser.parse_args()
    ended = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: ended.set())
    try:
        script = Script.read(options.script)
        with serve(script, None if script.replies else obliging, options.port) as provider:
            print(provider.url, flush=True)
            ended.wait()
    except (RagcError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
