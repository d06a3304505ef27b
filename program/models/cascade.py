"""The embedded decider first, a language model only in doubt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from numpy.typing import NDArray

Evidence = Mapping[str, Any]
DOUBT = 0.5  # where no program says otherwise


class Cascade:
    """Two decision clients, the cheap one first; a program's doubt decides when the dear one is asked.

    Called as a client itself (by DSPy), it doubts at `DOUBT`. What it learns is what its first client learns.
    """

    supports_decision_requests = True
    awaits = True

    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second
        self.model = f"{first.model} > {second.model}"
        self.callbacks: list[Any] = []
        self.cache = False
        self.kwargs: dict[str, Any] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Cascade:
        return self

    def __call__(self, state: Mapping[str, Any], questions: Mapping[str, Any]) -> Any:
        found = self.first(state=state, questions=questions)
        return found if is_settled(_evidence_in(found), DOUBT) else self.second(state=state, questions=questions)

    async def acall(self, state: Mapping[str, Any], questions: Mapping[str, Any]) -> Any:
        """Return the decisions, awaited."""
        found = await self.first.acall(state=state, questions=questions)
        if is_settled(_evidence_in(found), DOUBT):
            return found
        return await self.second.acall(state=state, questions=questions)

    def export_heads(self, requests: Iterable[Any] | None = None) -> dict[str, NDArray[Any]]:
        """Return the first client's fitted heads; none when it is a language model."""
        export = getattr(self.first, "export_heads", None)
        heads: dict[str, NDArray[Any]] = export(requests) if export else {}
        return heads

    def import_heads(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Give exported heads to the first client. Raises `IntegrityError` for arrays of another form."""
        self.first.import_heads(arrays)


def is_settled(evidence: Evidence, doubt: float) -> bool:
    """Tell whether evidence is certain enough; a doubt of 0 never asks further, of 1 always does."""
    return doubt < 1.0 and least_certainty(evidence) >= doubt


def least_certainty(evidence: Evidence) -> float:
    """Return how certain the least certain decision is: 0 for an even chance, 1 for a sure thing."""
    return min((_certainty_of(found) for found in evidence.values()), default=1.0)


def _certainty_of(found: Any) -> float:
    if found is None:
        return 0.0
    if isinstance(found, Mapping | list):
        shares = list(found.values()) if isinstance(found, Mapping) else found
        options = len(shares)
        return 1.0 if options < 2 else (max(shares) * options - 1) / (options - 1)
    return abs(2 * float(found) - 1)


def _evidence_in(answers: Mapping[str, Mapping[str, Any]]) -> Evidence:
    return {
        name: None if "undecided" in answer else answer.get("noul", answer.get("probabilities"))
        for name, answer in answers.items()
    }
