"""The lines of a benchmark: a figure beside its bar, as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Figure = dict[str, Any]

WIDTH = 72  # of a figure's name


def figure(name: str, value: float, bar: str, n: int, digits: int = 4) -> Figure:
    """One line of the result. A `bar` is `<= x`, `>= x`, `> x` or `x to y`; any other only reports."""
    return {"figure": name, "value": round(value, digits), "bar": bar, "holds": _holds(value, bar), "n": n}


def show(found: Iterable[Figure], as_json: bool) -> None:
    """Prints figures as JSON, or as lines of a table, each as soon as it is found."""
    if as_json:
        print(json.dumps(list(found)))
        return
    for one in found:
        verdict = "holds" if one["holds"] else "MISSED"
        line = f"{one['figure']:<{WIDTH}} {one['value']:>10.4f}  {one['bar']:<12} {verdict:<7} n={one['n']}"
        print(line, flush=True)


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
