"""A page of a PDF as PDFium sees it: words with their places, ruled lines, form fields, and what cannot be seen."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import pypdfium2 as pdfium
from pypdfium2 import raw

RAISED, SMALL = 0.35, 0.7  # of a letter's size, how high and how large a raised figure of a font is
SCALE, PIXELS = 1.0, 1500.0  # of a point, and of the longer side at most, of the picture that tells what is seen
MOST_INKED = 0.7  # share of the pixels of a word that are its ink's
LIGHTNESS = (0.3, 0.59, 0.11)  # of red, green and blue in a grey
BOLD = 600  # weight of a font from which on it is bold
CONTRAST = 6.0  # of 255 by which the pixels of a word differ at least
MOST_STAMPED, PICTURED = 12, 0.5  # words on a page that is a scan, and the share of it that pictures cover
MOST_PATHS = 4000  # lines of a page beyond which they draw a picture, not a table
THIN = 3.0  # points that a ruled line is thick at most
_BULLETS, _HYPHENS = "\uf0b7\uf0a7\uf0d8\uf076\uf0fc▪■●◦○‣▸►", "\x02\ufffe\u2010\u2011"
_MARKS = str.maketrans(dict.fromkeys(_BULLETS, "•") | dict.fromkeys(_HYPHENS, "-"))
_UNMAPPED = "\0\ufffd"
_WORD = re.compile(rf"[^\s{_UNMAPPED}]+")
_UNPAINTED = (raw.FPDF_TEXTRENDERMODE_INVISIBLE, raw.FPDF_TEXTRENDERMODE_CLIP)
_UNSEEN = raw.FPDF_ANNOT_FLAG_HIDDEN | raw.FPDF_ANNOT_FLAG_NOVIEW
_TEXT_FIELDS = (raw.FPDF_FORMFIELD_TEXTFIELD, raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX)
_BUTTONS = (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON)

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Booleans = np.ndarray[Any, np.dtype[np.bool_]]
Colour = tuple[int, int, int]
Box = tuple[float, float, float, float]  # left, top, right, bottom; downward


class Word(NamedTuple):
    """A word, or a part of one: its ends and its baseline in points, rightward and downward as it is read."""

    text: str
    x0: float
    x1: float
    y: float
    size: float
    spaced: bool = True
    """Whether a space stands before it."""
    bold: bool = False


class Field(NamedTuple):
    """A field of a form that is filled in, or a note typed on the page."""

    name: str
    value: str
    box: Box
    is_button: bool = False


@dataclass(slots=True)
class View:
    """What is read of a page in one direction."""

    words: list[Word] = field(default_factory=list)
    rules: list[Box] = field(default_factory=list)
    """Its ruled lines, level and upright."""
    fields: list[Field] = field(default_factory=list)


@dataclass(slots=True)
class PdfPage:
    """The directions in which a page is read, what has most words first; what of it no reader sees, and signs lost."""

    views: list[View]
    hidden: list[str] = field(default_factory=list)
    unmapped: int = 0
    is_scan: bool = False
    """Whether it shows little but pictures, which were not read."""
    by_ocr: bool = False
    """Whether OCR read it."""


class _Ink(NamedTuple):
    """How a text is painted: its direction in degrees, its size, its baseline, and its colour where it has one."""

    angle: int
    size: float
    base: float
    colour: Colour | None
    bold: bool


def read_page(page: pdfium.PdfPage) -> PdfPage:
    """Return what a page holds, by the direction in which it is read."""
    reader = _Reader(page)
    views: dict[int, View] = {}
    hidden = reader.take_seen(views)
    main = max(views, key=lambda angle: len(views[angle].words), default=0)
    views = {main: views.pop(main, View()), **views}
    views[main].fields = list(_read_fields(page, main))
    for box in _read_rules(page):
        for angle, view in views.items():
            if angle % 90 == 0:
                view.rules.append(_turn_box(box, angle))
    few = sum(len(view.words) for view in views.values()) <= MOST_STAMPED
    return PdfPage(list(views.values()), hidden, reader.unmapped, few and _is_pictured(page))


def _is_pictured(page: pdfium.PdfPage) -> bool:
    """Tell whether pictures cover a page, or what is drawn on it."""
    width, height = page.get_size()
    bounds = (one.get_bounds() for one in page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE]))
    area = sum((right - left) * (top - bottom) for left, bottom, right, top in bounds)
    return bool(area >= PICTURED * width * height)


class _Reader:
    """The words of one page, in the order of the file."""

    def __init__(self, page: pdfium.PdfPage) -> None:
        self.page, self.text_page, self.box = page, page.get_textpage(), raw.FS_RECTF()
        self.text = self.text_page.raw
        self.inks: dict[int, _Ink] = {}
        self.found: list[tuple[Word, Box, _Ink]] = []
        count = raw.FPDFText_CountChars(self.text)
        buffer = (ctypes.c_ushort * (count + 1))()
        if raw.FPDFText_GetText(self.text, 0, count, buffer) == count + 1:  # each letter is one unit of UTF-16
            letters = "".join(map(chr, buffer[:count]))
        else:
            letters = "".join(chr(raw.FPDFText_GetUnicode(self.text, n)) for n in range(count))
        self.unmapped = sum(map(letters.count, _UNMAPPED))
        self.band, self.ink = (0.0, 0.0), _Ink(0, 1.0, 0.0, None, False)  # of the last word
        for run in _WORD.finditer(letters):
            self._read_run(run[0], run.start(), letters[run.start() - 1 : run.start()] == " ")

    def _read_run(self, letters: str, at: int, spaced: bool) -> None:
        """Read letters as a word; where they do not stand on one line, as the halves of one."""
        left, top, right, bottom = self._read_box(at, self.ink.angle)
        if not spaced or (top, bottom) != self.band:  # else it stands beside the last one
            self.ink = self._read_ink(at)
            left, top, right, bottom = self._read_box(at, self.ink.angle)
            self.band = top, bottom
        ink, last = self.ink, at + len(letters) - 1
        if last > at:
            end, high, right, low = self._read_box(last, ink.angle)
            parted = end < left or abs(low - bottom) + abs(high - top) > 0.1 * ink.size
            if parted or not (letters.isalpha() or _same(*map(self._find_object, (at, last)))):  # as 80, 2 and a stop
                half = len(letters) // 2
                self._read_run(letters[:half], at, spaced)
                self._read_run(letters[half:], at + half, spaced=False)
                return
        figures = enumerate("" if letters.isalpha() else letters)
        raised = [one.isdecimal() and self._is_raised(at + n, ink) for n, one in figures]
        if any(raised):  # by a font that has such figures
            change = next((n for n in range(1, len(raised)) if raised[n] != raised[0]), 0)
            if change:
                self._read_run(letters[:change], at, spaced)
                self._read_run(letters[change:], at + change, spaced=False)
                return
            ink = ink._replace(base=ink.base - RAISED * ink.size, size=SMALL * ink.size)
        word = Word(letters.translate(_MARKS), left, right, ink.base, ink.size, spaced, ink.bold)
        self.found.append((word, _turn_box((left, top, right, bottom), -ink.angle % 360), ink))

    def _is_raised(self, at: int, ink: _Ink) -> bool:
        """Tell whether a figure is drawn above the line."""
        edges = tuple(ctypes.c_double() for _ in range(4))
        raw.FPDFText_GetCharBox(self.text, at, *edges)
        left, right, bottom, top = (edge.value for edge in edges)
        return ink.base - _turn_box((left, -top, right, -bottom), ink.angle)[3] > RAISED / 2 * ink.size

    def _find_object(self, at: int) -> Any:
        return raw.FPDFText_GetTextObject(self.text, at)

    def _read_box(self, at: int, angle: int) -> Box:
        """Return where a letter stands, as high as its line."""
        raw.FPDFText_GetLooseCharBox(self.text, at, self.box)
        box = self.box.left, -self.box.top, self.box.right, -self.box.bottom
        return _turn_box(box, angle) if angle else box

    def _read_ink(self, at: int) -> _Ink:
        """Return how a letter is painted, looked up once for all of its text object."""
        painted = self._find_object(at)
        key = ctypes.addressof(painted.contents) if painted else 0
        if key not in self.inks:
            matrix = raw.FS_MATRIX()
            raw.FPDFText_GetMatrix(self.text, at, matrix)
            size = raw.FPDFText_GetFontSize(self.text, at) * math.hypot(matrix.c, matrix.d)
            angle = round(math.degrees(math.atan2(matrix.b, matrix.a))) % 360
            x, y = ctypes.c_double(), ctypes.c_double()
            raw.FPDFText_GetCharOrigin(self.text, at, x, y)
            base = _turn_box((x.value, -y.value, x.value, -y.value), angle)[3]
            colour, bold = (_read_colour(painted), _is_bold(painted)) if painted else (None, False)
            self.inks[key] = _Ink(angle, max(size, 0.1), base, colour, bold)
        return self.inks[key]

    def take_seen(self, views: dict[int, View]) -> list[str]:
        """Add the words that can be seen to their view; return the others."""
        boxes = np.array([box for _, box, _ in self.found]).reshape(-1, 4)
        inks = np.array([ink.colour or (np.nan,) * 3 for *_, ink in self.found]).reshape(-1, 3)
        seen = self._look_at(boxes, inks @ LIGHTNESS, self._draw(grayscale=True), (12, 8))
        if not seen.all():  # where ink and ground may be as light as each other, it is looked closer
            doubtful, picture = np.flatnonzero(~seen), self._draw(rev_byteorder=True)
            for n in range(3):
                seen[doubtful] |= self._look_at(boxes[doubtful], inks[doubtful, n], picture[:, :, n], (24, 48))
        for word, _, ink in compress(self.found, seen):
            views.setdefault(ink.angle, View()).words.append(word)
        return [word.text for word, _, _ in compress(self.found, ~seen)]

    def _draw(self, **how: bool) -> Pixels:
        upright = -self.page.get_rotation() % 360
        drawn = self.page.render(scale=self._scale(), rotation=upright, draw_annots=False, **how)
        return np.asarray(drawn.to_numpy())

    def _scale(self) -> float:
        return min(SCALE, PIXELS / max(map(float, (*self.page.get_size(), 1.0))))

    def _look_at(self, boxes: Floats, inks: Floats, picture: Pixels, samples: tuple[int, int]) -> Booleans:
        """Tell which words a picture shows: something of the ink on a ground that is not as light."""
        left, _, _, top = self.page.get_bbox()
        ends = np.array(picture.shape[1::-1] * 2)
        places = (boxes - (left, -top, left, -top)) * self._scale()
        places[:, :2], places[:, 2:] = np.floor(places[:, :2]), np.ceil(places[:, 2:])
        x0, y0, x1, y1 = np.clip(places, 0, ends).astype(int).T
        rows = np.linspace(y0, y1 - 1, samples[0], dtype=int).T
        columns = np.linspace(x0, x1 - 1, samples[1], dtype=int).T
        pixels = picture[rows[:, :, None], columns[:, None, :]].reshape(len(boxes), math.prod(samples))
        pixels = pixels.astype(np.float32)
        spread = pixels.var(1) * ((x0 < x1) & (y0 < y1))  # none beside the page
        with np.errstate(invalid="ignore"):
            inked = spread / (spread + (pixels.mean(1) - inks) ** 2)  # the share of the pixels that are the ink's
        return np.asarray((spread > CONTRAST**2) & ~(inked > MOST_INKED))


def _same(one: Any, other: Any) -> bool:
    return not one or not other or ctypes.addressof(one.contents) == ctypes.addressof(other.contents)


def _read_colour(painted: Any) -> Colour | None:
    mode = raw.FPDFTextObj_GetTextRenderMode(painted)
    read = raw.FPDFPageObj_GetStrokeColor if mode == raw.FPDF_TEXTRENDERMODE_STROKE else raw.FPDFPageObj_GetFillColor
    r, g, b, alpha = (ctypes.c_uint() for _ in range(4))
    if mode in _UNPAINTED or not read(painted, r, g, b, alpha) or not alpha.value:
        return None  # a scan, whose text lies unpainted over its picture, shows it all the same
    return r.value, g.value, b.value


def _is_bold(painted: Any) -> bool:
    font = raw.FPDFTextObj_GetFont(painted)
    name = ctypes.create_string_buffer(128)
    raw.FPDFFont_GetBaseFontName(font, name, 128)
    return b"bold" in name.value.lower() or raw.FPDFFont_GetWeight(font) > BOLD


def _turn_box(box: Box, angle: int) -> Box:
    """Return where a box lies for who reads in a direction."""
    if angle == 0:
        return box
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    us = [x * cosine - y * sine for x in box[::2] for y in box[1::2]]
    vs = [x * sine + y * cosine for x in box[::2] for y in box[1::2]]
    return min(us), min(vs), max(us), max(vs)


def _read_rules(page: pdfium.PdfPage) -> Iterator[Box]:
    """Yield the ruled lines of a page, among them the edges of what is filled."""
    for n, path in enumerate(page.get_objects(filter=[raw.FPDF_PAGEOBJ_PATH])):
        if n == MOST_PATHS:
            return
        matrix, inside = path.get_matrix(), path.container
        while inside:
            matrix, inside = matrix.multiply(inside.get_matrix()), inside.container
        for box in _list_edges(path.raw):
            (x0, y0), (x1, y1) = matrix.on_point(*box[:2]), matrix.on_point(*box[2:])
            if min(abs(x1 - x0), abs(y1 - y0)) <= THIN < max(abs(x1 - x0), abs(y1 - y0)):
                yield min(x0, x1), -max(y0, y1), max(x0, x1), -min(y0, y1)


def _list_edges(path: Any) -> Iterator[Box]:
    """Yield the straight lines of a path."""
    x, y = ctypes.c_float(), ctypes.c_float()
    last = start = (0.0, 0.0)
    for at in range(raw.FPDFPath_CountSegments(path)):
        segment = raw.FPDFPath_GetPathSegment(path, at)
        raw.FPDFPathSegment_GetPoint(segment, x, y)
        point = x.value, y.value
        kind = raw.FPDFPathSegment_GetType(segment)
        if kind == raw.FPDF_SEGMENT_MOVETO:
            start = point
        elif kind == raw.FPDF_SEGMENT_LINETO:
            yield (*last, *point)
        if raw.FPDFPathSegment_GetClose(segment):
            yield (*point, *start)
        last = point


def _read_fields(page: pdfium.PdfPage, angle: int) -> Iterator[Field]:
    """Yield the fields of a page that are filled in, and the notes that are typed on it."""
    forms, place = page.formenv, raw.FS_RECTF()
    for at in range(raw.FPDFPage_GetAnnotCount(page)):
        note = raw.FPDFPage_GetAnnot(page, at)
        raw.FPDFAnnot_GetRect(note, place)
        box = _turn_box((place.left, -place.top, place.right, -place.bottom), angle)
        shown = -1 if raw.FPDFAnnot_GetFlags(note) & _UNSEEN else raw.FPDFAnnot_GetSubtype(note)
        kind = raw.FPDFAnnot_GetFormFieldType(forms, note) if forms and shown == raw.FPDF_ANNOT_WIDGET else -1
        name = _read_text(raw.FPDFAnnot_GetFormFieldAlternateName, forms, note) if kind >= 0 else ""
        name = name or (_read_text(raw.FPDFAnnot_GetFormFieldName, forms, note) if kind >= 0 else "").replace("_", " ")
        if shown == raw.FPDF_ANNOT_FREETEXT:
            yield Field("", _read_text(raw.FPDFAnnot_GetStringValue, note, b"Contents"), box)
        elif kind in _TEXT_FIELDS:
            yield Field(name, _read_text(raw.FPDFAnnot_GetFormFieldValue, forms, note), box)
        elif kind in _BUTTONS:
            ticked = raw.FPDFAnnot_IsChecked(forms, note)
            value = _read_text(raw.FPDFAnnot_GetFormFieldExportValue, forms, note) if ticked else ""
            yield Field(name, value, box, is_button=True)
        raw.FPDFPage_CloseAnnot(note)


def _read_text(read: Any, *place: Any) -> str:
    """Return what a call of PDFium writes in UTF-16, on one line."""
    length = read(*place, None, 0)
    buffer = ctypes.create_string_buffer(max(length, 2))
    read(*place, ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), length)
    return " ".join(buffer.raw[:length].decode("utf-16-le", "replace").rstrip("\0").split())
