"""PDF files drawn by reportlab from a description, and whether a text holds what a reader of them sees."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import reportlab
from hypothesis import strategies as st
from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.platypus import (
    BaseDocTemplate,
    Flowable,
    Frame,
    ListFlowable,
    PageTemplate,
    Paragraph,
    Spacer,
    Table,
)

WORDS = """accident account airport alarm apple autumn balcony basket battery bedroom bicycle blanket boiler bottle branch
bread bridge bucket button cabin camera candle carpet castle ceiling cellar cheese chimney coffee corner cotton counter
cupboard curtain deposit desk dinner doctor door drawer engine entrance evening factory fence ferry filter finger floor
forest fountain garage garden glass harbour heater holiday hospital insurance island jacket journey kettle kitchen ladder
lantern library locker machine manager market meadow mirror monday morning museum needle notice office orange oven parcel
passenger pepper pillow platform pocket poster pump railway receipt record repair river saddle sample school season
shelter shoulder silver station summer sunday switch tablet teacher ticket timber towel tunnel umbrella valley village
visitor waiter wallet weather window winter workshop""".split()
RULES = {
    "grid": [("GRID", (0, 0), (-1, -1), 0.5, colors.black)],
    "rows": [("LINEBELOW", (0, 0), (-1, -1), 0.5, colors.grey)],
    "underlined": [("LINEBELOW", (0, 0), (-1, 0), 1, colors.black)],
    "shaded": [("ROWBACKGROUNDS", (0, 0), (-1, -1), [colors.lightgrey, colors.white])],
    "box": [("BOX", (0, 0), (-1, -1), 1, colors.black), ("LINEBEFORE", (1, 0), (-1, -1), 0.5, colors.black)],
    "plain": [],
}
FONTS = {"Helvetica": "Helvetica-Bold", "Times-Roman": "Times-Bold", "Courier": "Courier-Bold", "Vera": "VeraBd"}
for _name in ("Vera", "VeraBd"):
    pdfmetrics.registerFont(TTFont(_name, Path(reportlab.__file__).parent / "fonts" / f"{_name}.ttf"))


@dataclass(frozen=True)
class Heading:
    """A line in large letters."""

    text: str
    level: int = 1


@dataclass(frozen=True)
class Text:
    """A paragraph; `80^2` is drawn as a raised figure, `ﬁ` as one letter."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list behind numbers, or behind dots."""

    texts: tuple[str, ...]
    numbered: bool = True


@dataclass(frozen=True)
class Field:
    """A field of a form behind its label."""

    label: str
    value: str


@dataclass(frozen=True)
class Grid:
    """A table whose first row is its header."""

    rows: tuple[tuple[str, ...], ...]
    ruled: str = "grid"
    right: bool = False
    valign: str = "TOP"
    bold: bool = False


Piece = Heading | Text | Items | Field | Grid


@dataclass(frozen=True)
class Sheet:
    """What stands in a file: pieces in one column or two, and what stands at the edges of its pages."""

    pieces: tuple[Piece, ...]
    columns: int = 1
    font: str = "Helvetica"
    size: int = 10
    head: str = ""
    foot: str = ""
    note: str = ""
    """A footnote of the first page, with its mark."""
    turned: bool = False
    """Whether it is written from the bottom of the page to its top."""


def draw_sheet(sheet: Sheet) -> bytes:
    """Return the file."""
    stream, wide = io.BytesIO(), A4[::-1] if sheet.turned else A4
    width = (wide[0] - 120 - 24 * (sheet.columns - 1)) / sheet.columns

    def draw_edges(canvas: Any, _: Any) -> None:
        if sheet.turned:
            canvas.translate(A4[0], 0)
            canvas.rotate(90)
        canvas.setFont("Helvetica", 8)
        canvas.drawString(60, wide[1] - 30, sheet.head)
        canvas.drawRightString(wide[0] - 60, 25, sheet.foot.replace("#", str(canvas.getPageNumber())))
        if canvas.getPageNumber() == 1:
            canvas.setFont(sheet.font, sheet.size * 0.7)
            canvas.drawString(60, 44, sheet.note)

    frames = [Frame(60 + n * (width + 24), 65, width, wide[1] - 120, 0, 0, 0, 0) for n in range(sheet.columns)]
    document = BaseDocTemplate(stream, pagesize=A4, title="untitled")
    document.addPageTemplates(PageTemplate(frames=frames, onPage=draw_edges))
    document.build([one for piece in sheet.pieces for one in _flow(piece, sheet, width)])
    return stream.getvalue()


def _flow(piece: Piece, sheet: Sheet, width: float) -> list[Flowable]:
    body = ParagraphStyle("body", fontName=sheet.font, fontSize=sheet.size, leading=sheet.size * 1.25)
    gap = Spacer(1, sheet.size)
    if isinstance(piece, Heading):
        size = sheet.size * (2.0, 1.6, 1.3)[piece.level - 1]
        style = ParagraphStyle("head", fontName=FONTS[sheet.font], fontSize=size, leading=size * 1.2, keepWithNext=1)
        return [gap, Paragraph(piece.text, style), Spacer(1, size / 2)]
    if isinstance(piece, Items):
        bullet = {"bulletType": "1", "bulletFormat": "%s."} if piece.numbered else {"bulletType": "bullet"}
        return [ListFlowable([Paragraph(one, body) for one in piece.texts], bulletFontSize=sheet.size, **bullet), gap]
    if isinstance(piece, Field):
        return [_FieldFlow(piece, sheet), gap]
    if isinstance(piece, Grid):
        return [_table(piece, sheet, body, width), gap, gap]
    return [Paragraph(re.sub(r"\^(\w+)", r"<super>\1</super>", piece.text), body), gap]


class _FieldFlow(Flowable):
    def __init__(self, field: Field, sheet: Sheet) -> None:
        super().__init__()
        self.field, self.sheet, self.width, self.height = field, sheet, 200, 20

    def draw(self) -> None:
        self.canv.setFont(self.sheet.font, self.sheet.size)
        self.canv.drawString(0, 6, self.field.label)
        right = pdfmetrics.stringWidth(self.field.label, self.sheet.font, self.sheet.size) + 15
        place = {"x": right, "y": 2, "width": 150, "height": 16, "relative": True}
        self.canv.acroForm.textfield(name=self.field.label, value=self.field.value, **place)


def _table(grid: Grid, sheet: Sheet, body: ParagraphStyle, width: float) -> Table:
    across, bold = len(grid.rows[0]), ParagraphStyle("bold", body, fontName=FONTS[sheet.font])
    room = min(width / across, 130)
    style = [("FONT", (0, 0), (-1, -1), sheet.font, sheet.size), ("VALIGN", (0, 0), (-1, -1), grid.valign)]
    style += [("FONT", (0, 0), (-1, 0), FONTS[sheet.font], sheet.size)] * grid.bold
    style += [("ALIGN", (1, 0), (-1, -1), "RIGHT")] * grid.right

    def wrap(cell: str, style: ParagraphStyle) -> str | Paragraph:
        wide = pdfmetrics.stringWidth(cell, FONTS[sheet.font], sheet.size) > room - 14
        return Paragraph(cell, style) if wide else cell

    cells = [[wrap(one, bold if grid.bold and n == 0 else body) for one in row] for n, row in enumerate(grid.rows)]
    return Table(cells, colWidths=[room] * across, style=[*style, *RULES[grid.ruled]], repeatRows=1)


def find_fault(sheet: Sheet, text: str, titles: str, pages: int) -> str:
    """Return what of a sheet does not stand in a text of so many pages, in order, or what else does; empty for none."""
    seen = re.sub(r"; \w+: -(?=[; ]|$)", "", " ".join(text.split()))  # a header whose cells are empty
    edges = (sheet.head, sheet.foot.replace("#", "1")) if pages == 1 else ()  # which no other page tells from text
    for edge in filter(None, (*edges, sheet.note)):
        if edge not in seen:
            return f"lost: {edge}"
        before, _, behind = seen.rpartition(edge) if edge != sheet.head else seen.partition(edge)
        seen = f"{before.strip()} {behind.strip()}".strip()
    at, headings = 0, list[str]()
    for piece in sheet.pieces:
        if isinstance(piece, Heading):
            headings.append(piece.text)
            if piece.text not in titles and piece.text not in seen:
                return f"lost: {piece}"
        for wanted in _write(piece):
            found = seen.find(wanted, at)
            if found < 0:
                return f"lost: {wanted!r} of {piece}, behind {seen[at : at + 300]!r}"
            between = seen[at:found].replace("#### ", "")
            for heading in headings:
                between = between.replace(heading, "", 1)
            if between.strip():
                return f"added: {between!r} before {wanted!r}"
            at, headings = found + len(wanted), []
    return f"added: {seen[at:]!r}" if seen[at:].strip() else ""


def _write(piece: Piece) -> Iterator[str]:
    """Yield what a text says of a piece, line by line."""
    if isinstance(piece, Text):
        yield piece.text.replace("ﬁ", "fi")
    elif isinstance(piece, Field):
        yield f"{piece.label}: {piece.value}"
    elif isinstance(piece, Items):
        yield from (f"{f'{n}.' if piece.numbered else '-'} {text}" for n, text in enumerate(piece.texts, 1))
    elif isinstance(piece, Grid):
        header, *rows = piece.rows
        yield from ("; ".join(f"{a}: {b}" for a, b in zip(header, row, strict=True) if b) for row in rows)


@st.composite
def sentences(draw: Any, most: int = 12) -> str:
    """Return a sentence of words and figures."""
    words = draw(st.lists(st.sampled_from(WORDS), min_size=3, max_size=most))
    for at in draw(st.sets(st.integers(1, len(words) - 1), max_size=2)):
        words[at] = draw(
            st.one_of(
                st.integers(2, 9999).map(str),
                st.integers(100, 999).map(lambda n: f"{n // 100}.{n % 100:02}"),
                st.integers(12, 99).map(lambda n: f"{n}^2"),
                st.sampled_from(["self-service", "X-ray", "fire-proof"]),
            )
        )
    return f"{' '.join(words).capitalize()}."


@st.composite
def grids(draw: Any) -> Grid:
    """Return a table whose rows and columns can be told apart."""
    across = draw(st.integers(3, 5))
    header = draw(st.lists(st.sampled_from(WORDS), min_size=across, max_size=across, unique=True))
    keys = draw(st.lists(st.sampled_from(WORDS), min_size=2, max_size=9, unique=True))
    value = st.one_of(
        st.integers(1, 9999).map(str),
        st.integers(100, 99999).map(lambda n: f"{n // 100}.{n % 100:02}"),
        st.sampled_from(["yes", "no", ""]),
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=7).map(" ".join),
    )
    names = (f"{key.capitalize()} {draw(st.integers(1, 99))}" for key in keys)
    rows = [
        tuple(one.capitalize() for one in header),
        *((name, *(draw(value) for _ in range(across - 1))) for name in names),
    ]
    ruled, valign = draw(st.sampled_from([*RULES])), draw(st.sampled_from(["TOP", "MIDDLE", "BOTTOM"]))
    return Grid(tuple(rows), ruled, draw(st.booleans()), valign, draw(st.booleans()))


@st.composite
def sheets(draw: Any) -> Sheet:
    """Return descriptions of files."""
    columns, turned = draw(st.sampled_from([1, 1, 1, 2])), draw(st.sampled_from([False, False, True]))
    font = draw(st.sampled_from([*FONTS]))
    text = st.lists(sentences(), min_size=2, max_size=9).map(" ".join)
    if font == "Vera":  # which has the letter
        text = text.map(lambda one: one.replace("fi", "ﬁ"))
    words = sentences(4).map(lambda one: re.sub(r"[.^]", "", one))
    kinds = [text.map(Text), st.builds(Heading, words, st.integers(1, 3))]
    kinds += [st.builds(Items, st.lists(sentences(), min_size=2, max_size=5).map(tuple), st.booleans())]
    kinds += [grids()] * (columns == 1)
    kinds += [st.builds(Field, st.sampled_from(WORDS).map(str.capitalize), words)] * (columns == 1 and not turned)
    pieces = list[Piece]()
    for piece in draw(st.lists(st.one_of(kinds), min_size=3 * columns, max_size=14)):
        if isinstance(piece, Field) and piece.label in {one.label for one in pieces if isinstance(one, Field)}:
            continue  # the fields of one name have one value
        if not isinstance(piece, Text):  # by which a table, or a list, is told from the one before
            pieces.append(Text(draw(text)))
        pieces.append(piece)
    pieces.append(Text(draw(text)))
    head, foot = draw(st.sampled_from(["", "Harbour guide"])), draw(st.sampled_from(["", "Page # of it", "#"]))
    note = draw(st.sampled_from(["", "* Not on public holidays, and not in 2027"]))
    return Sheet(tuple(pieces), columns, font, draw(st.integers(8, 12)), head, foot, note, turned)
