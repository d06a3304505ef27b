"""The bytes of one file as a document: a list of passages, each with its breadcrumb, date and place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from program.knowledge.ingest import metadata, records
from program.knowledge.ingest.chunks import TOKENS, Section
from program.knowledge.ingest.convert import Page, Unreadable, read_docx, read_html, read_pdf
from program.knowledge.ingest.markdown import paragraphs, sections
from program.passage import Flaw, Passage
from program.settings import MAX_MEGABYTES

READ = (".md", ".txt", ".html", ".htm", ".pdf", ".docx", ".csv", ".jsonl")
"""Endings of the files that are read."""

MEGABYTES = MAX_MEGABYTES
"""Size above which a file is skipped unless its base says otherwise."""


@dataclass(frozen=True, slots=True)
class Document:
    """One file: `path` is `<base>/<file relative to the base>`; `supersedes` holds such paths."""

    path: str
    title: str
    as_of: date | None
    supersedes: tuple[str, ...]
    passages: tuple[Passage, ...]


Parsed = tuple[Document, list[Flaw]]
"""A document, and what is wrong with its file, without the file's name."""


def parse(path: str, content: bytes, limit: int = TOKENS, megabytes: float = MEGABYTES) -> Parsed:
    """The document in a file's bytes, by the ending of `path`; passages have no source and method yet.

    `limit` is a passage's size in tokens. Raises Unreadable, saying why, for what is not what its name says.
    """
    suffix = Path(path).suffix.lower()
    try:
        if suffix == ".pdf":
            document, flaws = _pages(path, content, limit)
        elif suffix == ".docx":
            document, flaws = _page(path, read_docx(content, int(megabytes * 1e6)), limit)
        elif suffix in (".html", ".htm"):
            document, flaws = _page(path, read_html(content), limit)
        elif suffix in (".jsonl", ".csv"):
            document, flaws = _records(path, _text(content), suffix)
        else:
            document, flaws = _prose(path, _text(content), suffix, limit)
    except Unreadable:
        raise
    except Exception as error:  # whatever a parser makes of a broken file, the file alone is lost
        reason = " ".join(str(error).split())[:120].rstrip(".")
        raise Unreadable(f"no readable {suffix} file ({type(error).__name__}: {reason})") from error
    passages = tuple(replace(p, id=_sound(p.id), title=_sound(p.title), text=_sound(p.text)) for p in document.passages)
    return replace(document, passages=passages), flaws


def _text(content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8 text (byte {error.start})") from error
    if "\0" in text:
        raise Unreadable("binary")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _prose(path: str, text: str, suffix: str, limit: int) -> Parsed:
    about, body, first_line = metadata.split(text)
    if suffix == ".md":
        heading, parts = sections(body, first_line, limit)
    else:
        heading, parts = "", paragraphs(body, first_line, limit)
    links = [f"{path}:{part.first}-{part.last}" for part in parts]
    return _document(path, heading, parts, about, links), list(about.flaws)


def _page(path: str, page: Page, limit: int) -> Parsed:
    heading, parts = sections(page.markdown, 1, limit)
    # The document's own heading names it better than the head, which often adds the site's name.
    about = replace(page.about, title=heading or page.about.title)
    return _document(path, heading, parts, about, [page.link or path] * len(parts)), list(about.flaws)


def _pages(path: str, content: bytes, limit: int) -> Parsed:
    title, parts = read_pdf(content, limit)
    links = [f"{path}#page={part.first}" for part in parts]
    return _document(path, "", parts, metadata.Metadata(title=title), links), []


def _document(
    path: str, heading: str, parts: Sequence[Section], about: metadata.Metadata, links: Sequence[str]
) -> Document:
    title = about.title or heading or _stem(path)
    as_of = about.as_of or metadata.day(path.rpartition("/")[2])
    passages = tuple(
        Passage(
            id=f"{path}#{part.slug}",
            source="",
            title=" > ".join((title, *_crumbs(part, title, heading))),
            text=part.text,
            as_of=as_of,
            authority=about.authority,
            link=link,
            attributes=about.attributes,
        )
        for part, link in zip(parts, links, strict=True)
    )
    return Document(path, title, as_of, about.supersedes, passages)


def _crumbs(part: Section, title: str, heading: str) -> tuple[str, ...]:
    """The headings that the title does not already say: the document's # heading stands for the title."""
    under_main = len(part.path) > 1 and part.path[0] == heading
    return tuple(h for h in part.path[under_main:] if h != title)


def _records(path: str, text: str, suffix: str) -> Parsed:
    rows = records.read_jsonl(text) if suffix == ".jsonl" else records.read_csv(text)
    title, dated = _stem(path), metadata.day(path.rpartition("/")[2])
    passages = tuple(
        Passage(
            id=f"{path}#{row.key}",
            source="",
            title=row.title or title,
            text=row.text,
            as_of=row.metadata.as_of or dated,
            authority=row.metadata.authority,
            link=f"{path}:{row.first}-{row.last}",
            attributes=row.metadata.attributes,
        )
        for row in rows.records
    )
    return Document(path, title, dated, (), passages), rows.flaws


def _sound(text: str) -> str:
    """The text without lone surrogates, which JSON and YAML escapes can spell and UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()


def _stem(path: str) -> str:
    """A title from the file's name: `refund-policy_2024.txt` is "refund policy 2024"."""
    return Path(path).stem.replace("-", " ").replace("_", " ").strip()
