"""Words of English text: stems, names, kinds of value, and the kind a question asks for."""

from __future__ import annotations

import re
import threading
from functools import lru_cache

import snowballstemmer

_WORD = re.compile(r"[^\W\d_]+\d[^\W_]*|\d+(?:[.,:/-]\d+)*%?|[^\W\d_]+(?:['’.-][^\W_]+)*|[^\W_]+")
STOP = frozenset("""
    a about above after again ago all also although always am an and any anyone anything are aren't
    around as at be because been before being below besides between both but by can can't cannot come
    could did didn't do does doesn't doing don't done down during each either else ever every exactly
    few for from further get gets getting give given go goes going got had has have haven't having he
    hello her here hers hey hi him his how however i i'd i'll i'm i've if in instead into is isn't it
    it's its itself just kindly know let like likely long many may maybe me might mine more most much
    must my myself need needed needs no nor not now of off ok okay on once one ones only or other our
    ours out over own per perhaps please put quite rather really regarding right same say see she should
    since so some somebody someone something soon still such sure take tell than thank thanks that
    that's the their theirs them then there there's these they they're thing things this those though
    through to together too under until up us use used very want wanted was wasn't way we we're we've
    well were weren't what what's whatever when where whether which while who who's whom whose why will
    wish with within without won't wonder wondering would wouldn't yes yet you you'd you'll you're
    you've your yours
""".split())  # fmt: skip
"""Words that carry no subject of their own."""
_MONTH = "january|february|march|april|may|june|july|august|september|october|november|december"
_DAY = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_COUNT = (
    r"(?:\d[\d,]*(?:\.\d+)?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty"
    r"|fifty|sixty|ninety|hundred|half)"
)
_SPAN = r"(?:second|minute|hour|day|night|week|fortnight|month|quarter|year|decade|season)s?"
_KINDS = {
    "money": r"[£$€]\s?\d|\b(?:GBP|EUR|USD|CAD|CHF|SEK|NOK|DKK|PLN|AUD)\s?\d|\d\s?(?:pounds|euros?|dollars|pence|p)\b"
    r"|\bfree(?: of charge)?\b|\bno (?:charge|fee|cost|extra)\b",
    "percent": r"\d\s?(?:%|per ?cent\b)",
    "duration": rf"\b{_COUNT}(?:[ -](?:to|or|and|working|business|calendar|full|more|further|clear|whole|consecutive"
    rf"|quiet|{_COUNT}))*[ -]{_SPAN}\b|\b(?:nightly|hourly|daily|weekly|fortnightly|monthly|quarterly|yearly|annually"
    r"|immediately|at once|overnight|same[ -]day|next (?:working )?day|indefinitely|forever)\b",
    "date": rf"\b\d{{1,2}} (?:{_MONTH})\b|\b(?:{_MONTH}) \d{{1,4}}\b|\b(?:19|20)\d\d\b|\b(?:{_DAY})s?\b"
    rf"|\b(?:in|since|until|by|from) (?:{_MONTH})\b",
    "clock": r"\b\d{1,2}[:.]\d\d\b|\b\d{1,2}\s?(?:am|pm)\b|\b(?:noon|midnight)\b",
    "number": rf"\b{_COUNT}\b|\b(?:unlimited|none|no limit)\b",
    "reason": r"\b(?:because|since|so that|due to|therefore|otherwise|caused? by|to (?:keep|avoid))\b",
}
KINDS = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in _KINDS.items()}
_ASKED = (
    (r"\bwhat time\b|\b(?:opening|office|working) hours\b|\bwhat hours\b", ("clock",)),
    (r"\b(?:what|which) (?:percent|percentage|share|proportion)|\bpercentage\b|\bwhat (?:tax|vat|interest) rate",
     ("percent",)),
    (r"\bhow much (?:time|notice|warning|longer)\b", ("duration",)),
    (r"\bhow (?:long|soon|quick\w*|fast|far back|old|late|early|often|frequently)\b"
     r"|\bwhat (?:is the )?(?:time limit|deadline)\b|\btime ?frame\b"
     r"|\bhow many (?:\w+ )?(?:seconds?|minutes?|hours?|days?|nights?|weeks?|months?|years?)\b", ("duration", "date")),
    (r"\b(?:cost|costs|price|prices|priced|fee|fees|charge|charged|charges|pay|paid|pricing|expensive|refund of"
     r"|surcharge)\b|\bhow much\b", ("money", "percent")),
    (r"\bhow (?:many|big|large|heavy|tall|wide|thick|far|high|loud|cold|hot)\b"
     r"|\b(?:maximum|minimum|limit|cap)\b|\bnumber of\b", ("number",)),
    (r"\bwhen\b|\b(?:what|which) (?:date|day|month|year)\b|\bsince when\b|\bdeadline\b|\bexpir\w+\b",
     ("date", "duration", "clock")),
    (r"\bwho\b|\bwhom\b|\bwhose\b|\bname of\b", ("name",)),
    (r"\b(?:which|what) (?:team|company|vendor|supplier|carrier|person|firm|department|office|city|country|site"
     r"|service|tool|product|plan|model|partner|contractor|provider|courier|warehouse|officer|desk|group)\b"
     r"|\bwhere\b", ("name",)),
    (r"\bwhy\b|\bwhat (?:is|was) the reason\b", ("reason",)),
)  # fmt: skip
"""What asks for kinds of value, the first that fits, and these kinds."""
_NAME = re.compile(r"\b[A-Z][\w’'.-]*\w(?: (?:(?:& |of )?[A-Z][\w’'.-]*\w|\d{1,3}\b))*")
_CALENDAR = re.compile(rf"(?i)(?:\d+ )?(?:{_MONTH}|{_DAY})s?(?: \d+)?|[A-Z]{{3}} \d.*")
_PERSON_ASKED = re.compile(r"(?i)\bwho(?:m|se|ever)?\b|\b(?:person|name)\b")
_PERSON = re.compile(r"[A-Z][a-z’'-]+(?: [A-Z][a-z’'-]+){1,2}")
_QUOTED = re.compile(r"[\"“`]([^\"”`]{2,30})[\"”`]")
_QUANTITY = re.compile(rf"(?i)([£$€]|\b(?:GBP|EUR|USD|CAD)\s)?\s?\b({_COUNT})\b[ -]?(%|[^\W\d_]+)?")
_CURRENCY = {"£": "GBP", "$": "USD", "€": "EUR"}
_COUNTED = "one two three four five six seven eight nine ten eleven twelve"
_DIGITS = {word: str(n) for n, word in enumerate(_COUNTED.split(), 1)}
_HOURS = {"second": 1 / 3600, "minut": 1 / 60, "hour": 1, "day": 24, "night": 24, "week": 168, "fortnight": 336,
          "month": 730, "year": 8760}  # fmt: skip
_STEMMER = snowballstemmer.stemmer("english")
_STEMMER_LOCK = threading.Lock()  # a stemmer keeps the word it works on


def snowball_stem(word: str) -> str:
    """Return the Snowball (English) stem of a lower-case word."""
    with _STEMMER_LOCK:
        return str(_STEMMER.stemWord(word))


@lru_cache(maxsize=50_000)
def _stem(word: str) -> str:
    if word[0].isdigit():
        return re.sub(r",(?=\d{3})", "", word)
    return snowball_stem(word.replace("’", "'").removesuffix("'s"))


@lru_cache(maxsize=20_000)
def content_stems(text: str) -> tuple[str, ...]:
    """Return the stems of a text's content words, in order, with repeats."""
    words = (word.lower().replace("’", "'") for word in _WORD.findall(text))
    return tuple(_stem(word) for word in words if word not in STOP)


@lru_cache(maxsize=20_000)
def find_names(text: str) -> tuple[str, ...]:
    """Return the capitalised or quoted names in a text, in order, without repeats.

    A single capitalised word that opens a sentence counts only where the text has it inside a sentence as well.
    """
    found: list[str] = []
    for match in _NAME.finditer(text):
        name = match.group().strip(" .&'’-")
        first, _, rest = name.partition(" ")
        if _opens_sentence(text, match.start()):
            if first.lower() in STOP:
                name = rest
            elif not rest and not _occurs_inside(text, name, match.start()):
                name = name if any(c.isupper() for c in name[1:]) else ""
        if name and name.lower() not in STOP and not _CALENDAR.fullmatch(name):
            found.append(name)
    found += [match.group(1) for match in _QUOTED.finditer(text) if len(match.group(1).split()) <= 3]
    return tuple(dict.fromkeys(found))


def _opens_sentence(text: str, at: int) -> bool:
    before = text[:at].rstrip()
    return not before or before[-1] in ".?!:|•>" or text[:at].endswith("\n")


def _occurs_inside(text: str, name: str, at: int) -> bool:
    return any(
        m.start() != at and not _opens_sentence(text, m.start()) for m in re.finditer(rf"\b{re.escape(name)}\b", text)
    )


def asks_person(question: str) -> bool:
    """Tell whether a question wants a person: `who`, `whose`, `the name of`."""
    return _PERSON_ASKED.search(question) is not None


def find_people(text: str, question: str) -> list[str]:
    """Return the names of two or three words that the question does not have."""
    return [name for name in find_names(text) if _PERSON.fullmatch(name) and name.lower() not in question.lower()]


@lru_cache(maxsize=20_000)
def value_kinds(text: str) -> frozenset[str]:
    """Return the kinds of value a text holds: keys of KINDS, and `name`."""
    found = {kind for kind, pattern in KINDS.items() if pattern.search(text)}
    return frozenset(found | {"name"} if find_names(text) else found)


@lru_cache(maxsize=5_000)
def expected_kinds(question: str) -> tuple[str, ...]:
    """Return the kinds of value a question asks for, the likeliest first."""
    return next((kinds for pattern, kinds in _ASKED if re.search(pattern, question, re.IGNORECASE)), ())


@lru_cache(maxsize=20_000)
def find_quantities(text: str) -> frozenset[tuple[str, str]]:
    """Return numbers with what they count: `("GBP", "4.50")`, `("door", "20")`.

    A span of time is `("time", hours)`.
    """
    found = set()
    for currency, number, unit in _QUANTITY.findall(text):
        symbol = currency.strip()
        key = _CURRENCY.get(symbol, symbol.upper()) if symbol else _stem(unit.lower()) if unit else ""
        value = number.lower().replace(",", "")
        value = _DIGITS.get(value, value)
        if key in _HOURS and value.replace(".", "", 1).isdigit():
            key, value = "time", f"{float(value) * _HOURS[key]:g}"
        if key not in STOP:
            found.add((key, value))
    return frozenset(found)
