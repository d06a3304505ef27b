"""What holds of a real PostgreSQL, MySQL or MariaDB server: it is only read, and no look-up holds it up."""

import os

import pytest
import sqlalchemy as sa

from program.errors import KnowledgeError
from program.knowledge.tables import Database
from program.settings import TablesSettings

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

pytestmark = [pytest.mark.server, pytest.mark.skipif(not URLS, reason="SQL_URLS is not set")]


@pytest.fixture(scope="module", params=URLS)
def server(request):
    engine = sa.create_engine(request.param)
    with engine.begin() as connection:
        for statement in FILLED:
            connection.exec_driver_sql(statement)
    yield engine, Database("shop", TablesSettings(kind="tables", url=request.param))
    engine.dispose()


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
    monkeypatch.setattr("program.knowledge.tables.check_sql", lambda sql, *_: sql)
    for statement in statements:
        with pytest.raises(KnowledgeError, match=r"(?i)read.only transaction"):
            shop.rows(statement)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM orders").scalar_one() == 2


def test_a_look_up_of_minutes_is_cut_off_and_the_next_one_answered(server, monkeypatch):
    _, shop = server
    monkeypatch.setattr("program.knowledge.tables.check_sql", lambda sql, *_: sql)  # it names more tables than it may
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
