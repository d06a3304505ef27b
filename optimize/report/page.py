"""The two HTML pages: what a compile gained, and how an offline test came out. Each needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from ragc.loop.policy import is_candidate
from ragc.optimize.evaluation.comparison import SUBGROUPS
from ragc.optimize.evaluation.evaluate import Evaluation, tabulate_metrics
from ragc.optimize.evaluation.grades import FIRST, PROPORTIONS
from ragc.optimize.evaluation.losses import REMEDIES
from ragc.optimize.evaluation.outcome import Compiled
from ragc.optimize.evaluation.risk import describe_curves
from ragc.optimize.evaluation.stats import format_estimate, format_interval, format_number, format_p
from ragc.signatures import BASE_PREFIX

if TYPE_CHECKING:
    from jinja2 import Template

    from ragc.optimize.abtest.offline import OfflineTest

LARGEST = 500_000  # bytes of a compile's page, which is committed with its version
SHOWN = ((40, 600), (20, 300), (8, 150), (0, 80))
"""Items of a list and characters of a text that are shown at most: the first with which the page is not too large."""
WORDS = 110  # characters that say what a parameter is


def render_compile_page(report: Compiled) -> bytes:
    """Return the page in UTF-8, its texts cut so that it has at most LARGEST bytes."""
    for most, longest in SHOWN:
        page = _open_template("report.html.j2").render(_compile_fields(report, most, longest)).encode()
        if len(page) <= LARGEST:
            break
    return page


def render_ab_page(found: OfflineTest) -> str:
    """Return the page of an offline test."""
    shown = {"control": found.control, "metric": found.metric, "subgroups": SUBGROUPS}
    return _open_template("offline.html").render(test=found, **shown)


@cache
def _open_template(name: str) -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined)
    found.filters |= {"signed": format_number, "interval": format_interval, "estimate": format_estimate}
    found.filters |= {"p": format_p, "curves": describe_curves}
    found.filters["cut"] = lambda text, longest: text if len(text) <= longest else f"{text[:longest]}..."
    return found.get_template(name)


def _compile_fields(report: Compiled, most: int, longest: int) -> dict[str, Any]:
    """Return what the template shows: `most` items of a list, `longest` characters of a text."""
    pairs = list(zip(report.before.grades, report.after.grades, strict=True))
    sides = {"plain RAG": report.plain, "parent": report.before, "this": report.after}
    tested = {name: one for name, one in sides.items() if one is not None}
    metrics = _list_metrics(list(tested.values()))
    return {
        "report": report,
        "remedies": REMEDIES,
        "sides": list(tested),
        "metrics": list(metrics.values()),
        "first": [metrics[name] for name in FIRST if name in metrics],
        "moved": [
            (_name_parameter(report, name), name, was, report.chosen[name])
            for name, was in sorted(report.started_from.items())
            if abs(report.chosen.get(name, was) - was) > 1e-9 and not is_candidate(name)
        ],
        "won": [(a, b) for a, b in pairs if a.correct - a.wrong < b.correct - b.wrong],
        "lost": [(a, b) for a, b in pairs if a.correct - a.wrong > b.correct - b.wrong],
        "most": most,
        "listed": max(most, 1),
        "longest": longest,
    }


def _name_parameter(report: Compiled, name: str) -> str:
    """Return in words what a parameter is, on a line or two."""
    if (field := name.rpartition(":")[2]).startswith(BASE_PREFIX):
        return f"probability from which the base {field.removeprefix(BASE_PREFIX)} is searched"
    return shorten(report.meanings.get(name, ""), WORDS, placeholder=" ...")


def _list_metrics(evaluations: Sequence[Evaluation]) -> dict[str, dict[str, Any]]:
    return {
        name: {"name": f"{name}, %" if name in PROPORTIONS else name, "cells": cells, "n": n}
        for name, cells, n in tabulate_metrics([one.metrics() for one in evaluations], digits=3, timed=False)
    }
