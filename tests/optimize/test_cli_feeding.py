"""What the command line tells of feeding: files left out, sources that fail, sets brought in."""

import json

from tests.conftest import add_toml
from tests.optimize.conftest import invoke, invoke_json


def test_index_names_and_counts_what_it_skipped(own_shop):
    (own_shop / "knowledge/product/manual.pdf").write_bytes(b"%PDF-1.7 broken")
    (own_shop / "knowledge/product/logo.png").write_bytes(b"\x89PNG")
    told = invoke("index", own_shop)
    assert told.exit_code == 0
    assert "2 skipped:" in told.stderr and "skipped product/manual.pdf: no readable .pdf file" in told.stderr
    report = invoke_json("index", own_shop)
    assert [skipped["path"] for skipped in report["skipped"]] == ["product/logo.png", "product/manual.pdf"]
    assert report["unchanged"]


def test_search_tells_which_source_it_had_to_do_without(own_shop):
    add_toml(own_shop, '[knowledge.stock]\nkind = "http"\nurl = "http://127.0.0.1:9/{query}"\ntext = "/t"')
    told = invoke("search", own_shop, "How often is the kettle descaled?", "--json")
    assert told.exit_code == 0
    assert "without stock: The JSON API of stock leads to 127.0.0.1" in told.stderr
    assert json.loads(told.stdout)[0]["id"] == "product/kettles.md#descaling"


def test_an_imported_set_is_counted_checked_and_searched_and_what_is_wrong_with_it_told(tmp_path):
    source, project = tmp_path / "faq.csv", tmp_path / "project"
    source.write_text("question,answer,context\nWhere is the Wren made?,Oslo,The Wren kettle is made in Oslo.\n")
    told = invoke("data", "import", project, source)
    assert told.stdout.startswith("1 question and 1 passage of csv into ")
    checked = invoke("data", "check", project)
    assert checked.exit_code == 0 and "1 question: 0 errors, " in checked.stdout
    found = invoke_json("search", project, "Where is the Wren made?")
    assert [p["id"] for p in found] == ["csv/corpus.jsonl#p1"]
    labelled = next(project.glob("*.jsonl"))
    labelled.write_text(labelled.read_text().replace("csv/corpus.jsonl#p1", "csv/corpus.jsonl#p9"))
    checked = invoke("data", "check", project)
    assert checked.exit_code == 1 and "1 question: 1 error, " in checked.stdout
    assert "1 label is not in order" in str(invoke("compile", project).exception)
    report = invoke_json("data", "import", tmp_path / "again", source)
    assert (report["format"], report["base"], report["questions"], report["passages"]) == ("csv", "csv", 1, 1)
