"""Whose sentence is quoted: that of what the question names, whatever else is said alike."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragc.loop.policy import WHOLE
from ragc.loop.rows import find_widest, name_rows
from ragc.loop.subjects import BESIDE, REPLACED, Subject, count_strange, find_subject, names_other
from ragc.text.pieces import split_pieces
from tests.support.documents import open_documents

ABOUT = "what we offer and how things are done"
MANUALS = {
    f"{n}.md": f"# {name}\n\n## Reset\n\nHold the {colour} button for {seconds} seconds.\n\n## Weight\n\nIt weighs {weight} kg."
    for n, (name, colour, seconds, weight) in enumerate(
        [("Lathe K10", "green", 11, 4), ("Lathe K20", "blue", 8, 5), ("Lathe K30", "red", 5, 7)]
    )
}
PUMPS = {
    "old.md": "---\nas_of: 2024-05-01\n---\n# Pump X1\n\nThe filter of the X1 is changed every 200 hours.",
    "new.md": "---\nas_of: 2026-05-01\n---\n# Pump X2\n\nThe filter of the X2 is changed every 350 hours.",
}
PRICES = {
    "old.md": "---\nas_of: 2024-05-01\n---\n# Prices\n\nA day ticket costs 12 euros.",
    "new.md": "---\nas_of: 2026-05-01\n---\n# Prices of this year\n\nA day ticket costs 15 euros.",
}
BRANCHES = {
    "south.md": "# Southgate branch\n\nThe branch is open from 10 to 18.",
    "north.md": "# Northgate branch\n\nThe branch is open from 8 to 16.",
}
HOUSES = {
    "wifi.md": "# North house\n\n## Wifi\n\nThe password is larch-5.\n\n# South house\n\n## Wifi\n\nThe password is maple-6.\n"
}
BOLTS = {"bolts.csv": "Bolt,Torque,as_of\nM6,9 Nm,2024-01-01\nM8,22 Nm,2026-01-01\nM10,44 Nm,2025-01-01\n"}
SHIPS = {
    "plan.csv": "Date,Ship,Departs\n2026-11-30,Otter,08:15\n2026-11-30,Heron,17:40\n2026-12-01,Otter,09:15\n2026-12-01,Heron,18:40\n"
}
PHONES = {
    "desk.txt": "CONTACTS\n\nOffice 01632 960740\nNight watchman 01632 960755\nBoatyard (Peter) 01632 960762\n",
    "yard.txt": "YARD\n\nMon-Fri 7.30am - 5pm\nSat 8am - 1pm\nSun closed\n",
}
CHOIR = {
    "fees.md": "# Fees\n\n| Lesson | Children a term | Children single | Adults a term | Adults single |\n|---|---|---|---|---|\n"
    "| Flute | £264 | £24 | £330 | £30 |\n| Choir | £55 | £6 | £77 | £8 |\n"
}
SAFETY = {
    "safety.csv": "Machine,Checked every,By,Next check\nMitre saw,3 months,Felix Brandt,12 January 2027\n"
    "Compressor,12 months,Aird Ltd,2 June 2027\n"
}
POOL = {
    "pool.md": "# Pool\n\n| Ticket | Summer (May to September) | Winter (October to April) |\n|---|---|---|\n| Adult | £6.10 | £4.50 |\n"
    "| Child | £3.20 | £2.20 |\n",
    "desk.csv": "Desk,Monday to Friday,Saturday,Sunday\nPier,9 to 17,10 to 14,closed\nHill,8 to 16,9 to 12,10 to 11\n",
}
STAFF = {"team.csv": "Name,Role,Phone\nAnn Reed,Bookkeeping,5512\nBob Hale,Workshop,5518\nCara Moss,Reception,5500\n"}
ASKED = [
    (PUMPS, "How often is the filter of the X1 changed?", "200", "350"),
    (PUMPS, "How often is the filter of the X2 changed?", "350", "200"),
    (PRICES, "What does a day ticket cost?", "15 euros", "12 euros"),  # of one subject the newer speaks
    (BRANCHES, "When is the Southgate branch open?", "10 to 18", "8 to 16"),
    (BRANCHES, "When does the Northgate branch open?", "8 to 16", "10 to 18"),
    (MANUALS, "How do I reset the K20?", "blue", "green"),
    (MANUALS, "What does the K30 weigh?", "7 kg", "4 kg"),
    (HOUSES, "What is the wifi password in the north house?", "larch", "maple"),
    (HOUSES, "What is the wifi password in the south house?", "maple", "larch"),
    (BOLTS, "What is the torque of the M6 bolt?", "9 Nm", "22"),
    (SHIPS, "When does the Heron leave on 30 November?", "17:40", "08:15"),
    (SHIPS, "When does the Otter depart on 1 December?", "09:15", "08:15"),
    (PHONES, "What is the phone number of the night watchman?", "960755", "960740"),
    (PHONES, "What is the phone number of the office?", "960740", "960755"),
    (PHONES, "When is the yard open on Saturday?", "8am - 1pm", "5pm"),
    (CHOIR, "How much is choir for children per term?", "£55", "£77"),
    (CHOIR, "How much is choir for adults per term?", "£77", "£55"),
    (SAFETY, "Who checks the compressor?", "Aird", "Felix"),
    (SAFETY, "When is the next check of the mitre saw?", "12 January", "Felix"),
    (POOL, "How much is a ticket for a child in July?", "£3.20", "£2.20"),
    (POOL, "How much is a ticket for an adult in December?", "£4.50", "£6.10"),
    (POOL, "When is the Pier desk open on Tuesday?", "9 to 17", "10 to 14"),
    (STAFF, "What is Bob Hale's phone number?", "5518", "5512"),
]
STEPS = {
    "mira.md": "# Mira Dahl\n\nMira Dahl is a walker. She was born in Vardal and grew up abroad.",
    "vardal.md": "# Vardal\n\nVardal is a town on the coast. At the census it had a population of 6,960.",
}


@pytest.mark.parametrize("subject", [0.55, 0.0])
def test_where_no_subjects_are_compared_pages_that_the_question_does_not_name_are_quoted_too(tmp_path, subject):
    program = open_documents(tmp_path, STEPS, ABOUT)
    program.policy.turn(**WHOLE, subject=subject)
    answer = program("What was the population of the town where Mira Dahl was born?")
    assert "born in Vardal" in answer.text and ("6,960" in answer.text) == (not subject)


@pytest.mark.parametrize(("files", "question", "right", "other"), ASKED, ids=[question for _, question, *_ in ASKED])
def test_what_is_said_of_another_thing_is_not_quoted(tmp_path, files, question, right, other):
    answer = open_documents(tmp_path, files, ABOUT)(question)
    assert right in answer.text and other not in answer.text


TIDES = {
    "tides december.csv": "Date,First high water,Height (m),Second high water,Height 2 (m)\n01/12/2026,00:42,6.1,13:05,6.3\n"
    "02/12/2026,01:31,5.8,13:56,6.0\n03/12/2026,02:25,5.4,14:53,5.6\n04/12/2026,03:28,5.1,16:01,5.3\n"
}


def test_the_cells_of_several_rows_do_not_vouch_for_each_other(tmp_path):
    answer = open_documents(tmp_path, TIDES, ABOUT)("How much is a berth of 9 m in December?")
    assert answer.outcome == "abstain"


def test_what_is_left_open_is_told_of_each_behind_the_step_that_differs(tmp_path):
    answer = open_documents(tmp_path, BRANCHES, ABOUT)("When is the branch open?")
    for part in (
        "Southgate branch: The branch is open from 10 to 18",
        "Northgate branch: The branch is open from 8 to 16",
    ):
        assert part in answer.text


ABSENT = [
    ("The head of the Oslo office is K. Lund. The Bergen office is open from 9 to 15.", "Oslo", "Bergen"),
    ("Parking at the north hall costs 3 euros an hour.\n\nThe south hall has 40 bicycle stands.", "north", "south"),
    ("The code of the Heron gate is 4471.\n\nThe Otter gate stands beside the lake.", "Heron", "Otter"),
    ("The Ash room has 20 seats and a projector. The Fir room has 8 seats and a piano.", "Ash", "Fir"),
    ("## Pine kiln\n\nIt stands on the first floor.\n\n## Yew kiln\n\nThe Yew kiln fires 40 pots.", "Pine", "Yew"),
]
QUESTIONS = {
    "Oslo": "Who is the head of the {} office?",
    "north": "What does parking at the {} hall cost?",
    "Heron": "What is the code of the {} gate?",
    "Ash": "Has the {} room a projector?",
    "Pine": "On which floor is the {} kiln?",
}


@pytest.mark.parametrize(("text", "known", "absent"), ABSENT)
def test_what_is_said_of_a_thing_of_another_name_alone_is_refused(tmp_path, text, known, absent):
    program, question = open_documents(tmp_path, {"page.md": f"# Page\n\n{text}\n"}, ABOUT), QUESTIONS[known]
    assert program(question.format(known)).outcome == "answered"
    assert program(question.format(absent)).outcome == "abstain"


BESIDE_OTHERS = [
    ("A pitch costs 18 euros a night. A dog costs 3 euros a night.", "How much does a {} cost a night?", "dog", "cat"),
    (
        "## Ash room\n\nIt has 20 seats.\n\n## Fir room\n\nIt has 8 seats.",
        "How many seats has the {} room?",
        "Fir",
        "Elm",
    ),
    (
        "| Lesson | Price |\n|---|---|\n| Piano | 85 |\n| Violin | 80 |",
        "What does a {} lesson cost?",
        "violin",
        "cello",
    ),
    ("| | Care 1 | Care 2 |\n|---|---|---|\n| Price | £16.50 | £24 |", "What is the price of Care {}?", "2", "3"),
    ("The red van takes 6 bikes. The blue van takes 9 bikes.", "How many bikes does the {} van take?", "red", "green"),
]


@pytest.mark.parametrize(("text", "question", "known", "absent"), BESIDE_OTHERS)
def test_a_thing_that_stands_nowhere_is_refused_where_several_others_stand_in_its_place(
    tmp_path, text, question, known, absent
):
    program = open_documents(tmp_path, {"page.md": f"# Page\n\n{text}\n"}, ABOUT)
    assert program(question.format(known)).outcome == "answered"
    assert program(question.format(absent)).outcome == "abstain"


NAMES = ["Bergen", "the Kestrel", "Karl Dietz", "the New Quay branch"]
OTHERS = ["Oslo", "the Merlin", "Anna Holm", "the Old Town branch"]


@pytest.mark.parametrize(("asked", "other"), zip(NAMES, OTHERS, strict=True))
def test_what_is_said_of_another_name_is_refused_whatever_stands_around_the_names(tmp_path, asked, other):
    text = f"The insurer of {other} is Ingrid Voss. {asked[0].upper()}{asked[1:]} was repaired in 2019."
    program = open_documents(tmp_path, {"page.md": f"# Page\n\n{text}\n"}, ABOUT)
    assert program(f"Who is the insurer of {other}?").outcome == "answered"
    assert program(f"Who is the insurer of {asked}?").outcome == "abstain"


POLARITY = [
    ("Breakfast is included on weekdays.", "When is breakfast not included?", "When is breakfast included?"),
    ("Dogs are allowed in the garden.", "Where are dogs not allowed?", "Where are dogs allowed?"),
    ("Parcels are taken with a label.", "Which parcels aren't taken?", "Which parcels are taken?"),
]


@pytest.mark.parametrize(("text", "negated", "plain"), POLARITY)
def test_a_negated_question_does_not_get_the_sentence_that_says_the_opposite(tmp_path, text, negated, plain):
    program = open_documents(tmp_path, {"page.md": f"# Page\n\n{text}\n"}, ABOUT)
    assert program(plain).outcome == "answered" and program(negated).outcome == "abstain"


@pytest.mark.parametrize("question", ["What can't I do?", "What is it not?"])
def test_a_negated_question_without_a_word_of_the_pieces_speaks_against_none(question):
    assert count_strange(question, (Subject("Page", "Dogs are allowed."), Subject("Page", "A fee is due."))) == (0, 0)


BIN = {"bin.md": "# Bins\n\n## What may go in the bin\n\nPaper and card.\n\n## What may not go in the bin\n\nGlass.\n"}


@pytest.mark.parametrize(("word", "right", "other"), [("may", "Paper", "Glass"), ("may not", "Glass", "Paper")])
def test_a_heading_that_says_not_answers_a_question_that_does(tmp_path, word, right, other):
    text = open_documents(tmp_path, BIN, ABOUT)(f"What {word} go in the bin?").text
    assert text.startswith(right) and other not in text


NARROWER = {
    "x2.md": "# X200\n\n## Reset\n\nHold the blue button for 8 seconds.",
    "x2p.md": "# X200 Pro\n\n## Reset\n\nHold the red button for 5 seconds.",
    "stock.csv": "Item,In stock,Min. stock\nA-17,0,100\nB-20,45,40\n",
    "lenses.csv": "Lens,Index,Single vision,Bifocal\nThin,1.6,75,120\nUltra thin,1.74,160,\n",
}
NARROWER_ASKED = [
    ("How do I reset the X200?", "8 seconds", "5 seconds"),
    ("How do I reset the X200 Pro?", "5 seconds", "8 seconds"),
    ("How many A-17 are in stock?", "In stock: 0", "100"),
    ("What do thin single vision lenses cost?", "Thin, Single vision: 75", "160"),
    ("What do ultra thin single vision lenses cost?", "160", "75"),
]


@pytest.mark.parametrize(("question", "right", "other"), NARROWER_ASKED)
def test_of_a_name_and_one_that_says_more_the_one_that_is_asked_for_is_told(tmp_path, question, right, other):
    answer = open_documents(tmp_path, NARROWER, ABOUT)(question)
    assert answer.outcome == "answered" and right in answer.text and other not in answer.text


def test_an_empty_cell_that_is_asked_for_is_answered_with_no_other_of_its_row_or_column(tmp_path):
    program = open_documents(tmp_path, NARROWER, ABOUT)
    assert program("What do bifocal lenses in ultra thin cost?").outcome == "abstain"
    assert "Bifocal: 120" in program("What do bifocal lenses in thin cost?").text


names = st.lists(st.sampled_from(["Oslo", "Bergen", "12", "B7", "red", "Ash"]), min_size=2, max_size=2, unique=True)


@given(names, st.sampled_from(["office", "hall", "kit"]), st.booleans())
def test_another_name_in_the_place_of_the_one_asked_for_speaks_against_a_piece(pair, noun, behind):
    one, other = (f"{noun} {name}" if behind else f"{name} {noun}" for name in pair)
    texts = f"The {one} costs 3 euros.", f"The {other} costs 4 euros.", f"The {one} has a stove."
    counts = count_strange(f"What does the {one} cost?", tuple(Subject("Page", text) for text in texts))
    same = pair[0][:1].isdigit() == pair[1][:1].isdigit()
    assert counts[0] == 0 and (counts[1] >= REPLACED) == same and counts[2] < REPLACED


@given(names, st.sampled_from(["office", "hall", "kit"]), st.booleans())
def test_what_stands_under_a_step_like_the_one_asked_for_is_of_another_thing(pair, noun, behind):
    one, other, more = (f"{noun} {name}" if behind else f"{name} {noun}" for name in (*pair, f"{pair[0]} prices"))
    pieces = tuple(Subject(f"Page > {step}", "It costs 3 euros.") for step in (one, other, "Arrival", more))
    counts = count_strange(f"What does the {one} cost?", pieces)
    assert counts[0] == 0 and counts[1] >= REPLACED > counts[2]
    # `X200 Pro` is of another thing than `X200`; `Garden prices` may be of the garden.
    assert (counts[3] >= REPLACED) == (behind and any(map(str.isdigit, pair[0])))


columns = st.lists(st.sampled_from(["Dog", "Cat", "Rabbit", "Horse"]), min_size=2, unique=True)


@given(columns, st.data())
def test_a_row_is_of_its_table_whichever_of_its_cells_are_empty(headers, data):
    full = (("Service", "Scale"), *((header, str(n)) for n, header in enumerate(headers)))
    gone = data.draw(st.sampled_from(headers))
    lacking = (("Service", "Scale and polish"), *(cell for cell in full[1:] if cell[0] != gone))
    every = [
        Subject(f"Fees\n{row[0][1]}", f"{h}: {v}", h, row[0][1], row=row) for row in (full, lacking) for h, v in row[1:]
    ]
    rows = name_rows("How much is a scale?", (one.row for one in every))
    assert rows[full].named and rows[lacking].named is False
    counts = count_strange(f"How much is a scale and polish for a {gone.lower()}?", tuple(every))
    assert min(counts[len(headers) :]) >= BESIDE


headers = st.lists(st.sampled_from(["Small", "Large", "Loan"]), max_size=2, unique=True)


@given(st.lists(headers, min_size=1, max_size=5), st.randoms())
def test_the_table_of_a_row_does_not_hang_on_the_order_of_the_rows(tables, rng):
    rows = [(("Item", f"{n}"), *((header, "x") for header in of)) for n, of in enumerate(tables)]
    assert find_widest(tuple(rows)) == find_widest(tuple(rng.sample(rows, len(rows))))


@given(st.permutations([2, 4, 7, 9]), st.integers(0, 2))
def test_beside_a_column_that_is_named_in_full_another_is_of_another_thing(sizes, at):
    headers = [f"{a} to {b} m" for a, b in pairwise(sizes)]
    row = (("Service", "Wash"), *((header, f"£{n}") for n, header in enumerate(headers)))
    cells = tuple(
        Subject("Prices\nService: Wash", f"{header}: £{n}", header, "Wash", row=row) for n, header in enumerate(headers)
    )
    counts = count_strange(f"How much is a wash for {headers[at]}?", cells)
    assert all((count >= BESIDE) == (n != at) for n, count in enumerate(counts))
    other = Subject("Prices\nService: Wash", "Note: by hand", "Note", "Wash", row=row)
    assert count_strange(f"How much is a wash for {headers[at]}?", (*cells, other))[-1] >= BESIDE


UNKNOWN = [("What does the K40 weigh?", "K40"), ("How do I reset the lathe k99?", "k99")]


@pytest.mark.parametrize(("question", "code"), UNKNOWN)
def test_a_code_that_stands_nowhere_is_named_and_what_is_there_is_told_with_its_name(tmp_path, question, code):
    answer = open_documents(tmp_path, MANUALS, ABOUT)(question)
    assert answer.outcome == "abstain" and f"could not find “{code}”" in answer.text
    assert any(f"Lathe {known}: " in answer.nearest for known in ("K10", "K20", "K30"))


@given(st.lists(st.sampled_from(["Month", "Year", "Week", "Seats"]), min_size=2, max_size=4, unique=True), st.data())
def test_of_a_row_the_cell_whose_column_is_named_has_fewest_strange_words(headers, data):
    named = data.draw(st.sampled_from(headers))
    cells = tuple(Subject("Plans\nPlan: Junior", f"Plan: Junior; {name}: {n}", name) for n, name in enumerate(headers))
    counts = count_strange(f"What is the {named.lower()} of the junior plan?", cells)
    assert (
        min(counts) == counts[headers.index(named)] < min(c for n, c in enumerate(counts) if n != headers.index(named))
    )


words = st.lists(st.sampled_from("red blue pump valve K10 K20 hours cost".split()), max_size=4).map(" ".join)
subjects = st.lists(st.builds(Subject, words, words), min_size=1, max_size=5)


@given(words, subjects, st.randoms())
def test_a_piece_has_no_strange_word_that_is_its_own_and_the_order_does_not_matter(question, pieces, rng):
    counts = count_strange(question, tuple(pieces))
    asked = {*question.lower().split()}
    for piece, count in zip(pieces, counts, strict=True):
        lacking = asked - {*f"{piece.name} {piece.text}".lower().split()}
        assert 0 <= count <= len(lacking) + REPLACED * bool(lacking)
        assert not names_other(question, piece, piece)
    order = rng.sample(range(len(pieces)), len(pieces))
    assert count_strange(question, tuple(pieces[at] for at in order)) == tuple(counts[at] for at in order)


FAQ = {
    "faq.html": "<h1>Questions</h1><h2>How can I pay?</h2><ul><li>cash</li><li>card</li></ul><h2>Is there a lift?</h2>"
    "<p>No. The dome is reached by 64 steps.</p><h2>What if it rains?</h2><p>There is a talk. The ticket stays valid.</p>"
    "<h2>Do you take back pots?</h2><p>Clay pots only. Plastic pots are not taken back.</p>"
}
FAQ_ASKED = [
    ("How can I pay?", "cash; card"),
    ("How do I pay?", "cash; card"),
    ("Is there a lift?", "No [1]. The dome is reached by 64 steps"),
    ("Do you take back pots?", "Clay pots only [1]. Plastic pots are not taken back"),
    ("What if it rains?", "There is a talk [1]. The ticket stays valid"),
]


@pytest.mark.parametrize(("question", "told"), FAQ_ASKED)
def test_what_stands_under_the_question_that_is_asked_is_told_in_its_order(tmp_path, question, told):
    assert open_documents(tmp_path, FAQ, ABOUT)(question).text == f"{told} [1]."


COURSE = {"course.md": "# Course\n\nHow much does it cost?\n\nIt costs 90 euros. The course lasts six weeks.\n"}


def test_another_question_above_an_answer_is_not_shown_before_it(tmp_path):
    text = open_documents(tmp_path, COURSE, ABOUT)("How long does the course last?").text
    assert "six weeks" in text and "How much" not in text


FIRST_AID = (
    "# Visit\n\nPlease come early and bring:\n\n- a list of your medicines\n- the name of your doctor\n- your X-rays\n"
)


@pytest.mark.parametrize(
    ("question", "whole"), [("What should I bring when I come?", True), ("Must I bring my X-rays?", False)]
)
def test_a_list_is_told_whole_where_its_other_items_are_near_the_best_together(tmp_path, question, whole):
    text = open_documents(tmp_path, {"visit.md": FIRST_AID}, ABOUT)(question).text
    assert "X-rays" in text and ("doctor" in text and "medicines" in text) == whole


COMMITTEE = (
    "Name,Post,Telephone\nAnn Reed,Chair,5512\nBob Hale,Groups and school classes,5518\nCara Moss,Treasurer,5500\n"
)


def test_several_words_of_a_cell_that_no_other_row_has_name_its_row(tmp_path):
    program = open_documents(tmp_path, {"people.csv": COMMITTEE}, ABOUT)
    text = program("Whose telephone do I ring about a school class?").text
    assert "5518" in text and "5512" not in text and "5500" not in text


keys = st.lists(st.sampled_from(["Monday", "Friday", "Home Plus", "Pro"]), min_size=2, max_size=4, unique=True)


@given(keys, st.sampled_from(["Morning", "Price"]))
def test_a_cell_beside_the_row_that_is_asked_for_has_more_against_it_than_any_cell_of_that_row(rows, header):
    cells = [
        Subject(f"Hours\nRow: {row}", f"Row: {row}; {name}: {n}", name, row)
        for row in rows
        for n, name in enumerate((header, "Note"))
    ]
    counts = count_strange(f"What is the {header.lower()} of {rows[0]}?", tuple(cells))
    assert counts[0] == min(counts) and max(counts[:2]) < min(counts[2:])


@given(st.lists(st.sampled_from(["molar", "front tooth", "wisdom tooth"]), min_size=1, unique=True))
def test_the_key_of_another_table_that_is_asked_for_speaks_against_no_cell_of_this_one(kinds):
    texts = [f"Treatment: Root canal, {kind}; Fee: £{640 + n}" for n, kind in enumerate(kinds)]
    cells = [find_subject("Fees", piece) for text in texts for piece in split_pieces(text)]
    (other,) = (find_subject("Care", piece) for piece in split_pieces("After: Root canal; Relief: ibuprofen"))
    question = "How much is a root canal?"
    assert count_strange(question, (*cells, other))[:-1] == count_strange(question, tuple(cells))
