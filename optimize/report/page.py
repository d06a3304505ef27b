"""`report.html`: one compile explained, in a page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from optimize.evaluation.evaluate import Evaluation
from optimize.evaluation.metrics import METRICS, Grade
from optimize.evaluation.stats import PairedResult, format_p
from optimize.report import charts
from program.loop.parameters import Setting, is_candidate
from program.signatures import BASE_PREFIX

if TYPE_CHECKING:
    from jinja2 import Template

LARGEST = 500_000  # bytes: the page is committed with its version
SHOWN = ((40, 600), (20, 300), (8, 150), (0, 80))
"""Questions won and lost, tags, ungraded questions and decisions of a predictor that are shown at most, and characters
of each text: the first with which the page is not too large."""
GIVEN = 10  # times as long a text a predictor was given may be
IMPORTANT = 12
DRAWN = 20
"""Decisions of one predictor whose charts are shown at most: a router decides on every knowledge base."""
PLAIN_NUMBERS = frozenset({"utility", "model_calls", "tokens", "usd", "answer_relevancy"})


@dataclass(frozen=True, slots=True)
class Story:
    """All that a report tells.

    `chosen` is the setting of `balanced`, candidates included; `given` has, by predictor, what was chosen of them;
    `doubts` are shortcuts in the labels, a paragraph each.
    """

    name: str
    parent: str
    verdict: str
    gain: PairedResult
    over_plain: PairedResult
    plain: Evaluation
    before: Evaluation
    after: Evaluation
    points: Mapping[str, Mapping[str, float]]
    frontier: Sequence[Mapping[str, Any]]
    survived: Sequence[str]
    oracle: float
    reached: float
    chosen: Setting
    started_from: Setting
    decisions: Sequence[Mapping[str, Any]]
    given: Mapping[str, Mapping[str, str]]
    importances: Mapping[str, float]
    trials: int
    calls: int
    usd: float
    seconds: float
    looks: int
    doubts: Sequence[str] = ()
    stopped_by: str = ""
    broken: Mapping[str, str] = field(default_factory=dict)
    stages: Sequence[Mapping[str, Any]] = ()


def render(story: Story) -> bytes:
    """The page, UTF-8, of at most LARGEST bytes: where there is more to tell, less of each text is shown."""
    for most, longest in SHOWN:
        page = _page(story, most, longest)
        if len(page) <= LARGEST:
            break
    return page


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined)
    return found.get_template("report.html.j2")


def _page(story: Story, most: int, longest: int) -> bytes:
    chosen = story.chosen
    won, lost = _flipped(story.before.grades, story.after.grades, longest)
    top = sorted(story.importances.items(), key=lambda pair: -pair[1])[:IMPORTANT]
    drawn = _drawn(story, min(most, DRAWN))
    page = _template().render(
        name=story.name,
        parent=story.parent,
        verdict=story.verdict.replace("_", " "),
        gain=story.gain,
        p=format_p(story.gain.p),
        over_plain=story.over_plain,
        p_plain=format_p(story.over_plain.p),
        survived=bool(story.survived),
        looks=story.looks,
        doubts=[_cut(doubt, 2 * longest) for doubt in islice(story.doubts, max(most, 1))],
        metrics=_metrics([story.plain, story.before, story.after]),
        frontier=Markup(_frontier(story)),
        oracle=story.oracle,
        reached=story.reached,
        importances=Markup(charts.bars(top)) if top else "",
        trials=story.trials,
        moved=[
            (n, story.started_from[n], value)
            for n, value in sorted(chosen.items())
            if n in story.started_from and abs(value - story.started_from[n]) > 1e-9 and not is_candidate(n)
        ],
        given={
            name: {"kind": told["kind"], "text": _cut(told["text"], GIVEN * longest)}
            for name, told in story.given.items()
        },
        decisions=[_decision(one, story.started_from, chosen) for one in drawn],
        undrawn=len(story.decisions) - len(drawn),
        tags={_cut(tag, longest): row for tag, row in islice(story.after.by_tag().items(), max(most, 1))},
        won=won,
        lost=lost,
        most=most,
        calls=story.calls,
        usd=story.usd,
        seconds=story.seconds,
        stopped_by=story.stopped_by,
        broken={_cut(id_, longest): _cut(why, longest) for id_, why in islice(story.broken.items(), max(most, 1))},
    )
    return page.encode()


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}..."


def _metrics(evaluations: Sequence[Evaluation]) -> list[dict[str, Any]]:
    rows = []
    for name in ("utility", *METRICS):
        measures = [e.measure(name) for e in evaluations]
        if measures[-1] is None:
            continue
        scale, digits = (1, 3) if name in PLAIN_NUMBERS else (100, 1)
        cells = [
            "-"
            if m is None
            else f"{scale * m.value:.{digits}f} [{scale * m.low:.{digits}f}, {scale * m.high:.{digits}f}]"
            for m in measures
        ]
        rows.append({"name": name if scale == 1 else f"{name}, %", "cells": cells, "n": measures[-1].n})
    return rows


def _frontier(story: Story) -> str:
    """The frontier, and the named points on it; points of one place share its mark."""
    names: dict[tuple[float, float], list[str]] = {}
    for point, candidate in story.points.items():
        names.setdefault((candidate["calls"], candidate["utility"]), []).append(point)
    places = dict.fromkeys([*names, *((c["calls"], c["utility"]) for c in story.frontier)])
    marks = [charts.Mark(*place, ", ".join(names.get(place, []))) for place in places]
    return charts.scatter(marks, "model calls a question", "utility")


def _drawn(story: Story, most: int) -> list[Mapping[str, Any]]:
    """Of each predictor the decisions that tell most, in their order: those on no single base, then those that mattered
    most, moved farthest, have the most cases."""

    def telling(one: Mapping[str, Any]) -> tuple[bool, float, float, int]:
        name = one["parameter"]
        moved = abs(story.chosen.get(name, 0.5) - story.started_from.get(name, 0.5))
        on_a_base = name.rpartition(":")[2].startswith(BASE_PREFIX)
        return not on_a_base, story.importances.get(name, 0.0), moved, len(one["chances"])

    by_predictor: dict[str, list[Mapping[str, Any]]] = {}
    for one in sorted(story.decisions, key=telling, reverse=True):
        by_predictor.setdefault(one["parameter"].rpartition(":")[0], []).append(one)
    kept = {id(one) for found in by_predictor.values() for one in found[:most]}
    return [one for one in story.decisions if id(one) in kept]


def _decision(one: Mapping[str, Any], was: Setting, now: Setting) -> dict[str, Any]:
    p, y = np.asarray(one["chances"], float), np.asarray(one["truths"], bool)
    before, after = was.get(one["parameter"], 0.5), now.get(one["parameter"], 0.5)
    drawn = Markup(charts.cuts(p[~y].tolist(), p[y].tolist(), before, after)) if one["cut"] else ""
    return {
        "name": one["parameter"],
        "n": len(p),
        "cuts": drawn,
        "before": before,
        "after": after,
        "right_before": float(np.mean((p >= before) == y)),
        "right_after": float(np.mean((p >= after) == y)),
        "calibration": Markup(charts.calibration(one["chances"], one["truths"])),
    }


def _flipped(
    before: Sequence[Grade], after: Sequence[Grade], longest: int
) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Questions whose word changed for the better, and for the worse."""
    won: list[dict[str, str]] = []
    lost: list[dict[str, str]] = []
    for a, b in zip(before, after, strict=True):
        if abs(b.correct - b.wrong - a.correct + a.wrong) > 0:
            row = {
                "question": _cut(b.question, longest),
                "was": _word(a),
                "now": _word(b),
                "before": _cut(a.answer, longest),
                "after": _cut(b.answer, longest),
                "before_path": _cut(" > ".join(a.path), longest),
                "after_path": _cut(" > ".join(b.path), longest),
            }
            (won if b.correct - b.wrong > a.correct - a.wrong else lost).append(row)
    return won, lost


def _word(grade: Grade) -> str:
    return "correct" if grade.correct else "wrong" if grade.wrong else "partial"
