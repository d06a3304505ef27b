"""A compile by several processes: the same version whatever their number, and nothing lost with one that is killed."""

import multiprocessing
import os
import signal
import time

import pytest

from ragc.errors import BudgetStop
from ragc.optimize.compiler.runs.replay import Replay
from ragc.optimize.compiler.runs.workers import Workers
from ragc.optimize.compiler.spending import Caps, Spending
from tests.conftest import write_shop
from tests.optimize.conftest import compile_, manifest_of, paid

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
TRIALS = 12  # a batch, and part of another


def compiled_by(folder, jobs, **options):
    """The digest of what so many processes compile, and the compile."""
    done = compile_(folder, jobs=jobs, trials=TRIALS, **options)
    return manifest_of(folder, done.reference).content_digest, done


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process compiles."""
    return compiled_by(write_shop(tmp_path_factory.mktemp("alone") / "shop"), 1)[0]


def test_the_version_is_the_same_and_the_work_is_done_by_the_others(own_shop, alone, monkeypatch):
    stages, answer_all, this = [""], Replay.answer_all, os.getpid()
    asked = {}

    def note(replay, questions):
        if os.getpid() == this:
            asked.setdefault(stages[-1], []).extend(questions)
        return answer_all(replay, questions)

    monkeypatch.setattr(Replay, "answer_all", note)
    assert compiled_by(own_shop, 3, watch=lambda live: stages.append(live.stage))[0] == alone
    assert list(asked) == ["measuring how long answers take"]
    assert not multiprocessing.active_children()


def test_nothing_is_lost_with_processes_that_are_killed(own_shop, alone):
    killed = []

    def kill(live):
        for child in multiprocessing.active_children():
            killed.append(child)
            child.kill()

    assert compiled_by(own_shop, 2, watch=kill)[0] == alone and len(killed) > TRIALS


def test_a_cap_on_calls_holds_for_all_and_leaves_the_same_version(tmp_path, model, monkeypatch):
    found = []
    for jobs in (1, 2):
        model.calls.clear()
        folder = paid(write_shop(tmp_path / str(jobs)), model.url, monkeypatch)
        digest, done = compiled_by(folder, jobs, max_calls=25)
        assert done.stopped_by == "calls" and len(model.calls) == done.calls <= 25
        found.append((digest, done.calls, done.trials))
    assert found[0] == found[1]


def work(given):
    if given == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if given == "fail":
        raise ValueError
    time.sleep({"wait": 0.01, "work long": 60}.get(given, 0))
    return os.getpid(), given


def test_a_task_goes_to_the_process_of_its_number_and_one_that_fails_or_kills_it_comes_back_empty():
    two = Workers(work, 2, Spending())
    a, b, failed, c = two.run([(0, "a"), (1, "b"), (0, "fail"), (2, "c")])
    assert failed is None and a[0] == c[0] != b[0] != os.getpid()
    assert two.run([(0, "die"), (0, "a"), (1, "b")])[0] is None
    assert two.run([(1, "b")]) == [b]
    two.close()
    assert Workers(work, 1).run([(0, "a")]) == [None]


@pytest.mark.parametrize("seconds, given", [(0.0, "wait"), (0.3, "work long")])
def test_the_processes_end_when_the_time_is_up_whatever_they_do(seconds, given):
    began = time.monotonic()
    with pytest.raises(BudgetStop):
        Workers(work, 2, Spending(Caps(seconds=seconds))).run([(n, given) for n in range(9)])
    assert not multiprocessing.active_children() and time.monotonic() - began < 30
