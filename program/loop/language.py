"""Which language a question is in, when it is hardly English."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

SURE = 0.8  # terse and misspelt English is common in questions: all 327 of the example's stay under this
SURE_NO_WORD = 0.4  # without one common English word: 2 of CLINC150's 4,100 English lines are over it, of the 327 none
SURE_NOT_LATIN = 0.5
LATIN_END = "\u0250"
WORD = re.compile(r"\w+")
COMMON = frozenset("the a an is are do does how what which who when where can i my to of for and in it on".split())
PIDGIN = "pcm"  # Nigerian Pidgin is taken for terse English, and the other way round
NAMES = dict(
    pair.split(":")
    for pair in (
        "ar:Arabic bg:Bulgarian ca:Catalan cs:Czech da:Danish de:German el:Greek es:Spanish et:Estonian fa:Persian "
        "fi:Finnish fr:French he:Hebrew hi:Hindi hr:Croatian hu:Hungarian id:Indonesian it:Italian ja:Japanese "
        "ko:Korean lt:Lithuanian lv:Latvian nb:Norwegian nl:Dutch nn:Norwegian no:Norwegian pl:Polish pt:Portuguese "
        "ro:Romanian ru:Russian sk:Slovak sl:Slovene sr:Serbian sv:Swedish th:Thai tr:Turkish uk:Ukrainian "
        "ur:Urdu vi:Vietnamese zh:Chinese"
    ).split()
)


def foreign(text: str) -> str:
    """The English name of the question's language, or "" when it is English or in doubt."""
    words = set(WORD.findall(text.lower()))
    if len(words & COMMON) >= 3:
        return ""  # spares the model's load for nearly every question
    letters = [c for c in text if c.isalpha()]
    if not letters:
        return ""
    code, probability = _identifier().classify(text)
    latin = 2 * sum(c < LATIN_END for c in letters) >= len(letters)
    sure = SURE_NOT_LATIN if not latin else SURE if words & COMMON else SURE_NO_WORD
    if code in ("en", PIDGIN) or probability < sure:
        return ""
    return NAMES.get(code, f"another language ({code})")


@lru_cache(maxsize=1)
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
