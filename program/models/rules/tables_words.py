"""A question's words as slots see them: stems, stop words, measures, superlatives, numbers."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from functools import lru_cache

import snowballstemmer

_WORD = re.compile(r"[^\W_]+(?:[-'’./:][^\W_]+)*")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")
_STEMMER = snowballstemmer.stemmer("english")
_STEMMER_LOCK = threading.Lock()  # the stemmer keeps the word it works on


def _set(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


STOP = _set(
    """
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
    """
)
"""Words that an answer need not account for."""
NEGATORS = re.compile(
    r"\b(?:not|never|non|no|without|except(?:ing| for)?|exclud(?:e|es|ing)|leav(?:e|ing) out|other than|apart from"
    r"|aside from|ignor(?:e|ing)|omit(?:ting)?|outside|minus|besides|rather than|but not|yet to be|\w+n['’]t)\b",
    re.IGNORECASE,
)
NUMBERS: dict[str, float] = {
    "a": 1, "an": 1, "half": 0.5, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30,
    "forty": 40, "fifty": 50, "sixty": 60, "ninety": 90, "hundred": 100, "thousand": 1000,
}  # fmt: skip
SECONDS = {"second": 1, "sec": 1, "minut": 60, "min": 60, "hour": 3600, "hr": 3600, "day": 86400, "week": 604800}
"""Stems of units of time, in seconds."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """What a number measures: words that name it in a column's name, and stems that ask for it."""

    columns: frozenset[str]
    asks: frozenset[str]


def _dimension(columns: str, asks: str) -> Dimension:
    return Dimension(frozenset(columns.split()), frozenset(stem(w) for w in asks.split()))


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
def stem(word: str) -> str:
    """The Snowball (English) stem of a lower-case word; a plural of a number loses its s."""
    if word[:1].isdigit():
        return re.sub(r"(?<=\d)['’]?s$", "", word)
    with _STEMMER_LOCK:
        return str(_STEMMER.stemWord(re.sub(r"['’]s?$", "", word)))


@lru_cache(maxsize=2_000)
def words(text: str) -> tuple[Word, ...]:
    """The words of a text; one with a hyphen stays whole only when it holds a digit (`TG-40378`)."""
    found = []
    for match in _WORD.finditer(text):
        whole = match.group()
        parts = [match] if re.search(r"\d", whole) else list(re.finditer(r"[^-./:]+", whole))
        shift = 0 if parts == [match] else match.start()
        found += [
            Word(p.group(), p.group().lower(), stem(p.group().lower()), p.start() + shift, p.end() + shift)
            for p in parts
        ]
    return tuple(found)


@lru_cache(maxsize=5_000)
def name_words(name: str) -> tuple[str, ...]:
    """The words of a table's or column's name, lower case, from snake_case, camelCase or kebab-case."""
    return tuple(p.lower() for p in _PART.findall(name)) or (name.lower(),)


@lru_cache(maxsize=50_000)
def squash(text: str) -> str:
    """Letters and digits only, lower case."""
    return re.sub(r"[\W_]", "", text).lower()


_ENDINGS = frozenset({"s", "e", "r", "er", "or", "ed", "d", "ing", "i", "y", "ly", "al", "ion", "ment", "ian", "n"})


@lru_cache(maxsize=65_536)
def alike(one: str, other: str) -> bool:
    """True when two stems are one word in two forms: `own` and `owner`, `month` and `monthly`."""
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    return len(short) >= 3 and long.startswith(short) and long[len(short) :] in _ENDINGS


DIMENSIONS = {
    "money": _dimension(
        "gbp usd eur cad aud chf sek nok dkk price cost costs amount fee fees revenue salary wage budget fare rent"
        " charge sales turnover",
        "cost price spend spent pay paid worth pound euro dollar money expensive cheap charge revenue turnover"
        " earn bill fee sales",
    ),
    "duration": _dimension(
        "minutes minute mins min hours hour hrs seconds secs duration nights",
        "long duration minute hour second lasted lasting lasts downtime slow fast quick short length",
    ),
    "weight": _dimension("kg grams tonnes lb lbs weight", "heavy light weigh weight kilo kg gram tonne pound"),
    "distance": _dimension("km kilometres miles metres distance", "far distance mile kilometre km metre long short"),
    "height": _dimension("height tall", "tall high height"),
    "temperature": _dimension("celsius fahrenheit temperature temp degrees", "hot cold warm temperature degree"),
    "age": _dimension("age", "old young age"),
    "quantity": _dimension(
        "quantity qty units pieces copies items stock", "unit piece item copy quantity stock sold sell bought buy"
    ),
}
"""What numbers measure, by the words of their column's name and the words that ask for it."""
HIGH_IS_GOOD = _set("score scores rating ratings satisfaction margin profit revenue sales grade stars quality")
_SUPERLATIVES = {
    ("", True): "most highest biggest largest greatest maximum max worst best top",
    ("", False): "fewest least lowest smallest minimum min",
    ("count", True): "busiest commonest",
    ("duration", True): "longest slowest",
    ("duration", False): "shortest quickest fastest briefest",
    ("date", True): "latest newest last",
    ("date", False): "earliest first",
    ("money", True): "dearest priciest costliest",
    ("money", False): "cheapest",
    ("weight", True): "heaviest",
    ("weight", False): "lightest",
    ("distance", True): "farthest furthest",
    ("distance", False): "nearest",
    ("height", True): "tallest",
    ("temperature", True): "hottest warmest",
    ("temperature", False): "coldest coolest",
    ("age", True): "oldest",
    ("age", False): "youngest",
}
SUPERLATIVES = {word: meant for meant, listed in _SUPERLATIVES.items() for word in listed.split()}
"""Word -> (dimension, or empty when its noun tells it; True when the largest comes first)."""
_ADJECTIVES = {
    "date": "recent recently",
    "money": "expensive costly pricey valuable",
    "": "common frequent popular often frequently",
}
ADJECTIVES = {stem(word): dimension for dimension, listed in _ADJECTIVES.items() for word in listed.split()}
"""After `most` or `least`: stem -> dimension; an empty one counts rows."""
