"""Kinds of files that people have: read as what a reader of them sees, or told with a remedy of their own."""

import io
import json
import sys
import zipfile
from datetime import date, datetime
from email.message import EmailMessage

import pytest
import yaml

from ragc.errors import KnowledgeError
from ragc.knowledge.ingest.convert import UnreadableFile
from ragc.knowledge.ingest.folder import read_base
from ragc.knowledge.ingest.sections import READ, parse_file
from ragc.settings import FileSettings

ODF = 'xmlns:o="urn:office" xmlns:t="urn:text" xmlns:b="urn:table" xmlns:s="urn:style" xmlns:d="urn:draw" xmlns:p="urn:pres"'
PPT = 'xmlns:a="urn:a" xmlns:p="urn:p" xmlns:r="urn:r"'


def read(name, content):
    """What a file's passages say of themselves: title and text."""
    content = content.encode() if isinstance(content, str) else content
    document, flaws = parse_file(f"x/{name}", content)
    return [(passage.title, passage.text) for passage in document.passages], flaws


def pack(parts):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, text in parts.items():
            file.writestr(name, text)
    return stream.getvalue()


def write_odf(body, automatic=""):
    return pack({
        "content.xml": f"<o:document {ODF}><o:automatic-styles>{automatic}</o:automatic-styles><o:body>{body}</o:body></o:document>",
        "meta.xml": "<meta><title>untitled</title></meta>",
    })  # fmt: skip


def write_odt():
    raised = '<s:style s:name="T1"><s:text-properties s:text-position="super 58%"/></s:style>'
    hidden = '<s:style s:name="T2"><s:text-properties t:display="none"/></s:style>'
    return write_odf(
        '<o:text><t:h t:outline-level="1">Rental terms</t:h><t:h t:outline-level="2">Insurance</t:h>'
        '<t:p>Never above 80<t:span t:style-name="T1">2</t:span> bar.<t:span t:style-name="T2"> Margin 70.</t:span></t:p>'
        "<b:table><b:table-header-rows><b:table-row><b:table-cell><t:p>Item</t:p></b:table-cell><b:table-cell><t:p>Price</t:p>"
        "</b:table-cell><b:table-cell><t:p>Days</t:p></b:table-cell></b:table-row></b:table-header-rows>"
        '<b:table-row><b:table-cell><t:p>Ladder</t:p></b:table-cell><b:table-cell b:number-columns-repeated="2"><t:p>7</t:p>'
        "</b:table-cell></b:table-row></b:table><t:list><t:list-item><t:p>red</t:p></t:list-item></t:list></o:text>",
        raised + hidden,
    )


def write_ods():
    def row(*cells, more=""):
        return f"<b:table-row>{''.join(f'<b:table-cell><t:p>{one}</t:p></b:table-cell>' for one in cells)}{more}</b:table-row>"

    empty = '<b:table-cell b:number-columns-repeated="1000"/>'
    table = row("Boat", "Seats", "Price", more=empty) + row("Otter", "4", "7.50", more=empty)
    rest = f'<b:table-row b:number-rows-repeated="1000000">{empty}</b:table-row>'
    return write_odf(f'<o:spreadsheet><b:table b:name="Boats">{table}{rest}</b:table></o:spreadsheet>')


def write_slides(*slides, notes="", reverse=False):
    """A presentation of slides, each its shapes; a slide of None is hidden."""
    places = range(len(slides))
    order = "".join(f"<p:s r:id='r{n}'/>" for n in (reversed(places) if reverse else places))
    rels = "".join(f"<x Id='r{n}' Type='urn/slide' Target='slides/s{n}.xml'/>" for n in places)
    parts = {
        "ppt/presentation.xml": f"<p:p {PPT}>{order}</p:p>",
        "ppt/_rels/presentation.xml.rels": f"<rels>{rels}</rels>",
        "docProps/core.xml": "<core><title>PowerPoint Presentation</title></core>",
    }
    for n, shapes in enumerate(slides):
        parts[f"ppt/slides/s{n}.xml"] = f"<p:sld {PPT} show='{int(shapes is not None)}'>{shapes or ''}</p:sld>"
    if notes:
        parts["ppt/slides/_rels/s0.xml.rels"] = (
            "<rels><x Id='n' Type='urn/notesSlide' Target='../notes/n0.xml'/></rels>"
        )
        parts["ppt/notes/n0.xml"] = f"<p:n {PPT}>{write_shape('body', notes)}{write_shape('sldNum', '1')}</p:n>"
    return pack(parts)


def write_shape(kind, *paragraphs):
    place = f'<p:nvPr><p:ph type="{kind}"/></p:nvPr>' if kind else ""
    texts = "".join(f"<a:p><a:r><a:rPr/><a:t>{one}</a:t></a:r></a:p>" for one in paragraphs)
    return f"<p:sp>{place}<p:txBody>{texts}</p:txBody></p:sp>"


def write_slide_table(*rows):
    cells = ("".join(f"<a:tc><a:p><a:r><a:t>{one}</a:t></a:r></a:p></a:tc>" for one in row) for row in rows)
    return f'<a:tbl><a:tblPr firstRow="1"/>{"".join(f"<a:tr>{row}</a:tr>" for row in cells)}</a:tbl>'


def write_epub():
    chapter = "<html xmlns='http://www.w3.org/1999/xhtml'><head><title>x</title></head><body><h1>{}</h1><p>{}</p></body></html>"
    return pack({
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<c><rootfile full-path="OPS/book.opf"/></c>',
        "OPS/book.opf": '<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>Keeping bees</dc:title></metadata>'
        '<manifest><item id="b" href="two.xhtml"/><item id="a" href="the%20first.xhtml"/>'
        '<item id="n" href="nav.xhtml" properties="nav"/></manifest>'
        '<spine><itemref idref="n"/><itemref idref="a"/><itemref idref="b"/></spine></package>',
        "OPS/the first.xhtml": chapter.format("Spring", "Feed them in March."),
        "OPS/two.xhtml": chapter.format("Winter", "Leave them alone."),
        "OPS/nav.xhtml": chapter.format("Contents", "Spring, Winter"),
    })  # fmt: skip


def write_mail(text, html="", attach=False):
    message = EmailMessage()
    message["Subject"], message["From"], message["Date"] = "Milk", "ann@example.org", "Tue, 3 Nov 2026 09:15:00 +0100"
    message.set_content(text)
    if html:
        message.add_alternative(html, subtype="html")
    if attach:
        message.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="list.pdf")
    return message.as_bytes()


def write_excel(sheets, hidden=(), formats=None, merged=(), unseen=()):
    openpyxl = pytest.importorskip("openpyxl")
    book, stream = openpyxl.Workbook(), io.BytesIO()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
        for place, code in (formats or {}).items():
            sheet[place].number_format = code
        for area in merged:
            sheet.merge_cells(area)
        for one in unseen:
            (sheet.row_dimensions if isinstance(one, int) else sheet.column_dimensions)[one].hidden = True
        sheet.sheet_state = "hidden" if name in hidden else "visible"
    book.save(stream)
    return stream.getvalue()


ROOMS = "Room: Elm; Seats: 20"
CAPTIONS = "WEBVTT\n\n1\n00:01.000 --> 00:03.000 align:left\n<v Ann>The valve opens\n\n2\n00:03.000 --> 00:05.000\nat <i>4</i> bar.\n"
KINDS = {
    "a.markdown": ("# Doors\n\nShut at ten.\n", [("Doors", "Shut at ten.")]),
    "a.mdx": ("# Doors\n\nShut at ten.\n", [("Doors", "Shut at ten.")]),
    "a.text": ("Shut at ten.", [("a", "Shut at ten.")]),
    "a.log": ("2026-11-03 09:15 on\n2026-11-03 09:20 off\n", [("a", "2026-11-03 09:15 on\n2026-11-03 09:20 off")]),
    "a.rst": ("Shut at ten.\n", [("a", "Shut at ten.")]),
    "a.xhtml": ("<?xml version='1.0'?><html><body><h1>Doors</h1><p>Shut at ten.</p></body></html>", [("Doors", "Shut at ten.")]),
    "a.vtt": (CAPTIONS, [("a", "Ann: The valve opens at 4 bar.")]),
    "a.srt": ("1\n00:00:01,000 --> 00:00:02,000\nOne.\n\n2\n00:00:02,000 --> 00:00:03,000\nTwo.\n", [("a", "One.\n\nTwo.")]),
    "a.json": ('[{"room": "Elm", "seats": 20}, {"room": "Oak", "seats": null}]', [("a", "room: Elm; seats: 20"), ("a", "room: Oak")]),
    "tree.json": (
        '{"site": "North", "rooms": [{"room": "Elm", "open": {"from": 8}}, {"room": "Oak", "tags": ["old", "big"]}]}',
        [("tree", "site: North"), ("tree", "room: Elm; open from: 8"), ("tree", "room: Oak; tags: old, big")],
    ),
    "html.json": ('[{"title": "Lift", "body": "<p>Out of order until <b>Friday</b>.</p>"}]', [("Lift", "Out of order until Friday.")]),
    "lines.json": ('{"room": "Elm"}\n{"room": "Oak"}\n', [("lines", "room: Elm"), ("lines", "room: Oak")]),
    "a.yaml": ("- room: Elm\n  since: 2026-11-03\n- room: Oak\n", [("a", "room: Elm; since: 2026-11-03"), ("a", "room: Oak")]),
    "b.yaml": (
        "price: 4.50\nfrom: 9:30\nno: no\ncode: 007\nend: ~\nbase: &a {x: 1.10}\nnext:\n  <<: *a\n---\n2026: so\n",
        [("b", "price: 4.50; from: 9:30; no: no; code: 007; base x: 1.10; next x: 1.10"), ("b", "2026: so")],
    ),
    "b.json": (
        '[{"title": "Fish &amp; <b>chips</b>", "price": 4.50, "body": "<ul><li>Hall A<li>Hall B</ul>"}]',
        [("Fish & chips", "- Hall A\n- Hall B")],
    ),
    "b.jsonl": ('{"price": 4.50, "share": 1e3}\n', [("b", "price: 4.50; share: 1e3")]),
    "a.odt": (write_odt(), [("Rental terms > Insurance", "Never above 80^2 bar.\n\nItem: Ladder; Price: 7; Days: 7\n\n- red")]),
    "a.ods": (write_ods(), [("a", "Boat: Otter; Seats: 4; Price: 7.50")]),
    "a.epub": (write_epub(), [("Keeping bees > Spring", "Feed them in March."), ("Keeping bees > Winter", "Leave them alone.")]),
    "a.eml": (write_mail("The milk comes on Monday.\n"), [("Milk", "The milk comes on Monday.")]),
    "a.pptx": (
        write_slides(
            write_shape("title", "Fire drill") + write_shape("", "Leave by the stairs.", "Meet in the yard.") + write_shape("ftr", "ACME"),
            write_shape("title", "Rooms") + write_slide_table(("Room", "Seats"), ("Elm", "20")),
            notes="The yard is behind the kitchen.",
        ),
        [("a > Fire drill", "Leave by the stairs.\n\nMeet in the yard.\n\nThe yard is behind the kitchen."), ("a > Rooms", ROOMS)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_a_file_of_each_kind_is_read_as_what_its_reader_sees(name):
    content, expected = KINDS[name]
    passages, flaws = read(name, content)
    assert passages == expected and not flaws


RST = {
    "headings": ("Hall\n====\n\nHours\n-----\n\nOpen at\nnine.\n", [("Hall > Hours", "Open at nine.")]),
    "simple tables": (
        "=====  ======\nRoom   Seats\n=====  ======\nElm    20\nOak    35\n=====  ======\n",
        [("a", "Room: Elm; Seats: 20\nRoom: Oak; Seats: 35")],
    ),
    "grids with merged cells": (
        "+-----+------+\n| Day | Who  |\n+=====+======+\n| Mon | Ann  |\n|     +------+\n|     | Bob  |\n+-----+------+\n",
        [("a", "Day: Mon; Who: Ann\nDay: Mon; Who: Bob")],
    ),
    "lists and terms": ("1. Lock\n2. Go\n\n   - home\n\nKey\n   At the office.\n", [("a", "1. Lock\n2. Go\n- Go: home\n\n- Key: At the office.")]),
    "notes": ("Free for all [#]_.\n\n.. warning:: Deep water.\n\n.. [#] But dogs.\n", [("a", "Free for all .\n\nBut dogs.\n\nWarning: Deep water.")]),
    "what another program defines": (
        "See :ref:`the page <prices>`.\n\n.. versionadded:: 2.1\n   A lift.\n\n.. tip-box::\n   :class: x\n\n   Ask first.\n\n   .. tab:: Mac\n\n      Ring.\n",
        [("a", "See the page.\n\n2.1 A lift.\n\nAsk first.\n\nMac\n\nRing.")],
    ),
    "what is outside": (".. include:: /etc/hostname\n\n.. raw:: html\n\n   <b>x</b>\n\nText.\n", [("a", "Text.")]),
}  # fmt: skip


@pytest.mark.parametrize("kind", RST)
def test_restructured_text_is_read_as_what_renders_it_shows_it(kind):
    pytest.importorskip("docutils")
    content, shown = RST[kind]
    assert read("a.rst", content) == (shown, [])


def test_without_the_extra_restructured_text_is_read_as_lines_and_a_flaw_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "docutils", None)
    passages, (flaw,) = read("a.rst", "Hall\n====\n\nOpen at nine.\n")
    assert "Open at nine." in passages[0][1] and "extra `rst`" in flaw.mend and not flaw.lost


def test_an_excel_file_is_its_rows_as_its_cells_show_them():
    rows = [["Item", "Price", "Share", "From"], ["Bolt", 1200.5, 0.125, datetime(2026, 11, 3)], ["Nut", 3, None, None]]
    formats = {"B2": '"EUR" #,##0.00', "C2": "0.0%"}
    passages, flaws = read("a.xlsx", write_excel({"Prices": rows}, formats=formats))
    assert [text for _, text in passages] == [
        "Item: Bolt; Price: EUR 1,200.50; Share: 12.5%; From: 2026-11-03", "Item: Nut; Price: 3",
    ] and not flaws  # fmt: skip


def test_each_sheet_of_an_excel_file_is_a_table_and_hidden_ones_and_lost_values_are_told():
    sheets = {"Boats": [["Boat", "Seats"], ["Otter", 4]], "Crew": [["Name", "Days"], ["Ann", "=1+1"]], "Old": [["x"]]}
    passages, flaws = read("a.xlsx", write_excel(sheets, hidden=["Old"]))
    assert passages == [("Boats", "Boat: Otter; Seats: 4"), ("Crew", "Name: Ann")]
    assert sorted(flaw.what for flaw in flaws) == [
        "1 formulas of the sheet 'Crew' have no value", "the hidden sheet 'Old' was left out",
    ]  # fmt: skip


MERGED = [["Room", "Summer", None, "Winter", None], [None, "Day", "Week", "Day", "Week"], ["Elm", 10, 60, 8, 45]]
SHEETS = {
    "a header of two rows": (
        {"rows": MERGED, "merged": ["A1:A2", "B1:C1", "D1:E1"]},
        ["Room: Elm; Summer Day: 10; Summer Week: 60; Winter Day: 8; Winter Week: 45"], [],
    ),
    "cells of several rows and columns": (
        {"rows": [["Day", "Name", "Hours"], ["Mon", "Ann", "8-12"], [None, "Bob", "12-17"], ["Tue", "closed", None]],
         "merged": ["A2:A3", "B4:C4"]},
        ["Day: Mon; Name: Ann; Hours: 8-12", "Day: Mon; Name: Bob; Hours: 12-17", "Day: Tue; Name: closed; Hours: closed"], [],
    ),
    "a title over all columns": (
        {"rows": [["Rooms of 2026", None], ["Room", "Seats"], ["Elm", 20], ["Oak", 35]], "merged": ["A1:B1"]},
        ["Room: Elm; Seats: 20", "Room: Oak; Seats: 35"], ["'Rooms of 2026' stands above the header and was taken for the title"],
    ),
    "hidden rows and columns": (
        {"rows": [["Room", "Seats", "Margin"], ["Elm", 20, 7], ["Ash", 9, 8], ["Oak", 35, 9]], "unseen": [3, "C"]},
        ["Room: Elm; Seats: 20", "Room: Oak; Seats: 35"], ["6 cells of the sheet 'A' are hidden, and were left out"],
    ),
    "amounts with the sign of a currency": (
        {"rows": [["Room", "Fee"], ["Elm", 20], ["Oak", 1235.5]], "formats": {"B2": "[$EUR] #,##0.00", "B3": '#,##0.00\\ "€"'}},
        ["Room: Elm; Fee: EUR 20.00", "Room: Oak; Fee: 1,235.50 €"], [],
    ),
}  # fmt: skip


@pytest.mark.skipif(".xlsx" not in READ, reason="needs the extra excel")
@pytest.mark.parametrize("kind", SHEETS)
def test_a_sheet_is_read_as_it_is_shown(kind):
    layout, shown, told = SHEETS[kind]
    passages, flaws = read(
        "a.xlsx", write_excel({"A": layout["rows"]}, **{k: v for k, v in layout.items() if k != "rows"})
    )
    assert [text for _, text in passages] == shown and [flaw.what for flaw in flaws] == told


def test_without_the_extra_an_excel_file_is_refused_by_its_name(monkeypatch):
    content = write_excel({"A": [["x", "y"]]})
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(UnreadableFile, match="extra `excel`"):
        read("a.xlsx", content)


HIRE = [["Room", "Day"], ["Beech", "100"], ["Oak", "140"]]
EXTRAS = [["Item", "Price"], ["Projector", "15"], ["Coffee", "2.5"]]
PARTED = [
    ([*HIRE, [], *EXTRAS], [("Hire", "Room: Beech; Day: 100"), ("Hire 2", "Item: Coffee; Price: 2.5")]),
    ([*HIRE, [], ["Extras"], *EXTRAS], [("Hire", "Room: Oak; Day: 140"), ("Extras", "Item: Projector; Price: 15")]),
    ([["House"], [], *HIRE, [], *EXTRAS[1:]], [("House", "Room: Oak; Day: 140"), ("House", "Room: Coffee; Day: 2.5")]),
]


@pytest.mark.skipif(".xlsx" not in READ, reason="needs the extra excel")
@pytest.mark.parametrize(("rows", "shown"), PARTED)
def test_a_table_of_a_sheet_behind_an_empty_row_has_its_own_header_else_it_goes_on(rows, shown):
    passages, _ = read("a.xlsx", write_excel({"Hire": rows}))
    assert len(passages) == 4 and set(shown) <= set(passages)


BIRCH = [{"name": "Birch", "seats": 20}, {"name": "Elm", "seats": 8}]
TREES = [
    ({"rooms": BIRCH, "boats": BIRCH}, [("rooms", "name: Birch; seats: 20"), ("boats", "name: Birch; seats: 20")]),
    ({"town": "Ayr", "rooms": BIRCH, "north": {"boats": BIRCH}}, [("a", "town: Ayr"), ("north boats", "name: Elm; seats: 8")]),
    ({"rooms": BIRCH}, [("a", "name: Birch; seats: 20")]),  # one list needs no name
    (
        {"sites": [{"name": "Meadow", "fees": [{"id": 1, "adult": 9}, {"id": 2, "adult": 14}], "tags": ["wet"]}, {"name": "Lake", "fees": [{"id": 1, "adult": 11}]}]},
        [("sites", "name: Meadow; tags: wet"), ("sites fees", "sites: Meadow; fees id: 2; adult: 14"), ("sites fees", "sites: Lake; fees id: 1; adult: 11")],
    ),
    (
        [{"town": "Ayr", "halls": [{"name": "Elm", "hours": [{"day": "Mon", "from": 8}]}]}, {"town": "Brno"}],
        [("a", "town: Brno"), ("halls hours", "town: Ayr; halls: Elm; day: Mon; from: 8")],
    ),
    ({"days": {"monday": {"soup": "Leek", "mains": [{"dish": "Curry", "price": 5}]}}}, [("days monday mains", "dish: Curry; price: 5")]),
]  # fmt: skip


@pytest.mark.parametrize(("tree", "shown"), TREES)
def test_an_object_of_one_of_several_lists_stands_under_the_name_of_its_list(tree, shown):
    for name, content in (("a.json", json.dumps(tree)), ("a.yaml", yaml.safe_dump(tree, sort_keys=False))):
        passages, flaws = read(name, content.encode())
        assert set(shown) <= set(passages) and not flaws
        document, _ = parse_file(f"x/{name}", content.encode())
        assert len({passage.id for passage in document.passages}) == len(document.passages)


def test_what_lies_in_an_object_is_for_those_only_who_may_read_that():
    tree = [{"name": "Elm", "readers": ["staff"], "fees": [{"season": "low", "adult": 9}]}]
    document, _ = parse_file("x/a.json", json.dumps(tree).encode())
    assert [(p.text, p.readers) for p in document.passages] == [
        ("name: Elm", (("staff",),)), ("name: Elm; season: low; adult: 9", (("staff",),)),
    ]  # fmt: skip


QUOTED = {
    "plain": "It moves to Monday.\n\nOn 2 November 2026 at 10:00, Bob wrote:\n> The milk comes on Tuesday.\n",
    "undated": "It moves to Monday.\n\nOn Sunday B. wrote:\n> The milk comes on Tuesday.\n",
    "below a head": "It moves to Monday.\n\n-----Original Message-----\nFrom: Bob\nSent: 2 November 2026 10:00\nTo: Ann\nSubject: Milk\n\n"
    "The milk comes on Tuesday.\n",
    "HTML": ("", "<p>It moves to Monday.</p><div class='gmail_quote'>On 2 November Bob wrote:<blockquote>Tuesday.</blockquote></div>"),
}  # fmt: skip


@pytest.mark.parametrize("kind", QUOTED)
def test_what_a_mail_quotes_of_the_one_before_is_no_statement_of_its_own(kind):
    mail = QUOTED[kind]
    if kind == "HTML":
        message = EmailMessage()
        message["Subject"] = "Milk"
        message.set_content(mail[1], subtype="html")
        content = message.as_bytes()
    else:
        content = write_mail(mail)
    passages, (flaw,) = read("a.eml", content)
    assert passages == [("Milk", "It moves to Monday.")] and "quotes" in flaw.what and not flaw.lost


LEADS = [
    ("On 2 Nov 2026, at 18:02, Ben wrote:", True),
    ("On 2 Nov 2026, at 18:02, Ben of the\nmill <b@b.example> wrote:", True),
    ("Run:", False),
]


@pytest.mark.parametrize(("lead", "dropped"), LEADS)
@pytest.mark.parametrize("gap", ["\n", "\n\n"])
def test_a_mail_saved_as_text_does_not_state_what_it_answers(lead, gap, dropped):
    text = f"It moves to Monday.\n\n{lead}{gap}> It comes on Tuesday.\n> Does it?\n\nYours\n"
    document, flaws = parse_file("x/a.txt", text.encode())
    (passage,) = document.passages
    assert ("Tuesday" in passage.text) != dropped == bool(flaws) and "Monday" in passage.text
    assert passage.text.endswith("Yours") and passage.link == f"x/a.txt:1-{text.count(chr(10))}"


BELOW = "On 2 November 2026 at 10:00, Bob wrote:\n\nThe milk comes on Tuesday.\n"
HEADERS = [(b"In-Reply-To: <1@a.example>\n", False), (b"References: <1@a.example>\n", False), (b"", True)]


@pytest.mark.parametrize(("header", "kept"), HEADERS)
def test_only_a_reply_has_the_one_before_unmarked_behind_a_line_with_its_time(header, kept):
    passages, flaws = read("a.eml", header + write_mail(f"It moves to Monday.\n\n{BELOW}"))
    assert ("Tuesday" in passages[0][1]) == kept and bool(flaws) != kept
    passages, flaws = read("a.eml", header + write_mail("Bring on 2 November 2026:\n- a saw\n\nNo dogs:\n\nOf 2026."))
    assert all(one in passages[0][1] for one in ("a saw", "No dogs", "Of 2026")) and not flaws


UNMARKED = {
    "--- Bob <bob@example.org> schrieb:\nThe milk comes on Tuesday.\n": False,
    "Von: Bob\nAn: Ann\nBetreff: Milk\n\nThe milk comes on Tuesday.\n": False,
    "Bring for Tuesday:\na saw\n": True,
    "Room: Elm\nDay: Tuesday\nSeats: 20\n": True,
}


@pytest.mark.parametrize("header", [HEADERS[0][0], b""])
def test_lines_of_a_name_and_a_value_are_the_head_of_another_message_only_where_they_say_so(header):
    event = "Date: 2 May 2026\nTime: 10:00\nPlace: hall"
    passages, flaws = read("a.eml", header + write_mail(f"Come.\n\n{event}\n\nBring a cake.\n"))
    assert passages[0][1] == f"Come.\n\n{event}\n\nBring a cake." and not flaws
    head = "<p><b>From:</b> Bob &lt;b@b.example&gt;<br>Sent: 2 May 2026<br>To: Ann</p><p>It comes on Tuesday.</p>"
    message = EmailMessage()
    message["Subject"] = "Milk"
    message.set_content(f"<p>It moves to Monday.</p>{head}", subtype="html")
    passages, (flaw,) = read("a.eml", header + message.as_bytes())
    assert passages == [("Milk", "It moves to Monday.")] and flaw.what.startswith("13 words")


def test_a_message_whose_plain_text_is_empty_is_read_as_html():
    assert read("a.eml", write_mail(" \n", html="<p>On <b>Monday</b>.</p>")) == ([("Milk", "On Monday.")], [])


@pytest.mark.parametrize("below", UNMARKED)
def test_a_reply_has_the_one_before_behind_its_address_or_below_its_subject(below):
    passages, _ = read("a.eml", HEADERS[0][0] + write_mail(f"It moves to Monday.\n\n{below}"))
    assert "Monday" in passages[0][1] and ("Tuesday" in passages[0][1]) == UNMARKED[below]


def test_a_mail_that_only_hands_another_on_is_read_whole_and_its_attachments_are_told():
    passages, flaws = read("a.eml", write_mail("> The milk comes on Tuesday.\n", attach=True))
    assert "Tuesday" in passages[0][1] and [flaw.what for flaw in flaws] == ["the attachment list.pdf was not read"]
    document, _ = parse_file("x/a.eml", write_mail("On Monday."))
    assert document.passages[0].as_of == date(2026, 11, 3)


def test_slides_follow_the_order_of_the_presentation_and_hidden_ones_are_counted():
    shapes = [write_shape("title", one) + write_shape("", f"Text of {one}.") for one in ("One", "Two")]
    passages, _ = read("a.pptx", write_slides(*shapes, reverse=True))
    assert [title for title, _ in passages] == ["a > Two", "a > One"]
    passages, (flaw,) = read("a.pptx", write_slides(shapes[0], None))
    assert passages == [("a > One", "Text of One.")] and flaw.what == "1 hidden slides were left out"


BOOK = """<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head><body><a id="p1"/><h1>Spring</h1>
<p>Feed them<a href="#n"><sup>1</sup></a> in March.</p><table><tr><th/><th>Sugar</th></tr><tr><td>March</td><td>2 kg</td></tr></table>
<aside id="n"><p>Not below 5 degrees.</p></aside></body></html>"""


def test_a_chapter_is_read_whole_though_its_elements_are_closed_as_xml_closes_them():
    text = "Feed them in March.\n\nMarch; Sugar: 2 kg\n\nNot below 5 degrees."
    book = pack({
        "META-INF/container.xml": '<c><rootfile full-path="b.opf"/></c>',
        "b.opf": '<p><item id="a" href="a.xhtml"/><itemref idref="a"/></p>', "a.xhtml": BOOK,
    })  # fmt: skip
    assert read("a.epub", book) == ([("Spring", text)], [])
    passages, (flaw,) = read("a.xhtml", BOOK)
    assert passages == [("Spring", text.rpartition("\n\n")[0])] and "<aside>" in flaw.what


def test_paragraphs_of_a_slide_stand_behind_those_that_they_are_under():
    levels = zip((0, 1, 2, 1, 0), ("Call us", "on weekdays", "before noon", "at weekends", "Write"), strict=True)
    body = "".join(f'<a:p><a:pPr lvl="{n}"/><a:r><a:t>{text}</a:t></a:r></a:p>' for n, text in levels)
    (passage,), _ = read(
        "a.pptx", write_slides(write_shape("title", "Book") + f"<p:sp><p:txBody>{body}</p:txBody></p:sp>")
    )
    assert passage[1].split("\n") == [
        "- Call us", "- Call us: on weekdays", "- Call us: on weekdays: before noon", "- Call us: at weekends", "- Write",
    ]  # fmt: skip


def test_a_table_of_opendocument_may_have_a_header_of_two_rows():
    def row(*cells):
        return f"<b:table-row>{''.join(f'<b:table-cell{mark}><t:p>{text}</t:p></b:table-cell>' for mark, text in cells)}</b:table-row>"

    down, across = ' b:number-rows-spanned="2"', ' b:number-columns-spanned="2"'
    head = row((down, "Room"), (across, "Summer")) + row(("", "Day"), ("", "Week"))
    table = f"<b:table><b:table-header-rows>{head}</b:table-header-rows>{row(('', 'Elm'), ('', '10'), ('', '60'))}</b:table>"
    passages, _ = read("a.odt", write_odf(f"<o:text>{table}</o:text>"))
    assert passages == [("a", "Room: Elm; Summer Day: 10; Summer Week: 60")]


CUES = {
    "<v Ann>Is it open?\n\n00:02.000 --> 00:03.000\n<v Bob>At ten.": "Ann: Is it open?\n\nBob: At ten.",
    "- Is it free?\n- No, 3 euros.": "Is it free?\n\nNo, 3 euros.",
    "BOB: It is\n\n00:02.000 --> 00:03.000\nbroken.": "BOB: It is broken.",
    "- one line\nthat goes on.": "- one line that goes on.",
}


@pytest.mark.parametrize("cues", CUES)
def test_who_speaks_in_captions_is_told_apart(cues):
    passages, _ = read("a.vtt", f"WEBVTT\n\n00:01.000 --> 00:02.000\n{cues}\n")
    assert passages == [("a", CUES[cues])]


DAMAGED = [name for name in ("a.odt", "a.ods", "a.odp", "a.pptx", "a.epub", "a.xlsx") if name[1:] in READ]


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 broken", pack({"other.xml": "<x/>"})])
def test_a_damaged_file_is_refused_with_a_remedy(name, content):
    with pytest.raises(UnreadableFile) as error:
        read(name, content)
    assert error.value.mend


@pytest.mark.parametrize("name", ["a.odt", "a.pptx", "a.xlsx"])
def test_a_file_that_unpacks_to_far_more_than_a_file_may_have_is_not_unpacked(name):
    main = {"a.odt": "content.xml", "a.pptx": "ppt/presentation.xml", "a.xlsx": "xl/workbook.xml"}[name]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(main, b"<x>" + b" " * 60_000_000 + b"</x>")
    with pytest.raises(UnreadableFile, match="unpacks"):
        read(name, stream.getvalue())


REMEDIES = {
    "a.rtf": ".docx", "a.doc": ".docx", "a.xls": ".xlsx", "a.ppt": ".pptx", "a.msg": ".eml", "a.png": ".txt", "a.mp3": ".vtt",
    "a.zip": "Unpack", "a.xml": ".csv", "a.tex": ".md", "a.url": ".html",
}  # fmt: skip


def test_a_kind_that_is_not_read_is_told_with_a_remedy_of_its_own(tmp_path):
    for name in REMEDIES:
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "good.md").write_text("# Good\n\nText.\n")
    flaws = {flaw.path: flaw.mend for flaw in read_base("x", FileSettings(kind="documents", path=str(tmp_path))).flaws}
    assert {name: told in flaws[f"x/{name}"] for name, told in REMEDIES.items()} == dict.fromkeys(REMEDIES, True)


@pytest.mark.parametrize(
    "name, text", [("a.json", "{"), ("a.json", "[1, 2"), ("a.json", "[" * 100_000), ("a.yaml", "a: [b")]
)
def test_broken_json_and_yaml_are_refused_with_their_reason(name, text):
    with pytest.raises(UnreadableFile, match=r"\.jsonl"):
        read(name, text)


def test_a_base_without_text_names_the_kinds_that_are_read(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"PK")
    with pytest.raises(KnowledgeError, match=r"\.xlsx, \.csv"):
        read_base("x", FileSettings(kind="documents", path=str(tmp_path)))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("name", ["a.docx", "a.odt", "a.pptx", "a.epub", "a.xlsx"])
def test_a_file_of_which_a_part_defines_entities_is_refused_before_it_is_parsed(name, encoding):
    part = '<!DOCTYPE x [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;">]><x>&b;</x>'.encode(encoding)
    with pytest.raises(UnreadableFile, match=r"inner\.xml defines entities"):
        read(name, pack({"inner.xml": part}))


def test_a_message_is_titled_by_its_subject_whatever_its_first_line():
    passages, _ = read("a.eml", write_mail("Dear members\n\nIt moves to Monday.\n\nBring a saw."))
    assert passages == [("Milk", "Dear members\n\nIt moves to Monday.\n\nBring a saw.")]
