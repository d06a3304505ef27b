"""The words of a question about tables, and which of them the query accounts for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from program.models.rules.words import snowball_stem

_WORD = re.compile(r"[^\W_]+(?:[-'’./:][^\W_]+)*")
STOP = frozenset("""
    a about actually again all also altogether always am an and any anyone anything are as aside at
    average away back be became because become been before being besides between both breakdown but by
    came can come comes could count currently data database did different display distinct do does doesnt
    doing done dont each either else entire ever every exactly except excepting exclude excludes excluding
    far few file find for fraction from get gets getting give given go goes going gone got had happen
    happened happens has have having he her here hi his hit how hows i if ignore ignoring im in include
    included includes including into is it its itself ive just kind know last least leave leaving list log
    long look made make many may me mean mine minus more most much my name near no non not now number of
    off often ok old omitting on one ones only or other our out over overall own part past per percent
    percentage place please proportion put question quite rather record recorded records report row rows
    same say see set share she should show shown since so some somewhere still sum table take taken tell
    than thanks that thats the their them then there these they thing things this those though through
    time times to together too top total two under until up us use very was we well went were what whats
    when where wheres whether which while who whole whom whos whose why will with within would year-to-
    date yes yet you your
""".split())  # fmt: skip
"""Words that an answer need not account for."""
_ENDINGS = frozenset("s e r er or ed d ing i y ly al ion ment ian n".split())
NEGATORS = re.compile(
    r"(?i)\b(?:not|never|non|no|without|except(?:ing| for)?|exclud(?:e|es|ing)|leav(?:e|ing) out|other than|apart from"
    r"|aside from|ignor(?:e|ing)|omit(?:ting)?|outside|minus|besides|rather than|but not|yet to be|\w+n['’]t)\b"
)
NUMBERS: dict[str, float] = {
    "a": 1, "an": 1, "half": 0.5, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30,
    "forty": 40, "fifty": 50, "sixty": 60, "ninety": 90, "hundred": 100, "thousand": 1000,
}  # fmt: skip
SECONDS = {"second": 1, "sec": 1, "minut": 60, "min": 60, "hour": 3600, "hr": 3600, "day": 86400, "week": 604800}
"""Stems of units of time, in seconds."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word, where it stands in the question (characters), and its stem."""

    text: str
    low: str
    stem: str
    start: int
    end: int

    @property
    def content(self) -> bool:
        """True when an answer has to account for it."""
        return self.low not in STOP and bool(SUPERLATIVES.get(self.low, ("named", True))[0])


@lru_cache(maxsize=50_000)
def stem_word(word: str) -> str:
    """Return the Snowball stem of a lower-case word.

    A word that starts with a digit only loses its plural s.
    """
    if word[:1].isdigit():
        return re.sub(r"(?<=\d)['’]?s$", "", word)
    return snowball_stem(re.sub(r"['’]s?$", "", word))


@lru_cache(maxsize=2_000)
def split_words(text: str) -> tuple[Word, ...]:
    """Return the words of a text in order.

    Those joined by a hyphen come apart, unless they hold a digit (`TG-40378`).
    """
    found = []
    for match in _WORD.finditer(text):
        whole = match.group()
        parts = [match] if re.search(r"\d", whole) else list(re.finditer(r"[^-./:]+", whole))
        shift = 0 if parts == [match] else match.start()
        found += [
            Word(p.group(), p.group().lower(), stem_word(p.group().lower()), p.start() + shift, p.end() + shift)
            for p in parts
        ]
    return tuple(found)


@lru_cache(maxsize=50_000)
def squash_text(text: str) -> str:
    """Return only the letters and digits, lower case."""
    return re.sub(r"[\W_]", "", text).lower()


@lru_cache(maxsize=65_536)
def same_word(one: str, other: str) -> bool:
    """Tell whether two stems are forms of one word, such as `own` and `owner`."""
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    return len(short) >= 3 and long.startswith(short) and long[len(short) :] in _ENDINGS


@lru_cache(maxsize=5_000)
def stem_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the stems of lower-case words."""
    return tuple(map(stem_word, words))


def is_word_of(stem: str, name: tuple[str, ...]) -> bool:
    """Tell whether a stem is one of a name's words, in some form."""
    return any(same_word(stem, own) for own in stem_words(name))


_ASKED_BY = {
    "money": "cost price spend spent pay paid worth pound euro dollar money expensive cheap charge revenue turnover"
    " earn bill fee sales",
    "duration": "long duration minute hour second lasted lasting lasts downtime slow fast quick short length",
    "weight": "heavy light weigh weight kilo kg gram tonne pound",
    "distance": "far distance mile kilometre km metre long short",
    "height": "tall high height",
    "temperature": "hot cold warm temperature degree",
    "age": "old young age",
    "quantity": "unit piece item copy quantity stock sold sell bought buy",
}
ASKED_BY = {dimension: frozenset(map(stem_word, listed.split())) for dimension, listed in _ASKED_BY.items()}
"""Stems that ask for a number, by what its column measures."""
HIGH_IS_GOOD = frozenset(
    "score scores rating ratings satisfaction margin profit revenue sales grade stars quality".split()
)
_SUPERLATIVES = {
    "": (
        "most highest biggest largest greatest maximum max worst best top",
        "fewest least lowest smallest minimum min",
    ),
    "count": ("busiest commonest", ""),
    "duration": ("longest slowest", "shortest quickest fastest briefest"),
    "date": ("latest newest last", "earliest first"),
    "money": ("dearest priciest costliest", "cheapest"),
    "weight": ("heaviest", "lightest"),
    "distance": ("farthest furthest", "nearest"),
    "height": ("tallest", ""),
    "temperature": ("hottest warmest", "coldest coolest"),
    "age": ("oldest", "youngest"),
}
SUPERLATIVES = {
    word: (dimension, end == 0)
    for dimension, ends in _SUPERLATIVES.items()
    for end, listed in enumerate(ends)
    for word in listed.split()
}
"""Word -> (dimension, or empty when its noun tells it; True when the largest comes first)."""
_ADJECTIVES = {"date": "recent recently", "money": "expensive costly pricey valuable",
               "": "common frequent popular often frequently"}  # fmt: skip
ADJECTIVES = {stem_word(word): dimension for dimension, listed in _ADJECTIVES.items() for word in listed.split()}
"""After `most` or `least`: stem -> dimension; an empty one counts rows."""


class QuestionWords:
    """The words of one question while one table is tried on it.

    `used` maps a word's index to how surely its meaning is known (0..1); `anchors` counts what was tied to a name or
    value of the database rather than to the language.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.words: tuple[Word, ...] = split_words(text)
        self.used: dict[int, float] = {}
        self.anchors = 0

    def free_words(self) -> Iterator[tuple[int, Word]]:
        """Return index and word of each one not yet used."""
        return ((i, w) for i, w in enumerate(self.words) if i not in self.used)

    def is_free(self, start: int, stop: int) -> bool:
        """Tell whether the words from `start` to before `stop` are all unused.

        An empty range is not free.
        """
        return start < stop and self.used.keys().isdisjoint(range(start, stop))

    def mark_used(self, start: int, stop: int, weight: float = 1.0, strong: bool = False) -> None:
        """Mark words as accounted for; `strong` when they name something of the database."""
        for i in range(start, stop):
            self.used[i] = max(weight, self.used.get(i, 0.0))
        self.anchors += strong

    def word_at(self, at: int) -> int:
        """Return the index of the first word that ends after character `at`.

        Where there is none, return the number of words.
        """
        return next((i for i, w in enumerate(self.words) if w.end > at), len(self.words))

    def coverage(self) -> float:
        """Return the share of content words accounted for, 0..1."""
        content = [i for i, w in enumerate(self.words) if w.content]
        return sum(self.used.get(i, 0.0) for i in content) / len(content) if content else 0.0

    def misses_a_name(self) -> bool:
        """Tell whether a name or a figure of the question is not accounted for."""
        return any(w.content and self._is_name(i) for i, w in self.free_words())

    def _is_name(self, at: int) -> bool:
        word = self.words[at]
        inside = at > 0 and self.text[: word.start].rstrip(" \"'“‘(")[-1:] not in (".", "?", "!", ":", "\n")
        return any(c.isdigit() for c in word.text) or (inside and word.text[0].isupper())
