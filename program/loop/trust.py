"""How probably what a model wrote is right: the opinions of its tokens and of the embedded decider, weighed.

The log-odds of the opinions are added, each by its weight, to a shift. A compile fits weights and shift to labels.
Without labels the decider's word is taken as it is, and that of the tokens where there is no other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ragc.notes import Note, NoteKind

OPINIONS = NoteKind.WRITTEN, NoteKind.RESPONSIVE
"""The notes that tell an opinion: how probable a mean token of the reply is, and that it answers the question."""
TRUST = "trust", "trust_tokens", "trust_decider"
"""The knobs by which opinions count: the shift, and the weight of each."""
LEAST_CHANCE = 1e-3  # that an opinion is given, and to its contrary


def list_opinions(path: Sequence[str]) -> tuple[float, ...]:
    """Return the opinions on an answer, as the notes of its path tell.

    Of whom there is no note, the first of the others speaks; empty where there is none at all.
    """
    notes = {note.kind: note.values["share"] for note in path if isinstance(note, Note) and note.kind in OPINIONS}
    return tuple(notes.get(kind, next(iter(notes.values()))) for kind in OPINIONS) if notes else ()


def pool_opinions(opinions: Sequence[float], trust: Sequence[float]) -> float:
    """Return the probability that opinions come to, by a shift and weights."""
    odds = trust[0] + sum(weight * log_odds(one) for weight, one in zip(trust[1:], opinions, strict=True))
    return 1 / (1 + math.exp(-odds))


def log_odds(chance: float) -> float:
    """Return the logarithm of a probability's odds, kept off 0 and 1."""
    known = min(max(chance, LEAST_CHANCE), 1 - LEAST_CHANCE)
    return math.log(known / (1 - known))
