"""Caps: never passed, whoever spends and however many at once."""

import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimize.spending import Caps, Spending
from program.errors import BudgetStop


@given(st.integers(1, 30), st.floats(0.01, 1.0), st.integers(0, 9))
def test_no_cap_is_passed_when_many_spend_at_once(calls, usd, seed):
    spending = Spending(Caps(calls, usd, None))
    stopped = []

    def spend(number):
        drawn = random.Random(seed * 100 + number)
        try:
            for _ in range(20):
                most = drawn.uniform(0, 0.1)
                spending.before_call(most)
                spending.after_call(most, drawn.uniform(0, most))
        except BudgetStop as stop:
            stopped.append(stop.tripped)

    threads = [threading.Thread(target=spend, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert spending.calls <= calls
    assert spending.usd <= usd + 1e-12
    assert set(stopped) <= {"calls", "usd"} and (stopped or spending.calls == 80)


def test_the_time_is_up_before_a_call_not_after():
    with pytest.raises(BudgetStop, match="seconds"):
        Spending(Caps(seconds=0.0)).before_call()


def test_a_call_on_its_way_may_leave_room_for_the_next():
    spending = Spending(Caps(usd=1.0))
    spending.before_call(0.9)
    threading.Timer(0.1, spending.after_call, (0.9, 0.1)).start()
    spending.before_call(0.9)
    assert spending.calls == 2
