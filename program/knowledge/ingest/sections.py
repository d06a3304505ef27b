"""The bytes of one file as passages: sections under their headings, cut to size, with line spans.

Positions come from markdown-it-py's tokens, so code fences, tables and underlined headings are read as Markdown.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from semantic_text_splitter import TextSplitter

from program.knowledge.ingest.convert import MarkdownPage, UnreadableFile, convert_docx, convert_html, read_pdf
from program.knowledge.ingest.metadata import Metadata, parse_day, split_front_matter
from program.knowledge.ingest.records import read_rows
from program.passage import Flaw, Passage
from program.settings import CHUNK_TOKENS, MAX_MEGABYTES

READ = (".md", ".txt", ".html", ".htm", ".pdf", ".docx", ".csv", ".jsonl")  # endings of the files that are read
TOP = "top"  # the anchor of text above the first heading
DEEPEST = 3  # headings below ### stay in the text of their section
TABLE = 8  # times a passage's size above which even a table is cut, between rows
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_ANCHOR = ("L", "M", "Nd", "Pc")  # Unicode categories that a GitHub anchor keeps, beside - and space
_TOKEN = re.compile(r"[\u2e80-\u9fff\uac00-\ud7ff]|[a-zA-Z\u00c0-\u024f]{1,7}|\w{1,3}|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Document:
    """One file, `<base>/<file>`; it supersedes such paths, or ids of passages."""

    path: str
    title: str
    as_of: date | None
    supersedes: tuple[str, ...]
    passages: tuple[Passage, ...]


Parsed = tuple[Document, list[Flaw]]  # a document, and what is wrong with its file, without the file's name


@dataclass(frozen=True, slots=True)
class TextSection:
    """Text under one heading, or a piece of it; lines count from 1."""

    slug: str
    headings: tuple[str, ...]
    text: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Block:
    """A paragraph, list item, table or code block: never cut unless it is very long."""

    text: str
    first: int
    last: int
    kind: str = "paragraph"


def parse_file(path: str, content: bytes, limit: int = CHUNK_TOKENS, megabytes: float = MAX_MEGABYTES) -> Parsed:
    """Return a file's document, by the ending of `path`. Raises `UnreadableFile`."""
    suffix = Path(path).suffix.lower()
    try:
        if suffix == ".pdf":
            return _parse_pdf(path, content, limit)
        if suffix == ".docx":
            return _parse_page(path, convert_docx(content, int(megabytes * 1e6)), limit)
        if suffix in (".html", ".htm"):
            return _parse_page(path, convert_html(content), limit)
        if suffix in (".jsonl", ".csv"):
            return _parse_records(path, _decode_text(content), suffix)
        return _parse_text(path, _decode_text(content), suffix, limit)
    except UnreadableFile:
        raise
    except Exception as error:  # whatever a parser makes of a broken file, the file alone is lost
        reason = " ".join(str(error).split())[:120].rstrip(".")
        raise UnreadableFile(f"no readable {suffix} file ({type(error).__name__}: {reason})") from error


def split_markdown(text: str, first_line: int = 1, limit: int = CHUNK_TOKENS) -> tuple[str, list[TextSection]]:
    """Return the first # heading (or an empty string) and the sections in order.

    `first_line` is the number of the text's first line in its file. HTML comments, rules and link definitions are no
    text.
    """
    lines = text.split("\n")
    tokens = _MARKDOWN.parse(text)
    taken: dict[str, int] = {}
    headings, main, slug, above_all = [""] * DEEPEST, "", TOP, True
    found: list[TextSection] = []
    blocks: list[_Block] = []
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            heading, level = _heading_text(tokens[at + 1]), int(token.tag[1])
            if token.level == 0 and level <= DEEPEST:
                if above_all and blocks:
                    make_anchor(TOP, taken)  # a heading "Top" further down is `top-1`
                above_all = False
                found += _cut_section(slug, headings, blocks, first_line, limit)
                blocks = []
                slug, main = make_anchor(heading, taken), main or (heading if level == 1 else "")
                headings[level - 1 :] = [heading] + [""] * (DEEPEST - level)
                continue
            make_anchor(heading, taken)
        if token.level == 0 and token.map and token.nesting >= 0:
            blocks += _read_blocks(tokens, at, lines, limit)
    return main, [*found, *_cut_section(slug, headings, blocks, first_line, limit)]


def split_paragraphs(text: str, first_line: int = 1, limit: int = CHUNK_TOKENS) -> tuple[str, list[TextSection]]:
    """Return no heading, and text as one section `top`, cut at blank lines if long."""
    blocks: list[_Block] = []
    start = 0
    lines = text.split("\n")
    for at, line in enumerate([*lines, ""]):
        if not line.strip():
            if at > start:
                blocks.append(_Block("\n".join(lines[start:at]), start, at))
            start = at + 1
    return "", list(_cut_section(TOP, (), blocks, first_line, limit))


def make_anchor(heading: str, taken: dict[str, int]) -> str:
    """Return GitHub's anchor for a heading; a repeated one gets -1, -2 and so on.

    `taken` counts the anchors of the file so far, and is added to. A heading without letters or digits is `section`.
    """
    kept = (c for c in heading.strip().lower() if c in "- " or unicodedata.category(c).startswith(_ANCHOR))
    slug = base = "".join(kept).replace(" ", "-") or "section"
    while slug in taken:
        taken[base] += 1
        slug = f"{base}-{taken[base]}"
    taken[slug] = 0
    return slug


def count_tokens(text: str) -> int:
    """Return about how many tokens a text has.

    One for seven letters, three digits, a sign or a CJK character. On English prose within a quarter of MiniLM's own
    count, eight times as fast, and the same whatever model embeds, so that passage ids outlive a change of model.
    """
    return len(_TOKEN.findall(text))


def _fits(text: str, limit: int) -> bool:
    return len(text) <= limit or count_tokens(text) <= limit


def _parse_text(path: str, text: str, suffix: str, limit: int) -> Parsed:
    about, body, first_line = split_front_matter(text)
    split = split_markdown if suffix == ".md" else split_paragraphs
    heading, parts = split(body, first_line, limit)
    links = [f"{path}:{part.first}-{part.last}" for part in parts]
    return _make_document(path, heading, parts, about, links), list(about.flaws)


def _parse_page(path: str, page: MarkdownPage, limit: int) -> Parsed:
    heading, parts = split_markdown(page.markdown, 1, limit)
    # The document's own heading names it better than the head, which often adds the site's name.
    about = replace(page.about, title=heading or page.about.title)
    return _make_document(path, heading, parts, about, [page.link or path] * len(parts)), list(about.flaws)


def _parse_pdf(path: str, content: bytes, limit: int) -> Parsed:
    title, pages = read_pdf(content)
    parts: list[TextSection] = []
    for page in pages:
        blocks = [_Block(text, page.number, page.number + 1) for text in page.paragraphs]
        parts += _cut_section(f"page-{page.number}", page.bookmarks, blocks, 0, limit)
    links = [f"{path}#page={part.first}" for part in parts]
    return _make_document(path, "", parts, Metadata(title=title), links), []


def _parse_records(path: str, text: str, suffix: str) -> Parsed:
    rows, flaws = read_rows(text, suffix)
    title, dated = _title_from_name(path), parse_day(Path(path).name)
    passages = []
    for row in rows:
        about = replace(row.metadata, as_of=row.metadata.as_of or dated)
        link = f"{path}:{row.first}-{row.last}"
        passages.append(_make_passage(f"{path}#{row.key}", about.title or title, row.text, about, link))
    return Document(path, title, dated, (), tuple(passages)), flaws


def _make_document(
    path: str, heading: str, parts: Sequence[TextSection], about: Metadata, links: Sequence[str]
) -> Document:
    title = about.title or heading or _title_from_name(path)
    about = replace(about, as_of=about.as_of or parse_day(Path(path).name))
    passages = []
    for part, link in zip(parts, links, strict=True):
        under_main = len(part.headings) > 1 and part.headings[0] == heading  # the # heading stands for the title
        crumbs = " > ".join([title, *(h for h in part.headings[under_main:] if h != title)])
        passages.append(_make_passage(f"{path}#{part.slug}", crumbs, part.text, about, link))
    return Document(path, title, about.as_of, about.supersedes, tuple(passages))


def _make_passage(id_: str, title: str, text: str, about: Metadata, link: str) -> Passage:
    # Lone surrogates, which JSON and YAML escapes can spell, cannot be written as UTF-8.
    id_, title, text = (written.encode("utf-8", "replace").decode() for written in (id_, title, text))
    as_of, attributes = about.as_of, about.attributes
    return Passage(id_, "", title, text, as_of=as_of, authority=about.authority, link=link, attributes=attributes)


def _decode_text(content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"not UTF-8 text (byte {error.start})") from error
    if "\0" in text:
        raise UnreadableFile("binary")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _title_from_name(path: str) -> str:
    """Return "refund policy 2024" for `refund-policy_2024.txt`."""
    return Path(path).stem.replace("-", " ").replace("_", " ").strip()


def _read_blocks(tokens: Sequence[Token], at: int, lines: Sequence[str], limit: int) -> Iterator[_Block]:
    token = tokens[at]
    raw = token.content.strip()
    if token.type == "hr" or (token.type == "html_block" and raw.startswith("<!--") and raw.endswith("-->")):
        return
    whole = _make_block(token, lines)
    if token.type in ("bullet_list_open", "ordered_list_open") and not _fits(whole.text, limit):
        for inner in tokens[at + 1 :]:
            if inner.level == 0:
                return
            if inner.type == "list_item_open" and inner.level == 1:
                yield _make_block(inner, lines)
    elif whole.text:
        yield whole


def _make_block(token: Token, lines: Sequence[str]) -> _Block:
    start, end = token.map or (0, 0)
    while end > start and not lines[end - 1].strip():
        end -= 1
    kind = {"table_open": "table", "fence": "code", "code_block": "code"}.get(token.type, "paragraph")
    return _Block("\n".join(lines[start:end]).rstrip(), start, end, kind)


def _heading_text(inline: Token) -> str:
    """Return a heading as its reader sees it, without marks and pictures."""
    shown = {"text": None, "code_inline": None, "softbreak": " ", "hardbreak": " "}
    children = [t for t in inline.children or [] if t.type in shown]
    return "".join(shown[t.type] or t.content for t in children).strip()


def _cut_section(
    slug: str, headings: Sequence[str], blocks: Sequence[_Block], first_line: int, limit: int
) -> Iterator[TextSection]:
    """Yield a section in pieces of about `limit` tokens (`slug`, `slug~2`): tables whole, prose by sentences."""
    groups: list[list[_Block]] = []
    size = 0
    for unit in _group_blocks(blocks, limit):
        length = sum(count_tokens(b.text) for b in unit)
        if not groups or size + length > limit:
            groups.append([])
            size = 0
        groups[-1].extend(unit)
        size += length
    if len(groups) > 1 and size < limit // 4:  # a tail too short to stand alone
        groups[-2].extend(groups.pop())
    above = tuple(h for h in headings if h)
    for n, group in enumerate(groups, 1):
        text = "\n\n".join(b.text for b in group)
        first, last = first_line + group[0].first, first_line + group[-1].last - 1
        yield TextSection(slug if n == 1 else f"{slug}~{n}", above, text, first, last)


def _group_blocks(blocks: Sequence[_Block], limit: int) -> Iterator[list[_Block]]:
    """Yield blocks that stay together, as a table with the paragraph before it."""
    rest = list(blocks)[::-1]
    while rest:
        block = rest.pop()
        if block.kind == "table":
            yield from ([piece] for piece in _cut_table(block, limit * TABLE))
        elif not _fits(block.text, limit):
            yield from ([replace(block, text=piece)] for piece in _text_splitter(limit).chunks(block.text))
        else:
            tabled = rest and (block.kind, rest[-1].kind) == ("paragraph", "table")
            yield [block, rest.pop()] if tabled and _fits(rest[-1].text, limit * TABLE) else [block]


def _cut_table(table: _Block, limit: int) -> Iterator[_Block]:
    """Yield the table, or a huge one in several, each under the header again."""
    if _fits(table.text, limit):
        yield table
        return
    lines = table.text.split("\n")
    header, rows = lines[:2], lines[2:]
    kept: list[str] = []
    size = 0
    for at, row in enumerate([*rows, ""]):
        length = count_tokens(row)
        if kept and (size + length > limit or at == len(rows)):
            start = table.first + 2 + at - len(kept)
            yield _Block("\n".join([*header, *kept]), start, start + len(kept), "table")
            kept, size = [], 0
        kept.append(row)
        size += length


@lru_cache(maxsize=16)
def _text_splitter(limit: int) -> TextSplitter:
    return TextSplitter.from_callback(count_tokens, limit)
