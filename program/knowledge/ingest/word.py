"""A Word file as HTML by mammoth, once what mammoth leaves out was put into its text, and hidden text taken out."""

from __future__ import annotations

import io
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from ragc.knowledge.ingest.blocks import END_OF_SECTION, TITLE

PAGE_WORDS = 3  # beside the number of a page, at most
W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_STRICT = ((b"purl.oclc.org/ooxml/wordprocessingml", b"schemas.openxmlformats.org/wordprocessingml/2006"),
           (b"purl.oclc.org/ooxml/officeDocument", b"schemas.openxmlformats.org/officeDocument/2006"))  # fmt: skip
_READ = re.compile(r"word/(document|header|footer|footnotes|endnotes|styles)\d*\.xml")
_STYLES = "\n".join(f"p[style-name='{name}'] => {TITLE}:fresh" for name in ("Title", "title"))
_PAGE = re.compile(r"\b(?:NUM|SECTION)?PAGES?\b")  # the instruction of a field for the number of a page
_SPELT = {"sSup": "{e}^{sup}", "sSub": "{e}_{sub}", "sSubSup": "{e}_{sub}^{sup}", "f": "{num}/{den}",
          "rad": "√{root}{e}", "nary": "{chr}_{sub}^{sup} {e}", "d": "{begChr}{whole}{endChr}", "func": "{fName} {e}",
          "limLow": "{e}_{lim}", "limUpp": "{e}^{lim}"}  # fmt: skip
_SIGNS = {"chr": "∫", "begChr": "(", "endChr": ")"}  # where an equation says nothing
_PARTED = {"d": ", ", "mr": " ", "m": "; ", "eqArr": "; "}  # by what the parts of an equation are parted
_AROUND = (f"{M}oMathPara", f"{W}fldSimple", f"{W}bdo", f"{W}dir")  # what mammoth reads as a smart tag alone


class WordText(NamedTuple):
    """The HTML of a Word file, and how many of its words are hidden."""

    html: str
    first_rows: list[str]
    """Of each table how its first row is set apart: `header`, `plain`, or `maybe`, as Word does by itself."""
    hidden: int


def read_word(parts: Mapping[str, bytes]) -> WordText:
    """Return the text of a Word file, given its parts by name."""
    import mammoth

    stream, texts, trees, hidden = io.BytesIO(), defaultdict[str, list[str]](list), dict[str, Element](), 0
    with zipfile.ZipFile(stream, "w") as copy:
        for name in sorted(parts):
            part = parts[name]
            for strict, plain in _STRICT if name.endswith((".xml", ".rels")) else ():
                part = part.replace(strict, plain)
            if _READ.fullmatch(name):
                trees[name] = ElementTree.fromstring(part)
            else:
                copy.writestr(name, part)
        styles = {one.get(f"{W}styleId"): one for tree in trees.values() for one in tree.iterfind(f"{W}style")}
        for name, tree in trees.items():
            hidden += _complete(tree, styles)
            texts[name[5:11]] += _list_lines(tree) if name[5:11] in ("header", "footer") else ()
            copy.writestr(name, ElementTree.tostring(tree))
    pictures: Any = mammoth.images.img_element(lambda _: {})
    html = mammoth.convert_to_html(stream, convert_image=pictures, style_map=_STYLES).value
    above, below = ("".join(f"<p>{escape(one)}</p>" for one in dict.fromkeys(texts[k])) for k in ("header", "footer"))
    tables = [one for name, tree in trees.items() if name[5:].startswith("document") for one in tree.iter(f"{W}tbl")]
    end = f"<{END_OF_SECTION}></{END_OF_SECTION}>" if below else ""
    return WordText(f"{above}{html}{end}{below}", list(map(_tell_first_row, tables)), hidden)


def _is_on(element: Element | None) -> bool:
    return element is not None and element.get(f"{W}val") not in ("0", "false", "off")


def _look_up(styles: Mapping[str | None, Element], id_: str | None, path: str) -> Element | None:
    """Return what a style says, or the one that it is based on."""
    for _ in styles:  # they may be based on each other
        found, base = (styles[id_].find(one) if id_ in styles else None for one in (path, f"{W}basedOn"))
        if found is not None or base is None:
            return found
        id_ = base.get(f"{W}val")
    return None


def _complete(tree: Element, styles: Mapping[str | None, Element]) -> int:
    """Take hidden text out, write equations and boxes as text, number what a style does; return the hidden words."""
    words = 0
    unseen = {id_ for id_ in styles if _is_on(_look_up(styles, id_, f"{W}rPr/{W}vanish"))}
    counted = {id_: _look_up(styles, id_, f"{W}pPr/{W}numPr") for id_ in styles}
    for paragraph in tree.iter(f"{W}p"):
        style, own = paragraph.find(f"{W}pPr/{W}pStyle"), paragraph.find(f"{W}pPr")
        numbers = None if style is None else counted.get(style.get(f"{W}val"))
        if own is not None and numbers is not None and own.find(f"{W}numPr") is None:
            level = Element(f"{W}ilvl", {f"{W}val": "0"})
            ElementTree.SubElement(own, f"{W}numPr").extend([*numbers, *([level] if len(numbers) < 2 else [])])
        for run in paragraph.iter(f"{W}r"):
            rise = run.find(f"{W}rPr/{W}position")
            if rise is not None and (by := rise.get(f"{W}val", "").strip("0")):
                rise.tag, rise.attrib = f"{W}vertAlign", {f"{W}val": "subscript" if by[0] == "-" else "superscript"}
            own, named = run.find(f"{W}rPr/{W}vanish"), (style, run.find(f"{W}rPr/{W}rStyle"))
            by_style = any(one is not None and one.get(f"{W}val") in unseen for one in named)
            if by_style if own is None else _is_on(own):
                words += len(" ".join(text.text or "" for text in run.iter(f"{W}t")).split())
                run.clear()
    for formula in list(tree.iter(f"{M}oMath")):
        spelt = _spell_formula(formula)
        formula.clear()
        formula.tag, ElementTree.SubElement(formula, f"{W}t").text = f"{W}r", spelt
    for around in (one for one in tree.iter() if one.tag in _AROUND):
        around.tag = f"{W}smartTag"
    for prompt in tree.iterfind(f".//{W}sdtPr/{W}showingPlcHdr/../..//{W}t"):
        prompt.text = ""
    for choice in tree.iter(f"{MC}AlternateContent"):
        if choice.find(f"{MC}Choice//{W}txbxContent") is not None:
            choice[:] = choice.findall(f"{MC}Choice")
    parents = {child: parent for parent in tree.iter() for child in parent}
    for box in reversed(list(tree.iter(f"{W}txbxContent"))):
        host: Element | None = box
        while host is not None and host.tag != f"{W}p":
            host = parents.get(host)
        if host is not None:
            home = parents[host]
            at = list(home).index(host) + 1
            home[at:at] = list(box)
            parents |= dict.fromkeys(box, home)
            box.clear()
    return words


def _spell_formula(element: Element) -> str:
    """Return an equation on one line."""
    name, parts = element.tag.rpartition("}")[2], [(one.tag.rpartition("}")[2], _spell_formula(one)) for one in element]
    texts = [text for key, text in parts if not key.endswith("Pr")]
    whole = element.text or "" if name == "t" else _PARTED.get(name, "").join(texts)
    inner = {key: text if text.isalnum() or len(text) < 2 else f"({text})" for key, text in parts}
    inner |= {**_SIGNS, "whole": whole, "root": f"[{inner['deg']}]" if inner.get("deg") else ""}
    inner |= {one.tag.rpartition("}")[2]: one.get(f"{M}val", "") for one in element.iterfind(f"{M}{name}Pr/*")}
    return _SPELT[name].format_map(defaultdict(str, inner)) if name in _SPELT else whole


def _tell_first_row(table: Element) -> str:
    look = table.find(f"{W}tblPr/{W}tblLook")
    if look is None:
        return "maybe"
    bits = int(look.get(f"{W}val") or "0", 16)
    row, column = (look.get(f"{W}{name}", str(bits & bit)) not in ("0", "false")
                   for name, bit in (("firstRow", 0x20), ("firstColumn", 0x80)))  # fmt: skip
    return "plain" if not row else "maybe" if column else "header"


def _list_lines(margin: Element) -> Iterator[str]:
    """Yield the lines of a header or footer, parted at tabs, without those that only count pages."""
    for paragraph in margin.iter(f"{W}p"):
        text = ""
        for one in paragraph.iter():
            field = (one.text or "") if one.tag == f"{W}instrText" else one.get(f"{W}instr", "")
            breaks = one.tag in (f"{W}tab", f"{W}br") and not one.attrib
            text += "\0" * bool(_PAGE.search(field)) + "\t" * breaks + (one.text or "") * (one.tag == f"{W}t")
        for part in text.split("\t"):
            words = part.replace("\0", " ").split()
            if words and ("\0" not in part or sum(map(str.isalpha, words)) > PAGE_WORDS):
                yield " ".join(words)
