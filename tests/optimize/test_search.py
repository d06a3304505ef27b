"""The search: studies on disk, sweeps, trials given up in time, thresholds fitted, and the settings that are chosen."""

import sqlite3
from itertools import pairwise

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from optimize.compiler import study as study_room
from optimize.compiler.choice import Candidate, find_best, find_frontier, fit_doubt, price_points
from optimize.compiler.compile import lead_study
from optimize.compiler.runs.runner import Arm
from optimize.compiler.scoring import Scoring, gain_out_of_fold, survives, sweep_knobs
from optimize.compiler.search import FIRST, STUDY, SWEEP, Live, Search, Session
from optimize.compiler.study import Caps, Note, Spending, create_study, list_studies, open_study
from optimize.evaluation.evaluate import Grader
from optimize.labelled.dataset import LabelledQuestion
from program.answer import Answer, Usage
from program.errors import BudgetStop, SettingsError, StudyError
from program.knowledge.project import Project
from program.loop.policy import find_dimensions, read_setting
from program.settings import UtilitySettings
from tests.conftest import add_toml

WEIGHTS = UtilitySettings()
KNOBS = ("policy.k", "policy.sentences", "policy.answer_above")


def trial(value):
    return optuna.create_trial(
        params={"a": 0.5}, distributions={"a": optuna.distributions.FloatDistribution(0, 1)}, values=[value, 1.0]
    )


@pytest.mark.parametrize("where", ["a journal file", "a database"])
def test_trials_are_there_for_whoever_opens_the_study(own_shop, where):
    toml = "" if where == "a journal file" else f'[study]\nstorage = "sqlite:///{own_shop}/studies.db"'
    project = add_toml(own_shop, toml)
    study = create_study(project, {"seed": 3}, {"trials": 2})
    study.add(trial(0.25))
    again = open_study(project, study.name)
    again.add(trial(0.75))
    assert [t.values[0] for t in study.trials()] == [0.25, 0.75] and again.frontier() == {1}
    assert (again.notes["identity"], again.notes["trials"]) == ({"seed": 3}, 2)
    again.note("finished", "shop@v2")
    assert open_study(project).finished == "shop@v2"
    assert study.optuna.metric_names == ["utility", "model calls a question"]
    assert [way.name for way in study.optuna.directions] == ["MAXIMIZE", "MINIMIZE"]


def test_each_study_has_a_name_of_its_own_and_the_last_is_opened_by_default(own_shop):
    project = Project.open(own_shop)
    with pytest.raises(StudyError, match="Start one"):
        open_study(project)
    made = [create_study(project, {}, {}).name for _ in range(3)]
    assert made == list_studies(project) == ["shop-1", "shop-2", "shop-3"] and open_study(project).name == "shop-3"
    with pytest.raises(StudyError, match=r"Known: shop-1, shop-2, shop-3"):
        open_study(project, "shop-9")
    with lead_study(project, "shop-1"), pytest.raises(StudyError, match="already"), lead_study(project, "shop-1"):
        pass
    with lead_study(project, "shop-1"), pytest.raises(StudyError, match="has not said"):
        open_study(project, "shop-1").wait_for(Note.PLANNED, lambda: None, seconds=0)
    with pytest.raises(SettingsError, match="study"):
        create_study(add_toml(own_shop, '[study]\nstorage = "nonsense://x"'), {}, {})


def test_a_study_that_was_killed_before_it_was_whole_is_passed_over(own_shop):
    project = Project.open(own_shop)
    study = create_study(project, {}, {})
    study.add(trial(0.5))
    folder = project.private / "studies"
    with (folder / "shop-1.journal").open("ab") as file:  # a line that the kill left unfinished
        file.write(b'{"op_code": 4, "wor')
    open_study(project).add(trial(0.75))
    assert [t.values[0] for t in open_study(project).trials()] == [0.5, 0.75]
    (folder / "shop-2.journal").write_text('{"op_code": 0')
    assert open_study(project).name == "shop-1"
    with pytest.raises(StudyError, match="shop-2 holds nothing"):
        open_study(project, "shop-2")


def test_a_database_that_is_away_for_a_moment_is_tried_again(own_shop, monkeypatch):
    study = create_study(add_toml(own_shop, f'[study]\nstorage = "sqlite:///{own_shop}/studies.db"'), {}, {})
    away = []

    def refuse(*_):
        if not away:
            away.append(True)
            raise OperationalError("select", {}, sqlite3.OperationalError("database is locked"))

    monkeypatch.setattr(study_room, "RETRY_EVERY", 0.05)
    event.listen(Engine, "before_cursor_execute", refuse)
    try:
        study.add(trial(0.5))
    finally:
        event.remove(Engine, "before_cursor_execute", refuse)
    assert away and len(study.trials()) == 1


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


def searched(rag, folder, tell, firsts, trials, count=24, swept=None):
    """A search of so many proposals past its first settings; and the table it asked."""
    folder.mkdir(exist_ok=True)
    (folder / "ragc.toml").write_text('name = "table"\n[knowledge.one]\npath = "one"\nabout = "one"\n')
    table = Table(rag.deepcopy(), tell)
    before = read_setting(table.program)
    study = create_study(Project.open(folder), {}, {})
    search = Search(study, scoring_of(rag, table, count), [{**before, **first} for first in firsts], 0)
    search.run(len(firsts), session())
    if swept is not None:
        search.follow_sweeps({"setting": {**before, **swept}, "effective": KNOBS})
    search.run(len(search.firsts) + trials, session())
    return search, table


def session():
    return Session(None, Spending(), Caps(), Live(), lambda live: None)


def test_first_settings_are_tried_in_full_and_then_proposals_of_the_knobs_that_matter(rag, tmp_path):
    def tell(setting, n):
        return answered(n < 2 * setting["policy.sentences"])

    search, _ = searched(rag, tmp_path, tell, [{}, {"policy.sentences": 5}], 6, swept={"policy.sentences": 6})
    trials = search.trials()
    assert [one.origin for one in trials] == [FIRST, FIRST, SWEEP, *[STUDY] * 6]
    base = trials[2].setting
    assert all({n for n, v in one.setting.items() if v != base[n]} <= set(KNOBS) for one in trials[3:])
    assert search.rank_trials()[0].setting["policy.sentences"] == 6 and not any(one.pruned for one in trials[:3])


def test_a_search_that_stopped_goes_on_as_if_it_had_not(rag, tmp_path):
    def tell(setting, n):
        return answered(n < 2 * setting["policy.sentences"] + setting["policy.k"], 1 + setting["policy.k"] // 6)

    whole, _ = searched(rag, tmp_path, tell, [{}, {"policy.k": 3}], 8, swept={})
    half, table = searched(rag, tmp_path / "again", tell, [{}, {"policy.k": 3}], 3, swept={})
    firsts = [setting for origin, setting in half.firsts if origin == FIRST]
    resumed = Search(half.study, scoring_of(rag, table, 24), firsts, 0)
    resumed.follow_sweeps({"setting": half.firsts[-1][1], "effective": KNOBS})
    resumed.run(len(whole.trials()), session())
    assert [one.setting for one in resumed.trials()] == [one.setting for one in whole.trials()]


def test_a_trial_that_is_surely_worse_and_no_cheaper_is_given_up_and_a_cheaper_one_is_not(rag, tmp_path):
    def tell(setting, n):
        bad = setting["policy.k"] != 5
        return answered(not bad or n % 8 == 0, calls=1 if bad and setting["policy.sentences"] == 1 else 2)

    search, _ = searched(rag, tmp_path, tell, [{"policy.k": 5}], 16, count=60, swept={})
    tried = [one for one in search.trials() if one.origin == STUDY and one.setting["policy.k"] != 5]
    assert any(one.pruned for one in tried)
    assert not any(one.pruned for one in tried if one.setting["policy.sentences"] == 1)
    ranked, every = ({one.setting["policy.k"] for one in of} for of in (search.rank_trials(), tried))
    assert len(ranked) < len(every)


def test_finalists_are_the_frontier_and_the_best_of_each_stage_no_two_alike(rag, tmp_path):
    def tell(setting, n):
        return answered(n < 4 * setting["policy.sentences"], calls=setting["policy.sentences"])

    firsts = [{"policy.sentences": n} for n in (1, 3, 6)]
    search, _ = searched(rag, tmp_path, tell, firsts, 0)
    assert {one.setting["policy.sentences"] for one in search.pick_finalists(6)} == {1, 3, 6}
    assert len(search.pick_finalists(2)) == 2


def swept(rag, tell, count=24, names=KNOBS):
    table = Table(rag.deepcopy(), tell)
    knobs = [dimension for dimension in find_dimensions(table.program) if dimension.name in names]
    before = read_setting(table.program)
    return sweep_knobs(scoring_of(rag, table, count), knobs, before), before


def test_a_sweep_finds_the_best_value_of_each_knob_that_matters_and_leaves_the_others(rag):
    def tell(setting, n):
        right = abs(setting["policy.answer_above"] - 0.35) < 0.01 if n % 2 else setting["policy.sentences"] > 4
        return answered(right or n % 8 == 0)

    found, before = swept(rag, tell)
    assert found.setting["policy.answer_above"] == pytest.approx(0.35) and found.setting["policy.sentences"] > 4
    assert found.setting["policy.k"] == before["policy.k"]
    assert {*found.effective} == {*found.gains} == {"policy.answer_above", "policy.sentences"}
    assert min(found.gains.values()) > 0
    lucky, before = swept(rag, lambda setting, n: answered(n % 2 == 0 or (setting["policy.k"] > 5 and n == 3)))
    assert lucky.setting == before and not lucky.gains, "what wins on one topic alone is not taken"


@pytest.mark.parametrize(("cap", "found"), [("calls", {"policy.sentences"}), ("seconds", set())])
def test_a_cap_leaves_out_the_values_that_need_a_call_and_a_cap_on_time_ends_the_sweep(rag, cap, found):
    def tell(setting, n):
        if setting["policy.k"] != 5:
            raise BudgetStop(cap)
        return answered(setting["policy.sentences"] > 4 or n % 8 == 0)

    assert set(swept(rag, tell)[0].gains) == found


OWN = 0.01
candidates = st.lists(
    st.tuples(st.integers(-20, 20), st.integers(0, 30)).map(lambda pair: Candidate({}, pair[0] / 20, pair[1] / 10)),
    min_size=1,
)


def at(one, price):
    """Utility were a call to cost that price."""
    return one.utility + (OWN - price) * one.calls


@given(candidates, st.floats(0.01, 2))
def test_whatever_a_call_costs_the_best_setting_is_on_the_frontier(every, price):
    front = find_frontier(every)
    assert max(at(one, price) for one in front) >= max(at(one, price) for one in every) - 1e-9
    assert all(a.calls < b.calls and a.utility < b.utility for a, b in pairwise(front))


@given(candidates)
def test_economy_takes_fewer_calls_where_some_price_makes_that_best(every):
    prices = price_points(every, OWN)
    balanced, economy = (find_best(every, prices[name], OWN) for name in ("balanced", "economy"))
    assert prices["quality"] <= prices["balanced"] < prices["economy"]
    assert economy.calls <= balanced.calls
    if any(one.calls < balanced.calls and at(one, 15.0) > at(balanced, 15.0) for one in every):
        assert economy.calls < balanced.calls


def test_a_setting_is_judged_on_a_topic_by_what_the_other_topics_say_and_a_gain_on_one_alone_does_not_survive():
    before, lucky, steady = np.zeros(4), np.array([1.0, 0.0, 0.0, 0.0]), np.full(4, 0.2)
    gains = gain_out_of_fold(np.array([before, lucky, steady]), [f"t{n}" for n in range(4)], among=slice(1, None))
    assert gains.tolist() == [0.2, 0.0, 0.0, 0.0]  # what the lucky one is worth on its topic has no say there
    topics = [f"t{n // 4}" for n in range(24)]
    alone = np.array([1.0 if topic == "t0" else -0.1 for topic in topics])
    most = np.array([0.4 if n % 4 else -0.1 for n in range(24)])
    assert survives(most, topics) and not survives(alone, topics)
    assert not survives(np.zeros(24), topics) and not survives(np.ones(24), ["t0"] * 24)


def test_answers_are_said_to_be_uncertain_under_the_confidence_where_most_were_wrong():
    low, high = [(n / 10, True) for n in range(4)], [(0.5 + n / 10, False) for n in range(5)]
    assert fit_doubt([*low, *high]) == 0.5
    assert fit_doubt(high * 2) == 0.0 and fit_doubt(low * 2) == 1.0
    assert fit_doubt(low) == 0.0  # too few to tell
