"""Charts as inline SVG: a few marks each, drawn to scale, readable without a script or a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

WIDTH, HEIGHT, EDGE = 340, 170, 30
CHARACTER = 6
"""Pixels that a character of a text is allowed."""
BINS = 20


@dataclass(frozen=True, slots=True)
class Mark:
    """A point of a chart: where it is, and what is written beside it."""

    x: float
    y: float
    text: str = ""


def scatter(marks: Sequence[Mark], across: str, up: str) -> str:
    """The points joined in order of x, those with a text drawn larger and named."""
    if not marks:
        return ""
    xs, ys = [m.x for m in marks], [m.y for m in marks]
    frame = _Frame(min(xs), max(xs), min(ys), max(ys))
    path = " ".join(f"{frame.x(m.x):.1f},{frame.y(m.y):.1f}" for m in sorted(marks, key=lambda m: m.x))
    parts = [f'<polyline class="line" points="{path}"/>']
    for m in marks:
        x, y = frame.x(m.x), frame.y(m.y)
        parts.append(
            f'<circle class="{"named" if m.text else "dot"}" cx="{x:.1f}" cy="{y:.1f}" r="{5 if m.text else 3}"/>'
        )
        if m.text:
            anchor: Literal["start", "end"] = "end" if x > WIDTH / 2 else "start"
            shift = -8 if anchor == "end" else 8
            parts.append(_text(x + shift, y - 7, m.text, anchor))
    return _svg(parts + frame.axes(across, up))


def cuts(no: Sequence[float], yes: Sequence[float], before: float, after: float) -> str:
    """How a probability in [0, 1] is spread where the label is no (above) and yes (below), and where it is cut."""
    frame = _Frame(0, 1, -1, 1)
    parts = []
    for values, way, kind in ((no, 1, "no"), (yes, -1, "yes")):
        counts = np.histogram(values, bins=BINS, range=(0, 1))[0]
        top = max(int(counts.max(initial=0)), 1)
        for n, count in enumerate(counts.tolist()):
            if count:
                a, b = sorted((frame.y(0), frame.y(way * count / top)))
                x = frame.x(n / BINS)
                parts.append(
                    f'<rect class="{kind}" x="{x:.1f}" y="{a:.1f}" width="{frame.x(1 / BINS) - frame.x(0) - 1:.1f}" '
                    f'height="{b - a:.1f}"/>'
                )
    for at, kind in ((before, "was"), (after, "cut")):
        x = frame.x(at)
        parts.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{EDGE / 2}" y2="{HEIGHT - EDGE}"/>')
    return _svg(parts + frame.axes("probability", "", ticks=False))


def calibration(chances: Sequence[float], truths: Sequence[bool]) -> str:
    """The share of yes labels (up) among about equal parts of the answers, in order of their probability (across)."""
    order = np.argsort(chances, kind="stable")
    parts_ = [part for part in np.array_split(order, min(8, max(1, len(order) // 8))) if len(part)]
    p, y = np.asarray(chances, float), np.asarray(truths, float)
    marks = [Mark(float(p[part].mean()), float(y[part].mean())) for part in parts_]
    frame = _Frame(0, 1, 0, 1)
    drawn = [
        f'<line class="was" x1="{frame.x(0)}" y1="{frame.y(0)}" x2="{frame.x(1)}" y2="{frame.y(1)}"/>',
        *(f'<circle class="dot" cx="{frame.x(m.x):.1f}" cy="{frame.y(m.y):.1f}" r="4"/>' for m in marks),
    ]
    return _svg(drawn + frame.axes("said", "was"))


def bars(named: Sequence[tuple[str, float]]) -> str:
    """One bar a name, the longest the largest."""
    top = max((value for _, value in named), default=0.0) or 1.0
    parts = []
    for n, (name, value) in enumerate(named):
        y = 4 + 20 * n
        parts.append(f'<rect class="yes" x="190" y="{y}" width="{140 * value / top:.1f}" height="13"/>')
        parts.append(_text(184, y + 11, name, "end"))
    return _svg(parts, 20 * len(named) + 8)


class _Frame:
    """From data to the drawing."""

    def __init__(self, left: float, right: float, low: float, high: float) -> None:
        self._left, self._right = left, right if right > left else left + 1
        self._low, self._high = low, high if high > low else low + 1

    def x(self, value: float) -> float:
        return EDGE + (WIDTH - 2 * EDGE) * (value - self._left) / (self._right - self._left)

    def y(self, value: float) -> float:
        return HEIGHT - EDGE - (HEIGHT - 1.5 * EDGE) * (value - self._low) / (self._high - self._low)

    def axes(self, across: str, up: str, ticks: bool = True) -> list[str]:
        base = HEIGHT - EDGE
        parts = [
            f'<line class="axis" x1="{EDGE}" x2="{WIDTH - EDGE}" y1="{base}" y2="{base}"/>',
            _text(WIDTH / 2, HEIGHT - 4, across, "middle"),
            _text(2, 11, up, "start"),
            _text(EDGE, base + 14, f"{self._left:.2g}", "middle"),
            _text(WIDTH - EDGE, base + 14, f"{self._right:.2g}", "middle"),
        ]
        if ticks:
            parts += [_tick(base, self._low), _tick(self.y(self._high) + 4, self._high)]
        return parts


def _tick(y: float, value: float) -> str:
    """A number beside the upright axis, or from the edge over it where there is no room."""
    text = f"{value:.2g}"
    beside = len(text) * CHARACTER <= EDGE - 3
    return _text(EDGE - 3, y, text, "end") if beside else _text(0, y, text, "start")


def _text(x: float, y: float, text: str, anchor: Literal["start", "middle", "end"]) -> str:
    """A text that stays in the drawing: one too long loses its beginning, and is shown whole when it is pointed at."""
    room = {"start": WIDTH - x, "middle": 2 * min(x, WIDTH - x), "end": x}[anchor]
    most = int(room // CHARACTER)
    shown = text if len(text) <= most else "…" + text[len(text) - most + 1 :]
    whole = f"<title>{_plain(text)}</title>" if shown != text else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{whole}{_plain(shown)}</text>'


def _svg(parts: Sequence[str], height: int = HEIGHT) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(parts)}</svg>'


def _plain(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
