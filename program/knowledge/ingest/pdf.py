"""PDF files as pages of paragraphs."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from program.knowledge.ingest.convert import UnreadableFile
from program.passage import Flaw

if TYPE_CHECKING:
    from pypdf import PdfReader

OCR = "Run it through OCR, if they are pictures of text."
_HYPHEN = re.compile(r"(?<=[^\W\d_])-\n(?=[a-z])")  # a word that a PDF's line parts


@dataclass(frozen=True, slots=True)
class PdfPage:
    """A page's text under a chain of bookmarks; numbers count from 1."""

    number: int
    bookmarks: tuple[str, ...]
    text: str


def read_pdf(content: bytes) -> tuple[str, list[PdfPage], list[Flaw]]:
    """Return a PDF's title, pages and flaws. Raises `UnreadableFile` without text."""
    from pypdf import PdfReader

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # what is wrong with a file is told once, by its name
    reader = PdfReader(io.BytesIO(content))
    if reader.is_encrypted and not reader.decrypt(""):
        raise UnreadableFile("it is encrypted", "Save it without a password.")
    title = str((reader.metadata and reader.metadata.title) or "")
    bookmarks = _read_bookmarks(reader)
    pages: list[PdfPage] = []
    above: tuple[str, ...] = ()
    for number, page in enumerate(reader.pages, 1):
        above = bookmarks.get(number, above)
        lines = ""
        with suppress(Exception):  # whatever pypdf makes of a broken page, the page alone is lost, and counted
            lines = "\n".join(line.strip() for line in page.extract_text().split("\n"))
        pages.append(PdfPage(number, above, _HYPHEN.sub("", lines).strip()))
    empty = [page.number for page in pages if not page.text]
    if pages and len(empty) == len(pages):
        raise UnreadableFile("it holds no text, only pictures of it", "Run it through OCR first.")
    holds = "holds" if len(empty) == 1 else "hold"
    what = f"{len(empty)} of {len(pages)} pages {holds} no text"
    flaws = [Flaw(f"{what}, page {empty[0]} the first", OCR, lost=False)] if empty else []
    return " ".join(title.split()), pages, flaws


def _read_bookmarks(reader: PdfReader) -> dict[int, tuple[str, ...]]:
    """Return the chain of bookmarks at each page that one of them leads to."""
    found: dict[int, tuple[str, ...]] = {}

    def walk_outline(items: Sequence[Any], above: tuple[str, ...]) -> None:
        last = above
        for item in items:
            if isinstance(item, list):
                walk_outline(item, last)
                continue
            last = (*above, " ".join(str(item.title).split()))
            page = reader.get_destination_page_number(item)
            if page is not None and page >= 0:
                found.setdefault(page + 1, last)

    try:
        walk_outline(reader.outline, ())
    except Exception:  # bookmarks are a nicety: a PDF whose outline is broken still has its text
        return {}
    return found
