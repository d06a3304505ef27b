"""Looks: every sight of scores on a question counts, whoever had it."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from optimize.abtest.offline import compare_offline
from optimize.registry.aliases import promote_version
from optimize.registry.versions import LOOKS, note_test_use, verify_version
from program.serve.reference import resolve
from tests.optimize.conftest import compile_, invoke, invoke_json


def looks_of(folder, *options):
    return invoke_json("eval", folder, *options)["looks"]


def test_an_evaluation_and_an_offline_test_are_looks_too_and_those_at_other_questions_are_not(own_shop):
    assert looks_of(own_shop, "--split", "dev") == 1
    first = compile_(own_shop)
    assert first.looks == 1
    assert looks_of(own_shop) == 2
    compare_offline([first.parent, first.reference], root=own_shop / "artifacts")
    labelled = own_shop / "labelled.jsonl"  # a question changed does not begin the count anew
    more = labelled.read_text().splitlines()[-2].replace('"q5"', '"q9"').replace("How many days", "How long")
    labelled.write_text(labelled.read_text() + more + "\n")
    assert compile_(own_shop).looks == 4


def test_the_ledger_begins_at_nothing_is_printed_and_counts_a_measured_search_too(own_shop):
    def told():
        return invoke_json("data", "stats", own_shop)["test_looks"]

    assert told() == 0
    assert invoke("eval-search", own_shop, "--split", "test").exit_code == 0
    assert told() == 1
    assert looks_of(own_shop) == 2
    assert told() == 2
    shown = invoke("data", "stats", own_shop).stdout
    assert "The test split was looked at 2 times." in shown


def test_a_clone_without_the_ledger_counts_what_its_versions_tell(own_shop):
    assert compile_(own_shop).looks == 1
    (own_shop / "artifacts" / "shop" / LOOKS).unlink()
    assert compile_(own_shop, seed=1).looks == 2


@pytest.mark.parametrize(("seed", "looks"), [(1, 2), (0, 1)])
def test_a_compile_killed_in_its_test_has_looked_once_given_again_or_not(own_shop, monkeypatch, seed, looks):
    def killed(*arguments, **named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("optimize.compiler.compile.evaluate_side_by_side", killed)
        compile_(own_shop)
    assert compile_(own_shop, seed=seed).looks == looks


def test_a_version_that_cannot_be_read_is_left_out_and_a_compile_is_sealed_all_the_same(own_shop, caplog):
    root = own_shop / "artifacts"
    first = compile_(own_shop)
    promote_version(first.reference, "production", root=root)
    (root / "shop" / "aliases" / "production.json").write_bytes(b"{")
    (resolve(first.parent, root).path / "manifest.json").write_bytes(b"")
    second = compile_(own_shop, seed=1)
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
