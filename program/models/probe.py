"""What a language model can do, found out by asking it once."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

from program.models.lane import WARM_UP, Lane
from program.models.provider import arguments, introduce, library, listed_price
from program.models.transport import Call, CallFailed, failure_of
from program.models.turns import Turn, close_session

ENOUGH = 2_000  # tokens: some think before they reply
PUT = [{"role": "user", "content": "Are you ready to answer questions?"}]  # a form is asked for by the schema alone
SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "ready",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"ready": {"type": "boolean"}},
            "required": ["ready"],
            "additionalProperties": False,
        },
    },
}
WANTED: dict[str, Any] = {"response_format": SCHEMA, "logprobs": True, "max_tokens": ENOUGH}


@dataclass(frozen=True, slots=True)
class Ability:
    """What one call showed. Seconds from its sending to the first word and the last; US$ a million tokens, if known."""

    structured: bool
    logprobs: bool
    streaming: bool
    first: float
    seconds: float
    usd_in: float | None
    usd_out: float | None

    def __str__(self) -> str:
        can = {"structured output": self.structured, "logprobs": self.logprobs, "streaming": self.streaming}
        shown = ", ".join(f"{'' if able else 'no '}{what}" for what, able in can.items())
        price = "price unknown: no cap on money holds until usd_in and usd_out are in ragc.toml"
        if self.usd_in is not None:
            price = f"US$ {self.usd_in:g} in, {self.usd_out:g} out a million"
        return f"{shown}; {self.first:.2f} s to the first word, {self.seconds:.2f} s in all; {price}"


def probe(lane: Lane) -> Ability:
    """One call, repeated without its extras when the server refuses them. Raises `CallFailed`."""
    try:
        return asyncio.run(_probe(lane, WANTED))
    except CallFailed as failure:
        if failure.again:
            raise
        return asyncio.run(_probe(lane, {"max_tokens": ENOUGH}))


async def _probe(lane: Lane, settings: dict[str, Any]) -> Ability:
    call = Call(lane.model, PUT, settings, lane.api_base)
    introduce(call.model)  # loads LiteLLM, which takes seconds
    turn = Turn(asyncio.Semaphore(1))
    began, first, pieces, text, logprobs = time.monotonic(), 0.0, 0, "", False
    try:
        async with asyncio.timeout(lane.terms.call_seconds + WARM_UP):
            source = await library().acompletion(**arguments(call), **turn.arguments(), stream=True)
            began = turn.began or began
            async for chunk in source:
                for choice in chunk.model_dump().get("choices") or ():
                    piece = (choice.get("delta") or {}).get("content") or ""
                    first = first or (time.monotonic() - began if piece else 0.0)
                    text, pieces = text + piece, pieces + bool(piece)
                    logprobs = logprobs or bool(choice.get("logprobs"))
    except Exception as error:
        raise failure_of(call, error) from None
    finally:
        await close_session()
    seconds = time.monotonic() - began
    try:
        said = json.loads(text) if "response_format" in settings else {}
        structured = isinstance(said, dict) and [*said] == ["ready"] and isinstance(said["ready"], bool)
    except ValueError:
        structured = False
    own = lane.terms.usd_in is not None or lane.terms.usd_out is not None
    usd_in, usd_out = lane.terms.usd_in or 0.0, lane.terms.usd_out or 0.0
    if not own:  # of a short call
        usd_in, usd_out = (1e3 * (listed_price(lane.model, *tokens) or 0.0) for tokens in ((1_000, 0), (0, 1_000)))
    if not lane.priced:
        return Ability(structured, logprobs, pieces > 1, first, seconds, None, None)
    return Ability(structured, logprobs, pieces > 1, first, seconds, usd_in, usd_out)
