"""Charts as inline SVG: a few marks each, drawn to scale, readable without a script or a network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

import numpy as np

WIDTH, HEIGHT, EDGE = 340, 170, 30
CHARACTER = 6
"""Pixels that a character of a text is allowed."""
BINS = 20
WIDE = 720
ROW = 26
LEFT, RIGHT = 190.0, 510.0
"""Where the axis of a plot of intervals begins and ends, in a picture WIDE across with rows of ROW."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A point of a chart and what is written beside it."""

    x: float
    y: float
    text: str = ""


@dataclass(frozen=True, slots=True)
class Whisker:
    """A difference in one metric with its interval, whose ends may be infinite."""

    metric: str
    verdict: str
    difference: float
    low: float
    high: float


def format_signed(value: float | None) -> str:
    """Return a difference with its sign in four digits; a dash for None."""
    return "-" if value is None else f"{value:+.4g}"


def draw_scatter(marks: Sequence[Mark], across: str, up: str) -> str:
    """Draw points joined in order of x, those with a text larger and named."""
    if not marks:
        return ""
    xs, ys = [m.x for m in marks], [m.y for m in marks]
    frame = _Frame(min(xs), max(xs), min(ys), max(ys))
    path = " ".join(f"{frame.x(m.x):.1f},{frame.y(m.y):.1f}" for m in sorted(marks, key=lambda m: m.x))
    parts = [f'<polyline class="line" points="{path}"/>']
    for m in marks:
        x, y = frame.x(m.x), frame.y(m.y)
        kind, radius = ("named", 5) if m.text else ("dot", 3)
        parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>')
        if m.text:
            left = x > WIDTH / 2
            parts.append(_draw_text(x - 8 if left else x + 8, y - 7, m.text, "end" if left else "start"))
    return _wrap_svg(parts + frame.draw_axes(across, up))


def draw_cuts(no: Sequence[float], yes: Sequence[float], before: float, after: float) -> str:
    """Draw how probabilities spread by label, no above and yes below, and cuts."""
    frame = _Frame(0, 1, -1, 1)
    parts = []
    width = frame.x(1 / BINS) - frame.x(0) - 1
    for values, way, kind in ((no, 1, "no"), (yes, -1, "yes")):
        counts = np.histogram(values, bins=BINS, range=(0, 1))[0]
        top = max(int(counts.max(initial=0)), 1)
        for n, count in enumerate(counts.tolist()):
            if count:
                a, b = sorted((frame.y(0), frame.y(way * count / top)))
                place = f'x="{frame.x(n / BINS):.1f}" y="{a:.1f}" width="{width:.1f}" height="{b - a:.1f}"'
                parts.append(f'<rect class="{kind}" {place}/>')
    for at, kind in ((before, "was"), (after, "cut")):
        x = frame.x(at)
        parts.append(_draw_line(kind, x, x, EDGE / 2, HEIGHT - EDGE))
    return _wrap_svg(parts + frame.draw_axes("probability", "", ticks=False))


def draw_calibration(chances: Sequence[float], truths: Sequence[bool]) -> str:
    """Draw the share of yes labels against the probability, in equal parts."""
    order = np.argsort(chances, kind="stable")
    groups = [part for part in np.array_split(order, min(8, max(1, len(order) // 8))) if len(part)]
    p, y = np.asarray(chances, float), np.asarray(truths, float)
    frame = _Frame(0, 1, 0, 1)
    parts = [_draw_line("was", frame.x(0), frame.x(1), frame.y(0), frame.y(1))]
    for group in groups:
        x, up = frame.x(float(p[group].mean())), frame.y(float(y[group].mean()))
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{up:.1f}" r="4"/>')
    return _wrap_svg(parts + frame.draw_axes("said", "was"))


def draw_bars(named: Sequence[tuple[str, float]]) -> str:
    """Draw one bar a name, the longest the largest."""
    top = max((value for _, value in named), default=0.0) or 1.0
    parts = []
    for n, (name, value) in enumerate(named):
        y = 4 + 20 * n
        parts.append(f'<rect class="yes" x="190" y="{y}" width="{140 * value / top:.1f}" height="13"/>')
        parts.append(_draw_text(184, y + 11, name, "end"))
    return _wrap_svg(parts, height=20 * len(named) + 8)


def draw_whiskers(rows: Sequence[Whisker]) -> str:
    """Draw a difference and its interval a row, zero in the middle.

    Units differ, so that each row has a scale of its own: the farther end of the interval, or the difference, lies at
    nine tenths of the axis; what is infinite ends at its edge.
    """
    middle, half = (LEFT + RIGHT) / 2, (RIGHT - LEFT) / 2
    height = ROW * len(rows) + 10
    parts = [_draw_line("zero", middle, middle, 0, height)]
    for n, row in enumerate(rows):
        y = ROW * n + ROW / 2 + 5
        values = (row.difference, row.low, row.high)
        scale = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
        unit = 0.9 * half / scale if scale else 1.0
        dot, low, high = (min(max(middle + unit * value, LEFT), RIGHT) for value in values)
        interval = f"{format_signed(row.difference)} [{format_signed(row.low)}, {format_signed(row.high)}]"
        parts.append(
            f'<g class="{row.verdict}"><text x="180" y="{y + 4}" text-anchor="end">{escape(row.metric)}</text>'
            f'{_draw_line("bar", low, high, y, y)}<circle cx="{dot:.2f}" cy="{y}" r="4"/>'
            f'<text x="520" y="{y + 4}">{interval}</text></g>'
        )
    return _wrap_svg(parts, width=WIDE, height=height, label="Difference and 95 % interval of every metric")


class _Frame:
    def __init__(self, left: float, right: float, low: float, high: float) -> None:
        self._left, self._right = left, right if right > left else left + 1
        self._low, self._high = low, high if high > low else low + 1

    def x(self, value: float) -> float:
        return EDGE + (WIDTH - 2 * EDGE) * (value - self._left) / (self._right - self._left)

    def y(self, value: float) -> float:
        return HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * (value - self._low) / (self._high - self._low)

    def draw_axes(self, across: str, up: str, ticks: bool = True) -> list[str]:
        base = HEIGHT - EDGE
        parts = [
            _draw_line("axis", EDGE, WIDTH - EDGE, base, base),
            _draw_text(WIDTH / 2, HEIGHT - 4, across, "middle"),
            _draw_text(2, 11, up, "start"),
            _draw_text(EDGE, base + 14, f"{self._left:.2g}", "middle"),
            _draw_text(WIDTH - EDGE, base + 14, f"{self._right:.2g}", "middle"),
        ]
        if ticks:
            parts += [_draw_tick(base, self._low), _draw_tick(self.y(self._high) + 4, self._high)]
        return parts


def _draw_tick(y: float, value: float) -> str:
    """Return a number beside the upright axis, or from the edge over it where there is no room."""
    text = f"{value:.2g}"
    beside = len(text) * CHARACTER <= EDGE - 3
    return _draw_text(EDGE - 3, y, text, "end") if beside else _draw_text(0, y, text, "start")


def _draw_line(kind: str, x1: float, x2: float, y1: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>'


def _draw_text(x: float, y: float, text: str, anchor: Literal["start", "middle", "end"]) -> str:
    """Return a text that stays in the drawing; one too long loses its beginning and is whole in its title."""
    room = {"start": WIDTH - x, "middle": 2 * min(x, WIDTH - x), "end": x}[anchor]
    most = int(room // CHARACTER)
    shown = text if len(text) <= most else "…" + text[len(text) - most + 1 :]
    title = f"<title>{escape(text)}</title>" if shown != text else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{title}{escape(shown)}</text>'


def _wrap_svg(parts: Sequence[str], width: int = WIDTH, height: int = HEIGHT, label: str = "") -> str:
    about = f' aria-label="{label}"' if label else ""
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg {size} role="img"{about}>{"".join(parts)}</svg>'
