"""How a compile divides its caps among its stages."""

import shutil
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ragc.optimize.compiler.plan import CapPlan, QuestionCost
from ragc.optimize.compiler.spending import Caps
from tests.optimize.conftest import compile_

STAGES = ("ask", "teach", "try", "fit", "choose", "test")
PLANS = st.builds(
    CapPlan,
    st.builds(Caps, st.integers(50, 20_000), st.floats(0.1, 100), st.floats(10, 1e5)),
    train=st.integers(12, 300),
    dev=st.integers(0, 300),
    test=st.integers(1, 400),
    prompts=st.integers(1, 2),
    others=st.integers(0, 2),
    each=st.none() | st.builds(QuestionCost, st.floats(0.1, 5), st.floats(0.0001, 0.01)),
)


@given(PLANS)
def test_no_stage_may_spend_less_than_the_one_before_it_and_the_test_all(plan):
    limits = [plan.limit(stage) for stage in STAGES]
    for earlier, later in pairwise(limits):
        assert earlier.calls <= later.calls and earlier.usd <= later.usd + 1e-9 and earlier.seconds <= later.seconds
    assert limits[-1].calls <= plan.caps.calls and limits[-1].seconds == plan.caps.seconds


@given(PLANS, st.floats(1, 3))
def test_a_cap_that_reaches_to_all_that_is_needed_keeps_room_for_dev_and_the_test(plan, times):
    each = plan.each or QuestionCost(1.1, 0.001)
    learned, tested = plan.prompts * (plan.train + plan.dev), (plan.prompts + plan.others) * plan.test
    caps = Caps(int(times * (learned + tested) * each.calls) + 1)
    plan = replace(plan, caps=caps, each=each)
    after_choice = caps.calls - plan.limit("choose").calls
    after_trials = caps.calls - plan.limit("try").calls
    least = min(tested * each.calls, caps.calls * tested / (learned + tested))
    assert after_choice >= least - 1
    assert after_trials >= after_choice + plan.prompts * plan.dev * min(each.calls, caps.calls / (learned + tested)) - 1


def test_a_cap_pays_for_the_program_as_it_is_and_what_it_leaves_untried_is_named(paid_shop, model):
    whole = compile_(paid_shop)
    assert not whole.untried and not whole.lacks
    shutil.rmtree(paid_shop / ".ragc")
    model.calls.clear()
    most = whole.calls * 2 // 3
    done = compile_(paid_shop, max_calls=most, seed=1)
    assert done.calls == len(model.calls) <= most
    assert done.after.grades and done.untried and done.lacks > 0
    assert not {"as it is", "labels and thresholds"} & {*done.untried}
