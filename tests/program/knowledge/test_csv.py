"""Tables in text files: whatever program wrote them, every cell is in a passage, or a flaw tells of it."""

import csv
import io
import re
from collections import Counter
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ragc.knowledge.ingest.amounts import read_amount
from ragc.knowledge.ingest.csv_rows import SEPARATORS, read_table_file, read_tables
from ragc.knowledge.ingest.folder import read_base
from ragc.knowledge.ingest.metadata import NO_ATTRIBUTES
from ragc.knowledge.ingest.sections import parse_file
from ragc.settings import DocumentsSettings

ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252")
MARKS = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}
QUOTING = (csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC)
CELLS = st.text(
    st.characters(codec="cp1252", exclude_categories=["Cc"]) | st.sampled_from("\n,;\t|\"'. 0159"), max_size=12
)


def encoded(text, encoding):
    return MARKS.get(encoding, b"") + text.encode(encoding)


@st.composite
def tables(draw):
    width = draw(st.integers(2, 6))
    rows = draw(st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=8))
    return [[f"name {n}" for n in range(width)], *rows]


@given(tables(), *map(st.sampled_from, (SEPARATORS, ENCODINGS, QUOTING, ["\r\n", "\n"])))
def test_a_table_reads_back_cell_for_cell_whatever_wrote_it(tmp_path_factory, rows, separator, encoding, quoting, ends):
    stream = io.StringIO()
    csv.writer(stream, delimiter=separator, quoting=quoting, lineterminator=ends).writerows(rows)
    written = [c for c in stream.getvalue() if c.isalpha()]
    assume(encoding != "cp1252" or sum(c > "\x7f" for c in written) <= 0.3 * len(written))
    file = tmp_path_factory.mktemp("t") / "t.csv"
    file.write_bytes(encoded(stream.getvalue(), encoding))
    table = read_table_file(file)
    whole = [[cell.strip() for cell in row] for row in rows if any(map(str.strip, row))]
    assert [table.header, *(row.cells for row in table.rows)] == whole
    assert {flaw.what for flaw in table.flaws} <= {"is not UTF-8, and was read as Windows-1252"}


RAGGED = st.lists(st.lists(CELLS, min_size=1, max_size=5), min_size=1, max_size=8)


def letters(*texts):
    return Counter(c for text in texts for c in text if not c.isspace() and c not in f'"{SEPARATORS}')


@given(RAGGED, st.sampled_from(SEPARATORS), st.booleans())
@example([["0", "0"], ["0_", "0"]], ",", False)
@example([["0", "0\n", "0"], ["0_0"]], ",", False)
@example([["", "0"], ["0_0", "0"]], ",", False)
def test_every_cell_of_an_odd_file_is_in_a_passage_or_in_a_flaw(rows, separator, quoted):
    stream = io.StringIO()
    csv.writer(stream, delimiter=separator).writerows(rows)
    text = stream.getvalue() if quoted else "\n".join(separator.join(row) for row in rows)
    assume(not re.search("&.*;|<.*>", text))  # a sign of HTML is read as that
    tables = read_tables(text)
    assume(NO_ATTRIBUTES.isdisjoint(name for table in tables for name in table.header))  # title, id, date and text
    flaws = [flaw for table in tables for flaw in table.flaws]
    below = (zip(*two, strict=False) for two in pairwise(rows))
    twice = any(cell and cell == other for cells in below for cell, other in cells)  # as in a header of two rows
    if not twice and not any("header again" in flaw.what for flaw in flaws):
        rows = [row for table in tables for row in ([table.title], table.header, *(row.cells for row in table.rows))]
        assert not letters(text) - letters(*(cell for row in rows for cell in row))
    document, flaws = parse_file("x/t.csv", text.encode())
    shown = "\n".join([*(f"{p.title}\n{p.text}" for p in document.passages), *(flaw.what for flaw in flaws)])
    for table in tables:
        assert table.header or not table.rows
        spell = lambda name: name.replace("_", " ") if any(map(str.isalnum, name)) else name  # noqa: E731
        names = list(map(spell, table.header))
        for row in table.rows:
            key = spell(row.cells[0]) if not any(names) else row.cells[0]  # a name and its value are spelled so
            cells = [(cell, key if at == 0 else cell) for at, cell in enumerate(row.cells)]
            assert all(any(" ".join(form.split()) in shown for form in forms) for forms in cells)
            assert all(" ".join(name.split()) in shown for name, cell in zip(names, row.cells, strict=False) if cell)


HEADLESS = [("the first line holds no column names but data, and was read as a row", 1)]
UNCLOSED = [("1 row with a quote that is not closed, or not doubled inside a cell", 2)]
SHOP = {
    "separator ;": ("Item;Price\nBolt;1,50\nNut;2,50\n", ["Item: Bolt; Price: 1,50", "Item: Nut; Price: 2,50"], []),
    "separator tab": ("Item\tPrice\nBolt\t10\n", ["Item: Bolt; Price: 10"], []),
    "separator |": ("Item|Price\nBolt|10\n", ["Item: Bolt; Price: 10"], []),
    "separator named": ("sep=;\nItem;Price\nBolt;10\n", ["Item: Bolt; Price: 10"], []),
    "space after separators": ('Item, Note\nBolt, "zinc, 5 mm"\n', ["Item: Bolt; Note: zinc, 5 mm"], []),
    "one column of prose": ("note\nWell, yes\nOh, no, no\n", ["note: Well, yes", "note: Oh, no, no"], []),
    "one name twice": ("Item,Price,Price\nBolt,10,12\n", ["Item: Bolt; Price: 10; Price: 12"],
        [("2 columns are named 'Price'", 1)]),
    "no name": ("Item,,Price\nBolt,zinc,10\n", ["Item: Bolt; zinc; Price: 10"], [("column 2 without a name", 1)]),
    "an empty column": ("Item,Price,\nBolt,10,\nNut,3,\n", ["Item: Bolt; Price: 10", "Item: Nut; Price: 3"], []),
    "no header": ("Bolt,10\nNut,12\n", ["Bolt: 10", "Nut: 12"], HEADLESS),
    "no header, text": ("Ann,Brno\nBob,Oslo\nCy,Brno\n", ["Ann: Brno", "Bob: Oslo", "Cy: Brno"], HEADLESS),
    "no header, hours": (
        "Mon,7:00,15:30\nTue,7:00,18:00\nSun,closed,closed\n",
        ["Mon; 7:00; 15:30", "Tue; 7:00; 18:00", "Sun; closed; closed"], HEADLESS),
    "no header, rooms": (
        "Dr Stern,Braces,Room 2\nDr Winter,Implants,Room 4\nDr Brand,Fillings,Room 11\n",
        ["Dr Stern; Braces; Room 2", "Dr Winter; Implants; Room 4", "Dr Brand; Fillings; Room 11"], HEADLESS),
    "no header, keys": ("Deposit,150 EUR\nAddress,Hall Lane 3\nLead time,9 days\nPaid,yes\n",
        ["Deposit: 150 EUR", "Address: Hall Lane 3", "Lead time: 9 days", "Paid: yes"], HEADLESS),
    "a header of two rows": ("Room,Summer,,Winter,,Share\n,Day,Week,Day,Week,\nElm,10,60,8,45,15%\n",
        ["Room: Elm; Summer Day: 10; Summer Week: 60; Winter Day: 8; Winter Week: 45; Share: 15%"], []),
    "a header of two rows, the corner below": (",Summer,,Winter,\nRoom,Day,Week,Day,Week\nElm,10,60,8,45\n",
        ["Room: Elm; Summer Day: 10; Summer Week: 60; Winter Day: 8; Winter Week: 45"], []),
    "a row of words below the header": ("Day,Team,Note\nMonday,Ann,Bob\n,Cy,Bob\n", ["Day: Monday; Team: Ann; Note: Bob", "Team: Cy; Note: Bob"], []),
    "two tables": ("Room,Seats\nElm,20\nOak,35\n\nItem,Fee,Deposit\nProjector,15,50\n",
        ["Room: Elm; Seats: 20", "Room: Oak; Seats: 35", "Item: Projector; Fee: 15; Deposit: 50"], []),
    "two tables with titles": ("Rooms\nRoom,Seats\nElm,20\nOak,35\n\nHours\nDay,From,To\nMonday,9:00,17:00\nSunday,closed,closed\n",
        ["Room: Elm; Seats: 20", "Room: Oak; Seats: 35", "Day: Monday; From: 9:00; To: 17:00", "Day: Sunday; From: closed; To: closed"],
        [("'Rooms' stands above the header and was taken for the title", 2), ("'Hours' stands above the header and was taken for the title", 7)]),
    "an empty line in a table": ("Room,Seats\nElm,20\n\nOak,35\n", ["Room: Elm; Seats: 20", "Room: Oak; Seats: 35"], []),
    "years in the header": ("Town,2024,2025\nBrno,10,12\n", ["Town: Brno; 2024: 10; 2025: 12"], []),
    "a title": ("Price list 2026\n\nItem,Price\nBolt,10\n", ["Item: Bolt; Price: 10"],
        [("'Price list 2026' stands above the header and was taken for the title", 3)]),
    "a title with separators": ("Price list,,\nItem,Price,Note\nBolt,10,zinc\n", ["Item: Bolt; Price: 10; Note: zinc"],
        [("'Price list' stands above the header and was taken for the title", 2)]),
    "the header again": ("Item,Price\nBolt,10\nItem,Price\nNut,12\n", ["Item: Bolt; Price: 10", "Item: Nut; Price: 12"],
        [("1 row with the header again; left out", 3)]),
    "an open quote": ('Item,Note\nGlue,"strong\nBolt,zinc\nNut,steel\n',
        ["Item: Glue; Note: strong", "Item: Bolt; Note: zinc", "Item: Nut; Note: steel"], UNCLOSED),
    "an open quote before quoted cells": ('Item,Note,N\n"Glue","strong,4\n"Bolt","zinc",5\n',
        ["Item: Glue; Note: strong; N: 4", "Item: Bolt; Note: zinc; N: 5"], UNCLOSED),
    "a decimal comma, no header": ("Schraube;1,50;2,5\nMutter;2,50;3,5\n", ["Schraube; 1,50; 2,5", "Mutter; 2,50; 3,5"], HEADLESS),
    "a title above a header without its first name": ("Rents,,\n,North,South\nPlot,72,64\nHalf,41,36\n",
        ["Plot; North: 72; South: 64", "Half; North: 41; South: 36"],
        [("'Rents' stands above the header and was taken for the title", 2), ("column 1 without a name", 2)]),
    "no title above a row without its first cell": ("Name,,\n,5,6\nAnn,7,8\n", ["5; 6", "Name: Ann; 7; 8"],
        [("columns 2, 3 without a name", 1)]),
    "a title with a comma": ("Bolts, a list\n\nItem,Price\nBolt,10\nNut,12\n", ["Item: Bolt; Price: 10", "Item: Nut; Price: 12"],
        [("'Bolts, a list' stands above the header and was taken for the title", 3)]),
    "an empty line below the header": ("Item,Price\n\nBolt,10\nNut,12\n", ["Item: Bolt; Price: 10", "Item: Nut; Price: 12"], []),
    "two titles and an empty row": ("Bolts;;\nfrom May on;;\n;;\nItem;Price;Stock\nBolt;1,50;20\n", ["Item: Bolt; Price: 1,50; Stock: 20"],
        [("'Bolts - from May on' stands above the header and was taken for the title", 4)]),
    "a row too long": ("Item,Note\nGlue,strong\nBolt,zinc,new,5\n",
        ["Item: Glue; Note: strong", "Item: Bolt; Note: zinc; new; 5"], [("1 row with more cells than the header", 3)]),
    "a row too short": ("Item,Note,N\nGlue,strong,1\nBolt\n", ["Item: Glue; Note: strong; N: 1", "Item: Bolt"],
        [("1 row with fewer cells than the header", 3)]),
    "lines in a cell": ('Item,Note\nBolt,"zinc\nor steel"\n', ["Item: Bolt; Note: zinc or steel"], []),
}  # fmt: skip


@pytest.mark.parametrize("kind", SHOP)
def test_a_row_is_one_line_of_its_cells_by_their_names_and_what_is_odd_is_told(kind):
    content, texts, flaws = SHOP[kind]
    document, found = parse_file("x/shop.csv", content.encode())
    assert [p.text for p in document.passages] == texts
    assert {(flaw.what, flaw.line) for flaw in found} == {*flaws} and all(flaw.mend and not flaw.lost for flaw in found)
    told = {flaw.what.split("'")[1] for flaw in found if "the title" in flaw.what}
    titles = {p.title for p in document.passages}
    assert titles - {"shop"} == told and (told or titles == {"shop"})


def test_a_row_with_a_text_shows_what_is_neither_in_it_nor_an_attribute():
    content = f'id,text,kind,remark\n7,Open at nine.,hours,"{"so " * 40}"\n'
    (passage,) = parse_file("x/a.csv", content.encode())[0].passages
    assert passage.text == f"Open at nine.\nremark: {'so ' * 39}so"
    assert (passage.id, passage.attributes) == ("x/a.csv#7", {"kind": "hours"})


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.csv", "a.jsonl"])
def test_a_text_is_read_in_each_encoding_that_can_be_told(write, name, encoding):
    text = {"a.csv": "note\nThe café opens at nine.\n", "a.jsonl": '{"text": "The café opens at nine."}\n'}
    folder = write(name, encoded(text.get(name, "The café opens at nine.\n"), encoding))
    contents = read_base("x", DocumentsSettings(path=str(folder)))
    assert [p.text.removeprefix("note: ") for p in contents.passages] == ["The café opens at nine."]
    told = [(flaw.what, flaw.lost, flaw.unread) for flaw in contents.flaws]
    assert told == [("is not UTF-8, and was read as Windows-1252", False, False)] * (encoding == "cp1252")


@pytest.mark.parametrize(
    "content",
    [
        "Привет, мир".encode("cp1251"),
        "門の番号".encode("shift_jis"),
        "abc".encode("utf-16-le"),
        b"\xff\xfea",
        b"caf\x81",
    ],
)
def test_a_text_in_another_encoding_is_not_guessed_at(write, content):
    write("good.md", "# A\n\nText.\n")
    (flaw,) = read_base("x", DocumentsSettings(path=str(write("a.txt", content)))).flaws
    assert (flaw.path, flaw.unread, flaw.mend) == ("x/a.txt", True, "Save it as UTF-8.")


@given(
    st.decimals(-(10**9), 10**9, places=2),
    st.sampled_from(["1,234.50", "1.234,50", "1 234,50", "1'234.50", "1234,50"]),
    st.sampled_from(["{}", "${}", "{} EUR", "EUR {}", "{} %", "()"]),
)
def test_an_amount_is_the_number_that_was_written(number, style, unit):
    thousands, mark = style[1] if style[1] != "2" else "", style[-3]
    text = f"{abs(number):,.2f}".replace(",", "_").replace(".", mark).replace("_", thousands)
    signed = f"({text})" if unit == "()" else f"-{unit}"
    text = signed.format(text) if number < 0 else unit.strip("()").format(text) or text
    found = read_amount(text)
    assert found is not None and Decimal(str(found.value)) == number and not found.doubtful


@pytest.mark.parametrize(
    "text", ["", "5 kg 3", "€ 5 EUR", "9" * 19, *"- n/a ten 007 12.05.2024 10:30 1,2,3 12a V-12 1.2.3 $ (5".split()]
)
def test_what_is_no_number_is_no_amount(text):
    assert read_amount(text) is None


def test_one_mark_before_three_digits_is_read_by_the_marks_of_its_column():
    assert [read_amount("1,200", mark).value for mark in ".,"] == [1200, 1.2]
    assert [read_amount("1.200", mark).value for mark in ".,"] == [1.2, 1200]
    assert all(read_amount("0.125", mark).value == read_amount("0,125", mark).value == 0.125 for mark in ".,")


def test_of_several_tables_in_a_file_a_select_reads_the_first_and_a_flaw_tells_the_other(tmp_path):
    (tmp_path / "t.csv").write_text("Room,Seats\nElm,20\nOak,35\n\nItem,Fee,Deposit\nProjector,15,50\n")
    table = read_table_file(tmp_path / "t.csv")
    assert [row.cells for row in table.rows] == [["Elm", "20"], ["Oak", "35"]]
    assert [(flaw.what, flaw.line) for flaw in table.flaws] == [
        ("another table stands below the first, and was not read", 6)
    ]
