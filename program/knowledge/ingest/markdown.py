"""Markdown to sections: each heading with text under it, cut where it is long, with its line span.

Positions come from markdown-it-py's tokens, so code fences, tables and setext headings are read as Markdown
reads them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from program.knowledge.ingest.chunks import TOKENS, Block, Section, cut, fits

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

TOP = "top"
DEPTH = 3  # headings below ### stay in the text of their section
KEPT = ("L", "M", "Nd", "Pc")  # Unicode categories that a GitHub anchor keeps, beside - and space


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


def sections(text: str, first_line: int = 1, limit: int = TOKENS) -> tuple[str, list[Section]]:
    """The document's first # heading (or an empty string) and its sections in order.

    `first_line` is the number of the text's first line in its file, `limit` a passage's size in tokens. Text
    before any heading has the slug `top`. HTML comments, rules and link definitions are not text.
    """
    lines = text.split("\n")
    tokens = _parser().parse(text)
    slug, path = Slugger(), [""] * DEPTH
    main = ""
    found: list[Section] = []
    blocks: list[Block] = []
    current = TOP
    leading = True

    def close() -> None:
        headings = tuple(h for h in path if h)
        found.extend(cut(current, headings, blocks, first_line, limit))
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
            blocks.extend(_blocks(tokens, at, lines, limit))
    close()
    return main, found


def paragraphs(text: str, first_line: int = 1, limit: int = TOKENS) -> list[Section]:
    """Plain text as one section `top`, cut at blank lines where it is long."""
    blocks: list[Block] = []
    start = 0
    lines = text.split("\n")
    for at, line in enumerate([*lines, ""]):
        if not line.strip():
            if at > start:
                blocks.append(Block("\n".join(lines[start:at]), start, at))
            start = at + 1
    return list(cut(TOP, (), blocks, first_line, limit))


def _blocks(tokens: Sequence[Token], at: int, lines: Sequence[str], limit: int) -> Iterator[Block]:
    token = tokens[at]
    raw = token.content.strip()
    if token.type == "hr" or (token.type == "html_block" and raw.startswith("<!--") and raw.endswith("-->")):
        return
    whole = _block(token, lines)
    if token.type in ("bullet_list_open", "ordered_list_open") and not fits(whole.text, limit):
        for inner in tokens[at + 1 :]:
            if inner.level == 0:
                return
            if inner.type == "list_item_open" and inner.level == 1:
                yield _block(inner, lines)
        return
    if whole.text:
        yield whole


def _block(token: Token, lines: Sequence[str]) -> Block:
    start, end = token.map or (0, 0)
    while end > start and not lines[end - 1].strip():
        end -= 1
    kind = {"table_open": "table", "fence": "code", "code_block": "code"}.get(token.type, "paragraph")
    return Block("\n".join(lines[start:end]).rstrip(), start, end, kind)


def _plain(inline: Token) -> str:
    """A heading as its reader sees it: without marks, links as their words, pictures left out."""
    shown = {"text": None, "code_inline": None, "softbreak": " ", "hardbreak": " "}
    children = [t for t in inline.children or [] if t.type in shown]
    return "".join(shown[t.type] or t.content for t in children).strip()


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable("table")
