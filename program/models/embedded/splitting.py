"""A compound question cut where a question word begins its next part."""

from __future__ import annotations

import re

MOST_PARTS = 4  # of a question; the last holds all that follows
FEWEST_WORDS = 3  # of a part
_BE_OR_DO = "(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|shall|should|may|might|must)(?:n['’]t)?"
_BEFORE = "(?:(?:to|in|on|at|by|for|from|of|with|under|about|since|until) )?"
# "When does" asks; "when it rains" is a condition.
_INVERTED = rf"{_BEFORE}(?:when|where|why) {_BE_OR_DO}"
_ASKING = rf"{_BEFORE}(?:who|whom|whose|what|which|how)"
_CLAUSE = re.compile(rf"\b(?:{_INVERTED}|{_ASKING})\b|(?:^|[.!?;,] ){_BE_OR_DO}\b", re.IGNORECASE)
# ", which was ..." tells more of what stands before it; ", and which" asks.
_CUT = re.compile(
    rf"(?<=\?) |(?:,? and|;(?: and)?) (?=(?:{_INVERTED}|{_ASKING})\b)|, (?=(?:{_INVERTED}|{_BEFORE}(?:what|how))\b)",
    re.IGNORECASE,
)


def split_question(question: str) -> tuple[str, ...]:
    """Return the parts of a compound question, word for word, or the question alone.

    The question is cut at a sentence's end with a question mark, and where a question word begins a clause after "and",
    a semicolon or a comma. It stays whole when a part would have no such clause, or fewer than `FEWEST_WORDS` words.
    """
    parts = tuple(_CUT.split(" ".join(question.split()), maxsplit=MOST_PARTS - 1))
    whole = any(len(part.split()) < FEWEST_WORDS or not _CLAUSE.search(part) for part in parts)
    return (question,) if whole or len(parts) == 1 else parts
