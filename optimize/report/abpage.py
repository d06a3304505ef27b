"""The offline test as one HTML page: verdict, interval plot, guardrails, tags, and the answers that changed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optimize.abtest.offline import SUBGROUPS, OfflineTest
from optimize.evaluation.comparison import Comparison, judge_difference

TEMPLATE = "offline.html"
LEFT, RIGHT = 190.0, 510.0
"""Where the plot's axis begins and ends, in pixels of a picture 720 wide."""
ROW = 26.0


@dataclass(frozen=True, slots=True)
class Whisker:
    """A row of the plot: the label, the verdict's word, and where dot and interval ends lie, in pixels."""

    label: str
    verdict: str
    text: str
    y: float
    dot: float
    low: float
    high: float


def as_page(test: OfflineTest) -> str:
    """The page, self-contained: no script, nothing fetched. Whatever versions and questions hold is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(loader=PackageLoader("optimize.report", "."), autoescape=True, undefined=StrictUndefined)
    found.filters["signed"] = _signed
    return found.get_template(TEMPLATE).render(test=test, subgroups=SUBGROUPS, arms=[_arm(arm) for arm in test.arms])


def _arm(arm: Any) -> Mapping[str, Any]:
    rows = whiskers(arm.comparison)
    return {
        "arm": arm,
        "rows": rows,
        "height": ROW * len(rows) + 10,
        "zero": (LEFT + RIGHT) / 2,
    }


def whiskers(comparison: Comparison) -> list[Whisker]:
    """A row for every metric, the declared one first. Units differ, so that each row has a scale of its own:
    zero is in the middle, and the farther end of the interval, or the difference, at nine tenths of the axis."""
    tests = {comparison.metric: comparison.test, **comparison.others}
    found = []
    for n, (name, result) in enumerate(tests.items()):
        reach = max((abs(v) for v in (result.difference, *result.ci) if math.isfinite(v)), default=0.0)
        low, high = result.ci
        text = f"{_signed(result.difference)} [{_signed(low)}, {_signed(high)}]"
        ends = [_place(value, reach) for value in (result.difference, low, high)]
        found.append(Whisker(name, judge_difference(name, result), text, ROW * n + ROW / 2 + 5, *ends))
    return found


def _place(value: float, reach: float) -> float:
    """Pixels from the left; what is infinite ends at the edge."""
    middle, half = (LEFT + RIGHT) / 2, (RIGHT - LEFT) / 2
    if reach == 0:
        return middle if math.isfinite(value) else middle + math.copysign(half, value)
    return round(min(max(middle + 0.9 * half * value / reach, LEFT), RIGHT), 2)


def _signed(value: float) -> str:
    return f"{value:+.4g}"
