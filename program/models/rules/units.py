"""A passage taken apart into what can be quoted from it: sentences, list items and table rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from program.signatures import Excerpt

_MARKER = re.compile(r"\[\[\s*##.*?##\s*\]\]")
_ORDER_TO_A_MODEL = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:instruction|prompt|rule|message|above|previous)"
    r"|\bsystem prompt\b|\byou are (?:now )?an? (?:ai|assistant|language model|chatbot)\b"
    r"|\b(?:assistant|ai|chatbot|language model|automated (?:reader|system)"
    r"|bot)s?\b.{0,60}\b(?:must|should|answer|reply|say|tell|state|respond)\b"
    r"|\b(?:answer|reply|respond|say|state)\b.{0,40}\bto (?:every|any|all) (?:question|quer)",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d{1,2}[.)])\s+")
_HEADING = re.compile(r"^\s*#{1,6}\s")
_RULE = re.compile(r"^\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)*\|?\s*$")
_MARK = re.compile(r"\[\d{1,3}\]")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_EMPHASIS = re.compile(r"\*\*|__|`|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)")


@dataclass(frozen=True, slots=True)
class Unit:
    """One quotable piece of passage `n`.

    `text` is what may be quoted; `cells` holds (column, cell) pairs when it is a table row, else nothing.
    `context` is what a reader has seen before it: the title and, for rows and list items, the introduction.
    `at` is its place within the passage, from 0; `title` is the passage's.
    """

    n: int
    at: int
    text: str
    context: str
    cells: tuple[tuple[str, str], ...] = ()
    title: str = ""


def plain(text: str) -> str:
    """Text without Markdown emphasis, code marks, links' addresses, `[3]` marks, and with single spaces."""
    return " ".join(_EMPHASIS.sub("", _MARK.sub("", _LINK.sub(r"\1", text))).split())


def render(cells: Sequence[tuple[str, str]]) -> str:
    """A table row in one readable line: `Plan: Pro; Monthly: GBP 19`."""
    return "; ".join(f"{column}: {cell}" if column else cell for column, cell in cells if cell)


def units(passages: Iterable[Excerpt]) -> list[Unit]:
    """Everything quotable in the passages, in order, without text that addresses a model."""
    return [
        Unit(passage.n, at, text, context, cells, passage.title)
        for passage in passages
        for at, text, context, cells in _pieces(passage.title, passage.text)
    ]


_Piece = tuple[str, str, tuple[tuple[str, str], ...]]


@lru_cache(maxsize=20_000)
def _pieces(title: str, text: str) -> tuple[tuple[int, str, str, tuple[tuple[str, str], ...]], ...]:
    return tuple(
        (at, text, context, cells)
        for at, (text, context, cells) in enumerate(_walk(title, text.splitlines()))
        if not _MARKER.search(text) and not _ORDER_TO_A_MODEL.search(text)
    )


def _walk(title: str, lines: Sequence[str]) -> Iterator[_Piece]:
    intro = ""
    header: list[str] = []
    paragraph: list[str] = []
    for i, line in enumerate([*lines, ""]):
        table = line.count("|") >= 2 or (bool(header) and "|" in line)
        if paragraph and (table or not line.strip() or _BULLET.match(line) or _HEADING.match(line)):
            sentences = split_sentences(plain(" ".join(paragraph)))
            yield from ((sentence, title, ()) for sentence in sentences)
            intro, paragraph = sentences[-1] if sentences else "", []
        if not table:
            header = []
        if table and not _RULE.match(line):
            cells = [plain(cell) for cell in line.strip().strip("|").split("|")]
            if not header and i + 1 < len(lines) and _RULE.match(lines[i + 1]):
                header = cells
            else:
                columns = header if len(header) == len(cells) else [""] * len(cells)
                pairs = tuple(zip(columns, cells, strict=True))
                yield render(pairs), f"{title}. {intro}" if intro else title, pairs
        elif _BULLET.match(line):
            for sentence in split_sentences(plain(_BULLET.sub("", line))):
                yield sentence, f"{title}. {intro}" if intro else title, ()
        elif line.strip() and not _HEADING.match(line) and not _RULE.match(line):
            paragraph.append(line.lstrip("> \t"))


@lru_cache(maxsize=20_000)
def split_sentences(text: str) -> tuple[str, ...]:
    """The sentences of one paragraph, each an exact part of it."""
    import pysbd

    if not text:
        return ()
    # A new segmenter each time: it keeps the text it works on, so sharing one is not safe between threads.
    found = [piece.strip() for piece in pysbd.Segmenter(language="en", clean=False).segment(text)]
    # The splitter rewrites some rare characters; a paragraph it altered is quoted whole.
    return tuple(piece for piece in found if piece) if all(piece in text for piece in found) else (text,)
