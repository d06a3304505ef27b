"""Error rates and coverage are simulated, seeded; a bound is the nominal rate plus two standard errors."""

import math

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, permutation_test

from ragc.errors import DataError
from ragc.optimize.abtest.sequential import MIN_EACH, Moments, compare_means, log_e_multinomial, log_e_rates
from ragc.optimize.evaluation.stats import (
    correct_holm,
    count_effective,
    format_estimate,
    format_interval,
    format_p,
    limit_share,
    mean_interval,
    one_sided_limits,
    paired_test,
)


def no_difference(rng, topics, each=10):
    """B minus A is zero on average, but differs from topic to topic; values are 0 or 1."""
    groups = np.repeat(np.arange(topics), each)
    lean = rng.normal(0, 0.25, topics)[groups]
    a = rng.random(len(groups)) < np.clip(0.6 - lean / 2, 0, 1)
    b = rng.random(len(groups)) < np.clip(0.6 + lean / 2, 0, 1)
    return a.astype(float), b.astype(float), groups.tolist()


def slack(rate, runs):
    return 2 * math.sqrt(rate * (1 - rate) / runs)


@pytest.mark.parametrize("topics", [8, 20, None])
def test_equal_versions_are_told_apart_in_at_most_one_case_of_twenty(topics):
    rng, runs = np.random.default_rng(topics or 1), 200
    pairs = (no_difference(rng, topics) if topics else (rng.random((2, 40)) < 0.7) for _ in range(runs))
    assert sum(paired_test(*pair).p < 0.05 for pair in pairs) / runs <= 0.05 + slack(0.05, runs)


@pytest.mark.parametrize("topics", [8, 20])
def test_the_clustered_interval_covers_the_true_mean(topics):
    rng, hits, groups = np.random.default_rng(3), [], np.repeat(np.arange(topics), 10)
    for _ in range(600):
        values = rng.normal(0, 1, topics)[groups] + rng.normal(0, 1, len(groups))
        low, high = mean_interval(values, groups.tolist()).ci
        hits.append(low <= 0 <= high)
    assert 0.93 <= np.mean(hits) <= 0.97


@pytest.mark.parametrize("p", [0.5, 0.95, 0.99])
def test_the_interval_of_a_proportion_covers_it_even_near_one(p):
    rng, hits = np.random.default_rng(4), []
    for _ in range(600):
        low, high = mean_interval((rng.random(100) < p).astype(float), np.arange(100).tolist(), proportion=True).ci
        hits.append(low <= p <= high)
    assert np.mean(hits) >= 0.95 - slack(0.05, 600)


def copied(values, groups, times=25):
    return [value for value in values for _ in range(times)], [group for group in groups for _ in range(times)]


kinds = st.sampled_from(
    [st.sampled_from([0.0, 1.0]), st.just(1.0), st.sampled_from([-1.0, 0.0, 1.0]), st.floats(-9, 9)]
)


@settings(max_examples=300)
@given(kinds.flatmap(lambda kind: st.lists(st.tuples(kind, st.integers(0, 6)), min_size=2, max_size=30)))
def test_asking_each_question_25_times_within_its_topic_narrows_no_limit(rows):
    values, groups = zip(*rows, strict=True)
    many = copied(values, groups)
    slack = 1e-9 * max(map(abs, values), default=0) + 1e-12
    binary = set(values) <= {0.0, 1.0}
    for limits in (
        lambda *of: mean_interval(*of, proportion=binary).ci,
        one_sided_limits,
        lambda *of: (-(mde := paired_test([0.0] * len(of[0]), *of).mde), mde),
    ):
        (low, high), (lower, higher) = limits(values, groups), limits(*many)
        assert lower <= low + slack and higher >= high - slack


def test_a_share_that_no_topic_showed_is_limited_by_topics_not_by_questions():
    groups = [i // 15 for i in range(300)]
    low, high = mean_interval([0.0] * 300, groups, proportion=True).ci
    assert (low, high) == (0, pytest.approx(1 - 0.025 ** (1 / 20)))
    assert mean_interval([1.0] * 300, groups, proportion=True).ci == (pytest.approx(0.025 ** (1 / 20)), 1)
    assert one_sided_limits([0.0] * 300, groups)[1] == pytest.approx(1 - 0.05 ** (1 / 20))
    assert limit_share(0.0, count_effective(0.0, 0.0, 29, 29, 0.05), 0.05)[1] <= 0.1 < 1 - 0.05 ** (1 / 28)


@pytest.mark.parametrize(("topics", "each"), [(10, 10), (20, 15), (12, None)])
@pytest.mark.parametrize("share", [0.95, 0.7])
def test_the_interval_of_a_proportion_covers_it_where_topics_are_right_or_wrong_as_a_whole(topics, each, share):
    rng, hits = np.random.default_rng(5), []
    for _ in range(2000):
        sizes = rng.integers(1, 20, topics) if each is None else each
        values = np.repeat(rng.random(topics) < share, sizes).astype(float)
        low, high = mean_interval(values, np.repeat(np.arange(topics), sizes).tolist(), proportion=True).ci
        hits.append(low <= share <= high)
    assert np.mean(hits) >= 0.95 - slack(0.05, 2000)


SELDOM = {
    "one question in fifty, each by itself": lambda rng, n, topic: rng.random(n) < 0.02,
    "and as often one the other way": lambda rng, n, topic: (rng.random(n) < 0.07) * 1.0 - (rng.random(n) < 0.05),
    "one topic in fifty as a whole": lambda rng, n, topic: (rng.random(n) < 0.02)[topic],
    "all, by a little": lambda rng, n, topic: rng.normal(0.02, 0.3, n) + rng.normal(0, 0.1, n)[topic],
}


@pytest.mark.parametrize("changes", SELDOM)
def test_a_one_sided_limit_holds_the_mean_of_what_seldom_changes(changes):
    rng, missed, topic = np.random.default_rng(6), [], np.arange(300) // 15
    for _ in range(2000):
        values = SELDOM[changes](rng, 300, topic) * 1.0
        missed.append(one_sided_limits(values, topic.tolist())[1] < 0.02)
    assert np.mean(missed) <= 0.05 + slack(0.05, 2000)


def test_the_sign_flip_is_that_of_scipy_and_of_single_questions_the_exact_binomial_test():
    a, b = [0] * 11 + [1] * 3 + [1] * 26, [1] * 11 + [0] * 3 + [1] * 26
    assert paired_test(a, b).p == pytest.approx(binomtest(11, 14).pvalue, abs=0.01)
    assert paired_test(a[2:], b[2:]).p == pytest.approx(binomtest(9, 12).pvalue, rel=1e-12)
    rng = np.random.default_rng(9)
    for n, off in ((9, 1e-12), (25, 0.02)):
        differences = rng.normal(0.3, 1, n)
        theirs = permutation_test((differences,), np.mean, permutation_type="samples", rng=rng)
        assert paired_test(np.zeros(n), differences).p == pytest.approx(theirs.pvalue, abs=off)


def test_forty_out_of_forty_is_not_certainty_and_few_topics_widen_the_interval_of_a_proportion():
    interval = mean_interval([1.0] * 40, proportion=True)
    assert interval.value == interval.ci[1] == 1.0
    assert interval.ci[0] == pytest.approx(0.025 ** (1 / 40))
    values, topics = [1.0, 0.0] * 20, [i // 10 for i in range(40)]
    alone, clustered = mean_interval(values, proportion=True), mean_interval(values, topics, proportion=True)
    assert clustered.ci[0] < alone.ci[0] and alone.ci[1] < clustered.ci[1]


def test_equal_values_have_an_interval_of_no_width_no_topic_groups_nothing_and_what_cannot_be_measured_is_an_error():
    assert [mean_interval([2.5] * 6, groups).ci for groups in (None, [1, 1, 2, 2, 3, 3])] == [(2.5, 2.5)] * 2
    values = [0.1, 0.5, 0.3, 0.9]
    assert mean_interval(values, ["", None, "", ""]) == mean_interval(values)
    assert paired_test(values, values, ["", None, "", ""]).topics == 0
    for nothing in ([], [math.nan]):
        with pytest.raises(DataError):
            mean_interval(nothing)
    with pytest.raises(DataError, match="3 values cannot be paired with 2"):
        paired_test([1, 2, 3], [1, 2])


RANGES = st.sampled_from([(-math.inf, math.inf), (0, math.inf), (-math.inf, 1), (0, 1), (-1, 1)])


@settings(max_examples=500)
@given(
    st.lists(st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1.0]), min_size=1, max_size=12),
    st.data(),
    RANGES,
    st.booleans(),
)
def test_an_interval_holds_its_mean_and_leaves_a_range_only_where_a_value_does(values, data, within, proportion):
    groups = data.draw(st.none() | st.lists(st.sampled_from("abc"), min_size=len(values), max_size=len(values)))
    found = mean_interval(values, groups, within=within, proportion=proportion)
    low, high = found.ci
    assert low <= found.value <= high
    shape = orjson.loads(orjson.dumps(found))
    if len(values) == 1 or (groups and len(set(groups)) == 1):
        assert shape["ci"] == [None, None] and format_interval(shape["ci"]) == "-"
    else:
        least, most = (0, 1) if proportion else within
        assert low >= min(least, *values) and high <= max(most, *values)
        assert None not in shape["ci"]
    free = mean_interval(values, groups)
    assert free.ci[1] - free.value == pytest.approx(free.value - free.ci[0])


def test_one_question_or_one_topic_is_told_without_an_interval_and_proves_nothing():
    for values, groups in (([0.4], None), ([0.4, 0.9, 1.0, 0.7, 0.6, 0.8, 0.5], ["billing"] * 7)):
        test = paired_test([0.0] * len(values), values, groups)
        assert (test.p, test.enough_topics) == (1.0, False)
        assert format_estimate(test.difference, test.ci).endswith(" [-]")
        assert one_sided_limits(values, groups) == (-math.inf, math.inf)


def test_identical_versions_show_no_difference_and_five_topics_are_too_few_to_say_anything():
    result = paired_test([1.0] * 60, [1.0] * 60, [i // 5 for i in range(60)])
    assert (result.difference, result.ci, result.p, result.topics) == (0, (0, 0), 1.0, 12)
    assert result.mde == pytest.approx(0.5), "six of the twelve topics"
    assert paired_test([0.0] * 100, [1.0] * 10 + [-1.0] * 10 + [0.0] * 80).mde == pytest.approx(0.127, abs=0.002)
    result = paired_test([0.0] * 50, [1.0] * 50, [i // 10 for i in range(50)])
    assert not result.enough_topics and result.p > 0.05 and result.mde == math.inf
    assert paired_test([0.0] * 60, [1.0] * 60, [i // 10 for i in range(60)]).p == pytest.approx(2 / 64)


@pytest.mark.parametrize("topics", [6, 8, 20])
def test_topics_differing_by_what_is_detectable_are_told_apart_in_about_four_cases_of_five(topics):
    rng, runs = np.random.default_rng(topics + 1), 400
    groups = np.repeat(np.arange(topics), 5)

    def tested(effect):
        differences = effect + rng.normal(0, 0.3, topics)[groups] + rng.normal(0, 0.5, len(groups))
        return paired_test(np.zeros(len(groups)), differences, groups.tolist())

    printed = np.mean([tested(0.0).mde for _ in range(runs)])
    found = np.mean([tested(printed).p < 0.05 for _ in range(runs)])
    assert found == pytest.approx(0.8, abs=0.05 + slack(0.8, runs))


@given(st.lists(st.floats(0, 1), max_size=9))
def test_holm_multiplies_the_smallest_by_their_number_and_keeps_the_order(values):
    found = correct_holm({str(n): p for n, p in enumerate(values)})
    assert list(found) == [str(n) for n in range(len(values))]
    assert [p <= found[str(n)] <= 1 for n, p in enumerate(values)] == [True] * len(values)
    ranked = [found[str(n)] for n in sorted(range(len(values)), key=lambda n: values[n])]
    assert ranked == sorted(ranked) and (not values or ranked[0] == min(1, len(values) * min(values)))
    assert correct_holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})


@pytest.mark.parametrize(("p", "shown"), [(0.0, "< 0.001"), (0.0004, "< 0.001"), (0.001, "= 0.001"), (1.0, "= 1.000")])
def test_no_p_value_is_printed_as_nought(p, shown):
    assert format_p(p) == shown


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 7)), min_size=2, max_size=30))
def test_a_result_is_the_same_every_time_and_swapping_the_versions_mirrors_it(rows):
    a, b, groups = zip(*rows, strict=True)
    one, other = paired_test(a, b, groups), paired_test(b, a, groups)
    assert one == paired_test(a, b, groups)
    assert one.difference == pytest.approx(-other.difference)
    assert one.ci == pytest.approx((-other.ci[1], -other.ci[0]))
    assert one.p == pytest.approx(other.p, abs=0.03)
    assert one.ci[0] <= one.difference <= one.ci[1]


SETTINGS = {"alpha": 0.05, "horizon": 5000, "binary": True}


def cumulative(member, y):
    powers = [(member * y**i).cumsum(1) for i in range(4)]
    return Moments({(i, j): powers[i] for i in range(4) for j in range(4 - i)}, powers[1], powers[0] - powers[1])


def test_with_several_outcomes_a_user_the_variance_is_what_redrawing_users_gives():
    rng = np.random.default_rng(1)
    drawn = [list(rng.normal(rng.normal(), 0.3, rng.integers(1, 9))) for _ in range(400)]
    y, n = np.array([sum(u) for u in drawn]), np.array([len(u) for u in drawn])
    again = rng.integers(0, 400, (4000, 400))
    assert Moments.from_outcomes(drawn).variance() == pytest.approx((y[again].sum(1) / n[again].sum(1)).var(), rel=0.1)


@pytest.mark.parametrize(("failures", "speaks"), [(MIN_EACH - 1, False), (MIN_EACH, True)])
def test_nothing_is_said_before_ten_successes_and_ten_failures_in_each_arm(failures, speaks):
    small = Moments.from_outcomes([[0.0]] * failures + [[1.0]] * 90)
    large = Moments.from_outcomes([[0.0]] * 400 + [[1.0]] * 400)
    for pair in ((large, small), (small, large)):
        assert math.isfinite(compare_means(*pair, **SETTINGS)[1]) == speaks


def test_an_outcome_that_is_no_yes_or_no_needs_a_hundred_users_and_a_tail_that_is_not_too_long():
    rng = np.random.default_rng(2)
    drawn = rng.normal(size=1000), rng.normal(size=99), rng.lognormal(0, 2, 1000)
    normal, few, long = (Moments.from_outcomes([[v] for v in values]) for values in drawn)
    reach = [compare_means(normal, one, **{**SETTINGS, "binary": False})[1] for one in (normal, few, long)]
    assert [math.isfinite(one) for one in reach] == [True, False, False]


def test_looking_after_every_user_rejects_no_true_null_too_often_and_finds_a_true_difference():
    rng = np.random.default_rng(3)
    member = (rng.random((200, 6000)) < 0.5) * 1.0
    chance = rng.random((200, 6000))

    def found(rate):
        y = (chance < rate) * 1.0
        mean, reach = compare_means(cumulative(1 - member, y), cumulative(member, y), **SETTINGS)
        return (np.abs(mean) > reach).any(1).mean()

    assert found(0.7) <= 0.05
    assert found(0.7 + 0.06 * member) >= 0.9


def test_every_further_unit_is_a_fair_bet_and_a_right_split_is_hardly_ever_called_wrong():
    weights, counts = np.array([0.2, 0.3, 0.5]), np.array([7, 1, 12])
    after = [math.exp(log_e_multinomial(counts + np.eye(3, dtype=int)[arm], weights)) for arm in range(3)]
    assert np.dot(weights, after) == pytest.approx(math.exp(log_e_multinomial(counts, weights)))
    second = (np.random.default_rng(0).random((500, 4000)) < 0.1).cumsum(1)
    called = (log_e_multinomial(np.stack([np.arange(1, 4001) - second, second], -1), [90, 10]) >= math.log(20)).any(1)
    assert called.mean() <= 0.05


def test_rare_failures_on_one_arm_alone_are_evidence_and_failures_by_weight_are_none():
    assert float(log_e_rates([10, 60], [8990, 940], [90, 10])) > math.log(1000)
    assert float(log_e_rates([90, 10], [8910, 990], [90, 10])) < 0
