"""What the command line tells of feeding: files left out, sources that fail, sets brought in."""

import json

from typer.testing import CliRunner

from optimize.cli.main import app

RUNNER = CliRunner()


def test_index_names_and_counts_what_it_skipped(own_shop):
    (own_shop / "knowledge/product/manual.pdf").write_bytes(b"%PDF-1.7 broken")
    (own_shop / "knowledge/product/logo.png").write_bytes(b"\x89PNG")
    told = RUNNER.invoke(app, ["index", str(own_shop)])
    assert told.exit_code == 0
    assert "2 skipped:" in told.stderr and "skipped product/manual.pdf: no readable .pdf file" in told.stderr
    report = json.loads(RUNNER.invoke(app, ["index", str(own_shop), "--json"]).stdout)
    assert [skipped["path"] for skipped in report["skipped"]] == ["product/logo.png", "product/manual.pdf"]
    assert report["unchanged"]


def test_search_tells_which_source_it_had_to_do_without(own_shop):
    toml = own_shop / "ragc.toml"
    toml.write_text(
        toml.read_text() + '[knowledge.stock]\nkind = "http"\nurl = "http://127.0.0.1:9/{query}"\ntext = "/t"\n'
    )
    told = RUNNER.invoke(app, ["search", str(own_shop), "How often is the kettle descaled?", "--json"])
    assert told.exit_code == 0
    assert "without stock: The JSON API of stock leads to 127.0.0.1" in told.stderr
    assert json.loads(told.stdout)[0]["id"] == "product/kettles.md#descaling"


def test_an_imported_set_passes_the_check_and_can_be_searched(tmp_path):
    source, project = tmp_path / "faq.csv", str(tmp_path / "project")
    source.write_text("question,answer,context\nWhere is the Wren made?,Oslo,The Wren kettle is made in Oslo.\n")
    report = json.loads(RUNNER.invoke(app, ["data", "import", project, str(source), "--json"]).stdout)
    assert (report["format"], report["base"], report["questions"], report["passages"]) == ("csv", "csv", 1, 1)
    assert RUNNER.invoke(app, ["data", "check", project]).exit_code == 0
    found = json.loads(RUNNER.invoke(app, ["search", project, "Where is the Wren made?", "--json"]).stdout)
    assert [p["id"] for p in found] == ["csv/corpus.jsonl#p1"]


def test_one_of_a_thing_is_told_in_the_singular(tmp_path):
    source, project = tmp_path / "faq.csv", tmp_path / "project"
    source.write_text("question,answer,context\nWhere is the Wren made?,Oslo,The Wren kettle is made in Oslo.\n")
    told = RUNNER.invoke(app, ["data", "import", str(project), str(source)])
    assert told.stdout.startswith("1 question and 1 passage of csv into ")
    assert "1 question: 0 errors, " in RUNNER.invoke(app, ["data", "check", str(project)]).stdout
    labelled = next(project.glob("*.jsonl"))
    labelled.write_text(labelled.read_text().replace("csv/corpus.jsonl#p1", "csv/corpus.jsonl#p9"))
    checked = RUNNER.invoke(app, ["data", "check", str(project)])
    assert checked.exit_code == 1 and "1 question: 1 error, " in checked.stdout
    assert "1 label is not in order" in str(RUNNER.invoke(app, ["compile", str(project)]).exception)
