"""What a search turned without need is turned back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimize.compiler.simplify import simplified
from program.errors import BudgetStop

START = {"a": 0.0, "b": 0.0, "c": 0.0, "d": 0.0}
settings = st.fixed_dictionaries({name: st.sampled_from([0.0, 0.5, 1.0]) for name in START})


def test_a_value_that_does_no_good_is_put_back_and_one_that_does_stays():
    found = simplified({"a": 1.0, "b": 1.0, "c": 0.0, "d": 0.0}, START, lambda s: s["a"] - 0.1 * s["b"])
    assert found == {"a": 1.0, "b": 0.0, "c": 0.0, "d": 0.0}


@given(settings, st.dictionaries(st.sampled_from(sorted(START)), st.floats(-1, 1)))
def test_what_is_left_is_worth_no_less_and_every_value_is_the_old_or_the_starts(setting, weights):
    def worth(s):
        return sum(weight * s[name] for name, weight in weights.items())

    found = simplified(setting, START, worth)
    assert worth(found) >= worth(setting) - 1e-6
    assert all(found[name] in (setting[name], START[name]) for name in START)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_cap_ends_it_with_what_is_reached(left):
    asked = []

    def worth(s):
        if len(asked) >= left:
            raise BudgetStop("calls")
        asked.append(s)
        return 0.0

    found = simplified({"a": 1.0, "b": 1.0, "c": 0.0, "d": 0.0}, START, worth)
    assert sum(found.values()) == (2.0 if left < 2 else 1.0)
