"""Published designs, and plain RAG, as settings of the one program: knob values, nothing else."""

from __future__ import annotations

from collections.abc import Mapping

Values = Mapping[str, float]

PLAIN: Values = {"route": 0, "decompose": 0, "judge": 0, "ground": 0, "max_rounds": 1, "graph_weight": 0.0}
"""Search once, write from whatever came back."""

PRESETS: Mapping[str, Values] = {
    "plain": PLAIN,
    # One strategy after another until the evidence as a whole is good enough; then, or in the end, write.
    "strategy-router": {
        "decompose": 0,
        "ground": 0,
        "filter": 0,
        "one_strategy": 1,
        "recency": 0.4,
        "max_rounds": 2,
    },
    # The chosen bases only, all in doubt; rewrite and search again; ask back when that does not help.
    "knowledge-router": {
        "decompose": 0,
        "ground": 0,
        "filter": 0,
        "only_chosen_bases": 1,
        "cross_below": 0.4,
        "clarify_above": 0.3,
        "max_rounds": 3,
    },
    # A fast path; else parts, the passages that help, the missing looked up, and the answer checked by claims.
    "judge-and-ground": {"fast_above": 0.5, "search_claims": 1, "max_rounds": 3},
    # Retrieve or answer, round by round, the next query from what was found; the last round answers.
    "decide": {"decompose": 0, "ground": 0, "filter": 0, "max_rounds": 4},
    # A plan of parts, each judged by itself; evidence complete, current and consistent; gains must go on.
    "plan": {
        "ground": 0,
        "fast_above": 0.5,
        "each_part": 1,
        "fresh_above": 0.5,
        "consistent": 1,
        "recency": 0.4,
        "min_gain": 0.1,
        "max_rounds": 4,
    },
    # All of it that needs no labels to be trusted; `ragc compile` decides about the rest.
    "full": {"fast_above": 0.8, "recency": 0.4},
}
"""What each preset turns away from the defaults of `Policy`."""
