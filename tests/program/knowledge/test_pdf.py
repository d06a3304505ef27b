"""PDF files: every word and figure that a reader of a page sees stands in its text, in order, a cell with its row."""

import io
import os
import sys

import pytest
from hypothesis import Phase, given, settings
from pypdfium2 import PdfDocument
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.pdfgen import canvas
from reportlab.platypus import PageBreak, Paragraph, SimpleDocTemplate, Table

from ragc.knowledge.ingest.convert import UnreadableFile
from ragc.knowledge.ingest.pdf.ocr import open_ocr
from ragc.knowledge.ingest.sections import parse_file
from tests.support.sheets import draw_sheet, find_fault, sheets

SHEETS = int(os.environ.get("RAGC_SHEETS", "0"))
"""How many generated files are read, other ones each time; where it is not set, fifty."""
STYLES = getSampleStyleSheet()
GRID = [("GRID", (0, 0), (-1, -1), 0.5, "black")]
FARES = [["Crossing", "Adult", "Car"], ["Isle - Pier", "4.50", "19.00"], ["Pier - Cape", "7.00", ""]]
FARE_ROWS = "Crossing: Isle - Pier; Adult: 4.50; Car: 19.00\nCrossing: Pier - Cape; Adult: 7.00"


def draw(*pages, title="untitled"):
    """A file of pages, each a function that draws on a canvas."""
    stream = io.BytesIO()
    sheet = canvas.Canvas(stream, pagesize=A4)
    sheet.setTitle(title)
    for page in pages:
        sheet.setFont("Helvetica", 11)
        page(sheet)
        sheet.showPage()
    sheet.save()
    return stream.getvalue()


def write(*lines, x=72, y=700, pitch=14):
    """A page of lines below each other."""

    def page(sheet):
        for n, line in enumerate(lines):
            sheet.drawString(x, y - n * pitch, line)

    return page


def build(*story, **options):
    """A file of paragraphs and tables."""
    stream = io.BytesIO()
    flow = [Paragraph(one, STYLES["BodyText"]) if isinstance(one, str) else one for one in story]
    SimpleDocTemplate(stream, pagesize=A4, **options).build(flow)
    return stream.getvalue()


def head(text, level):
    return Paragraph(text, STYLES[f"Heading{level}"])


def read(content):
    document, flaws = parse_file("x/a.pdf", content)
    return document, flaws


def text_of(content):
    return "\n\n".join(passage.text for passage in read(content)[0].passages)


def test_what_a_reader_of_a_page_sees_is_its_text_in_order_and_a_cell_stands_with_its_row():
    """Two of fifty may fail: a page that begins with a row of a key alone looks like one that begins with text."""
    faults = []

    @settings(max_examples=SHEETS or 50, derandomize=not SHEETS, database=None, phases=[Phase.generate])
    @given(sheets())
    def read_sheet(sheet):
        content = draw_sheet(sheet)
        document, _ = read(content)
        text, titles = ("\n".join(parts) for parts in zip(*((p.text, p.title) for p in document.passages), strict=True))
        if fault := find_fault(sheet, text, titles, len(PdfDocument(content))):
            faults.append(f"{fault}\n{sheet}")

    read_sheet()
    assert len(faults) <= 0.04 * (SHEETS or 50), "\n\n".join(faults)


def draw_table_with_an_empty_column(sheet):
    """Underlined headers, and a middle column that fills one row, in two lines around the level of its key."""
    for y, cells in ((700, ("Berth", "Note", "Fee")), (680, ("A 1", "", "1076")), (640, ("C 3", "", "186"))):
        for x, cell in zip((72, 202, 332), cells, strict=True):
            sheet.drawString(x, y, cell)
    for x, y, cell in ((72, 660, "B 2"), (202, 666, "only with a pilot"), (202, 654, "on board"), (332, 660, "2220")):
        sheet.drawString(x, y, cell)


def test_a_cell_in_two_lines_around_the_level_of_its_key_makes_no_columns_of_text():
    rows = "Berth: A 1; Fee: 1076\nBerth: B 2; Note: only with a pilot on board; Fee: 2220\nBerth: C 3; Fee: 186"
    assert text_of(draw(draw_table_with_an_empty_column)) == rows


def draw_columns_with_a_list(sheet):
    """Two columns of text on levels of their own, the second a list of short items."""
    for n in range(18):
        sheet.drawString(60, 760 - 13 * n, f"The pump of hall {n} is to be opened by two,")
    for n, item in enumerate(
        ["Pump alarm cupboard.", "Desk key.", "The long valve of the second cold tank.", "Sum of it."] * 2
    ):
        sheet.drawString(320, 757 - 13 * n, f"{n + 1}. {item}")


def test_a_list_in_a_second_column_is_no_row_of_the_first():
    text = text_of(draw(draw_columns_with_a_list))
    assert "1. Pump alarm cupboard.\n2. Desk key." in text
    assert text.index("hall 17") < text.index("alarm")


def draw_raised(rise, size, glued):
    def page(sheet):
        text = sheet.beginText(72, 700)
        text.setFont("Helvetica", 11)
        text.textOut("Never above 80")
        text.setRise(rise)
        text.setFont("Helvetica", size)
        text.textOut("2")
        text.setRise(0)
        text.setFont("Helvetica", 11)
        text.textOut("bar." if glued else " bar.")
        sheet.drawText(text)

    return page


@pytest.mark.parametrize("rise, size, written", [(5, 7, "80^2 bar."), (4, 11, "80^2 bar."), (-3, 7, "80_2bar.")])
@pytest.mark.parametrize("glued", [False, True])
def test_a_raised_figure_is_no_digit_of_the_number_before_it(rise, size, written, glued):
    assert (
        text_of(draw(draw_raised(rise, size, glued)))
        == f"Never above {written if glued else written.replace('2b', '2 b')}"
    )


def test_raised_and_lowered_figures_of_a_paragraph_stand_with_their_letter():
    line = "Pure H<sub>2</sub>O at 80<super>2</super> bar, 10<super>-3</super> m."
    assert text_of(build(line)) == "Pure H2O at 80^2 bar, 10^-3 m."


@pytest.mark.parametrize(
    "line, text", [("It is 5<super>1,2</super> wide.", "It is 5^1,2 wide."), ("A hall of 25 m².",) * 2]
)
def test_figures_above_the_line_have_one_sign_or_none_where_they_are_letters_of_their_own(line, text):
    assert text_of(build(line)) == text


def draw_cells(rows, xs, pitch=16, right=False):
    def page(sheet):
        for n, row in enumerate(rows):
            for x, cell in zip(xs, row, strict=True):
                if cell:
                    (sheet.drawRightString if right and x > xs[0] else sheet.drawString)(x, 700 - n * pitch, cell)

    return page


def draw_dots(sheet):
    for n, (name, price) in enumerate([("Soup", "4.20"), ("Lentil curry", "9.80")]):
        sheet.drawString(72, 700 - n * 16, f"{name} {'.' * (60 - len(name))}")
        sheet.drawRightString(480, 700 - n * 16, price)


HOURS = [["", "Weekday", "", "Weekend", ""], ["Room", "Morning", "Evening", "Morning", "Evening"]]
HOURS += [["Elm", "20", "30", "25", "35"], ["Oak", "22", "32", "27", "37"]]
SPANS = [("SPAN", (1, 0), (2, 0)), ("SPAN", (3, 0), (4, 0))]
DAYS = [["Room", "Day", "Price"], ["Elm", "Monday", "20"], ["", "Tuesday", "30"], ["Oak", "Monday", "22"]]
ROTA = [["", "Mon", "Tue"], ["Early", "Ann", "Bob"], ["Late", "Bob", "Cy"]]
ORDER = [["Pos", "Thing", "Sum"], ["1", "Desk", "180.00"], ["2", "Chair", "45.50"], ["", "Total", "225.50"]]
KEYS = [
    ["Room", "Seats", "Fee"],
    ["Great hall with a stage", "200", "300"],
    ["Small hall on the first floor", "40", "80"],
]
THINGS = [["Thing", "Day", "Week"], ["Boats", "", ""], ["Canoe", "18", "90"], ["Tents", "", ""], ["Igloo", "9", "40"]]
FEES = [["Thing", "Fees", ""], ["Canoe", "18", "90"], ["Tent", "9", "40"]]
LONG = "Fill the tank and push it in until it clicks into its place, then wait for the light"
ANSWERS = [[Paragraph(one, STYLES["BodyText"]) for one in row] for row in (
    ["How long may a sample stay in the cold room before it is tested?", "At most 36 hours. The time is noted in the log by whoever is on duty, as on every day."],
    ["Who may open the valve of the main boiler in the winter months?", "The caretaker alone. Ring the number that is written beside the door of the cellar."],
    ["What does a lost key cost the person who had it last, as a rule?", "It costs 45 euros. They are taken from the deposit that was paid at the beginning."],
)]  # fmt: skip
TABLES = {
    "drawn cell by cell": (draw(draw_cells(FARES, (72, 200, 280))), FARE_ROWS),
    "set to the right": (draw(draw_cells(FARES, (72, 240, 320), right=True)), FARE_ROWS),
    "drawn column by column": (
        draw(lambda s: [s.drawString(x, 700 - n * 16, row[at]) for at, x in enumerate((72, 200, 280)) for n, row in enumerate(FARES)]),
        FARE_ROWS,
    ),
    "ruled": (build(Table(FARES, style=GRID)), FARE_ROWS),
    "between other lines": (build("All in euros.", Table(FARES), "Dogs go free."), f"All in euros.\n\n{FARE_ROWS}\n\nDogs go free."),
    "over two rows of headers": (
        build(Table(HOURS, style=[*GRID, *SPANS])),
        "Room: Elm; Weekday Morning: 20; Weekday Evening: 30; Weekend Morning: 25; Weekend Evening: 35\n"
        "Room: Oak; Weekday Morning: 22; Weekday Evening: 32; Weekend Morning: 27; Weekend Evening: 37",
    ),
    "with a cell over two rows": (
        build(Table(DAYS, style=[*GRID, ("SPAN", (0, 1), (0, 2)), ("VALIGN", (0, 0), (-1, -1), "MIDDLE")])),
        "Room: Elm; Day: Monday; Price: 20\nRoom: Elm; Day: Tuesday; Price: 30\nRoom: Oak; Day: Monday; Price: 22",
    ),
    "with a cell of many lines": (
        build(Table([["Code", "Light", "To do"], ["E1", "red", Paragraph(LONG, STYLES["BodyText"])], ["E2", "blue", "Wait"]], colWidths=[60, 60, 120])),
        f"Code: E1; Light: red; To do: {LONG}\nCode: E2; Light: blue; To do: Wait",
    ),
    "of texts side by side": (
        build(Table(ANSWERS, colWidths=[170, 200], style=[("VALIGN", (0, 0), (-1, -1), "TOP")])),
        "\n".join(f"{row[0].text}; {row[1].text}" for row in ANSWERS),
    ),
    "of keys and values": (draw(draw_cells([["Deposit", "150 EUR"], ["Delivery", "35 EUR"], ["Lead time", "9 days"]], (72, 200))),
                           "Deposit: 150 EUR\nDelivery: 35 EUR\nLead time: 9 days"),
    "with an empty corner": (draw(draw_cells(ROTA, (72, 200, 280))), "Early; Mon: Ann; Tue: Bob\nLate; Mon: Bob; Tue: Cy"),
    "with a sum below": (
        draw(draw_cells(ORDER, (72, 120, 280))),
        "Pos: 1; Thing: Desk; Sum: 180.00\nPos: 2; Thing: Chair; Sum: 45.50\nThing: Total; Sum: 225.50",
    ),
    "with keys of many lines": (
        build(Table([[Paragraph(row[0], STYLES["BodyText"]), *row[1:]] for row in KEYS], colWidths=[70, 60, 60])),
        "\n".join(f"Room: {key}; Seats: {seats}; Fee: {fee}" for key, seats, fee in KEYS[1:]),
    ),
    "with keys and cells of two lines": (
        build(Table([["Shift", "Mon", "Tue"], ["Early\n6-14", "Ann\nBob", "Dee"], ["Late\n14-22", "Cy", "Ann"], ["Night\n22-6", "Dee", ""]])),
        "Shift: Early 6-14; Mon: Ann Bob; Tue: Dee\nShift: Late 14-22; Mon: Cy; Tue: Ann\nShift: Night 22-6; Mon: Dee",
    ),
    "with headings among its rows": (
        build(Table(THINGS, style=[*GRID, ("SPAN", (0, 1), (-1, 1)), ("SPAN", (0, 3), (-1, 3))])),
        "Boats\nThing: Canoe; Day: 18; Week: 90\nTents\nThing: Igloo; Day: 9; Week: 40",
    ),
    "with a header over two columns": (
        build(Table(FEES, style=[*GRID, ("SPAN", (1, 0), (2, 0))])),
        "Thing: Canoe; Fees: 18; Fees: 90\nThing: Tent; Fees: 9; Fees: 40",
    ),
    "in a cell of another": (
        build(Table([["Branch", "Details"], ["North", Table([["Open", "9-17"], ["Fax", "none"]], style=GRID)], ["South", "closed"]], style=GRID)),
        "Branch: Details\nNorth: Open 9-17 Fax none\nSouth: closed",
    ),
    "of labels with colons": (
        draw(draw_cells([["Name:", "Ann Lee", "Town:", "Bern"], ["Street:", "Elm Road", "Room:", "12"]], (72, 140, 240, 300))),
        "Name: Ann Lee; Town: Bern\nStreet: Elm Road; Room: 12",
    ),
    "led to by dots": (draw(draw_dots), "Soup: 4.20\nLentil curry: 9.80"),
}  # fmt: skip


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_is_rows_under_its_header(kind):
    content, expected = TABLES[kind]
    assert text_of(content) == expected


def test_a_table_that_goes_on_on_the_next_page_keeps_its_header_and_is_cited_there():
    rows = [["Dish", "Milk", "Nuts"], *([f"Dish {n}", "yes", "no"] for n in range(1, 61))]
    for repeated in (0, 1):
        passages = read(build(Table(rows, style=GRID, repeatRows=repeated)))[0].passages
        lines = [(line, p.link) for p in passages for line in p.text.split("\n")]
        assert [line for line, _ in lines] == [f"Dish: Dish {n}; Milk: yes; Nuts: no" for n in range(1, 61)]
        assert {link for _, link in lines} == {"x/a.pdf#page=1", "x/a.pdf#page=2"}


def test_a_header_that_the_next_page_repeats_is_one_there_too():
    rows = [["Code", "To do"], *([f"F{n}", "Wait for the lamp"] for n in range(1, 40)), ["Other", "Ring us"]]
    assert text_of(build(Table(rows, style=GRID, repeatRows=1))).endswith("Code: Other; To do: Ring us")


LEFT = """The harbour office sells tickets every day. A ticket costs 6 euros for grown people. Children under five go
free of charge. The boat leaves at nine, and is back at noon on all working days of the year."""
RIGHT = """The museum is closed on Mondays. Entry is 12 euros for a family. Guided tours begin at ten, and last one hour.
Bags have to be left in a locker beside the entrance of the hall, which is never locked."""


def wrap(text, words=5):
    parts = text.split()
    return [" ".join(parts[at : at + words]) for at in range(0, len(parts), words)]


@pytest.mark.parametrize("lower", [0, 5], ids=["on the same lines", "on lines of their own"])
@pytest.mark.parametrize("row_by_row", [True, False])
def test_columns_are_read_one_after_the_other(lower, row_by_row):
    def page(sheet):
        sheet.drawString(
            72, 740, "Island news for the summer, which every household gets by post without asking for it"
        )
        cells = [(72, 700 - 14 * n, line) for n, line in enumerate(wrap(LEFT))]
        cells += [(320, 700 - lower - 14 * n, line) for n, line in enumerate(wrap(RIGHT))]
        for x, y, line in sorted(cells, key=lambda one: -one[1]) if row_by_row else cells:
            sheet.drawString(x, y, line)

    lead, *columns = text_of(draw(page)).split("\n\n")
    assert columns == [" ".join(LEFT.split()), " ".join(RIGHT.split())] and lead.startswith("Island news")


def test_a_sentence_over_a_page_break_is_one_and_is_cited_by_its_first_page():
    def edge(sheet, document):
        sheet.setFont("Helvetica", 8)
        sheet.drawString(72, 800, "Cell culture handbook")
        sheet.drawRightString(520, 800, "Version 3")
        sheet.drawCentredString(300, 40, f"Page {sheet.getPageNumber()} of 2")

    stream, sentence = (
        io.BytesIO(),
        "Samples may stay there for at most 36 hours before they are tested by whoever is on duty. ",
    )
    story = [Paragraph(sentence * 62, STYLES["BodyText"])]
    SimpleDocTemplate(stream, pagesize=A4).build(story, onFirstPage=edge, onLaterPages=edge)
    document, (flaw,) = read(stream.getvalue())
    assert {p.link for p in document.passages} == {"x/a.pdf#page=1", "x/a.pdf#page=2"}
    for passage in document.passages:  # none begins or ends within a sentence
        assert passage.text.startswith("Samples may") and passage.text.endswith("on duty.")
    assert " ".join(p.text for p in document.passages).count(sentence.strip()) == 62
    assert flaw.what.startswith("running heads and feet") and not flaw.lost
    assert all(one in flaw.what for one in ("Cell culture handbook", "Version 3", "Page 1 of 2"))


CHAPTERS = ["Cleaning", "Filling", "Repairs", "Storage", "Transport", "Disposal"]


def draw_chapter(page):
    """The page of a chapter of two pages, its name above a line on the page, with a last line as on every page."""

    def draw_page(sheet):
        write(f"The bell of hall {99 - page} rings.", "", "", "Ask when in doubt.", y=700)(sheet)
        sheet.setFont("Helvetica", 9)
        sheet.drawString(72, 800, f"{CHAPTERS[page // 2]} of the pump")
        sheet.drawString(72, 30, f"- {page + 1} -")

    return draw_page


def test_a_running_head_differs_from_chapter_to_chapter_and_the_end_of_a_short_page_is_no_foot():
    text = text_of(draw(*map(draw_chapter, range(12))))
    assert "of the pump" not in text and "- 7 -" not in text
    assert text.count("Ask when in doubt.") == 12 and "The bell of hall 88 rings." in text


def test_what_numbers_a_page_in_large_letters_at_its_top_is_its_heading():
    def draw_week(number):
        def page(sheet):
            write("Monday: soup with bread", "Tuesday: pie with peas", y=700)(sheet)
            sheet.setFont("Helvetica-Bold", 18)
            sheet.drawString(72, 780, f"Week {number}")

        return page

    titles = [passage.title for passage in read(draw(*map(draw_week, (12, 13, 14))))[0].passages]
    assert all(title.endswith(f"Week {number}") for title, number in zip(titles, (12, 13, 14), strict=True))


def test_a_sentence_that_goes_on_with_a_figure_on_the_next_page_is_one():
    pages = write("The samples may stay in the cold room for", "at most"), write("36 hours before they are tested.")
    (passage,) = read(draw(*pages))[0].passages
    assert passage.text == "The samples may stay in the cold room for at most 36 hours before they are tested."
    assert passage.link == "x/a.pdf#page=1"


def test_a_sentence_goes_on_on_the_next_page_though_lines_above_it_are_not_joined():
    first = "The hall is open to all who pay for a day or for a week of it.", "The small hall at the back of it costs"
    pages = write("Fees:", "Day ticket", *first, "each of all members who come"), write("45 euros a day.")
    assert text_of(draw(*pages)).endswith("each of all members who come 45 euros a day.")


def test_what_stands_on_one_page_only_is_no_running_head():
    pages = [
        draw_cells(
            [["Row", "Price", "Stock"], *([f"Item {n}", f"{n}.50", str(n)] for n in range(k, k + 40))], (72, 200, 280)
        )
        for k in (1, 41)
    ]
    text = text_of(draw(*pages))
    assert [line.split(";")[0] for line in text.split("\n") if line] == [f"Row: Item {n}" for n in range(1, 81)]


HYPHENS = {
    ("decon-", "taminated"): "decontaminated", ("X-", "ray"): "X-ray", ("self-", "service"): "self-service",
    ("infor-", "mation"): "information", ("Elm-", "Oak"): "Elm-Oak", ("state-of-the-", "art"): "state-of-the-art",
    ("ther\u00ad", "mostat"): "thermostat", ("main-", "tenance"): "maintenance", ("5-", "10"): "5-10", ("up-", "to-date"): "up-to-date",
}  # fmt: skip


@pytest.mark.parametrize("parts", HYPHENS)
def test_a_hyphen_at_the_end_of_a_line_stays_where_the_word_has_one(parts):
    first, second = parts
    assert (
        text_of(draw(write(f"It is told of the {first}", f"{second} one.")))
        == f"It is told of the {HYPHENS[parts]} one."
    )


@pytest.mark.parametrize("elsewhere, joined", [("The ox-bow is old.", "ox-bow"), ("The oxbow is old.", "oxbow")])
def test_a_word_parted_at_the_end_of_a_line_is_written_as_elsewhere_in_the_file(elsewhere, joined):
    text = text_of(draw(write("They walked along the ox-", "bow until the evening.", "", elsewhere)))
    assert f"along the {joined} until" in text


def draw_form(sheet):
    fields = sheet.acroForm
    sheet.drawString(72, 700, "Delivery day")
    fields.textfield(name="field_7", x=160, y=690, width=150, height=20, value="Thursday 12 March")
    sheet.drawString(72, 660, "Depot:")
    fields.choice(name="depot", x=160, y=650, width=100, height=20, value="North", options=["North", "South"])
    fields.checkbox(name="gift", x=72, y=615, checked=True)
    sheet.drawString(100, 620, "Gift wrap")
    fields.checkbox(name="invoice", x=72, y=585, checked=False)
    sheet.drawString(100, 590, "Invoice")
    fields.textfield(name="contact_person", x=72, y=540, width=150, height=20, value="Ann Lee")


def test_a_filled_field_stands_behind_its_label_or_its_name():
    text = text_of(draw(draw_form))
    assert text.split("\n\n") == [
        "Delivery day: Thursday 12 March", "Depot: North", "Gift wrap: Yes", "Invoice", "contact person: Ann Lee",
    ]  # fmt: skip


def draw_fields(rows, xs, size=10):
    """Texts, and fields where a text begins with an equals sign, in rows."""

    def page(sheet):
        sheet.setFont("Helvetica", size)
        for n, row in enumerate(rows):
            for m, (x, cell) in enumerate(zip(xs, row, strict=True)):
                if cell[:1] == "=":
                    sheet.acroForm.textfield(name=f"f{n}_{m}", x=x, y=694 - 24 * n, width=90, height=18, value=cell[1:])
                elif cell[:1] == "☐":
                    sheet.acroForm.checkbox(name=f"b{n}_{m}", x=x, y=694 - 24 * n, size=12, checked=cell == "☐x")
                else:
                    sheet.drawString(x, 700 - 24 * n, cell)

    return page


FORMS = {
    "labels above": ([["Surname", "First name"], ["=Lee", "=Ann"], ["Street", "Town"], ["=Elm 3", "=Bern"]], (72, 220),
                     ["Surname: Lee; First name: Ann", "Street: Elm 3; Town: Bern"]),
    "a header above": ([["", "Mon", "Tue"], ["Early", "=Ann", "=Bo"], ["Late", "=Cy", "=Di"]], (72, 160, 260),
                       ["Early; Mon: Ann; Tue: Bo\nLate; Mon: Cy; Tue: Di"]),
    "boxes below a header": ([["", "Mon", "Tue"], ["Ann", "☐x", "☐"], ["Bo", "☐", "☐x"]], (72, 160, 260),
                             ["Ann; Mon: Yes\nBo; Tue: Yes"]),
    "one label of three": ([["Born on:", "=04", "=05", "=1980"]], (72, 160, 260, 360), ["Born on: 04 05 1980"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", FORMS)
def test_fields_in_a_row_stand_under_their_labels_or_are_the_cells_of_a_table(kind):
    rows, xs, expected = FORMS[kind]
    assert text_of(draw(draw_fields(rows, xs))).split("\n\n") == expected


def test_a_field_that_is_hidden_is_not_read():
    def page(sheet):
        sheet.drawString(72, 700, "Name")
        sheet.acroForm.textfield(name="a", x=160, y=694, width=90, height=18, value="Ann Lee")
        sheet.acroForm.textfield(name="b", x=160, y=660, width=90, height=18, value="70", annotationFlags="hidden")

    assert text_of(draw(page)) == "Name: Ann Lee"


def draw_hidden(kind):
    def page(sheet):
        sheet.drawString(72, 700, "The hall costs 300 euros a day.")
        sheet.saveState()
        text = sheet.beginText(72, 660)
        if kind == "white":
            sheet.setFillColorRGB(1, 1, 1)
        if kind == "unpainted":
            text.setTextRenderMode(3)
        if kind == "beside the page":
            text.setTextOrigin(72, 900)
        if kind == "transparent":
            sheet.setFillAlpha(0)
        text.textOut("It costs 1 euro.")
        sheet.drawText(text)
        if kind in ("covered", "covered in white"):
            sheet.setFillColorRGB(*((1, 1, 1) if "white" in kind else (0, 0, 0)))
            sheet.rect(70, 655, 200, 15, fill=1, stroke=0)
        sheet.restoreState()
        sheet.setFillColorRGB(0, 0, 0.5)
        sheet.rect(70, 600, 200, 20, fill=1)
        sheet.setFillColorRGB(1, 1, 1)
        sheet.drawString(72, 606, "White on blue is read.")
        sheet.setFillColorRGB(0.9, 0, 0)
        sheet.rect(70, 560, 200, 20, fill=1)
        sheet.setFillColorRGB(0, 0.46, 0)
        sheet.drawString(72, 566, "So is green on as light a red.")

    return page


@pytest.mark.parametrize(
    "kind", ["white", "unpainted", "covered", "covered in white", "beside the page", "transparent"]
)
def test_what_cannot_be_seen_is_not_quoted_and_a_flaw_tells_it(kind):
    document, (flaw,) = read(draw(draw_hidden(kind)))
    text = "\n\n".join(p.text for p in document.passages)
    assert text == "The hall costs 300 euros a day.\n\nWhite on blue is read.\n\nSo is green on as light a red."
    assert flaw.what.startswith("4 words that no page shows") and "page 1" in flaw.what and not flaw.lost


def test_text_that_lies_unpainted_over_the_picture_of_a_scan_is_read():
    from PIL import Image, ImageDraw
    from reportlab.lib.utils import ImageReader

    picture = Image.new("L", (A4[0].__int__(), A4[1].__int__()), 255)
    ImageDraw.Draw(picture).text((72, 130), "The valve opens at 4 bar.", fill=0, font_size=12)

    def page(sheet):
        sheet.drawImage(ImageReader(picture), 0, 0, *A4)
        text = sheet.beginText(72, 701)
        text.setTextRenderMode(3)
        text.textOut("The valve opens at 4 bar.")
        sheet.drawText(text)

    assert text_of(draw(page)) == "The valve opens at 4 bar."


GENERATED = ["untitled", "(anonymous)", "Microsoft Word - final_v7.docx", "leaflet.indd", "Document1", ""]
GENERATED += ["Untitled document", "Book1", "scan0012", "plan.cdr", "https://a.org/b", "about:blank"]


@pytest.mark.parametrize("title", GENERATED)
def test_a_title_that_a_program_gave_makes_way_for_the_first_heading_or_line_or_the_files_name(title):
    headed = build(head("Rental terms", 1), "Pay within 14 days.", title=title)
    assert read(headed)[0].title == "Rental terms"
    lines = draw(write("Rental terms", "", "", "Pay within 14 days."), title=title)
    assert read(lines)[0].title == "Rental terms"
    assert read(draw(write("Pay within 14 days."), title=title))[0].title == "a"
    assert read(draw(write("Pay within 14 days."), title="Terms of 2026"))[0].title == "Terms of 2026"


def test_headings_by_their_size_are_sections_with_steps_of_a_title():
    story = [head("Rental terms", 1), head("Insurance", 2), "Fire is insured.", head("Theft", 3), "Up to 2000 euros."]
    story += [PageBreak(), "Locks must be shut.", head("Late payment", 2), "We charge 5 euros."]
    passages = read(build(*story))[0].passages
    assert [(p.id.partition("#")[2], p.title, p.text) for p in passages] == [
        ("page-1", "Rental terms > Insurance", "Fire is insured."),
        ("page-1~2", "Rental terms > Insurance > Theft", "Up to 2000 euros."),
        ("page-2", "Rental terms > Insurance > Theft", "Locks must be shut."),
        ("page-2~2", "Rental terms > Late payment", "We charge 5 euros."),
    ]


@pytest.mark.parametrize("begin", ["(at most two hours)", "£20", "12 euros", "“all”", "where it is shut,"])
@pytest.mark.parametrize("end", ["", ";", ","])
def test_a_line_that_begins_with_no_capital_goes_on_with_a_full_one_that_has_no_end(begin, end):
    lines = f"Any boat that is left in the slings over lunch has to pay{end}", f"{begin} is what it comes to."
    assert text_of(draw(write(*lines))) == " ".join(lines)
    for above in ("Fees:", "The fees are these.") if begin[0] != "w" else ():
        assert text_of(draw(write(above, lines[1]))) == f"{above}\n{lines[1]}"


def test_plain_labels_above_several_tables_are_the_headings_of_their_rows_alone():
    prose = "Each ferry takes cars and carts as well. Those who come with one are asked to be at the pier half an hour before it sails."
    story = (
        prose,
        "Fares of 2026",
        Table(FARES, style=GRID),
        "Fares of 2027",
        Table(FARES, style=GRID),
        "Dogs are free.",
    )
    first, *passages = read(build(head("Isle", 1), *story))[0].passages
    assert (first.title, first.text) == ("Isle", prose)
    titles = ["Isle > Fares of 2026", "Isle > Fares of 2027", "Isle"]
    assert [(p.title, p.text.removeprefix(f"Fares of 202{6 + n}\n\n")) for n, p in enumerate(passages)] == [
        *((title, FARE_ROWS) for title in titles[:2]), (titles[2], "Dogs are free.")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "one"),
    [
        ("A car that is left on the pier costs 56 euros a day until 31 December 2026, and 62 euros from 1", "January 2027.", True),
        ("Isle Ferries, at the old pier in the north of the harbour", "Open from nine to five.", False),
        ("Isle Ferries, at the old pier in the north of the harbour of Leith, beside the cafe and its old mill", "Ring Ann", False),
    ],
)  # fmt: skip
def test_a_line_that_begins_with_a_capital_goes_on_with_one_that_reaches_the_margin_of_the_text(first, second, one):
    prose = "Each ferry takes cars and carts as well. Those who come with one are asked to be at the pier half an hour before it sails."
    content = build(prose, Table(FARES, style=GRID), f"{first}<br/>{second}")
    assert text_of(content).endswith(f"{first} {second}" if one else f"{first}\n{second}")


def test_an_item_behind_a_larger_number_without_a_stop_is_one_paragraph():
    def page(sheet):
        for n in (10, 11):
            lines = "Turn the key of the door, and wait until the lamp beside", "it is green."
            write(*lines, x=96, y=1100 - 40 * n)(sheet)
            sheet.setFont("Helvetica", 13)
            sheet.drawString(76, 1101 - 40 * n, str(n))
            sheet.setFont("Helvetica", 11)

    one = "Turn the key of the door, and wait until the lamp beside it is green."
    assert " ".join(text_of(draw(page)).split()) == f"10 {one} 11 {one}"


def test_the_number_of_a_heading_is_no_mark_of_an_item():
    story = [head("Terms", 1), head("1. Orders", 2), "Orders bind.", head("2. Money", 2), "1. Pay.", "2. Go.", "Bye."]
    assert [(p.title, p.text) for p in read(build(*story))[0].passages] == [
        ("Terms > 1. Orders", "Orders bind."),
        ("Terms > 2. Money", "1. Pay.\n2. Go.\n\nBye."),
    ]


def test_lists_are_items_and_short_lines_are_not_joined():
    lines = ["Opening hours", "Monday 9:00 to 17:00", "Tuesday 9:00 to 17:00", "Wednesday closed"]
    assert text_of(draw(write(*lines))) == "\n".join(lines)
    assert (
        text_of(draw(write("• red", "• green, as the grass is", "   in the spring")))
        == "- red\n- green, as the grass is in the spring"
    )
    assert text_of(draw(write("1. Sweep the floor.", "2. Close the lid, and turn", "    the key."))) == (
        "1. Sweep the floor.\n2. Close the lid, and turn the key."
    )


@pytest.mark.parametrize("angle", [0, 90, 180, 270])
@pytest.mark.parametrize("as_shown", [True, False])
def test_a_page_that_lies_on_its_side_is_read_like_any_other(angle, as_shown):
    def page(sheet):
        if as_shown:
            sheet.setPageRotation(angle)
        sheet.translate(300, 420)
        sheet.rotate(angle)
        for n, row in enumerate(FARES):
            for x, cell in zip((-150, 0, 80), row, strict=True):
                sheet.drawString(x, -16 * n, cell)

    assert text_of(draw(page)) == FARE_ROWS


def test_what_runs_across_a_page_on_the_slant_stands_behind_its_text_and_is_no_heading():
    def page(sheet):
        sheet.saveState()
        sheet.translate(150, 300)
        sheet.rotate(45)
        sheet.setFont("Helvetica", 40)
        sheet.drawString(0, 0, "DRAFT")
        sheet.restoreState()
        write("The hall costs 300 euros a day.", y=800)(sheet)

    (passage,) = read(draw(page))[0].passages
    assert passage.text == "The hall costs 300 euros a day.\n\nDRAFT"


def break_page(content):
    """The file with what is drawn on its last page damaged."""
    start, end = content.rindex(b"stream", 0, content.rindex(b"endstream")) + 8, content.rindex(b"endstream")
    return content[:start] + b"\xff" * (end - start) + content[end:]


@pytest.fixture(params=[False, True], ids=["without ocr", "with ocr"])
def ocr(request, monkeypatch):
    """Whether the extra is installed."""
    if request.param:
        pytest.importorskip("rapidocr")
    else:
        monkeypatch.setitem(sys.modules, "rapidocr", None)
    open_ocr.cache_clear()
    yield request.param
    open_ocr.cache_clear()


def scan(content):
    """The file as a scanner makes it of the paper: a picture of its first page, 200 pixels an inch."""
    stream = io.BytesIO()
    PdfDocument(content)[0].render(scale=200 / 72).to_pil().save(stream, "PDF", resolution=200)
    return stream.getvalue()


def test_pages_without_text_are_counted_and_the_others_read(ocr):
    pages = write("One."), lambda sheet: None, write("Three."), write("Four.")
    document, (flaw,) = read(break_page(draw(*pages)))
    assert [(p.link, p.text) for p in document.passages] == [("x/a.pdf#page=1", "One."), ("x/a.pdf#page=3", "Three.")]
    assert flaw.what == "2 of 4 pages hold no text, page 2 the first" and ("the extra `ocr`" in flaw.mend) != ocr


def test_a_file_of_pictures_without_text_is_refused(ocr):
    with pytest.raises(UnreadableFile) as error:
        read(draw(lambda sheet: sheet.rect(72, 600, 100, 50, fill=1)))
    assert "only pictures" in error.value.what and ("the extra `ocr`" in error.value.mend) != ocr


def test_a_scan_is_read_by_ocr_or_the_extra_is_named(ocr):
    scanned = scan(build(head("Fares", 1), Table(FARES, style=GRID)))
    if not ocr:
        with pytest.raises(UnreadableFile, match="extra `ocr`"):
            read(scanned)
        return
    document, (flaw,) = read(scanned)
    assert "Crossing: Isle - Pier; Adult: 4.50; Car: 19.00" in document.passages[-1].text
    assert flaw.what == "1 page of pictures was read by OCR"


def test_a_scan_that_a_few_words_are_stamped_on_is_a_scan_all_the_same(ocr):
    from reportlab.lib.utils import ImageReader

    picture = PdfDocument(build("The valve opens at 4 bar."))[0].render(scale=200 / 72).to_pil()

    def page(sheet):
        sheet.drawImage(ImageReader(picture), 0, 0, *A4)
        sheet.drawString(400, 30, "Received 4 May 2026")

    document, (flaw,) = read(draw(page))
    text = "\n".join(passage.text for passage in document.passages)
    assert "Received 4 May 2026" in text and ("The valve opens at 4 bar." in text) == ocr
    told = "1 page of pictures was read by OCR" if ocr else "1 of 1 pages holds little but pictures, page 1 the first"
    assert flaw.what == told and not flaw.lost
