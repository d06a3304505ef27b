"""Pieces of regular expressions for the grammar of English questions."""

from __future__ import annotations

WH = r"(?:what(?:'s|’s)?|which|who(?:'s|’s)?|whom|whose|when|where|why|how(?:'s|’s)?)"
PREP = r"(?:by|for|from|in|to|up to|on|at|with|of|within|after|under|until|since|below|above)"
AUX = r"(?:is|are|was|were|do|does|did|can|could|will|would|should|shall|must|may|might|has|have|had|am)"
HOW = r"(?: (?:much|many|long|often|far|soon))?"
NAMED = r"(?:(?:the|a|an) )?[A-Z][\w’'-]*(?: (?:[A-Z][\w’'-]*|\d{1,3}))*"
SUBJECT = (
    r"(?:i|we|you|he|she|it|they|the|a|an|my|our|your|his|her|its|their"
    r"|this|that|these|those|there|any|one|someone"
    r"|anyone|somebody|each|both|[A-Z][\w-]*)"
)
CLAUSE = rf"(?:{PREP}\s+)?{WH}\b|(?:{PREP}\s+)?(?:which|what)\b|{AUX}(?:n't|n’t)?\s+(?-i:{SUBJECT})\b"
