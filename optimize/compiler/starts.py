"""Settings worth trying before any search."""

from __future__ import annotations

from program.loop.policy import PLAIN, Setting


def starts(fitted: Setting) -> list[Setting]:
    """Settings worth trying first: what usually helps, each still to prove itself.

    A judge with few examples is unsure, so a low bar keeps what it only doubts; or none sifts, and the writer, which
    goes by the order in which passages are found, is given more of them. Plain RAG is the last: one call a question.
    """
    fresh = {"policy.stale_penalty": 1.0, "policy.informal_penalty": 0.6}
    lenient = {"judge.relevance:relevant": 0.05, "judge.sufficiency:sufficient": 0.2, "grounder.support:supported": 0.2}
    full = {"policy.keep_at_most": 8, "policy.sentences": 6}
    wide = {"policy.k": 12, "policy.keep_at_most": 12}
    unsifted = {"policy.filter": 0, "policy.ground": 0}
    by_document = {"policy.document_weight": 0.4}
    bold = {"grounder.responsive:responsive": 0.02}
    once = {"policy.max_rounds": 1, "policy.base_prior": 0.2, "policy.fast_above": 1.0}
    text = {"policy.graph_weight": 0.0}
    honest = {"policy.look_up_unknown": 0}
    plain = {f"policy.{name}": value for name, value in PLAIN.items()}
    return [
        {**fitted, **fresh, **lenient, **bold},
        {**fitted, **fresh, **lenient, **full, **bold},
        {**fitted, **fresh, **lenient, **full, **bold, **once},
        {**fitted, **fresh, **lenient, **full, **bold, **once, **text},
        {**fitted, **fresh, **lenient, **full, **bold, **once, **text, **honest},
        {**fitted, **fresh, **lenient, **full, **bold, **once, **text, **honest, **wide, **unsifted},
        {**fitted, **fresh, **lenient, **full, **bold, **once, **text, **honest, **wide, **unsifted, **by_document},
        {**fitted, **plain},
    ]
