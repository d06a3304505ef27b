"""Questions about databases of several subjects get the values that their statements give."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
import tables_examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tables_examples import place
from word_embedder import WordEmbedder

from program.errors import KnowledgeError
from program.knowledge.sql_gate import MOST_ROWS, check_sql
from program.knowledge.tables import TableSource
from program.knowledge.testing import SourceConformance
from program.models.embedded.encoder import shared_embedder
from program.models.table_query import show_value, write_table_query
from program.passage import Source, SourceCard

CARD = SourceCard("records", "tables", "records of the house")
NAMES = ("CLINIC", "LIBRARY", "SUPPORT", "GALLERY")
EXAMPLES = vars(tables_examples)


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TableSource]:
    return {
        name: TableSource("records", CARD, place(EXAMPLES[name], tmp_path_factory.mktemp(name)), shared_embedder())
        for name in NAMES
    }


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> TableSource:
    return TableSource("records", CARD, place(EXAMPLES["CLINIC"], tmp_path_factory.mktemp("clinic")), WordEmbedder())


class TestConformance(SourceConformance):
    @pytest.fixture
    def source(self, databases: dict[str, TableSource]) -> Source:
        return databases["LIBRARY"]

    @pytest.fixture
    def query(self) -> str:
        return "How many members live in York?"


@pytest.mark.parametrize("name", NAMES)
def test_a_question_gets_the_values_its_statement_gives(databases: dict[str, TableSource], name: str) -> None:
    for question, gold in EXAMPLES[f"{name}_QUESTIONS"]:
        (found,) = databases[name].search(question, 3)
        said, _, sql = found.text.rpartition("\nSQL: ")
        assert sql.startswith("SELECT ")
        assert all(show_value(value) in said for row in databases[name].rows(gold)[1] for value in row), found.text


def test_a_question_about_something_else_gets_nothing(databases: dict[str, TableSource]) -> None:
    assert [q for q in EXAMPLES["ELSEWHERE"] for source in databases.values() if source.search(q, 3)] == []


def test_a_result_says_in_words_what_was_computed_and_ends_with_its_sql(clinic: TableSource) -> None:
    (passage,) = clinic.search("How many visits to Cardiology were referred?", 5)
    assert passage.id == "records/visits"
    assert passage.title == "visits > count where department is Cardiology and outcome is referred"
    first, last = passage.text.splitlines()
    assert first == "Visits where department is Cardiology and outcome is referred: count 1."
    assert last.startswith("SQL: SELECT COUNT(*)")
    assert passage.method == "sql"
    assert passage.as_of is None
    assert 0 < passage.score <= 1


def test_rows_are_a_markdown_table_of_at_most_ten(clinic: TableSource) -> None:
    (passage,) = clinic.search("visits per department", 5)
    assert "| department | count |\n| --- | --- |\n| Cardiology | 4 |" in passage.text
    (passage,) = clinic.search("List all visits since January 2025", 5)
    assert passage.text.count("\n| V-") == 10


def test_those_who_share_the_first_place_are_all_named(tmp_path: Path) -> None:
    (tmp_path / "races.csv").write_text("race,winner\na,Ann\nb,Bob\nc,Ann\nd,Bob\ne,Cy\n", encoding="utf-8")
    (passage,) = TableSource("r", CARD, tmp_path, WordEmbedder()).search("Which winner has the most races?", 1)
    assert "| Ann | 2 |\n| Bob | 2 |" in passage.text
    assert "Cy" not in passage.text


@pytest.mark.parametrize(
    "question",
    [
        "How many visits to the Vatican were there?",
        "How many visits to Cardiology did Zebulon Quist make?",
        "How many visits to Cardiology cost exactly 77123 roubles?",
    ],
)
def test_a_name_or_figure_that_the_tables_lack_is_not_passed_over(clinic: TableSource, question: str) -> None:
    assert clinic.search(question, 3) == []


def test_an_identifier_that_is_not_there_finds_nothing(clinic: TableSource) -> None:
    assert clinic.search("What happened at visit V-9999?", 3) == []
    assert len(clinic.search("What happened at visit v-1003?", 3)) == 1


WORDS = [
    *"how many visits were there per doctor most latest total average fee wait not except Cardiology missed".split(),
    *"V-1004 in 2025 since March between 10 and 60 minutes over an hour top 3 share of list which department ? , '".split(),
    *'or 1=1 ; -- drop table visits % _ " £5 99999999999999999999 ² ٣ Tom Beck follow up 2025-02-30 last month'.split(),
]


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join)))
def test_whatever_is_asked_the_statement_passes_the_gate_and_ends(clinic: TableSource, question: str) -> None:
    columns = {table.name: [column.name for column in table.columns] for table in clinic.schema.tables}
    for dialect in ("sqlite", "postgres"):
        query = write_table_query(question, replace(clinic.schema, dialect=dialect), WordEmbedder())
        if query is not None:
            assert 0 < query.confidence <= 1
            sql = check_sql(query.sql, columns, dialect)
            assert sql.startswith("SELECT ") and check_sql(sql, columns, dialect) == sql
            assert dialect == "postgres" or len(clinic.rows(sql)[1]) <= MOST_ROWS
    assert len(clinic.search(question, 5)) <= 1


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> TableSource:
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
        ("until the end of June 2024", "2024-01-01", "2024-06-30"),
        ("in Q3 2025", "2025-07-01", "2025-09-30"),
        ("in the second half of 2025", "2025-07-01", "2025-12-31"),
        ("between March and May 2025", "2025-03-01", "2025-05-31"),
        ("from 1 May to 14 May", "2026-05-01", "2026-05-14"),
        ("on May 4th, 2024", "2024-05-04", "2024-05-04"),
        ("last month", "2026-10-01", "2026-10-31"),
        ("in the last 30 days", "2026-10-16", "2026-11-14"),
    ],
)
def test_dates_in_words_are_ranges_of_days(sales: TableSource, when: str, first: str, last: str) -> None:
    (found,) = sales.search(f"How many sales were there {when}?", 1)
    days = (date.fromisoformat(last) - date.fromisoformat(first)).days + 1
    assert f": count {days}.\n" in found.text


def test_a_question_leaves_the_database_file_as_it_was(tmp_path: Path) -> None:
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
