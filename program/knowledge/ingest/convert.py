"""Markdown, HTML and Word files as blocks of plain text, each through a tree of HTML."""

from __future__ import annotations

import io
import re
import zipfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt

from program.errors import RagcError
from program.knowledge.ingest.blocks import LINES, PLACE, Block, is_hidden, read_blocks
from program.knowledge.ingest.bounds import list_open_tags, parse_html
from program.knowledge.ingest.metadata import Metadata, parse_day, read_fields
from program.passage import Flaw

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

_FURNITURE = ("nav", "header", "footer", "aside", "form")  # of the site, where `_is_furniture` says so
_MAIN = ("main", "article", "[role=main]", "body")
_DATES = ("article:modified_time", "article:published_time", "date", "dc.date", "dcterms.modified", "last-modified")
_MAIN_SHARE = 0.3  # of a page's text that its <main> or <article> must hold to stand for it
_WRAPPER = 0.5  # of a page's text from which on a form, or what else holds it, is the page
_UNPACKED = 20  # times its own size that a Word file may unpack to
_RAW_HTML = ("html_block", "html_inline")
_MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


class UnreadableFile(RagcError):
    """A file that cannot be read; `what` is the reason, without the file's name and a stop."""


@dataclass(frozen=True, slots=True)
class Page:
    """A document's blocks, what its head says, and the address it is from."""

    blocks: list[Block]
    about: Metadata
    link: str = ""


def read_markdown(text: str) -> list[Block]:
    """Return the blocks of a Markdown text with tables, as what renders it shows it."""
    tokens = _MARKDOWN.parse(text)
    for token in tokens:
        if token.map and token.nesting >= 0:
            token.attrSet(LINES, f"{token.map[0]} {token.map[1]}")
        if token.type == "html_block" and token.map:
            token.content = f"<{PLACE} {LINES}='{token.map[0]} {token.map[1]}'></{PLACE}>{token.content}"
    raw = any(one.type in _RAW_HTML for token in tokens for one in (token, *(token.children or ())))
    return read_blocks(parse_html(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}), raw))


def convert_html(content: bytes | str) -> Page:
    """Return the main part of a web page, without menus, scripts and forms.

    A flaw says what was left out.
    """
    soup = parse_html(content)
    about = _read_head(soup)
    canonical = soup.select_one("link[rel=canonical]")
    link = str(canonical.get("href") or "") if canonical else ""
    for element in soup(is_hidden):
        element.decompose()
    whole = len(soup.get_text())
    left_out = [element for element in soup(_FURNITURE) if _is_furniture(element, whole)]
    words = sum(len(element.extract().get_text(" ").split()) for element in left_out)
    names = ", ".join(f"<{name}>" for name in _FURNITURE if any(element.name == name for element in left_out))
    found = (soup.select_one(name) for name in _MAIN)
    main = next((part for part in found if part is not None and len(part.get_text()) >= _MAIN_SHARE * whole), soup)
    if outside := len(soup.get_text(" ").split()) - len(main.get_text(" ").split()):
        words, names = words + outside, ", ".join(filter(None, (names, f"what stands outside <{main.name}>")))
    mend = "Put what answers questions into the page's <main>."
    flaws = (Flaw(f"{words} words were left out as page furniture: {names}", mend, lost=False),) if words else ()
    about = replace(about, flaws=(*about.flaws, *flaws, *list_open_tags(soup)))
    return Page(read_blocks(main), about, link if link.startswith(("http://", "https://")) else "")


def convert_docx(content: bytes, max_bytes: int) -> Page:
    """Return a Word document. Raises `UnreadableFile` for none, or past `max_bytes`."""
    import mammoth

    try:
        with zipfile.ZipFile(io.BytesIO(content)) as parts:
            size = sum(part.file_size for part in parts.infolist())
            if size <= max(max_bytes, _UNPACKED * len(content)):
                _refuse_entities(parts)
            core = parts.read("docProps/core.xml") if "docProps/core.xml" in parts.namelist() else b""
    except zipfile.BadZipFile as error:
        raise UnreadableFile("no Word document (.docx), or an encrypted one", "Save it anew as .docx.") from error
    if size > max(max_bytes, _UNPACKED * len(content)):
        raise UnreadableFile(f"it unpacks to {size / 1e6:.0f} MB", "Cut it up, or raise max_megabytes.")
    pictures: Any = mammoth.images.img_element(lambda _: {})
    html = mammoth.convert_to_html(io.BytesIO(content), convert_image=pictures).value
    title = re.search(rb"<dc:title>([^<]*)</dc:title>", core)
    about = read_fields({"title": title[1].decode("utf-8", "replace") if title else ""})
    return Page(read_blocks(parse_html(html), header_row=True), about)


def _refuse_entities(parts: zipfile.ZipFile) -> None:
    """Raise `UnreadableFile` where a part defines entities: no Word does, and a few of them fill any memory."""
    for name in (one for one in parts.namelist() if one.endswith((".xml", ".rels"))):
        if b"<!ENTITY" in parts.read(name).replace(b"\0", b""):  # in UTF-16, too
            raise UnreadableFile(f"its part {name} defines entities", "Save it anew as .docx.")


def _is_furniture(element: Tag, whole: int) -> bool:
    """Tell whether an element is the site's: it holds not the most of the text, nor is it the article's own."""
    if len(element.get_text()) >= _WRAPPER * whole:
        return False
    return element.name in ("nav", "form") or element.find_parent(("main", "article")) is None


def _read_head(soup: BeautifulSoup) -> Metadata:
    """Return title and date of the page's head, else its first time element's date."""
    named = {
        str(tag.get("property") or tag.get("name") or tag.get("http-equiv")).lower(): str(tag.get("content") or "")
        for tag in soup("meta")
    }
    moment = soup.select_one("time[datetime]")
    written = [named.get(name, "") for name in _DATES] + [str(moment.get("datetime")) if moment else ""]
    as_of = next((found.isoformat() for text in written if (found := parse_day(text))), "")
    title = named.get("og:title") or (soup.title.get_text() if soup.title else "")
    readers: object = named.get("readers") or [] if "readers" in named else ""
    return read_fields({"title": title, "as_of": as_of, "readers": readers})
