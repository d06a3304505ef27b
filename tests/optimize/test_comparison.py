"""Comparisons of made-up score rows, as `ragc eval` writes them."""

import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from optimize.cli import ab
from optimize.evaluation.comparison import compare
from optimize.registry.versions import publish_version
from program.errors import DataError

QUESTIONS = 80


def rows(words, calls=1.0, recall=None):
    """A row for each of "correct", "partial", "wrong", ten to a topic."""
    worth = {"correct": 1.0, "partial": 0.5, "wrong": -1.0}
    return [
        {
            "id": f"q{i:03}", "topic": f"t{i // 10}", "tags": [], "outcome": "answered", "answer": "",
            "path": [], "question": f"Question {i}?", **{w: int(w == word) for w in worth},
            "utility": worth[word], "metrics": {"model_calls": calls, "retrieval_recall": recall},
        }
        for i, word in enumerate(words)
    ]  # fmt: skip


GOOD = ["correct"] * 70 + ["partial"] * 10
BAD = ["wrong", "correct"] * 40
OTHER = np.random.default_rng(0).permutation(GOOD).tolist()


def test_a_version_that_answers_more_is_better_and_the_other_way_round_worse():
    assert compare(rows(BAD), rows(GOOD)).verdict == "better"
    assert compare(rows(GOOD), rows(BAD)).verdict == "worse"


def test_versions_that_differ_by_chance_show_no_detectable_difference():
    found = compare(rows(GOOD), rows(OTHER))
    assert found.verdict == "no_detectable_difference"
    assert found.text().startswith("no detectable difference (could have seen 0.")


def test_fewer_than_six_topics_say_so():
    assert "fewer than 6 topics" in compare(rows(BAD[:40]), rows(GOOD[:40])).text()


def test_more_calls_and_more_wrong_answers_are_worse():
    others = compare(rows(BAD, calls=1.0), rows(GOOD, calls=3.0)).as_dict()["others"]
    assert others["model_calls"]["verdict"] == "worse"
    assert others["wrong"]["difference"] == -0.5
    assert others["wrong"]["verdict"] == "better"


def test_the_json_shape_is_the_published_one():
    shape = compare(rows(BAD), rows(GOOD)).as_dict()
    assert list(shape)[:10] == [
        "verdict", "metric", "difference", "ci", "p", "n", "topics", "mde", "others", "flipped"
    ]  # fmt: skip
    assert (shape["metric"], shape["n"], shape["topics"], len(shape["ci"])) == ("utility", 80, 8, 2)
    assert shape["flipped"][0] == {"id": "q000", "question": "Question 0?", "a": "wrong", "b": "correct"}
    assert json.loads(json.dumps(shape, allow_nan=False)) == shape


def test_what_cannot_be_said_is_null():
    assert compare(rows(BAD[:40]), rows(GOOD[:40])).as_dict()["mde"] is None


def test_the_difference_of_a_share_ends_at_one_that_of_a_count_where_it_will():
    before = rows(["wrong"] * 20, calls=1.0)
    after = rows(["correct"] * 15 + ["wrong"] * 5, calls=1.0)
    for n, row in enumerate(after):
        row["metrics"]["model_calls"], before[n]["tags"] = 1.0 + n % 7, ["all"]
    found = compare(before, after)
    assert found.others["correct"].ci[1] == 1 and found.others["wrong"].ci[0] == -1
    assert found.others["model_calls"].ci[1] > 1 and found.test.ci[1] > 2
    shares = compare(before, after, "correct").as_dict()
    assert shares["ci"][1] == shares["by_tag"]["all"]["ci"][1] == 1


def test_the_other_metrics_are_corrected_together():
    a, b = rows(BAD, calls=1.0), rows(GOOD, calls=2.0)
    alone = compare(a, b, metric="wrong").test.p
    together = compare(a, b).others["wrong"].p
    assert alone < together <= 3 * alone + 1e-12


def test_a_metric_counts_where_both_versions_have_it():
    a, b = rows(GOOD, recall=0.5), rows(GOOD, recall=0.5)
    for row in b[:30]:
        row["metrics"]["retrieval_recall"] = None
    assert compare(a, b, metric="retrieval_recall").test.n == 50
    assert "retrieval_recall" not in compare(rows(GOOD), b).others


def test_the_order_of_the_questions_does_not_matter():
    assert compare(rows(BAD)[::-1], rows(GOOD)).as_dict() == compare(rows(BAD), rows(GOOD)).as_dict()


def test_different_questions_are_an_error_that_counts_them():
    with pytest.raises(DataError, match=r"78 in both, 2 only in A, 0 only in B.* --data FILE"):
        compare(rows(GOOD), rows(GOOD)[2:])


def test_a_question_scored_twice_is_an_error():
    with pytest.raises(DataError, match="B holds 81 scores for 80 questions"):
        compare(rows(GOOD), [*rows(GOOD), rows(GOOD)[0]])


def test_an_unknown_metric_is_an_error_that_names_the_known_ones():
    with pytest.raises(DataError, match=r"no metric 'utlity'.*utility"):
        compare(rows(GOOD), rows(GOOD), metric="utlity")


@pytest.fixture
def offline(tmp_path):
    """`ragc ab offline` on two published versions."""
    for words in (BAD, GOOD, OTHER):
        lines = "".join(json.dumps(row) + "\n" for row in rows(words))
        publish_version("helpdesk", {}, {"scores.jsonl": lines.encode()}, tmp_path)
    publish_version("helpdesk", {}, {"program.json": b"{}"}, tmp_path)
    app = typer.Typer()
    ab.register(app)
    return lambda *args: CliRunner().invoke(app, ["ab", "offline", *args, "--artifacts", str(tmp_path)])


@pytest.mark.parametrize(
    ("a", "b", "code", "verdict"),
    [("v1", "v2", 0, "better"), ("v2", "v1", 1, "worse"), ("v2", "v3", 3, "no_detectable_difference")],
)
def test_the_exit_code_tells_the_verdict(offline, a, b, code, verdict):
    result = offline(f"helpdesk@{a}", f"helpdesk@{b}", "--json")
    assert (result.exit_code, json.loads(result.stdout)["verdict"]) == (code, verdict)


def test_the_page_for_people_opens_with_the_verdict(offline):
    result = offline("helpdesk@v1", "helpdesk@v2")
    assert result.stdout.startswith("better: utility +0.9")
    assert "Question 0?" in result.stdout


def test_a_version_that_was_never_scored_is_an_error(offline):
    result = offline("helpdesk@v1", "helpdesk@v4")
    assert isinstance(result.exception, DataError)
    assert "holds no scores.jsonl" in str(result.exception)
