"""What holds of a real PostgreSQL, MySQL or MariaDB server: it is only read, and no look-up holds it up.

PostgreSQL is started where it is installed; `SQL_URLS` names more servers.
"""

import os

import pytest
import sqlalchemy as sa

from ragc.errors import KnowledgeError
from ragc.knowledge.project import Project
from ragc.knowledge.tables import Database
from ragc.passage import Filters
from ragc.serve.opening import open_library
from ragc.settings import TablesSettings
from tests.support import postgres

URLS = os.environ.get("SQL_URLS", "").split()  # of empty databases, such as postgresql+psycopg://me@127.0.0.1/empty
FILLED = [
    "DROP TABLE IF EXISTS orders",
    "DROP TABLE IF EXISTS digits",
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer VARCHAR(40), total NUMERIC(10,2), paid DATE)",
    "INSERT INTO orders VALUES (1, 'Ada', 10.5, '2026-01-02'), (2, 'Bo', 20, '2026-02-03')",
    "CREATE TABLE digits (n INTEGER PRIMARY KEY)",
    "INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)",
]
MILLIONS = ", ".join(f"digits AS d{n}" for n in range(6))
BILLIONS = f"(SELECT d0.n FROM {MILLIONS}) AS a, (SELECT d0.n FROM {MILLIONS}) AS b"


@pytest.fixture(scope="module")
def postgresql():
    """The URL of an empty database of a PostgreSQL server."""
    pytest.importorskip("psycopg")
    if not postgres.PROGRAMS:
        pytest.skip(postgres.WHY_NOT)
    with postgres.serving() as url:
        yield url


@pytest.fixture(
    scope="module",
    params=["postgresql", *URLS],
    ids=lambda url: sa.make_url(url).get_backend_name() if ":" in url else url,
)
def server(request):
    url = request.param if ":" in request.param else request.getfixturevalue(request.param)
    engine = fill(url, FILLED)
    yield engine, Database("shop", TablesSettings(kind="tables", url=url))
    engine.dispose()


def fill(url, statements):
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    return engine


def test_rows_are_read_as_passages_and_by_select(server):
    _, shop = server
    assert [len(document.passages) for document in shop.read_documents().documents] == [10, 2]
    assert shop.rows("SELECT customer FROM orders WHERE paid > '2026-01-15' AND customer <> 'a:b%c'")[1] == [("Bo",)]
    assert len(shop.rows(f"SELECT d0.n FROM {MILLIONS}")[1]) == 200


def test_no_statement_writes_even_past_the_check(server, monkeypatch):
    engine, shop = server
    statements = ("DELETE FROM orders", "DROP TABLE orders", "INSERT INTO orders VALUES (3, 'Cy', 1, NULL)")
    for statement in statements:
        with pytest.raises(KnowledgeError, match="not exactly one SELECT"):
            shop.rows(statement)
    monkeypatch.setattr("ragc.knowledge.tables.check_sql", lambda sql, *_: sql)
    for statement in statements:
        with pytest.raises(KnowledgeError, match=r"(?i)read.only transaction"):
            shop.rows(statement)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM orders").scalar_one() == 2


def test_a_look_up_of_minutes_is_cut_off_and_the_next_one_answered(server, monkeypatch):
    _, shop = server
    monkeypatch.setattr("ragc.knowledge.tables.check_sql", lambda sql, *_: sql)  # it names more tables than it may
    with pytest.raises(KnowledgeError, match="took longer than 2 seconds"):
        shop.rows(f"SELECT COUNT(*) FROM {BILLIONS} WHERE a.n + b.n > 5")
    assert shop.rows("SELECT COUNT(*) FROM orders")[1] == [(2,)]


def test_a_connection_that_died_is_replaced(server):
    engine, shop = server
    shop.rows("SELECT COUNT(*) FROM orders")
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
        else:
            others = "SELECT id FROM information_schema.processlist WHERE id <> connection_id() AND db = database()"
            for (id_,) in connection.exec_driver_sql(others).all():
                connection.exec_driver_sql(f"KILL {id_}")
    assert shop.rows("SELECT COUNT(*) FROM orders")[1] == [(2,)]


STAFF = [
    "CREATE SCHEMA staff",
    "SET search_path TO staff",
    "CREATE TYPE grp AS ENUM ('finance', 'board')",
    "CREATE TABLE by_text (id int PRIMARY KEY, name text, pay numeric(10,2), readers text)",
    "INSERT INTO by_text VALUES (1, 'open', 5, NULL), (2, 'clerk', 7, 'finance'), (3, 'chair', 50, 'board, finance'),"
    " (4, 'caps', 11, 'Finance'), (5, 'quoted', 13, 'Finance Interns')",
    "CREATE TABLE by_list (id int PRIMARY KEY, name text, readers text[])",
    "INSERT INTO by_list VALUES (1, 'open', NULL), (2, 'clerk', '{finance}'), (3, 'chair', '{board,finance}'),"
    " (4, 'nobody', '{}'), (5, 'quoted', ARRAY['Finance Interns'])",
    "CREATE TABLE by_json (id int PRIMARY KEY, name text, readers jsonb)",
    """INSERT INTO by_json VALUES (1, 'open', NULL), (2, 'clerk', '["finance"]'), (3, 'chair', '["board", "finance"]'),"""
    """ (4, 'nobody', '[]'), (5, 'quoted', '"Finance Interns"')""",
    "CREATE TABLE by_enum (id int PRIMARY KEY, name text, readers grp)",
    "INSERT INTO by_enum VALUES (1, 'open', NULL), (2, 'clerk', 'finance')",
    """CREATE TABLE "By Name" ("Id" uuid PRIMARY KEY DEFAULT gen_random_uuid(), "Full Name" text, "Readers" varchar(20))""",
    """INSERT INTO "By Name" ("Full Name", "Readers") VALUES ('open', NULL), ('clerk', 'finance')""",
    "CREATE VIEW all_pay AS SELECT name, pay FROM by_text",
    "CREATE VIEW told AS SELECT name, pay, readers FROM by_text",
    "CREATE TABLE kept (id int PRIMARY KEY, name text)",
    "INSERT INTO kept VALUES (1, 'zqkept')",
    "CREATE ROLE reader LOGIN",
    "GRANT USAGE ON SCHEMA staff TO reader",
    'GRANT SELECT ON by_text, by_list, by_json, by_enum, "By Name", all_pay, told TO reader',
]
SEEN = {
    (): {"open"},
    ("finance",): {"open", "clerk", "chair"},
    ("board",): {"open", "chair"},
    ("Finance",): {"open", "caps"},
    ("Finance Interns",): {"open", "quoted"},
    ("finance", "board", "Finance", "Finance Interns", "kept"): {"open", "clerk", "chair", "caps", "quoted"},
}
HELD = {
    "by_text": {"open", "clerk", "chair", "caps", "quoted"},
    "by_list": {"open", "clerk", "chair", "quoted"},
    "by_json": {"open", "clerk", "chair", "quoted"},
    "by_enum": {"open", "clerk"},
    '"By Name"': {"open", "clerk"},
    "told": {"open", "clerk", "chair", "caps", "quoted"},
}


@pytest.fixture(scope="module")
def staff(postgresql, tmp_path_factory):
    """A project whose rows are for groups, over a database of which its user may read most."""
    fill(postgresql, STAFF).dispose()
    folder = tmp_path_factory.mktemp("staff")
    url = sa.make_url(postgresql).set(username="reader", query={"options": "-c search_path=staff"})
    base = f'kind = "tables"\nurl = "{url.render_as_string(hide_password=False)}"\n'
    (folder / "ragc.toml").write_text(f'name = "staff"\n[trace]\nenabled = false\n[knowledge.pay]\n{base}')
    return open_library(Project.open(folder))


def select(library, sql):
    return "".join(passage.text for passage in library.candidates("pay", filters=Filters(sql=sql)))


@pytest.mark.parametrize("groups", SEEN, ids=lambda groups: "+".join(groups) or "none")
def test_each_asker_is_told_the_rows_for_their_groups_however_a_column_says_it(staff, groups):
    library, names = staff.readable_by(groups), {"open", "clerk", "chair", "caps", "quoted", "nobody", "zqkept"}
    for table, held in HELD.items():
        column, name = ('"Full Name"', "By Name") if "By" in table else ("name", table)
        rows = " ".join(p.text for p in library.passages() if p.id.startswith(f"pay/{name}#"))
        for told in (select(library, f"SELECT {column} FROM {table}"), *([rows] if table != "told" else [])):
            assert {word for word in names if word in told} == SEEN[groups] & held, (table, told)
    assert f"n: {len(SEEN[groups])}" in select(library, "SELECT COUNT(*) AS n FROM by_text")
    refused = (
        "SELECT name FROM all_pay",
        "SELECT readers FROM by_text",
        "SELECT name FROM kept",
        "SELECT name FROM staff.kept",
    )
    assert [sql for sql in refused if select(library, sql)] == []
    assert all(word not in library.describe_tables("pay") for word in (names - SEEN[groups]) | {"readers"})


def test_a_table_that_its_user_may_not_read_is_told_of_and_the_others_are_read(staff, postgresql):
    url = sa.make_url(postgresql).set(username="reader", query={"options": "-c search_path=staff"})
    contents = Database(
        "pay", TablesSettings(kind="tables", url=url.render_as_string(hide_password=False))
    ).read_documents()
    assert "zqkept" not in str(contents.passages) and len(contents.documents) == 5
    (flaw,) = contents.flaws
    assert "may not read: kept" in str(flaw) and not flaw.lost


ODD = [
    "CREATE SCHEMA odd",
    "SET search_path TO odd",
    "CREATE TABLE things (id int PRIMARY KEY, j json, b jsonb, p point, x xml, i interval, u uuid, tags text[], n int[],"
    " raw bytea, r int4range, t time, m money, at timestamptz, price numeric(8,2), ok boolean)",
    """INSERT INTO things VALUES (1, '{"a": [1, 2]}', '["b"]', '(1,2)', NULL, '1 day', gen_random_uuid(), '{x,y}', '{1,2}', 'abc',"""
    """ '[1,5)', '10:00', 5, '2026-03-01 12:00+00', 4.50, true), (2, NULL, '"b"', NULL, NULL, NULL, gen_random_uuid(), '{}', NULL,"""
    """ NULL, NULL, NULL, NULL, NULL, 0.25, NULL)""",
]


def test_columns_of_every_type_are_read_and_selected(postgresql):
    fill(postgresql, ODD).dispose()
    url = sa.make_url(postgresql).set(query={"options": "-c search_path=odd"}).render_as_string(hide_password=False)
    things = Database("odd", TablesSettings(kind="tables", url=url))
    first, second = things.read_documents().passages
    for told in (
        'j: {"a": [1, 2]}',
        'tags: ["x", "y"]',
        "n: [1, 2]",
        "at: 2026-03-01",
        "price: 4.50",
        "ok: True",
        "p: (1,2)",
    ):
        assert told in first.text
    assert "price: 0.25" in second.text and "b: b" in second.text
    for sql, told in {
        "SELECT tags, j FROM things WHERE id = 1": 'tags: ["x", "y"]; j: {"a": [1, 2]}',
        "SELECT SUM(price) AS total FROM things": "total: 4.75",
        "SELECT AVG(price) AS mean FROM things": "mean: 2.375",
        "SELECT SUM(price) / 3 AS third FROM things": "third: 1.5833",
        "SELECT MAX(price) AS most FROM things": "most: 4.50",
    }.items():
        assert [passage.text for passage in things.select_passages(sql)] == [told]
