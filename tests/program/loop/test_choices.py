"""A choice that a question leaves open is asked back with the choices; one that it names, or that is none, is not."""

from datetime import date

import pytest

from ragc.answer import Outcome
from ragc.text.history import Turn, answers_back, join_questions
from tests.support.documents import open_documents

ABOUT = "what we offer and what it costs"
PERMITS = {"permits.csv": "Permit,Price\nMonthly,GBP 4.50\nYearly,GBP 45\n"}
BIKES = {
    "bikes.md": "# Bike hire\n\n## Adult bikes\n\nThe hire costs 15 euros a day.\n\n"
    "## Children's bikes\n\nThe hire costs 8 euros a day.\n\n## Cargo bikes\n\nThe hire costs 30 euros a day.\n"
}
GEAR = {
    "gear.md": "# Hire of gear\n\n| Item | Deposit |\n|---|---|\n| Belay device Hollin | 20 euros |\n"
    "| Belay device Clutch | 60 euros |\n| Helmet | 10 euros |\n"
}
PUMPS = {
    "old.md": "---\nas_of: 2024-05-01\n---\n# Fees 2024\n\nThe late fee is 4 euros.",
    "new.md": "---\nas_of: 2026-05-01\n---\n# Fees 2026\n\nThe late fee is 5 euros.",
}
OPEN = [
    (PERMITS, "How much is the permit?", {"Monthly": "GBP 4.50", "Yearly": "GBP 45"}),
    (
        BIKES,
        "What does the hire cost?",
        {"Adult bikes": "15 euros", "Children's bikes": "8 euros", "Cargo bikes": "30"},
    ),
    (GEAR, "What is the deposit for a belay device?", {"Belay device Hollin": "20", "Belay device Clutch": "60"}),
]
POST = {
    "post.md": "# Postage\n\n| Weight | Standard | Express |\n|---|---|---|\n| up to 250 g | £2.20 | £5.90 |\n"
    "| 250 g to 2 kg | £3.95 | £7.50 |\n| 2 to 20 kg | £8.40 | £13.90 |\n\nOrders over £45 are sent free.\n"
}
OPEN += [
    (POST, "How much is the postage?", {"up to 250 g": "Express £5.90", "250 g to 2 kg": "£3.95", "2 to 20 kg": "£8"}),
    (POST, "How much is express postage?", {"up to 250 g": "£5.90", "250 g to 2 kg": "£7.50", "2 to 20 kg": "£13.90"}),
]
PERIODS = {"periods.csv": "Plan,Price,From\nHome,GBP 4.50,2026\nHome,GBP 3.90,2024\nPro,GBP 16,2026\nPro,GBP 12,2024\n"}
SCALES = {"scales.csv": "Plan,Month,Year\nPro,19,190\nPro,16,160\nHome,4,40\nHome,3,30\n"}
DEVICES = {
    "a.md": "# Porter and Porter Duo\n\n| Value | Porter | Porter Duo |\n|---|---|---|\n| Power draw | 6 W | 9 W |\n"
    "| Weight | 410 g | 520 g |\n"
}
SHOP = {
    "shop.md": "# Shop and show\n\n## The shop\n\n| Article | Pack | Price | Limit |\n|---|---|---|---|\n"
    "| Chicken manure pellets | 20 kg | £9.40 | none |\n| Multi-purpose compost | 50 litres | £5.80 | 6 |\n"
    "| Seed potatoes | 2.5 kg | £4.25 | none |\n"
}
CLEANING = {
    "p.csv": "item,price,express price\nSuit three-piece,£19.00,£25.50\nCoat long,£18.50,£24.50\nTie,£4.00,£6.00\n"
}
TICKETS = {"t.csv": "Ticket,Peak,Off-peak\nAdult,GBP 13.50,GBP 10.00\nStudent,GBP 11.00,GBP 8.50\n"}
TERMS = {"h.md": "# Hall hire\n\n| Period | Price |\n|---|---|\n| In term | 40 euros |\n| Out of term | 65 euros |\n"}
OPEN += [
    (TICKETS, "What does a student ticket cost?", {"Peak": "GBP 11.00", "Off-peak": "GBP 8.50"}),
    (TERMS, "What does the hall cost?", {"In term": "40 euros", "Out of term": "65 euros"}),
]
CLUB = {
    "t.html": "<h1>Opening times</h1><table><tr><th>Day<th>Wall<th>Café<tr><td>Monday<td>10:00 - 22:00<td>11:00 - 20:00"
    "<tr><td>Saturday<td>09:00 - 20:00<td>09:30 - 18:00<tr><td>Sunday<td>09:00 - 19:00<td>09:30 - 17:00</table>",
    "c.csv": "Course,Day,Starts,Length,Price,Minimum age\nTaster session,Saturday,11:00,1 hour,GBP 22,7\n"
    "Learn to belay,Tuesday,18:30,2 hours,GBP 35,14\nKids club,Saturday,10:00,90 minutes,GBP 12,6\n",
}
STALLS = {
    "hours.txt": "Where and when\n\nShop, 12 Bridge Street\nTuesday    7.00am - 4.00pm\nSaturday   7.00am - 1.30pm\n\n"
    "Market stall, Town Square\nThursday   8.30am - 2.00pm\nSaturday   8.30am - 3.00pm\n"
}
CLOSED = [
    (STALLS, "When is the market stall open on Saturday?", "8.30am - 3.00pm"),  # a heading of labels names them
    (STALLS, "When is the shop open on Saturday?", "7.00am - 1.30pm"),
    (TICKETS, "What does a student ticket cost off-peak?", "GBP 8.50"),  # function words tell columns, and rows, apart
    (TICKETS, "What does a student ticket cost at peak time?", "GBP 11.00"),
    (TERMS, "What does the hall cost out of term?", "65 euros"),
    (TERMS, "What does the hall cost in term?", "40 euros"),
    (CLEANING, "What does a three-piece suit cost?", "£19.00"),  # the plain column, unless another is named
    (CLEANING, "What does a three-piece suit cost express?", "£25.50"),
    (POST, "How much is express postage for 500 g?", "£7.50"),
    (DEVICES, "What is the power draw of the Porter Duo?", "9 W"),
    (PERMITS, "How much is the yearly permit?", "GBP 45"),
    (BIKES, "What does it cost to hire a cargo bike?", "30 euros"),
    (GEAR, "What is the deposit for a helmet?", "10 euros"),
    (PUMPS, "How much is the late fee?", "5 euros"),  # of two days the newer speaks
    (PERIODS, "What is the price of the plan Home?", "GBP 4.50"),  # a value names no choice ...
    (SCALES, "What does the plan Pro cost a year?", "190"),  # ... nor does a bare number
    (
        SHOP,
        "how much are the chicken pellets in the shop",
        "£9.40",
    ),  # what is measured otherwise is no choice beside it
]


@pytest.mark.parametrize(("files", "question", "choices"), OPEN)
def test_what_is_left_open_is_asked_back_with_what_is_said_of_each(tmp_path, files, question, choices):
    program = open_documents(tmp_path, files, ABOUT)
    back = program(question)
    assert back.outcome is Outcome.CLARIFY and {*back.options} == {*choices} and back.citations
    for name, value in choices.items():
        assert f"{name}: " in back.text and value in back.text.partition(f"{name}: ")[2]
    name = next(iter(choices))
    history = [Turn(role="user", content=question), Turn(role="assistant", content=back.text)]
    assert answers_back(history, name) and join_questions(history, name) == f"{name}: {question}"
    answer = program(name, history=history)
    assert answer.outcome is not Outcome.CLARIFY  # nobody is asked back twice in a row


@pytest.mark.parametrize("question", ["When does the café close on Saturday?", "When are you open on Saturday?"])
def test_no_choice_is_given_of_what_lacks_a_thing_that_the_question_names_and_another_has(tmp_path, question):
    answer = open_documents(tmp_path, CLUB, ABOUT)(question)
    assert answer.outcome is not Outcome.CLARIFY and "Saturday, " in answer.text + answer.nearest


@pytest.mark.parametrize(("files", "question", "value"), CLOSED)
def test_what_is_named_is_answered(tmp_path, files, question, value):
    answer = open_documents(tmp_path, files, ABOUT)(question)
    assert answer.outcome is Outcome.ANSWERED and value in answer.text


DISHES = {"dishes.csv": "Dish,Milk,Nuts\nTomato soup,yes,no\nLasagne,yes,no\nCurry,no,yes\nNut roast,no,yes\n"}
COLUMNS = [
    ("Which dish contains nuts?", ["Curry, Nuts: yes", "Nut roast, Nuts: yes"], "Nuts: no"),
    ("Which dishes contain milk?", ["Tomato soup, Milk: yes", "Lasagne, Milk: yes"], "Milk: no"),
    ("Which dishes contain no nuts?", ["Tomato soup, Nuts: no", "Lasagne, Nuts: no"], "Nuts: yes"),
]


CARTS = {
    "carts.csv": "Cart,Stable,Load kg,Brake\n"
    + "".join(
        f"{cart},{('Old', 'New')[n % 2]} stable,{60 + 35 * n},{('yes', 'no')[n % 3 == 1]}\n"
        for n, cart in enumerate(["Dog cart", "Dray", "Tumbril", "Float", "Wain", "Gig", "Landau", "Trap"])
    )
}
SOUGHT = [
    ("Which cart takes the largest load?", [f"Load kg: {60 + 35 * n}" for n in range(8)], ""),
    ("Which carts have no brake?", ["Dray, Brake: no", "Wain, Brake: no", "Trap, Brake: no"], "yes"),
]


@pytest.mark.parametrize(("question", "cells", "other"), SOUGHT)
def test_a_column_by_which_rows_are_sought_is_told_in_all_rows_that_a_search_found(tmp_path, question, cells, other):
    answer = open_documents(tmp_path, CARTS, ABOUT)(question)
    assert answer.outcome is Outcome.ANSWERED and all(cell in answer.text for cell in cells)
    assert len(answer.citations) == len(cells) and (not other or other not in answer.text)


HOURS = "# Week\n\n## Choir\n\nThe choir sings on Tuesdays at 19:00.\n\n## Market\n\nThe market is on Saturdays from 8 to 13.\n"
ROOMS = """<h1>Rooms</h1><table><tr><th>Room<th>Beds<th>Shower<th>Floor<tr><td>Beech<td>8<td>no<td>1<tr><td>Maple<td>4
<td>yes<td>1<tr><td>Linden<td>6<td>no<td>2<tr><td>Oak<td>2<td>yes<td>3</table><h2>Late</h2><p>The desk closes at 22:00."""


def test_of_a_column_of_a_table_on_a_page_the_rows_that_have_what_is_asked_for_are_told(tmp_path):
    text = open_documents(tmp_path, {"rooms.html": ROOMS}, ABOUT)("Which rooms have a shower?").text
    assert "Maple, Shower: yes" in text and "Oak, Shower: yes" in text and "Shower: no" not in text


@pytest.mark.parametrize(("question", "cells", "other"), COLUMNS)
def test_of_a_column_of_yes_and_no_every_row_of_the_one_that_is_asked_for_is_told(tmp_path, question, cells, other):
    program = open_documents(tmp_path, DISHES, ABOUT)
    answer = program(question)
    assert (
        answer.outcome is Outcome.ANSWERED and all(cell in answer.text for cell in cells) and other not in answer.text
    )
    one = program("Does the lasagne contain milk?").text
    assert "Lasagne, Milk: yes" in one and "Curry" not in one


def test_a_question_without_a_word_that_could_name_something_is_asked_back(tmp_path):
    program = open_documents(tmp_path, {"hours.md": HOURS}, ABOUT)
    back = program("When is it?")
    assert back.outcome is Outcome.CLARIFY and {"Choir", "Market"} <= {*back.options}
    assert program("When is the choir?").outcome is Outcome.ANSWERED  # a word is enough
    history = [Turn(role="user", content="Is there a market?"), Turn(role="assistant", content="Yes.")]
    assert "Saturdays" in program("When is it?", history=history).text  # and so is what was spoken of


TICKETS = "# Visiting\n" + "".join(
    f"\n## Tickets {period}\n\n| Visitor | Exhibition |\n|---|---|\n| Adult | {adult} |\n| Child | {child} |\n"
    for period, adult, child in (("until 31 January 2027", "£9", "£4"), ("from 1 February 2027", "£11", "£5"))
)


@pytest.mark.parametrize(("today", "right", "other"), [((2026, 11, 30), "£9", "£11"), ((2027, 3, 1), "£11", "£9")])
def test_of_sections_of_other_days_the_one_in_force_is_told_and_nothing_is_asked_back(tmp_path, today, right, other):
    program = open_documents(tmp_path, {"visiting.md": TICKETS}, ABOUT)
    answer = program("What does an adult pay for the exhibition?", today=date(*today))
    assert answer.outcome is Outcome.ANSWERED and right in answer.text and other not in answer.text
