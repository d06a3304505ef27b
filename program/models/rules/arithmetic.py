"""Sums in words, computed: expressions, percentages, units, and three kinds of short story."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache

_N = r"(-?\d+(?:\.\d+)?)"
_UNIT = r"([a-z°µ][a-z°/ ]{0,24}?)"
_CONVERSIONS: tuple[tuple[str, bool], ...] = (
    (rf"(?i)(?:convert )?{_N} ?{_UNIT} (?:in|into|to|as) {_UNIT}", False),
    (rf"(?i)(?:how many )*{_UNIT} (?:is |are |are there |there are )?(?:in|is|are) (?:an? )?{_N}? ?{_UNIT}", True),
)
"""Patterns of a conversion, and whether they name the target first."""
_SIZES = {
    "length": "mm millimetre millimeter 1e-3, cm centimetre centimeter .01, m metre meter 1,"
    " km kilometre kilometer 1e3, in inch inches .0254, ft foot feet .3048, yd yard .9144, mi mile 1609.344",
    "mass": "mg milligram .000001, g gram .001, kg kilo kilogram 1, tonne 1e3, oz ounce .028349523125,"
    " lb pound .45359237, stone 6.35029318",
    "time": "s sec second 1, min minute 60, h hr hour 3600, day 86400, week 604800, fortnight 1209600, month 2629800,"
    " year 31557600",
    "volume": "ml millilitre milliliter .001, cl centilitre .01, l litre liter 1, cup .2365882365, pint .473176473,"
    " gallon 3.785411784",
    "speed": "m/s 1, km/h kph .2777777777777778, mph .44704, knot .5144444444444445",
    "data": "byte 1, kilobyte 1e3, megabyte 1e6, gigabyte 1e9, terabyte 1e12",
}
"""Names of units and their size, by what they measure; volumes are American."""
_UNIT_SIZES = {
    name: (measure, float(size))
    for measure, listed in _SIZES.items()
    for *names, size in (unit.split() for unit in listed.split(","))
    for name in names
}
_SCALES = {
    **dict.fromkeys(("c", "°c", "celsius"), (1.0, 0.0)),
    **dict.fromkeys(("f", "°f", "fahrenheit"), (5 / 9, -160 / 9)),
    **dict.fromkeys(("k", "kelvin"), (1.0, -273.15)),
}
"""Temperature scales: factor and offset that give degrees Celsius."""
_PER = r"(?:percent|percentage|%)"
_LESS, _MORE = "(?:decrease|reduce|discount|lower|cut)", "(?:increase|raise)"
_LESSENED, _RAISED = "(?:decreased|reduced|discounted|lowered|cut)", "(?:increased|raised|up)"
_TAX = "(?: (?:vat|tax|gst|hst|tip|interest|service))?"
_PERCENTAGES: tuple[tuple[str, Callable[[float, float], float], str], ...] = (
    (rf"{_N}% of {_N}", lambda p, x: p * x / 100, "{0}% of {1} is {r} ({1} × {0} / 100)."),
    (rf"{_N}% off(?: of)? (?:a |an )?(?:\w+ )?(?:of )?{_N}", lambda p, x: x * (1 - p / 100),
     "{1} less {0}% is {r} ({1} × (1 - {0} / 100))."),
    (rf"{_N} (?:with|after|less|minus) (?:a |an )?{_N}%(?: discount| off| reduction)?"
     rf"|{_LESS} {_N} by {_N}%|{_N} {_LESSENED} by {_N}%", lambda x, p: x * (1 - p / 100),
     "{0} less {1}% is {r} ({0} × (1 - {1} / 100))."),
    (rf"{_N} (?:plus|\+|and|including) {_N}%{_TAX}|{_MORE} {_N} by {_N}%|{_N} {_RAISED} by {_N}%",
     lambda x, p: x * (1 + p / 100), "{0} plus {1}% is {r} ({0} × (1 + {1} / 100))."),
    (rf"add {_N}%(?: \w+)? to {_N}", lambda p, x: x * (1 + p / 100), "{1} plus {0}% is {r} ({1} × (1 + {0} / 100))."),
    (rf"(?:what )?{_PER} of {_N} is {_N}", lambda y, x: 100 * x / y, "{1} is {r}% of {0} (100 × {1} / {0})."),
    (rf"(?:what )?{_PER} is {_N} (?:out )?of {_N}|{_N} (?:as|is) (?:a|what) {_PER} of {_N}",
     lambda x, y: 100 * x / y, "{0} is {r}% of {1} (100 × {0} / {1})."),
    (rf"(?:the )?{_PER} (?:change|increase|decrease|rise|fall|difference) (?:from|between) {_N} (?:to|and) {_N}",
     lambda x, y: 100 * (y - x) / x, "From {0} to {1} is a change of {r}% (100 × ({1} - {0}) / {0})."),
)  # fmt: skip
"""Pattern, result, and the sentence with the two numbers in the order of the question and the result."""
_OTHER_SUM = re.compile(r"(?i)%|\b(?:vat|tax|discount|percent|(?<!no )interest|off|twice|double|half)\b")
_LEFT = re.compile(r"(?i)\b(?:left|remain(?:s|ing)?|still (?:have|got)|to go)\b")
_GONE = re.compile(
    r"(?i)\b(?:used|spent|sold|gave|given|ate|eaten|lost|took|taken|paid|drank|read|done|walked|ran|out of)\b"
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
_UNITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_TENS = "thirty forty fifty sixty seventy eighty ninety hundred"
_SPELT = {word: n for n, word in enumerate(f"{_UNITS} seventeen eighteen nineteen twenty".split())} | {"dozen": 12}
_SPELT |= {word: 10 * n for n, word in enumerate(_TENS.split(), 3)}
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


@lru_cache(maxsize=4_000)
def solve_arithmetic(question: str) -> str:
    """Return a sentence with the result and how it was computed, or an empty string.

    Handles expressions, percentages, conversions of units, and stories of what is left, what changed in percent and
    when something ends. Anything else, open-domain knowledge included, gives an empty string.
    """
    if len(question) > LONGEST:
        return ""
    text = _normalise_text(question)
    attempts = (_solve_percent, _solve_expression, _convert_units, _solve_story)
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
            return sentence.format(*map(_format_number, given), r=_format_number(result))
    return ""


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
    return f"{spaced.replace(' ** ', '^').replace('*', '×')} = {_format_number(result)}."


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
        return f"{_format_number(more - less)} are left ({_format_number(more)} - {_format_number(less)})."
    return ""


def _percent_change(before: float, after: float) -> str:
    if not before:
        return ""
    share = _format_number(round(abs(after - before) / before * 100, 2))
    way = "more" if after >= before else "less"
    new, old = _format_number(after), _format_number(before)
    return f"{new} is {share}% {way} than {old} ({new} / {old} - 1)."


def _clock_time(text: str) -> str:
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
    hours, minutes = divmod(int(span.total_seconds()) // 60, 60)
    said = " ".join([*([f"{hours} h"] if hours else []), *([f"{minutes} min"] if minutes else [])])
    return f"{end:%H:%M} ({said} {way} {start:%H:%M})."


def _convert_units(text: str) -> str:
    """Return `3.5 hours is 210 minutes.` for a question that is nothing but a conversion, else ""."""
    for pattern, target_first in _CONVERSIONS:
        if found := re.fullmatch(pattern, text.strip()):
            target, amount, unit = found.groups() if target_first else (found[3], found[1], found[2])
            return _convert_amount(float(amount or 1), unit.strip(), target.strip())
    return ""


def _convert_amount(amount: float, unit: str, target: str) -> str:
    source, into = _find_unit(unit), _find_unit(target)
    if source and into and source[0] == into[0]:
        value = amount * source[1] / into[1]
    elif unit.lower() in _SCALES and target.lower() in _SCALES:
        (factor, offset), (other, shift) = _SCALES[unit.lower()], _SCALES[target.lower()]
        value = (amount * factor + offset - shift) / other
    else:
        return ""
    return f"{_format_number(amount)} {unit} is {_format_number(round(value, 4))} {target}."


def _find_unit(name: str) -> tuple[str, float] | None:
    low = name.lower()
    return _UNIT_SIZES.get(low) or _UNIT_SIZES.get(low.removesuffix("s"))


def _format_number(value: float) -> str:
    rounded = round(value, 6)
    if rounded == int(rounded):
        return f"{int(rounded):,}"
    whole, _, part = f"{rounded:,.6f}".partition(".")
    return f"{whole}.{part.rstrip('0')}"
