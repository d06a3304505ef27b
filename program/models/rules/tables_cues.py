"""Turns of phrase that tell what a question about tables wants computed."""

from __future__ import annotations

import re


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


TOTAL = _any(r"\btotal(?:s|ling)?\b", r"\bin all\b", r"\baltogether\b", r"\bsum\b", r"\bcombined\b", r"\boverall\b")
AVERAGE = _any(r"\baverages?\b", r"\bmean\b(?! by)", r"\btypically\b")
SHARE = _any(
    r"\b(?:share|percentage|percent|per cent|proportion|fraction) of\b",
    r"\b(?:what|which) (?:share|percentage|proportion|fraction)\b",
    r"% of",
)
SPENT = _any(r"\bhow much\b.*\b(?:did|has|have|had|was|were)\b", r"\b(?:revenue|turnover|spent|spend|takings|earned)\b")
HOW_LONG = _any(r"\bhow long\b", r"\bdays\b.*\b(?:between|take|took)\b")
LISTED = _any(r"^\W*(?:please )?(?:list|show|give|display|name|which|what (?:are|were)|find|get|whose)\b")
PLURAL = _any(r"^\W*(?:which|what|list|show|name)(?: (?:me|us|are|were|all|the|different|of))* (\w+s)\b")
POLICY = _any(
    r"\b(?:can|could|may|should|must|shall|would|will) (?:i|we|you|my|our|they|someone|a|an|the)\b",
    r"\bhow (?:do|can|should|would|could|does) (?:i|we|you|it|the)\b",
    r"\bif\b|\bwhat happens\b|\bwhy\b|\bam i\b|\bdo i\b|\bdo you\b|\ballowed\b|\b(?:my|your)\b",
    r"\bi(?:['’](?:m|ve|d)| am| have| want| need)\b",
)
"""Signs of a question about what holds in general, or for the asker, rather than about what is on record."""
TOOK = _any(r"\b(?:take|took|last|lasted|run|ran)\b")
TIMED = _any(r"\b(?:days|time)\b")
VERBS = frozenset({"were", "are", "was", "is", "came", "come", "went", "go", "have", "had", "has", "got", "did", "do"})
"""What stands between the whole and the part of a share."""
