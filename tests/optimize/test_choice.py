"""What is sealed: where nothing gains, nothing is taken but by a stated chance, however much was tried."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragc.optimize.compiler.choice import FITTED, choose_points
from ragc.optimize.compiler.scoring import Scores
from ragc.optimize.evaluation.outcome import AS_IT_IS
from ragc.optimize.evaluation.stats import ALPHA, paired_test

TOPICS = [f"t{n}" for n in range(8)]
UNEVEN = np.linspace(-0.05, 0.05, 8)  # where no two topics differ, what was never seen might
DRAWS = 2000
TRAIN, DEV, TEST, PER_TOPIC = 240, 200, 300, 12
CHANGED = 0.15  # share of the questions that a setting without effect answers otherwise


class Table:
    """Scores of settings that are named by `policy.k`, on questions of some topics."""

    def __init__(self, rows, topics, calls=None):
        self.rows, self.calls = np.asarray(rows, float), np.zeros(len(rows)) if calls is None else calls
        self.questions = [SimpleNamespace(cluster=topic) for topic in topics]

    def __call__(self, setting):
        utility = self.rows[int(setting["policy.k"])]
        none = np.full(len(utility), np.nan)
        calls = np.full(len(utility), self.calls[int(setting["policy.k"])])
        return Scores(utility, none, calls, np.zeros(len(utility)), none)


def settings(count):
    return [{"policy.k": float(n)} for n in range(count)]


def choose(train, dev, topics=TOPICS, names=None, calls=None, **how):
    """The name of what is sealed of settings by these rows of utilities, as it is first, then what was fitted."""
    names = names or [AS_IT_IS, FITTED, *(f"way {n}" for n in range(len(dev) - 2))]
    stages = dict(zip(names, settings(len(dev)), strict=False))
    return choose_points(Table(train, topics, calls), Table(dev, topics, calls), stages, 0.05, **how)


rows = st.lists(st.lists(st.floats(-1, 1), min_size=8, max_size=8), min_size=2, max_size=5)


@given(rows)
def test_what_was_fitted_stands_unless_it_surely_loses_and_a_way_that_is_better_on_each_topic_takes_its_place(drawn):
    top, step = np.max(drawn, axis=0), 0.2 + UNEVEN
    assert choose([top, top + step], [top, top + step]).chosen == FITTED
    assert choose([top, top], [top, top]).chosen == FITTED
    assert choose([top, top - step], [top, top - step]).chosen == AS_IT_IS
    best = (top + 0.5 + UNEVEN).tolist()
    assert (
        choose([*drawn, best], [*drawn, best], names=[*[AS_IT_IS, FITTED, *"abc"][: len(drawn)], "best"]).chosen
        == "best"
    )
    worse = np.min(drawn, axis=0).tolist()
    kept = choose([top, top, *drawn, worse], [top, top, *drawn, worse])
    assert kept.chosen == FITTED


def test_where_dev_is_kept_for_a_proof_what_was_fitted_stands_and_nothing_else_does():
    low, high = np.zeros(8), 0.9 + UNEVEN
    assert choose([low, low, high], [low, low, high]).chosen == "way 0"
    assert choose([low, low, high], [low, low, high], gated=False).chosen == FITTED


def test_a_setting_of_fewer_calls_is_the_economical_point_where_that_is_worth_more_at_its_price():
    rows = [np.full(8, 0.50), np.full(8, 0.52), 0.45 + UNEVEN]
    found = choose(rows, rows, calls=[1.0, 1.0, 0.0])
    assert found.chosen == FITTED
    assert [found.points[name]["policy.k"] for name in ("quality", "balanced", "economy")] == [1.0, 1.0, 2.0]


def test_stages_tell_what_each_setting_comes_to_on_train_and_on_dev():
    found = choose([np.zeros(8), np.full(8, 0.25)], [np.full(8, 0.1), np.full(8, 0.3)])
    assert [stage.describe() for stage in found.stages] == [
        {"name": AS_IT_IS, "train": 0.0, "dev": 0.1, "calls": 0.0},
        {"name": FITTED, "train": 0.25, "dev": 0.3, "calls": 0.0},
    ]
    assert (found.before, found.after) == ([0.1] * 8, [0.3] * 8)


def draw(rng, count, size):
    """Gains of settings without effect over the program as it is, a question."""
    return (rng.random((count, size)) < CHANGED) * rng.choice([-1.0, -0.5, 0.5, 1.0], (count, size))


def compile_once(rng, count, gain=0.0):
    """Whether a search among so many settings is taken, and what is sealed counts as better, and whether it is the
    one that gains: the best on train, judged on dev, then on dev and test together."""
    sizes, topics = (TRAIN, DEV, TEST), [np.arange(n) // PER_TOPIC for n in (TRAIN, DEV, TEST)]
    train, dev, test = (draw(rng, count, n) for n in sizes)
    for part in (train, dev, test):
        part[0] = np.where(rng.random(part.shape[1]) < gain, 1.0, part[0])
    best = int(train.mean(axis=1).argmax())
    none = np.zeros(DEV)
    found = choose([none[:8]] * 3, [none, none, dev[best]], topics[1].tolist(), names=[AS_IT_IS, FITTED, "search"])
    taken = found.chosen == "search"
    after = np.concatenate([dev[best], test[best]]) if taken else np.zeros(DEV + TEST)
    both = [*topics[1].tolist(), *(f"test {topic}" for topic in topics[2])]
    better = taken and paired_test(np.zeros(DEV + TEST), after, both).verdict == "better"
    return taken, better


@pytest.mark.parametrize("count", [1, 20, 260])
def test_of_settings_without_effect_one_is_taken_in_a_twentieth_of_compiles_and_fewer_count_as_better(count):
    rng = np.random.default_rng(count)
    draws = DRAWS if count < 200 else DRAWS // 4
    taken, better = np.mean([compile_once(rng, count) for _ in range(draws)], axis=0)
    error = np.sqrt(ALPHA * (1 - ALPHA) / draws)
    assert taken <= ALPHA + 3 * error and better <= 0.025 + 3 * error


def test_what_labels_teach_counts_as_better_in_a_fortieth_of_compiles_where_they_teach_nothing():
    rng = np.random.default_rng(0)
    topics = (np.arange(DEV + TEST) // PER_TOPIC).tolist()
    won = [
        paired_test(np.zeros(DEV + TEST), draw(rng, 1, DEV + TEST)[0], topics).verdict == "better" for _ in range(DRAWS)
    ]
    assert np.mean(won) <= 0.025 + 3 * np.sqrt(0.025 * 0.975 / DRAWS)
