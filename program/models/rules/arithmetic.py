"""Arithmetic truly computed: expressions, percentages, simple word problems, units, dates."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import fsum, prod
from statistics import mean, median

from program.models.rules.conversion import convert, date_sum
from program.models.rules.numbers import NUMBER as _N
from program.models.rules.numbers import number
from program.models.rules.percent import percent
from program.models.rules.stories import told

LONGEST = 400  # characters of a question worth reading as a sum
LARGEST = 10**30
_CODE = r"(?:GBP|EUR|USD|CAD|AUD|CHF)"
_CURRENCY = re.compile(
    rf"(?:[£$€]|\b{_CODE}\b)\s*(?=[\d.])|(?<=\d)\s*(?:[£€$]|(?:{_CODE}|pounds?|dollars?|euros?|quid)\b)",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"^(?:(?:hi|hello|hey|please|quick(?: one| question)?|so|ok|okay|and|just|me|can you|could you|tell me"
    r"|give me|i need|work out|calculate|compute|solve|evaluate|find|quickly|the (?:result|value|answer) of"
    r"|what(?:'s|’s| is| are| would be| does| do| will be)|how much(?: is| are| does)?|how many (?:is|are))"
    r"\b[\s,:]*)+",
    re.IGNORECASE,
)
_TAIL = re.compile(
    r"(?:\b(?:please|thanks|thank you|cheers|equals?|equal to|makes?|come to|altogether|in total|in all"
    r"|exactly)\b|[=?.!,\s])+$",
    re.IGNORECASE,
)
_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
)
_TENS = {"thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
_SPELT = {word: n for n, word in enumerate(_UNITS.split())} | _TENS | {"hundred": 100, "dozen": 12}
_OPERATORS: tuple[tuple[str, str], ...] = (
    (r"\b(?:multiplied by|times)\b|(?<=[\d)])\s*[x×·]\s*(?=[\d(])", "*"),
    (r"\bdivided by\b|\bover\b|÷", "/"),
    (r"\bplus\b|\badded to\b", "+"),
    (r"\bminus\b|\bless\b|−|–", "-"),
    (r"\b(?:raised )?to the power(?: of)?\b|\^", "**"),
    (r"\bsquared\b|²", "**2"),
    (r"\bcubed\b|³", "**3"),
    (r"(?:\bthe )?\bsquare root of\s*(\d+(?:\.\d+)?)", r"sqrt(\1)"),
    (r"\b(?:modulo|mod)\b", "%"),
    (r"(?<=\d)\s+of\s+(?=\d)", "*"),
)
_EXPRESSION = re.compile(r"(?:sqrt\(|[\d.()\s*/+%-])+")
_LIST = r"(-?\d+(?:\.\d+)?(?:(?:\s*,\s*(?:and\s+)?|\s+and\s+)-?\d+(?:\.\d+)?)+)"
_EACH = re.compile(
    rf"{_N}\s+(?:[a-z][\w-]*\s+){{0,4}}?(?:at|for|costing|priced at|@)\s+{_N}\s*(?:each|apiece|a piece)",
    re.IGNORECASE,
)
_BEYOND = re.compile(
    r"\d|%|\b(?:vat|tax|discount|off|delivery|shipping|minus|less|half|except|change|left|back)\b",
    re.IGNORECASE,
)
_A_YEAR = {"day": 365, "week": 52, "month": 12, "quarter": 4, "year": 1}
_PERIOD = r"(day|week|month|quarter|year)s?"
_RATE = re.compile(
    rf"(?:[^\d]*\b)?{_N} (?:a|per|each|every|/) ?{_PERIOD}\b,? "
    rf"(?:for|over|in|during|per|(?:what )?is that (?:a|per|in a)) (?:{_N}|a|an|one)? ?{_PERIOD}",
    re.IGNORECASE,
)
_WHOLE_STEPS = {("day", "week"): 7, ("month", "quarter"): 3} | {(unit, "year"): n for unit, n in _A_YEAR.items()}
_AMONG = r"(?:equally |evenly )?(?:between|among|amongst|into|across)"
_SHARED = re.compile(
    rf"(?:if (?:i|we|you) )?(?:split|divide|share) {_N}(?: \w+)? {_AMONG} {_N}(?: [^\d]{{0,60}})?"
    rf"|{_N}(?: \w+)? (?:split|divided|shared) {_AMONG} {_N}(?: [^\d]{{0,60}})?",
    re.IGNORECASE,
)
_KINDS: dict[str, Callable[[Sequence[float]], float]] = {
    "average": mean,
    "mean": mean,
    "median": median,
    "sum": fsum,
    "total": fsum,
    "product": prod,
}
_SERIES = re.compile(rf"(?:the )?({'|'.join(_KINDS)})(?: of| for)? {_LIST}", re.IGNORECASE)


@lru_cache(maxsize=4_000)  # the loop and the decider ask, and a search over settings asks the same thousands of times
def solve(question: str) -> str:
    """A sentence with the result and how it was computed, or an empty string.

    Handles expressions, percentages, averages and sums of a list, `3 locks at 159 each`, sharing, rates over
    time, units, dates, and short stories of them. Anything else, open-domain knowledge included, gets the empty
    string: an answer that is not certain is not given.
    """
    if len(question) > LONGEST:
        return ""
    text = _normalised(question)
    attempts = (percent, _series, _each, _rate, _shared, _expression, convert, date_sum, told)
    return next((answer for attempt in attempts if (answer := attempt(text))), "")


def _normalised(question: str) -> str:
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", " ".join(question.split()))
    text = _CURRENCY.sub("", text)
    text = re.sub(r"(?<=\d)\s*(?:%|per ?cent)(?!\w)", "%", text, flags=re.IGNORECASE)
    spelt = rf"(?<!-)\b({'|'.join(_SPELT)})\b(?!-)"
    text = re.sub(spelt, lambda m: str(_SPELT[m[1].lower()]), text, flags=re.IGNORECASE)
    return _TAIL.sub("", _FILLER.sub("", text))


def _series(text: str) -> str:
    found = _SERIES.fullmatch(text)
    if not found:
        return ""
    values = [float(value) for value in re.findall(_N, found[2])]
    kind = found[1].lower()
    return f"The {kind} of {', '.join(map(number, values))} is {number(_KINDS[kind](values))}."


def _each(text: str) -> str:
    """`3 locks at 159 each and 2 keypads at 49 each`, with nothing that would change the sum besides."""
    items = [(float(n), float(price)) for n, price in _EACH.findall(text)]
    rest = _EACH.sub(" ", text)
    if not items or _BEYOND.search(rest) or len(rest.split()) > 12:
        return ""
    shown = " + ".join(f"{number(n)} × {number(price)}" for n, price in items)
    return f"That comes to {number(fsum(n * price for n, price in items))} ({shown})."


def _rate(text: str) -> str:
    """`19 a month for 18 months`, `19 a month for a year`, `what is 19 a month per year`."""
    found = _RATE.fullmatch(text)
    if not found:
        return ""
    unit, over = found[2].lower(), found[4].lower()
    steps = 1 if unit == over else _WHOLE_STEPS.get((unit, over), 0)
    amount, times = float(found[1]), float(found[3] or 1) * steps
    return f"That comes to {number(amount * times)} ({number(amount)} × {number(times)})." if times else ""


def _shared(text: str) -> str:
    found = _SHARED.fullmatch(text)
    if not found:
        return ""
    whole, parts = (float(value) for value in found.groups() if value is not None)
    if not parts:
        return ""
    shown = f"{number(whole)} / {number(parts)}"
    return f"{number(whole)} shared by {number(parts)} is {number(whole / parts)} each ({shown})."


def _expression(text: str) -> str:
    from simpleeval import InvalidExpression, SimpleEval

    written = re.sub(rf"^(?:the )?difference between {_N} and {_N}$", r"\1 - \2", text, flags=re.IGNORECASE)
    for pattern, symbol in _OPERATORS:
        written = re.sub(pattern, symbol, written, flags=re.IGNORECASE)
    if not _EXPRESSION.fullmatch(written) or not re.search(r"sqrt|[\d)]\s*[*/+%-]", written):
        return ""
    try:
        result = SimpleEval(functions={"sqrt": lambda x: x**0.5}).eval(written.strip())
    except (InvalidExpression, SyntaxError, ArithmeticError, ValueError, TypeError):
        return ""
    if isinstance(result, complex) or abs(result) > LARGEST:
        return ""
    spaced = re.sub(r"\s+", " ", re.sub(r"\s*(\*\*|[*/+])\s*", r" \1 ", written)).strip()
    return f"{spaced.replace(' ** ', '^').replace('*', '×')} = {number(result)}."
