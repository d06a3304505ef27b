"""A written text against what it was written from: its claims, the passages that state them, and what is no answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from program.models.text import STOP_WORDS, WORD, split_sentences, split_words, stem_word
from program.passage import Passage

GRAM, ECHOED = 4, 0.6
"""The words of a stretch, and the share of a text's that stand in its prompt, and in no passage, of an echo."""
LONGEST_PHRASE = 6  # words of an answer that is no sentence, as small models give them: `8 working days`
_MARK = re.compile(r"\[(\d{1,3})\]")
_CLAIM = re.compile(r".+?(?:\[\d{1,3}\])+[.;]?|.+", re.DOTALL)
_ENDED = re.compile(r"[.!?…][\"'”’»)\]*_`\s]*\Z")
_NUMBER = re.compile(r"(?P<sign>[£$€¥]?)(?P<value>\d+(?:[.,:]\d+)*)(?:[\s-]?(?P<unit>[%°]|[^\W\d_]+))?")
_THOUSANDS = re.compile(r",(?=\d{3}(?!\d))")
_OPENERS = " \"'“‘(*_"  # what may stand between the end of a sentence and the first word of the next


@dataclass(frozen=True, slots=True)
class Claim:
    """A stretch of the answer up to its citation marks. `cites` holds passage numbers, from 1."""

    text: str
    cites: tuple[int, ...]

    @property
    def bare(self) -> str:
        """The claim without its marks."""
        return _MARK.sub("", self.text).strip()


def split_claims(answer: str) -> list[Claim]:
    """Split an answer into claims; text after the last mark cites nothing."""
    found = (match[0].strip() for match in _CLAIM.finditer(answer))
    return [Claim(text, tuple(dict.fromkeys(int(n) for n in _MARK.findall(text)))) for text in found if text]


def trace_claims(answer: str, passages: Sequence[Passage], least: float) -> list[Claim]:
    """Return an answer's claims, each citing passages that state it, or none.

    What the passages that a claim cites do not state, or that cites none, is given sentence by sentence to the first
    passage that does. `least` is the share of its words that must stand there. What was cut off cites nothing.
    """
    traced = []
    for claim in split_claims(answer):
        cited = [passages[n - 1] for n in claim.cites if 0 < n <= len(passages)]
        if cited and _states(cited, claim.bare, least):
            traced.append(claim)
            continue
        for said in split_sentences(claim.bare):
            ended = bool(claim.cites) or _ENDED.search(said) is not None
            stated = (one for one in [*cited, *passages] if ended or _holds_phrase(one, said))
            found = next((one for one in stated if _states([one], said, least)), None)
            n = 0 if found is None else passages.index(found) + 1
            traced.append(Claim(f"{said.rstrip(' .;:,')} [{n}]." if n else said, (n,) if n else ()))
    return traced


def is_echo(text: str, prompt: str, passages: Sequence[Passage] = ()) -> bool:
    """Tell whether a text repeats its prompt, or holds no word at all."""
    said = _list_grams(_MARK.sub("", text))
    told = _list_grams(prompt).difference(*(_list_grams(_text_of(passage)) for passage in passages))
    return not WORD.search(_MARK.sub("", text)) or (bool(said) and len(said & told) >= ECHOED * len(said))


def _states(passages: Sequence[Passage], claim: str, least: float) -> bool:
    """Tell whether passages hold the numbers, units and names of a claim, and that share of its words."""
    held = frozenset[str]().union(*map(_read_words, map(_text_of, passages)))
    numbers = {one for match in _NUMBER.finditer(claim) for one in _read_number(match)}
    words = split_words(claim)
    names = {stem_word(name) for name in _find_names(claim)}
    covered = sum(word in held for word in words)
    return bool(words) and numbers <= held and names <= held and covered >= least * len(words)


def _holds_phrase(passage: Passage, phrase: str) -> bool:
    """Tell whether a few words stand in a passage just so, and no content word goes on from them."""
    said, text = WORD.findall(phrase.lower()), _text_of(passage).lower()
    just_so = r"\b" + r"\W+".join(map(re.escape, said)) + r"(?!\w) *"
    found = re.finditer(just_so, text) if 2 <= len(said) <= LONGEST_PHRASE else ()
    return any((after := WORD.match(text, one.end())) is None or after[0] in STOP_WORDS for one in found)


@lru_cache(maxsize=4096)
def _read_words(text: str) -> frozenset[str]:
    """Return the stems of a text's words, and its numbers, units and signs in their one spelling."""
    numbers = (one for match in _NUMBER.finditer(text) for one in _read_number(match))
    return frozenset([*split_words(text, keep_stop_words=True), *numbers])


def _read_number(match: re.Match[str]) -> Iterator[str]:
    """Yield a number in one spelling, the sign before it and the unit after it: 1,000 as 1000, 4.50 as 4.5."""
    value = _THOUSANDS.sub("", match["value"])
    yield "#" + (value.rstrip("0").rstrip(".") if value.count(".") == 1 else value)
    yield from (stem_word(one.lower()) for one in match.group("sign", "unit") if one and one.lower() not in STOP_WORDS)


def _find_names(claim: str) -> Iterator[str]:
    """Yield the words with a capital that do not open a sentence, in lower case."""
    for match in WORD.finditer(claim):
        before = claim[: match.start()].rstrip(_OPENERS)
        opens = not before or before[-1] in ".!?…:;|•-–\n"
        capital = any(c.isupper() for c in match[0][1:]) or (match[0][0].isupper() and not opens)
        if capital and (name := match[0].lower().replace("’", "'")) not in STOP_WORDS:
            yield name


def _text_of(passage: Passage) -> str:
    return f"{passage.title}\n{passage.text}\n{passage.as_of or ''}"


@lru_cache(maxsize=1024)
def _list_grams(text: str) -> frozenset[tuple[str, ...]]:
    words = WORD.findall(text.lower())
    return frozenset(tuple(words[n : n + GRAM]) for n in range(len(words) - GRAM + 1))
