"""Sentences, list items and table rows that can be quoted from a passage."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from program.models.rules.words import content_stems, expected_kinds, value_kinds
from program.signatures import Excerpt

_MARKER = re.compile(r"\[\[\s*##.*?##\s*\]\]")
_ORDER_TO_A_MODEL = re.compile(
    r"(?i)\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:instruction|prompt|rule|message|above|previous)"
    r"|\bsystem prompt\b|\byou are (?:now )?an? (?:ai|assistant|language model|chatbot)\b|\b(?:assistant|ai|chatbot"
    r"|language model|automated (?:reader|system)|bot)s?\b.{0,60}\b(?:must|should|answer|reply|say|tell|state"
    r"|respond)\b|\b(?:answer|reply|respond|say|state)\b.{0,40}\bto (?:every|any|all) (?:question|quer)"
)
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d{1,2}[.)])\s+")
_HEADING = re.compile(r"^\s*#{1,6}\s")
_RULE = re.compile(r"^\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)*\|?\s*$")
_MARK = re.compile(r"\[\d{1,3}\]")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
SIBLING_NAMED = 5.0  # the mark of a row that is not named, beside one whose label is named in full
_EMPHASIS = re.compile(r"\*\*|__|`|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)")


class _Piece(NamedTuple):
    text: str
    context: str
    cells: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Quotable:
    """A sentence, list item or table row of passage `n` that may be quoted.

    `cells` holds (column, cell) pairs of a table row. `context` is what a reader has seen before it: the title and, for
    rows and list items, the introduction. `at` is its place within the passage, from 0; `title` is the passage's.
    """

    n: int
    at: int
    text: str
    context: str
    cells: tuple[tuple[str, str], ...] = ()
    title: str = ""


def strip_markdown(text: str) -> str:
    """Return a text without Markdown marks, link addresses and `[3]` marks."""
    return " ".join(_EMPHASIS.sub("", _MARK.sub("", _LINK.sub(r"\1", text))).split())


def _render_row(cells: Sequence[tuple[str, str]]) -> str:
    """Write a table row in one line: `Plan: Pro; Monthly: GBP 19`."""
    return "; ".join(f"{column}: {cell}" if column else cell for column, cell in cells if cell)


def split_quotables(passages: Iterable[Excerpt]) -> list[Quotable]:
    """Return the quotable units of passages, without text that addresses a model."""
    return [
        Quotable(passage.n, at, piece.text, piece.context, piece.cells, passage.title)
        for passage in passages
        for at, piece in _quotable_pieces(passage.title, passage.text)
    ]


@lru_cache(maxsize=20_000)
def _quotable_pieces(title: str, text: str) -> tuple[tuple[int, _Piece], ...]:
    pieces = enumerate(_walk_lines(title, text.splitlines()))
    return tuple((at, p) for at, p in pieces if not _MARKER.search(p.text) and not _ORDER_TO_A_MODEL.search(p.text))


def _walk_lines(title: str, lines: Sequence[str]) -> Iterator[_Piece]:
    intro = ""
    header: list[str] = []
    paragraph: list[str] = []
    for i, line in enumerate([*lines, ""]):
        table = line.count("|") >= 2 or (bool(header) and "|" in line)
        if paragraph and (table or not line.strip() or _BULLET.match(line) or _HEADING.match(line)):
            sentences = split_sentences(strip_markdown(" ".join(paragraph)))
            yield from (_Piece(sentence, title) for sentence in sentences)
            intro, paragraph = sentences[-1] if sentences else "", []
        if not table:
            header = []
        if table and not _RULE.match(line):
            cells = [strip_markdown(cell) for cell in line.strip().strip("|").split("|")]
            if not header and i + 1 < len(lines) and _RULE.match(lines[i + 1]):
                header = cells
            else:
                columns = header if len(header) == len(cells) else [""] * len(cells)
                pairs = tuple(zip(columns, cells, strict=True))
                yield _Piece(_render_row(pairs), f"{title}. {intro}" if intro else title, pairs)
        elif _BULLET.match(line):
            for sentence in split_sentences(strip_markdown(_BULLET.sub("", line))):
                yield _Piece(sentence, f"{title}. {intro}" if intro else title)
        elif line.strip() and not _HEADING.match(line) and not _RULE.match(line):
            paragraph.append(line.lstrip("> \t"))


@lru_cache(maxsize=20_000)
def split_sentences(text: str) -> tuple[str, ...]:
    """Return the sentences of one paragraph, each an exact part of it."""
    import pysbd

    if not text:
        return ()
    # A new segmenter each time: it keeps the text it works on, so sharing one is not safe between threads.
    found = [piece.strip() for piece in pysbd.Segmenter(language="en", clean=False).segment(text)]
    # The splitter rewrites some rare characters; a paragraph it altered is quoted whole.
    return tuple(piece for piece in found if piece) if all(piece in text for piece in found) else (text,)


def mark_rows(question: str, found: Sequence[Quotable]) -> NDArray[np.float64]:
    """Mark the table rows whose label the question names.

    They get 1, the other rows of their table a number below 0, and all else 0.
    """
    asked = set(content_stems(question))
    marks = np.zeros(len(found))
    tables: dict[int, list[int]] = {}
    for j, unit in enumerate(found):
        if unit.cells:
            tables.setdefault(unit.n, []).append(j)
    for rows in tables.values():
        labels = {j: set(content_stems(found[j].cells[0][1])) for j in rows}
        common = {word for word in asked if sum(word in label for label in labels.values()) * 2 > len(rows)}
        named = {j: len((label - common) & asked) / (len(label - common) or 1) for j, label in labels.items()}
        if top := max(named.values()):
            for j in rows:
                marks[j] = 1.0 if named[j] == top else -SIBLING_NAMED if top == 1.0 else -1.0
    return marks


def quoted_text(unit: Quotable, question: str, queries: Sequence[str], said: str = "") -> str:
    """Return a unit as it is quoted.

    A wide row keeps its label and the columns asked about. Where columns are named like things (`Basic | Deluxe`),
    those that the question or what was `said` before names are kept; else those whose heading shares a word with the
    question or that hold a value of the kind asked for, or all.
    """
    if len(unit.cells) < 3:
        return unit.text
    label, *rest = unit.cells
    if things := _columns_named(f"{question} {' '.join(queries)} {said}", [column for column, _ in rest]):
        return _render_row([label, *(pair for pair in rest if pair[0] in things)])
    asked = {word for text in (question, *queries) for word in content_stems(text)}
    wanted = {kind for text in (question, *queries) for kind in expected_kinds(text)[:1]}
    kept = [
        pair for pair in rest if asked & set(content_stems(pair[0])) or wanted & value_kinds(f"{pair[0]}: {pair[1]}")
    ]
    return _render_row([label, *kept]) if wanted and kept else unit.text


def _columns_named(text: str, columns: Sequence[str]) -> set[str]:
    """Return the columns named in full, longest first: `X 3` is not found in `X 3 Pro`."""
    left, found = f" {' '.join(text.lower().split())} ", set()
    for column in sorted(columns, key=len, reverse=True):
        pattern = rf"(?<!\w){re.escape(column.lower())}(?!\w)"
        if any(c.isupper() for c in column) and " " in column and re.search(pattern, left):
            left = re.sub(pattern, " ", left)
            found.add(column)
    return found
