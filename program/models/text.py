"""A text cut into words, sentences, and pieces that can be quoted."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import snowballstemmer

# A number with its points and commas is one word (4.50, 3.8), so is a word with its apostrophe.
WORD = re.compile(r"\d+(?:[.,]\d+)+|\w+(?:'\w+)*")
STOP_WORDS = frozenset(
    """a about above after again all also am an and any are as at be because been before being below between
    both but by can could did do does doing down during each few for from further had has have having he her
    here hers him his how i if in into is it its itself just me more most my no nor not of off on once only or
    other our ours out over own please same she should so some such than that the their theirs them then there
    these they this those through to too under until up us very was we were what when where which while who
    whom whose why will with would you your yours""".split()
)
_BULLET = re.compile(r"\s*(?:[-*+•]|\d{1,2}[.)])\s+")
_HEADING = re.compile(r"\s*#{1,6}\s")
_RULE = re.compile(r"\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)*\|?\s*$")
_CELL = re.compile(r"[^|]+")
_MARK = re.compile(r"\[\d{1,3}\]")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_EMPHASIS = re.compile(r"\*\*|__|`|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)")
_PROMPT_MARK = re.compile(r"\[\[\s*##.*?##\s*\]\]")
PIECES_KEPT = 20_000  # of the passages read last


def split_words(text: str, keep_stop_words: bool = False, stem: bool = True) -> list[str]:
    """Return a text's words in order, lower case, stemmed, without function words."""
    found = WORD.findall(unicodedata.normalize("NFC", text).lower().replace("’", "'"))
    return [stem_word(w) if stem and not w.isdigit() else w for w in found if keep_stop_words or w not in STOP_WORDS]


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
    return " ".join(_EMPHASIS.sub("", _MARK.sub("", _LINK.sub(r"\1", text))).split())


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
