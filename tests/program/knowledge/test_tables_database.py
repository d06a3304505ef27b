"""What is read of a database, and which statements and files are refused."""

import pytest
from tables_examples import CLINIC, LIBRARY, place
from word_embedder import WordEmbedder

from program.errors import KnowledgeError
from program.knowledge import tables
from program.knowledge.sql_gate import check_sql
from program.knowledge.tables import TableSource
from program.models.table_schema import ForeignKey
from program.passage import SourceCard

CARD = SourceCard("records", "tables", "records of the house")


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    return TableSource("records", CARD, place(CLINIC, tmp_path_factory.mktemp("clinic")), WordEmbedder())


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
    "SELECT doctor FROM visits WHERE EXISTS (SELECT 1 FROM secrets)",
    "SELECT load_extension('x') FROM visits",
    "SELECT randomblob(1000000000) FROM visits",
    "SELECT REPLACE(doctor, 'a', doctor) FROM visits",
    "INSERT INTO visits SELECT * FROM visits",
    "UPDATE visits SET doctor = 'x'",
    "CREATE TABLE t AS SELECT * FROM visits",
    "SELECT * INTO t FROM visits",
    "VACUUM INTO 'x.db'",
    "SELECT 1",
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
        (
            "SELECT department, COUNT(*) AS n FROM visits GROUP BY department ORDER BY n DESC LIMIT 1",
            "SELECT department, COUNT(*) AS n FROM visits GROUP BY department ORDER BY n DESC LIMIT 1",
        ),
    ],
)
def test_the_gate_writes_a_good_statement_afresh(clinic, sql, written):
    assert check_sql(sql, clinic._columns, "sqlite") == written
    assert clinic.rows(sql)[1]


def test_a_statement_that_takes_too_long_is_interrupted(tmp_path, monkeypatch):
    (tmp_path / "n.csv").write_text("i\n" + "\n".join(map(str, range(2000))), encoding="utf-8")
    source = TableSource("n", CARD, tmp_path, WordEmbedder())
    monkeypatch.setattr(tables, "SECONDS", 0.2)
    with pytest.raises(KnowledgeError, match="took longer"):
        source.rows("SELECT COUNT(*) FROM n a, n b, n c WHERE a.i + b.i + c.i = 7")
    assert source.rows("SELECT COUNT(*) FROM n")[1] == [(2000,)]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("a,b\n1,2\n3\n", "line 3 has 1 cells"),
        ("a,A\n1,2\n", "two columns named A"),
        ("a,\n1,2\n", "without a name"),
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("1,2\n3,4\n", "without a name"),
        ("name\ncaf\xe9\n".encode("latin-1"), "utf-8"),
        ('a,b\n"1,2\n', "cannot be read"),
    ],
)
def test_a_csv_file_that_is_no_table_is_refused_with_a_remedy(write, content, what):
    with pytest.raises(KnowledgeError, match=what) as refused:
        TableSource("t", CARD, write("t.csv", content), WordEmbedder())
    assert refused.value.mend


@pytest.mark.parametrize("names", [["a-b.csv", "a_b.csv"], ["notes.txt"], ["sqlite_x.csv"]])
def test_a_folder_without_usable_tables_is_refused(write, names):
    for name in names:
        folder = write(name, "a,b\n1,2\n")
    with pytest.raises(KnowledgeError) as refused:
        TableSource("t", CARD, folder, WordEmbedder())
    assert refused.value.mend


@pytest.mark.parametrize(
    "url", ["sqlite:///absent.db", "nonsense://x", "postgresql+nothing://u:secret@h/d", "://", "absent-folder"]
)
def test_a_place_that_is_no_database_is_refused_without_its_password(url):
    with pytest.raises(KnowledgeError) as refused:
        TableSource("t", CARD, url, WordEmbedder())
    assert refused.value.mend
    assert "secret" not in str(refused.value)


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "x.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(KnowledgeError, match="cannot be read"):
        TableSource("t", CARD, f"sqlite:///{tmp_path / 'x.db'}", WordEmbedder())


def test_the_types_of_csv_columns_are_read_from_their_cells(write):
    folder = write("t.csv", "﻿id,code,n,share,day,word,open\n1,007,5,0.5,2025-01-02,x,yes\n2,010,,2,2025-01-03,y,no\n")
    columns = TableSource("t", CARD, folder, WordEmbedder()).schema.table("t").columns
    assert [c.kind for c in columns] == ["integer", "text", "integer", "real", "date", "text", "boolean"]


def test_the_schema_names_tables_columns_values_ranges_and_links(clinic, tmp_path):
    library = TableSource("records", CARD, place(LIBRARY, tmp_path), WordEmbedder())
    columns = {column.name: column for column in clinic.schema.table("visits").columns}
    assert columns["department"].values == ("Cardiology", "Dermatology", "Paediatrics")
    assert (columns["wait_minutes"].kind, columns["wait_minutes"].low, columns["wait_minutes"].high) == (
        "integer",
        9,
        75,
    )
    assert (columns["visited_on"].kind, columns["visited_on"].high) == ("date", "2025-06-21")
    assert library.schema.table("loans").foreign_keys == (ForeignKey("member_id", "members", "id"),)


def test_a_column_that_breaks_its_declared_type_is_read_as_text(tmp_path):
    opened = place("CREATE TABLE t (d DATE, n INTEGER); INSERT INTO t VALUES ('3/4/25','many'),('x',2)", tmp_path)
    source = TableSource("t", CARD, opened, WordEmbedder())
    assert [c.kind for c in source.schema.tables[0].columns] == ["text", "text"]
