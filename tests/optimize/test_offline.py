"""The offline test: several versions, repeats, overlap, another file, the page."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import orjson
import pytest

from optimize.abtest.offline import compare_offline
from optimize.evaluation.comparison import compare_rows
from optimize.labelled.split import question_digest
from optimize.registry.aliases import promote_version
from optimize.registry.versions import publish_version
from program.errors import DataError, VersionError
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
    return lambda *args: invoke("ab", "offline", *args, "--artifacts", tmp_path)


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
    shown = offline(*refs(1, 2)).stdout
    assert shown.startswith("better: utility +0.") and "Question 0?" in shown and "prove nothing" in shown
    shape = json.loads(offline(*refs(1, 2), "--json").stdout)
    assert {tag: found["n"] for tag, found in shape["by_tag"].items()} == {"new": 40, "old": 80}
    assert "prove nothing" in shape["by_tag_warning"]
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
        "wrong": "holds", "model_calls": "breached", "seconds": "holds"
    }  # fmt: skip
    assert any("breaches a guardrail: model_calls" in w for w in found["warnings"])
    assert offline(*refs(1, 4), "--guard", "model_calls:0.5").exit_code == 1
    assert offline(*refs(1, 4), "--guard", "model_calls:5").exit_code == 0
    assert offline(*refs(1, 4, 2), "--guard", "model_calls:0.5").exit_code == 0, "v2 is better without a breach"
    failed = offline(*refs(1, 2), "--guard", "usd:0.1")
    assert isinstance(failed.exception, DataError) and "'usd' was not measured" in str(failed.exception)


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
    assert any("too few topics" in w for w in compare_offline(refs(5, 6), root=tmp_path).warnings)


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
    for raw in ("<script", "<img", "<i>", "<b>tag", "49 "):
        assert raw not in text
    assert "&lt;img src=x onerror=alert(2)&gt; 0" in text
    assert not re.search(r"(src|href)\s*=\s*[\"']?http", text)
    pictures = [ElementTree.fromstring(svg) for svg in re.findall("<svg.*?</svg>", text, re.DOTALL)]
    assert len(pictures) == 2 + 1 and text.count("Risk against coverage") == 1, "where both sides have confidences"
    drawn, zero = pictures[0].findall("g"), float(pictures[0].find("line").get("x1"))
    assert len(drawn) == 1 + 4 and drawn[0].get("class") == "better"
    line, dot = drawn[0].find("line"), float(drawn[0].find("circle").get("cx"))
    assert zero < float(line.get("x1")) < dot < float(line.get("x2")), "better: all of the interval beyond zero"
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
    run = lambda *args: invoke("test", *args, "--artifacts", root)  # noqa: E731
    for ref, against, code in (("v2", "production", 0), ("v1", "helpdesk@v2", 1), ("v3", "v2", 3)):
        assert run(f"helpdesk@{ref}", "--against", against).exit_code == code
    assert run("helpdesk@v4", "--guard", "model_calls:1").exit_code == 1
    shown = run("helpdesk@v2", "--md").stdout
    assert shown.startswith("### helpdesk@v2 against helpdesk@production\n\nbetter: utility")
    assert "\n| metric | B - A |" in shown and "| answer\\_precision |" not in run("helpdesk@v2").stdout
    assert json.loads(run("helpdesk@v2", "--md", "--json").stdout)["verdict"] == "better"
