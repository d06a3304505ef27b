"""Who and what a text is about and names: found by spelling alone, with no model call."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from program.knowledge.index.keywords import STOP_WORDS

Key = tuple[str, ...]
"""An entity's name as it is compared: words in lower case, without accents or a possessive 's."""

# A point after an initial or a title (M. Ward, St. Vincent) ends no sentence.
_TOKEN = re.compile(r"\w+(?:['’]\w+)*|(?<!\b[A-Z])(?<!\b(?:St|Dr|Mr|Ms|Jr|Sr|Mt|Ft|vs))(?<!\bMrs)\.|[,!?:;\n]")
LONGEST = 8
"""Words that a name may have."""
LEAST = 2
"""Texts that must share a name for it to join them, unless some text is about it."""

_STOPS = frozenset(".,!?:;\n")
_JOINS = frozenset("and or in on at to".split())
_INSIDE = frozenset("of the de la von van der du di da del el al for a".split()) | _JOINS
_CALENDAR = frozenset(
    """january february march april may june july august september october november december
    monday tuesday wednesday thursday friday saturday sunday""".split()
)
_BRACKETS = re.compile(r"\s*\([^)]*\)")
_LEAD = re.compile(r": | – | — | - | \| ")
_DEFINED = re.compile(r"\*\*([^*\n]{3,60})\*\*|[“\"]([^”\"\n]{3,60})[”\"]|`([^`\n]{3,60})`")
_CODE = re.compile(r"\b(?:[A-Za-z]+_\w+|[a-z]+[A-Z]\w+|[A-Z]\w*\d\w*|[A-Z]{2,}[a-z]?\w*)\b")


def key(text: str) -> Key:
    """The words of a name as they are compared."""
    return tuple(word for _, word in _tokens(text) if word not in _STOPS)


def aliases(title: str) -> dict[Key, float]:
    """The names of what a title is about, each with how surely it means that, in (0, 1].

    The title; without what is in brackets; up to its first comma or colon, by the share of the words that this
    is; without its article; and each heading of a breadcrumb `A > B`, the last being the passage's own.
    """
    found: dict[Key, float] = {}
    for depth, heading in enumerate(reversed(title.split(" > "))):
        share = 0.5**depth
        for name, weight in _heading(heading):
            found[name] = max(found.get(name, 0.0), share * weight)
    return found


def shared(texts: Iterable[str]) -> set[Key]:
    """Find the names that at least LEAST texts hold; a single word only where no more texts write it small."""
    held, small = Counter[Key](), Counter[Key]()
    for text in texts:
        tokens = _tokens(text)
        held.update(_names(text, tokens))
        small.update({(folded,) for word, folded in tokens if word.islower()})
    return {name for name, count in held.items() if count >= max(LEAST, small[name])}


def _names(text: str, tokens: Sequence[tuple[str, str]]) -> set[Key]:
    """Capitalised spans, code identifiers, and terms set in bold, quotes or code.

    A single capitalised word that begins a sentence may be any word, and does not count; nor does a month or a day
    of the week. What `and` or a preposition joins is one name and several.
    """
    found = {key(" ".join(match.groups(""))) for match in _DEFINED.finditer(text)}
    found |= {key(match[0]) for match in _CODE.finditer(text)}
    for span, begins in _spans(tokens):
        name = _trimmed(span)
        if len(name) > 1 or not begins or name[:1] != span[:1]:
            found.add(name)
        pieces = _pieces(name)
        found |= set(pieces)
        for piece in (name, *pieces):
            if len(piece) > 3:  # its first two words and its last two are often used alone
                found |= {_trimmed(piece[:2]), _trimmed(piece[-2:])}
    return {
        name for name in found if _names_something(name) and len(name) <= LONGEST and not _CALENDAR.issuperset(name)
    }


class Lexicon:
    """Known names, found in texts whatever their case: the longest at each place. Read-only once made."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self.keys = tuple(keys)
        self._single = {name[0]: number for number, name in enumerate(keys) if len(name) == 1}
        self._longer: dict[Key, list[tuple[Key, int]]] = {}
        for number, name in enumerate(keys):
            if len(name) > 1:
                self._longer.setdefault(name[:2], []).append((name, number))
        for same in self._longer.values():
            same.sort(key=lambda one: -len(one[0]))

    def find(self, text: str) -> list[int]:
        """The numbers of the names in a text, in order: the longest at each place, and again after a comma, `and`
        or a preposition inside it ("Kingston, Jamaica" names Jamaica, too)."""
        words: list[str] = []
        parts = set()  # places where a part of a name may begin
        for _, word in _tokens(text):
            if word != ",":
                words.append(word)
            if word == "," or word in _JOINS:
                parts.add(len(words))
        found, at = [], 0
        while at < len(words):
            for name, number in self._longer.get(tuple(words[at : at + 2]), ()):
                if tuple(words[at : at + len(name)]) == name:
                    found.append(number)
                    at = next((part for part in range(at + 1, at + len(name)) if part in parts), at + len(name))
                    break
            else:
                if words[at] in self._single:
                    found.append(self._single[words[at]])
                at += 1
        return found


@lru_cache(maxsize=20_000)
def _heading(heading: str) -> tuple[tuple[Key, float], ...]:
    """The names of one heading with their weights: a document's own stands above each of its passages."""
    bare = _BRACKETS.sub("", heading)
    whole = max(len(key(bare)), 1)
    leads = [key(bare.partition(",")[0]), key(_LEAD.split(bare)[0])]
    names = [(key(heading), 1.0), (key(bare), 0.9), *((lead, 0.9 * len(lead) / whole) for lead in leads)]
    names += [(name[1:], 0.9 * weight) for name, weight in names if len(name) > 2 and name[0] in ("the", "a", "an")]
    return tuple((name, weight) for name, weight in names if _names_something(name))


def _trimmed(name: Key) -> Key:
    """Without function words at either end."""
    start, end = 0, len(name)
    while start < end and name[start] in STOP_WORDS:
        start += 1
    while end > start and name[end - 1] in STOP_WORDS:
        end -= 1
    return name[start:end]


def _pieces(name: Key) -> list[Key]:
    """What `and` or a preposition joins in a name, or nothing."""
    cuts = [at for at, word in enumerate(name) if word in _JOINS]
    bounds = zip([0, *(at + 1 for at in cuts)], [*cuts, len(name)], strict=True)
    return [_trimmed(name[start:end]) for start, end in bounds] if cuts else []


def _names_something(name: Key) -> bool:
    if len(name) == 1:
        return len(name[0]) > 2 and not name[0].isdigit() and name[0] not in STOP_WORDS
    return bool(name) and not all(word in STOP_WORDS for word in name)


def _tokens(text: str) -> list[tuple[str, str]]:
    """Words and stops, each as written and as compared."""
    return [(found, found if found.isdigit() else _folded(found)) for found in _TOKEN.findall(text)]


@lru_cache(maxsize=20_000)
def _folded(word: str) -> str:
    lower = word.lower().replace("’", "'")
    if not lower.isascii():
        lower = "".join(c for c in unicodedata.normalize("NFKD", lower) if not unicodedata.combining(c))
    return lower[:-2] if lower.endswith("'s") else lower


def _spans(tokens: Sequence[tuple[str, str]]) -> Iterator[tuple[Key, bool]]:
    """Runs of capitalised words (of, the, de ... inside them), and whether each begins a sentence."""
    at, begins = 0, True
    while at < len(tokens):
        word = tokens[at][0]
        if word in _STOPS:
            at, begins = at + 1, word != ","
            continue
        end = at + 1
        if word[0].isupper():
            ahead = end
            while ahead < len(tokens) and tokens[ahead][0] not in _STOPS:
                written, folded = tokens[ahead]
                ahead += 1
                if written[0].isupper() or written[0].isdigit():
                    end = ahead
                elif folded not in _INSIDE:
                    break
            yield tuple(folded for _, folded in tokens[at:end]), begins
        at, begins = end, False
