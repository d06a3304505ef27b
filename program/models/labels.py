"""The options of a decision, and which of them a demonstration's label names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TRUE = frozenset({"true", "yes", "1", "1.0"})
FALSE = frozenset({"false", "no", "0", "0.0"})


def options_of(question: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys under which probabilities are given: `("false", "true")` for a noul, levels for a score."""
    criteria = question.get("criteria")
    if question["type"] == "noul":
        return ("false", "true")
    if question["type"] == "score":
        return tuple(str(level) for level in range(len(criteria or ())))
    return tuple(criteria or ())


def label_of(value: Any, question: Mapping[str, Any]) -> int | None:
    """The index of the option that a demonstration names, or None when it names none.

    A label is a plain value or a decision as DSPy serialises it, an object with a `value` (and, for a score,
    a `level`). A score between two levels counts for the nearer.
    """
    options = options_of(question)
    if isinstance(value, Mapping):
        level = value.get("level")
        value = level if question["type"] == "score" and level is not None else value.get("value")
    if value is None and "None" not in options:
        return None
    if question["type"] == "score":
        return min(max(round(float(value)), 0), len(options) - 1) if isinstance(value, int | float) else None
    text = str(value)
    if question["type"] == "noul":
        word = text.strip().lower()
        return 1 if word in TRUE else 0 if word in FALSE else None
    return options.index(text) if text in options else None
