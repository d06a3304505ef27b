"""Steps made of requests and replies, and the entry of the log made of an answer."""

from __future__ import annotations

import hashlib
import time
from asyncio import CancelledError
from collections.abc import Mapping
from typing import Any

from program.errors import RagcError
from program.loop.decisions import undecided
from program.loop.requests import Find, Reply, Request
from program.passage import Passage
from program.trace import Step

SHOWN = 200  # characters of a text that a step shows


def step_of(
    request: Request, reply: Reply, milliseconds: float, tokens: tuple[int, int] = (0, 0), model: str = ""
) -> Step:
    """The step that a performed request was; the reply to one that failed is what it raised."""
    began = time.time() - milliseconds / 1000
    scores: dict[str, float] = {}
    if isinstance(request, Find):
        name, shown = "search", request.query
    else:
        name, shown = request.predictor, repr(_shown(request.inputs))
    error = ""
    if isinstance(reply, BaseException):
        output, error = f"failed: {reason(reply)}", type(reply).__name__
    elif isinstance(request, Find):
        output = f"{len(reply)} candidates"
    else:
        output, scores = _output(reply)
    digest = hashlib.sha256(shown.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return Step(name, digest, output, milliseconds, *tokens, scores, began, model, error)


def reason(error: BaseException) -> str:
    """Why a request failed, in a line."""
    if isinstance(error, TimeoutError | CancelledError):  # what is under way at the deadline is called off
        return "no reply in time"
    what = error.what if isinstance(error, RagcError) else f"{type(error).__name__}: {error}"
    return what[:SHOWN]


def _shown(inputs: Mapping[str, Any]) -> list[Any]:
    return [
        [p.id if isinstance(p, Passage) else p for p in v]
        if isinstance(v, list)
        else v.id
        if isinstance(v, Passage)
        else v
        for v in inputs.values()
    ]


def _output(reply: Any) -> tuple[str, dict[str, float]]:
    """What came back in a line, and the probability of each decision in it."""
    parts, scores = [], {}
    for name, value in reply.items():
        probability = getattr(value, "probability", None)
        if undecided(value):
            shown = "undecided"
        elif probability is None:
            shown = str(getattr(value, "value", value))[:SHOWN]
            table = getattr(value, "probabilities", None)
            if table and shown in table:
                scores[name] = float(table[shown])
        else:
            shown = f"{getattr(value, 'value', '')} {probability:.3f}" if _chosen(value) else f"{probability:.3f}"
            scores[name] = float(probability)
        parts.append(f"{name}={shown}")
    return " ".join(parts), scores


def _chosen(value: Any) -> bool:
    return isinstance(getattr(value, "value", None), str)
