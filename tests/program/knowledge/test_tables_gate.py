from __future__ import annotations

from pathlib import Path

import pytest
from tables_examples import CLINIC, place
from word_embedder import WordEmbedder

from program.errors import KnowledgeError
from program.knowledge import tables
from program.knowledge.sql_gate import check_sql
from program.knowledge.tables import TableSource
from program.passage import SourceCard

CARD = SourceCard("records", "tables", "records of the house")


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> TableSource:
    return TableSource("records", CARD, place(CLINIC, tmp_path_factory.mktemp("clinic")), WordEmbedder())


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
def test_the_gate_refuses_all_but_one_select_over_known_tables(clinic: TableSource, sql: str) -> None:
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
def test_the_gate_writes_a_good_statement_afresh(clinic: TableSource, sql: str, written: str) -> None:
    assert check_sql(sql, clinic.schema) == written
    assert clinic.rows(sql)[1]


def test_a_statement_that_takes_too_long_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "n.csv").write_text("i\n" + "\n".join(map(str, range(2000))), encoding="utf-8")
    source = TableSource("n", CARD, tmp_path, WordEmbedder())
    monkeypatch.setattr(tables, "SECONDS", 0.2)
    with pytest.raises(KnowledgeError, match="took longer"):
        source.rows("SELECT COUNT(*) FROM n a, n b, n c WHERE a.i + b.i + c.i = 7")
    assert source.rows("SELECT COUNT(*) FROM n")[1] == [(2000,)]
