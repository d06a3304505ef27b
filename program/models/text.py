"""A text cut into words, sentences, pieces that can be quoted, and claims with their citation marks."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import snowballstemmer

# A number with its points and commas is one word (4.50, 3.8), so is a word with its apostrophe.
WORD = re.compile(r"\d+(?:[.,]\d+)+|\w+(?:'\w+)*")
_CJK = re.compile(r"[々〆〇ぁ-ゖゝ-ヺー-ヿㇰ-ㇿ㐀-䶿一-鿿가-힣豈-\ufaffｦ-ﾟ\U00020000-\U0003134f]+")
"""A run of Han, kana or Hangul."""
_MAY_BE_CJK = re.compile("[\u3005-\U0003134f]")  # several times as fast
STOP_WORDS = frozenset(
    """a about above after again all also am an and any are as at be because been before being below between
    both but by can could did do does doing down during each few for from further had has have having he her
    here hers him his how i if in into is it its itself just me more most my no nor not of off on once only or
    other our ours out over own please same she should so some such than that the their theirs them then there
    these they this those through to too under until up us very was we were what when where which while who
    whom whose why will with would you your yours""".split()
)
LONGEST_PHRASE = 6  # words of an answer that is no sentence, as small models give them: `8 working days`
_NUMBER = re.compile(r"(?P<sign>[£$€¥]?)(?P<value>\d+(?:[.,:]\d+)*)(?:[\s-]?(?P<unit>[%°]|[^\W\d_]+))?")
_THOUSANDS = re.compile(r",(?=\d{3}(?!\d))")
_OPENERS = " \"'“‘(*_"  # what may stand between the end of a sentence and the first word of the next
_BULLET = re.compile(r"\s*(?:[-*+•]|\d{1,2}[.)])\s+")
_HEADING = re.compile(r"\s*#{1,6}\s")
_RULE = re.compile(r"\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)*\|?\s*$")
_CELL = re.compile(r"[^|]+")
MARK = re.compile(r"\[(\d{1,3})\]")
"""A citation mark, with the number of a passage."""
_MARK_AT_END, _LONGEST_MARK = re.compile(r"\[(\d{1,3})\]\Z"), len("[999]")
_MAY_BE_MARK = re.compile(r"\[\d{0,3}\Z")
_CLAIM = re.compile(r".+?(?:\[\d{1,3}\])+[.;]?|.+", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_EMPHASIS = re.compile(r"\*\*|__|`|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)")
_PROMPT_MARK = re.compile(r"\[\[\s*##.*?##\s*\]\]")
NOT_ENGLISH = 0.4
"""The probability of another language from which a question is refused that has less than two common English words:
none of 2,310 labelled English questions, 2 of the 4,100 lines of CLINC150 ("hello there", "yes sir")."""
_ENGLISH = frozenset("the a an is are do does how what which who when where can i my to of for and in it on".split())
_CREOLE = "pcm"  # Nigerian Pidgin is taken for terse English, and the other way round
PIECES_KEPT = 20_000  # of the passages read last


def split_words(text: str, keep_stop_words: bool = False, stem: bool = True) -> list[str]:
    """Return a text's words in order, lower case, stemmed, without function words.

    Of Chinese, Japanese and Korean, whose words no space parts, each character and each pair of neighbours is a word.
    """
    text = unicodedata.normalize("NFC", text).lower().replace("’", "'")
    found = WORD.findall(_CJK.sub(_part_run, text) if _MAY_BE_CJK.search(text) else text)
    return [stem_word(w) if stem and not w.isdigit() else w for w in found if keep_stop_words or w not in STOP_WORDS]


def _part_run(run: re.Match[str]) -> str:
    """Return the characters and the pairs of neighbours of a run, a space around each."""
    return f" {' '.join([*run[0], *map(''.join, pairwise(run[0]))])} "


_STEMMER, _stemming = snowballstemmer.stemmer("english"), threading.Lock()


@lru_cache(maxsize=20_000)
def stem_word(word: str) -> str:
    """Return the Snowball (English) stem of a lower-case word."""
    with _stemming:  # the stemmer keeps its place in the word on itself
        return str(_STEMMER.stemWord(word))


class Piece(NamedTuple):
    """A part of a text that can be quoted, and its first and last character there, the last left out.

    A table row of more than two cells is a piece for each cell behind its row's first, which stands before it.
    """

    text: str
    start: int
    end: int


@lru_cache(maxsize=PIECES_KEPT)
def split_pieces(text: str) -> tuple[Piece, ...]:
    """Return the sentences, list items and table cells of a Markdown text.

    They come in order; headings are left out.
    """
    return tuple(piece for piece in _walk_lines(text) if piece.text and not _PROMPT_MARK.search(piece.text))


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text without Markdown."""
    return [text[start:end] for start, end in _sentence_places(text)]


def strip_markdown(text: str) -> str:
    """Return a text without Markdown marks, link addresses and `[3]` marks."""
    return " ".join(_EMPHASIS.sub("", MARK.sub("", _LINK.sub(r"\1", text))).split())


@dataclass(frozen=True, slots=True)
class Claim:
    """A stretch of an answer up to its citation marks. `cites` holds passage numbers, from 1."""

    text: str
    cites: tuple[int, ...]

    @property
    def bare(self) -> str:
        """The claim without its marks."""
        return MARK.sub("", self.text).strip()


def split_claims(answer: str) -> list[Claim]:
    """Split an answer into claims; text after the last mark cites nothing."""
    found = (match[0].strip() for match in _CLAIM.finditer(answer))
    return [Claim(text, tuple(dict.fromkeys(int(n) for n in MARK.findall(text)))) for text in found if text]


def drop_unknown_marks(answer: str, passages: int) -> str:
    """Return the answer without marks of no passage, nor those that are marks only once another is gone: `[[0]0]`."""
    *parts, rest = answer.split("]")
    text = ""
    for part in parts:
        text += f"{part}]"
        mark = _MARK_AT_END.search(text, max(0, len(text) - _LONGEST_MARK))
        if mark and not 1 <= int(mark[1]) <= passages:
            text = text[: mark.start()]
    return text + rest


class MarkNumbering:
    """The numbering of a text's marks in order of use, whole or in pieces; what may become a mark is held back."""

    def __init__(self, passages: int) -> None:
        self.order: dict[int, int] = {}
        """The number given to each passage, by its place from 1."""
        self._passages = passages
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return what can be shown now, marks of no passage taken out."""
        text = self._held + piece
        at = _MAY_BE_MARK.search(text)
        cut = at.start() if at else len(text)
        self._held = text[cut:]
        return MARK.sub(self._renumber, drop_unknown_marks(text[:cut], self._passages))

    def rest(self) -> str:
        """Return what is still held, at the end."""
        text, self._held = self._held, ""
        return text

    def _renumber(self, match: re.Match[str]) -> str:
        return f"[{self.order.setdefault(int(match[1]), len(self.order) + 1)}]"


def states_claim(texts: Iterable[str], claim: str, least: float) -> bool:
    """Tell whether texts hold a claim's numbers, units, names and share of words."""
    held = frozenset[str]().union(*map(_read_words, texts))
    numbers = {one for match in _NUMBER.finditer(claim) for one in _read_number(match)}
    words = split_words(claim)
    names = {stem_word(name) for name in _find_names(claim)}
    covered = sum(word in held for word in words)
    return bool(words) and numbers <= held and names <= held and covered >= least * len(words)


def holds_phrase(text: str, phrase: str) -> bool:
    """Tell whether a few words stand in a text just so, not cut short."""
    said, text = WORD.findall(phrase.lower()), text.lower()
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


def _walk_lines(text: str) -> Iterator[Piece]:
    header: list[str] = []
    paragraph: tuple[int, int] | None = None
    at = 0
    lines = text.splitlines(keepends=True)
    for n, line in enumerate([*lines, ""]):
        start, at = at, at + len(line)
        bullet = _BULLET.match(line)
        table = line.count("|") >= 2 or (bool(header) and "|" in line)
        ends = table or bullet or not line.strip() or _HEADING.match(line)
        if paragraph and ends:
            yield from _quote_sentences(text, *paragraph)
            paragraph = None
        if not table:
            header = []
        if table and not _RULE.match(line):
            cells = [match for match in _CELL.finditer(line) if match[0].strip()]
            if not header and n + 1 < len(lines) and _RULE.match(lines[n + 1]):
                header = [strip_markdown(cell[0]) for cell in cells]
            else:
                yield from _quote_row(cells, header if len(header) == len(cells) else [""] * len(cells), start)
        elif bullet:
            yield from _quote_sentences(text, start + bullet.end(), at)
        elif not ends and not _RULE.match(line):
            paragraph = (paragraph[0] if paragraph else start, at)


def _quote_sentences(text: str, start: int, end: int) -> Iterator[Piece]:
    for first, last in _sentence_places(text[start:end]):
        yield Piece(strip_markdown(text[start + first : start + last]), start + first, start + last)


def _quote_row(cells: list[re.Match[str]], header: list[str], at: int) -> Iterator[Piece]:
    shown = [
        f"{column}: {value}" if column else value
        for column, value in zip(header, (strip_markdown(cell[0]) for cell in cells), strict=True)
    ]
    if len(cells) < 3:
        if cells:
            yield Piece("; ".join(shown), at + cells[0].start(), at + cells[-1].end())
        return
    for cell, value in zip(cells[1:], shown[1:], strict=True):
        yield Piece(f"{shown[0]}; {value}", at + cell.start(), at + cell.end())


@lru_cache(maxsize=PIECES_KEPT)
def _sentence_places(text: str) -> tuple[tuple[int, int], ...]:
    """Return where the sentences of one paragraph stand."""
    import pysbd

    flat = text.replace("\n", " ")
    # A new segmenter each time: it keeps the text it works on, so sharing one is not safe between threads.
    found = (
        [piece.strip() for piece in pysbd.Segmenter(language="en", clean=False).segment(flat)] if flat.strip() else []
    )
    places, at = [], 0
    for sentence in filter(None, found):
        start = flat.find(sentence, at)
        if start < 0:  # the splitter rewrites some rare characters: such a paragraph is quoted whole
            return ((len(flat) - len(flat.lstrip()), len(flat.rstrip())),)
        at = start + len(sentence)
        places.append((start, at))
    return tuple(places)


def find_foreign_language(text: str) -> str:
    """Return the question's ISO 639 code, or "" for English or in doubt."""
    if len(_ENGLISH.intersection(re.findall(r"\w+", text.lower()))) > 1 or not any(c.isalpha() for c in text):
        return ""  # spares the model's load for nearly every question
    code, probability = _language_identifier().classify(text)
    return "" if code in ("en", _CREOLE) or probability < NOT_ENGLISH else str(code)


@lru_cache(maxsize=1)
def _language_identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
