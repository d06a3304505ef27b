"""The search: questions judged in growing shares, a trial given up only where it could be best at no price."""

import random
import tempfile
from itertools import accumulate, chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from optimize.compiler.front import Candidate, best, frontier, prices
from optimize.compiler.journal import create
from optimize.compiler.paths import NONE
from optimize.compiler.scoring import Arm
from optimize.compiler.spending import Spending
from optimize.compiler.study import SHARES, Live, Search
from optimize.labelled.dataset import LabelledQuestion
from program.answer import Answer, Usage
from program.loop.policy import read_setting
from program.project import Project
from program.settings import UtilitySettings

ROUTES = ("direct", "simple", "complex")
STARTS = (5, 6, 7, 8)  # of the knob `policy.k`, by which the settings that a search begins with are told


class Table:
    """A replay whose answers are written in a table: `tell` says what a setting comes to on a question."""

    def __init__(self, program, tell):
        self.program = program
        self.record = None
        self._tell = tell
        self.asked = []

    def known(self, questions):
        return [NONE for _ in questions]

    def answers(self, questions):
        self.asked.append((read_setting(self.program), [int(question) for question in questions]))
        return [self._tell(read_setting(self.program), int(question)) for question in questions]


def searched(rag, questions, tell, weights, trials, arms=1):
    """A search of so many trials past its starts, of which the first is tried last."""
    program = rag.deepcopy()
    tables = [Table(program.deepcopy(), tell) for _ in range(arms)]
    parts = [Arm(table, questions[n::arms]) for n, table in enumerate(tables)]
    starts = [{**read_setting(program), "policy.k": k} for k in STARTS]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "ragc.toml").write_text('name = "table"\n[knowledge.one]\npath = "one"\nabout = "one"\n')
        journal = create(Project.open(folder), {})
        search = Search(parts, weights, 0, starts, journal)
        assert search.run(trials, lambda live: None, Live(), Spending()) == ""
        return search, search.trials, tables


def labelled(n, outcome="answered", route=None):
    facts = ("right",) if outcome != "abstain" else ()
    return LabelledQuestion(id=f"q{n}", question=str(n), outcome=outcome, route=route, facts=facts)


def anything(seed, questions):
    """What any program could say: of each setting some questions right, in few calls or many."""

    def tell(setting, n):
        bent = random.Random(f"{seed} {sorted(setting.items())}")
        right, refuses, dearest = bent.random(), bent.random() / 2, bent.randint(1, 9)
        rolled = random.Random(f"{seed} {sorted(setting.items())} {n}")
        route = rolled.choice(ROUTES)
        if rolled.random() < refuses:
            return Answer(
                "", rolled.choice(["abstain", "clarify"]), route=route, usage=Usage(rolled.randint(0, dearest))
            )
        text = "right" if rolled.random() < right else "neither here nor there"
        return Answer(text, "answered", route=route, usage=Usage(rolled.randint(1, dearest)))

    drawn = random.Random(seed)
    return tell, [
        labelled(n, drawn.choice(["answered", "answered", "abstain", None]), drawn.choice([None, *ROUTES]))
        for n in range(questions)
    ]


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10**6),
    many=st.integers(4, 30),
    arms=st.integers(1, 3),
    wrong=st.floats(-2, 0),
    missed=st.floats(-1, 0.5),
    call=st.floats(0, 0.1),
)
def test_in_full_no_trial_that_was_given_up_is_above_the_frontier_it_was_given_up_against_at_any_price(
    rag, seed, many, arms, wrong, missed, call
):
    tell, questions = anything(seed, many)
    weights = UtilitySettings(wrong=wrong, missed=missed, call=call)
    search, trials, _ = searched(rag, questions, tell, weights, 12, arms)
    pruned = [trial for trial in trials if trial.pruned]
    assume(pruned)
    for trial in pruned:
        front = frontier([t.candidate for t in trials[: trial.number] if not t.pruned], call, money=False)
        scores = search.scores(trial.setting)
        full = Candidate(trial.setting, scores.worth, scores.calls)
        for price in np.linspace(0, prices(front, call)["economy"], 40):
            assert full.at(price, call) <= best(front, price, call).at(price, call) + 1e-9
        assert trial.judged_on < many and scores.worth <= trial.worth + 1e-9


def test_a_trial_is_judged_on_growing_shares_the_most_uncertain_questions_first(rag):
    undecided, lost = range(10, 15), range(15, 20)  # half of the starts are right, none is

    def tell(setting, n):
        wrong = n in lost or (n in undecided and setting["policy.k"] % 2)
        return Answer("wrong" if wrong and setting["policy.k"] != STARTS[0] else "right", "answered", usage=Usage(1))

    _, _, (table,) = searched(rag, [labelled(n) for n in range(20)], tell, UtilitySettings(), 0)
    asked = [places for setting, places in table.asked if setting["policy.k"] == STARTS[0]]
    assert [*chain(*asked)] == [*lost, *undecided, *range(10)]
    assert [*accumulate(map(len, asked))] == [round(share * 20) for share in SHARES] == [1, 2, 4, 8, 14, 20]


@pytest.mark.parametrize(
    ("wrong", "calls", "judged_on"),
    [(range(20), 2, 2), ([12], 2, 8), ([19], 2, 20), ([], 2, 20), ([], 1, 20), ([12], 1, 20), ([12, 13], 1, 4)],
)
def test_a_trial_is_given_up_on_the_first_share_that_proves_it_worse_at_every_price(rag, wrong, calls, judged_on):
    """Against a start that is right everywhere in two calls; the questions of doubt are 10 to 14."""

    def tell(setting, n):
        first = setting["policy.k"] == STARTS[0]
        mistaken = n in wrong if first else setting["policy.k"] == STARTS[1] and n in range(10, 15)
        return Answer("wrong" if mistaken else "right", "answered", usage=Usage(calls if first else 2))

    _, trials, _ = searched(rag, [labelled(n) for n in range(20)], tell, UtilitySettings(), 0)
    assert (trials[-1].start, trials[-1].judged_on, trials[-1].pruned) == (0, judged_on, judged_on < 20)


def test_a_trial_that_can_be_best_only_between_two_prices_is_judged_in_full(rag):
    """At no price of a call the start without mistakes is better, at that of the economy point the frugal one."""

    def tell(setting, n):
        k = setting["policy.k"]
        mistakes, calls = {STARTS[0]: (1, (4, 3, 1)[(n > 12) + (n > 13)]), STARTS[1]: (0, 4)}.get(k, (4, 1))
        return Answer("wrong" if n < mistakes else "right", "answered", usage=Usage(calls))

    _, trials, _ = searched(rag, [labelled(n) for n in range(20)], tell, UtilitySettings(), 0)
    assert (trials[-1].start, trials[-1].judged_on, trials[-1].pruned) == (0, 20, False)
