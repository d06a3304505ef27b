"""Which row a question names: by the words of any of its cells, and by a number in the range of its first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragc.loop.rows import name_keys, name_rows
from ragc.loop.subjects import find_subject
from ragc.text.pieces import split_pieces
from ragc.text.ranges import find_ranges
from tests.support.documents import open_documents

ABOUT = "what we offer and what it costs"
PARCELS = {
    "parcels.md": "# Parcels\n\n| Weight | Inland | Abroad |\n|---|---|---|\n| up to 2 kg | GBP 4 | GBP 11 |\n"
    "| 3 to 10 kg | GBP 7 | GBP 19 |\n| 11 to 25 kg | GBP 12 | GBP 38 |\n| over 25 kg | GBP 30 | GBP 90 |\n"
}
SLEDGES = {
    "sledges.csv": "Code,Name,Place,Seats,Price\nSL-10,Silver Fox,Upper barn,2,12 euros\n"
    "SL-11,Silver Hare,Lower barn,3,15 euros\nSL-12,Black Fox,Lower barn,1,9 euros\n"
}
PITCHES = {
    "pitches.csv": "Pitch,Size m2,Guests,Warden,Nights\n"
    + "".join(f"K{n},{40 + n},{n % 4 + 2},{name},{n + 3}\n" for n, name in enumerate(["Ada Lind", "Bo Kerr"] * 6, 1))
}
LANES = {
    "lanes.txt": "LANES\n\nTime             Lanes    In the water\n06:30 - 12:00    6        schools\n12:00 - 15:00    5        none\n"
    "15:00 - 18:00    2        Otter club\n18:00 - 20:00    3        canoes\n"
}
TICKETS = {
    "fares.html": "<h1>Fares</h1><table><tr><th>Passenger<th>Day<th>Night<tr><td>Adult<td>6.40<td>7.10<tr>"
    "<td>Child (4 to 15 years)<td>3.50<td>4.20<tr><td>Family (2 adults, up to 3 children)<td>16.50<td>19</table>"
}
CANCELLING = {
    "c.md": "# Cancelling a course\n\n- More than 28 days before: all your money back, less £10.\n"
    "- 28 to 8 days before: half of the fee.\n- 7 days or less: nothing, but you may send somebody in your place.\n"
}
HALF = ("all your money", "nothing")
CINEMA = {
    "tickets.html": "<h1>Tickets</h1><table><tr><th><th>Matinee (before 17:00)<th>Evening<th>Live broadcast<tr><th>Adult<td>£7.50"
    "<td>£9.80<td>£18<tr><th>Over 65<td>£6.50<td>£8.50<td>£16<tr><th>Student<td>£6.00<td>£7.50<td>£12</table>"
}
ASKED = [
    (CINEMA, "What does an evening ticket cost for a student?", "Student, Evening: £7.50", ("£6.00", "£8.50", "£12")),
    (CANCELLING, "What do I get back if I cancel 14 days before?", "half of the fee", HALF),  # an item under its label
    (CANCELLING, "What if I cancel 40 days before?", "all your money", ("half", "nothing")),
    (CANCELLING, "I cancel twelve days before the course. Do I get anything back?", "half of the fee", HALF),
    (PITCHES, "Who is the warden of K9, and how many guests does it take?", "K9, Guests: 3", ("2", "4", "5")),
    (PITCHES, "How many nights can I have K4 and how big is it?", "K4, Size m2: 44", ("43", "45", "48")),
    (TICKETS, "What is the night fare of a child?", "4.20", ("7.10", "19", "3.50")),
    (TICKETS, "What is the fare of an adult by day?", "6.40", ("16.50", "3.50")),
    (LANES, "How many lanes are free at 1 pm?", "Lanes: 5", ("6", "3", "2")),
    (LANES, "Which club is in the water at 4 pm?", "Otter club", ("canoes", "schools", "none")),
    (PARCELS, "What does a parcel of 8 kg cost abroad?", "GBP 19", ("GBP 11", "GBP 38", "GBP 90")),
    (PARCELS, "What does a parcel of 1.5 kg cost abroad?", "GBP 11", ("GBP 19", "GBP 38", "GBP 90")),
    (PARCELS, "What does a parcel of 40 kg cost abroad?", "GBP 90", ("GBP 11", "GBP 19", "GBP 38")),
    (SLEDGES, "What is the price of the Silver Hare?", "15 euros", ("12 euros", "9 euros")),
    (SLEDGES, "How many seats does the Black Fox have?", "Seats: 1", ("2", "3")),
    (SLEDGES, "Which codes are in the lower barn?", "SL-11", ("SL-10",)),
    (SLEDGES, "Which codes are in the lower barn?", "SL-12", ("Silver Fox",)),
    (PARCELS, "Is the price abroad of a parcel of 2.5 kg known?", "find", ("GBP 4", "GBP 11", "GBP 7", "GBP 19")),
    (SLEDGES, "Where is the Silver Hare, and how many seats are there?", "Seats: 3", ("2", "1", "Upper barn")),
    (SLEDGES, "What is the price of SL-10?", "12 euros", ("15 euros", "9 euros")),  # the key names its row as ever
]


@pytest.mark.parametrize(("files", "question", "right", "others"), ASKED)
def test_the_row_that_a_question_names_is_told_and_no_other(tmp_path, files, question, right, others):
    text = open_documents(tmp_path, files, ABOUT)(question).text
    assert right in text and not any(f": {other}" in text for other in others)


bounds = st.lists(st.integers(1, 400), min_size=4, max_size=8, unique=True).map(sorted)
BETWEEN = ["{} to {} kg", "{}-{} kg", "{}–{} kg", "{} kg bis {} kg", "from {} up to {} kg"]


@given(bounds, st.sampled_from(BETWEEN), st.booleans(), st.booleans(), st.data())
def test_a_number_is_held_by_the_cell_in_whose_range_it_lies(ends, form, low, high, data):
    first, last = ends[0], ends[-2 + len(ends) % 2]
    pairs = [*zip(ends[::2], ends[1::2], strict=False)]
    down = data.draw(st.booleans())  # `28 to 8`
    cells = (
        [f"under {first} kg"] * low
        + [form.format(*pair[:: -1 if down else 1]) for pair in pairs]
        + [f"over {pairs[-1][1]} kg"] * high
    )
    ranges = find_ranges(tuple(cells))
    number = data.draw(st.integers(0, 500))
    wanted = [low and number < first, *(a <= number <= b for a, b in pairs), high and number > pairs[-1][1]]
    wanted = wanted[0 if low else 1 : None if high else -1]
    assert last and [one is not None and one.holds(1000 * number) for one in ranges] == wanted


UNITS = {"kg": 1000, "g": 1, "m": 100, "cm": 1, "l": 1000, "ml": 1}
SAME = [("kg", "g"), ("m", "cm"), ("l", "ml")]


@given(bounds, st.sampled_from(SAME), st.data())
def test_a_number_is_held_in_whatever_unit_it_and_the_cells_are_written(ends, units, data):
    written = [data.draw(st.sampled_from(units)) for _ in ends]
    spell = [f"{100 * end / UNITS[unit]:g} {unit}" for end, unit in zip(ends, written, strict=True)]
    cells = [f"{a} to {b}" for a, b in zip(spell[::2], spell[1::2], strict=False)]
    number, unit = data.draw(st.integers(0, 500)), data.draw(st.sampled_from(units))
    text = "\n".join(f"Size: {cell}; Price: {n}; Place: north" for n, cell in enumerate(cells))
    subjects = [find_subject("Parcels", piece) for piece in split_pieces(text)]
    rows = name_rows(f"What is the price for {100 * number / UNITS[unit]:g} {unit}?", (one.row for one in subjects))
    held = [a <= number <= b for a, b in zip(ends[::2], ends[1::2], strict=False)]
    assert [rows[row].named is True for row in dict.fromkeys(one.row for one in subjects)] == held


NO_RANGES = [("Hall 2", "Hall 14"), ("9:00", "13:00"), ("1/2 to 3/4",), ("2026-11-30", "2026-12-01"), ("8 m", "12 m")]


@pytest.mark.parametrize("cells", NO_RANGES)
def test_names_days_and_single_numbers_and_times_are_no_ranges(cells):
    assert find_ranges(cells) == (None,) * len(cells)


SHIFTS = ["06:30 - 9:00", "9:00 – 12:30", "12.30 pm to 6 pm", "6 to 11 pm"]
CLOCK = [
    ("9:00", 1),
    ("8.59 am", 0),
    ("08:15", 0),
    ("12:29", 1),
    ("12:30", 2),
    ("5 PM", 2),
    ("6 p.m.", 3),
    ("18:00", 3),
]


@pytest.mark.parametrize(("time", "at"), [*CLOCK, ("between 1 and 3 pm", 2), ("7 to 9 pm", 3), ("11.30 pm", None)])
def test_a_time_of_day_is_held_by_the_cell_that_it_lies_in_up_to_its_end(time, at):
    text = "\n".join(f"Time: {shift}; On duty: {name}; Beds: 4" for shift, name in zip(SHIFTS, "ABCD", strict=True))
    subjects = [find_subject("Ward", piece) for piece in split_pieces(text)]
    rows = name_rows(f"Who is on duty {time}?", (one.row for one in subjects))
    assert [rows[row].named for row in dict.fromkeys(one.row for one in subjects)] == [n == at for n in range(4)]


ROWS = "Size: 5 to 9 m; Place: north; Price: 4\nSize: 10 to 14 m; Place: south; Price: 7\nSize: 15 to 20 m; Place: south; Price: 9"
NAMED = [
    ("a tent of 12 m", [False, True, False]),
    ("a tent of 12 people", [None, None, None]),  # measured in something else
    ("a tent of 30 m", [False, False, False]),
    ("a tent in the south", [False, True, True]),
    ("a tent of 12 m in the south", [False, True, False]),
    ("a tent in the north or of 12 m", [True, True, False]),
    ("what is the price", [None, None, None]),
]


LATER = "Size: small; Sleeps: 1 to 2 people; Price: 4\nSize: wide; Sleeps: 3 to 4 people; Price: 7\nSize: tall; Sleeps: 5 to 8 people; Price: 9"
NAMED_LATER = [
    ("a tent for 4 people", [False, True, False]),
    ("a tent for two people", [True, False, False]),
    ("the small tent for 4 people", [True, False, False]),  # what is named by words is meant
    ("a tent of 4 m", [None, None, None]),
    ("a tent for 20 people", [None, None, None]),
]


@pytest.mark.parametrize(
    ("table", "question", "named"), [(ROWS, *one) for one in NAMED] + [(LATER, *one) for one in NAMED_LATER]
)
def test_a_row_is_named_by_its_cells_and_the_range_of_its_first_or_else_of_a_later_one(table, question, named):
    subjects = [find_subject("Tents", piece) for piece in split_pieces(table)]
    rows = name_rows(question, (one.row for one in subjects))
    assert [rows[row][0] for row in dict.fromkeys(one.row for one in subjects)] == named


KEYS = [
    ("a tent of 12 m", ["a tent of 12 m", "a tent of 10 to 14 m", "a tent of 12 m"]),
    ("a tent in the North", ["a tent in the North (5 to 9 m)", "a tent in the North", "a tent in the North"]),
    (
        "a tent in the south",  # which names two rows
        ["a tent in the south", "a tent in the south (10 to 14 m)", "a tent in the south (15 to 20 m)"],
    ),
    ("a tent of 5 to 9 m", ["a tent of 5 to 9 m"] * 3),
    ("what is it", ["what is it"] * 3),  # which names no row
]


def spell_keys(question, subjects, of, texts=(ROWS,)):
    """The question as it is asked of each row."""
    rows = name_rows(of, (one.row for one in subjects))
    return [name_keys(question, rows, row, texts) for row in dict.fromkeys(subject.row for subject in subjects)]


@pytest.mark.parametrize(("question", "spelt"), KEYS)
def test_a_reader_is_asked_with_the_key_of_each_row_that_is_named(question, spelt):
    subjects = [find_subject("Tents", piece) for piece in split_pieces(ROWS)]
    assert spell_keys(question, subjects, question) == spelt


def test_a_part_of_a_question_that_names_no_row_is_asked_of_the_one_that_the_whole_names():
    subjects, part = [find_subject("Tents", piece) for piece in split_pieces(ROWS)], "what does it cost?"
    spelt = spell_keys(part, subjects, "Who has the tent of 12 m in the south, and what does it cost?")
    assert spelt == [part, "10 to 14 m: what does it cost?", part]


def test_a_cell_that_a_row_has_too_which_was_not_kept_names_no_key():
    subjects, question = [find_subject("Tents", piece) for piece in split_pieces(ROWS)], "a tent in the north"
    texts = [ROWS, "Size: 50 to 90 m; Place: north; Price: 40"]
    assert spell_keys(question, subjects, question, texts) == [question] * 3


SPANS = ["{} to {} kg", "{} - {} kg", "{} kg to {} kg", "{}–{} kg"]


@given(bounds, st.sampled_from(SPANS), st.data())
def test_a_sentence_of_another_range_than_that_of_a_number_is_of_another_thing(ends, form, data):
    pairs = [*zip(ends[::2], ends[1::2], strict=False)]
    text = " ".join(f"Dogs of {form.format(*pair)} are washed on day {n}." for n, pair in enumerate(pairs))
    subjects = [find_subject("Washing", piece) for piece in split_pieces(text)]
    number = data.draw(st.integers(1, 500))
    question = f"When is a dog of {number} kg washed?"
    rows = name_rows(question, (one.row for one in subjects))
    held = [low <= number <= high for low, high in pairs]
    assert [rows[one.row].named for one in subjects] == [one if any(held) else None for one in held]
    for one, pair, is_held in zip(subjects, pairs, held, strict=True):
        spelt = question.replace(f"{number} kg", form.format(*pair)) if is_held else question
        assert name_keys(question, rows, one.row, [text]).startswith(spelt.removesuffix(" washed?"))


NO_SPANS = ["It is open from 9:00 to 15:00.", "Ring 01632 960 - 755.", "It was so on 2026-11-30.", "Take 2, 3 or 4 kg."]


@pytest.mark.parametrize("sentence", NO_SPANS)
def test_times_days_and_telephones_in_a_sentence_are_no_range(sentence):
    assert [find_subject("A", piece).row for piece in split_pieces(sentence)] == [()]


CLUB = {
    "club.md": "# Training\n\nSwimmers from grade 4 to 6 may train with the Minnows. Swimmers from grade 7 to 9 may train "
    "with the Pike. The coach is Rob.\n\n## Hire\n\nBoats of 6 to 8 m are lifted on Tuesdays. Boats of 8 to 12 m are "
    "lifted on Fridays.\n\nA repair takes 2 to 4 days.\n"
}
IN_SENTENCES = [
    ("Where may a swimmer of grade 5 train?", "Minnows", "Pike"),
    ("Where may I train with grade 8?", "Pike", "Minnows"),
    ("When is a boat of 10 m lifted?", "Fridays", "Tuesdays"),
    ("Is a repair done in 5 days?", "2 to 4 days", "lifted"),  # what is asked for may be the range itself
]


@pytest.mark.parametrize(("question", "right", "other"), IN_SENTENCES)
def test_a_number_is_told_the_sentence_in_whose_range_it_lies(tmp_path, question, right, other):
    text = open_documents(tmp_path, CLUB, ABOUT)(question).text
    assert right in text and other not in text


POTATOES = {
    "p.csv": "Variety,Type,Plant,2.5 kg,10 kg\nSwift,first early,late March,£6.20,£19.50\nCharlotte,second early,mid April,"
    "£5.80,£18.00\nMaris Peer,second early,mid April,£5.80,£18.00\nDesiree,maincrop,late April,£5.40,£16.80\n"
}


def test_rows_that_say_the_same_are_told_together(tmp_path):
    text = open_documents(tmp_path, POTATOES, ABOUT)("What does 10 kg of second early seed potatoes cost?").text
    assert "Charlotte, 10 kg: £18.00" in text and "Maris Peer, 10 kg: £18.00" in text and "£19" not in text
