"""The weights of a search under which the most labelled evidence is among the passages that are read.

Ranking what was recorded is arithmetic, so every combination is tried; no model is asked and no answer is written. What
comes out is one whole way of answering among others: more evidence is also more that is beside the point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from statistics import median_high
from typing import Any

from ragc.loop.evidence import rank_pool
from ragc.loop.state import Find
from ragc.optimize.compiler.runs.replay import Replay
from ragc.optimize.labelled.dataset import LabelledQuestion

GRID: Mapping[str, Sequence[float]] = {
    "graph_weight": (0.0, 0.3, 0.6, 1.0),
    "dense_weight": (0.3, 0.5, 0.7),
}
"""The values of each knob of fusion that are combined."""


def find_best_search(replay: Replay, questions: Sequence[LabelledQuestion], k: int) -> dict[str, float]:
    """Return the values of the knobs at which most evidence is found.

    They are empty where no other values find more than those that the program has. The measure is recall among the `k`
    passages of one search for the question as it was asked, where evidence is labelled and anybody may ask.
    """
    asked = [question for question in questions if question.evidence and not question.readers]
    pools = replay.reply_all([Find(question.question, replay.program.sources) for question in asked])
    found = [(set(question.evidence), pool) for question, pool in zip(asked, pools, strict=True) if pool is not None]
    tuning = replace(replay.program.policy.tuning(), k=k)

    def recall(knobs: Mapping[str, float]) -> float:
        ranked = (
            ({p.id for p in rank_pool(pool, replace(tuning, **dict[str, Any](knobs)))}, wanted)
            for wanted, pool in found
        )
        return sum(len(ids & wanted) / len(wanted) for ids, wanted in ranked)

    now = {name: getattr(tuning, name) for name in GRID}
    tried = [now, *(dict(zip(GRID, values, strict=True)) for values in product(*GRID.values()))]
    best = max(tried, key=lambda knobs: round(recall(knobs), 9)) if found else now
    return {} if best == now else best


def count_evidence(questions: Sequence[LabelledQuestion]) -> int:
    """Return the median number of a question's evidence passages; 0 without any."""
    return median_high([len(question.evidence) for question in questions if question.evidence] or [0])
