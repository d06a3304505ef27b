"""Non-inferiority: what must not suffer is shown not to, or it is said that it was not shown."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimize.evaluation.guardrails import Margin, guard, parse_margin
from program.errors import DataError


def shifted(worse, n=200, topics=20, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.uniform(0.2, 0.8, n)
    return a, a + worse + rng.normal(0, 0.05, n), [i % topics for i in range(n)]


@pytest.mark.parametrize(("worse", "state"), [(-0.1, "holds"), (0.0, "holds"), (0.02, "not_shown"), (0.2, "breached")])
def test_a_margin_holds_is_breached_or_is_not_shown(worse, state):
    found = guard(Margin("wrong", 0.02), *shifted(worse), lower_is_better=True)
    assert found.state == state
    assert found.worse == pytest.approx(worse, abs=0.02)
    assert found.limit > found.worse


def test_more_of_a_good_thing_is_no_breach_and_less_of_it_is():
    a, b, topics = shifted(0.2)
    assert guard(Margin("correct", 0.02), a, b, topics, lower_is_better=False).state == "holds"
    assert guard(Margin("correct", 0.02), b, a, topics, lower_is_better=False).state == "breached"


def test_a_relative_margin_is_on_the_ratio_of_geometric_means():
    rng = np.random.default_rng(1)
    a = rng.lognormal(0, 1, 200)
    found = guard(
        Margin("seconds", 0.25, relative=True),
        a,
        a * rng.lognormal(math.log(1.1), 0.05, 200),
        None,
        lower_is_better=True,
    )
    assert found.worse == pytest.approx(0.1, abs=0.02)
    assert found.state == "holds"
    zeros = guard(Margin("seconds", 0.25, relative=True), [0.0, 1.0], [5.0, 1.0], None, lower_is_better=True)
    assert zeros.n == 1
    assert guard(Margin("usd", 0.1, relative=True), [0.0], [0.0], None, lower_is_better=True).state == "not_measured"


def test_thirty_questions_without_a_change_do_not_show_two_in_a_hundred():
    same = [0.0] * 30
    assert guard(Margin("wrong", 0.02), same, same, None, lower_is_better=True).state == "not_shown"
    many = [0.0] * 200
    assert guard(Margin("wrong", 0.02), many, many, None, lower_is_better=True).state == "holds"


def test_a_version_right_on_the_margin_passes_in_at_most_one_case_of_twenty():
    runs = 400
    passed = sum(
        guard(Margin("wrong", 0.02), *shifted(0.02, seed=n), lower_is_better=True).state == "holds" for n in range(runs)
    )
    assert passed / runs <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / runs)


@given(st.from_regex(r"[a-z][a-z0-9_]{0,9}", fullmatch=True), st.integers(0, 400), st.booleans())
def test_a_margin_that_is_printed_is_read_back(metric, hundredths, relative):
    margin = Margin(metric, hundredths / 100, relative)
    again = parse_margin(str(margin))
    assert (again.metric, again.relative, again.worse_by) == (metric, relative, pytest.approx(margin.worse_by))


@pytest.mark.parametrize(
    "text", ["", "wrong", "wrong:", "wrong:-1", "wrong<=1", "wrong:1e3", "Wrong:1", ":0.2", "wrong:nan"]
)
def test_what_is_no_guardrail_is_refused(text):
    with pytest.raises(DataError, match="is not a guardrail"):
        parse_margin(text)
