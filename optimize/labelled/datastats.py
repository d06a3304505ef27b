"""How many labelled questions there are of each kind, in each split."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from optimize.labelled.dataset import LabelledQuestion
from optimize.labelled.split import SPLITS

NONE = "-"
"""Stands for a question without the label."""
TOTAL = "total"

Counts = dict[str, dict[str, dict[str, int]]]

_BY: dict[str, Callable[[LabelledQuestion], Sequence[str | None]]] = {
    "all": lambda q: ["questions"],
    "outcome": lambda q: [q.outcome],
    "route": lambda q: [q.route],
    "strategy": lambda q: [q.strategy],
    "source": lambda q: q.sources or [None],
    "tag": lambda q: q.tags or [None],
    "topic": lambda q: [q.topic],
}


def count(questions: Sequence[LabelledQuestion]) -> Counts:
    """label -> value -> split -> number of questions, with `total` as the last split.

    Labels are all, outcome, route, strategy, source, tag and topic. Values come commonest first, "-" for a
    question without the label; a question with several tags or sources counts once under each.
    """
    columns = [*SPLITS, *([NONE] if any(q.split is None for q in questions) else []), TOTAL]
    counts: Counts = {}
    for label, values_of in _BY.items():
        table: dict[str, dict[str, int]] = {}
        for question in questions:
            for value in values_of(question):
                row = table.setdefault(value or NONE, dict.fromkeys(columns, 0))
                row[question.split or NONE] += 1
                row[TOTAL] += 1
        counts[label] = dict(sorted(table.items(), key=lambda item: (-item[1][TOTAL], item[0])))
    return counts
