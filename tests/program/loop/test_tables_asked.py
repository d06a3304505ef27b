"""A language model that writes is asked for the SQL of tables; an embedded one is not."""

import json

import pytest
from scripted import Scripted, ScriptedModels, passage

from optimize.compiler.replay import Record, Replay
from program import open_program
from program.passage import SourceCard
from tests.conftest import add_toml
from tests.support.provider import Script, serve
from tests.support.replies import obliging

CARDS = [SourceCard("records", "tables", "visits"), SourceCard("product", "documents", "kettles")]
SQL = "SELECT COUNT(*) AS visits FROM visits"
WRITTEN = passage("records/visits", "Rows selected from visits: 1.", method="sql")


def pool(find):
    own = [WRITTEN] if find.sql == SQL else [passage("records/visits", "Visits: count 3.", method="rows")]
    return [*own, passage("product/a.md#0")]


def asked(sql, **options):
    return Scripted(cards=CARDS, pool=pool, replies={"sql": sql, "relevant": 0.9}, **options)


def test_the_select_that_is_written_travels_with_the_search_and_its_rows_take_the_place_of_the_sources_own():
    program = asked(SQL)
    answer = program()
    assert program.models.inputs("sql") == [
        {"question": "How big is it?", "tables": "Table of records", "passages": []}
    ]
    assert [(find.sources, find.sql) for find in program.shelf.finds] == [
        (("records", "product"), ""),
        (("records",), SQL),
    ]
    assert "sql(1)" in answer.trace.path and answer.usage.calls == 2
    shown = [p.text for p in program.models.inputs("answer")[0]["passages"]]
    assert WRITTEN.text in shown and "Visits: count 3." not in shown


@pytest.mark.parametrize(
    ("sql", "note"),
    [("DROP TABLE visits", "sql refused or empty: records"), ("", "sql(0)"), (RuntimeError("down"), "no sql: ")],
)
def test_without_a_select_that_finds_rows_the_sources_own_stay_and_the_path_says_so(sql, note):
    program = asked(sql)
    answer = program()
    assert [one for one in answer.trace.path if one.startswith(note)]
    assert "Visits: count 3." in [p.text for p in program.models.inputs("answer")[0]["passages"]]


def test_tables_that_the_plan_does_not_want_cost_no_call():
    program = asked(SQL, models=ScriptedModels(base_records=0.1, base_product=0.9))
    program.models.replies.update(base_records=0.1, base_product=0.9)
    program()
    assert program.models.inputs("sql") == []


def test_an_embedded_writer_is_not_asked(monkeypatch):
    monkeypatch.setattr("program.loop.rag.is_embedded", lambda client: True)
    program = asked(SQL)
    assert program.rag.tables == {} and not hasattr(program.rag, "retriever")


def test_a_replay_asks_as_the_program_does(own_shop):
    (own_shop / "visits").mkdir()
    (own_shop / "visits" / "visits.csv").write_text("town,guests\nYork,3\nLeith,4\n")

    def reply(body):
        asks_sql = "Write the one SELECT" in body["messages"][0]["content"]
        return json.dumps({"sql": "SELECT MAX(guests) AS most FROM visits"}) if asks_sql else obliging(body)

    with serve(Script(), reply) as provider:
        settings = '[knowledge.visits]\nkind = "tables"\npath = "visits"\n[models]\nwrite = "openai/x"\n'
        settings += f'[provider]\nfallback = false\n[provider.model."openai/x"]\napi_base = "{provider.url}"\n'
        program = open_program(add_toml(own_shop, settings))
        program.policy.turn(route=0.0)
        answer = program("Which town had most guests?")
        assert "sql(1)" in answer.trace.path
        assert Replay(program, Record())("Which town had most guests?").trace.path == answer.trace.path
