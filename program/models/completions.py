"""What the stand-in provider sends: whole completions and the chunks of a streamed one, in OpenAI's words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Served:
    """One request as the server sees it. `tokens_in` is 0 for a request that was refused."""

    fault: str
    status: int = 200
    tokens_in: int = 0
    tokens_out: int = 0
    streamed: bool = False
    cached: int = 0

    @property
    def finish(self) -> str:
        """The reason that is given for its end."""
        return {"tool_call": "tool_calls", "thought": "length", "cut_off": "length"}.get(self.fault, "stop")


def completion(body: Mapping[str, Any], served: Served, text: str) -> dict[str, Any]:
    """The whole reply."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if served.fault == "tool_call":
        message = {"role": "assistant", "content": None, "tool_calls": [_call(text)]}
    choice = {"index": 0, "message": message, "finish_reason": served.finish}
    whole: dict[str, Any] = {
        "id": "stand-in",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [] if served.fault == "no_choices" else [choice],
    }
    if served.fault != "no_usage":
        whole["usage"] = usage(served)
    return whole


def usage(served: Served) -> dict[str, Any]:
    """The counts, true ones but for the fault `wild_usage`."""
    if served.fault == "wild_usage":
        return {"prompt_tokens": -served.tokens_in, "completion_tokens": 10**12, "total_tokens": 0}
    return {
        "prompt_tokens": served.tokens_in,
        "completion_tokens": served.tokens_out,
        "total_tokens": served.tokens_in + served.tokens_out,
        "prompt_tokens_details": {"cached_tokens": served.cached},
    }


def chunk(body: Mapping[str, Any], served: Served, word: str, first: bool) -> bytes:
    """One word of a streamed reply; nothing of it for the fault `no_choices`."""
    if served.fault == "no_choices":
        return _event(body, [])
    delta: dict[str, Any] = {"content": word}
    if served.fault == "tool_call":
        call = _call(word) if first else {"function": {"arguments": word}}
        delta = {"content": None, "tool_calls": [{"index": 0, **call}]}
    return _event(body, [{"index": 0, "delta": delta, "finish_reason": None}])


def ending(body: Mapping[str, Any], served: Served) -> list[bytes]:
    """The last chunks of a streamed reply: why it ends, and the counts."""
    choices = [] if served.fault == "no_choices" else [{"index": 0, "delta": {}, "finish_reason": served.finish}]
    last = [_event(body, choices)]
    return last if served.fault == "no_usage" else [*last, _event(body, [], usage(served))]


def of_schema(schema: Mapping[str, Any]) -> Any:
    """The plainest value that a JSON schema admits."""
    match schema.get("type"):
        case "object":
            return {name: of_schema(inner) for name, inner in schema.get("properties", {}).items()}
        case "array":
            return []
        case "boolean":
            return True
        case "number" | "integer":
            return 0
    return schema["enum"][0] if "enum" in schema else ""


def _call(arguments: str) -> dict[str, Any]:
    return {"id": "call-1", "type": "function", "function": {"name": "reply", "arguments": arguments}}


def _event(body: Mapping[str, Any], choices: list[Any], counts: Any = None) -> bytes:
    event = {"id": "stand-in", "object": "chat.completion.chunk", "created": 0, "model": body["model"]}
    return json.dumps({**event, "choices": choices, "usage": counts}).encode()
