"""The lines of a benchmark: a figure beside its bar, as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

Figure = dict[str, Any]

WIDTH = 72  # of a figure's name, in lines that are printed as they come


def figure(name: str, value: float, bar: str, n: int, digits: int = 4) -> Figure:
    """One line of the result. A `bar` is `<= x`, `>= x`, `> x` or `x to y`; any other only reports."""
    return {"figure": name, "value": round(value, digits), "bar": bar, "holds": _holds(value, bar), "n": n}


def row(one: Figure, width: int = WIDTH) -> str:
    """A figure as a line of the table."""
    verdict = "holds" if one["holds"] else "MISSED"
    return f"{one['figure']:<{width}} {one['value']:>10.4f}  {one['bar']:<12} {verdict:<7} n={one['n']}"


def show(found: Sequence[Figure], as_json: bool) -> None:
    """Prints figures as a table, or as JSON."""
    if as_json:
        print(json.dumps(list(found)))
        return
    width = max(len(one["figure"]) for one in found)
    for one in found:
        print(row(one, width))


def _holds(value: float, bar: str) -> bool:
    sign, _, limit = bar.partition(" ")
    if sign == "<=":
        return value <= float(limit)
    if sign == ">=":
        return value >= float(limit)
    if sign == ">":
        return value > float(limit)
    if limit.startswith("to "):
        return float(sign) <= value <= float(limit.removeprefix("to "))
    return True
