"""Arms by hash: the same everywhere and always, as the weights say, and unrelated to any other experiment's."""

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from program.serve.experiment_design import ARM, INCLUDE, Assignment, draw_number

# printf 'exp-2026-11-refunds\0arm\0user-1' | sha256sum | cut -c1-16
GOLDEN = [
    (ARM, "user-1", 0xA68670EBD557C720),
    (INCLUDE, "user-1", 0xFC16067FCD0AD643),
    (ARM, "user-2", 0x92064D905E4E0039),
    (INCLUDE, "user-2", 0x5270BCF8F02A057D),
    (ARM, "üñí", 0xED1D0E2AF9EA14A4),
    (INCLUDE, "üñí", 0xE6069B2FC2FAB9B3),
]
weights = st.lists(st.sampled_from([0.5, 1, 10, 33.3, 90]), min_size=2, max_size=5).map(tuple)
units = st.text(st.characters(), min_size=1)  # whatever a caller may hold, lone surrogates included


@pytest.mark.parametrize(("salt", "unit", "drawn"), GOLDEN)
def test_a_draw_is_what_sha256sum_says(salt, unit, drawn):
    assert draw_number("exp-2026-11-refunds", salt, unit) == drawn


def test_golden_units_are_in_their_arms():
    ninety_ten = Assignment("exp-2026-11-refunds", (90, 10), 0.5)
    assert [ninety_ten.arm(unit) for unit in ("user-1", "user-2", "üñí")] == [0, 0, 1]
    assert [ninety_ten.includes(unit) for unit in ("user-1", "user-2", "üñí")] == [False, True, False]


@given(units, weights)
def test_an_arm_depends_on_nothing_but_experiment_unit_and_weights(unit, shares):
    first = Assignment("exp-a", shares).arm(unit)
    Assignment("exp-b", shares).arm(unit)
    assert Assignment("exp-a", shares, include=0.3).arm(unit) == first
    assert 0 <= first < len(shares)


@given(units, weights, st.integers(2, 9))
def test_weights_count_only_by_their_ratios(unit, shares, times):
    assert Assignment("exp-a", shares).arm(unit) == Assignment("exp-a", tuple(times * w for w in shares)).arm(unit)


@given(units, st.floats(0.01, 1), st.floats(0.01, 1))
def test_a_larger_share_keeps_everyone_who_was_included(unit, one, other):
    low, high = sorted((round(one, 3), round(other, 3)))
    assert Assignment("exp-a", (1, 1), high).includes(unit) >= Assignment("exp-a", (1, 1), low).includes(unit)


@given(units)
def test_the_last_arm_ends_where_the_draws_end(unit):
    thirds = Assignment("exp-a", (1, 1, 1))
    assert thirds.arm(unit) == min(2, bisect_right([1 / 3, 2 / 3], draw_number("exp-a", ARM, unit) / 2**64))


def test_shares_are_those_asked_for_and_inclusion_tells_nothing_about_the_arm():
    n = 40_000
    assignment = Assignment("exp-a", (90, 10), 0.5)
    drawn = [(assignment.includes(f"u{i}"), assignment.arm(f"u{i}")) for i in range(n)]
    included = [arm for inside, arm in drawn if inside]
    outside = [arm for inside, arm in drawn if not inside]
    assert abs(len(included) - n / 2) < 4 * (n / 4) ** 0.5
    for part in (included, outside):
        assert abs(sum(part) - len(part) / 10) < 4 * (len(part) * 0.09) ** 0.5
