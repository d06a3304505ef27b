"""How many tokens a text has, where nobody reports it: LiteLLM's count for the model's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from program.models.provider import library


def count_messages(model: str, messages: Sequence[Mapping[str, Any]]) -> int:
    """Tokens of a prompt; the model's provider prefix does not matter."""
    return int(library().token_counter(model=model.rpartition("/")[2], messages=list(messages)))


def count_text(model: str, text: str) -> int:
    """Tokens of a reply."""
    if not text:
        return 0
    return int(library().token_counter(model=model.rpartition("/")[2], text=text.encode("utf-8", "replace").decode()))
