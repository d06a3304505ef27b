"""HTML, Word and PDF files as what the Markdown reader takes: Markdown, or a page's paragraphs."""

from __future__ import annotations

import io
import logging
import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from program.errors import RagcError
from program.knowledge.ingest.chunks import TOKENS, Block, Section, cut
from program.knowledge.ingest.metadata import Metadata, day, read

if TYPE_CHECKING:
    from bs4 import BeautifulSoup
    from pypdf import PdfReader

_FURNITURE = ("script", "style", "noscript", "template", "svg", "iframe", "form", "nav", "aside")
_MAIN = ("main", "article", "[role=main]", "body")
_DATES = ("article:modified_time", "article:published_time", "date", "dc.date", "dcterms.modified", "last-modified")
_LEAST = 0.3  # share of a page's text that its <main> or <article> must hold to stand for it
_FULL = 0.6  # share of the widest line above which a line of a PDF goes on in the next
_SWELL = 20  # times its own size that a Word file may unpack to


class Unreadable(RagcError):
    """A file that cannot be read; `what` is the reason, without the file's name."""


@dataclass(frozen=True, slots=True)
class Page:
    """A document as Markdown, with what its own head says of it; `link` is the address it was saved from."""

    markdown: str
    about: Metadata
    link: str = ""


def read_html(content: bytes | str) -> Page:
    """The main part of a web page: menus, scripts and forms left out, headings, lists and tables kept."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(content, "html.parser")
    about = _about(soup)
    canonical = soup.select_one("link[rel=canonical]")
    link = str(canonical.get("href") or "") if canonical else ""
    for element in soup(_FURNITURE):
        element.decompose()
    for element in soup(("header", "footer")):  # those of the site, not of the article, which may hold its title
        if element.find_parent(("main", "article")) is None:
            element.decompose()
    whole = len(soup.get_text())
    found = (soup.select_one(name) for name in _MAIN)
    main = next((part for part in found if part is not None and len(part.get_text()) >= _LEAST * whole), soup)
    return Page(_markdown(str(main)), about, link if link.startswith(("http://", "https://")) else "")


def read_docx(content: bytes, limit: int) -> Page:
    """A Word document, its heading styles as headings and its tables as tables; pictures are left out.

    Raises Unreadable for a file that is none, or that unpacks to more than `limit` bytes.
    """
    import mammoth

    try:
        with zipfile.ZipFile(io.BytesIO(content)) as parts:
            size = sum(part.file_size for part in parts.infolist())
            core = parts.read("docProps/core.xml") if "docProps/core.xml" in parts.namelist() else b""
    except zipfile.BadZipFile as error:
        raise Unreadable("no Word document (.docx), or an encrypted one") from error
    if size > max(limit, _SWELL * len(content)):
        raise Unreadable(f"it unpacks to {size / 1e6:.0f} MB")
    pictures: Any = mammoth.images.img_element(lambda _: {})
    html = mammoth.convert_to_html(io.BytesIO(content), convert_image=pictures).value
    title = re.search(rb"<dc:title>([^<]*)</dc:title>", core)
    about = read({"title": title[1].decode("utf-8", "replace") if title else ""})
    return Page(_markdown(html), about)


def read_pdf(content: bytes, limit: int = TOKENS) -> tuple[str, list[Section]]:
    """A PDF's title (or an empty string) and its pages as sections `page-1`, `page-2`, ... under its bookmarks.

    `first` and `last` are page numbers. Raises Unreadable when it is encrypted, or holds pictures only.
    """
    from pypdf import PdfReader

    with _quiet("pypdf"):
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("it is encrypted; save it without a password")
        title = str((reader.metadata and reader.metadata.title) or "")
        marks = _bookmarks(reader)
        found: list[Section] = []
        above: tuple[str, ...] = ()
        for number, page in enumerate(reader.pages, 1):
            above = marks.get(number, above)
            blocks = [Block(text, number, number + 1) for text in _paragraphs(page.extract_text() or "")]
            found += cut(f"page-{number}", above, blocks, 0, limit)
        if not found and len(reader.pages):
            raise Unreadable("it holds no text, only pictures of it; run it through OCR first")
    return " ".join(title.split()), found


def _about(soup: BeautifulSoup) -> Metadata:
    """Title and date as the page's head gives them, else its first time element's date."""
    named = {
        str(tag.get("property") or tag.get("name") or tag.get("http-equiv")).lower(): str(tag.get("content") or "")
        for tag in soup("meta")
    }
    moment = soup.select_one("time[datetime]")
    written = [named.get(name, "") for name in _DATES] + [str(moment.get("datetime")) if moment else ""]
    as_of = next((found.isoformat() for text in written if (found := day(text))), "")
    title = named.get("og:title") or (soup.title.get_text() if soup.title else "")
    return read({"title": title, "as_of": as_of})


def _markdown(html: str) -> str:
    from markdownify import markdownify

    text = markdownify(html, heading_style="ATX", strip=["img", "a"], escape_asterisks=False, escape_underscores=False)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text)).strip() + "\n"


def _bookmarks(reader: PdfReader) -> dict[int, tuple[str, ...]]:
    """The chain of bookmarks that holds at the start of each page which one of them leads to."""
    found: dict[int, tuple[str, ...]] = {}

    def walk(items: Sequence[Any], above: tuple[str, ...]) -> None:
        last = above
        for item in items:
            if isinstance(item, list):
                walk(item, last)
                continue
            last = (*above, " ".join(str(item.title).split()))
            page = reader.get_destination_page_number(item)
            if page is not None and page >= 0:
                found.setdefault(page + 1, last)

    try:
        walk(reader.outline, ())
    except Exception:  # bookmarks are a nicety: a PDF whose outline is broken still has its text
        return {}
    return found


def _paragraphs(text: str) -> Iterator[str]:
    """A page's text with lines that run on joined: a full line that ends no sentence goes on in the next."""
    for part in re.split(r"\n\s*\n", text):
        lines = [line.strip() for line in part.split("\n") if line.strip()]
        if not lines:
            continue
        widest = max(map(len, lines))
        joined = lines[0]
        for before, line in pairwise(lines):
            if re.search(r"[^\W\d_]-$", joined) and line[:1].islower():
                joined = joined[:-1] + line
            elif len(before) >= _FULL * widest and not re.search(r"[.!?:;]$", before):
                joined += f" {line}"
            else:
                joined += f"\n{line}"
        yield joined


@contextmanager
def _quiet(library: str) -> Iterator[None]:
    """Without the library's own warnings on stderr: what is wrong with a file is told once, by its name."""
    logger = logging.getLogger(library)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
