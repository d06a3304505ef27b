"""Which language a question is in, when it is hardly English."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

SURE = 0.8  # terse and misspelt English is common in questions: all 327 of the example's stay under this
SURE_NOT_LATIN = 0.5
LATIN_END = "\u0250"
COMMON = frozenset("the a an is are do does how what which who when where can i my to of for and in it on".split())


def foreign(text: str) -> str:
    """The question's ISO 639-1 language code, or "" when it is English or in doubt."""
    words = set(text.lower().split())
    if len(words & COMMON) >= 3:
        return ""  # spares the model's load for nearly every question
    letters = [c for c in text if c.isalpha()]
    if not letters:
        return ""
    code, probability = _identifier().classify(text)
    latin = 2 * sum(c < LATIN_END for c in letters) >= len(letters)
    return "" if code == "en" or probability < (SURE if latin else SURE_NOT_LATIN) else str(code)


@lru_cache(maxsize=1)
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
