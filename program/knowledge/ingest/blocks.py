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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, pairwise, takewhile

from bs4.element import NavigableString, RubyTextString, Tag

from ragc.knowledge.ingest.metadata import Metadata
from ragc.knowledge.ingest.table_rows import format_table, has_header, is_caption
from ragc.text.pieces import BULLET, NUMBER

LINES = "data-lines-of-source"
"""The attribute that holds the first line of an element in its file, from 0, and the line behind its last."""
PLACE = "lines-of-source"
"""An empty element with that attribute, before what cannot have it itself."""
TITLE = "document-title"
"""The element of the document's own title, a heading of level 0."""
END_OF_SECTION = "end-of-section"
"""An empty element behind which no heading counts: a heading without text."""
FIRST_ROW = "data-first-row"
"""The attribute that says of a table of Word's whether its first row is set apart: `header`, `plain` or `maybe`."""
INNER_HEADING = 4  # the level of a heading inside a list, a quotation or a cell, which begins no section
MOST_SPANNED = 1000  # columns or rows of one cell, as in a browser
MOST_COPIED = 300_000  # characters of a table's cells in the places that they span, from which on none spans several
ITEM_ENDS = ".:;,!?"
_HIDDEN = {*"head title script style noscript template iframe object svg audio video canvas input rp select".split()}
_LISTS = frozenset(("ul", "ol", "menu", "dl"))
_BLOCK = frozenset(
    f"""{TITLE} address article aside blockquote body button caption center dd details dialog div dl dt fieldset
    figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr html legend li main menu nav ol p search
    section summary table tbody td tfoot th thead tr ul""".split()
)
HEADINGS = {TITLE: 0, **{f"h{n}": n for n in range(1, 7)}}
_INLINE = frozenset("a abbr sup sub del s strike rt q".split())  # written with a sign of their own
_FORMULAS = {"msup": "sup", "msub": "sub", "mfrac": "over"}  # whose last part is written so
_ORDINALS = ("st", "nd", "rd", "th")  # written on the line as well as above it
_ADDRESS = re.compile(r"\s*(?:(?:https?|ftp)://|//|mailto:|tel:)\S", re.IGNORECASE)
_NEW = re.compile(r"[^\W\d_A-Z][\dA-Z€$£]")  # the end of a name, and the beginning of a value
_PLACE = re.compile("#")  # in an address, a place in a page
_FOOTNOTE = re.compile(r"\[?(?:\w{1,3}|[*†‡§¶]+)\]?")
_NONE_SHOWN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Block:
    """A heading, paragraph, list item, table row or code block, and its lines in the file."""

    kind: str
    """heading, caption, paragraph, item, row or code."""
    text: str
    first: int = 0
    """Its first line, from 0."""
    last: int = 0
    """The line behind its last."""
    level: int = 0
    """Of a heading, from 1; 0 of the document's own title."""
    joined: bool = False
    """Whether it goes on with the list or the table of the block before it."""


@dataclass(frozen=True, slots=True)
class Section:
    """The text of a passage: under one heading, or a piece of that, or a row of a table; lines count from 1."""

    slug: str
    """The anchor of its heading; of a row its own id, or `row-<n>`."""
    text: str
    first: int
    """0 where no line is told."""
    last: int
    headings: tuple[str, ...] = ()
    about: Metadata | None = None
    """What a row says of itself."""


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


def read_blocks(tree: Tag) -> list[Block]:
    """Return the blocks of a tree in order.

    Paragraphs that count up, or begin with one bullet, are the items of a list.
    """
    blocks = _Walk().walk(tree)
    typed = [NUMBER.match(one.text) or BULLET.match(one.text) if one.kind == "paragraph" else None for one in blocks]
    for n, (before, mark) in enumerate(pairwise(typed), 1):
        if before and mark and mark[0].strip() == re.sub(r"\d+", lambda at: str(int(at[0]) + 1), before[0].strip()):
            blocks[n - 1] = replace(blocks[n - 1], kind="item")
            blocks[n] = replace(blocks[n], kind="item", joined=True)
    return blocks


def join_blocks(blocks: Sequence[Block]) -> str:
    """Return blocks as a text, an empty line between two unless of one list or table."""
    parted = ["\n" if one.joined else "\n\n" for one in blocks[1:]]
    return "".join(f"{gap}{one.text}" for gap, one in zip(("", *parted), blocks, strict=False))


def caption_tables(blocks: Sequence[Block]) -> list[Block]:
    """Return blocks with the captions of tables.

    They are labels right above rows, or apart where several are, of which each ends with its rows.
    """
    kinds = [one.kind if one.kind != "paragraph" or is_caption(one.text) else "" for one in blocks]
    above = [n for n, pair in enumerate(pairwise(kinds)) if pair == ("paragraph", "row")]
    found = [n for n in above if len(above) > 1 or 0 < blocks[n].last == blocks[n + 1].first]
    led = [*blocks]
    for n in reversed(found):
        led[n] = replace(led[n], kind="caption", level=INNER_HEADING)
        end = next((m for m in range(n + 1, len(led)) if led[m].kind != "row" and led[m].text), len(led))
        led[end:end] = [Block("caption", "", level=INNER_HEADING)] * (len(found) > 1)
    return led


def fence_code(code: str, language: str = "") -> str:
    """Return code between fences that no line of its own ends."""
    fence = max(["```", *(f"{run}`" for run in re.findall(r"^ {0,3}(`{3,})", code, re.MULTILINE))], key=len)
    return f"{fence}{language}\n{code}\n{fence}"


def is_hidden(tag: Tag) -> bool:
    """Tell whether a browser shows nothing of an element; it shows a box to tick."""
    return (tag.name in _HIDDEN and tag.get("type") != "checkbox") or is_put_away(tag)


def is_put_away(tag: Tag) -> bool:
    """Tell whether an author hid an element."""
    return tag.has_attr("hidden") or tag.name == "datalist" or bool(_NONE_SHOWN.search(str(tag.get("style") or "")))


def stands_alone(tag: Tag) -> bool:
    """Tell whether no text surrounds an element."""
    beside = tag.parent.children if tag.parent is not None else ()
    return not any(type(one) is NavigableString and one.strip() for one in beside)


class _Walk:
    """A walk over a tree, without recursion: a page may be nested deeper than Python's stack is."""

    def __init__(self) -> None:
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
            elif type(child) is NavigableString or isinstance(child, RubyTextString):
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
        elif tag.name in ("i", "span") and (label := tag.get("aria-label") or tag.get("title")) and not tag.get_text():
            self.gathered.append(f" {label} ")
        elif tag.name == "input" and tag.get("type") == "checkbox":
            self.gathered.append("☑ " if tag.has_attr("checked") else "☐ ")
        elif tag.name == END_OF_SECTION:
            self._end_block()
            self.blocks.append(Block("heading", "", level=int(str(tag.get("level") or 1))))
        elif tag.name == "pre":
            self._add_code(tag)
        elif tag.name == "table" and not _is_layout(tag):
            self._add_table(tag)
        else:
            return is_hidden(tag)
        return True

    def _begin(self, tag: Tag) -> tuple[int, int]:
        """Note what a tag begins; return how much was made before it, in blocks and of the block that is open."""
        if is_block(tag):
            self._end_block()
        elif tag.name in ("a", "span") and isinstance(beside := tag.previous_sibling, Tag) and beside.name == tag.name:
            parted = tag.name == "a" or _NEW.fullmatch(beside.get_text()[-1:] + tag.get_text()[:1])
            self.gathered += " " if parted else ""  # by its style
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
        return len(self.blocks), len(self.gathered)

    def _end(self, tag: Tag, mark: tuple[int, int]) -> None:
        if written := _writes(tag):
            begun = mark[1] if mark[0] == len(self.blocks) else len(self.gathered)  # a block may have ended inside
            text = "".join(self.gathered[begun:])
            del self.gathered[begun:]
            before = next((part[-1] for part in reversed(self.gathered) if part), "")
            self.gathered.append(_write_inline(written, tag, text, before))
        elif tag.name in HEADINGS:
            level = HEADINGS[tag.name]
            self._end_block("heading", max(level, INNER_HEADING) if self.indents else level)
        elif tag.name == "dt":
            term, inner = self._take_text(), self.lists[-1] if self.lists else None
            if inner is not None:
                shared = not inner.defined and inner.term  # two terms of one definition
                inner.term, inner.defined = f"{inner.term}, {term}" if shared else term, False
            else:
                self._add("paragraph", term)
        elif is_block(tag):
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
        for text, place in _read_table(tag):
            self._add("row", text, 0, place)
        self.joins = False


def _lines_of(tag: Tag) -> tuple[int, int] | None:
    found = re.fullmatch(r"(\d+) (\d+)", str(tag.get(LINES) or ""))
    return (int(found[1]), int(found[2])) if found else None


def is_block(tag: Tag) -> bool:
    """Tell whether a browser shows an element on lines of its own."""
    return tag.name in _BLOCK and (tag.name != "button" or stands_alone(tag))


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
            hidden = _ADDRESS.match(address) and not known and tag.find_parent([*HEADINGS]) is None
            return f"{text.rstrip()} ({address}){end}" if hidden else text
        case "abbr":
            long = " ".join(str(tag.get("title") or "").split())
            return text if long in ("", bare) else f"{text} ({long})"
        case "sup":
            if _FOOTNOTE.fullmatch(bare) and (tag.find("a", href=_PLACE) or tag.find_parent("a", href=_PLACE)):
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
    return table.get("role") in ("presentation", "none") or table.find(["table", *HEADINGS]) is not None


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    heads: bool
    """Whether it is a header."""


def _read_table(table: Tag) -> Iterator[tuple[str, tuple[int, int] | None]]:
    """Yield the caption, also of a cell over all columns, and a line for each row, with its place in the file."""
    for caption in table.find_all("caption"):
        yield _flat_text(caption), None
    rows = table.find_all("tr")
    grid = [row[: 1 if all(one is row[0] for one in row) else None] for row in _lay_out(rows)]
    while len(grid) > 2 and len(grid[0]) == 1 < max(map(len, grid)):
        yield grid.pop(0)[0].text, _lines_of(rows.pop(0))
    texts = [[cell.text for cell in row] for row in grid]
    named = [list(dropwhile(lambda cell: not cell.text, row)) for row in grid]  # a corner may be empty
    heads = len(list(takewhile(lambda row: row and all(cell.heads for cell in row), named)))
    heads -= heads > 1 and len(grid[heads - 1]) == 1 < max(map(len, grid))  # the name of a group of rows
    first_row = table.get(FIRST_ROW)
    if not heads and first_row != "plain" and not any(row[0].heads for row in grid if row):
        heads = int(has_header(texts, {"header": True, "maybe": None}.get(str(first_row), False)))
        heads += heads and any(a is b for a, b in pairwise(grid[0])) and has_header(texts[1:])
    heads = heads if heads < len(grid) else 0
    for text, row in zip(format_table(texts, heads), rows[heads:], strict=True):
        yield text, _lines_of(row)


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
