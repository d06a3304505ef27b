"""Comparisons of made-up score rows, as `ragc eval` writes them, and their guardrails."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimize.evaluation.comparison import Margin, check_guardrail, compare_rows, parse_margin
from program.errors import DataError
from tests.optimize.conftest import score_rows as rows

GOOD = ["correct"] * 70 + ["partial"] * 10
BAD = ["wrong", "correct"] * 40
OTHER = np.random.default_rng(0).permutation(GOOD).tolist()


def test_the_verdict_is_better_worse_or_no_detectable_difference():
    assert compare_rows(rows(BAD), rows(GOOD)).verdict == "better"
    assert compare_rows(rows(GOOD), rows(BAD)).verdict == "worse"
    chance = compare_rows(rows(GOOD), rows(OTHER))
    assert chance.verdict == "no_detectable_difference"
    assert chance.describe().startswith("no detectable difference (could have seen 0.")
    few = compare_rows(rows(BAD[:40]), rows(GOOD[:40]))
    assert "fewer than 6 topics" in few.describe() and few.mde == math.inf
    assert compare_rows(rows(BAD)[::-1], rows(GOOD)) == compare_rows(rows(BAD), rows(GOOD))


def test_more_calls_and_more_wrong_answers_are_worse_and_the_other_metrics_are_corrected_together():
    found = compare_rows(rows(BAD), rows(GOOD, model_calls=3.0))
    assert found.others["model_calls"].verdict == "worse"
    assert (found.others["wrong"].difference, found.others["wrong"].verdict) == (-0.5, "better")
    alone = compare_rows(rows(BAD), rows(GOOD, model_calls=3.0), metric="wrong").p
    assert alone < found.others["wrong"].p <= len(found.others) * alone + 1e-12


def test_the_difference_of_a_share_ends_at_one_that_of_a_count_where_it_will():
    before = rows(["wrong"] * 20, tags=["all"])
    after = rows(["correct"] * 15 + ["wrong"] * 5)
    for n, row in enumerate(after):
        row["metrics"]["model_calls"] = 1.0 + n % 7
    found = compare_rows(before, after)
    assert found.others["correct"].ci[1] == 1 and found.others["wrong"].ci[0] == -1
    assert found.others["model_calls"].ci[1] > 1 and found.ci[1] > 2
    shares = compare_rows(before, after, "correct")
    assert shares.ci[1] == shares.by_tag["all"].ci[1] == 1


@pytest.mark.parametrize(
    ("b", "metric", "complaint"),
    [
        (rows(GOOD)[2:], "utility", r"78 in both, 2 only in A, 0 only in B.* --data FILE"),
        ([*rows(GOOD), rows(GOOD)[0]], "utility", "B holds 81 scores for 80 questions"),
        (rows(GOOD), "utlity", r"no metric 'utlity'.*utility"),
    ],
)
def test_what_cannot_be_compared_is_an_error(b, metric, complaint):
    with pytest.raises(DataError, match=complaint):
        compare_rows(rows(GOOD), b, metric)


def shifted(worse, n=200, topics=20, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.uniform(0.2, 0.8, n)
    return list(zip(a, a + worse + rng.normal(0, 0.05, n), [f"t{i % topics}" for i in range(n)], strict=True))


@pytest.mark.parametrize(("worse", "state"), [(-0.1, "holds"), (0.0, "holds"), (0.02, "not_shown"), (0.2, "breached")])
def test_a_margin_holds_is_breached_or_is_not_shown(worse, state):
    found = check_guardrail(Margin("wrong", 0.02), shifted(worse))
    assert found.state == state
    assert check_guardrail(Margin("correct", 0.02), shifted(-worse)).state == state  # more of a good thing is no breach
    assert found.worse_by == pytest.approx(worse, abs=0.02) and found.limit > found.worse_by


def test_a_relative_margin_is_on_the_ratio_of_geometric_means():
    rng = np.random.default_rng(1)
    a, margin = rng.lognormal(0, 1, 200), Margin("seconds", 0.25, relative=True)
    slower = a * rng.lognormal(math.log(1.1), 0.05, 200)
    found = check_guardrail(margin, list(zip(a, slower, [""] * 200, strict=True)))
    assert found.state == "holds" and found.worse_by == pytest.approx(0.1, abs=0.02)
    assert check_guardrail(margin, [(0.0, 5.0, ""), (1.0, 1.0, "")]).n == 1
    assert check_guardrail(margin, [(0.0, 0.0, "")]).state == "not_measured"


def test_a_version_right_on_the_margin_passes_in_at_most_one_case_of_twenty():
    runs, margin = 400, Margin("wrong", 0.02)
    passed = sum(check_guardrail(margin, shifted(0.02, seed=n)).state == "holds" for n in range(runs))
    assert passed / runs <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / runs)


@given(st.from_regex(r"[a-z][a-z0-9_]{0,9}", fullmatch=True), st.integers(0, 400), st.booleans())
def test_a_margin_that_is_printed_is_read_back(metric, hundredths, relative):
    margin = Margin(metric, hundredths / 100, relative)
    again = parse_margin(str(margin))
    assert (again.metric, again.relative, again.margin) == (metric, relative, pytest.approx(margin.margin))


@pytest.mark.parametrize("text", ["", "wrong", "wrong:", "wrong:-1", "wrong<=1", "wrong:1e3", "Wrong:1", ":0.2"])
def test_what_is_no_guardrail_is_refused(text):
    with pytest.raises(DataError, match="is not a guardrail"):
        parse_margin(text)
