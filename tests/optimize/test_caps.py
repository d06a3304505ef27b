"""Caps of a compile: kept with what is compiled, however often the same command is given."""

import time
from types import SimpleNamespace

import pytest

from ragc.optimize.compiler import spending
from ragc.optimize.compiler.plan import SECONDS as SHARES
from ragc.optimize.compiler.runs.performer import PARALLEL_CALLS
from tests.optimize.conftest import compile_

CALLS, SECONDS = 15, 600.0


def interrupted(folder, at="trying whole ways", **options):
    """A compile that is stopped in a stage."""

    def stop(live):
        if live.stage == at and live.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_(folder, watch=stop, **options)


def later(monkeypatch, seconds=None):
    """Seconds, in a list of one or told by a function, by which the clock of what is spent is ahead."""
    gone = [0.0]
    ahead = seconds or (lambda: gone[0])
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead(), time=time.time, sleep=time.sleep)
    monkeypatch.setattr(spending, "time", clock)
    return gone


def test_what_a_stopped_compile_spent_counts_under_the_cap_of_the_same_one_given_again(paid_shop, model):
    interrupted(paid_shop, at="choosing candidates", max_calls=CALLS)
    before = len(model.calls)
    done = compile_(paid_shop, max_calls=CALLS)
    assert before < len(model.calls) == done.calls <= CALLS
    assert done.stopped_by == "calls"
    again = compile_(paid_shop, max_calls=CALLS)
    assert again.calls <= CALLS, "a sealed version ends the account"
    assert len(model.calls) == done.calls + again.calls


def test_a_compile_stopped_before_its_choice_is_sealed_under_its_caps_when_it_is_given_again(paid_shop, monkeypatch):
    gone = later(monkeypatch)

    def stop(live):
        if live.stage == "fitting thresholds: labels and thresholds":
            gone[0] = 1.2 * SHARES["choose"] * SECONDS
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_(paid_shop, max_seconds=SECONDS, watch=stop)
    gone[0] = 0.0
    assert compile_(paid_shop, max_seconds=SECONDS).reference == "shop@v2"


def test_the_time_of_all_tries_counts_and_no_call_begins_after_it(paid_shop, model, monkeypatch):
    later(monkeypatch, lambda: 10 * len(model.calls))  # a call takes ten seconds
    interrupted(paid_shop, max_seconds=500)
    paid = len(model.calls)
    model.calls.clear()
    done = compile_(paid_shop, max_seconds=500)
    assert done.stopped_by == "seconds" and 10 * paid < done.seconds
    assert 10 * (paid + len(model.calls)) <= 500 + 10 * PARALLEL_CALLS  # those on their way when the time was up


def test_a_cap_that_is_reached_in_the_test_is_told(paid_shop, monkeypatch):
    gone = later(monkeypatch)

    def pass_(live):
        if live.stage == "testing":
            gone[0] = 2 * SECONDS

    done = compile_(paid_shop, max_seconds=SECONDS, watch=pass_)
    assert done.stopped_by == "seconds"
    assert not done.after.grades


def test_nothing_is_paid_for_where_no_version_could_be_sealed(paid_shop, model):
    (paid_shop / "artifacts").write_text("a file in the place of the folder")
    with pytest.raises(OSError, match="artifacts"):
        compile_(paid_shop)
    assert not model.calls
