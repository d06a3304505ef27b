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
from itertools import groupby
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from semantic_text_splitter import TextSplitter

from program.knowledge.ingest.convert import UnreadableFile, convert_docx, convert_html
from program.knowledge.ingest.csv_rows import SUFFIXES
from program.knowledge.ingest.decode import decode_text
from program.knowledge.ingest.metadata import Metadata, parse_day, split_front_matter
from program.knowledge.ingest.pdf import read_pdf
from program.knowledge.ingest.records import read_rows
from program.passage import Flaw, Passage
from program.settings import CHUNK_TOKENS, MAX_MEGABYTES

READ = (".md", ".txt", ".html", ".htm", ".pdf", ".docx", *SUFFIXES, ".jsonl")  # endings of the files that are read
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
        if suffix in (".jsonl", *SUFFIXES):
            return _parse_records(path, content, suffix)
        about, heading, parts, links = _read_parts(path, content, suffix, limit, megabytes)
        return _make_document(path, heading, parts, about, links), list(about.flaws)
    except UnreadableFile:
        raise
    except Exception as error:  # whatever a parser makes of a broken file, the file alone is lost
        reason = " ".join(str(error).split())[:120].rstrip(".")
        why = f"no readable {suffix} file ({type(error).__name__}: {reason})"
        raise UnreadableFile(why, "Open it in the program it is from, and save it anew.") from error


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
    lines = groupby(enumerate(text.split("\n")), lambda numbered: bool(numbered[1].strip()))
    runs = [list(run) for written, run in lines if written]
    blocks = [_Block("\n".join(line for _, line in run), run[0][0], run[-1][0] + 1) for run in runs]
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


def _read_parts(
    path: str, content: bytes, suffix: str, limit: int, megabytes: float
) -> tuple[Metadata, str, list[TextSection], list[str]]:
    """Return what a file says of itself, its # heading, its sections, and a link to each."""
    if suffix == ".pdf":
        title, pages, flaws = read_pdf(content)
        cut = [(page, part) for page in pages for part in split_paragraphs(page.text, 1, limit)[1]]
        slugs = [f"page-{page.number}{part.slug.removeprefix(TOP)}" for page, part in cut]
        parts = [
            replace(part, slug=slug, headings=page.bookmarks) for (page, part), slug in zip(cut, slugs, strict=True)
        ]
        return Metadata(title=title, flaws=tuple(flaws)), "", parts, [f"{path}#page={page.number}" for page, _ in cut]
    if suffix in (".docx", ".html", ".htm"):
        page = convert_docx(content, int(megabytes * 1e6)) if suffix == ".docx" else convert_html(content)
        heading, parts = split_markdown(page.markdown, 1, limit)
        # The document's own heading names it better than the head, which often adds the site's name.
        about = replace(page.about, title=heading or page.about.title)
        return about, heading, parts, [page.link or path] * len(parts)
    text, doubts = decode_text(content)
    about, body, first_line = split_front_matter(text)
    about = replace(about, flaws=(*doubts, *about.flaws))
    heading, parts = (split_markdown if suffix == ".md" else split_paragraphs)(body, first_line, limit)
    return about, heading, parts, [f"{path}:{part.first}-{part.last}" for part in parts]


def _parse_records(path: str, content: bytes, suffix: str) -> Parsed:
    text, doubts = decode_text(content)
    above, rows, flaws = read_rows(text, suffix)
    title, dated = above or _title_from_name(path), parse_day(Path(path).name)
    passages = []
    for row in rows:
        about = replace(row.metadata, as_of=row.metadata.as_of or dated)
        link = f"{path}:{row.first}-{row.last}"
        passages.append(_make_passage(f"{path}#{row.key}", about.title or title, row.text, about, link))
    return Document(path, title, dated, (), tuple(passages)), [*doubts, *flaws]


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
    units = list(_group_blocks(blocks, limit))
    sizes = [sum(count_tokens(b.text) for b in unit) for unit in units]
    runs = list(_pack_runs(sizes, limit))
    if len(runs) > 1 and sum(sizes[runs[-1]]) < limit // 4:  # a tail too short to stand alone
        runs[-2:] = [slice(runs[-2].start, runs[-1].stop)]
    above = tuple(h for h in headings if h)
    for n, run in enumerate(runs, 1):
        group = [b for unit in units[run] for b in unit]
        text = "\n\n".join(b.text for b in group)
        first, last = first_line + group[0].first, first_line + group[-1].last - 1
        yield TextSection(slug if n == 1 else f"{slug}~{n}", above, text, first, last)


def _pack_runs(sizes: Sequence[int], limit: int) -> Iterator[slice]:
    """Yield runs of neighbours that add up to `limit` at most; a larger one stands alone."""
    start = total = 0
    for at, size in enumerate(sizes):
        if at > start and total + size > limit:
            yield slice(start, at)
            start, total = at, 0
        total += size
    if sizes:
        yield slice(start, len(sizes))


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
    header, rows = table.text.split("\n")[:2], table.text.split("\n")[2:]
    for run in _pack_runs([count_tokens(row) for row in rows], limit):
        start = table.first + 2
        yield _Block("\n".join([*header, *rows[run]]), start + run.start, start + run.stop, "table")


@lru_cache(maxsize=16)
def _text_splitter(limit: int) -> TextSplitter:
    return TextSplitter.from_callback(count_tokens, limit)
