"""Charts as inline SVG: a few marks each, drawn to scale, readable without a script or a network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Literal

from ragc.optimize.evaluation.stats import PairedResult, format_estimate

WIDTH, HEIGHT, EDGE = 340, 170, 30
MARGIN = 52  # left of a plot, where numbers stand beside its axis
LINE = 12  # pixels that a line of text is allowed
WIDE = 720
ROW = 26
LEFT, RIGHT = 190.0, 510.0
"""Where the axis of a plot of intervals begins and ends, in a picture WIDE across with rows of ROW."""


def draw_curves(curves: Mapping[str, Sequence[tuple[float, float]]], across: str, up: str) -> str:
    """Draw up to three named curves from 0 on, the last one standing out."""
    points = [point for curve in curves.values() for point in curve]
    frame = _Frame(0, max(x for x, _ in points), 0, max(y for _, y in points))
    parts, right, low = list[str](), WIDTH - EDGE, HEIGHT - EDGE - LINE * len(curves)
    for n, (kind, (name, curve)) in enumerate(zip(("was", "line", "cut")[-len(curves) :], curves.items(), strict=True)):
        path, y = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in curve), low + LINE * n
        parts.append(f'<polyline class="{kind}" fill="none" points="{path}"/>')
        parts += [_draw_line(kind, right - 20, right, y, y), _draw_text(right - 24, y + 3, name, "end")]
    return _wrap_svg(parts + frame.draw_axes(across, up))


def draw_whiskers(tests: Mapping[str, PairedResult]) -> str:
    """Draw by metric the difference of a test and its interval a row, zero in the middle.

    Units differ, so that each row has a scale of its own: the farther end of the interval, or the difference, lies at
    nine tenths of the axis; what is infinite ends at its edge.
    """
    middle, half = (LEFT + RIGHT) / 2, (RIGHT - LEFT) / 2
    height = ROW * len(tests) + 10
    parts = [_draw_line("zero", middle, middle, 0, height)]
    for n, (metric, test) in enumerate(tests.items()):
        y = ROW * n + ROW / 2 + 5
        values = (test.difference, *test.ci)
        scale = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
        unit = 0.9 * half / scale if scale else 1.0
        dot, start, end = (min(max(middle + unit * value, LEFT), RIGHT) for value in values)
        estimate = format_estimate(values[0], values[1:])
        parts.append(
            f'<g class="{escape(test.verdict)}">{_draw_text(180, y + 4, metric, "end")}'
            f'{_draw_line("bar", start, end, y, y)}<circle cx="{dot:.2f}" cy="{y}" r="4"/>'
            f"{_draw_text(520, y + 4, estimate, 'start')}</g>"
        )
    return _wrap_svg(parts, WIDE, height, "Difference and 95 % interval of every metric")


class _Frame:
    def __init__(self, left: float, right: float, low: float, high: float) -> None:
        self._left, self._right = left, right if right > left else left + 1
        self._low, self._high = low, high if high > low else low + 1

    def x(self, value: float) -> float:
        return MARGIN + (WIDTH - MARGIN - EDGE) * (value - self._left) / (self._right - self._left)

    def y(self, value: float) -> float:
        return HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * (value - self._low) / (self._high - self._low)

    def draw_axes(self, across: str, up: str, ticks: bool = True) -> list[str]:
        base = HEIGHT - EDGE
        parts = [
            _draw_line("axis", MARGIN, WIDTH - EDGE, base, base),
            _draw_text(self.x((self._left + self._right) / 2), HEIGHT - 4, across, "middle"),
            _draw_text(2, 11, up, "start"),
            _draw_text(MARGIN, base + 14, f"{self._left:.2g}", "middle"),
            _draw_text(WIDTH - EDGE, base + 14, f"{self._right:.2g}", "middle"),
        ]
        if ticks:
            parts.append(_draw_text(MARGIN - 3, base, f"{self._low:.2g}", "end"))
            parts.append(_draw_text(MARGIN - 3, EDGE + 4, f"{self._high:.2g}", "end"))
        return parts


def _draw_line(kind: str, x1: float, x2: float, y1: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>'


def _draw_text(x: float, y: float, text: str, anchor: Literal["start", "middle", "end"]) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _wrap_svg(parts: Sequence[str], width: int = WIDTH, height: int = HEIGHT, label: str = "") -> str:
    about = f' aria-label="{label}"' if label else ""
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg {size} role="img"{about}>{"".join(parts)}</svg>'
