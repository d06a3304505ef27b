"""How numbers are read and written in sums."""

from __future__ import annotations

NUMBER = r"(-?\d+(?:\.\d+)?)"


def number(value: float) -> str:
    """At most six decimals, no trailing zeros, thousands with commas."""
    rounded = round(value, 6)
    if rounded == int(rounded):
        return f"{int(rounded):,}"
    whole, _, part = f"{rounded:,.6f}".partition(".")
    return f"{whole}.{part.rstrip('0')}"
