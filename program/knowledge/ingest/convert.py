"""Markdown, HTML and Word files as blocks of plain text, each through a tree of HTML."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from html import escape
from itertools import takewhile

from bs4 import BeautifulSoup, Tag
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.admon import admon_plugin
from mdit_py_plugins.container import container_plugin
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.footnote import footnote_plugin

from ragc.errors import RagcError
from ragc.knowledge.ingest.blocks import (
    END_OF_SECTION,
    FIRST_ROW,
    HEADINGS,
    LINES,
    PLACE,
    Block,
    is_block,
    is_hidden,
    is_put_away,
    join_blocks,
    read_blocks,
    stands_alone,
)
from ragc.knowledge.ingest.bounds import close_tags
from ragc.knowledge.ingest.metadata import Metadata, drop_generated_title, read_fields
from ragc.knowledge.ingest.table_rows import is_label
from ragc.knowledge.ingest.word import read_word
from ragc.passage import Flaw
from ragc.text.days import parse_day

PARSER = "html.parser"  # of what has all its tags
_FURNITURE = ("nav", "header", "footer", "aside", "form")  # of the site, where `_is_furniture` says so
_MAIN = ("main", "article", "[role=main]", "body")
_DATES = ("article:modified_time", "article:published_time", "date", "dc.date", "dcterms.modified", "last-modified")
_MAIN_SHARE = 0.3  # of a page's text that its <main> or <article> must hold to stand for it
_WRAPPER = 0.5  # of a page's text from which on a form, or what else holds it, is the page
_UNPACKED = 20  # times its own size that a file may unpack to
_MARKUP = re.compile(
    r"</(?:[abipusq]|h[1-6]|[dou]l|li|d[dt]|t[dhr]|em|strong|div|span|table|tbody|thead|blockquote|pre|code|su[bp]|font|small"
    r"|section|article|header|footer|figure)\s*>|<(?:br|hr|img)\b[^>]*>|&(?:[a-z]{2,8}|#\d{1,7}|#x[0-9a-f]{1,6});",
    re.IGNORECASE,
)
_PARAGRAPHS = ("p", "li", "td", "th", "dd", "dt", "figcaption", *HEADINGS)  # that a footnote may belong to
_WAY_BACK = re.compile("^#(?:fnref|footnote-ref|endnote-ref)")
_CONTROLS = ("button", "summary", "label", *HEADINGS)
_CARDS = ("div", "article", "section", "a")
_OPENS = ("aria-controls", "data-target", "data-bs-target", "href")  # attributes that name what a control shows
_ALERT = re.compile(r"\A\s*\[!([\w-]+)\][-+]?[^\S\n]*(.*)\s*")  # `[!note]- Title`, which one program folds
_CONTAINER = re.compile(r"\A[\s{.]*([^\s{}\[\]]*)(?:[^\s\[]*\}|\s)*\[?([^\]{]*)")
_MENU_WORDS = 4  # of a line of a menu at most
_COUNT = re.compile(r"\(\d+\)|©.*")  # what figures may stand in one: `Basket (0)`


def _write_math(_: object, tokens: Sequence[Token], at: int, *__: object) -> str:
    """Return math as it is written."""
    token = tokens[at]
    sign = "$" if token.type == "math_inline" else "$$"
    shown = escape(f"{sign}{token.content.strip()}{sign}")
    return shown if "inline" in token.type else f"<p {LINES}='{token.attrGet(LINES)}'>{shown}</p>"


def _write_container(_: object, tokens: Sequence[Token], at: int, *__: object) -> str:
    """Return the tags around what stands between `::: kind title`, or `::: {.kind}`, and `:::`."""
    kind, title = _CONTAINER.findall(tokens[at].info)[0]
    lead = f'<p class="admonition-title">{escape(title.strip() or kind.capitalize())}</p>'
    return f"<div>{lead}" if tokens[at].nesting > 0 else "</div>"


_MARKDOWN = MarkdownIt("commonmark", {"tasklists": True, "alerts": True}).enable(["table", "strikethrough"])
_MARKDOWN.use(dollarmath_plugin, allow_space=False, allow_digits=False, allow_blank_lines=False, double_inline=True)
_MARKDOWN.use(footnote_plugin).use(admon_plugin).use(deflist_plugin)
_MARKDOWN.use(container_plugin, "note", validate=lambda kind, _: any(map(str.isalnum, kind)), render=_write_container)
for _kind in ("math_inline", "math_inline_double", "math_block"):
    _MARKDOWN.add_render_rule(_kind, _write_math)


class UnreadableFile(RagcError):
    """A file that cannot be read; `what` is the reason, without the file's name and a stop."""


@dataclass(frozen=True, slots=True)
class Page:
    """A document's blocks, what its head says, the address it is from, and the number of its first line, if told."""

    blocks: list[Block]
    about: Metadata
    link: str = ""
    first_line: int = 0


def read_markdown(text: str) -> list[Block]:
    """Return the blocks of a Markdown text with tables, as what renders it shows it."""
    tokens = _MARKDOWN.parse(text)
    for token in tokens:
        if token.map and token.nesting >= 0:
            token.attrSet(LINES, f"{token.map[0]} {token.map[1]}")
        if token.type == "html_block" and token.map:
            token.content = f"<{PLACE} {LINES}='{token.map[0]} {token.map[1]}'></{PLACE}>{token.content}"
    tree = parse_page(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))
    for one in tree.select("blockquote p"):
        for mark in one(string=_ALERT, recursive=False):
            mark.replace_with(_ALERT.sub(lambda found: f"{found[2].strip() or found[1].capitalize()}: ", mark))
    lead_notes(tree)
    _place_notes(tree)
    return read_blocks(tree)


def lead_notes(tree: BeautifulSoup) -> None:
    """Let the title of each note, as `Warning`, lead what it stands above."""
    for title in tree.select(".markdown-alert-title, .admonition-title"):
        lead, below = f"{title.get_text().strip()}: ", title.find_next_sibling()
        if below is not None and below.name == "p":
            below.insert(0, lead)
            title.decompose()
        else:
            title.string = lead


def parse_page(markup: bytes | str) -> BeautifulSoup:
    """Return the tree that a browser makes."""
    return BeautifulSoup(close_tags(markup)[0], PARSER)


@lru_cache(maxsize=64)  # a record is read for what it says, and for what is said of it
def read_markup(text: str) -> str:
    """Return a text, without the tags and entities of HTML where it holds some."""
    if not _MARKUP.search(text):
        return text
    return join_blocks(read_blocks(parse_page(text))).strip()


def convert_html(content: bytes | str) -> Page:
    """Return the main part of a web page, without menus, scripts and forms.

    A flaw says what was left out.
    """
    markup, opened = close_tags(content)
    soup = BeautifulSoup(markup, PARSER)
    about = _read_head(soup)
    canonical = soup.select_one("link[rel=canonical]")
    link = str(canonical.get("href") or "") if canonical else ""
    words = {**dict.fromkeys(map("<{}>".format, _FURNITURE), 0), "what is hidden": _open_panels(soup)}
    whole = len(soup.get_text())
    left_out = [element for element in soup(_FURNITURE) if _is_furniture(element, whole)]
    for element in left_out:
        words[f"<{element.name}>"] += len(element.extract().get_text(" ").split())
    found = (soup.select_one(name) for name in _MAIN)
    main = next((part for part in found if part is not None and len(part.get_text()) >= _MAIN_SHARE * whole), soup)
    words[f"what stands outside <{main.name}>"] = len(soup.get_text(" ").split()) - len(main.get_text(" ").split())
    words["menus above and below the text"] = _drop_menus(main) if main.name not in _MAIN[:2] else 0
    what = f"{sum(words.values())} words were left out as page furniture: {', '.join(filter(words.get, words))}"
    mend = "Put what answers questions into the page's <main>."
    flaws = (Flaw(what, mend, lost=False),) if any(words.values()) else ()
    about = replace(about, flaws=(*about.flaws, *flaws, *opened))
    _part_cards(main)
    return Page(read_blocks(main), about, link if link.startswith(("http://", "https://")) else "")


def convert_docx(content: bytes, max_bytes: int) -> Page:
    """Return a Word document. Raises `UnreadableFile` for none, or past `max_bytes`."""
    parts = unpack_parts(content, max_bytes, "no Word document (.docx), or an encrypted one", "Save it anew as .docx.")
    written = read_word(parts)
    tree = parse_page(written.html)
    tables = tree("table")
    for table, first_row in (
        zip(tables, written.first_rows, strict=False) if len(tables) == len(written.first_rows) else ()
    ):
        table[FIRST_ROW] = first_row
    _place_notes(tree)
    _head_bold(tree)
    title = re.search(rb"<dc:title>([^<]*)</dc:title>", parts.get("docProps/core.xml", b""))
    about = read_fields({"title": drop_generated_title(title[1].decode("utf-8", "replace") if title else "")})
    what = f"{written.hidden} words are hidden text, and were left out"
    flaws = (Flaw(what, "Show them in Word, if they answer questions.", lost=False),) if written.hidden else ()
    return Page(read_blocks(tree), replace(about, flaws=flaws))


def _head_bold(tree: BeautifulSoup) -> None:
    """Make a label in bold, be it with a colon, the heading of the text below it, as many write one.

    The first is the title, above another too.
    """
    shown = [one for one in tree("p") if one.get_text().strip()]
    bold = {id(one) for one in shown if one.get_text() == "".join(part.get_text() for part in one("strong"))}
    first = tree.find(["p", "table", *HEADINGS])
    heads = [one for one in shown if id(one) in bold and _leads_text(one, bold)]
    if first is not None and id(first) in bold and first.find_next_sibling() in heads:
        heads.append(first)
    for one in heads:
        label = re.sub(r"\s*:$", "", one.get_text().strip())
        if label and is_label(label):
            one.name, one.string = "h1" if one is first else "h3", label


def _leads_text(label: Tag, bold: Collection[int]) -> bool:
    """Tell whether what stands right below a label is no label in bold."""
    below = label.find_next_sibling()
    return below is not None and id(below) not in bold and below.name in ("p", "table", "ul", "ol")


def _place_notes(tree: BeautifulSoup) -> None:
    """Put each footnote behind the paragraph that refers to it, without marks."""
    for mark in tree.select('sup a[href^="#"]'):
        note, home = tree.find(id=str(mark["href"])[1:]), mark.find_parent([*_PARAGRAPHS])
        ways_back = note.find_all("a", href=_WAY_BACK) if note is not None else []
        for way in ways_back:
            way.decompose()
        if note is not None and ways_back and home is not None:
            note.name, note[LINES] = "div", home.get(LINES) or ""
            (home.append if home.name in ("li", "td", "th", "dd") else home.insert_after)(note.extract())
        mark.decompose()


def _open_panels(soup: BeautifulSoup) -> int:
    """Take away what a browser hides, but for what a click shows; return the number of words that were hidden.

    A click shows what a control names, which then stands before it, and what is behind a button or a heading.
    """
    opens = [(one, str(one[name])) for name in _OPENS for one in soup.select(f"[{name}]")]
    controls = {id_.removeprefix("#"): one for one, ids in opens for id_ in ids.split()}
    words = 0
    for element in soup(lambda tag: is_hidden(tag) or tag.get("role") == "tabpanel"):
        if element.decomposed:
            continue
        panel, label = element.get("role") == "tabpanel", str(element.get("aria-labelledby") or "")
        control = controls.get(str(element.get("id"))) or (soup.find(id=label) if label else None)
        before = element.find_previous_sibling()
        own = before if before is None or before.name in _CONTROLS else before.find([*_CONTROLS])
        leads = before is not None and own is not None and own.get_text().strip() == before.get_text().strip()
        if not panel and not is_put_away(element):
            words += len(element.get_text(" ").split()) if element.name == "select" else 0
            element.decompose()
        elif control is not None or leads or panel:
            del element["hidden"], element["style"]
            if control is not None and not leads and stands_alone(control):
                element.insert_before(control.extract())
        else:
            words += len(element.get_text(" ").split())
            element.decompose()
    return words


def _drop_menus(main: Tag) -> int:
    """Take away the menus at both ends of a page without a <main>; return the number of their words.

    A menu is nothing but links, or several <div> of a few words without a figure, of which one is a link or counts, or
    which stand above the first heading. What else stands beside it belongs to no section.
    """
    blocks = [one for one in main(is_block) if one.get_text().strip()]
    menus = {id(one) for one in blocks if _holds_links(one)}
    inner = {id(below) for one in blocks if id(one) in menus for below in one.descendants}
    leaves = [one for one in blocks if id(one) not in inner and (id(one) in menus or one.find(is_block) is None)]

    def is_line(leaf: Tag) -> bool:
        return id(leaf) in menus or (leaf.name == "div" and _is_entry(leaf))

    words = 0
    for run in (list(takewhile(is_line, leaves)), list(takewhile(is_line, reversed(leaves)))[::-1]):
        before = leaves[leaves.index(run[0]) - 1] if run and run[0] is not leaves[0] else None
        if not 0 < len(run) < len(leaves):
            continue
        said, linked = before.get_text().strip() if before else "", any(one.find("a", href=True) for one in run)
        led = before and (before.name in HEADINGS or said[-1] in ":?" or (not linked and is_label(said)))
        listed = before and before.name not in ("p", "div") and id(run[0]) not in menus
        counts = linked or any(_COUNT.search(one.get_text()) or _has_figure(one) for one in run)
        if led or listed or not (counts or (not before and leaves[len(run)].name in HEADINGS)):
            continue
        if before is not None:
            run[0].insert_before(Tag(name=END_OF_SECTION, attrs={"level": "1"}))
        if (len(run) > 1 or id(run[0]) in menus) and not any(map(_has_figure, run)):
            words += sum(len(one.extract().get_text(" ").split()) for one in run)
    return words


def _holds_links(block: Tag) -> bool:
    """Tell whether a block is several links of a few words, none to a telephone or a mailbox, and nothing else."""
    links = block("a", href=True)
    said, linked = (sum(map(str.isalnum, "".join(one.get_text() for one in tags))) for tags in ([block], links))
    calls = any(str(one["href"]).startswith(("tel:", "mailto:")) for one in links)
    return len(links) > 1 and said == linked and not calls and not _has_figure(block) and all(map(_is_entry, links))


def _is_entry(tag: Tag) -> bool:
    """Tell whether an element has a few words, as an entry of a menu has, or a figure beside them."""
    text = _COUNT.sub("", tag.get_text(" ")).strip()
    return not text or (is_label(text) and (len(text.split()) <= _MENU_WORDS or _has_figure(tag)))


def _has_figure(tag: Tag) -> bool:
    return any(map(str.isdigit, _COUNT.sub("", tag.get_text())))


def _part_cards(main: Tag) -> None:
    """Let no card without a heading, a neighbour of others of its class, stand under that of the card above it.

    One of short lines is one line.
    """
    for card in main(_CARDS):
        beside = [card.find_previous_sibling(), card.find_next_sibling()]
        alike = [one for one in beside if one and one.name == card.name and one.get("class") == card.get("class")]
        if not (card.get("class") or card.name in _CARDS[1:3]) or not alike or card.find([*HEADINGS]):
            continue
        if headings := [found for one in alike if (found := one.find([*HEADINGS]))]:
            card.insert_before(Tag(name=END_OF_SECTION, attrs={"level": headings[0].name[1:]}))
        lines = [block.text for block in read_blocks(card) if block.kind == "paragraph"]
        if len(lines) > 1 and all(map(is_label, lines)):
            card.string = "; ".join(lines)


def unpack_parts(content: bytes, max_bytes: int, damaged: str, mend: str) -> dict[str, bytes]:
    """Return the parts of a zipped file by name.

    Raises `UnreadableFile`, as `damaged` with a `mend`, for one that cannot be unpacked, past `max_bytes`, and where a
    part defines entities: no program writes any, and a few of them fill any memory.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            size = sum(part.file_size for part in file.infolist())
            if size > max(max_bytes, _UNPACKED * len(content)):
                raise UnreadableFile(f"it unpacks to {size / 1e6:.0f} MB", "Cut it up, or raise max_megabytes.")
            parts = {name: file.read(name) for name in file.namelist()}
    except zipfile.BadZipFile as error:
        raise UnreadableFile(damaged, mend) from error
    for name, part in parts.items():
        if name.endswith((".xml", ".rels")) and b"<!ENTITY" in part.replace(b"\0", b""):  # in UTF-16, too
            raise UnreadableFile(f"its part {name} defines entities", mend)
    return parts


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
    title = named.get("og:title") or (title.get_text() if (title := soup.select_one("title:not(svg title)")) else "")
    readers: object = named.get("readers") or [] if "readers" in named else ""
    return read_fields({"title": title, "as_of": as_of, "readers": readers})
