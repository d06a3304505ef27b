"""What is in force on the day that a question is about: the day of asking, or the year that it names."""

from calendar import day_name, month_name
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragc.loop.evidence import ALIKE, drop_superseded, measure_dispute
from ragc.loop.subjects import count_strange, find_subject
from ragc.passage import Passage
from ragc.text.days import (
    completes_time,
    date_question,
    find_asked_stems,
    is_day_first,
    list_dates,
    list_days,
    misses_day,
    order_periods,
)
from ragc.text.pieces import split_pieces
from tests.support.documents import open_documents

ABOUT = "what things cost and when they are"
FARE = "# Fares\n\nA single ticket of the ferry costs {} euros.\n"
REPLACED = {
    "a.md": f"---\nas_of: 2025-01-01\n---\n{FARE.format('3.20')}",
    "b.md": f"---\nas_of: 2027-01-01\nsupersedes: docs/a.md\n---\n{FARE.format('3.80')}",
}
NAMED = {
    "fares-2024.md": FARE.format("2.90"),
    "2026/fares.md": FARE.format("3.40"),
    "fares-2027.md": FARE.format("3.80"),
}
TODAY, LATER = date(2026, 11, 28), date(2027, 3, 1)
COST = "What does a single ticket of the ferry cost?"
ASKED = [
    (REPLACED, COST, TODAY, "3.20", "3.80 euros [2] (from 1 January 2027)"),
    (REPLACED, COST, LATER, "3.80", None),
    (REPLACED, "What did a single ticket of the ferry cost in 2025?", TODAY, "3.20", None),
    (REPLACED, "What will a single ticket of the ferry cost in 2027?", TODAY, "3.80", None),
    (NAMED, COST, TODAY, "3.40", "3.80 euros [3] (from 1 January 2027)"),
    (NAMED, COST, date(2025, 5, 1), "2.90", "(from 1 January 2026"),
    (NAMED, "What did a single ticket of the ferry cost in 2024?", TODAY, "2.90", None),
]


@pytest.mark.parametrize(("files", "question", "today", "first", "then"), ASKED)
def test_what_is_in_force_comes_first_and_what_begins_later_behind_it_with_its_day(
    tmp_path, files, question, today, first, then
):
    text = open_documents(tmp_path, files, ABOUT)(question, today=today).text
    told = [value for value in sorted(("2.90", "3.20", "3.40", "3.80"), key=text.find) if value in text]
    assert told[0] == first, text
    assert (then in text) if then else (len(told) == 1), text


days = st.dates(date(2020, 1, 1), date(2030, 12, 31))


@given(st.lists(days, min_size=1, max_size=5, unique=True).map(sorted), days)
def test_of_a_chain_of_documents_that_replace_each_other_the_one_in_force_and_what_begins_later_stay(since, today):
    paths = [f"docs/{n}.md" for n in range(len(since))]
    pool = [
        Passage(f"{path}#x", "docs", "t", "x", as_of=day, superseded_by=after)
        for path, day, after in zip(paths, since, [*paths[1:], ""], strict=True)
    ]
    stays = [passage.as_of for passage in drop_superseded(pool, (), today)]
    begun = [day for day in since if day <= today]
    assert stays == [*begun[-1:], *(day for day in since if day > today)]


PLANS = {
    "plans.csv": "Plan,Price,Valid from,Valid to\nHome,GBP 20,2025-01-01,2025-12-31\nHome,GBP 24,2026-01-01,\n"
    "Home,GBP 27,2027-01-01,\nOffice,GBP 40,2026-01-01,\n"
}
YEARS = (2024, 2025, 2026)


def test_of_rows_with_their_days_those_in_force_speak(tmp_path):
    text = open_documents(tmp_path, PLANS, ABOUT)("What does the Home plan cost?", today=TODAY).text
    assert text == "Home, Price: GBP 24 [1]. Home, Price: GBP 27 [2] (from 1 January 2027)."


spellings = st.sampled_from(
    [("2", "two"), ("3", "three"), ("14", "fourteen"), ("25", "twenty-five"), ("1,200", "1200")]
)


@given(spellings, spellings, st.booleans(), st.booleans())
def test_two_statements_dispute_where_their_numbers_differ_however_they_are_spelt(one, other, first, second):
    text = "A tenant gives {} months' notice in writing."
    disputed = measure_dispute(text.format(one[first]), text.format(other[second])) >= ALIKE
    assert disputed == (one != other)


@pytest.mark.parametrize("fees", [(10, 12, 15), (15, 12, 10), (12, 15, 10)])
def test_several_sources_that_say_otherwise_are_named_once_whichever_is_read_first(tmp_path, fees):
    files = {f"{year}.md": f"# Fee\n\nThe joining fee is {fee} euros." for year, fee in zip(YEARS, fees, strict=True)}
    text = open_documents(tmp_path, files, ABOUT)("What is the joining fee?", today=TODAY).text
    assert text.endswith(f"{fees[-1]} euros [1] (from 1 January 2026; another source says otherwise [2] [3]).")


SHOP = {
    "hours.md": "# Opening hours\n\n| day | open |\n|---|---|\n| Monday | closed |\n| Tuesday to Friday | 9 to 17 |\n"
    "| Saturday | 10 to 16 |\n| Sunday | 11 to 15 |\n",
    "courses.csv": "course,date,price,places\nSourdough for beginners,2026-12-05,GBP 45,6\nRye and spelt,2026-12-12,GBP 48,3\n"
    "Croissants,2027-01-09,GBP 62,8\n",
    "office.txt": "OFFICE\n\nApril to September   07:10 to 19:30\nOctober to March     08:40 to 16:20\n",
    "tides.csv": "date,high water\n03/12/2026,02:25\n04/12/2026,03:28\n05/12/2026,04:41\n",
    "markets.csv": "market,held on,stall\nWickham,Sat 5 Dec,A4\nOlney,Sun 6 Dec,C2\nStamford,Fri 11 Dec,B9\n",
}
SUNDAY, TUESDAY = date(2026, 11, 29), date(2026, 12, 1)
DAYS_ASKED = [
    ("Are you open today?", SUNDAY, "11 to 15"),
    ("When are you open today?", TUESDAY, "9 to 17"),
    ("Are you open tomorrow?", SUNDAY, "closed"),
    ("When do you open next Saturday?", TUESDAY, "10 to 16"),
    ("Which course is on 12 December?", SUNDAY, "Rye and spelt"),
    ("Which course is this Saturday?", SUNDAY, "Sourdough for beginners"),
    ("What does the course next Saturday cost?", SUNDAY, "GBP 45"),
    ("How much is the course on December 5th?", SUNDAY, "GBP 45"),
    ("Which market is held on 6 December?", SUNDAY, "Olney"),
    ("When is the office open in November?", SUNDAY, "08:40 to 16:20"),
    ("When is the office open in May?", SUNDAY, "07:10 to 19:30"),
    ("When is high water on 4 December?", SUNDAY, "03:28"),
]


@pytest.mark.parametrize(("question", "today", "answer"), DAYS_ASKED)
def test_a_question_names_the_row_of_a_day_by_the_day_of_asking(tmp_path, question, today, answer):
    told = open_documents(tmp_path, SHOP, ABOUT)(question, today=today)
    others = {
        "11 to 15",
        "9 to 17",
        "closed",
        "10 to 16",
        "GBP 45",
        "GBP 48",
        "GBP 62",
        "A4",
        "B9",
        "08:40",
        "07:10",
        "02:25",
        "03:28",
        "04:41",
    } - {answer, answer[:5]}
    assert answer in told.text and not any(other in told.text for other in others), told.text


GROUPS = {
    "groups.csv": "Group,Day,Time,Room,Weeks\nPilates,Monday,18:30 - 19:30,Hall,12\nToddlers,Tuesday,9:30 - 11:30,Garden,10\n"
    "Choir,Wednesday,19:45 - 21:30,Hall,12\nTable tennis,Thursday,19:00 - 21:30,Hall,8\n",
    "clubs.json": '{"clubs": [{"code": "C1", "club": "Chess", "day": "Friday", "time": "18:00-19:30", "fee": "8 euros"},'
    ' {"code": "C2", "club": "Go", "day": "Monday", "time": "17:00-18:30", "fee": "9 euros"}]}',
}


@pytest.mark.parametrize(
    ("question", "day", "time"),
    [
        ("When does the choir meet?", "Wednesday", "19:45"),
        ("When is the table tennis?", "Thursday", "19:00"),
        ("When is the chess club?", "Friday", "18:00"),
    ],
)
def test_the_day_and_the_time_of_a_row_are_told_together(tmp_path, question, day, time):
    told = open_documents(tmp_path, GROUPS, ABOUT)(question)
    assert told.outcome == "answered" and day in told.text and time in told.text
    assert not any(other in told.text for other in {"Monday", "Tuesday", "Wednesday", "Thursday"} - {day})


BREAD = {
    "bread.md": "# Bread of the day\n\nOn Tuesdays there is seeded rye, on Wednesdays olive bread. From Thursday to Saturday you can buy"
    " brioche until it is sold out.\n",
}


@pytest.mark.parametrize(
    ("day", "bread", "other"),
    [("Wednesday", "olive", "brioche"), ("Friday", "brioche", "olive"), ("Monday", "", "olive")],
)
def test_a_sentence_of_other_weekdays_is_not_told_of_the_one_that_is_asked_for(tmp_path, day, bread, other):
    told = open_documents(tmp_path, BREAD | SHOP, ABOUT)(f"Which bread is there on {day}?")
    answer = told.text if told.outcome == "answered" else ""
    assert other not in answer and (not answer or bread in answer), told.text


def test_what_was_in_force_last_year_is_told_of_last_year(tmp_path):
    asked = "What did a single ticket of the ferry cost last year?"
    assert "3.20" in open_documents(tmp_path, REPLACED, ABOUT)(asked, today=date(2026, 11, 28)).text


@pytest.mark.parametrize(
    ("words", "days"), [("today", 0), ("tomorrow", 1), ("yesterday", -1), ("the day after tomorrow", 2), ("tonight", 0)]
)
@given(days)
def test_words_that_name_a_day_mean_it_on_every_day_of_asking(words, days, today):
    meant = today + timedelta(days)
    dated = date_question(f"Are you open {words}?", today)
    assert dated.text == f"Are you open on {meant:%A}?"
    assert f"({meant:%A} {meant.day} {meant:%B %Y})" in dated.explained


calendars = st.sampled_from([[*day_name], [*month_name][1:]])


@given(
    calendars,
    st.integers(0, 11),
    st.integers(0, 11),
    st.sampled_from([" to ", "-", " – ", " until ", ".-"]),
    st.booleans(),
)
def test_a_cell_of_two_days_or_months_names_each_from_one_to_the_other(calendar, first, last, between, short):
    form = (lambda name: name[:3]) if short else str
    count = len(calendar)
    first, last = first % count, last % count
    cell = f"{form(calendar[first])}{between}{form(calendar[last])}"
    named = {n % count for n in range(first, first + (last - first) % count + 1)}
    assert list_days(cell) == frozenset().union(*(list_days(calendar[n]) for n in named))


@given(st.sampled_from([*day_name]), st.sampled_from(["{}", "{}s"]), st.booleans())
def test_a_part_of_the_week_names_its_days_in_a_cell_and_in_a_question(day, form, capital):
    part, other = ("weekend", "weekday")[:: 1 if day in day_name[5:] else -1]
    cell, beside = ((form.format(one).capitalize() if capital else form.format(one)) for one in (part, other))
    assert list_days(day) <= list_days(cell) and not list_days(day) & list_days(beside)
    assert list_days(day) <= find_asked_stems(f"Are you open at {part}s?")
    assert misses_day(f"Are you open on {day}?", [beside]) and not misses_day(f"Open on {day}?", [beside, cell])


@given(st.sampled_from(["Weekday", "Weekend"]), st.sampled_from([*day_name]))
def test_a_header_above_days_is_no_day(header, day):
    def weigh(name):
        row = f"Course: Go; {name}: {day}; Starts: 18:00\nCourse: Chess; {name}: Friday; Starts: 19:00"
        subjects = tuple(find_subject("Courses", piece) for piece in split_pieces(row))
        return count_strange(f"When does the {day} course start?", subjects)

    assert weigh(header) == weigh("Held")


clocks = st.tuples(st.integers(0, 23), st.integers(0, 59), st.sampled_from(["{:02}:{:02}", "{0}:{1:02} - 23:59"]))


@given(st.sampled_from(["{:%A}", "First {:%A}", "{:%-d %B %Y}", "{:%Y-%m-%d}"]), days, clocks, st.integers(0, 99))
def test_a_day_and_a_time_say_together_when_something_is(form, day, clock, number):
    hour, minute, spelt = clock
    day, time = form.format(day), spelt.format(hour, minute)
    assert completes_time(day, time) and completes_time(time, day)
    assert not any(completes_time(*pair) for pair in ((day, day), (time, time), (f"{day} {time}", time), (day, "3 km")))
    assert not completes_time(time, f"{number} places")


@given(days, st.sampled_from(["{:%-d %B %Y}", "{:%B %-d, %Y}", "{:%-d}th {:%b} {:%Y}", "{:%Y-%m-%d}"]))
def test_the_day_that_a_sentence_names_with_its_year_is_found_however_it_is_written(day, form):
    written = form.format(*[day] * 3)
    assert list_dates(f"From {written} the fare is 3.60 euros.") == {day}
    assert not list_dates(f"From {day:%-d %B} the fare is {day:%Y} cents.")


FARES = "# Fare\n\nUntil 31 October 2026 {0} 3.20 euros. From 1 November 2026 {0} 3.60 euros. From 1 March 2027 {0} 3.80 euros.\n"
IN_FORCE = [
    ("What is the fare today?", TODAY, "3.60", "3.20"),
    ("What is the fare?", TODAY, "3.60", "3.20"),
    ("What is the fare?", date(2026, 8, 1), "3.20", None),
    ("What is the fare now?", LATER, "3.80", "3.60"),
    ("What was the fare in September 2026?", TODAY, "3.20", None),
]


@pytest.mark.parametrize(("question", "today", "right", "other"), IN_FORCE)
def test_of_sentences_of_other_days_what_is_in_force_is_told_and_what_ended_is_not(
    tmp_path, question, today, right, other
):
    program = open_documents(tmp_path, {"fare.md": FARES.format("the fare is")}, ABOUT)
    answer = program(question, today=today)
    assert answer.outcome == "answered" and right in answer.text and (not other or other not in answer.text)


@given(days, st.lists(st.integers(2, 300), min_size=1, max_size=4), st.booleans(), st.integers(0, 1300), st.randoms())
def test_of_periods_one_after_another_the_one_of_the_day_comes_first_and_then_those_that_begin_later(
    start, lengths, ranges, after, rng
):
    begin = [start + timedelta(sum(lengths[:n])) for n in range(len(lengths) + 1)]
    last = [day - timedelta(1) for day in begin[1:]]
    periods = [[a, b] for a, b in zip(begin, last, strict=False)] if ranges else [[last[0]], *([a] for a in begin[1:])]
    order = rng.sample(range(len(periods)), len(periods))
    day = start + timedelta(after)
    found = [order[at] for at in order_periods([periods[at] for at in order], day)]
    inside = [n for n in range(len(periods)) if day >= begin[n] and (day < begin[n + 1] if n < len(lengths) else True)]
    assert found == ([*inside, *range(inside[0] + 1, len(periods))] if inside else [])


@given(days, days, st.sampled_from(["{:%-d %B}", "{:%B %-d}", "{:%-d}th of {:%b}"]))
def test_a_day_of_a_month_that_no_cell_of_days_has_is_missed(day, other, form):
    question = f"Which film is on {form.format(*[day] * 2)}?"
    assert misses_day(question, [f"{other}"]) == ((day.day, day.month) != (other.day, other.month))
    assert not misses_day(question, [f"{other}", f"{day}"]) and not misses_day(question, [f"{other}", "on request"])


@given(days, st.integers(3, 40), st.sampled_from("./"))
def test_a_column_of_dates_in_figures_tells_whether_they_begin_with_the_day(start, count, sign):
    written = [start.replace(month=2, day=1) + timedelta(n) for n in range(count)]
    for first, form in ((True, f"%d{sign}%m{sign}%Y"), (False, f"%m{sign}%d{sign}%Y")):
        cells = tuple(f"{day:{form}}" for day in written)
        assert is_day_first(cells) is first
        if first or sign == "/":
            assert all(list_days(a, first) == list_days(f"{b}") for a, b in zip(cells, written, strict=True))
    assert is_day_first(("03/04/2026",)) is None and not list_days("03/04/2026")


@pytest.mark.parametrize(
    ("question", "is_month"), [("May I come?", False), ("When may I come?", False), ("Are you open in May?", True)]
)
def test_may_is_a_month_only_where_it_is_written_so(question, is_month):
    assert (list_days("May") <= find_asked_stems(question)) == is_month


@pytest.mark.parametrize(
    "cell", ["5 pages", "sun shade", "closed on Monday", "31 February", "May 2026", "2 May 3 June", "", "-"]
)
def test_a_cell_that_says_more_than_a_day_names_none(cell):
    assert not list_days(cell)
