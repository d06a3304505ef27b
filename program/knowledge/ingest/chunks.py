"""A section's blocks cut into passages of so many tokens, at the borders its author drew."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from program.settings import CHUNK_TOKENS

if TYPE_CHECKING:
    from semantic_text_splitter import TextSplitter

TOKENS = CHUNK_TOKENS
"""Tokens above which a section is cut unless its base says otherwise."""

TABLE = 8  # times that size above which even a table is cut, between rows


_TOKEN = re.compile(r"[\u2e80-\u9fff\uac00-\ud7ff]|[a-zA-Z\u00c0-\u024f]{1,7}|\w{1,3}|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Section:
    """Text under one heading. `path` is the headings above it, outermost first; lines count from 1."""

    slug: str
    path: tuple[str, ...]
    text: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, list item, table or code block: what is never cut apart unless it is very long."""

    text: str
    first: int
    last: int
    kind: str = "paragraph"


def tokens(text: str) -> int:
    """About how many tokens a text has: one for seven letters, three digits, a sign or a CJK character.

    On English prose within a quarter of MiniLM's own count, eight times as fast, and the same whatever model
    embeds, so that passage ids outlive a change of model.
    """
    return len(_TOKEN.findall(text))


def fits(text: str, limit: int) -> bool:
    """True when the text has at most `limit` tokens."""
    return len(text) <= limit or tokens(text) <= limit


def cut(
    slug: str, path: tuple[str, ...], blocks: Sequence[Block], first_line: int = 1, limit: int = TOKENS
) -> Iterator[Section]:
    """One section, or several of about `limit` tokens named `slug`, `slug~2`, ... with their lines' numbers.

    A table stays whole, and with the sentence that introduces it; very long prose is cut between sentences.
    """
    if not blocks:
        return
    groups: list[list[Block]] = [[]]
    size = 0
    for unit in _units(blocks, limit):
        length = sum(tokens(b.text) for b in unit)
        if groups[-1] and size + length > limit:
            groups.append([])
            size = 0
        groups[-1].extend(unit)
        size += length
    if len(groups) > 1 and size < limit // 4:  # a tail too short to stand alone
        groups[-2].extend(groups.pop())
    for n, group in enumerate(groups, 1):
        yield Section(
            slug=slug if n == 1 else f"{slug}~{n}",
            path=path,
            text="\n\n".join(b.text for b in group),
            first=first_line + group[0].first,
            last=first_line + group[-1].last - 1,
        )


def _units(blocks: Sequence[Block], limit: int) -> Iterator[list[Block]]:
    at = 0
    while at < len(blocks):
        block = blocks[at]
        pair = list(blocks[at : at + 2])
        tabled = [b.kind for b in pair] == ["paragraph", "table"] and fits(block.text, limit)
        if tabled and fits(pair[1].text, limit * TABLE):
            yield pair
            at += 2
            continue
        if block.kind == "table":
            yield from ([piece] for piece in _rows(block, limit))
        elif fits(block.text, limit):
            yield [block]
        else:
            yield from ([replace(block, text=piece)] for piece in _splitter(limit).chunks(block.text))
        at += 1


def _rows(table: Block, limit: int) -> Iterator[Block]:
    """The table, or a huge one in several, each under the header again."""
    if fits(table.text, limit * TABLE):
        yield table
        return
    lines = table.text.split("\n")
    header, rows = lines[:2], lines[2:]
    kept: list[str] = []
    size = 0
    for at, row in enumerate([*rows, ""]):
        length = tokens(row)
        if kept and (size + length > limit * TABLE or at == len(rows)):
            start = table.first + 2 + at - len(kept)
            yield Block("\n".join([*header, *kept]), start, start + len(kept), "table")
            kept, size = [], 0
        kept.append(row)
        size += length


@lru_cache(maxsize=16)
def _splitter(limit: int) -> TextSplitter:
    from semantic_text_splitter import TextSplitter

    return TextSplitter.from_callback(tokens, limit)
