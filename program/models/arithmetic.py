"""Arithmetic truly computed: expressions, percentages, simple word problems, units, dates."""

from __future__ import annotations

import re
from collections.abc import Callable
from statistics import mean, median

from program.models.conversion import convert, date_sum

_N = r"(-?\d+(?:\.\d+)?)"
_CURRENCY = re.compile(r"(?:[£$€]|\b(?:GBP|EUR|USD|CAD|AUD|CHF)\b)\s*(?=[\d.])|(?<=\d)\s*(?:[£€$]|(?:GBP|EUR|USD|CAD|pounds?|dollars?|euros?|quid)\b)", re.IGNORECASE)
_FILLER = re.compile(
    r"^(?:(?:hi|hello|hey|please|quick(?: one| question)?|so|ok|okay|and|can you|could you|tell me|work out|calculate|compute|solve|evaluate|find|what(?:'s|’s| is| are| would be| does| do| will be)|how much(?: is| are| does)?|how many (?:is|are)|give me|i need|the (?:result|value|answer) of|quickly|just|me)[\s,:]*)+",
    re.IGNORECASE,
)
_TAIL = re.compile(r"(?:\b(?:please|thanks|thank you|equals?|equal to|make|makes|come to|altogether|in total|in all|exactly|cheers)\b|[=?.!,\s])+$", re.IGNORECASE)
_NUMBER_WORDS = {
    word: n
    for n, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty".split()
    )
} | {"thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90, "hundred": 100, "dozen": 12}
_OPERATORS: tuple[tuple[str, str], ...] = (
    (r"\b(?:multiplied by|times)\b|(?<=[\d)])\s*[x×·]\s*(?=[\d(])", "*"),
    (r"\bdivided by\b|\bover\b|÷", "/"),
    (r"\bplus\b|\badded to\b", "+"),
    (r"\bminus\b|\bless\b|−|–", "-"),
    (r"\bto the power(?: of)?\b|\braised to(?: the power(?: of)?)?\b|\^", "**"),
    (r"\bsquared\b|²", "**2"),
    (r"\bcubed\b|³", "**3"),
    (r"(?:\bthe )?\bsquare root of\s*(\d+(?:\.\d+)?)", r"sqrt(\1)"),
    (r"\b(?:modulo|mod)\b", "%"),
    (r"(?<=\d)\s+of\s+(?=\d)", "*"),
)  # fmt: skip
_EXPRESSION = re.compile(r"(?:sqrt\(|[\d.()\s*/+%-])+")
_LIST = r"((?:-?\d+(?:\.\d+)?)(?:(?:\s*,\s*(?:and\s+)?|\s+and\s+)-?\d+(?:\.\d+)?)+)"
_EACH = re.compile(rf"{_N}\s+(?:[a-z][\w-]*\s+){{0,4}}?(?:at|for|costing|priced at|@)\s+{_N}\s*(?:each|apiece|a piece|per [a-z]+|an? [a-z]+)", re.IGNORECASE)
_PERIODS = {"day": 365.0, "week": 52.0, "month": 12.0, "quarter": 4.0, "year": 1.0}
LONGEST = 400  # characters of a question worth reading as a sum
LARGEST = 10**30


def solve(question: str) -> str:
    """A sentence with the result and how it was computed, or an empty string.

    Handles expressions, percentages, averages and sums of a list, `3 locks at 159 each`, sharing, rates over
    time, units and dates. Anything else, open-domain knowledge included, gets the empty string: an answer
    that is not certain is not given.
    """
    if len(question) > LONGEST:
        return ""
    plain = _normalised(question)
    for attempt in (_percent, _series, _each, _rate, _shared, _expression):
        if text := attempt(plain):
            return text
    return convert(plain) or date_sum(plain)


def number(value: float) -> str:
    """At most six decimals, no trailing zeros, thousands with commas."""
    rounded = round(value, 6)
    if rounded == int(rounded):
        return f"{int(rounded):,}"
    whole, _, part = f"{rounded:,.6f}".partition(".")
    return f"{whole}.{part.rstrip('0')}"


def _normalised(question: str) -> str:
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", " ".join(question.split()))
    text = _CURRENCY.sub("", text)
    text = re.sub(r"(?<=\d)\s*(?:%|per ?cent)(?!\w)", "%", text, flags=re.IGNORECASE)
    text = re.sub(
        rf"\b({'|'.join(_NUMBER_WORDS)})\b(?!-)", lambda m: str(_NUMBER_WORDS[m[1].lower()]), text, flags=re.IGNORECASE
    )
    return _TAIL.sub("", _FILLER.sub("", text))


_PERCENTS: tuple[tuple[str, Callable[[float, float], float], str], ...] = (
    (rf"{_N}% of {_N}", lambda p, x: p * x / 100, "{0}% of {1} is {r} ({1} × {0} / 100)."),
    (rf"{_N}% off(?: of)? (?:a |an )?(?:\w+ )?(?:of )?{_N}", lambda p, x: x * (1 - p / 100), "{1} less {0}% is {r} ({1} × (1 - {0} / 100))."),
    (rf"{_N} (?:with|after|less|minus|at) (?:a |an )?{_N}%(?: discount| off| reduction)?", lambda x, p: x * (1 - p / 100), "{0} less {1}% is {r} ({0} × (1 - {1} / 100))."),
    (rf"(?:decrease|reduce|discount|lower|cut) {_N} by {_N}%|{_N} (?:decreased|reduced|discounted|lowered|cut) by {_N}%", lambda x, p: x * (1 - p / 100), "{0} less {1}% is {r} ({0} × (1 - {1} / 100))."),
    (rf"{_N} (?:plus|\+|with|and|including) {_N}%(?: (?:vat|tax|gst|hst|tip|interest|service))?", lambda x, p: x * (1 + p / 100), "{0} plus {1}% is {r} ({0} × (1 + {1} / 100))."),
    (rf"(?:increase|raise) {_N} by {_N}%|{_N} (?:increased|raised|up) by {_N}%|{_N} up {_N}%", lambda x, p: x * (1 + p / 100), "{0} plus {1}% is {r} ({0} × (1 + {1} / 100))."),
    (rf"add {_N}%(?: \w+)? to {_N}", lambda p, x: x * (1 + p / 100), "{1} plus {0}% is {r} ({1} × (1 + {0} / 100))."),
    (rf"(?:what )?(?:percent|percentage|%) of {_N} is {_N}", lambda y, x: 100 * x / y, "{1} is {r}% of {0} (100 × {1} / {0})."),
    (rf"(?:what )?(?:percent|percentage|%) is {_N} (?:out )?of {_N}|{_N} (?:as|is) (?:a|what) (?:percent|percentage|%) of {_N}", lambda x, y: 100 * x / y, "{0} is {r}% of {1} (100 × {0} / {1})."),
    (rf"(?:the )?(?:percent|percentage|%) (?:change|increase|decrease|rise|fall|difference) (?:from|between) {_N} (?:to|and) {_N}", lambda x, y: 100 * (y - x) / x, "From {0} to {1} is a change of {r}% (100 × ({1} - {0}) / {0})."),
)  # fmt: skip


def _percent(text: str) -> str:
    for pattern, compute, said in _PERCENTS:
        if found := re.fullmatch(pattern, text, re.IGNORECASE):
            given = [float(value) for value in found.groups() if value is not None]
            try:
                result = compute(*given)
            except ZeroDivisionError:
                return ""
            return said.format(*map(number, given), r=number(result))
    return ""


def _series(text: str) -> str:
    found = re.fullmatch(rf"(?:the )?(average|mean|median|sum|total|product)(?: of| for)? {_LIST}", text, re.IGNORECASE)
    if not found:
        return ""
    values = [float(value) for value in re.findall(_N, found[2])]
    kind = found[1].lower()
    listed = ", ".join(map(number, values))
    if kind == "product":
        result = 1.0
        for value in values:
            result *= value
    else:
        result = {"average": mean, "mean": mean, "median": median}.get(kind, sum)(values)
    return f"The {kind} of {listed} is {number(result)}."


def _each(text: str) -> str:
    """`3 locks at 159 each and 2 keypads at 49 each`, with nothing but words that join them besides."""
    items = [(float(n), float(price)) for n, price in _EACH.findall(text)]
    rest = _EACH.sub(" ", text)
    if not items or re.search(r"\d|%|\b(?:vat|tax|discount|off|delivery|shipping|minus|less|half|except)\b", rest, re.IGNORECASE) or len(rest.split()) > 12:
        return ""
    total = sum(n * price for n, price in items)
    return f"That comes to {number(total)} ({' + '.join(f'{number(n)} × {number(price)}' for n, price in items)})."


def _rate(text: str) -> str:
    """`19 a month for 18 months`, `19 a month for a year`, `how much is 19 a month per year`."""
    period = r"(day|week|month|quarter|year)s?"
    found = re.fullmatch(rf"(?:.*?\b)?{_N} (?:a|per|each|every|/) ?{period}\b,? (?:for|over|in|during|per|is that (?:a|per|in a)|what is that (?:a|per)) (?:{_N}|a|an|one)? ?{period}", text, re.IGNORECASE)
    if not found or len(re.findall(_N, text)) > 2:
        return ""
    amount, unit, count, over = float(found[1]), found[2].lower(), float(found[3] or 1), found[4].lower()
    times = count * _PERIODS[unit] / _PERIODS[over]
    if times != round(times, 6) or (unit in {"day", "week"} and unit != over and over != "year" and (unit, over) != ("day", "week")):
        return ""
    return f"That comes to {number(amount * times)} ({number(amount)} × {number(times)})."


def _shared(text: str) -> str:
    pattern = rf"(?:if (?:i|we|you) )?(?:split|divide|share) {_N}(?: \w+)? (?:equally |evenly )?(?:between|among|amongst|by|into|across) {_N}(?: (?!.*\d).{{0,60}})?|{_N}(?: \w+)? (?:split|divided|shared) (?:equally |evenly )?(?:between|among|amongst|into|across) {_N}(?: (?!.*\d).{{0,60}})?"
    found = re.fullmatch(pattern, text, re.IGNORECASE)
    if not found:
        return ""
    whole, parts = (float(value) for value in found.groups() if value is not None)
    return f"{number(whole)} shared by {number(parts)} is {number(whole / parts)} each ({number(whole)} / {number(parts)})." if parts else ""


def _expression(text: str) -> str:
    from simpleeval import InvalidExpression, SimpleEval

    if found := re.fullmatch(rf"(?:the )?(?:difference between {_N} and {_N})", text, re.IGNORECASE):
        text = f"{found[1]} - {found[2]}"
    written = text
    for pattern, symbol in _OPERATORS:
        written = re.sub(pattern, symbol, written, flags=re.IGNORECASE)
    if not _EXPRESSION.fullmatch(written) or not re.search(r"sqrt|[\d)]\s*[*/+%-]", written):
        return ""
    try:
        result = SimpleEval(functions={"sqrt": lambda x: x**0.5}).eval(written.strip())
        if isinstance(result, complex) or abs(result) > LARGEST:
            return ""
    except (InvalidExpression, SyntaxError, ArithmeticError, ValueError, TypeError):
        return ""
    shown = re.sub(r"\s+", " ", re.sub(r"\s*(\*\*|[*/+])\s*", r" \1 ", written)).replace(" ** ", "^").replace("*", "×")
    return f"{shown.strip()} = {number(result)}."
