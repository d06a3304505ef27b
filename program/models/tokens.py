"""How many tokens a text has, where nobody reports it: LiteLLM's count for the model's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from program.models.provider import library

MORE_TOKENS = 10_000  # in, than the prompt has bytes: what a provider may add to it
MOST_TOKENS_OUT = 1_000_000


def count_messages(model: str, messages: Sequence[Mapping[str, Any]]) -> int:
    """Tokens of a prompt; the model's provider prefix does not matter."""
    return int(library().token_counter(model=model.rpartition("/")[2], messages=list(messages)))


def count_text(model: str, text: str) -> int:
    """Tokens of a reply."""
    if not text:
        return 0
    return int(library().token_counter(model=model.rpartition("/")[2], text=text.encode("utf-8", "replace").decode()))


def reported(
    model: str, messages: Sequence[Mapping[str, Any]], usage: Mapping[str, Any] | None, text: str
) -> tuple[int, int, int, int]:
    """Tokens in and out, by the provider's `usage` or, where that cannot be, counted here; and of those in how many the
    provider had cached, and how many it then kept."""
    usage = usage or {}
    details = usage.get("prompt_tokens_details") or {}
    longest = MORE_TOKENS + sum(len(str(message).encode("utf-8", "replace")) for message in messages)
    tokens_in = _count(usage.get("prompt_tokens"), longest)
    tokens_out = _count(usage.get("completion_tokens"), MOST_TOKENS_OUT)
    if tokens_in is None or tokens_out is None or not tokens_in + tokens_out:
        return count_messages(model, messages), count_text(model, text), 0, 0
    cached, kept = (
        _count(details.get(name), tokens_in) or _count(usage.get(other), tokens_in) or 0
        for name, other in (
            ("cached_tokens", "cache_read_input_tokens"),
            ("cache_creation_tokens", "cache_creation_input_tokens"),
        )
    )
    return tokens_in, tokens_out, cached, min(kept, tokens_in - cached)


def _count(said: Any, most: int) -> int | None:
    """A provider's count; None for one that cannot be: it would be booked, or paid back, as if it were."""
    found = 0 if said is None else said
    return found if isinstance(found, int) and 0 <= found <= most else None
