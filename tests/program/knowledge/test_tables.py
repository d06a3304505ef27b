"""Questions about databases of several subjects get the values that their statements give; the rest is refused."""

import csv
import hashlib
import io
import json
import sqlite3
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from word_embedder import WordEmbedder

from program.errors import KnowledgeError
from program.knowledge import tables
from program.knowledge.sql_gate import check_sql
from program.knowledge.tables import TableSource, show_value
from program.knowledge.testing import SourceConformance
from program.models.embedded.encoder import shared_embedder
from program.models.table_rows import NAMES, RowReader
from program.passage import Filters, SourceCard

CARD = SourceCard("records", "tables", "records of the house")
DATABASES = Path(__file__).parent / "databases"
SUBJECTS = ("clinic", "library", "support", "gallery")
QUESTIONS = [json.loads(line) for line in (DATABASES / "questions.jsonl").read_text().splitlines()]


def opened(place, embedder=None):
    return TableSource(CARD, place, embedder or WordEmbedder())


def made(script, folder):
    """The URL of a SQLite file that a script made."""
    with sqlite3.connect(folder / "records.db") as connection:
        connection.executescript(script)
    return f"sqlite:///{folder / 'records.db'}"


@pytest.fixture(scope="module")
def databases(tmp_path_factory):
    places = {name: DATABASES / name for name in SUBJECTS}
    for name in ("library", "gallery"):
        places[name] = made((DATABASES / f"{name}.sql").read_text(), tmp_path_factory.mktemp(name))
    return {name: opened(place, shared_embedder()) for name, place in places.items()}


@pytest.fixture(scope="module")
def clinic():
    return opened(DATABASES / "clinic")


class TestConformance(SourceConformance):
    @pytest.fixture
    def source(self, databases):
        return databases["library"]

    @pytest.fixture
    def query(self):
        return "How many members live in York?"


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_question_gets_the_values_its_statement_gives_and_one_beyond_the_five_operations_rows_or_nothing(
    databases, name
):
    for asked in (one for one in QUESTIONS if one.get("database") == name):
        found = databases[name].search(asked["question"], 3)
        if "sql" not in asked:
            assert [p.text for p in found if p.method != "rows" or not p.text.startswith("* ")] == []
            continue
        (one,) = found
        assert one.reason.startswith("SELECT ")
        assert all(show_value(value) in one.text for row in databases[name].rows(asked["sql"])[1] for value in row)


def test_a_question_about_something_else_gets_nothing(databases):
    elsewhere = [one["question"] for one in QUESTIONS if "database" not in one]
    assert [q for q in elsewhere for source in databases.values() if source.search(q, 3)] == []


def test_a_result_says_in_words_what_was_computed_shows_rows_and_gives_its_sql(clinic):
    (passage,) = clinic.search("How many visits to Cardiology were referred?", 5)
    assert passage.id == "records/visits"
    assert passage.title == "visits > count where department is Cardiology and outcome is referred"
    first, row = passage.text.splitlines()
    assert first == "Visits where department is Cardiology and outcome is referred: count 1."
    assert row.startswith("* visit_ref: V-1003, visited_on: 2025-02-03, department: Cardiology, doctor: Amelie Roux")
    assert passage.reason.startswith("SELECT COUNT(*)")
    assert (passage.method, passage.as_of) == ("computed", None) and 0 < passage.score <= 1


def test_those_who_share_the_extreme_are_all_shown(tmp_path):
    (tmp_path / "races.csv").write_text("race,winner,laps\na,Ann,5\nb,Bob,9\nc,Cy,9\n", encoding="utf-8")
    (passage,) = opened(tmp_path).search("Which race has the most laps?", 1)
    assert passage.text == "Races: largest laps 9.\n* race: b, winner: Bob, laps: 9\n* race: c, winner: Cy, laps: 9"


def test_the_title_says_how_many_rows_of_a_given_select_are_shown(tmp_path):
    (tmp_path / "races.csv").write_text("\n".join(["race", *(f"r{n}" for n in range(41))]), encoding="utf-8")
    (passage,) = opened(tmp_path).search("Which races?", 1, Filters(sql="SELECT race FROM races"))
    assert passage.title == "races > race (the first 40 of 41 rows)" and len(passage.text.splitlines()) == 40


def test_a_misspelt_cell_and_a_part_of_a_name_are_understood(clinic):
    (passage,) = clinic.search("How many Dermatolgy visits did Beck have?", 1)
    assert passage.text.startswith("Visits where department is Dermatology and doctor is Tom Beck: count 2.")


@pytest.mark.parametrize(
    "question",
    [
        "How many visits to the Vatican were there?",
        "How many visits to Cardiology did Zebulon Quist make?",
        "How many visits to Cardiology cost exactly 77123 roubles?",
        "What happened at visit V-9999?",
    ],
)
def test_a_name_figure_or_identifier_that_the_tables_lack_is_not_passed_over(clinic, question):
    assert clinic.search(question, 3) == []


WORDS = [
    *"how many visits were there per doctor most latest total average fee wait not except Cardiology missed".split(),
    *"V-1004 in 2025 since March between 10 and 60 minutes over an hour top 3 share of list which department ? , '".split(),
    *'or 1=1 ; -- drop table visits % _ " £5 99999999999999999999 ² ٣ Tom Beck follow up 2025-02-30 last month'.split(),
]


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join)))
def test_whatever_is_asked_the_statement_passes_the_gate_and_ends(clinic, question):
    columns = {table.name: [column.name for column in table.columns] for table in clinic.schema.tables}
    for dialect in ("sqlite", "postgres"):
        query = RowReader(replace(clinic.schema, dialect=dialect), WordEmbedder(), lambda _: []).read(question)
        for sql in () if query is None else (query.sql, query.rows_sql):
            safe = check_sql(sql, columns, dialect)
            assert safe.startswith("SELECT ") and check_sql(safe, columns, dialect) == safe
            assert dialect == "postgres" or clinic.rows(sql)
        assert query is None or (0 < query.confidence <= 1 and query.operation in NAMES)
    assert len(clinic.search(question, 5)) <= 1


@pytest.fixture(scope="module")
def sales(tmp_path_factory):
    """One sale a day, from the first of 2024 to 14 November 2026."""
    folder = tmp_path_factory.mktemp("sales")
    days = [date(2024, 1, 1) + timedelta(days=n) for n in range((date(2026, 11, 14) - date(2024, 1, 1)).days + 1)]
    rows = "\n".join(f"S-{n:04},{day}" for n, day in enumerate(days))
    (folder / "sales.csv").write_text(f"sale_ref,sold_on\n{rows}\n", encoding="utf-8")
    return opened(folder)


@pytest.mark.parametrize(
    ("when", "first", "last"),
    [
        ("in October", "2026-10-01", "2026-10-31"),
        ("since August", "2026-08-01", "2026-11-14"),
        ("after August 2025", "2025-09-01", "2026-11-14"),
        ("before 3 May 2024", "2024-01-01", "2024-05-02"),
        ("between March and May 2025", "2025-03-01", "2025-05-31"),
        ("from 1 May to 14 May", "2026-05-01", "2026-05-14"),
        ("on May 4th, 2024", "2024-05-04", "2024-05-04"),
        ("since the start of this year", "2026-01-01", "2026-11-14"),
        ("in January of last year", "2025-01-01", "2025-01-31"),
    ],
)
def test_dates_in_words_are_ranges_of_days(sales, when, first, last):
    (found,) = sales.search(f"How many sales were there {when}?", 1)
    days = (date.fromisoformat(last) - date.fromisoformat(first)).days + 1
    assert f": count {days}.\n" in found.text
    assert found.text.count("\n* sale_ref: ") == min(days, 10)


def test_a_question_leaves_the_database_file_as_it_was(tmp_path):
    place = made((DATABASES / "library.sql").read_text(), tmp_path)
    file = tmp_path / "records.db"
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    file.chmod(0o444)
    source = opened(place)
    assert source.search("How many members live in York?", 1)
    with pytest.raises(KnowledgeError):
        source.rows("DELETE FROM members")
    assert hashlib.sha256(file.read_bytes()).hexdigest() == before
    assert [p.name for p in tmp_path.iterdir()] == ["records.db"]


def test_a_select_that_is_given_is_run_and_one_that_is_refused_leaves_the_question(clinic):
    question = "How many visits were there to cardiology?"
    grouped = "SELECT doctor, COUNT(*) AS visits FROM visits GROUP BY doctor ORDER BY visits DESC LIMIT 1"
    (found,) = clinic.search(question, 1, Filters(sql=grouped))
    assert (found.text, found.reason) == ("* doctor: Ines Costa, visits: 3", grouped)
    assert (found.id, found.title, found.method) == ("records/visits", "visits > doctor, visits", "sql")
    for sql in ("DROP TABLE visits", "SELECT doctor FROM nurses", "SELECT doctor FROM visits WHERE doctor = 'Nobody'"):
        assert clinic.search(question, 1, Filters(sql=sql)) == clinic.search(question, 1)


def test_the_schema_is_described_with_kinds_ranges_values_and_keys(databases):
    card = databases["library"].schema_card
    assert card.startswith("Dialect: sqlite\n\nTable loans\n")
    assert "  genre text: crime, history, nature, poetry\n" in card
    assert "  fine_gbp real from 0 to 6.25\n" in card
    assert "  member_id refers to members.id" in card


ATTACKS = [
    "DROP TABLE visits",
    "SELECT 1; DROP TABLE visits",
    "PRAGMA query_only = OFF",
    "SELECT * FROM pragma_table_info('visits')",
    "ATTACH DATABASE 'x.db' AS x",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n",
    "SELECT name FROM sqlite_master",
    "SELECT doctor FROM main.visits",
    "SELECT salary FROM visits",
    "SELECT doctor FROM visits UNION SELECT sql FROM sqlite_master",
    "SELECT load_extension('x') FROM visits",
    "SELECT randomblob(1000000000) FROM visits",
    "SELECT REPLACE(doctor, 'a', doctor) FROM visits",
    "INSERT INTO visits SELECT * FROM visits",
    "SELECT * INTO t FROM visits",
    "VACUUM INTO 'x.db'",
    "",
    "SELECT doctor FROM visits WHERE doctor = ?",
    "SELECT COUNT(*) FROM visits a, visits b, visits c, visits d, visits e, visits f, visits g",
    "SELECT " + "(" * 3000 + "1" + ")" * 3000 + " FROM visits",
    "SELECT doctor FROM visits WHERE " + " OR ".join(["wait_minutes > 1"] * 2000),
]


@pytest.mark.parametrize("sql", ATTACKS)
def test_the_gate_refuses_all_but_one_select_over_known_tables(clinic, sql):
    with pytest.raises(KnowledgeError) as refused:
        clinic.rows(sql)
    assert refused.value.mend


@pytest.mark.parametrize(
    ("sql", "written"),
    [
        ("select doctor from visits", "SELECT doctor FROM visits LIMIT 200"),
        ("SELECT doctor FROM visits LIMIT 100000", "SELECT doctor FROM visits LIMIT 200"),
        ("SELECT doctor FROM visits LIMIT -1", "SELECT doctor FROM visits LIMIT 200"),
        ("SELECT doctor FROM visits LIMIT 3 -- ; DROP TABLE visits", "SELECT doctor FROM visits LIMIT 3"),
        ("SELECT /* x */ AVG(fee_eur) FROM visits;", "SELECT AVG(fee_eur) FROM visits LIMIT 200"),
    ],
)
def test_the_gate_writes_a_good_statement_afresh(clinic, sql, written):
    assert check_sql(sql, clinic.columns, "sqlite") == written
    assert clinic.rows(sql)[1]


def test_a_statement_that_takes_too_long_is_interrupted(tmp_path, monkeypatch):
    (tmp_path / "n.csv").write_text("i\n" + "\n".join(map(str, range(2000))), encoding="utf-8")
    source = opened(tmp_path)
    monkeypatch.setattr(tables, "SECONDS", 0.2)
    with pytest.raises(KnowledgeError, match="took longer"):
        source.rows("SELECT COUNT(*) FROM n a, n b, n c WHERE a.i + b.i + c.i = 7")
    assert source.rows("SELECT COUNT(*) FROM n")[1] == [(2000,)]


ODD = {
    "a,b\n1,2\n3\n": ("1 row with fewer cells than the header", 3),
    "a,b\n1,2\n3,4,5\n6,7\n8,9\n": ("1 row with more cells than the header; left out", 3),
    "a,A\n1,2\n": ("2 columns are named 'a'", 1),
    "a,\n1,2\n": ("column 2 without a name", 1),
    "1,2\n3,4\n": ("the first line holds no column names but data", 1),
    "name,n\ncaf\xe9,1\n".encode("latin-1"): ("is not UTF-8, and was read as Windows-1252", 2),
    'a,b\n"1,2\n': ("1 row with a quote that is not closed", 2),
    "item,price\nnut,3\nbolt,soon\nscrew,5\nnail,n/a\n": (
        "the column price holds 1 cell that is no number ('soon' the first), and has no number there",
        3,
    ),
    "item,price\nnut,$3\nbolt,5 EUR\n": ("the column price holds amounts in EUR, USD, and is read as text", 2),
    "item,price\nnut,3\nbolt,soon\n": ("1 cell that is no number ('soon' the first), and is read as text", 3),
    "item,size\nnut,3\nbolt,4\npin,12b\n": ("the column size holds 1 cell that is no number", 4),
    "item;weight\nnut;1.250\n": ("the column weight holds '1.250', which was read as 1250", 2),
}
BROKEN = {"": "it is empty", "\n\n": "it is empty", b"PK\0\1": "binary", b"\xff\xfea": "broken UTF-16 text"}


@pytest.mark.parametrize("content", ODD)
def test_what_is_odd_about_a_table_is_told_with_its_line_and_the_table_is_read(write, content):
    what, line = ODD[content]
    source = opened(write("t.csv", content))
    told = [flaw for flaw in source.read.flaws if what in flaw.what]
    assert [(flaw.line, flaw.path, flaw.unread) for flaw in told] == [(line, "records/t.csv", False)], source.read.flaws
    assert all(flaw.mend for flaw in told) and len(source.schema.table("t").columns) == 2


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_table_is_left_out_with_its_reason_and_the_others_answer(write, content):
    write("broken.csv", content)
    write("letter.xlsx", b"PK")
    source = opened(write("races.csv", "race,laps\na,5\nb,9\n"))
    assert [table.name for table in source.schema.tables] == ["races"]
    assert [(flaw.path, flaw.unread) for flaw in source.read.flaws] == [
        ("records/broken.csv", True),
        ("records/letter.xlsx", True),
    ]
    assert BROKEN[content] in source.read.flaws[0].what
    assert source.read.tell_unread() == "2 of 3 files were not read"
    assert source.search("How many races are there?", 1)[0].text.startswith("Races: count 2.")


def test_a_file_that_makes_no_table_of_its_own_is_left_out(write):
    for name in ("a-b.csv", "a_b.csv", "sqlite_x.csv"):
        folder = write(name, "a,b\n1,2\n")
    source = opened(folder)
    assert [table.name for table in source.schema.tables] == ["a_b"]
    assert [(flaw.path, flaw.unread) for flaw in source.read.flaws] == [
        ("records/a_b.csv", True),
        ("records/sqlite_x.csv", True),
    ]


def test_a_folder_without_a_csv_file_is_refused(write):
    with pytest.raises(KnowledgeError, match="holds no CSV file") as refused:
        opened(write("notes.txt", "a,b\n1,2\n"))
    assert refused.value.mend


@pytest.mark.parametrize(
    ("cells", "total", "unit"),
    [
        (["$10.00", "$1,200.50", "n/a"], 1210.5, "${}"),
        (["1.200,50 EUR", "EUR 45", "-", "7 €"], 1252.5, "{} EUR"),
        (["1,200.50", "1,200", "3"], 2403.5, "{}"),
        (["1.200,50", "1.200", "3"], 2403.5, "{}"),
        (["12,5", "0,25", ""], 12.75, "{}"),
        (["1 200,50", "(3,00)", "−1"], 1196.5, "{}"),
        (["CHF 1’200.50", "10.-"], 1210.5, "CHF {}"),
        (["5", "soon", "6", "7"], 18, "{} (without 1 cell that is no number)"),
    ],
)
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_amounts_are_added_up_and_rows_show_them_as_they_are_written(write, cells, total, unit, separator):
    stream = io.StringIO()
    csv.writer(stream, delimiter=separator).writerows(
        [["item", "price"], *((f"item{n}", c) for n, c in enumerate(cells))]
    )
    source = opened(write("orders.csv", stream.getvalue()))
    (found,) = source.search("What is the total price of the orders?", 1)
    figure, *rows = found.text.splitlines()
    assert figure == f"Orders: total price {unit.format(show_value(total))}."
    (every,) = source.search("orders", 1, Filters(sql="SELECT * FROM orders"))
    assert every.text.splitlines() == [
        f"* item: item{n}" + f", price: {cell}" * bool(cell) for n, cell in enumerate(cells)
    ]
    assert set(rows) <= {*every.text.splitlines()}
    assert [column.name for column in source.schema.table("orders").columns] == ["item", "price"]


SPELLINGS = ["Belgium", "belgium", "BELGIUM", "Bélgium"]


@given(st.lists(st.sampled_from([*SPELLINGS, "France"]), min_size=1, max_size=12))
def test_all_spellings_of_a_cell_count_together(tmp_path_factory, countries):
    folder = tmp_path_factory.mktemp("orders")
    rows = "".join(f"{n},{country},{n}\n" for n, country in enumerate(countries, 1))
    (folder / "orders.csv").write_text(f"id,country,amount\n{rows}France Bay,Norway,0\n", encoding="utf-8")
    there = [n for n, country in enumerate(countries, 1) if country != "France"]
    found = opened(folder).search("How many orders went to Belgium?", 1)
    if there:
        assert found[0].text.splitlines()[0].endswith(f": count {len(there)}.")
        (found,) = opened(folder).search("What is the total amount of orders to Belgium?", 1)
        assert found.text.splitlines()[0].endswith(f": total amount {sum(there)}.")


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///notes.db",
        "sqlite:///absent.db",
        "nonsense://x",
        "postgresql+nothing://u:secret@h/d",
        "://",
        "absent-folder",
    ],
)
def test_a_place_that_is_no_database_is_refused_without_its_password(url):
    with pytest.raises(KnowledgeError) as refused:
        opened(url)
    assert refused.value.mend
    assert "secret" not in str(refused.value)


def test_the_types_of_csv_columns_are_read_from_their_cells(write):
    folder = write("t.csv", "﻿id,code,n,share,day,word,open\n1,007,5,0.5,2025-01-02,x,yes\n2,010,,2,2025-01-03,y,no\n")
    columns = opened(folder).schema.table("t").columns
    assert [c.kind for c in columns] == ["integer", "text", "integer", "real", "date", "text", "boolean"]


def test_a_column_that_breaks_its_declared_type_is_read_as_text(tmp_path):
    source = opened(
        made("CREATE TABLE t (d DATE, n INTEGER); INSERT INTO t VALUES ('3/4/25','many'),('x',2)", tmp_path)
    )
    assert [c.kind for c in source.schema.tables[0].columns] == ["text", "text"]
