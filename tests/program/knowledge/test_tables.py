"""Rows of databases and CSV files are passages, and a SELECT over them is checked and run; bad tables are named."""

import csv
import hashlib
import io
import sqlite3
from pathlib import Path

import pytest
from word_embedder import WordEmbedder

from ragc.errors import KnowledgeError
from ragc.knowledge import tables
from ragc.knowledge.index.build import build_index
from ragc.knowledge.ingest.folder import read_base
from ragc.knowledge.library import Library
from ragc.knowledge.sql_gate import align_values, check_sql
from ragc.knowledge.tables import Database
from ragc.passage import Filters
from ragc.settings import TablesSettings

DATABASES = Path(__file__).parent / "databases"


def base(place, **more):
    return TablesSettings(kind="tables", **{"url" if "://" in str(place) else "path": str(place)}, **more)


def opened(place):
    return Database("records", base(place))


def made(script, folder):
    """The URL of a SQLite file that a script made."""
    with sqlite3.connect(folder / "records.db") as connection:
        connection.executescript(script)
    return f"sqlite:///{folder / 'records.db'}"


@pytest.fixture(scope="module")
def clinic():
    return opened(DATABASES / "clinic")


@pytest.fixture(scope="module")
def lending(tmp_path_factory):
    return made((DATABASES / "library.sql").read_text(), tmp_path_factory.mktemp("library"))


def library(place, folder):
    build_index({"records": base(place)}, folder, WordEmbedder())
    return Library.open({"records": base(place)}, folder, WordEmbedder())


def test_a_row_of_a_database_or_a_csv_file_is_a_passage_behind_its_key_that_names_the_row_it_points_at(lending):
    contents = opened(lending).read_documents()
    texts = {passage.id: passage.text for passage in contents.passages}
    assert [document.path for document in contents.documents] == ["records/loans", "records/members"]
    assert texts["records/members#2"] == "name: Bo Lind; town: York; joined on: 2020-09-14; age: 61; id: 2"
    loan = "member: Bo Lind; title: Moor Songs; genre: poetry; borrowed on: 2024-01-09; returned on: 2024-02-28"
    assert texts["records/loans#502"] == f"{loan}; fine gbp: 4.5; loan id: 502; member id: 2"
    about = {(p.source, p.title, p.link) for p in contents.documents[1].passages}
    assert about == {("records", "members", "records/members")} and contents.flaws == []
    first = read_base("records", base(DATABASES / "clinic")).passages[0]
    assert (first.id, first.link) == ("records/visits#row-1", "records/visits.csv:2-2")
    assert first.text.startswith("visit ref: V-1001; visited on: 2025-01-08; department: ")


MANY = "CREATE TABLE t (name TEXT); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 1200)"


@pytest.mark.parametrize("kind", ["database", "csv"])
def test_the_rows_past_the_limit_are_counted_in_a_flaw_and_a_select_reads_them(kind, tmp_path):
    if kind == "database":
        few = base(made(f"{MANY} INSERT INTO t SELECT 'n' || i FROM n;", tmp_path), max_rows=5)
    else:
        (tmp_path / "t.csv").write_text("name,kind\n" + "".join(f"n{n},a\n" for n in range(1200)), encoding="utf-8")
        few = base(tmp_path, max_rows=5)
    database = Database("records", few)
    contents = database.read_documents() if kind == "database" else read_base("records", few)
    (flaw,) = contents.flaws
    assert flaw.what == "has 1,200 rows, of which the first 5 are passages" and flaw.lost and "max_rows" in flaw.mend
    assert len(contents.passages) == 5 and database.rows("SELECT COUNT(*) FROM t")[1] == [(1200,)]


def test_a_plain_question_finds_the_row_and_a_select_is_run_in_its_place(tmp_path):
    found = library(made((DATABASES / "library.sql").read_text(), tmp_path), tmp_path / "index")
    assert found.search("Who borrowed Iron Year?", k=1)[0].id == "records/loans#503"
    assert found.describe_tables("records").startswith("Dialect: sqlite\n\nTable loans\n")
    counted = Filters(sql="SELECT COUNT(*) AS loans FROM loans")
    (passage,) = found.candidates("How many loans?", filters=counted)
    assert (passage.id, passage.title, passage.text) == ("records/loans", "loans > loans", "loans: 8")
    assert (passage.method, passage.reason) == ("sql", counted.sql)
    for sql in ("DROP TABLE loans", "SELECT x FROM loans", "SELECT title FROM loans WHERE title = 'Nothing'"):
        assert found.candidates("How many loans?", filters=Filters(sql=sql)) == []
    (tmp_path / "records.db").unlink()
    found = Library.open({"records": base(f"sqlite:///{tmp_path / 'records.db'}")}, tmp_path / "index", WordEmbedder())
    assert found.describe_tables("records") == "" and found.search("Who borrowed Iron Year?", k=1)


def test_the_title_says_how_many_rows_of_a_select_are_shown(tmp_path):
    (tmp_path / "races.csv").write_text("\n".join(["race", *(f"r{n}" for n in range(41))]), encoding="utf-8")
    (passage,) = opened(tmp_path).select_passages("SELECT race FROM races")
    assert passage.title == "races > race (the first 40 of 41 rows)" and len(passage.text.splitlines()) == 40


def test_a_select_leaves_the_database_file_as_it_was(tmp_path):
    place = made((DATABASES / "library.sql").read_text(), tmp_path)
    file = tmp_path / "records.db"
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    file.chmod(0o444)
    source = opened(place)
    assert source.rows("SELECT * FROM members")[1] and source.read_documents().passages
    with pytest.raises(KnowledgeError):
        source.rows("DELETE FROM members")
    assert hashlib.sha256(file.read_bytes()).hexdigest() == before
    assert [p.name for p in tmp_path.iterdir()] == ["records.db"]


def test_the_schema_is_described_with_kinds_ranges_values_and_keys(lending, tmp_path):
    card = opened(lending).schema.describe()
    genres, fines = "  genre text: crime, history, nature, poetry\n", "  fine_gbp real from 0 to 6.25\n"
    for part in ("Dialect: sqlite\n\nTable loans\n", genres, fines, "  member_id refers to members.id"):
        assert part in card
    odd = made("CREATE TABLE t (d DATE, n INTEGER); INSERT INTO t VALUES ('3/4/25','many'),('x',2)", tmp_path)
    assert [c.kind for c in opened(odd).schema.tables[0].columns] == ["text", "text"], "what breaks its type is text"


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


VALUES = {
    "orders": {"country": ["United Kingdom", "Ireland"], "product": ["Bridge Rack", "Fob 20"]},
    "plans": {"plan": ["Pro"]},
}
SPELT = [
    ("country = 'ireland'", "country = 'Ireland'"),
    ("'IRELAND' = o.country", "'Ireland' = o.country"),
    ("product IN ('bridge racks', 'Fob 20')", "product IN ('Bridge Rack', 'Fob 20')"),
    ("product <> 'Bridge Racks'", "product <> 'Bridge Rack'"),
    ("country = 'UK'", "country = 'UK'"),
    ("plan = 'pro'", "plan = 'pro'"),
    ("quantity = 3", "quantity = 3"),
    ("note = 'ireland'", "note = 'ireland'"),
]


@pytest.mark.parametrize(("written", "spelt"), SPELT)
def test_a_text_that_a_column_does_not_hold_is_spelt_as_it_is_there_and_what_is_like_none_stays(written, spelt):
    query = "SELECT COUNT(*) FROM orders AS o WHERE {}"
    assert align_values(query.format(written), VALUES, "sqlite") == query.format(spelt)


DEEP = f"SELECT {'(' * 3000}1{')' * 3000} FROM orders"


@pytest.mark.parametrize(
    "sql", ["SELECT FROM WHERE", "SELECT 1 FROM orders; DROP TABLE orders", "DROP TABLE orders", DEEP]
)
def test_what_is_not_one_select_is_refused_before_a_text_in_it_is_spelt(clinic, sql):
    with pytest.raises(KnowledgeError):
        align_values(sql, VALUES, "sqlite")
    assert clinic.select_passages(sql) == []


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
    "a,b\n1,2\n3,4,5\n6,7\n8,9\n": ("1 row with more cells than the header; no SELECT reads it", 3),
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
BROKEN = {"": "holds no text", "\n\n": "holds no text", b"PK\0\1": "binary", b"\xff\xfea": "broken UTF-16 text"}


@pytest.mark.parametrize("content", ODD)
def test_what_is_odd_about_a_table_is_told_with_its_line_and_the_table_is_read(write, content):
    what, line = ODD[content]
    folder = write("t.csv", content)
    source = opened(folder)
    flaws = [*read_base("records", base(folder)).flaws, *source.flaws]
    told = [flaw for flaw in flaws if what in flaw.what]
    assert [(flaw.line, flaw.path, flaw.unread) for flaw in told] == [(line, "records/t.csv", False)], flaws
    assert all(flaw.mend for flaw in told) and len(source.schema.table("t").columns) == 2


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_table_is_left_out_with_its_reason_and_the_others_are_read(write, content):
    write("broken.csv", content)
    write("letter.xlsx", b"PK")
    for name in ("a-b.csv", "a_b.csv", "sqlite_x.csv"):  # two of one name, and one that SQLite keeps for itself
        write(name, "a,b\n1,2\n")
    folder = write("races.csv", "race,laps\na,5\nb,9\n")
    contents, source = read_base("records", base(folder)), opened(folder)
    read = [document.path for document in contents.documents if document.passages]
    assert read == ["records/a_b", "records/races", "records/sqlite_x"]
    assert [table.name for table in source.schema.tables] == ["a_b", "races"]
    told = {flaw.path: flaw.what for flaw in [*contents.flaws, *source.flaws]}
    assert BROKEN[content] in told.pop("records/broken.csv")
    what = dict.fromkeys(("records/a_b.csv", "records/letter.xlsx"), "was not read")
    assert {path: one.split(":")[0] for path, one in told.items()} == {
        **what, "records/sqlite_x.csv": "makes no table for SQL",
    }  # fmt: skip


@pytest.mark.parametrize("content", ["", "name,price\n"])
def test_a_base_without_a_row_is_refused(write, content):
    write("notes.txt", "a,b\n1,2\n")
    with pytest.raises(KnowledgeError, match="holds no text") as refused:
        read_base("records", base(write("t.csv", content)))
    assert ".csv, .tsv" in refused.value.mend


@pytest.mark.parametrize(
    ("cells", "total"),
    [
        (["$10.00", "$1,200.50", "n/a"], 1210.5),
        (["1.200,50 EUR", "EUR 45", "-", "7 €"], 1252.5),
        (["1,200.50", "1,200", "3"], 2403.5),
        (["1.200,50", "1.200", "3"], 2403.5),
        (["12,5", "0,25", ""], 12.75),
        (["1 200,50", "(3,00)", "−1"], 1196.5),
        (["CHF 1’200.50", "10.-"], 1210.5),
        (["5", "soon", "6", "7"], 18),
    ],
)
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_amounts_are_added_up_and_rows_show_them_as_they_are_written(write, cells, total, separator):
    stream, items = io.StringIO(), [(f"item{n}", cell) for n, cell in enumerate(cells)]
    csv.writer(stream, delimiter=separator).writerows([["item", "price"], *items])
    folder = write("orders.csv", stream.getvalue())
    source = opened(folder)
    assert source.rows("SELECT SUM(price) FROM orders")[1] == [(total,)]
    rows = [f"item: {item}" + f"; price: {cell}" * bool(cell) for item, cell in items]
    (every,) = source.select_passages("SELECT * FROM orders")
    assert every.text.splitlines() == [passage.text for passage in read_base("records", base(folder)).passages] == rows
    assert [column.name for column in source.schema.table("orders").columns] == ["item", "price"]


@pytest.mark.parametrize(
    "url",
    "sqlite:///notes.db sqlite:///absent.db nonsense://x postgresql+nothing://u:secret@h/d :// absent-folder".split(),
)
def test_a_place_that_is_no_database_is_refused_without_its_password(url):
    with pytest.raises(KnowledgeError) as refused:
        opened(url).read_documents() if "://" in url else read_base("records", base(url))
    assert refused.value.mend and "secret" not in str(refused.value)


def test_the_types_of_csv_columns_are_read_from_their_cells(write):
    folder = write("t.csv", "﻿id,code,n,share,day,word,open\n1,007,5,0.5,2025-01-02,x,yes\n2,010,,2,2025-01-03,y,no\n")
    columns = opened(folder).schema.table("t").columns
    assert [c.kind for c in columns] == ["integer", "text", "integer", "real", "date", "text", "boolean"]
