"""Guardrails: that a new version is at most so much worse on what must not suffer, shown rather than assumed."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from optimize.evaluation.stats import one_sided_limits
from program.errors import DataError

State = Literal["holds", "breached", "not_shown", "not_measured"]


@dataclass(frozen=True, slots=True)
class Margin:
    """How much worse a metric may get: in its own unit, or as a share of what it was (`relative`)."""

    metric: str
    worse_by: float
    relative: bool = False

    def __str__(self) -> str:
        return f"{self.metric}:{100 * self.worse_by:g}%" if self.relative else f"{self.metric}:{self.worse_by:g}"


DEFAULT_MARGINS = (Margin("wrong", 0.02), Margin("model_calls", 0.25), Margin("seconds", 0.25, relative=True))
"""Two wrong answers more in a hundred, one model call more in four questions, a quarter slower."""


@dataclass(frozen=True, slots=True)
class Guardrail:
    """A test of non-inferiority. `worse` is by how much B is worse (negative: better), `limit` the one-sided
    95 % upper limit of that, both in the margin's unit; on `n` questions.

    It holds when `limit` is within the margin, is breached when even the lower limit is beyond it, and is not
    shown in between.
    """

    margin: Margin
    state: State
    worse: float
    limit: float
    n: int

    def as_dict(self) -> dict[str, Any]:
        measured = self.state != "not_measured"
        return {
            "metric": self.margin.metric,
            "margin": self.margin.worse_by,
            "relative": self.margin.relative,
            "state": self.state,
            "worse_by": self.worse if measured else None,
            "limit": self.limit if measured else None,
            "n": self.n,
        }


def parse_margin(text: str) -> Margin:
    """`wrong:0.02` (in the metric's unit) or `seconds:25%` (of what it was). Raises `DataError` otherwise."""
    found = re.fullmatch(r"([a-z][a-z0-9_]*):([0-9]+(?:\.[0-9]+)?|\.[0-9]+)(%?)", text.strip())
    if found is None:
        raise DataError(f"{text[:80]!r} is not a guardrail.", "Write METRIC:0.02, or METRIC:25% of what it was.")
    relative = bool(found[3])
    return Margin(found[1], float(found[2]) / (100 if relative else 1), relative)


def guard(
    margin: Margin,
    a: Sequence[float],
    b: Sequence[float],
    groups: Sequence[Hashable] | None = None,
    *,
    lower_is_better: bool,
) -> Guardrail:
    """The guardrail on paired values of A and B, clustered on `groups`.

    A relative margin is on the ratio of the geometric means, over the questions where both are positive.
    """
    pairs = list(zip(a, b, groups if groups is not None else range(len(a)), strict=True))
    if margin.relative:
        pairs = [(x, y, g) for x, y, g in pairs if x > 0 and y > 0]
    if not pairs:
        return Guardrail(margin, "not_measured", math.nan, math.nan, 0)
    sign = 1.0 if lower_is_better else -1.0
    worse = [sign * (math.log(y / x) if margin.relative else y - x) for x, y, _ in pairs]
    low, high = one_sided_limits(worse, [g for _, _, g in pairs])
    mean = math.fsum(worse) / len(worse)
    if margin.relative:
        low, mean, high = (math.expm1(value) for value in (low, mean, high))
    state: State = "holds" if high <= margin.worse_by else "breached" if low > margin.worse_by else "not_shown"
    return Guardrail(margin, state, mean, high, len(pairs))
