"""Whether a text states a fact, holds a claim or is an echo: words, numbers, units and money in one spelling."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from ragc.text.pieces import MARK
from ragc.text.words import STOP_WORDS, WORD, fold_text, split_words, stem_word

GRAM, ECHOED = 4, 0.6
"""The words of a stretch, and the share of a text's that stand in its prompt, and in no passage, of an echo."""
LONGEST_PHRASE = 6  # words of an answer that is no sentence, as small models give them: `8 working days`
_OPENERS = " \"'“‘(*_"  # what may stand between the end of a sentence and the first word of the next
STOP = "."  # the token for the end of a sentence, a table cell or a list item; no fact reaches across it
_IN_WORDS = "#"  # the mark before the digits of a number that was written in words, where that matters

_BELOW_TWENTY = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen"""
_UNITS = {word: value for value, word in enumerate(_BELOW_TWENTY.split())}
_TENS = dict(zip("twenty thirty forty fifty sixty seventy eighty ninety".split(), range(20, 100, 10), strict=True))
_SCALES = {"hundred": 100, "thousand": 1000}
_NUMERALS = {**_UNITS, **_TENS, **_SCALES}

_CURRENCY = {"£": "gbp", "€": "eur", "$": "usd", "gbp": "gbp", "eur": "eur", "usd": "usd", "cad": "cad"}
_CURRENCY_NAMES = {"pounds": "gbp", "quid": "gbp", "euros": "eur", "dollars": "usd", **_CURRENCY}
"""Currencies after their amount; never in the singular, for "a Warden 3 Euro" is no sum of money."""
_ABBREVIATIONS = {
    **{"h": "hour", "hr": "hour", "hrs": "hour", "min": "minute", "mins": "minute", "s": "second", "sec": "second"},
    **{"secs": "second", "d": "day", "wk": "week", "wks": "week", "yr": "year", "yrs": "year"},
    **{"mm": "millimetre", "cm": "centimetre", "m": "metre", "km": "kilometre", "kg": "kilogram"},
    **{"v": "volt", "w": "watt"},
}
"""Units by their abbreviation, which counts only straight after a number."""
_SPELLINGS = {
    **{"meter": "metre", "kilometer": "kilometre", "centimeter": "centimetre", "millimeter": "millimetre"},
    **{"percent": "%", "&": "and", "minu": "minus", "email": "e-mail"},
}

_NEW_PIECE = r"\n(?=[^\S\n]*(?:\n|[-*•\#|]\s|\d+[.)]\s))"
"""A line end that ends a paragraph, a list item, a heading or a table row."""
_TOKEN = re.compile(
    r"""
      (?P<whole> \d{4}-\d\d-\d\d (?!\d) | \d+/\d+/\d+ | (?<!\d) \d/\d (?![\d/])      # dates, fractions
               | \d+ [^\W\d_]+ \d [^\W_]*                                            # 3fa9c1, 2x4
               | (?!(?:gbp|eur|usd|cad)\d) [^\W\d_]+ \d [^\W_]* (?:\.\d+)* )           # e44, aes256, v2.4
    | (?P<number> (?:(?<![^\s(\[|,;:'"])-)? (?:\d+(?:[.,:]\d+)* | \.\d+) )
      (?: (?:st|nd|rd|th) (?![^\W_]) )?
      (?P<range> -(?=\d) )?
    | (?P<word> e-mail | [^\W\d_]+ (?:'[^\W\d_]+)* )
    | (?P<sign> [£$€%&] )
    | (?P<stop> [.!?;](?=\s|$) | \| | NEW_PIECE )
    """.replace("NEW_PIECE", _NEW_PIECE),
    re.VERBOSE,
)


def states(text: str, fact: str | Sequence[str]) -> bool:
    """Tell whether a text states a fact, or any of several alternatives.

    Equal are: upper and lower case, any white space, "1,000" and 1000, "4.50" and 4.5, "thirty" and 30, "14-day" and
    "14 days", "£45", "GBP 45" and "45 pounds", "15 per cent" and "15%", "10 m" and "10 metres". A number is matched
    whole: "8" is not stated by 18, 8.5, 8:30 or -8. A number in words is a number only beside another word: "three
    rooms" is stated by "3 rooms", but "three" only by that word, not by "Room 3". A fact without a word or number is
    never stated.
    """
    if not isinstance(fact, str):
        return any(states(text, alternative) for alternative in fact)
    if is_bare_numeral(fact):
        return _normalise_worded(fact) in _normalise_worded(text)
    needle = _normalise_fact(fact)
    return bool(needle) and needle in normalise_text(text)


def holds(text: str, claim: str, least: float = 0.0) -> bool:
    """Tell whether a text has a claim's numbers, units, names, `least` of its words.

    Numbers and units are spelt as for `states`. A name is a word with a capital that opens no sentence.
    """
    (words, names, money, amounts), (tokens, stems) = _read_claim(claim), _read_text(text)
    enough = sum(word in stems for word in words) >= least * len(words) if words else not least
    return enough and names <= stems and amounts <= tokens and all(one in normalise_text(text) for one in money)


def spans_boundary(text: str, fact: str) -> bool:
    """Tell whether a text would state a fact if table cells and sentences had no end."""
    needle = _normalise_fact(fact)
    return bool(needle) and needle in normalise_text(text).replace(f" {STOP} ", " ") and not states(text, fact)


@lru_cache(maxsize=16_384)
def is_bare_numeral(fact: str) -> bool:
    """Tell whether a fact is a number in words and nothing else."""
    return re.fullmatch(rf" {_IN_WORDS}\d+ ", _normalise_worded(fact)) is not None


@lru_cache(maxsize=16_384)
def normalise_text(text: str) -> str:
    """Return the tokens of a text in their one spelling, a space around each."""
    tokens = _join_tokens(list(_scan_tokens(text)))
    return f" {' '.join(tokens)} " if tokens else " "


@lru_cache(maxsize=16_384)
def _normalise_worded(text: str) -> str:
    """Return the normalised text with _IN_WORDS before its numbers in words."""
    return f" {' '.join(_join_tokens(list(_scan_tokens(text)), _IN_WORDS)).strip(f' {STOP}')} "


@lru_cache(maxsize=16_384)
def _normalise_fact(fact: str) -> str:
    tokens = normalise_text(fact).strip(f" {STOP}")
    return f" {tokens} " if tokens else ""


def in_digits(text: str) -> set[str]:
    """Return a text's numbers and codes in digits, in one spelling, unsigned."""
    tokens = _normalise_worded(text).split()
    return {one.lstrip("-") for one in tokens if any(map(str.isdigit, one)) and not one.startswith(_IN_WORDS)}


def list_worded_numbers(text: str) -> list[tuple[float, str, str]]:
    """Return each number in words of a text, and the words before and behind it."""
    tokens = ["", *_normalise_worded(text).split(), ""]
    beside = zip(tokens[1:-1], tokens, tokens[2:], strict=False)
    worded = ((token.removeprefix(_IN_WORDS), a, b) for token, a, b in beside if token.startswith(_IN_WORDS))
    return [(float(number), a, b) for number, a, b in worded if number.isdigit()]


def _scan_tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield kind and token: number, word, joins (a close word), sign, stop, whole."""
    text, end = fold_text(text), 0
    for match in _TOKEN.finditer(text):
        gap, end = text[end : match.start()], match.end()
        kind = match.lastgroup or ""
        if match["number"] is not None:
            yield "number", _normalise_number(match["number"])
            if match["range"]:
                yield "word", "to"
        elif kind == "word":
            # A hyphen or a space lets numerals join up, "twenty-five"; a comma does not.
            yield ("joins" if gap == "-" or gap.isspace() else "word"), _normalise_word(match["word"])
        else:
            yield kind, STOP if kind == "stop" else match[0]


def _normalise_number(written: str) -> str:
    """Return a number without thousands commas and idle zeros."""
    if re.fullmatch(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?", written):
        written = written.replace(",", "")
    if re.fullmatch(r"-?\d*\.\d+", written):
        whole, _, decimals = written.partition(".")
        whole = whole if whole not in ("", "-") else f"{whole}0"
        decimals = decimals.rstrip("0")
        return f"{whole}.{decimals}" if decimals else whole
    return re.sub(r"^0(?=\d:)", "", written)


@lru_cache(maxsize=65_536)
def _normalise_word(written: str) -> str:
    """Return a word without its possessive and, roughly, its plural."""
    word = written.removesuffix("'s").replace("'", "")
    if word in _NUMERALS or word in _ABBREVIATIONS or word in _CURRENCY_NAMES:
        return word
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        if word.endswith("ies") and len(word) > 4:
            word = word[:-3] + "y"
        else:
            word = word[:-2] if word.endswith(("ches", "shes", "xes", "sses", "zes")) else word[:-1]
    return _SPELLINGS.get(word, word)


def _join_tokens(scanned: list[tuple[str, str]], in_words: str = "") -> list[str]:
    """Write numerals as digits, units in full, currencies before their amount."""
    out: list[str] = []
    at = 0
    while at < len(scanned):
        kind, token = scanned[at]
        after_number = bool(out) and out[-1][-1:].isdigit() and scanned[at - 1][0] != "whole"
        numeral = _read_numeral(scanned, at) if token in _NUMERALS and kind in ("word", "joins") else None
        at = numeral[1] if numeral else at + 1
        if numeral or kind == "number":
            number = f"{in_words}{numeral[0]}" if numeral else token
            out[-1:] = [f"-{number}"] if out[-1:] == ["minus"] else [*out[-1:], number]
        elif kind == "stop":
            if out and out[-1] != STOP:
                out.append(STOP)
        elif token in _CURRENCY_NAMES and after_number:
            if out[-2:-1] != [_CURRENCY_NAMES[token]]:
                out.insert(len(out) - 1, _CURRENCY_NAMES[token])
        elif token == "cent" and out[-1:] == ["per"]:
            out[-1] = "%"
        elif after_number and out[-2:-1] not in (["gbp"], ["eur"], ["usd"], ["cad"]):
            out.append(_ABBREVIATIONS.get(token, token))
        else:
            out.append(_CURRENCY.get(token) or _SPELLINGS.get(token, token))
    return out


Numeral = tuple[int, int] | None  # a value, and the place where its words end


def _read_numeral(scanned: Sequence[tuple[str, str]], at: int) -> Numeral:
    """Return the number in words at a place: "two hundred and five" is 205."""

    def word_at(n: int) -> str:
        """Return the word at `n` where it may continue a numeral, else nothing."""
        return scanned[n][1] if n < len(scanned) and (n == at or scanned[n][0] == "joins") else ""

    def below_hundred(n: int) -> Numeral:
        if (tens := _TENS.get(word_at(n))) is not None:
            unit = _UNITS.get(word_at(n + 1), 0)
            return (tens + unit, n + 2) if 0 < unit < 10 else (tens, n + 1)
        return (_UNITS[word_at(n)], n + 1) if word_at(n) in _UNITS else None

    def with_scale(n: int, scale: str, below: Callable[[int], Numeral]) -> Numeral:
        found = below(n)
        if not found or word_at(found[1]) != scale:
            return found
        value, end = found[0] * _SCALES[scale], found[1] + 1
        rest = below(end + 1 if word_at(end) == "and" else end)
        return (value + rest[0], rest[1]) if rest else (value, end)

    if word_at(at) in _SCALES:  # "a hundred" is 100; "several hundred" is no number
        return (_SCALES[word_at(at)], at + 1) if at and scanned[at - 1][1] == "a" else None
    return with_scale(at, "thousand", lambda n: with_scale(n, "hundred", below_hundred))


@lru_cache(maxsize=4096)
def _read_text(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the tokens of a text in their one spelling, and with them the stems of its words."""
    tokens = frozenset(normalise_text(text).split())
    return tokens, tokens.union(split_words(text, keep_stop_words=True))


@lru_cache(maxsize=4096)
def _read_claim(claim: str) -> tuple[list[str], set[str], set[str], set[str]]:
    """Return a claim's words, the stems of its names, its sums of money and its other amounts."""
    return split_words(claim), {stem_word(name) for name in find_names(claim)}, *_list_amounts(claim)


def _list_amounts(claim: str) -> tuple[set[str], set[str]]:
    """Return the sums of money of a claim, and its other numbers in digits with the unit after each."""
    money, amounts = set[str](), set[str]()
    for part in re.split(r"[,;:()]\s", claim):
        tokens = _normalise_worded(part).split()
        for before, token, after in zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False):
            if before in _CURRENCY and token[-1].isdigit():
                money.add(f" {before} {token.removeprefix(_IN_WORDS)} ")
            elif token[-1].isdigit() and not token.startswith(_IN_WORDS):
                is_unit = after == "%" or (after.isalpha() and after not in STOP_WORDS)
                amounts |= {token, after} if is_unit else {token}
    return money, amounts


def find_names(claim: str) -> Iterator[str]:
    """Yield the words with a capital that do not open a sentence, in lower case."""
    for match in WORD.finditer(claim):
        before = claim[: match.start()].rstrip(_OPENERS)
        opens = not before or before[-1] in ".!?…:;|•-–\n"
        capital = any(c.isupper() for c in match[0][1:]) or (match[0][0].isupper() and not opens)
        if capital and (name := match[0].lower().replace("’", "'")) not in STOP_WORDS:
            yield name


def holds_phrase(text: str, phrase: str) -> bool:
    """Tell whether a few words stand in a text just so, not cut short."""
    said, text = WORD.findall(phrase.lower()), text.lower()
    just_so = r"\b" + r"\W+".join(map(re.escape, said)) + r"(?!\w) *"
    found = re.finditer(just_so, text) if 2 <= len(said) <= LONGEST_PHRASE else ()
    return any((after := WORD.match(text, one.end())) is None or after[0] in STOP_WORDS for one in found)


def is_echo(text: str, prompt: str, passages: Iterable[str] = ()) -> bool:
    """Tell whether a text repeats its prompt, or holds no word at all."""
    bare = MARK.sub("", text)
    grams = _list_grams(bare)
    repeated = grams & _list_grams(prompt).difference(*map(_list_grams, passages))
    return not WORD.search(bare) or (bool(grams) and len(repeated) >= ECHOED * len(grams))


@lru_cache(maxsize=1024)
def _list_grams(text: str) -> frozenset[tuple[str, ...]]:
    words = WORD.findall(text.lower())
    return frozenset(tuple(words[n : n + GRAM]) for n in range(len(words) - GRAM + 1))
