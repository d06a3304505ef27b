"""A stand-in for a language model's server: OpenAI's chat protocol on loopback, scripted, with every fault at hand.

with serve(Script(faults={"rate_limited": 0.2}), obliging) as provider:
    ...  # openai/<any name> with api_base = provider.url
provider.calls, provider.tokens_in  # what the server itself counted
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from ragc.models.language.provider import count_messages, count_text

Brain = Callable[[Mapping[str, Any]], str]
"""From the body of a chat request to the text of the reply."""

FAULTS = (
    "rate_limited",  # 429 with Retry-After
    "server_error",  # 500
    "unauthorized",  # 401, quoting the key in OpenAI's words
    "overloaded",  # 529
    "stalled",  # accepted, never answered
    "dropped",  # the connection is cut in the middle of the reply
    "wrong_type",  # 200 with a page of HTML
    "cut_body",  # 200 with half a JSON body
    "cut_reply",  # a whole body, half a text
    "no_choices",
    "refusal",
    "wrong_label",
    "prose",  # the reply inside chatter and a fence
    "huge",  # 100 kB
    "surrogates",
    "tool_call",
    "no_usage",
    "thought",  # no word before the tokens of the reply are used up
    "cut_off",  # half a text, and the word that it is cut off
    "wild_usage",  # counts below zero, or past all measure
)
PATIENCE = 20.0  # seconds for the server to begin or to end
STALL = 60.0  # seconds
_STATUS = {"rate_limited": 429, "server_error": 500, "unauthorized": 401, "overloaded": 529}
_LABEL = re.compile(r'("(?:verdict|choice)"\s*:\s*")[^"]*"')


@dataclass(frozen=True, slots=True)
class Script:
    """How the server behaves. `faults` gives each fault's share in [0, 1]; at most one befalls a request.

    `delay` is the seconds before a reply (or its first word), `token_delay` those between streamed words. `replies` are
    patterns of the last message, each with its reply. `at_once` is how many requests are served, the rest wait; 0: all.
    `cached` is the share of a prompt's tokens that are said to have been cached. `refuses` has the status by which a
    request with some setting is refused. `sureness` gives the log-probability of each word of a text, where it is asked
    for: anything that JSON can say.
    """

    faults: Mapping[str, float] = field(default_factory=dict)
    delay: float = 0.0
    token_delay: float = 0.0
    retry_after: float = 0.02
    seed: int = 0
    replies: tuple[tuple[str, str], ...] = ()
    at_once: int = 0
    cached: float = 0.0
    refuses: Mapping[str, int] = field(default_factory=dict)
    sureness: Callable[[str], Any] | None = None

    def reply(self, body: Mapping[str, Any]) -> str:
        """Return the reply of the first pattern that the last message matches, else a plain sentence."""
        last = str(body["messages"][-1]["content"])
        return next((text for pattern, text in self.replies if re.search(pattern, last)), "A plain reply.")


@dataclass(slots=True)
class Served:
    """One request as the server sees it. `tokens_in` is 0 for a request that was refused."""

    fault: str
    tokens_in: int = 0
    tokens_out: int = 0
    cached: int = 0


class Provider:
    """The running server: its address, its books, how many requests it has and had at once."""

    def __init__(self, script: Script, brain: Brain | None = None) -> None:
        self.brain = brain
        self.in_flight = self.port = 0
        self.follow(script)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """What to give as `api_base`."""
        return f"http://127.0.0.1:{self.port}/v1"

    def follow(self, script: Script) -> None:
        """Behave by this script from now on, and begin the books anew."""
        self.script = script
        self.calls = self.tokens_in = self.tokens_out = self.most_in_flight = 0
        self.formed = 0  # requests that named a schema for the reply
        self.weighed = 0  # requests for log-probabilities
        self.faults: Counter[str] = Counter()
        self.first = 0.0  # seconds from the last streamed request to its first word
        self.authorizations: set[str] = set()
        self._random = random.Random(script.seed)
        self._slots = asyncio.Semaphore(script.at_once) if script.at_once else nullcontext()
        self._books = object()  # what a request costs is booked only in those that it began in

    def start(self) -> None:
        """Listen, on the same port as before when it was stopped."""
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(PATIENCE)

    def stop(self) -> None:
        """Cut every connection and listen no more."""
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(PATIENCE)

    def close(self) -> None:
        """Stop, and end the thread."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/chat/completions", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True, backlog=1024).start()
        self.port = self._runner.addresses[0][1]

    def _fault(self) -> str:
        at = self._random.random()
        for name, share in self.script.faults.items():
            if at < share:
                return name
            at -= share
        return ""

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        books, served = self._books, Served(self._fault())
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
            if books is self._books:
                self.tokens_in += served.tokens_in
                self.tokens_out += served.tokens_out

    async def _answer(self, request: web.Request, body: dict[str, Any], served: Served) -> web.StreamResponse:
        script, fault = self.script, served.fault
        if fault in _STATUS:
            headers = {"Retry-After": str(script.retry_after)} if fault == "rate_limited" else {}
            key = request.headers.get("Authorization", "").removeprefix("Bearer ")
            told = f"Incorrect API key provided: {key}." if fault == "unauthorized" else f"scripted: {fault}"
            error = {"error": {"message": told, "type": fault, "param": None, "code": fault}}
            return web.json_response(error, status=_STATUS[fault], headers=headers)
        if "response_format" in body:
            self.formed += 1
        self.weighed += bool(body.get("logprobs"))
        for name, status in script.refuses.items():
            if name in body:
                return web.json_response({"error": {"message": f"no such parameter: {name}"}}, status=status)
        began = time.perf_counter()
        served.tokens_in = count_messages(body["model"], body["messages"])
        served.cached = int(script.cached * served.tokens_in)
        await asyncio.sleep(STALL if fault == "stalled" else script.delay)
        if fault == "stalled":
            return web.Response(status=504)
        text = spoilt((self.brain or script.reply)(body), fault)
        if fault == "wrong_type":
            return web.Response(text="<html><body>Bad gateway</body></html>", content_type="text/html")
        if body.get("stream"):
            return await self._stream(request, body, served, text, began)
        served.tokens_out = 0 if fault in {"no_choices", "dropped", "cut_body"} else count_text(body["model"], text)
        sent = completion(body, served, text)
        if body.get("logprobs") and script.sureness and sent["choices"]:
            sent["choices"][0]["logprobs"] = weigh(re.findall(r"\s*\S+", text), script.sureness)
        whole = json.dumps(sent).encode()
        if fault not in {"dropped", "cut_body"}:
            return web.Response(body=whole, content_type="application/json")
        half = whole[: len(whole) // 2]
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.content_length = len(whole) if fault == "dropped" else len(half)
        await response.prepare(request)
        await response.write(half)
        if fault == "dropped" and request.transport is not None:
            request.transport.close()
        return response

    async def _stream(
        self, request: web.Request, body: dict[str, Any], served: Served, text: str, began: float
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        cut = served.fault in {"dropped", "cut_body"}
        words = re.findall(r"\s*\S+\s*", text)
        words = words[: len(words) // 2] if cut else words
        self.first = 0.0
        for n, word in enumerate(words):
            await asyncio.sleep(self.script.token_delay if n else 0)
            if cut:
                served.tokens_out = count_text(body["model"], "".join(words[: n + 1]))
            given = weigh([word], self.script.sureness) if body.get("logprobs") and self.script.sureness else None
            await response.write(b"data: " + chunk(body, served, word, not n, given) + b"\n\n")
            self.first = self.first or time.perf_counter() - began
        if cut:
            if request.transport is not None:
                request.transport.close()
            return response
        served.tokens_out = 0 if served.fault == "no_choices" else count_text(body["model"], "".join(words))
        for event in [*ending(body, served), b"[DONE]"]:
            await response.write(b"data: " + event + b"\n\n")
        return response


@contextmanager
def serve(script: Script | None = None, brain: Brain | None = None) -> Iterator[Provider]:
    """The server, listening on a free port of 127.0.0.1 until the block is left."""
    provider = Provider(script or Script(), brain)
    provider.start()
    try:
        yield provider
    finally:
        provider.close()


def spoilt(text: str, fault: str) -> str:
    """Return the reply as a fault leaves it."""
    match fault:
        case "thought":
            return ""
        case "cut_reply" | "cut_off":
            return text[: max(1, len(text) * 2 // 3)]
        case "refusal":
            return "I'm sorry, but I can't help with that request."
        case "wrong_label":
            return _LABEL.sub(r'\1perhaps-not"', text)
        case "prose":
            return f"Certainly! Here is what you asked for:\n\n```json\n{text}\n```\n\nLet me know if you need more."
        case "huge":
            return text + " and so on" * 10_000
        case "surrogates":
            return text + " \ud83d\udc00\ud800"
    return text


def completion(body: Mapping[str, Any], served: Served, text: str) -> dict[str, Any]:
    """Return the whole reply."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if served.fault == "tool_call":
        message = {"role": "assistant", "content": None, "tool_calls": [_call(text)]}
    choices = [{"index": 0, "message": message, "finish_reason": _finish(served)}]
    whole: dict[str, Any] = {
        **{"id": "stand-in", "object": "chat.completion", "created": 0, "model": body["model"]},
        "choices": [] if served.fault == "no_choices" else choices,
    }
    return whole if served.fault == "no_usage" else {**whole, "usage": _usage(served)}


def weigh(words: list[str], sureness: Callable[[str], Any]) -> dict[str, Any]:
    """Return words as tokens with their log-probabilities."""
    return {"content": [{"token": one, "logprob": sureness(one), "bytes": None, "top_logprobs": []} for one in words]}


def chunk(body: Mapping[str, Any], served: Served, word: str, first: bool, logprobs: Any = None) -> bytes:
    """Return one word of a streamed reply; nothing of it for the fault `no_choices`."""
    if served.fault == "no_choices":
        return _event(body, [])
    delta: dict[str, Any] = {"content": word}
    if served.fault == "tool_call":
        call = _call(word) if first else {"function": {"arguments": word}}
        delta = {"content": None, "tool_calls": [{"index": 0, **call}]}
    return _event(body, [{"index": 0, "delta": delta, "finish_reason": None, "logprobs": logprobs}])


def ending(body: Mapping[str, Any], served: Served) -> list[bytes]:
    """Return the last chunks of a streamed reply: why it ends, and the counts."""
    choices = [] if served.fault == "no_choices" else [{"index": 0, "delta": {}, "finish_reason": _finish(served)}]
    last = [_event(body, choices)]
    return last if served.fault == "no_usage" else [*last, _event(body, [], _usage(served))]


def _finish(served: Served) -> str:
    return {"tool_call": "tool_calls", "thought": "length", "cut_off": "length"}.get(served.fault, "stop")


def _usage(served: Served) -> dict[str, Any]:
    if served.fault == "wild_usage":
        return {"prompt_tokens": -served.tokens_in, "completion_tokens": 10**12, "total_tokens": 0}
    return {
        "prompt_tokens": served.tokens_in,
        "completion_tokens": served.tokens_out,
        "total_tokens": served.tokens_in + served.tokens_out,
        "prompt_tokens_details": {"cached_tokens": served.cached},
    }


def _call(arguments: str) -> dict[str, Any]:
    return {"id": "call-1", "type": "function", "function": {"name": "reply", "arguments": arguments}}


def _event(body: Mapping[str, Any], choices: list[Any], counts: Any = None) -> bytes:
    event = {"id": "stand-in", "object": "chat.completion.chunk", "created": 0, "model": body["model"]}
    return json.dumps({**event, "choices": choices, "usage": counts}).encode()
