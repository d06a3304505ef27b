"""The search: knobs swept one at a time, then settings proposed near the best; and the bound of doubt."""

import numpy as np
import pytest

from ragc.answer import Answer, Usage
from ragc.errors import BudgetStop
from ragc.loop.policy import find_dimensions, read_setting
from ragc.optimize.compiler.choice import fit_doubt
from ragc.optimize.compiler.plan import ask_within
from ragc.optimize.compiler.runs.runner import Arm
from ragc.optimize.compiler.scoring import Scoring, gain_out_of_fold, prove_gain
from ragc.optimize.compiler.search import BATCH, NEAR, propose_settings, search_settings, sweep_knobs
from ragc.optimize.evaluation.evaluate import Grader
from ragc.optimize.labelled.dataset import LabelledQuestion
from ragc.settings import UtilitySettings

WEIGHTS = UtilitySettings()
KNOBS = ("policy.k", "policy.sentences", "policy.answer_above")


class Table:
    """A replay whose answers are written down: `tell` says what a setting comes to on a question."""

    def __init__(self, program, tell):
        self.program = program
        self.asked = 0
        self._tell = tell

    def answer_all(self, questions):
        self.asked += len(questions)
        return [self._tell(read_setting(self.program), int(one.question)) for one in questions]


def answered(right, calls=1):
    return Answer(text="right" if right else "wrong", outcome="answered", usage=Usage(calls))


def labelled(n):
    return LabelledQuestion(id=f"q{n}", question=str(n), topic=f"t{n // 2}", outcome="answered", facts=("right",))


def scoring_of(rag, table, count):
    return Scoring([Arm(table, [labelled(n) for n in range(count)])], Grader(rag, WEIGHTS, relevancy=False))


def swept(rag, tell, count=24, names=KNOBS):
    table = Table(rag.deepcopy(), tell)
    knobs = [dimension for dimension in find_dimensions(table.program) if dimension.name in names]
    before = read_setting(table.program)
    return sweep_knobs(scoring_of(rag, table, count), knobs, before), before


def moved(setting, before):
    return {name for name, value in setting.items() if value != before[name]}


def test_a_sweep_finds_the_best_value_of_each_knob_that_matters_and_leaves_the_others(rag):
    def tell(setting, n):
        right = abs(setting["policy.answer_above"] - 0.35) < 0.01 if n % 2 else setting["policy.sentences"] > 4
        return answered(right or n % 8 == 0)

    (found, effective), before = swept(rag, tell)
    assert found["policy.answer_above"] == pytest.approx(0.35) and found["policy.sentences"] > 4
    assert moved(found, before) == {one.name for one in effective} == {"policy.answer_above", "policy.sentences"}
    (lucky, _), before = swept(rag, lambda setting, n: answered(n % 2 == 0 or (setting["policy.k"] > 5 and n == 3)))
    assert lucky == before, "what wins on one topic alone is not taken"


@pytest.mark.parametrize(("cap", "found"), [("calls", {"policy.sentences"}), ("seconds", set())])
def test_a_cap_leaves_out_the_values_that_need_a_call_and_a_cap_on_time_ends_the_sweep(rag, cap, found):
    def tell(setting, n):
        if setting["policy.k"] != 5:
            raise BudgetStop(cap)
        return answered(setting["policy.sentences"] > 4 or n % 8 == 0)

    (setting, _), before = swept(rag, tell)
    assert moved(setting, before) == found


def proposed(rag, tell, trials, seed=0, names=KNOBS):
    """The setting that comes of so many proposals, where they began, every setting that was asked, and the knobs."""
    table = Table(rag.deepcopy(), tell)
    knobs = [dimension for dimension in find_dimensions(table.program) if dimension.name in names]
    start, seen = read_setting(table.program), []

    def watch(setting, n):
        seen.append(dict(setting)) if not n else None
        return tell(setting, n)

    table._tell = watch
    found = propose_settings(scoring_of(rag, table, 24), knobs, start, trials, seed, lambda done, of: None)
    return found, start, seen, knobs


def test_proposals_lie_near_the_start_are_as_many_as_asked_for_and_the_best_of_them_comes_out(rag):
    def tell(setting, n):
        return answered(n < 3 * setting["policy.sentences"])

    found, start, seen, knobs = proposed(rag, tell, 2 * BATCH + 3)
    assert 2 * BATCH < len(seen) <= 1 + 2 * BATCH + 3, "what is proposed again is not scored again"
    for d in knobs:
        assert all(abs(one[d.name] - start[d.name]) <= NEAR * (d.high - d.low) + 0.5 for one in seen)
    assert found["policy.sentences"] == max(one["policy.sentences"] for one in seen) > start["policy.sentences"]
    moved = {name for one in seen for name, value in one.items() if value != start[name]}
    assert moved <= set(KNOBS)


def test_the_same_seed_proposes_the_same_and_a_cap_ends_it_with_the_best_so_far(rag):
    tell = lambda setting, n: answered((n + setting["policy.k"]) % 3)  # noqa: E731
    assert proposed(rag, tell, 12)[2] == proposed(rag, tell, 12)[2] != proposed(rag, tell, 12, seed=1)[2]

    def capped(setting, n):
        if setting["policy.k"] != 5:
            raise BudgetStop("calls")
        return answered(n % 2)

    found, start, _, _ = proposed(rag, capped, 12)
    assert found == start


def test_a_search_begins_its_proposals_where_the_sweep_ended(rag):
    table = Table(rag.deepcopy(), lambda setting, n: answered(n < 4 * setting["policy.sentences"]))
    knobs = [dimension for dimension in find_dimensions(table.program) if dimension.name in KNOBS]
    found = search_settings(scoring_of(rag, table, 24), knobs, read_setting(table.program), 8, 0)
    assert found["policy.sentences"] == 6


def test_a_gain_on_one_topic_alone_or_of_one_topic_is_not_proved():
    before, lucky, steady = np.zeros(4), np.array([1.0, 0.0, 0.0, 0.0]), np.full(4, 0.2)
    gains = gain_out_of_fold(np.array([before, lucky, steady]), [f"t{n}" for n in range(4)])
    assert gains.tolist() == [0.2, 0.0, 0.0, 0.0]  # what the lucky one is worth on its topic has no say there
    topics = [f"t{n // 4}" for n in range(24)]
    alone = np.array([1.0 if topic == "t0" else -0.1 for topic in topics])
    most = np.array([0.4 if n % 4 else -0.1 for n in range(24)])
    assert prove_gain(most, topics) and not prove_gain(alone, topics)
    assert not prove_gain(np.zeros(24), topics) and not prove_gain(np.ones(24), ["t0"] * 24)


def test_under_a_cap_all_settings_are_asked_the_same_questions_of_every_topic(rag):
    left = [90]

    def tell(setting, n):
        left[0] -= 1
        if left[0] < 0:
            raise BudgetStop("calls")
        return answered(True)

    table = Table(rag.deepcopy(), tell)
    arm = Arm(table, [labelled(n) for n in range(48)])
    before = read_setting(table.program)
    (limited,), _ = ask_within([arm], [before, {**before, "policy.k": 3}], lambda asked: None)
    assert len(limited.questions) == 40  # five batches under both settings
    assert len({question.topic for question in limited.questions}) > 20


def test_answers_are_said_to_be_uncertain_under_the_confidence_where_most_were_wrong():
    low, high = [(n / 10, True) for n in range(4)], [(0.5 + n / 10, False) for n in range(5)]
    assert fit_doubt([*low, *high]) == 0.5
    assert fit_doubt(high * 2) == 0.0 and fit_doubt(low * 2) == 1.0
    assert fit_doubt(low) == 0.0  # too few to tell
