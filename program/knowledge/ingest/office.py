"""OpenDocument, PowerPoint and EPUB files as pages, through HTML, and the sheets of Excel files as rows of cells."""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, time
from html import escape
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from bs4 import BeautifulSoup

from ragc.knowledge.ingest.blocks import END_OF_SECTION, FIRST_ROW, Block, read_blocks
from ragc.knowledge.ingest.convert import PARSER, Page, UnreadableFile, parse_page, unpack_parts
from ragc.knowledge.ingest.metadata import Metadata, drop_generated_title
from ragc.passage import Flaw
from ragc.text.days import parse_day

EXCEL = "it is an Excel file", "Install the extra `excel` (openpyxl), or save each sheet as .csv."
MOST_REPEATED = 100  # times that one cell of OpenDocument stands for as many
_TAGS = {  # of OpenDocument and of DrawingML
    **{"p": "p", "list": "ul", "list-item": "li", "table": "table", "table-row": "tr", "table-cell": "td"},
    "table-header-rows": "thead",
    **{"tbl": "table", "tr": "tr", "tc": "td", "line-break": "br", "br": "br"},
}
_LEFT_OUT = frozenset("covered-table-cell tracked-changes annotation note-citation forms desc title".split())
_PICTURES = frozenset("pic image chart relIds object oleObj".split())
_SLIDE_FURNITURE = ("sldNum", "dt", "ftr")
_FORMAT = re.compile(
    r'"(?P<quoted>[^"]*)"|\\(?P<sign>.)|\[\$(?P<money>[^\]-]*)[^\]]*\]|\[[^\]]*\]|[_*].|(?P<digits>[#0?.,]+)|(?P<other>.)'
)


def convert_slides(content: bytes, max_bytes: int) -> Page:
    """Return a PowerPoint file: each slide under its title, with its notes."""
    parts = _unpack(content, max_bytes, "ppt/presentation.xml")
    slides, hidden, pictures = [], 0, 0
    for name in _list_related(parts, "ppt/presentation.xml", "slide"):
        tree = ElementTree.fromstring(parts[name])
        if tree.get("show") == "0":
            hidden += 1
            continue
        notes = [ElementTree.fromstring(parts[note]) for note in _list_related(parts, name, "notesSlide")]
        bodies = [shape for one in notes for shape in one.iter() if _kind_of(shape) == "body"]
        slides.append("".join(map(_write, (tree, *bodies))))
        pictures += sum(_name(one) in _PICTURES for one in tree.iter())
    flaws = [Flaw(f"{hidden} hidden slides were left out", "Show them.", lost=False)] if hidden else []
    return _make_page(f"<{END_OF_SECTION}></{END_OF_SECTION}>".join(slides), parts, pictures, flaws)


def convert_odf(content: bytes, max_bytes: int) -> Page:
    """Return a text, a presentation or the sheets of OpenDocument."""
    parts = _unpack(content, max_bytes, "content.xml")
    tree = ElementTree.fromstring(parts["content.xml"])
    sheets = [tree, *(ElementTree.fromstring(parts[name]) for name in ("styles.xml",) if name in parts)]
    styles = dict(style for sheet in sheets for style in _read_styles(sheet))
    body = next((one for one in tree.iter() if _name(one) == "body"), tree)
    pictures = sum(_name(one) in _PICTURES for one in body.iter())
    return _make_page(_write(body, styles), parts, pictures, [])


def convert_epub(content: bytes, max_bytes: int) -> Page:
    """Return the chapters of a book, in the order in which it is read."""
    parts = _unpack(content, max_bytes, "META-INF/container.xml")
    container = ElementTree.fromstring(parts["META-INF/container.xml"])
    place = next((_value(one, "full-path") for one in container.iter() if _name(one) == "rootfile"), "")
    package = ElementTree.fromstring(parts.get(place) or b"<none/>")
    items = (one for one in package.iter() if _name(one) == "item" and "nav" not in _value(one, "properties").split())
    files = {_value(one, "id"): unquote(_value(one, "href")) for one in items}
    spine = [files.get(_value(one, "idref"), "") for one in package.iter() if _name(one) == "itemref"]
    chapters = [posixpath.normpath(posixpath.join(posixpath.dirname(place), name)) for name in spine]
    blocks = [block for name in chapters if name in parts for block in read_blocks(parse_page(parts[name]))]
    about = {_name(one): " ".join((one.text or "").split()) for one in package.iter() if "/dc/" in str(one.tag)}
    title = [Block("heading", about["title"])] if about.get("title") else []
    return Page([*title, *blocks], Metadata(as_of=parse_day(about.get("date", ""))))


def read_sheets(content: bytes, max_bytes: int) -> tuple[dict[str, list[list[str]]], list[Flaw]]:
    """Return the cells of each sheet of an Excel file, as they are shown, and flaws."""
    try:
        import openpyxl
    except ImportError as error:
        raise UnreadableFile(*EXCEL) from error
    _unpack(content, max_bytes, "xl/workbook.xml")
    book = openpyxl.load_workbook(io.BytesIO(content), data_only=True)
    shown = [sheet for sheet in book.worksheets if sheet.sheet_state == "visible"]
    sheets = {sheet.title: [[_show_cell(cell) for cell in row] for row in sheet.iter_rows()] for sheet in shown}
    hidden = [sheet.title for sheet in book.worksheets if sheet.title not in sheets]
    flaws = [Flaw(f"the hidden sheet {name!r} was left out", "Show it.", lost=False) for name in hidden]
    formulas = openpyxl.load_workbook(io.BytesIO(content), read_only=True)
    for name, rows in sheets.items():
        cells = (cell for row in formulas[name].iter_rows() for cell in row if cell.data_type == "f")
        lost = [cell for cell in cells if not rows[cell.row - 1][cell.column - 1]]
        if lost:
            what = f"{len(lost)} formulas of the sheet {name!r} have no value"
            flaws.append(Flaw(what, "Open it in the program it is from, and save it anew.", lost[0].row))
    for sheet in shown:
        if unseen := _lay_out_sheet(sheet, sheets[sheet.title]):
            what = f"{unseen} cells of the sheet {sheet.title!r} are hidden, and were left out"
            flaws.append(Flaw(what, "Show their rows and columns, if they answer questions.", lost=False))
    return sheets, flaws


def _lay_out_sheet(sheet: Any, rows: list[list[str]]) -> int:
    """Show a merged cell in each of its rows and columns, and empty what is hidden; return how many cells that are."""
    hidden, width = 0, max(map(len, rows), default=0)
    for area in sheet.merged_cells.ranges:
        left, top, right, bottom = area.bounds
        for row in rows[top - 1 : bottom] if right - left + 1 < width else ():  # else it is a title
            row[left - 1 : right] = [rows[top - 1][left - 1]] * (right - left + 1)
    columns = {n for one in sheet.column_dimensions.values() if one.hidden for n in range(one.min, one.max + 1)}
    lines = {n for n, one in sheet.row_dimensions.items() if one.hidden}
    for y, row in enumerate(rows, 1):
        for x in range(1, width + 1) if y in lines else columns:
            if "".join(row[x - 1 : x]):
                hidden, row[x - 1] = hidden + 1, ""
    return hidden


def _show_cell(cell: Any) -> str:
    """Return a cell as its format shows it."""
    value, code = cell.value, str(cell.number_format).partition(";")[0]
    if isinstance(value, datetime | time):
        return f"{value:%Y-%m-%d %H:%M}".removesuffix(" 00:00") if isinstance(value, datetime) else f"{value:%H:%M}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else " ".join(str(value).split())
    digits, before, after = "", "", ""
    for part in _FORMAT.finditer(code):
        digits = digits or part["digits"] or ""
        shown = part["quoted"] or part["sign"] or part["money"] or (part["other"] or "").replace("G", "")
        before, after = (before, after + shown) if digits else (before + shown, after)
    if code == "General" or not digits or {"E", "/"} & {*re.sub(r'"[^"]*"|\[[^\]]*\]', "", code)}:
        return f"{value:.10g}"
    value *= 100 if "%" in code else 1
    decimals = len(digits.partition(".")[2])
    return f"{before}{value:{',' if ',' in digits else ''}.{decimals}f}{after}".strip()


def _unpack(content: bytes, max_bytes: int, main: str) -> dict[str, bytes]:
    """Return the parts of a zipped file. Raises `UnreadableFile` without `main`, and past `max_bytes`."""
    damaged = "it is damaged, encrypted, or of another kind", "Save it anew."
    parts = unpack_parts(content, max_bytes, *damaged)
    if main not in parts:
        raise UnreadableFile(*damaged)
    return parts


def _list_related(parts: Mapping[str, bytes], of: str, kind: str) -> list[str]:
    """Return the parts of a kind that a part refers to, in the order of its own text."""
    folder, name = posixpath.split(of)
    rels = ElementTree.fromstring(parts.get(f"{folder}/_rels/{name}.rels", b"<none/>"))
    found = {_value(one, "Id"): one for one in rels if _value(one, "Type").endswith(f"/{kind}")}
    named = [
        value
        for one in ElementTree.fromstring(parts[of]).iter()
        for key, value in one.attrib.items()
        if key.endswith("}id")
    ]
    order = sorted(found, key=lambda id_: named.index(id_) if id_ in named else len(named))
    paths = (posixpath.normpath(posixpath.join("/", folder, _value(found[id_], "Target")))[1:] for id_ in order)
    return [path for path in paths if path in parts]


def _make_page(markup: str, parts: Mapping[str, bytes], pictures: int, flaws: list[Flaw]) -> Page:
    core = parts.get("docProps/core.xml") or parts.get("meta.xml") or b"<none/>"
    titles = (one.text or "" for one in ElementTree.fromstring(core).iter() if _name(one) == "title")
    if pictures:
        what = f"{pictures} pictures, charts and objects were left out"
        flaws.append(Flaw(what, "Write what answers questions as text.", lost=False))
    about = Metadata(title=drop_generated_title(next(titles, "")), flaws=tuple(flaws))
    return Page(read_blocks(BeautifulSoup(markup, PARSER)), about)


def _name(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _value(element: Element, name: str) -> str:
    return next((value for key, value in element.attrib.items() if key.rpartition("}")[2] == name), "")


def _kind_of(shape: Element) -> str:
    """Return the kind of a slide's shape, `title` or `body` among them; empty for what is none."""
    if _name(shape) == "frame":
        return _value(shape, "class")
    if _name(shape) != "sp":
        return ""
    return next((_value(one, "type") or "text" for one in shape.iter() if _name(one) == "ph"), "text")


def _read_styles(sheet: Element) -> Iterator[tuple[str, str]]:
    """Yield the styles of OpenDocument that raise, lower, strike or hide a text, and the tag that says so."""
    for style in sheet.iter():
        for one in style if _name(style) == "style" else ():
            place, line = _value(one, "text-position"), _value(one, "text-line-through-style")
            raised = "sup" if place.startswith(("super", "1", "2", "3", "4", "5")) else "sub"
            tag = raised if place and not place.startswith("0%") else "s" if line not in ("", "none") else ""
            tag = "template" if _value(one, "display") == "none" else tag
            if tag:
                yield _value(style, "name"), tag


def _write(element: Element, styles: Mapping[str, str] = {}) -> str:
    """Return an element of OpenDocument or DrawingML as HTML."""
    name, kind = _name(element), _kind_of(element)
    merged = _value(element, "hMerge") or _value(element, "vMerge")
    if name in _LEFT_OUT or kind in _SLIDE_FURNITURE or merged:
        return ""
    parts = [escape(element.text or "")]
    for child in element:
        copies = _value(child, "number-columns-repeated") or _value(child, "number-rows-repeated") or "1"
        parts += [_write(child, styles) * min(int(copies), MOST_REPEATED), escape(child.tail or "")]
    while name == "table-row" and parts and not re.sub("<[^>]*>", "", parts[-1]).strip():
        parts.pop()  # the rest of the sheet
    if name == "txBody" and any(map(_tell_level, element)):
        return _write_levels(one for one in element if _name(one) == "p")
    inner = "".join(parts)
    if name in ("s", "tab"):
        return " " * int(_value(element, "c") or 1)
    if name == "note":
        return f" ({' '.join(' '.join(element.itertext()).split()[1:])})"
    if name == "h" or kind in ("title", "ctrTitle"):
        level = _value(element, "outline-level") or ("1" if name == "h" else "2")
        return f"<h{level}>{inner if name == 'h' else re.sub('<[^>]*>', ' ', inner)}</h{level}>"
    if name == "a":
        return f"<a href='{escape(_value(element, 'href'))}'>{inner}</a>"
    if inner and (
        style := styles.get(_value(element, "style-name"), "") or (_read_marks(element) if name == "r" else "")
    ):
        inner = f"<{style}>{inner}</{style}>"
    if name not in _TAGS:
        return inner
    spans = {"colspan": ("number-columns-spanned", "gridSpan"), "rowspan": ("number-rows-spanned", "rowSpan")}
    written = ((key, _value(element, one)) for key, names in spans.items() for one in names)
    marks = "".join(f" {key}='{value}'" for key, value in written if value)
    if name == "tbl":
        marks += f" {FIRST_ROW}='{'header' if any(_value(one, 'firstRow') == '1' for one in element) else 'plain'}'"
    return f"<{_TAGS[name]}{marks}>{inner}</{_TAGS[name]}>"


def _tell_level(paragraph: Element) -> int:
    """Return how deep in a list a paragraph of DrawingML is, 0 at its top."""
    return next((int(_value(one, "lvl") or 0) for one in paragraph if _name(one) == "pPr"), 0)


def _write_levels(paragraphs: Iterable[Element]) -> str:
    """Return paragraphs as a list with inner ones."""
    written, depth = "", 0
    for one in paragraphs:
        level = _tell_level(one) + 1
        written += "</li></ul>" * (depth - level) + "</li><li>" * (level <= depth) + "<ul><li>" * (level - depth)
        written, depth = written + _write(one), level
    return written + "</li></ul>" * depth


def _read_marks(run: Element) -> str:
    """Return the tag for how a run of DrawingML is raised, lowered or struck."""
    marks = next((one for one in run if _name(one) == "rPr"), run)
    rise = int(_value(marks, "baseline") or 0)
    if rise:
        return "sup" if rise > 0 else "sub"
    return "s" if _value(marks, "strike") in ("sngStrike", "dblStrike") else ""
