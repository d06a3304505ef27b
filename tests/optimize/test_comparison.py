"""Comparisons of made-up score rows, as `ragc eval` writes them, and their guardrails."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragc.errors import DataError
from ragc.optimize.evaluation.comparison import Margin, check_guardrail, compare_rows, parse_margin
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
        (rows(GOOD), "seconds", r"no metric 'seconds'.*asked anew: --data FILE"),
    ],
)
def test_what_cannot_be_compared_is_an_error(b, metric, complaint):
    with pytest.raises(DataError, match=complaint):
        compare_rows(rows(GOOD), b, metric, timed=False)


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


SHARE = Margin("seconds", 0.25, relative=True)


def test_a_relative_margin_is_on_the_ratio_of_the_means():
    rng = np.random.default_rng(1)
    a = rng.lognormal(0, 1, 200)
    slower = a * rng.lognormal(math.log(1.1), 0.05, 200)
    found = check_guardrail(SHARE, list(zip(a, slower, [""] * 200, strict=True)))
    assert found.state == "holds" and found.worse_by == pytest.approx(slower.mean() / a.mean() - 1)
    assert found.worse_by < found.limit < 0.13
    lost = rng.random(400) < 0.2
    fewer = [(1.0, float(not gone), f"t{n // 10}") for n, gone in enumerate(lost)]
    for margin, state in ((0.3, "holds"), (0.1, "breached"), (0.2, "not_shown")):
        found = check_guardrail(Margin("correct", margin, relative=True), fewer)
        assert (found.state, found.worse_by) == (state, pytest.approx(lost.mean()))


@pytest.mark.parametrize(
    ("metric", "before", "after", "state", "worse_by"),
    [
        ("model_calls", 0.0, 1.0, "breached", math.inf),
        ("model_calls", 0.0, 0.0, "holds", 0.0),
        ("model_calls", 1.0, 0.0, "holds", -1.0),
        ("correct", 0.0, 1.0, "holds", -math.inf),
        ("correct", 1.0, 0.0, "breached", 1.0),
    ],
)
@pytest.mark.parametrize("most", [0.0, 0.25, 5.0])
def test_a_side_that_was_always_0_is_measured(metric, before, after, state, worse_by, most):
    pairs = [(before, after * (n % 3 > 0), f"t{n % 12}") for n in range(60)]
    found = check_guardrail(Margin(metric, most, relative=True), pairs)
    if (metric, before, most) == ("correct", 1.0, 5.0):
        state = "holds"  # no share falls by more than all of it
    assert (found.state, found.n, found.worse_by) == (state, 60, pytest.approx(worse_by))


def test_what_rises_from_nearly_nothing_is_breached_though_most_questions_began_at_0():
    before = [float(n % 9 == 0) for n in range(308)]
    pairs = [(x, 1.0 + x / 3, f"t{n % 40}") for n, x in enumerate(before)]
    found = check_guardrail(Margin("model_calls", 0.5, relative=True), pairs)
    assert (found.state, found.n) == ("breached", 308) and found.worse_by > 7


def calls(rng, ratio):
    """Calls of 24 topics of six, more in some topics than in others, none for most questions."""
    topic = np.arange(144) // 6
    drawn = [rng.poisson(rate * rng.gamma(2, 0.5, 24)[topic]) for rate in (0.3, 0.3 * ratio)]
    return [*drawn, topic]


def more_calls(rng, ratio):
    """A call of few questions alone; where the rate rises, further questions have one."""
    chance = rng.random(200)
    return [(chance < 0.05) * 1, (chance < 0.05 * ratio) * 1, np.arange(200) // 10]


def seconds(rng, ratio):
    """Times that vary between questions, runs and topics."""
    topic, question = np.arange(120) // 8, rng.lognormal(0, 0.7, 120)
    runs = rng.lognormal(-0.18, 0.6, (2, 120))
    return [question * runs[0], question * runs[1] * rng.lognormal(-0.02, 0.2, 15)[topic] * ratio, topic]


def dear_seldom(rng, ratio):
    """One question in forty is eleven times as dear, at the margin."""
    before, topic = rng.lognormal(0, 0.5, 200), np.arange(200) // 10
    return [before, before * np.where(rng.random(200) < (ratio - 1) / 10, 11, 1), topic]


@pytest.mark.parametrize("draw", [calls, more_calls, seconds, dear_seldom])
def test_a_relative_margin_is_said_to_hold_where_the_ratio_is_beyond_it_in_no_more_than_one_case_of_twenty(draw):
    rng, runs, held = np.random.default_rng(7), 2000, 0
    for _ in range(runs):
        before, after, topic = draw(rng, 1.26)
        held += check_guardrail(SHARE, list(zip(before, after, map(str, topic), strict=True))).state == "holds"
    assert held / runs <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize("draw", [calls, seconds])
def test_a_relative_margin_holds_where_the_ratio_is_well_within_it(draw):
    rng, runs = np.random.default_rng(8), 50
    pairs = ([*zip(*map(list, draw(rng, 0.4)), strict=True)] for _ in range(runs))
    found = [check_guardrail(SHARE, [(x, y, str(t)) for x, y, t in one]).state for one in pairs]
    assert found.count("holds") >= 0.8 * runs


def test_a_worsening_of_whole_topics_is_not_said_to_hold_because_no_topic_showed_it():
    rng, runs, margin = np.random.default_rng(9), 2000, Margin("wrong", 0.02)
    topics, held = [f"t{n // 15}" for n in range(300)], 0
    for _ in range(runs):
        worse = np.repeat(rng.random(20) < 0.05, 15) * 1.0
        held += check_guardrail(margin, list(zip([0.0] * 300, worse, topics, strict=True))).state == "holds"
    assert held / runs <= 0.05


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from("abcdef")), min_size=1, max_size=20),
    st.booleans(),
)
def test_asking_each_question_25_times_moves_no_limit_of_a_guardrail_nearer(rows, relative):
    margin = Margin("model_calls", 0.25, relative)
    once, often = (check_guardrail(margin, [(x, y, t) for x, y, t in rows for _ in range(n)]) for n in (1, 25))
    assert often.limit >= once.limit - 1e-3 and (once.state == "holds" or often.state != "holds")


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
