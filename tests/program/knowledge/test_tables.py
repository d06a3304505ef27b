"""Questions about databases of several subjects get the values that their statements give."""

import hashlib
from dataclasses import replace
from datetime import date, timedelta

import pytest
import tables_examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tables_examples import place
from word_embedder import WordEmbedder

from program.errors import KnowledgeError
from program.knowledge.sql_gate import check_sql
from program.knowledge.tables import TableSource, show_value
from program.knowledge.testing import SourceConformance
from program.models.embedded.encoder import shared_embedder
from program.models.table_rows import NAMES, RowReader
from program.passage import Filters, SourceCard

CARD = SourceCard("records", "tables", "records of the house")
NAMES_OF_DATABASES = ("CLINIC", "LIBRARY", "SUPPORT", "GALLERY")
EXAMPLES = vars(tables_examples)


@pytest.fixture(scope="module")
def databases(tmp_path_factory):
    return {
        name: TableSource("records", CARD, place(EXAMPLES[name], tmp_path_factory.mktemp(name)), shared_embedder())
        for name in NAMES_OF_DATABASES
    }


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    return TableSource("records", CARD, place(EXAMPLES["CLINIC"], tmp_path_factory.mktemp("clinic")), WordEmbedder())


class TestConformance(SourceConformance):
    @pytest.fixture
    def source(self, databases):
        return databases["LIBRARY"]

    @pytest.fixture
    def query(self):
        return "How many members live in York?"


@pytest.mark.parametrize("name", NAMES_OF_DATABASES)
def test_a_question_gets_the_values_its_statement_gives(databases, name):
    for question, gold in EXAMPLES[f"{name}_QUESTIONS"]:
        (found,) = databases[name].search(question, 3)
        said, _, sql = found.text.rpartition("\nSQL: ")
        assert sql.startswith("SELECT ")
        assert all(show_value(value) in said for row in databases[name].rows(gold)[1] for value in row), found.text


def test_a_question_about_something_else_gets_nothing(databases):
    assert [q for q in EXAMPLES["ELSEWHERE"] for source in databases.values() if source.search(q, 3)] == []


@pytest.mark.parametrize("name", NAMES_OF_DATABASES)
def test_a_question_beyond_the_five_operations_gets_rows_or_nothing(databases, name):
    for question in tables_examples.BEYOND[name]:
        for found in databases[name].search(question, 3):
            assert found.text.partition("\n")[0].endswith(": these rows."), found.text


def test_a_result_says_in_words_what_was_computed_shows_rows_and_ends_with_its_sql(clinic):
    (passage,) = clinic.search("How many visits to Cardiology were referred?", 5)
    assert passage.id == "records/visits"
    assert passage.title == "visits > count where department is Cardiology and outcome is referred"
    first, row, last = passage.text.splitlines()
    assert first == "Visits where department is Cardiology and outcome is referred: count 1."
    assert row.startswith("* visit_ref: V-1003, visited_on: 2025-02-03, department: Cardiology, doctor: Amelie Roux")
    assert last.startswith("SQL: SELECT COUNT(*)")
    assert passage.method == "rows"
    assert passage.as_of is None
    assert 0 < passage.score <= 1


def test_at_most_ten_rows_are_shown(sales):
    (passage,) = sales.search("How many sales were there in 2025?", 1)
    assert passage.text.startswith("Sales where sold_on in 2025: count 365.\n")
    assert passage.text.count("\n* sale_ref: ") == 10


def test_those_who_share_the_extreme_are_all_shown(tmp_path):
    (tmp_path / "races.csv").write_text("race,winner,laps\na,Ann,5\nb,Bob,9\nc,Cy,9\n", encoding="utf-8")
    (passage,) = TableSource("r", CARD, tmp_path, WordEmbedder()).search("Which race has the most laps?", 1)
    assert passage.text.startswith(
        "Races: largest laps 9.\n* race: b, winner: Bob, laps: 9\n* race: c, winner: Cy, laps: 9\n"
    )


def test_a_misspelt_cell_and_a_part_of_a_name_are_understood(clinic):
    (passage,) = clinic.search("How many Dermatolgy visits did Beck have?", 1)
    assert passage.text.startswith("Visits where department is Dermatology and doctor is Tom Beck: count 2.")


@pytest.mark.parametrize(
    "question",
    [
        "How many visits to the Vatican were there?",
        "How many visits to Cardiology did Zebulon Quist make?",
        "How many visits to Cardiology cost exactly 77123 roubles?",
    ],
)
def test_a_name_or_figure_that_the_tables_lack_is_not_passed_over(clinic, question):
    assert clinic.search(question, 3) == []


def test_an_identifier_that_is_not_there_finds_nothing(clinic):
    assert clinic.search("What happened at visit V-9999?", 3) == []
    assert len(clinic.search("What happened at visit v-1003?", 3)) == 1


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
    return TableSource("records", CARD, folder, WordEmbedder())


@pytest.mark.parametrize(
    ("when", "first", "last"),
    [
        ("in October", "2026-10-01", "2026-10-31"),
        ("in December", "2025-12-01", "2025-12-31"),
        ("since August", "2026-08-01", "2026-11-14"),
        ("after August 2025", "2025-09-01", "2026-11-14"),
        ("before 3 May 2024", "2024-01-01", "2024-05-02"),
        ("until June 2024", "2024-01-01", "2024-06-30"),
        ("between March and May 2025", "2025-03-01", "2025-05-31"),
        ("from 1 May to 14 May", "2026-05-01", "2026-05-14"),
        ("on May 4th, 2024", "2024-05-04", "2024-05-04"),
        ("since the start of this year", "2026-01-01", "2026-11-14"),
        ("in January of last year", "2025-01-01", "2025-01-31"),
        ("on 2025-07-09", "2025-07-09", "2025-07-09"),
    ],
)
def test_dates_in_words_are_ranges_of_days(sales, when, first, last):
    (found,) = sales.search(f"How many sales were there {when}?", 1)
    days = (date.fromisoformat(last) - date.fromisoformat(first)).days + 1
    assert f": count {days}.\n" in found.text


def test_a_question_leaves_the_database_file_as_it_was(tmp_path):
    opened = place(EXAMPLES["LIBRARY"], tmp_path)
    file = tmp_path / "records.db"
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    file.chmod(0o444)
    source = TableSource("records", CARD, opened, WordEmbedder())
    assert source.search("How many members live in York?", 1)
    with pytest.raises(KnowledgeError):
        source.rows("DELETE FROM members")
    assert hashlib.sha256(file.read_bytes()).hexdigest() == before
    assert [p.name for p in tmp_path.iterdir()] == ["records.db"]


def test_a_select_that_is_given_is_run_and_one_that_is_refused_leaves_the_question(clinic):
    question = "How many visits were there to cardiology?"
    grouped = "SELECT doctor, COUNT(*) AS visits FROM visits GROUP BY doctor ORDER BY visits DESC LIMIT 1"
    (found,) = clinic.search(question, 1, Filters(sql=grouped))
    assert found.text == f"Rows selected from visits: 1.\n* doctor: Ines Costa, visits: 3\nSQL: {grouped}"
    assert (found.id, found.method) == ("records/visits", "sql")
    for sql in ("DROP TABLE visits", "SELECT doctor FROM nurses", "SELECT doctor FROM visits WHERE doctor = 'Nobody'"):
        assert clinic.search(question, 1, Filters(sql=sql)) == clinic.search(question, 1)


def test_the_schema_is_described_with_kinds_ranges_values_and_keys(databases):
    card = databases["LIBRARY"].schema_card
    assert card.startswith("Dialect: sqlite\n\nTable loans\n")
    assert "  genre text: crime, history, nature, poetry\n" in card
    assert "  fine_gbp real from 0 to 6.25\n" in card
    assert "  member_id refers to members.id" in card
