"""An HTML tree as blocks of plain text, as a browser shows it: the one way from Markdown, HTML and Word to text.

The tree is walked once, in order. Text gathers until a block ends, runs of blanks as one:
1. `p`, `div` and their like end a paragraph, `h1` to `h6` a heading.
2. A list item is a line behind its mark; an item of an inner list stands behind the text of the items above it.
3. A table becomes a line a row, `header: value; header: value`; a cell that spans several stands in each of them.
4. `pre` is taken over letter by letter, between fences.
Inside a block a raised figure is written 10^3, a struck word ~~so~~, and a link's address in brackets behind its text.
What a browser hides is left out, and so is the mark of a footnote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, takewhile

from bs4.element import NavigableString, Tag

from program.text.pieces import BULLET

LINES = "data-lines-of-source"
"""The attribute that holds the first line of an element in its file, from 0, and the line behind its last."""
PLACE = "lines-of-source"
"""An empty element with that attribute, before what cannot have it itself."""
INNER_HEADING = 4  # the level of a heading inside a list, a quotation or a cell, which begins no section
MOST_SPANNED = 1000  # columns or rows of one cell, as in a browser
MOST_COPIED = 300_000  # characters of a table's cells in the places that they span, from which on none spans several
ITEM_ENDS = ".:;,!?"
NARROW = 50  # characters of a line that no column was too narrow for
_HIDDEN = frozenset("head title script style noscript template iframe object svg audio video canvas input rp".split())
_LISTS = frozenset(("ul", "ol", "menu", "dl"))
_BLOCK = frozenset(
    """address article aside blockquote body caption center dd details dialog div dl dt fieldset figcaption figure
    footer form h1 h2 h3 h4 h5 h6 header hgroup hr html legend li main menu nav ol optgroup option p search section
    summary table tbody td tfoot th thead tr ul""".split()
)
_HEADINGS = {f"h{n}": n for n in range(1, 7)}
_INLINE = frozenset("a sup sub del s strike rt q".split())  # written with a sign of their own
_FORMULAS = {"msup": "sup", "msub": "sub", "mfrac": "over"}  # whose last part is written so
_ORDINALS = ("st", "nd", "rd", "th")  # written on the line as well as above it
_ADDRESS = re.compile(r"\s*(?:(?:https?|ftp)://|//|mailto:|tel:)\S", re.IGNORECASE)
_FOOTNOTE = re.compile(r"\[?(?:\w{1,3}|[*†‡§¶]+)\]?")
_NONE_SHOWN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Block:
    """A heading, paragraph, list item, table row or code block, and its lines in the file."""

    kind: str
    """heading, paragraph, item, row or code."""
    text: str
    first: int = 0
    """Its first line, from 0."""
    last: int = 0
    """The line behind its last."""
    level: int = 0
    """Of a heading, from 1."""
    joined: bool = False
    """Whether it goes on with the list or the table of the block before it."""


@dataclass(slots=True)
class _List:
    """A list that is open: the number of its next item, if it counts, and the term that is being defined."""

    number: int | None
    term: str = ""
    defined: bool = True


@dataclass(slots=True)
class _Item:
    """A list item, or a definition, that is being read."""

    mark: str
    """What stands before its text: `- ` or `3. `; empty once that is written."""
    above: tuple[str, ...]
    """The texts of the items that it lies in."""
    text: str = ""


def read_blocks(tree: Tag, header_row: bool = False) -> list[Block]:
    """Return the blocks of a tree in order.

    With `header_row` the first row of a table without a header is its header.
    """
    return _Walk(header_row).walk(tree)


def fence_code(code: str, language: str = "") -> str:
    """Return code between fences that no line of its own ends."""
    fence = max(["```", *(f"{run}`" for run in re.findall(r"^ {0,3}(`{3,})", code, re.MULTILINE))], key=len)
    return f"{fence}{language}\n{code}\n{fence}"


def unwrap_lines(lines: Sequence[str]) -> str:
    """Return a paragraph without the line ends that its width made.

    There the next word had no room.
    """
    width = max(NARROW, *map(len, lines))
    text = lines[0].rstrip()
    for before, line in pairwise(lines):
        wrapped = len(before.rstrip()) + 1 + len(line.split()[0]) > width and not BULLET.match(line)
        text += f" {line.strip()}" if wrapped else f"\n{line.rstrip()}"
    return text


def unwrap_text(text: str) -> str:
    """Return a text whose paragraphs are unwrapped."""
    runs = (list(run) for written, run in groupby(text.split("\n"), lambda line: bool(line.strip())) if written)
    return "\n\n".join(map(unwrap_lines, runs))


def is_hidden(tag: Tag) -> bool:
    """Tell whether a browser shows nothing of an element."""
    return tag.name in _HIDDEN or tag.has_attr("hidden") or bool(_NONE_SHOWN.search(str(tag.get("style") or "")))


class _Walk:
    """A walk over a tree, without recursion: a page may be nested deeper than Python's stack is."""

    def __init__(self, header_row: bool) -> None:
        self.header_row = header_row
        self.blocks: list[Block] = []
        self.gathered: list[str] = []  # the text of the block that has not ended
        self.places: list[tuple[int, int]] = [(0, 0)]
        self.lists: list[_List] = []
        self.items: list[_Item] = []
        self.indents = 0
        self.joins = False  # whether the next item goes on with the list before it

    def walk(self, root: Tag) -> list[Block]:
        todo: list[tuple[Tag, Iterator[object], tuple[int, int]]] = [(root, iter(root.children), self._begin(root))]
        while todo:
            tag, children, mark = todo[-1]
            child = next(children, None)
            if child is None:
                todo.pop()
                self._end(tag, mark)
            elif type(child) is NavigableString:
                self.gathered.append(re.sub(r"\s+", " ", child))
            elif isinstance(child, Tag) and not self._take_whole(child):
                todo.append((child, iter(child.children), self._begin(child)))
        self._end_block()
        return self.blocks

    def _take_whole(self, tag: Tag) -> bool:
        """Tell whether a tag is dealt with here, whatever is in it."""
        if tag.name == PLACE:
            self.places[0] = _lines_of(tag) or self.places[0]
        elif tag.name == "br":
            self.gathered.append("\n")
        elif tag.name == "img":
            self.gathered.append(f" {tag.get('alt') or ''} ")
        elif tag.name == "pre":
            self._add_code(tag)
        elif tag.name == "table" and not _is_layout(tag):
            self._add_table(tag)
        else:
            return is_hidden(tag)
        return True

    def _begin(self, tag: Tag) -> tuple[int, int]:
        """Note what a tag begins; return how much was made before it, in blocks and of the block that is open."""
        if tag.name in _BLOCK:
            self._end_block()
        if place := _lines_of(tag):
            self.places.append(place)
        self.indents += tag.name in ("blockquote", "li", "dd")
        if tag.name in _LISTS:
            start = str(tag.get("start") or 1)
            self.joins = self.joins and bool(self.items)
            number = int(start) if re.fullmatch(r"-?\d{1,9}", start) else 1
            self.lists.append(_List(number if tag.name == "ol" else None))
        elif tag.name in ("li", "dd"):
            self._begin_item()
        elif tag.name == "dt":
            self._add_term()
        return len(self.blocks), len(self.gathered)

    def _end(self, tag: Tag, mark: tuple[int, int]) -> None:
        if written := _writes(tag):
            begun = mark[1] if mark[0] == len(self.blocks) else len(self.gathered)  # a block may have ended inside
            text = "".join(self.gathered[begun:])
            del self.gathered[begun:]
            before = next((part[-1] for part in reversed(self.gathered) if part), "")
            self.gathered.append(_write_inline(written, tag, text, before))
        elif tag.name in _HEADINGS:
            level = _HEADINGS[tag.name]
            self._end_block("heading", max(level, INNER_HEADING) if self.indents else level)
        elif tag.name == "dt":
            term, inner = self._take_text(), self.lists[-1] if self.lists else None
            if inner is not None:
                inner.term, inner.defined = term, False
            else:
                self._add("paragraph", term)
        elif tag.name in _BLOCK:
            self._end_block()
        if tag.name == "dl":
            self._add_term()
        if tag.name in _LISTS:
            self.lists.pop()
            self.joins = self.joins and bool(self.items)
        if tag.name in ("li", "dd"):
            self.items.pop()
        self.indents -= tag.name in ("blockquote", "li", "dd")
        if _lines_of(tag):
            self.places.pop()

    def _begin_item(self) -> None:
        inner = self.lists[-1] if self.lists else _List(None)
        mark = "- " if inner.number is None else f"{inner.number}. "
        inner.number = None if inner.number is None else inner.number + 1
        inner.defined = True
        self.items.append(_Item(mark, tuple(filter(None, [*(item.text for item in self.items), inner.term]))))

    def _take_text(self) -> str:
        text = re.sub(r" *\n *", "\n", re.sub(r"[^\S\n]+", " ", "".join(self.gathered))).strip()
        self.gathered.clear()
        return re.sub(r"\n+", "\n", text)

    def _end_block(self, kind: str = "paragraph", level: int = 0) -> None:
        """Make a block of what was gathered; the first of a list item is the item."""
        text = self._take_text()
        item = self.items[-1] if self.items else None
        if not text:
            return
        if kind != "paragraph" or item is None or not item.mark:
            self._add(kind, text, level)
            return
        lead = "".join(f"{one} " if one[-1] in ITEM_ENDS else f"{one}: " for one in item.above)
        self._add("item", f"{item.mark}{lead}{text}")
        item.mark, item.text = "", text

    def _add(self, kind: str, text: str, level: int = 0, place: tuple[int, int] | None = None) -> None:
        goes_on = kind in ("item", "row")
        if text:
            self.blocks.append(Block(kind, text, *(place or self.places[-1]), level, goes_on and self.joins))
            self.joins = goes_on

    def _add_term(self) -> None:
        """Add a term that no definition follows."""
        if self.lists and not self.lists[-1].defined:
            self._add("item", f"- {self.lists[-1].term}" if self.lists[-1].term else "")
            self.lists[-1].defined = True

    def _add_code(self, tag: Tag) -> None:
        self._end_block()
        for pause in tag.find_all("br"):
            pause.replace_with("\n")
        code, inner = tag.get_text().removeprefix("\n").rstrip(), tag.find("code") or tag
        names = map(str, inner.get_attribute_list("class"))
        language = next((name.removeprefix("language-") for name in names if name.startswith("language-")), "")
        self._add("code", fence_code(code, language) if code.strip() else "", 0, _lines_of(inner))

    def _add_table(self, tag: Tag) -> None:
        self._end_block()
        self.joins = False
        for text, place in _read_table(tag, self.header_row):
            self._add("row", text, 0, place)
        self.joins = False


def _lines_of(tag: Tag) -> tuple[int, int] | None:
    found = re.fullmatch(r"(\d+) (\d+)", str(tag.get(LINES) or ""))
    return (int(found[1]), int(found[2])) if found else None


def _writes(tag: Tag) -> str:
    """Return the kind of an element that a browser shows by more than its letters, else an empty text."""
    if tag.parent is not None and tag.parent.name in _FORMULAS and tag.find_next_sibling() is None:
        return _FORMULAS[tag.parent.name] if tag.find_previous_sibling() is not None else ""
    return tag.name if tag.name in _INLINE else ""


def _write_inline(kind: str, tag: Tag, text: str, before: str) -> str:
    """Return the text of such an element behind the character `before`."""
    bare = text.strip()
    if not bare:
        return text
    match kind:
        case "a":
            address = " ".join(str(tag.get("href") or "").split())
            known = bare in (address, address.removeprefix("mailto:").removeprefix("tel:"))
            end = text[len(text.rstrip()) :]
            hidden = _ADDRESS.match(address) and not known and tag.find_parent([*_HEADINGS]) is None
            return f"{text.rstrip()} ({address}){end}" if hidden else text
        case "sup":
            if _FOOTNOTE.fullmatch(bare) and tag.find("a", href=re.compile("#")):
                return ""
            raised = f"^{bare}" if " " not in bare else f"^({bare})"
            return text if before.isdigit() and bare.lower() in _ORDINALS else raised
        case "sub":
            return text if before.isalpha() and bare.isdigit() else f"_{bare}"  # H2O
        case "over":
            return f"/{bare}"
        case "q":
            return f"“{text}”"
        case "rt":
            return f" ({bare})"
        case _:
            return f"~~{bare}~~"


def _is_layout(table: Tag) -> bool:
    """Tell whether a table only sets out a page: it holds headings, or other tables."""
    return table.get("role") in ("presentation", "none") or table.find(["table", *_HEADINGS]) is not None


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    heads: bool
    """Whether it is a header."""


def _read_table(table: Tag, header_row: bool) -> Iterator[tuple[str, tuple[int, int] | None]]:
    """Yield the caption and a line for each row of a table, with its place in the file."""
    for caption in table.find_all("caption"):
        yield _flat_text(caption), None
    rows = table.find_all("tr")
    grid = _lay_out(rows)
    heads = len(list(takewhile(lambda row: row and all(cell.heads for cell in row), grid)))
    heads = 1 if not heads and header_row and len(grid) > 1 else heads if heads < len(grid) else 0
    width = max(map(len, grid), default=0)
    above = [[row[at].text for row in grid[:heads] if at < len(row)] for at in range(width)]
    headers = [" ".join(dict.fromkeys(filter(None, texts))) for texts in above]
    empty = {at for at in range(width) if not any(row[at].text for row in grid[heads:] if at < len(row))}
    for n, (tag, cells) in enumerate(zip(rows[heads:], grid[heads:], strict=True)):
        blank = empty if n == 0 else set()  # no header is lost for want of a value
        named = [(headers[at], cell.text or "-" * (at in blank)) for at, cell in enumerate(cells)]
        if len(cells) > 1 and all(cell is cells[0] for cell in cells):  # a heading among the rows
            named = [("", cells[0].text)]
        elif len(cells) > 1 and cells[0].heads and not any(headers):  # a header beside its values
            named = [(cells[0].text, format_row(named[1:]))]
        yield format_row(named), _lines_of(tag)


def format_row(pairs: Iterable[tuple[str, str]]) -> str:
    """Return headers and values as one line, `header: value; header: value`."""
    one_line = ((" ".join(key.split()), " ".join(value.split())) for key, value in pairs)
    return "; ".join(f"{key}: {value}" if key else value for key, value in one_line if value)


def _lay_out(rows: Sequence[Tag]) -> list[list[_Cell]]:
    """Return the cells of each row, one that spans several rows or columns in each of them."""
    places: dict[tuple[int, int], _Cell] = {}
    copied = 0
    for y, row in enumerate(rows):
        x = 0
        in_head = row.parent is not None and row.parent.name == "thead"
        for tag in row.find_all(["td", "th"], recursive=False):
            while (y, x) in places:
                x += 1
            text = _flat_text(tag)
            bold = any(" ".join(one.get_text().split()) == text for one in tag.find_all(["b", "strong"], limit=1))
            down, across = _span(tag, "rowspan", len(rows)), _span(tag, "colspan", 1)
            copied += (down * across - 1) * (len(text) + 1)
            if copied > MOST_COPIED:
                down = across = 1
            cell = _Cell(text, in_head or tag.name == "th" or (bool(text) and bold))
            places |= {(y + dy, x + dx): cell for dy in range(min(down, len(rows) - y)) for dx in range(across)}
            x += across
    widths = [0] * len(rows)
    for y, x in places:
        widths[y] = max(widths[y], x + 1)
    return [[places.get((y, x), _Cell("", False)) for x in range(width)] for y, width in enumerate(widths)]


def _span(tag: Tag, name: str, whole: int) -> int:
    written = str(tag.get(name) or 1)
    return min(int(written) or whole, MOST_SPANNED) if re.fullmatch(r"\d{1,5}", written) else 1


def _flat_text(tag: Tag) -> str:
    """Return the text of a cell on one line."""
    lines = []
    for block in read_blocks(tag):
        found = block.text.split("\n")
        lines += found[1:-1] if block.kind == "code" else [found[0].removeprefix("- "), *found[1:]]
    return "".join(_end_part(" ".join(line.split())) for line in lines if line.strip()).strip(" ,")


def _end_part(text: str) -> str:
    return f"{text} " if text[-1] in ITEM_ENDS else f"{text}, "
