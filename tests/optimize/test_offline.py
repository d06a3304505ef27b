"""The offline test: several versions, repeats, overlap, another file, the page."""

import json
import re
from itertools import product
from types import SimpleNamespace

import numpy as np
import orjson
import pytest

from ragc.errors import DataError, SettingsError, VersionError
from ragc.optimize.abtest.offline import OfflineTest, compare_offline
from ragc.optimize.evaluation.comparison import compare_rows
from ragc.optimize.labelled.units import question_digest
from ragc.optimize.registry.aliases import promote_version
from ragc.optimize.registry.versions import publish_version
from tests.optimize.conftest import invoke, publish_rows, score_rows

GOOD = ["correct"] * 70 + ["wrong"] * 10
BAD = ["wrong", "correct"] * 40
OTHER = np.random.default_rng(0).permutation(GOOD).tolist()


def rows(words, **more):
    found = score_rows(words, lambda n: n // 8, **more)
    for n, row in enumerate(found):
        row["tags"] = ["old"] if n % 2 else ["old", "new"]
    return found


@pytest.fixture
def root(tmp_path):
    """v1 answers half, v2 most, v3 as many but others, v4 as v2 at four times the calls."""
    for scored in (rows(BAD), rows(GOOD), rows(OTHER), rows(GOOD, model_calls=4.0)):
        publish_rows(tmp_path, scored)
    return tmp_path


@pytest.fixture
def offline(tmp_path):
    return lambda *args: invoke("compare", *args, "--artifacts", tmp_path)


def refs(*numbers):
    return [f"helpdesk@v{n}" for n in numbers]


def test_several_versions_are_each_tested_against_the_first_and_corrected_for_their_number(root):
    alone = compare_offline(refs(1, 3), root=root).arms[0].p
    found = compare_offline(refs(1, 3, 2, 4), root=root)
    assert [arm.b for arm in found.arms] == refs(3, 2, 4)
    assert alone < found.arms[0].p <= 3 * alone
    assert found.exit_code == 0
    shape = orjson.loads(orjson.dumps(found))
    assert (shape["control"], shape["metric"], len(shape["arms"])) == ("helpdesk@v1", "utility", 3)
    assert shape["arms"][1]["verdict"] == "better"


def test_the_verdict_opens_the_page_and_is_the_exit_code(root, offline):
    for a, b, code, verdict in ((1, 2, 0, "better"), (2, 1, 1, "worse"), (2, 3, 3, "no_detectable_difference")):
        result = offline(*refs(a, b), "--json")
        assert (result.exit_code, json.loads(result.stdout)["verdict"]) == (code, verdict)
    shown = offline(*refs(1, 2), "--all").stdout
    assert shown.startswith("better: utility +0.") and "Question 0?" in shown and "prove nothing" in shown
    shape = json.loads(offline(*refs(1, 2), "--json").stdout)
    assert {tag: found["n"] for tag, found in shape["by_tag"].items()} == {"new": 40, "old": 80}
    publish_version("helpdesk", {}, {"program.json": b"{}"}, root)
    with pytest.raises(DataError, match=r"holds no scores\.jsonl"):
        raise offline(*refs(1, 5)).exception


def test_one_version_alone_or_twice_is_no_test(root):
    for named in (refs(1), refs(1, 1), ["helpdesk@v4", "helpdesk@latest"]):
        with pytest.raises(DataError):
            compare_offline(named, root=root)


def test_a_breached_guardrail_is_told_and_fails_the_test_when_it_was_asked_for(root, offline):
    told = offline(*refs(1, 4), "--json")
    found = json.loads(told.stdout)
    assert told.exit_code == 0
    assert {g["metric"]: g["state"] for g in found["guardrails"]} == {
        "wrong": "holds", "model_calls": "breached", "seconds": "not_measured"
    }, "the seconds of two compiles are of machines with other work"  # fmt: skip
    assert offline(*refs(1, 4), "--guard", "model_calls:0.5").exit_code == 1
    assert offline(*refs(1, 4), "--guard", "model_calls:5").exit_code == 0
    assert offline(*refs(1, 4, 2), "--guard", "model_calls:0.5").exit_code == 0, "v2 is better without a breach"
    for name in ("usd:0.1", "seconds:25%"):
        failed = offline(*refs(1, 2), "--guard", name)
        what = f"{name.partition(':')[0]!r} was not measured"
        assert isinstance(failed.exception, DataError) and what in str(failed.exception)
    assert "seconds" not in json.loads(offline(*refs(1, 2), "--json").stdout)["others"]


def arm(verdict, breached):
    return SimpleNamespace(verdict=verdict, breached=["wrong:0.02"] * breached)


OUTCOMES = [(verdict, breached) for verdict in ("better", "worse", "no_detectable_difference") for breached in (0, 1)]


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize(
    "outcomes",
    [*product(OUTCOMES), *product(OUTCOMES, repeat=2), *product(OUTCOMES[:2], OUTCOMES, OUTCOMES[2:])],
    ids=repr,
)
def test_the_exit_code_is_0_for_one_that_is_better_1_for_a_failure_where_none_is_else_3(outcomes, gate):
    states = ["breached" if gate and breached else verdict for verdict, breached in outcomes]
    expected = 0 if "better" in states else 1 if "worse" in states or "breached" in states else 3
    found = OfflineTest("helpdesk@v1", "utility", tuple(arm(*one) for one in outcomes), (), 1, gate)
    assert found.exit_code == expected


def test_one_of_several_versions_that_breaches_a_guardrail_fails_the_test_where_no_other_is_better(root, offline):
    publish_rows(root, rows(BAD, model_calls=4.0)), publish_rows(root, rows(OTHER))
    assert offline(*refs(2, 3, 6), "--guard", "model_calls:0.5").exit_code == 3
    assert offline(*refs(1, 5), "--guard", "model_calls:0.5").exit_code == 1
    assert offline(*refs(2, 3, 4), "--guard", "model_calls:0.5").exit_code == 1, "one breached, one not different"
    assert offline(*refs(2, 3, 4)).exit_code == 3


def test_first_comes_the_verdict_then_three_metrics_and_the_rest_when_it_is_asked_for(root, offline):
    shown, whole = offline(*refs(1, 2)).stdout, offline(*refs(1, 2), "--all").stdout
    assert shown.startswith("better: utility +0.") and whole.startswith(shown.partition("\n")[0])
    table = shown[shown.index("other metrics") : shown.index("guardrails")].splitlines()[3:]
    assert [line.split()[0] for line in table if line.strip()] == ["correct", "wrong", "model_calls"]
    assert "Question 0?" not in shown and "answers changed. Everything else: --all" in shown
    assert "Question 0?" in whole and "utility by tag" in whole and "--all" not in whole


def test_versions_scored_on_different_questions_are_named_with_the_command_that_asks_both(root, offline):
    publish_rows(root, rows(GOOD)[5:])
    told = str(offline(*refs(1, 5)).exception)
    assert "helpdesk@v1 and helpdesk@v5 were scored on different questions: 75 in both, 5 only in helpdesk@v1" in told
    assert "ragc compare helpdesk@v1 helpdesk@v5 --data FILE" in told


@pytest.mark.parametrize(
    "options", ["--point economy", "--project .", "--point quality --project ."], ids=lambda one: one.split()[0]
)
@pytest.mark.parametrize("verb", ["compare helpdesk@v1 helpdesk@v2", "eval helpdesk@v1", "verify helpdesk@v1"])
def test_what_is_of_a_project_is_refused_beside_a_program_of_ones_own_and_never_ignored(root, verb, options):
    if verb.startswith("verify") and "--point" in options:
        return
    told = invoke(*verb.split(), "--program", "json:loads", *options.split(), "--artifacts", root)
    assert isinstance(told.exception, SettingsError) and "--program does not go together with" in str(told.exception)
    assert all(name in str(told.exception) for name in options.split() if name.startswith("--"))


def test_repeats_are_averaged_within_their_question_and_do_not_count_as_questions():
    once = compare_rows(rows(BAD), rows(GOOD))
    again = [{**row, "repeat": n} for row in rows(GOOD) for n in range(5)]
    assert compare_rows(rows(BAD), again) == once
    noisy = [{**row, "repeat": n, "utility": row["utility"] + (n - 1) / 10} for row in rows(GOOD) for n in range(3)]
    assert compare_rows(rows(BAD), noisy).difference == pytest.approx(once.difference)
    assert compare_rows(rows(BAD), noisy).n == 80


def compiled_on(*questions):
    data = {"train": {"questions": [question_digest(q) for q in questions]}}
    return {"optimizer": {"name": "ragc"}, "data": data}


def test_questions_that_a_version_was_compiled_on_and_too_few_topics_are_told(tmp_path):
    publish_rows(tmp_path, rows(BAD), optimizer={"name": "none"})
    publish_rows(tmp_path, rows(GOOD), **compiled_on("question  3?", "QUESTION 4?", "Another?"))
    publish_rows(tmp_path, rows(GOOD), **compiled_on("Another?"))
    publish_rows(tmp_path, rows(GOOD), optimizer={"name": "ragc"}, data={"train": {"n": 2, "sha256": "0"}})
    warnings = {v: compare_offline(refs(1, v), root=tmp_path).warnings for v in (2, 3, 4)}
    assert warnings[2] == ("helpdesk@v2 was compiled on 2 of these 80 questions: its scores on them prove nothing.",)
    assert warnings[3] == ()
    assert "does not say which questions" in warnings[4][0]
    publish_rows(tmp_path, rows(BAD[:40])), publish_rows(tmp_path, rows(GOOD[:40]))
    assert "fewer than 6 topics" in compare_offline(refs(5, 6), root=tmp_path).arms[0].describe()


def test_the_page_shows_intervals_and_both_answers_and_runs_nothing_that_a_version_holds(tmp_path, offline):
    publish_rows(tmp_path, rows(BAD, answer="<script>alert(1)</script>"))
    evil = rows(GOOD, answer='"><img src=x onerror=alert(2)>')
    for row in evil:
        row["tags"] = ["<b>tag</b>"]
    for row in (plain := rows(BAD)):
        row["tags"], row["question"] = ["<b>tag</b>"], "{{ 7 * 7 }} <i>?"
    for row in (*evil, *plain):
        row["confidence"] = 0.9
    publish_rows(tmp_path, evil)
    publish_rows(tmp_path, plain)
    page = tmp_path / "page.html"
    assert offline(*refs(3, 2, 1), "--html", page).exit_code == 0
    text = page.read_text()
    assert [raw for raw in ("<script", "<img", "<i>", "<b>tag", ">49 ") if raw in text] == []
    assert "&lt;img src=x onerror=alert(2)&gt; 0" in text
    assert not re.search(r"(src|href)\s*=\s*[\"']?http", text)
    assert text.count("Risk against coverage") == 1, "where both sides have confidences"
    verdicts = re.findall(r'<tr class="(\w+)"><td>utility</td><td>[+]', text)
    assert verdicts == ["better", "no_detectable_difference"]
    assert isinstance(offline(*refs(1, 2), "--html", tmp_path / "no" / "page.html").exception, DataError)


def test_both_versions_are_asked_anew_on_another_file(compiled, tmp_path):
    asked = {"id": "n1", "question": "How much water does the Wren hold?", "facts": ["0.8 litres"], "tags": ["new"]}
    other = {"id": "n2", "question": "How long do companies have to return a kettle?", "facts": ["10 days"]}
    (tmp_path / "new.jsonl").write_text(f"{json.dumps(asked)}\n{json.dumps(other)}\n")
    seen = []
    found = compare_offline(
        ["shop@v1", "shop@v2"], data=tmp_path / "new.jsonl", repeats=2, root=compiled / "artifacts",
        progress=lambda done, of: seen.append((done, of)),
    )  # fmt: skip
    (comparison,) = found.arms
    assert (comparison.n, seen[-1]) == (2, (4, 4))
    assert comparison.others["seconds"].n == 2
    assert comparison.by_tag["new"].n == 1


def test_an_operating_point_is_asked_anew_on_the_questions_that_were_scored(compiled):
    found = compare_offline(["shop@v2", "shop@v1"], point="balanced", repeats=2, root=compiled / "artifacts")
    assert found.arms[0].n == 1
    with pytest.raises(VersionError, match="no operating point 'economy'"):
        compare_offline(["shop@v2", "shop@v1"], point="economy", root=compiled / "artifacts")


def test_a_step_of_ci_tests_a_version_against_the_alias_in_use(root):
    promote_version("helpdesk@v1", "production", root=root)
    run = lambda *args: invoke("compare", *args, "--artifacts", root)  # noqa: E731
    for ref, against, code in (("v2", "production", 0), ("v1", "helpdesk@v2", 1), ("v3", "v2", 3)):
        assert run(f"helpdesk@{ref}", "--against", against).exit_code == code
    assert run("helpdesk@v4", "--guard", "model_calls:1").exit_code == 1
    shown = run("helpdesk@v2", "--md").stdout
    assert shown.startswith("### helpdesk@v2 against helpdesk@production\n\nbetter: utility")
    assert "\n| metric | B - A |" in shown and "| answer\\_precision |" not in run("helpdesk@v2").stdout
    assert json.loads(run("helpdesk@v2", "--md", "--json").stdout)["verdict"] == "better"
