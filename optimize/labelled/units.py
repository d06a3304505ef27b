"""A question by its digest, and the topics that a test needs: in a module that is quick to import."""

from __future__ import annotations

import hashlib

MIN_UNITS = 6  # the fewest topics that a sign-flip test can speak on: with five, p is never below 2 / 2**5 = .0625
_DIGITS = 16


def question_digest(text: str) -> str:
    """Return 16 hexadecimal digits for a question, whatever its case and spacing."""
    return hashlib.sha256(" ".join(text.casefold().split()).encode()).hexdigest()[:_DIGITS]
