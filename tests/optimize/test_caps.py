"""Caps of a study: kept with it, for all that work on it and however often it is resumed."""

import time
from types import SimpleNamespace

import pytest

from optimize.compiler import study
from optimize.compiler.compile import join_study
from optimize.compiler.runs.replay import PARALLEL_CALLS
from optimize.compiler.study import Share
from program.knowledge.project import Project
from tests.optimize.conftest import compile_

CALLS, SECONDS = 60, 600.0
ROOM = 120  # calls for a search to begin


def interrupted(folder, at="trying the first settings", **options):
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
    monkeypatch.setattr(study, "time", clock)
    return gone


@pytest.mark.parametrize(("began", "more"), [(CALLS, None), (None, 5)])
def test_a_resumed_compile_counts_what_was_spent_before_under_its_cap_or_the_one_given(paid_shop, model, began, more):
    interrupted(paid_shop, max_calls=began)
    before = len(model.calls)
    done = compile_(paid_shop, resume=True, max_calls=more and before + more)
    assert before < len(model.calls) <= (began or before + more)
    assert done.stopped_by == "calls"
    assert more or done.calls == len(model.calls)


def test_a_compile_stopped_after_its_search_is_sealed_under_its_caps_when_it_is_resumed(paid_shop, monkeypatch):
    gone = later(monkeypatch)

    def stop(live):
        if live.stage == "searching" and live.done:
            gone[0] = 1.2 * Share.SEARCH * SECONDS
        if live.stage == "choosing on dev":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_(paid_shop, max_seconds=SECONDS, watch=stop)
    gone[0] = 0.0
    done = compile_(paid_shop, resume=True)
    assert (done.reference, done.stopped_by) == ("shop@v2", "seconds")


def test_a_worker_spends_what_the_search_has_left_and_no_more(paid_shop, model):
    interrupted(paid_shop, at="searching", max_calls=ROOM)
    join_study(Project.open(paid_shop), "")
    assert len(model.calls) <= Share.SEARCH * ROOM
    paid = len(model.calls)
    join_study(Project.open(paid_shop), "")
    assert len(model.calls) == paid
    compile_(paid_shop, resume=True)
    assert len(model.calls) <= ROOM


def test_the_time_of_all_resumptions_counts_and_no_call_begins_after_it(paid_shop, model, monkeypatch):
    later(monkeypatch, lambda: 10 * len(model.calls))  # a call takes ten seconds
    interrupted(paid_shop, max_seconds=500)
    paid = len(model.calls)
    model.calls.clear()
    done = compile_(paid_shop, resume=True)
    assert done.stopped_by == "seconds" and 10 * paid < done.seconds
    assert 10 * (paid + len(model.calls)) <= 500 + 10 * PARALLEL_CALLS  # those on their way when the time was up


def test_a_cap_that_is_reached_in_the_test_is_told(paid_shop, monkeypatch):
    gone = later(monkeypatch)

    def pass_(live):
        if live.stage == "testing":
            gone[0] = 2 * SECONDS

    done = compile_(paid_shop, max_seconds=SECONDS, watch=pass_)
    assert (done.stopped_by, done.trials > 6) == ("seconds", True)
    assert not done.after.grades


def test_nothing_is_paid_for_where_no_version_could_be_sealed(paid_shop, model):
    (paid_shop / "artifacts").write_text("a file in the place of the folder")
    with pytest.raises(OSError, match="artifacts"):
        compile_(paid_shop)
    assert not model.calls
