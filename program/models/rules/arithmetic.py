"""Sums in words, computed: expressions, percentages, lists, rates, and short stories."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from math import fsum, prod
from statistics import mean, median

from program.models.rules.conversion import NUMBER as _N
from program.models.rules.conversion import convert_units, count_dates, format_number

_PER = r"(?:percent|percentage|%)"
_LESS, _MORE = "(?:decrease|reduce|discount|lower|cut)", "(?:increase|raise)"
_LESSENED, _RAISED = "(?:decreased|reduced|discounted|lowered|cut)", "(?:increased|raised|up)"
_TAX = "(?: (?:vat|tax|gst|hst|tip|interest|service))?"
_PERCENTAGES: tuple[tuple[str, Callable[[float, float], float], str], ...] = (
    (rf"{_N}% of {_N}", lambda p, x: p * x / 100, "{0}% of {1} is {r} ({1} × {0} / 100)."),
    (
        rf"{_N}% off(?: of)? (?:a |an )?(?:\w+ )?(?:of )?{_N}",
        lambda p, x: x * (1 - p / 100),
        "{1} less {0}% is {r} ({1} × (1 - {0} / 100)).",
    ),
    (
        rf"{_N} (?:with|after|less|minus) (?:a |an )?{_N}%(?: discount| off| reduction)?"
        rf"|{_LESS} {_N} by {_N}%|{_N} {_LESSENED} by {_N}%",
        lambda x, p: x * (1 - p / 100),
        "{0} less {1}% is {r} ({0} × (1 - {1} / 100)).",
    ),
    (
        rf"{_N} (?:plus|\+|and|including) {_N}%{_TAX}|{_MORE} {_N} by {_N}%|{_N} {_RAISED} by {_N}%",
        lambda x, p: x * (1 + p / 100),
        "{0} plus {1}% is {r} ({0} × (1 + {1} / 100)).",
    ),
    (
        rf"add {_N}%(?: \w+)? to {_N}",
        lambda p, x: x * (1 + p / 100),
        "{1} plus {0}% is {r} ({1} × (1 + {0} / 100)).",
    ),
    (rf"(?:what )?{_PER} of {_N} is {_N}", lambda y, x: 100 * x / y, "{1} is {r}% of {0} (100 × {1} / {0})."),
    (
        rf"(?:what )?{_PER} is {_N} (?:out )?of {_N}|{_N} (?:as|is) (?:a|what) {_PER} of {_N}",
        lambda x, y: 100 * x / y,
        "{0} is {r}% of {1} (100 × {0} / {1}).",
    ),
    (
        rf"(?:the )?{_PER} (?:change|increase|decrease|rise|fall|difference) (?:from|between) {_N} (?:to|and) {_N}",
        lambda x, y: 100 * (y - x) / x,
        "From {0} to {1} is a change of {r}% (100 × ({1} - {0}) / {0}).",
    ),
)
"""Pattern, result, and the sentence with the two numbers in the order of the question and the result."""
_OTHER_SUM = re.compile(r"(?i)%|\b(?:vat|tax|discount|percent|(?<!no )interest|off|twice|double|half)\b")
_LEFT = re.compile(r"(?i)\b(?:left|remain(?:s|ing)?|still (?:have|got)|to go)\b")
_GONE = re.compile(
    r"(?i)\b(?:used|spent|sold|gave|given|ate|eaten|lost|took|taken|paid|drank|read|done|walked|ran|out of)\b"
)
_SHARING = re.compile(r"(?i)\b(?:split\w*|shar\w+|divid\w+)\b")
_EACH_PAYS = re.compile(r"(?i)\b(?:each|equally|evenly|apiece|per (?:person|head)|every one)\b")
_SHARERS = re.compile(
    rf"(?i){_N} (?:of us|of them|people|persons|friends|ways|colleagues|children|kids)\b|\b(?:between|among"
    rf"|amongst) {_N}\b"
)
_OVER_TIME = re.compile(
    rf"(?i){_N} (?:a|per|each|every) (day|week|month|quarter|year),? (?:for|over|during) (?:the next )?{_N} \2s?\b"
)
_CHANGED = re.compile(rf"(?i)\bfrom {_N} to {_N}(?!\d)")
_IN_PERCENT = re.compile(r"(?i)%|\bper ?cent(?:age)?\b")
_CLOCK = re.compile(r"\b([01]?\d|2[0-3])[:.h]([0-5]\d)\b")
_LASTING = re.compile(
    r"(?i)\b(?:(\d+) ?h(?:ours?|rs?)?\b(?:,? (?:and )?(\d+)(?: ?m(?:in(?:ute)?s?)?)?\b)?|(\d+) ?min(?:ute)?s?\b)"
)
_WHEN = re.compile(r"(?i)\b(?:when|what time)\b")
_EARLIER = re.compile(r"(?i)\b(?:before|earlier|ago|back)\b")
LONGEST = 400  # characters of a question worth reading as a sum
LARGEST = 10**30
_CODE = r"(?:GBP|EUR|USD|CAD|AUD|CHF)"
_CURRENCY = re.compile(
    rf"(?i)(?:[£$€]|\b{_CODE}\b)\s*(?=[\d.])|(?<=\d)\s*(?:[£€$]|(?:{_CODE}|pounds?|dollars?|euros?|quid)\b)"
)
_FILLER = re.compile(
    r"(?i)^(?:(?:hi|hello|hey|please|quick(?: one| question)?|so|ok|okay|and|just|me|can you|could you|tell me|give me"
    r"|i need|work out|calculate|compute|solve|evaluate|find|quickly|the (?:result|value|answer) of|what(?:'s|’s| is"
    r"| are| would be| does| do| will be)|how much(?: is| are| does)?|how many (?:is|are))\b[\s,:]*)+"
)
_TAIL = re.compile(
    r"(?i)(?:\b(?:please|thanks|thank you|cheers|equals?|equal to|makes?|come to|altogether|in total|in all|exactly)\b"
    r"|[=?.!,\s])+$"
)
_TENS = {"thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
_UNITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_SPELT = (
    {word: n for n, word in enumerate(f"{_UNITS} seventeen eighteen nineteen twenty".split())}
    | _TENS
    | {"hundred": 100, "dozen": 12}
)
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
    rf"(?i){_N}\s+(?:[a-z][\w-]*\s+){{0,4}}?(?:at|for|costing|priced at|@)\s+{_N}\s*(?:each|apiece|a piece)"
)
_BEYOND = re.compile(r"(?i)\d|%|\b(?:vat|tax|discount|off|delivery|shipping|minus|less|half|except|change|left|back)\b")
_A_YEAR = {"day": 365, "week": 52, "month": 12, "quarter": 4, "year": 1}
_PERIOD = r"(day|week|month|quarter|year)s?"
_RATE = re.compile(
    rf"(?i)(?:[^\d]*\b)?{_N} (?:a|per|each|every|/) ?{_PERIOD}\b,? (?:for|over|in|during|per|(?:what )?is that (?:a"
    rf"|per|in a)) (?:{_N}|a|an|one)? ?{_PERIOD}"
)
_WHOLE_STEPS = {("day", "week"): 7, ("month", "quarter"): 3} | {(unit, "year"): n for unit, n in _A_YEAR.items()}
_AMONG = r"(?:equally |evenly )?(?:between|among|amongst|into|across)"
_SHARED = re.compile(
    rf"(?i)(?:if (?:i|we|you) )?(?:split|divide|share) {_N}(?: \w+)? {_AMONG} {_N}(?: [^\d]{{0,60}})?"
    rf"|{_N}(?: \w+)? (?:split|divided|shared) {_AMONG} {_N}(?: [^\d]{{0,60}})?"
)
_KINDS: dict[str, Callable[[Sequence[float]], float]] = {
    "average": mean, "mean": mean, "median": median, "sum": fsum, "total": fsum, "product": prod
}  # fmt: skip
_SERIES = re.compile(rf"(?i)(?:the )?({'|'.join(_KINDS)})(?: of| for)? {_LIST}")


@lru_cache(maxsize=4_000)
def solve_arithmetic(question: str) -> str:
    """Return a sentence with the result and how it was computed, or an empty string.

    Handles expressions, percentages, lists, `3 locks at 159 each`, sharing, rates over time, units, dates, and short
    stories of them. Anything else, open-domain knowledge included, gives an empty string.
    """
    if len(question) > LONGEST:
        return ""
    text = _normalise_text(question)
    numbers = (_solve_percent, _solve_series, _solve_purchase, _solve_rate, _solve_sharing, _solve_expression)
    attempts = (*numbers, convert_units, count_dates, _solve_story)
    return next((answer for attempt in attempts if (answer := attempt(text))), "")


def _normalise_text(question: str) -> str:
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", " ".join(question.split()))
    text = _CURRENCY.sub("", text)
    text = re.sub(r"(?<=\d)\s*(?:%|per ?cent)(?!\w)", "%", text, flags=re.IGNORECASE)
    spelt = rf"(?<!-)\b({'|'.join(_SPELT)})\b(?!-)"
    text = re.sub(spelt, lambda m: str(_SPELT[m[1].lower()]), text, flags=re.IGNORECASE)
    return _TAIL.sub("", _FILLER.sub("", text))


def _solve_percent(text: str) -> str:
    for pattern, compute, sentence in _PERCENTAGES:
        if found := re.fullmatch(pattern, text, re.IGNORECASE):
            given = [float(value) for value in found.groups() if value is not None]
            try:
                result = compute(*given)
            except ZeroDivisionError:
                return ""
            return sentence.format(*map(format_number, given), r=format_number(result))
    return ""


def _solve_series(text: str) -> str:
    found = _SERIES.fullmatch(text)
    if not found:
        return ""
    values = [float(value) for value in re.findall(_N, found[2])]
    kind = found[1].lower()
    return f"The {kind} of {', '.join(map(format_number, values))} is {format_number(_KINDS[kind](values))}."


def _solve_purchase(text: str) -> str:
    """Solve `3 locks at 159 each and 2 keypads at 49 each`, if nothing else changes the sum."""
    items = [(float(n), float(price)) for n, price in _EACH.findall(text)]
    rest = _EACH.sub(" ", text)
    if not items or _BEYOND.search(rest) or len(rest.split()) > 12:
        return ""
    shown = " + ".join(f"{format_number(n)} × {format_number(price)}" for n, price in items)
    return f"That comes to {format_number(fsum(n * price for n, price in items))} ({shown})."


def _solve_rate(text: str) -> str:
    """Solve `19 a month for 18 months`, `19 a month for a year`, `what is 19 a month per year`."""
    found = _RATE.fullmatch(text)
    if not found:
        return ""
    unit, over = found[2].lower(), found[4].lower()
    steps = 1 if unit == over else _WHOLE_STEPS.get((unit, over), 0)
    times = float(found[3] or 1) * steps
    return _say_product(float(found[1]), times) if times else ""


def _solve_sharing(text: str) -> str:
    found = _SHARED.fullmatch(text)
    if not found:
        return ""
    whole, parts = (float(value) for value in found.groups() if value is not None)
    return _say_shares(whole, parts)


def _say_product(amount: float, times: float) -> str:
    return f"That comes to {format_number(amount * times)} ({format_number(amount)} × {format_number(times)})."


def _say_shares(whole: float, parts: float) -> str:
    if not parts:
        return ""
    shown, number = format_number(whole), format_number(parts)
    return f"{shown} shared by {number} is {format_number(whole / parts)} each ({shown} / {number})."


def _solve_expression(text: str) -> str:
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
    return f"{spaced.replace(' ** ', '^').replace('*', '×')} = {format_number(result)}."


def _solve_story(text: str) -> str:
    """Solve a sum told as a story, when every number in it is accounted for."""
    if ended := _clock_time(text):
        return ended
    numbers = [float(found) for found in re.findall(_N, text)]
    if len(numbers) != 2:
        return ""
    if (found := _CHANGED.search(text)) and _IN_PERCENT.search(text):
        return _percent_change(float(found[1]), float(found[2]))
    if _OTHER_SUM.search(text):
        return ""
    if _LEFT.search(text) and _GONE.search(text):
        less, more = sorted(numbers)
        return f"{format_number(more - less)} are left ({format_number(more)} - {format_number(less)})."
    if found := _OVER_TIME.search(text):
        return _say_product(float(found[1]), float(found[3]))
    return _story_shares(text, numbers)


def _percent_change(before: float, after: float) -> str:
    if not before:
        return ""
    share = format_number(round(abs(after - before) / before * 100, 2))
    way = "more" if after >= before else "less"
    new, old = format_number(after), format_number(before)
    return f"{new} is {share}% {way} than {old} ({new} / {old} - 1)."


def _story_shares(text: str, numbers: list[float]) -> str:
    among = _SHARERS.search(text)
    if not (among and _SHARING.search(text) and _EACH_PAYS.search(text)):
        return ""
    parts = float(next(value for value in among.groups() if value is not None))
    whole = numbers[1] if numbers[0] == parts else numbers[0]
    return _say_shares(whole, parts)


def _clock_time(text: str) -> str:
    """Return the time so long after (or before) a time of day."""
    clocks = _CLOCK.findall(text)
    if len(clocks) != 1 or not _WHEN.search(text):
        return ""
    spans = _LASTING.findall(_CLOCK.sub(" ", text))
    rest = _LASTING.sub(" ", _CLOCK.sub(" ", text))
    if len(spans) != 1 or re.search(r"\d", rest):
        return ""
    hours, minutes, alone = (int(value or 0) for value in spans[0])
    span = timedelta(hours=hours, minutes=minutes + alone)
    start = datetime(2000, 1, 1, int(clocks[0][0]), int(clocks[0][1]))
    end = start - span if _EARLIER.search(rest) else start + span
    way = "before" if _EARLIER.search(rest) else "after"
    return f"{end:%H:%M} ({_format_span(span)} {way} {start:%H:%M})."


def _format_span(span: timedelta) -> str:
    hours, minutes = divmod(int(span.total_seconds()) // 60, 60)
    return " ".join(said for said in (f"{hours} h" if hours else "", f"{minutes} min" if minutes else "") if said)
