"""Files of reStructuredText as pages, through the HTML that docutils makes of them."""

from __future__ import annotations

import re
from typing import Any

from ragc.knowledge.ingest.blocks import read_blocks
from ragc.knowledge.ingest.convert import Page, lead_notes, parse_page
from ragc.knowledge.ingest.decode import decode_text
from ragc.knowledge.ingest.lines import read_plain_text
from ragc.knowledge.ingest.metadata import Metadata
from ragc.passage import Flaw
from ragc.text.days import parse_day

_SETTINGS = {"file_insertion_enabled": False, "raw_enabled": False, "report_level": 5, "halt_level": 6,
             "_disable_config": True, "embed_stylesheet": False, "syntax_highlight": "none"}  # fmt: skip
_UNKNOWN = re.compile(r'Unknown (directive type|interpreted text role) "([^"]+)"')
_OPTION, _TARGET = re.compile(r"\s*:[\w-]+:"), re.compile(r"\s*<[^>]*>\Z")


def convert_rst(content: bytes) -> Page:
    """Return reStructuredText as it is shown, or without the extra its lines."""
    text, flaws = decode_text(content)
    try:
        from docutils import nodes
        from docutils.core import publish_doctree, publish_from_doctree
    except ImportError:
        flaw = Flaw("was read without its headings and tables", "Install the extra `rst` (docutils).", lost=False)
        return Page(read_plain_text(text), Metadata(flaws=(*flaws, flaw)), first_line=1)
    known = set[tuple[str, ...]]()  # what Sphinx defines, or another program
    while True:
        tree = publish_doctree(text, settings_overrides=_SETTINGS)
        errors = (_UNKNOWN.search(one.astext()) for one in tree.findall(nodes.system_message))
        if not (unknown := {one.groups() for one in errors if one} - known):
            break
        known |= unknown
        for kind, name in unknown:
            _register_name(kind, name)
    notes = {id_: note for note in tree.findall(nodes.footnote) for id_ in note["ids"]}
    for mark in list(tree.findall(nodes.footnote_reference)):
        home = mark.parent
        while not isinstance(home, nodes.paragraph | nodes.title):
            home = home.parent
        mark.parent.remove(mark)
        if note := notes.pop(mark.get("refid"), None):  # behind the paragraph that refers to it
            note.parent.remove(note)
            home.parent.insert(home.parent.index(home) + 1, note.children[1:])
    for heading in list(tree.findall(nodes.subtitle)):  # as docutils takes the one section of a document
        at = tree.index(heading)
        below = tree.children[at + 1 :]
        tree[at:] = [nodes.section("", nodes.title("", "", *heading.children), *below)]
    soup = parse_page(publish_from_doctree(tree, writer="html5", settings_overrides=_SETTINGS).decode())
    lead_notes(soup)
    day = next((parse_day(one.astext()) for one in tree.findall(nodes.date)), None)
    return Page(read_blocks(soup), Metadata(as_of=day, flaws=tuple(flaws)))


def _register_name(kind: str, name: str) -> None:
    """Have docutils read the text of a directive, or of a role, that it does not know."""
    from docutils import nodes
    from docutils.parsers.rst import Directive, directives, roles
    from docutils.statemachine import StringList

    class Unknown(Directive):
        optional_arguments, final_argument_whitespace, has_content = 1, True, True

        def run(self) -> list[Any]:
            said = [line for line in "\n".join(self.arguments).split("\n") if not _OPTION.match(line)]
            node = nodes.container()
            self.state.nested_parse(StringList([*said, "", *self.content], source=""), self.content_offset, node)
            return [node]

    def write_role(_: str, raw: str, text: str, *__: Any, **___: Any) -> tuple[list[Any], list[Any]]:
        return [nodes.inline(raw, _TARGET.sub("", text))], []

    if kind.startswith("directive"):
        directives.register_directive(name, Unknown)
    else:
        roles.register_local_role(name, write_role)
