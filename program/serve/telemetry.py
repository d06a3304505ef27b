"""OpenTelemetry spans of a finished question, in the GenAI semantic conventions; nothing when the SDK is not in use."""

from __future__ import annotations

import time
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from program.answer import Answer, Step

NANOSECONDS = 1_000_000_000


def emit(answer: Answer, question: str = "", preset: str = "") -> None:
    """One span for the question, with one inside for each step; under the caller's span when there is one.

    The spans are made once the answer is there, with the times that were measured, so that a question costs
    nothing more while it runs. Passages, prompts and texts are not in them.
    """
    if not _installed():
        return
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        return
    tracer = trace.get_tracer("ragc")
    began = min((step.began for step in answer.trace.steps), default=time.time() - answer.usage.seconds)
    ended = began + answer.usage.seconds
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": answer.version or "ragc",
        "gen_ai.usage.input_tokens": answer.usage.tokens_in,
        "gen_ai.usage.output_tokens": answer.usage.tokens_out,
        "ragc.trace_id": answer.trace.id,
        "ragc.path": str(answer.trace),
        "ragc.outcome": answer.outcome.value,
        "ragc.stopped_by": answer.stopped_by.value,
        "ragc.confidence": answer.confidence,
        "ragc.usd": answer.usage.usd,
    }
    whole = tracer.start_span("invoke_workflow ragc", attributes=attributes, start_time=int(began * NANOSECONDS))
    inside = trace.set_span_in_context(whole)
    for step in answer.trace.steps:
        name, described = _described(step)
        span = tracer.start_span(name, inside, attributes=described, start_time=int(step.began * NANOSECONDS))
        if step.error:
            span.set_attribute("error.type", step.error)
            span.set_status(trace.StatusCode.ERROR, step.output)
        span.end(int((step.began + step.milliseconds / 1000) * NANOSECONDS))
    whole.end(int(ended * NANOSECONDS))


def _described(step: Step) -> tuple[str, dict[str, Any]]:
    """The name and the attributes of a step's span."""
    scores = {f"ragc.score.{name}": score for name, score in step.scores.items()}
    common = {"ragc.step": step.name, "ragc.inputs": step.inputs, "ragc.output": step.output, **scores}
    if not step.model:
        return "retrieval", {"gen_ai.operation.name": "retrieval", **common}
    provider, _, model = step.model.rpartition("/")
    asked = {"gen_ai.provider.name": provider or "unknown", "gen_ai.request.model": model}
    if not step.tokens_in and not step.tokens_out:
        return f"decide {step.name}", {"gen_ai.operation.name": "decide", **asked, **common}
    tokens = {"gen_ai.usage.input_tokens": step.tokens_in, "gen_ai.usage.output_tokens": step.tokens_out}
    return f"chat {model}", {"gen_ai.operation.name": "chat", **asked, **tokens, **common}


@lru_cache(maxsize=1)
def _installed() -> bool:
    return find_spec("opentelemetry") is not None and find_spec("opentelemetry.sdk") is not None
