"""HTML and Word files as Markdown."""

from __future__ import annotations

import io
import re
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from program.errors import RagcError
from program.knowledge.ingest.metadata import Metadata, parse_day, read_fields

if TYPE_CHECKING:
    from bs4 import BeautifulSoup

_FURNITURE = ("script", "style", "noscript", "template", "svg", "iframe", "form", "nav", "aside")
_MAIN = ("main", "article", "[role=main]", "body")
_DATES = ("article:modified_time", "article:published_time", "date", "dc.date", "dcterms.modified", "last-modified")
_MAIN_SHARE = 0.3  # of a page's text that its <main> or <article> must hold to stand for it
_UNPACKED = 20  # times its own size that a Word file may unpack to


class UnreadableFile(RagcError):
    """A file that cannot be read; `what` is the reason, without the file's name and a stop."""


@dataclass(frozen=True, slots=True)
class MarkdownPage:
    """A document as Markdown, what its head says, and the address it is from."""

    markdown: str
    about: Metadata
    link: str = ""


def convert_html(content: bytes | str) -> MarkdownPage:
    """Return the main part of a web page, without menus, scripts and forms."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(content, "html.parser")
    about = _read_head(soup)
    canonical = soup.select_one("link[rel=canonical]")
    link = str(canonical.get("href") or "") if canonical else ""
    for element in soup(_FURNITURE):
        element.decompose()
    for element in soup(("header", "footer")):  # those of the site, not of the article, which may hold its title
        if element.find_parent(("main", "article")) is None:
            element.decompose()
    whole = len(soup.get_text())
    found = (soup.select_one(name) for name in _MAIN)
    main = next((part for part in found if part is not None and len(part.get_text()) >= _MAIN_SHARE * whole), soup)
    return MarkdownPage(_to_markdown(str(main)), about, link if link.startswith(("http://", "https://")) else "")


def convert_docx(content: bytes, max_bytes: int) -> MarkdownPage:
    """Return a Word document. Raises `UnreadableFile` for none, or past `max_bytes`."""
    import mammoth

    try:
        with zipfile.ZipFile(io.BytesIO(content)) as parts:
            size = sum(part.file_size for part in parts.infolist())
            core = parts.read("docProps/core.xml") if "docProps/core.xml" in parts.namelist() else b""
    except zipfile.BadZipFile as error:
        raise UnreadableFile("no Word document (.docx), or an encrypted one", "Save it anew as .docx.") from error
    if size > max(max_bytes, _UNPACKED * len(content)):
        raise UnreadableFile(f"it unpacks to {size / 1e6:.0f} MB", "Cut it up, or raise max_megabytes.")
    pictures: Any = mammoth.images.img_element(lambda _: {})
    html = mammoth.convert_to_html(io.BytesIO(content), convert_image=pictures).value
    title = re.search(rb"<dc:title>([^<]*)</dc:title>", core)
    about = read_fields({"title": title[1].decode("utf-8", "replace") if title else ""})
    return MarkdownPage(_to_markdown(html), about)


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
    return read_fields({"title": title, "as_of": as_of})


def _to_markdown(html: str) -> str:
    from markdownify import markdownify

    text = markdownify(html, heading_style="ATX", strip=["img", "a"], escape_asterisks=False, escape_underscores=False)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text)).strip() + "\n"
