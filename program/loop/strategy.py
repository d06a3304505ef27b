"""Ways of looking things up: what the sources offer, and in which order a question tries them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from program.passage import SourceCard

OF_KIND = {"documents": "vector", "graph": "graph", "tables": "tables", "web": "web"}
"""The strategy that a source of a kind is searched by."""

FRESH = "web"
"""The strategy whose sources are newer than the rest."""

ALL = "all"


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way of looking up: the sources it searches, and the part score it goes by (empty: the usual fusion)."""

    name: str
    sources: tuple[str, ...]
    part: str = ""


def offered(cards: Iterable[SourceCard]) -> tuple[Strategy, ...]:
    """The strategies that these sources allow, in the order of their first source."""
    by_name: dict[str, list[str]] = {}
    for card in cards:
        by_name.setdefault(OF_KIND.get(card.kind, card.kind), []).append(card.name)
    return tuple(Strategy(name, tuple(sources)) for name, sources in by_name.items())


def ordered(
    strategies: Sequence[Strategy], likely: Mapping[str, float], timely: bool, recency: float
) -> tuple[Strategy, ...]:
    """Most promising first: by the probability of its likeliest source, the fresh one lifted for a timely question."""

    def promise(strategy: Strategy) -> float:
        lift = recency if timely and strategy.name == FRESH else 0.0
        return max((likely.get(name, 0.0) for name in strategy.sources), default=0.0) + lift

    return tuple(sorted(strategies, key=lambda strategy: -promise(strategy)))
