"""Looks: scores on a question that nobody saw before count, whoever sees them, and the same scores again do not."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from ragc.optimize.abtest.offline import compare_offline
from ragc.optimize.registry.aliases import promote_version
from ragc.optimize.registry.versions import LOOKS, count_test_uses, note_test_use, verify_version
from ragc.serve.reference import resolve
from tests.optimize.conftest import compile_, invoke, invoke_json, publish_rows, score_rows


def looks_of(folder, *options):
    return invoke_json("eval", folder, *options)["looks"]


def test_an_evaluation_and_an_offline_test_are_looks_too_and_those_at_other_questions_are_not(own_shop):
    assert looks_of(own_shop, "--split", "dev") == 1
    first = compile_(own_shop)
    assert first.looks == 1
    assert [looks_of(own_shop) for _ in range(2)] == [2, 2], "the same answers to the same questions"
    root, pair = own_shop / "artifacts", [first.parent, first.reference]
    assert compare_offline(pair, root=root).looks == 2, "the compile's own look, read again"
    assert [compare_offline(pair, repeats=2, root=root).looks for _ in range(2)] == [3, 3]
    labelled = own_shop / "labelled.jsonl"  # a question changed does not begin the count anew
    more = labelled.read_text().splitlines()[-2].replace('"q5"', '"q9"').replace("How many days", "How long")
    labelled.write_text(labelled.read_text() + more + "\n")
    assert compile_(own_shop).looks == 4


@pytest.fixture
def four(tmp_path):
    """v1, v2 and v3, scored on the same 40 questions, of which v3 alone was compiled from another, v1; and v4, on others."""
    half, most = (["correct"] * n + ["wrong"] * (40 - n) for n in (20, 32))
    for words, more in ((half, {}), (most, {}), (most[::-1], {"parent": "helpdesk@v1", "gain": {"verdict": "better"}})):
        publish_rows(tmp_path, score_rows(words, lambda n: n % 8), points={"balanced": {"policy.k": 5.0}}, **more)
    publish_rows(tmp_path, score_rows(most[:30], lambda n: n % 8))
    for alias in ("production", "canary"):
        promote_version("helpdesk@v1", alias, root=tmp_path)
    return tmp_path


def looks_at(root):
    return count_test_uses(root, "helpdesk", [f"Question {n}?" for n in range(40)])


VERBS = [
    "compare helpdesk@v1 helpdesk@v2",
    "compare helpdesk@v2 helpdesk@production",
    "compare helpdesk@v2",
    "diff helpdesk@v1 helpdesk@v2",
    "promote helpdesk@v2 --to canary --require no-worse",
]


@pytest.mark.parametrize("again", VERBS)
@pytest.mark.parametrize("verb", VERBS)
def test_scores_of_a_pair_not_seen_before_are_one_look_by_whatever_verb_and_the_same_again_are_none(four, verb, again):
    for line in (verb, verb, again):
        done = invoke(*line.split(), "--artifacts", four)
        assert done.exception is None or isinstance(done.exception, SystemExit)
        assert looks_at(four) == 1
    (row,) = map(json.loads, (four / "helpdesk" / LOOKS).read_text().splitlines())
    assert row["by"] in verb or row["by"] == "compare"


@pytest.mark.parametrize(
    ("line", "looks"),
    [
        ("show helpdesk@v2", 0),
        ("ls helpdesk", 0),
        ("log helpdesk", 0),
        ("diff helpdesk@v2 helpdesk@v2", 0),
        ("compare helpdesk@v1 helpdesk@v3", 0),  # what the compile of v3 showed
        ("promote helpdesk@v3 --to staging --require better", 0),
        ("compare helpdesk@v1 helpdesk@v3 --metric correct", 1),
        ("compare helpdesk@v2 helpdesk@v3", 1),
        ("compare helpdesk@v1 helpdesk@v2 helpdesk@v3", 1),
        ("compare helpdesk@v1 helpdesk@v4", 0),  # an error shows nothing
        ("compare helpdesk@v1 helpdesk@v2 --metric nothing", 0),
        ("compare helpdesk@v1 helpdesk@v2 --guard nothing:1", 0),
    ],
)
def test_what_is_a_look_and_what_is_none(four, line, looks):
    for _ in range(2):
        invoke(*line.split(), "--artifacts", four)
        assert looks_at(four) == looks


def test_another_pair_or_metric_is_another_look_and_a_pair_of_several_is_known_by_itself(four):
    told = lambda *refs, **more: compare_offline([f"helpdesk@{v}" for v in refs], root=four, **more).looks  # noqa: E731
    assert [told("v1", "v2", "v3"), told("v1", "v2"), told("v2", "v1")] == [1, 1, 1]
    assert [told("v2", "v3"), told("v1", "v2", metric="correct"), told("v2", "v1", "v3", metric="correct")] == [2, 3, 4]
    assert [told("v3", "v1", metric="correct"), told("v1", "v3"), told("v2", "v3")] == [5, 5, 5]
    shown = invoke("compare", "helpdesk@v1", "helpdesk@v2", "--artifacts", four).stdout
    assert "These questions, or some of them, were looked at 5 times." in shown


def test_a_look_at_answers_asked_anew_is_noted_before_the_first_is_given(own_shop, monkeypatch):
    first = compile_(own_shop)

    def killed(*arguments, **named):
        raise KeyboardInterrupt

    for place, look in (
        ("ragc.optimize.abtest.offline.evaluate_side_by_side", lambda: compare_offline([first.parent, first.reference],
                                                                              repeats=2, root=own_shop / "artifacts")),
        ("ragc.optimize.evaluation.evaluate.evaluate_side_by_side", lambda: invoke("eval", own_shop)),
    ):  # fmt: skip
        before = invoke_json("data", "check", own_shop)["test_looks"]
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(place, killed)
            look()
        assert invoke_json("data", "check", own_shop)["test_looks"] == before + 1


def test_the_ledger_begins_at_nothing_is_printed_and_counts_a_measured_search_too(own_shop):
    def told():
        return invoke_json("data", "check", own_shop)["test_looks"]

    assert told() == 0
    assert invoke("eval", own_shop, "--search", "--split", "test").exit_code == 0
    assert told() == 1
    assert invoke("eval", own_shop, "--search", "--split", "test").exit_code == 0
    assert told() == 1
    assert looks_of(own_shop) == 2
    assert told() == 2
    shown = invoke("data", "check", own_shop).stdout
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
        patch.setattr("ragc.optimize.compiler.compile.evaluate_side_by_side", killed)
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
