from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tables_examples
import tables_examples_more
from hypothesis import given, settings
from hypothesis import strategies as st
from tables_examples import place
from word_embedder import WordEmbedder

from program.errors import KnowledgeError
from program.knowledge.sql_gate import MOST_ROWS
from program.knowledge.tables import Tables, checked
from program.knowledge.testing import SourceConformance
from program.models.embedded.encoder import shared_embedder
from program.models.rules.slots import fill
from program.models.rules.tables_query import statement
from program.models.rules.tables_say import shown
from program.passage import Source, SourceCard

CARD = SourceCard("records", "tables", "records of the house")
NAMES = ("CLINIC", "LIBRARY", "BIKES", "PAYROLL", "SUPPORT", "GALLERY")
EXAMPLES = {**vars(tables_examples), **vars(tables_examples_more)}


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tables]:
    return {
        name: Tables("records", CARD, place(EXAMPLES[name], tmp_path_factory.mktemp(name)), shared_embedder())
        for name in NAMES
    }


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return Tables("records", CARD, place(EXAMPLES["CLINIC"], tmp_path_factory.mktemp("clinic")), WordEmbedder())


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return Tables("records", CARD, place(EXAMPLES["LIBRARY"], tmp_path_factory.mktemp("library")), WordEmbedder())


class TestConformance(SourceConformance):
    @pytest.fixture
    def source(self, library: Tables) -> Source:
        return library

    @pytest.fixture
    def query(self) -> str:
        return "How many members live in York?"


@pytest.mark.parametrize(
    ("name", "question", "gold"),
    [(name, question, gold) for name in NAMES for question, gold in EXAMPLES[f"{name}_QUESTIONS"]],
)
def test_a_question_gets_the_values_its_statement_gives(
    databases: dict[str, Tables], tmp_path: Path, name: str, question: str, gold: str
) -> None:
    found = databases[name].search(question, 3)
    assert len(found) == 1
    said, _, sql = found[0].text.rpartition("\nSQL: ")
    assert sql.startswith("SELECT ")
    expected = _rows(EXAMPLES[name], gold, tmp_path)
    assert all(shown(value) in said for row in expected for value in row), found[0].text


def _rows(content: str | dict[str, str], sql: str, folder: Path) -> list[tuple[Any, ...]]:
    source = Tables("gold", CARD, place(content, folder), WordEmbedder())
    return [tuple(row) for row in source._engine.connect().exec_driver_sql(sql)]


@pytest.mark.parametrize("question", EXAMPLES["ELSEWHERE"])
def test_a_question_about_something_else_gets_nothing(databases: dict[str, Tables], question: str) -> None:
    assert all(source.search(question, 3) == [] for source in databases.values())


def test_a_result_says_in_words_what_was_computed_and_ends_with_its_sql(clinic: Tables) -> None:
    (passage,) = clinic.search("How many visits to Cardiology were referred?", 5)
    assert passage.id == "records/visits"
    assert passage.title == "visits > count where department is Cardiology and outcome is referred"
    first, last = passage.text.splitlines()
    assert first == "Visits where department is Cardiology and outcome is referred: count 1."
    assert last.startswith("SQL: SELECT COUNT(*)")
    assert passage.method == "sql"
    assert passage.as_of is None
    assert 0 < passage.score <= 1


def test_rows_are_a_markdown_table_of_at_most_ten(clinic: Tables) -> None:
    (passage,) = clinic.search("visits per department", 5)
    assert "| department | count |\n| --- | --- |\n| Cardiology | 4 |" in passage.text
    (passage,) = clinic.search("List all visits since January 2025", 5)
    assert passage.text.count("\n| V-") == 10


def test_those_who_share_the_first_place_are_all_named(tmp_path: Path) -> None:
    (tmp_path / "races.csv").write_text("race,winner\na,Ann\nb,Bob\nc,Ann\nd,Bob\ne,Cy\n", encoding="utf-8")
    (passage,) = Tables("r", CARD, tmp_path, WordEmbedder()).search("Which winner has the most races?", 1)
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
def test_a_name_or_figure_that_the_tables_lack_is_not_passed_over(clinic: Tables, question: str) -> None:
    assert clinic.search(question, 3) == []


def test_an_identifier_that_is_not_there_finds_nothing(clinic: Tables) -> None:
    assert clinic.search("What happened at visit V-9999?", 3) == []
    assert len(clinic.search("What happened at visit v-1003?", 3)) == 1


WORDS = [
    *"how many visits were there per doctor most latest total average fee wait not except Cardiology missed".split(),
    *"V-1004 in 2025 since March between 10 and 60 minutes over an hour top 3 share of list which department ? , '".split(),
    *'or 1=1 ; -- drop table visits % _ " £5 99999999999999999999 ² ٣ Tom Beck follow up 2025-02-30 last month'.split(),
]


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join)))
def test_whatever_is_asked_the_statement_passes_the_gate_and_ends(clinic: Tables, question: str) -> None:
    query = fill(question, clinic.schema, WordEmbedder())
    if query is not None:
        assert 0 < query.confidence <= 1
        sql = checked(statement(query, clinic.schema), clinic.schema)
        assert sql.startswith("SELECT ") and checked(sql, clinic.schema) == sql
        assert len(clinic.rows(sql)[1]) <= MOST_ROWS
    assert len(clinic.search(question, 5)) <= 1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=20).map(" ".join))
def test_a_filled_question_passes_the_gate_of_another_dialect(clinic: Tables, question: str) -> None:
    schema = replace(clinic.schema, dialect="postgres")
    query = fill(question, schema, WordEmbedder())
    assert query is None or checked(statement(query, schema), schema)


def test_a_question_leaves_the_database_file_as_it_was(tmp_path: Path) -> None:
    opened = place(EXAMPLES["LIBRARY"], tmp_path)
    file = tmp_path / "records.db"
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    file.chmod(0o444)
    source = Tables("records", CARD, opened, WordEmbedder())
    assert source.search("How many members live in York?", 1)
    with pytest.raises(KnowledgeError):
        source.rows("DELETE FROM members")
    assert hashlib.sha256(file.read_bytes()).hexdigest() == before
    assert [p.name for p in tmp_path.iterdir()] == ["records.db"]
