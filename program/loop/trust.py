"""How probably what a model wrote is right: the opinions of its tokens and of the embedded decider, weighed.

The log-odds of the opinions are added, each by its weight, to a shift. A compile fits weights and shift to labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ragc.notes import Note, NoteKind

OPINIONS = NoteKind.WRITTEN, NoteKind.RESPONSIVE
"""The notes that tell an opinion: how probably just this reply is written, and that it answers the question."""
TRUST = "trust", "trust_tokens", "trust_decider"
"""The knobs by which opinions count: the shift, and the weight of each."""
UNKNOWN = 0.5  # the opinion of whom none is known
LEAST_CHANCE = 1e-3  # that an opinion is given, and to its contrary


def list_opinions(path: Sequence[str]) -> tuple[float, ...]:
    """Return the opinions that the notes of a path tell; of another, even odds."""
    told = {note.kind: note.values["share"] for note in path if isinstance(note, Note) and note.kind in OPINIONS}
    return tuple(told.get(kind, UNKNOWN) for kind in OPINIONS)


def pool_opinions(opinions: Sequence[float], trust: Sequence[float]) -> float:
    """Return the probability that opinions come to, by a shift and weights."""
    odds = trust[0] + sum(weight * log_odds(one) for weight, one in zip(trust[1:], opinions, strict=True))
    return 1 / (1 + math.exp(-odds))


def log_odds(chance: float) -> float:
    """Return the logarithm of a probability's odds, kept off 0 and 1."""
    known = min(max(chance, LEAST_CHANCE), 1 - LEAST_CHANCE)
    return math.log(known / (1 - known))
