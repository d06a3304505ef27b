"""Looks: every sight of scores on a question counts, whoever had it."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from typer.testing import CliRunner

from optimize.abtest.offline import compare_offline
from optimize.cli.main import app
from optimize.compiler.compile import compile_project
from optimize.registry.aliases import promote_version
from optimize.registry.versions import LOOKS, note_test_use, verify_version
from program.knowledge.project import Project
from program.serve.reference import resolve


def compile_(folder, **options):
    return compile_project(Project.open(folder), **{"trials": 2, **options})


def evaluated(folder, *options):
    done = CliRunner().invoke(app, ["eval", str(folder), "--json", *options])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["looks"]


def test_an_evaluation_and_an_offline_test_are_looks_too_and_those_at_other_questions_are_not(own_shop):
    assert evaluated(own_shop, "--split", "dev") == 1
    first = compile_(own_shop)
    assert first.looks == 1
    assert evaluated(own_shop) == 2
    compare_offline([first.parent, first.reference], root=own_shop / "artifacts")
    labelled = own_shop / "labelled.jsonl"  # a question changed does not begin the count anew
    more = labelled.read_text().splitlines()[-2].replace('"q5"', '"q9"').replace("How many days", "How long")
    labelled.write_text(labelled.read_text() + more + "\n")
    assert compile_(own_shop).looks == 4


def test_the_ledger_begins_at_nothing_is_printed_and_counts_a_measured_search_too(own_shop):
    def told():
        return json.loads(CliRunner().invoke(app, ["data", "stats", str(own_shop), "--json"]).stdout)["test_looks"]

    assert told() == 0
    assert CliRunner().invoke(app, ["eval-search", str(own_shop), "--split", "test"]).exit_code == 0
    assert told() == 1
    assert evaluated(own_shop) == 2
    assert told() == 2
    shown = CliRunner().invoke(app, ["data", "stats", str(own_shop)]).stdout
    assert "The test split was looked at 2 times." in shown


def test_a_clone_without_the_ledger_counts_what_its_versions_tell(own_shop):
    assert compile_(own_shop).looks == 1
    (own_shop / "artifacts" / "shop" / LOOKS).unlink()
    assert compile_(own_shop).looks == 2


@pytest.mark.parametrize(("resume", "looks"), [(False, 2), (True, 1)])
def test_a_compile_killed_in_its_test_has_looked_once_resumed_or_not(own_shop, monkeypatch, resume, looks):
    def killed(*arguments, **named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("optimize.compiler.compile.evaluate_side_by_side", killed)
        compile_(own_shop)
    assert compile_(own_shop, resume=resume).looks == looks


def test_a_version_that_cannot_be_read_is_left_out_and_a_compile_is_sealed_all_the_same(own_shop, caplog):
    root = own_shop / "artifacts"
    first = compile_(own_shop)
    promote_version(first.reference, "production", root=root)
    (root / "shop" / "aliases" / "production.json").write_bytes(b"{")
    (resolve(first.parent, root).path / "manifest.json").write_bytes(b"")
    second = compile_(own_shop)
    assert second.looks == 2 and verify_version(second.reference, root).sound
    assert len([r for r in caplog.records if "shop@v1" in r.getMessage() and "is left out" in r.getMessage()]) == 1


def test_looks_at_once_count_one_by_one_and_a_line_cut_off_and_a_full_folder_harm_nobody(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda n: note_test_use(tmp_path, "other", f"worker {n}", ["Why?"]), range(24)))
    assert sorted(numbers) == [*range(1, 25)]
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / LOOKS).write_bytes(b'{"look": "a", "by"')
    assert [note_test_use(tmp_path, "shop", "eval", ["How much?"]) for _ in range(2)] == [1, 2]
    (tmp_path / "file").write_text("")
    assert note_test_use(tmp_path / "file", "shop", "eval", ["How much?"]) == 1
