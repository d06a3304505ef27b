from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import tables_examples
import tables_examples_more
from hypothesis import given, settings
from hypothesis import strategies as st
from word_embedder import WordEmbedder

from program.errors import KnowledgeError
from program.knowledge import tables
from program.knowledge.embedder import shared_embedder
from program.knowledge.slots import fill
from program.knowledge.source import Source, SourceCard
from program.knowledge.tables import Tables, checked
from program.knowledge.tables_dates import spans
from program.knowledge.tables_gate import MOST_ROWS
from program.knowledge.tables_query import statement
from program.knowledge.tables_say import shown
from program.knowledge.testing import SourceConformance

CARD = SourceCard("records", "tables", "records of the house")
NAMES = ("CLINIC", "LIBRARY", "BIKES", "PAYROLL", "SUPPORT", "GALLERY")
EXAMPLES = {**vars(tables_examples), **vars(tables_examples_more)}
TODAY = date(2026, 11, 14)


def _place(content: str | dict[str, str], folder: Path) -> str | Path:
    if isinstance(content, dict):
        for name, text in content.items():
            (folder / name).write_text(text, encoding="utf-8")
        return folder
    with sqlite3.connect(folder / "records.db") as connection:
        connection.executescript(content)
    return f"sqlite:///{folder / 'records.db'}"


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tables]:
    return {
        name: Tables("records", CARD, _place(EXAMPLES[name], tmp_path_factory.mktemp(name)), shared_embedder())
        for name in NAMES
    }


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return Tables("records", CARD, _place(EXAMPLES["CLINIC"], tmp_path_factory.mktemp("clinic")), WordEmbedder())


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return Tables("records", CARD, _place(EXAMPLES["LIBRARY"], tmp_path_factory.mktemp("library")), WordEmbedder())


class TestConformance(SourceConformance):
    @pytest.fixture
    def source(self, library: Tables) -> Source:
        return library

    @pytest.fixture
    def query(self) -> str:
        return "How many members live in York?"


@pytest.mark.xdist_group("tables")
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
    source = Tables("gold", CARD, _place(content, folder), WordEmbedder())
    return [tuple(row) for row in source._engine.connect().exec_driver_sql(sql)]


@pytest.mark.xdist_group("tables")
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
    place = _place(EXAMPLES["LIBRARY"], tmp_path)
    file = tmp_path / "records.db"
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    file.chmod(0o444)
    source = Tables("records", CARD, place, WordEmbedder())
    assert source.search("How many members live in York?", 1)
    with pytest.raises(KnowledgeError):
        source.rows("DELETE FROM members")
    assert hashlib.sha256(file.read_bytes()).hexdigest() == before
    assert [p.name for p in tmp_path.iterdir()] == ["records.db"]


ATTACKS = [
    "DROP TABLE visits",
    "SELECT 1; DROP TABLE visits",
    "SELECT COUNT(*) FROM visits; SELECT COUNT(*) FROM visits",
    "PRAGMA query_only = OFF",
    "SELECT * FROM pragma_table_info('visits')",
    "ATTACH DATABASE 'x.db' AS x",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n",
    "WITH RECURSIVE n(i) AS (SELECT fee_eur FROM visits UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
    "SELECT name FROM sqlite_master",
    "SELECT name FROM main.sqlite_schema",
    "SELECT doctor FROM main.visits",
    "SELECT salary FROM visits",
    'SELECT "salary" FROM visits',
    "SELECT doctor FROM visits UNION SELECT sql FROM sqlite_master",
    "SELECT doctor FROM visits WHERE EXISTS (SELECT 1 FROM secrets)",
    "SELECT load_extension('x') FROM visits",
    "SELECT randomblob(1000000000) FROM visits",
    "SELECT writefile('x', doctor) FROM visits",
    "SELECT REPLACE(doctor, 'a', doctor) FROM visits",
    "INSERT INTO visits SELECT * FROM visits",
    "UPDATE visits SET doctor = 'x'",
    "CREATE TABLE t AS SELECT * FROM visits",
    "SELECT * INTO t FROM visits",
    "VACUUM INTO 'x.db'",
    "BEGIN; SELECT doctor FROM visits",
    "SELECT 1",
    "",
    "--",
    "/* */",
    "SELECT doctor FROM visits WHERE doctor = ?",
    "SELECT doctor FROM visits WHERE doctor = :name",
    "SELECT COUNT(*) FROM visits a, visits b, visits c, visits d, visits e, visits f, visits g",
    "SELECT " + "(" * 3000 + "1" + ")" * 3000 + " FROM visits",
    "SELECT doctor FROM visits WHERE " + " OR ".join(["wait_minutes > 1"] * 2000),
]


@pytest.mark.parametrize("sql", ATTACKS)
def test_the_gate_refuses_all_but_one_select_over_known_tables(clinic: Tables, sql: str) -> None:
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
        (
            "SELECT department, COUNT(*) AS n FROM visits GROUP BY department ORDER BY n DESC LIMIT 1",
            "SELECT department, COUNT(*) AS n FROM visits GROUP BY department ORDER BY n DESC LIMIT 1",
        ),
    ],
)
def test_the_gate_writes_a_good_statement_afresh(clinic: Tables, sql: str, written: str) -> None:
    assert checked(sql, clinic.schema) == written
    assert clinic.rows(sql)[1]


def test_a_statement_that_takes_too_long_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "n.csv").write_text("i\n" + "\n".join(map(str, range(2000))), encoding="utf-8")
    source = Tables("n", CARD, tmp_path, WordEmbedder())
    monkeypatch.setattr(tables, "SECONDS", 0.2)
    with pytest.raises(KnowledgeError, match="took longer"):
        source.rows("SELECT COUNT(*) FROM n a, n b, n c WHERE a.i + b.i + c.i = 7")
    assert source.rows("SELECT COUNT(*) FROM n")[1] == [(2000,)]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("a,b\n1,2\n3\n", "line 3 has 1 cells"),
        ("a,b\n1,2,3\n", "line 2 has 3 cells"),
        ("a,A\n1,2\n", "two columns named A"),
        ("a,\n1,2\n", "without a name"),
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("1,2\n3,4\n", "no header"),
        ("name\ncaf\xe9\n".encode("latin-1"), "not UTF-8"),
        (b"\xff\xfea\x00,\x00b\x00", "not UTF-8"),
        ('a,b\n"1,2\n', "cannot be read"),
    ],
)
def test_a_csv_file_that_is_no_table_is_refused_with_a_remedy(
    write: Callable[[str, str | bytes], Path], content: str | bytes, what: str
) -> None:
    with pytest.raises(KnowledgeError, match=what) as refused:
        Tables("t", CARD, write("t.csv", content), WordEmbedder())
    assert refused.value.mend


@pytest.mark.parametrize("names", [["a-b.csv", "a_b.csv"], ["notes.txt"], ["sqlite_x.csv"]])
def test_a_folder_without_usable_tables_is_refused(write: Callable[[str, str | bytes], Path], names: list[str]) -> None:
    for name in names:
        folder = write(name, "a,b\n1,2\n")
    with pytest.raises(KnowledgeError) as refused:
        Tables("t", CARD, folder, WordEmbedder())
    assert refused.value.mend


@pytest.mark.parametrize(
    "place", ["sqlite:///absent.db", "nonsense://x", "postgresql+nothing://u:secret@h/d", "://", "absent-folder"]
)
def test_a_place_that_is_no_database_is_refused_without_its_password(place: str) -> None:
    with pytest.raises(KnowledgeError) as refused:
        Tables("t", CARD, place, WordEmbedder())
    assert refused.value.mend
    assert "secret" not in str(refused.value)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(KnowledgeError, match="cannot be read"):
        Tables("t", CARD, f"sqlite:///{tmp_path / 'x.db'}", WordEmbedder())


def test_the_types_of_csv_columns_are_read_from_their_cells(write: Callable[[str, str | bytes], Path]) -> None:
    folder = write("t.csv", "﻿id,code,n,share,day,word,open\n1,007,5,0.5,2025-01-02,x,yes\n2,010,,2,2025-01-03,y,no\n")
    columns = Tables("t", CARD, folder, WordEmbedder()).schema.table("t").columns
    assert [c.kind for c in columns] == ["integer", "text", "integer", "real", "date", "text", "boolean"]
    assert [c.name for c in columns if c.blanks] == ["n"]


def test_the_schema_names_tables_columns_values_ranges_and_links(clinic: Tables, library: Tables) -> None:
    assert "department text: Cardiology, Dermatology, Paediatrics" in clinic.schema.describe()
    assert "wait_minutes integer unique: 9 to 75" in clinic.schema.describe()
    assert "visited_on date unique: 2025-01-08 to 2025-06-21" in clinic.schema.describe()
    assert "member_id -> members.id" in library.schema.describe()


def test_a_column_that_breaks_its_declared_type_is_read_as_text(tmp_path: Path) -> None:
    place = _place("CREATE TABLE t (d DATE, n INTEGER); INSERT INTO t VALUES ('3/4/25','many'),('x',2)", tmp_path)
    source = Tables("t", CARD, place, WordEmbedder())
    assert [c.kind for c in source.schema.tables[0].columns] == ["text", "text"]


@pytest.mark.parametrize(
    ("text", "first", "stop"),
    [
        ("in October", "2026-10-01", "2026-11-01"),
        ("in December", "2025-12-01", "2026-01-01"),
        ("since August", "2026-08-01", None),
        ("after August 2025", "2025-09-01", None),
        ("before 3 May 2026", None, "2026-05-03"),
        ("until the end of June 2026", None, "2026-07-01"),
        ("in Q3 2025", "2025-07-01", "2025-10-01"),
        ("the first quarter", "2026-01-01", "2026-04-01"),
        ("in the second half of 2025", "2025-07-01", "2026-01-01"),
        ("between March and May 2025", "2025-03-01", "2025-06-01"),
        ("from 1 May to 14 May", "2026-05-01", "2026-05-15"),
        ("on 2026-02-28", "2026-02-28", "2026-03-01"),
        ("May 4th, 2024", "2024-05-04", "2024-05-05"),
        ("last month", "2026-10-01", "2026-11-01"),
        ("this year", "2026-01-01", "2027-01-01"),
        ("in the last 30 days", "2026-10-16", "2026-11-15"),
        ("from August 2026 onwards", "2026-08-01", None),
        ("in 2024", "2024-01-01", "2025-01-01"),
    ],
)
def test_dates_in_words_are_ranges_of_days(text: str, first: str | None, stop: str | None) -> None:
    (found,) = spans(text, TODAY)
    assert (found.first and found.first.isoformat(), found.stop and found.stop.isoformat()) == (first, stop)


@pytest.mark.parametrize("text", ["may I march in?", "on 2026-02-30", "31 June", "the 2nd place", "room 2050b"])
def test_what_is_no_date_is_none(text: str) -> None:
    assert spans(text, TODAY) == []


@given(st.text(max_size=100))
def test_any_text_has_ranges_that_run_forward(text: str) -> None:
    for span in spans(text, TODAY):
        assert span.first or span.stop
        assert not (span.first and span.stop) or span.first < span.stop
