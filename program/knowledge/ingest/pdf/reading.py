"""PDF files as blocks of plain text, each with the page that it begins on."""

from __future__ import annotations

import math
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from statistics import median, median_low

import pypdfium2 as pdfium
from pypdfium2.raw import FPDF_ERR_PASSWORD

from ragc.knowledge.ingest.blocks import INNER_HEADING, Block
from ragc.knowledge.ingest.convert import Page, UnreadableFile
from ragc.knowledge.ingest.lines import NARROW
from ragc.knowledge.ingest.metadata import Metadata, drop_generated_title
from ragc.knowledge.ingest.pdf.layout import Line, Table, arrange, make_lines, place_fields, stack_lines
from ragc.knowledge.ingest.pdf.ocr import open_ocr, read_scan
from ragc.knowledge.ingest.pdf.pages import PdfPage, View, read_page
from ragc.knowledge.ingest.pdf.tables import find_tables
from ragc.knowledge.ingest.table_rows import format_table, has_header
from ragc.passage import Flaw
from ragc.text.pieces import SENTENCE_ENDS
from ragc.text.words import is_known_word

OCR = "For OCR of its pictures install the extra `ocr` (rapidocr), and index again."
LARGE, LARGER = 1.07, 1.15  # times the size of the text from which on bold, and other, lines may be headings
MOST_HEADING = 15  # words of a heading
PROSE = 0.3  # of the lines of a text begin within a sentence, at least
LONGEST = 80  # letters of a compound that a line's end parts
MOST_EDGE = 3  # lines of a running head, or foot
_ONE_AT_A_TIME = threading.Lock()  # PDFium is not made for several threads
_ITEM = re.compile(r"([•\-–*]|\(?(?:\d{1,3}|[a-z])[.)]) +(?=\S)")
_BEFORE, _AFTER = re.compile(r"((?:[^\W\d_]+-)*)([^\W\d_]+)-$"), re.compile(r"[^\W\d_]+")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_ENDS = (*SENTENCE_ENDS, ":", ";")


@dataclass(slots=True)
class _Draft:
    """A block that may go on: its page, from 0, its last line, and where the lines of its column end."""

    kind: str
    text: str
    page: int
    last: Line
    right: float = 0.0
    joined: bool = False
    lines: int = 1
    level: int = 0


def read_pdf(content: bytes) -> Page:
    """Return a PDF, the lines of its blocks being its pages.

    Raises `UnreadableFile` without text.
    """
    with _ONE_AT_A_TIME:
        try:
            pdf = pdfium.PdfDocument(content)
        except pdfium.PdfiumError as error:
            if error.err_code == FPDF_ERR_PASSWORD:
                raise UnreadableFile("it is encrypted", "Save it without a password.") from error
            raise
        with pdf:
            pdf.init_forms()
            pages = [_read_page(pdf, n) for n in range(len(pdf))]
            title = drop_generated_title(pdf.get_metadata_value("Title"))
            bookmarks = _read_bookmarks(pdf)
    if all(map(_is_empty, pages)):
        raise UnreadableFile("it holds no text, only pictures of it", _name_remedy())
    writer = _Writer(pages)
    blocks = writer.write(bookmarks)
    if not title and blocks:
        first = blocks[0]
        if all(block.kind != "heading" or not block.text for block in blocks) and first.kind == "paragraph":
            short = len(first.text.split()) <= MOST_HEADING and not re.search(r"[:\n]|[.;,]$", first.text)
            title = first.text if short else ""
    return Page(blocks, Metadata(title=title, flaws=tuple(_list_flaws(pages, writer.edges))), first_line=1)


def _list_flaws(pages: Sequence[PdfPage], edges: Sequence[str]) -> Iterator[Flaw]:
    """Yield what of pages was not read, was left out, or may be wrong."""
    for what, places in (
        ("no text", [n for n, page in enumerate(pages, 1) if _is_empty(page)]),
        ("little but pictures", [n for n, page in enumerate(pages, 1) if page.is_scan and not _is_empty(page)]),
    ):
        if places:
            hold = f"{len(places)} of {len(pages)} pages {'holds' if len(places) == 1 else 'hold'}"
            yield Flaw(f"{hold} {what}, page {places[0]} the first", _name_remedy(), lost=False)
    if by_ocr := sum(page.by_ocr for page in pages):
        what = f"{by_ocr} {'page of pictures was' if by_ocr == 1 else 'pages of pictures were'} read by OCR"
        yield Flaw(what, "Look over what answers questions; figures may be misread.", lost=False)
    if edges:
        shown = ", ".join(f"“{text}”" for text in edges[:MOST_EDGE])
        what = f"running heads and feet of pages were left out: {shown}"
        yield Flaw(what, "Put what answers questions into the text of a page.", lost=False)
    if hidden := [(n, page.hidden) for n, page in enumerate(pages, 1) if page.hidden]:
        (first_page, words), count = hidden[0], sum(len(words) for _, words in hidden)
        what = f"{count} words that no page shows were left out, page {first_page} the first: “{' '.join(words[:8])}”"
        yield Flaw(what, "Show them, or take them out.", lost=False)
    if lost := [(n, page.unmapped) for n, page in enumerate(pages, 1) if page.unmapped]:
        what = f"{sum(count for _, count in lost)} signs stand for no letter, page {lost[0][0]} the first"
        yield Flaw(what, "Save it anew with its fonts, or run it through OCR.")


def _is_empty(page: PdfPage) -> bool:
    return not any(view.words or view.fields for view in page.views)


def _name_remedy() -> str:
    """Return what lets pictures of text be read, or their text."""
    return OCR if open_ocr() is None else "Write what they say into a text, as OCR reads nothing there."


def _read_page(pdf: pdfium.PdfDocument, n: int) -> PdfPage:
    with suppress(Exception):  # whatever PDFium makes of a broken page, the page alone is lost, and counted
        page = read_page(pdf[n])
        if (page.is_scan or not page.views[0].words) and (words := read_scan(pdf[n])):
            return PdfPage([View(words, fields=page.views[0].fields)], by_ocr=True)
        return page
    return PdfPage([])


def _read_bookmarks(pdf: pdfium.PdfDocument) -> dict[int, dict[str, int]]:
    """Return the bookmarks that lead to each page, from 0, with their level, from 1."""
    found: dict[int, dict[str, int]] = {}
    with suppress(Exception):  # bookmarks are a nicety: a PDF whose outline is broken still has its text
        for mark in pdf.get_toc():
            place, title = mark.get_dest(), " ".join(mark.get_title().split())
            if place is not None and place.get_index() is not None and title:
                found.setdefault(place.get_index(), {})[title] = mark.level + 1
    return found


class _Writer:
    """The lines and tables of all pages, written as blocks in the order in which they are read."""

    def __init__(self, pages: Sequence[PdfPage]) -> None:
        self.drafts: list[_Draft] = []
        self.shape, self.header = (0, 0), [list[str]()]  # of the table that may go on on the next page
        self.pages: list[list[tuple[list[Line], list[Table]]]] = []
        for page in pages:
            found = ((view, *find_tables(view)) for view in page.views)
            self.pages.append([(place_fields(make_lines(words), view.fields), tables) for view, tables, words in found])
        self.edges = _take_edges([lines for views in self.pages for lines, _ in views[:1]])
        every = [line for views in self.pages for lines, tables in views for line in (*lines, *_list_lines(tables))]
        sizes = Counter[float]()
        for line in every:
            sizes[round(line.size, 1)] += len(line.text)
        self.size = max(sizes, key=lambda size: sizes[size], default=10.0)
        for line in (line for views in self.pages for lines, _ in views[1:] for line in lines):
            line.size, line.bold = self.size, False  # what is read in another direction heads nothing
        self.bold = 2 * sum(len(line.text) for line in every if line.bold) > sum(sizes.values())
        self.margins: dict[int, float] = {}  # by where lines begin, how far those reach that go on below
        for (lines, _), *_ in filter(None, self.pages):
            for line, below in pairwise(sorted(lines, key=lambda line: (round(line.x0), line.y))):
                if _style(line) == _style(below) and round(line.x0) == round(below.x0) and _goes_on(below):
                    self.margins[round(line.x0)] = max(self.margins.get(round(line.x0), 0.0), line.x1)
        inner = (line.text.split()[1 : -1 if line.text.endswith("-") else None] for line in every)  # no parted words
        self.words = {word for words in inner for word in _WORD.findall(" ".join(words).lower())}

    def write(self, bookmarks: Mapping[int, Mapping[str, int]]) -> list[Block]:
        """Return the blocks; an empty heading stands where another page begins."""
        for n, views in enumerate(self.pages):
            for lines, tables in views:
                for at, part in enumerate(arrange([*lines, *tables])):
                    if isinstance(part, Table):
                        self._add_table(part, n, first=at == 0)
                    else:
                        self._add_column(part, n)
        for draft, below in pairwise(self.drafts):
            if draft.kind == "item" and not (draft.joined or below.joined) and draft.text[0].isdigit():
                draft.kind = "paragraph"  # the number of a heading, or of a paragraph
        self._rank_headings(bookmarks)
        blocks: list[Block] = []
        for draft in self.drafts:
            place = draft.page, draft.page + 1
            if blocks and blocks[-1].first != draft.page and blocks[-1].kind != "heading" and not draft.level:
                blocks.append(Block("heading", "", *place, INNER_HEADING + 1))
            text = " ".join(draft.text.split()) if draft.level else draft.text
            kind, joined = ("heading", False) if draft.level else (draft.kind, draft.joined)
            blocks.append(Block(kind, text, *place, draft.level, joined))
        if len(blocks) > 1 and blocks[0].level == blocks[1].level == 1:  # a title, and the first heading under it
            blocks[0] = replace(blocks[0], level=0)
        return blocks

    def _rank_headings(self, bookmarks: Mapping[int, Mapping[str, int]]) -> None:
        """Give headings their level: that of their bookmark, else by their size, below the bookmark before."""
        heads = [draft for draft in self.drafts if self._may_head(draft)]
        styles = sorted({_style(draft.last) for draft in heads}, reverse=True)
        drafts, under = self.drafts, 0
        self.drafts = []
        for page, group in groupby(drafts, lambda draft: draft.page):
            of_page = list(group)
            printed = {_fold(draft.text) for draft in of_page}
            marks = {_fold(title): level for title, level in bookmarks.get(page, {}).items()}
            for title, level in bookmarks.get(page, {}).items():
                if _fold(title) not in printed:
                    self.drafts.append(_Draft("heading", title, page, of_page[0].last, level=level))
                    under = level
            for draft in of_page:
                if _fold(draft.text) in marks:
                    draft.level = under = marks[_fold(draft.text)]
                elif self._may_head(draft):
                    draft.level = under + styles.index(_style(draft.last)) + 1
            self.drafts += of_page

    def _may_head(self, draft: _Draft) -> bool:
        """Tell whether a paragraph is larger or bolder than the text, and as short as a heading."""
        size, text = draft.last.size, draft.text
        stands_out = size > (LARGE if draft.last.bold else LARGER) * self.size
        stands_out = stands_out or (draft.last.bold and not self.bold and size * LARGE > self.size)
        short = len(text.split()) <= MOST_HEADING and not text.endswith((".", ";", ","))
        return draft.kind == "paragraph" and stands_out and short and re.search(r"[^\W\d_]{2}", text) is not None

    def _add_column(self, lines: Sequence[Line], page: int) -> None:
        """Add lines that stand below each other as paragraphs and list items."""
        pitches = [b.y - a.y for a, b in pairwise(lines) if 0 < b.y - a.y < 2.2 * a.size == 2.2 * b.size]
        usual = median_low(pitches) if pitches else 0.0
        prose = len(lines) > 1 and sum(_goes_on(line) for line in lines[1:]) >= PROSE * (len(lines) - 1)
        draft = self._find_open(lines[0].size)
        for n, line in enumerate(lines):
            style = _style(line)
            right = max(one.x1 for one in lines if abs(one.size - line.size) < 0.1 * line.size)
            reads_on = draft is not None and _reads_on(draft, line, prose, self.margins)
            mark = _ITEM.match(line.text)
            if draft is None or style != _style(draft.last) or (mark and not (mark[1][0].isalnum() and reads_on)):
                goes_on = False
            elif n == 0:
                whole = draft.lines > 1 and not draft.text.endswith(f"\n{draft.last.text}")
                goes_on = reads_on = not draft.text.endswith(_ENDS) and (whole or (reads_on and _goes_on(line)))
            else:
                near = 0 < line.y - draft.last.y <= max(1.2 * usual, 1.35 * line.size)
                indented = line.x0 > draft.last.x0 + 0.8 * line.size and draft.text.endswith(_ENDS)
                alike = draft.kind == "paragraph" and not indented and line.size <= LARGE * self.size
                goes_on = near and (reads_on or alike)
            if draft is not None and goes_on:
                draft.text = self._join(draft.text, line.text) if reads_on else f"{draft.text}\n{line.text}"
                draft.last, draft.right, draft.lines = line, right, draft.lines + 1
            elif mark:
                text = f"- {line.text[mark.end() :]}" if mark[1] in "•–" else line.text
                joined = draft is not None and draft.kind == "item" and n > 0 and style == _style(draft.last)
                draft = self._begin(_Draft("item", text, page, line, right, joined))
            else:
                draft = self._begin(_Draft("paragraph", line.text, page, line, right))

    def _begin(self, draft: _Draft) -> _Draft:
        self.drafts.append(draft)
        self.shape = (0, 0)
        return draft

    def _find_open(self, size: float) -> _Draft | None:
        """Return the last block, but for notes, where a text of a size may go on with it."""
        for draft in reversed(self.drafts):
            if draft.kind == "row" or draft.last.size > 0.95 * size:
                return None if draft.kind == "row" else draft
        return None

    def _join(self, text: str, line: str) -> str:
        """Return a text that goes on with a line, a word that the line's end parts as one."""
        before = _BEFORE.search(text[-LONGEST:]) if text[-1] == "-" else None
        after = _AFTER.match(line)
        if text.endswith("\u00ad"):
            return text[:-1] + line
        if before is None or after is None:
            return f"{text}{line}" if re.search(r"\w[-–/]$", text[-2:]) else f"{text} {line}"
        first, second = before[2].lower(), after[0].lower()
        whole = f"{first}{second}"
        is_compound = bool(before[1]) or len(first) == 1 or after[0][0].isupper() or f"{first}-{second}" in self.words
        if not is_compound and whole not in self.words and not is_known_word(whole):
            is_compound = len(first) > 2 and all(one in self.words or is_known_word(one) for one in (first, second))
            is_compound = is_compound or line[after.end() :].startswith("-")  # as in up-to-date
        return f"{text}{line}" if is_compound else f"{text[:-1]}{line}"

    def _add_table(self, table: Table, page: int, first: bool) -> None:
        """Add the rows of a table; one that goes on on the next page keeps its header."""
        rows = list(table.rows)
        while len(rows) > 2 and rows[0][0] and len(rows[0]) == 1:  # a title over all columns
            lines = rows.pop(0)[0]
            self._begin(_Draft("paragraph", self._write(lines), page, lines[-1], table.x1))
        texts = [[self._write(cell) for cell in row] for row in rows]
        numbers = [row[0].rstrip(".)") for row in texts]
        if len(texts[0]) == 2 and len(texts) > 1 and numbers == [str(n) for n in range(1, len(texts) + 1)]:
            for n, (row, (_, text)) in enumerate(zip(rows, texts, strict=True), 1):
                self._begin(_Draft("item", f"{n}. {text}", page, (row[1] or row[0])[-1], table.x1, n > 1))
            return
        shape = max(map(len, rows)), round(table.x0 / 5)
        repeats = texts[: len(self.header)] == self.header
        if first and shape == self.shape and (repeats or self.header[0] not in texts):
            texts[:0] = [] if repeats else self.header
            heads: int | None = len(self.header)
        elif any(a is b for a, b in pairwise(rows[0])) and has_header(texts[1:]):  # a cell over several columns
            heads = 2
        else:
            heads = 1 if all(line.bold for cell in rows[0] for line in cell) and not self.bold else None
        written = format_table(texts, heads)
        self.shape, self.header = shape, texts[: len(texts) - len(written)] or [[]]
        last = next(line for row in reversed(rows) for cell in row for line in cell)
        self.drafts += [_Draft("row", text, page, last, joined=n > 0) for n, text in enumerate(written)]

    def _write(self, lines: Sequence[Line]) -> str:
        """Return the text of a cell's lines."""
        text = ""
        for line in sorted(lines, key=lambda one: (round(one.y), one.x0)):
            text = self._join(text, line.text) if text else line.text
        return text


def _style(line: Line) -> tuple[float, bool]:
    """Return what headings of one level have in common."""
    return round(line.size, 1), line.bold


def _fold(text: str) -> str:
    return "".join(text.split()).casefold()


def _goes_on(line: Line) -> bool:
    """Tell whether a line begins within a sentence."""
    return line.text[0].isalpha() and not line.text[0].isupper()


def _reads_on(draft: _Draft, line: Line, prose: bool, margins: Mapping[int, float]) -> bool:
    """Tell whether a line goes on with a text that has no end, or had no room for its first word."""
    before, ended = draft.last, draft.last.text.endswith(_ENDS)
    reach = before.x1 + 0.3 * line.size
    width = draft.right - before.x0
    if before.text.endswith("-") or (_goes_on(line) and not ended and reach > draft.right - 0.6 * width):
        return True
    word = len(line.text.partition(" ")[0]) * (line.x1 - line.x0) / len(line.text)
    had_no_room = reach > draft.right - word and len(before.text) >= NARROW
    is_full = reach > margins.get(round(before.x0), math.inf) - word and line.text.endswith(tuple(SENTENCE_ENDS))
    is_new = line.text[0].isupper() and not is_full
    if had_no_room and not (before.text.endswith((*SENTENCE_ENDS, ":")) or is_new or _ITEM.match(line.text)):
        return True
    return prose and reach > draft.right - (word if ended else 0.3 * width)


def _list_lines(tables: Iterable[Table]) -> Iterator[Line]:
    yield from (line for table in tables for row in table.rows for cell in row for line in cell)


def _take_edges(pages: Sequence[list[Line]]) -> list[str]:
    """Take the running heads, one for each chapter, and feet out of the lines of pages; return the texts of each."""
    seen, repeated = defaultdict[tuple[bool, int, str], set[int]](set), defaultdict[tuple[bool, int], set[int]](set)
    at_edges: list[list[tuple[Line, list[tuple[bool, int, str]]]]] = []
    ys, sizes = zip(*[(line.y, line.size) for lines in pages for line in lines] or [(0.0, 0.0)], strict=True)
    usual, middle = median(sizes), (min(ys) + max(ys)) / 2
    for n, lines in enumerate(pages):
        at_edges.append([])
        for at_top in (True, False):
            bands = stack_lines(lines)[:: 1 if at_top else -1]
            for at, band in enumerate(bands[:MOST_EDGE]):
                inner = [line for one in bands[at + 1 : at + 4] for line in one]
                gap = min((abs(line.y - band[0].y) for line in inner), default=math.inf)
                between = [(one.x1, other.x0) for one, other in pairwise(band)]
                crossed = any(line.x0 < b and line.x1 > a for line in inner for a, b in between)
                tabular = len(band) > 2 or (len(band) > 1 and not crossed)
                if gap < 1.5 * band[0].size or (tabular and gap < 3 * band[0].size):
                    break  # the first line of a text, or the header of a table
                for line in band if (band[0].y < middle) == at_top else ():
                    heads = at_top and line.size > LARGER * usual  # a page, as `Week 12` does
                    keys = [(at_top, round(line.y / 4), text) for text in _number_keys(line.text, n)]
                    at_edges[-1].append((line, keys[: 1 if heads else None]))
                    for key in at_edges[-1][-1][1]:
                        seen[key].add(n)
    for key, found in seen.items():
        repeated[key[:2]] |= found if len(found) > 1 else set()
    texts: dict[str, str] = {}
    for lines, edges in zip(pages, at_edges, strict=True):
        ends = dict[bool, int]()  # where the text begins and ends
        for line, keys in edges:
            best = max(keys, key=lambda key: len(seen[key]))
            repeats = len(seen[best]) > 1 and len(repeated[best[:2]]) * 3 >= len(pages)
            if not repeats:
                ends.setdefault(*best[:2])
            elif ends.get(*best[:2]) == best[1] and line in lines:
                lines.remove(line)
                texts.setdefault(best[2], line.text)
    return list(texts.values())


def _number_keys(text: str, page: int) -> list[str]:
    """Return a text, and with each of its numbers counted from that of the page."""
    numbers = re.finditer(r"\d{1,6}", text)
    return [text, *(f"{text[: one.start()]}#{int(one[0]) - page}{text[one.end() :]}" for one in numbers)]
