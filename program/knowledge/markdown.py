"""Markdown to sections: each heading with text under it, cut where it is long, with its line span.

Positions come from markdown-it-py's tokens, so code fences, tables and setext headings are read as Markdown
reads them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

LIMIT = 220
"""Words above which a section is cut at a paragraph border; MiniLM reads no more than about that many."""

TOP = "top"
DEPTH = 3  # headings below ### stay in the text of their section
KEPT = ("L", "M", "Nd", "Pc")  # Unicode categories that a GitHub anchor keeps, beside - and space
WORD = re.compile(r"\S*\w\S*")
SENTENCE_END = re.compile(r"(?<=[.!?…])\s+")


@dataclass(frozen=True, slots=True)
class Section:
    """Text under one heading. `path` is the headings above it, outermost first; lines count from 1."""

    slug: str
    path: tuple[str, ...]
    text: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Block:
    """A paragraph, list item, table or code block: what is never cut apart unless it is very long."""

    text: str
    first: int
    last: int
    kind: str = "paragraph"


class Slugger:
    """GitHub's heading anchors within one file: a repeated one gets -1, -2 and so on."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def __call__(self, heading: str) -> str:
        """The anchor of the next heading; `section` for one that has no letter or digit."""
        kept = (c for c in heading.strip().lower() if c in "- " or unicodedata.category(c).startswith(KEPT))
        slug = base = "".join(kept).replace(" ", "-") or "section"
        while slug in self._seen:
            self._seen[base] += 1
            slug = f"{base}-{self._seen[base]}"
        self._seen[slug] = 0
        return slug


def words(text: str) -> int:
    """How many words a text has; the bars and dashes of a table are none."""
    return len(WORD.findall(text))


def sections(text: str, first_line: int = 1) -> tuple[str, list[Section]]:
    """The document's first # heading (or an empty string) and its sections in order.

    `first_line` is the number of the text's first line in its file. Text before any heading has the slug
    `top`. HTML comments, rules and link definitions are not text.
    """
    lines = text.split("\n")
    tokens = _parser().parse(text)
    slug, path = Slugger(), [""] * DEPTH
    main = ""
    found: list[Section] = []
    blocks: list[_Block] = []
    current = TOP
    leading = True

    def close() -> None:
        headings = tuple(h for h in path if h)
        found.extend(_cut(current, headings, blocks, first_line))
        blocks.clear()

    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            heading = _plain(tokens[at + 1])
            level = int(token.tag[1])
            if token.level == 0 and level <= DEPTH:
                if leading and blocks:
                    slug(TOP)  # taken: a heading "Top" further down is `top-1`
                leading = False
                close()
                current = slug(heading)
                if level == 1 and not main:
                    main = heading
                path[level - 1 :] = [heading] + [""] * (DEPTH - level)
                continue
            slug(heading)
        if token.level == 0 and token.map and token.nesting >= 0:
            blocks.extend(_blocks(tokens, at, lines))
    close()
    return main, found


def paragraphs(text: str, first_line: int = 1) -> list[Section]:
    """Plain text as one section `top`, cut at blank lines where it is long."""
    blocks: list[_Block] = []
    start = 0
    lines = text.split("\n")
    for at, line in enumerate([*lines, ""]):
        if not line.strip():
            if at > start:
                blocks.append(_Block("\n".join(lines[start:at]), start, at))
            start = at + 1
    return list(_cut(TOP, (), blocks, first_line))


def _blocks(tokens: Sequence[Token], at: int, lines: Sequence[str]) -> Iterator[_Block]:
    token = tokens[at]
    raw = token.content.strip()
    if token.type == "hr" or (token.type == "html_block" and raw.startswith("<!--") and raw.endswith("-->")):
        return
    whole = _block(token, lines)
    if token.type in ("bullet_list_open", "ordered_list_open") and words(whole.text) > LIMIT:
        for inner in tokens[at + 1 :]:
            if inner.level == 0:
                return
            if inner.type == "list_item_open" and inner.level == 1:
                yield _block(inner, lines)
        return
    if whole.text:
        yield whole


def _block(token: Token, lines: Sequence[str]) -> _Block:
    start, end = token.map or (0, 0)
    while end > start and not lines[end - 1].strip():
        end -= 1
    kind = {"table_open": "table", "fence": "code", "code_block": "code"}.get(token.type, "paragraph")
    return _Block("\n".join(lines[start:end]).rstrip(), start, end, kind)


def _cut(slug: str, path: tuple[str, ...], blocks: Sequence[_Block], first_line: int) -> Iterator[Section]:
    """One section, or several of about LIMIT words named `slug`, `slug~2`, ..."""
    if not blocks:
        return
    total = sum(words(b.text) for b in blocks)
    groups: list[list[_Block]] = [[]]
    if total <= LIMIT:
        groups = [list(blocks)]
    else:
        size = 0
        for unit in _units(blocks):
            length = sum(words(b.text) for b in unit)
            if groups[-1] and size + length > LIMIT:
                groups.append([])
                size = 0
            groups[-1].extend(unit)
            size += length
        if len(groups) > 1 and size < LIMIT // 4:  # a tail too short to stand alone
            groups[-2].extend(groups.pop())
    for n, group in enumerate(groups, 1):
        yield Section(
            slug=slug if n == 1 else f"{slug}~{n}",
            path=path,
            text="\n\n".join(b.text for b in group),
            first=first_line + group[0].first,
            last=first_line + group[-1].last - 1,
        )


def _units(blocks: Sequence[_Block]) -> Iterator[list[_Block]]:
    """What stays together: a table with the sentence that introduces it; very long prose comes in pieces."""
    at = 0
    while at < len(blocks):
        block = blocks[at]
        pair = list(blocks[at : at + 2])
        if [b.kind for b in pair] == ["paragraph", "table"] and words(block.text) <= LIMIT:
            yield pair
            at += 2
            continue
        if block.kind == "paragraph" and words(block.text) > 2 * LIMIT:
            yield from ([replace(block, text=piece)] for piece in _pieces(block.text))
        else:
            yield [block]
        at += 1


def _pieces(text: str) -> Iterator[str]:
    """A very long paragraph in runs of sentences of at most LIMIT words."""
    run: list[str] = []
    size = 0
    for sentence in SENTENCE_END.split(text):
        parts = sentence.split()
        # One sentence longer than the limit (a log, a list without stops) is cut by count.
        for start in range(0, len(parts), LIMIT):
            chunk = parts[start : start + LIMIT]
            if run and size + len(chunk) > LIMIT:
                yield " ".join(run)
                run, size = [], 0
            run.append(" ".join(chunk) if len(parts) > LIMIT else sentence)
            size += len(chunk)
    if run:
        yield " ".join(run)


def _plain(inline: Token) -> str:
    """A heading as its reader sees it: without marks, links as their words, pictures left out."""
    shown = {"text": None, "code_inline": None, "softbreak": " ", "hardbreak": " "}
    children = [t for t in inline.children or [] if t.type in shown]
    return "".join(shown[t.type] or t.content for t in children).strip()


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable("table")
