from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tables_examples import CLINIC, LIBRARY, place
from word_embedder import WordEmbedder

from program.errors import KnowledgeError
from program.knowledge.tables import TableSource
from program.passage import SourceCard

CARD = SourceCard("records", "tables", "records of the house")


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> TableSource:
    return TableSource("records", CARD, place(CLINIC, tmp_path_factory.mktemp("clinic")), WordEmbedder())


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> TableSource:
    return TableSource("records", CARD, place(LIBRARY, tmp_path_factory.mktemp("library")), WordEmbedder())


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
        TableSource("t", CARD, write("t.csv", content), WordEmbedder())
    assert refused.value.mend


@pytest.mark.parametrize("names", [["a-b.csv", "a_b.csv"], ["notes.txt"], ["sqlite_x.csv"]])
def test_a_folder_without_usable_tables_is_refused(write: Callable[[str, str | bytes], Path], names: list[str]) -> None:
    for name in names:
        folder = write(name, "a,b\n1,2\n")
    with pytest.raises(KnowledgeError) as refused:
        TableSource("t", CARD, folder, WordEmbedder())
    assert refused.value.mend


@pytest.mark.parametrize(
    "url", ["sqlite:///absent.db", "nonsense://x", "postgresql+nothing://u:secret@h/d", "://", "absent-folder"]
)
def test_a_place_that_is_no_database_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(KnowledgeError) as refused:
        TableSource("t", CARD, url, WordEmbedder())
    assert refused.value.mend
    assert "secret" not in str(refused.value)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(KnowledgeError, match="cannot be read"):
        TableSource("t", CARD, f"sqlite:///{tmp_path / 'x.db'}", WordEmbedder())


def test_the_types_of_csv_columns_are_read_from_their_cells(write: Callable[[str, str | bytes], Path]) -> None:
    folder = write("t.csv", "﻿id,code,n,share,day,word,open\n1,007,5,0.5,2025-01-02,x,yes\n2,010,,2,2025-01-03,y,no\n")
    columns = TableSource("t", CARD, folder, WordEmbedder()).schema.table("t").columns
    assert [c.kind for c in columns] == ["integer", "text", "integer", "real", "date", "text", "boolean"]
    assert [c.name for c in columns if c.blanks] == ["n"]


def test_the_schema_names_tables_columns_values_ranges_and_links(clinic: TableSource, library: TableSource) -> None:
    assert "department text: Cardiology, Dermatology, Paediatrics" in clinic.schema.describe()
    assert "wait_minutes integer unique: 9 to 75" in clinic.schema.describe()
    assert "visited_on date unique: 2025-01-08 to 2025-06-21" in clinic.schema.describe()
    assert "member_id -> members.id" in library.schema.describe()


def test_a_column_that_breaks_its_declared_type_is_read_as_text(tmp_path: Path) -> None:
    opened = place("CREATE TABLE t (d DATE, n INTEGER); INSERT INTO t VALUES ('3/4/25','many'),('x',2)", tmp_path)
    source = TableSource("t", CARD, opened, WordEmbedder())
    assert [c.kind for c in source.schema.tables[0].columns] == ["text", "text"]
