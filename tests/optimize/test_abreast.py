"""Two processes: the same scores, the same version, and no harm when one of them is killed."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from optimize.abreast import in_two
from optimize.compiler import compile_project
from optimize.journal import create
from optimize.preparation import open_project, prepare
from optimize.scoring import Scoring
from optimize.spending import Spending
from optimize.starts import starts
from optimize.twin import Twin, TwinLost, can_fork
from program.manifest import read
from program.reference import resolve
from program.settings import Project

pytestmark = pytest.mark.skipif(not can_fork(), reason="one processor, or no fork")


def test_a_twin_answers_in_turn_from_a_process_of_its_own():
    twin = Twin(lambda message: message + b" " + str(os.getpid()).encode())
    twin.send(b"first")
    twin.send(b"second" * 100_000)
    first, second = twin.receive().split(), twin.receive().split()
    twin.close()
    assert (first[0], second[0]) == (b"first", b"second" * 100_000)
    assert first[1] == second[1] != str(os.getpid()).encode()


def test_a_twin_that_is_gone_or_fails_is_told_as_lost():
    for serve in (lambda message: os.kill(os.getpid(), signal.SIGKILL), lambda message: message / 0):
        twin = Twin(serve)
        twin.send(b"anything")
        with pytest.raises(TwinLost):
            twin.receive()
        twin.close()


def test_a_version_is_the_same_to_the_byte_whether_one_or_two_processes_made_it(own_shop):
    done = [compile_project(Project.open(own_shop), trials=12, processes=n) for n in (1, 2)]
    paths = [resolve(one.reference, own_shop / "artifacts").path for one in done]
    assert read(paths[0]).content_digest == read(paths[1]).content_digest
    assert (paths[0] / "program.json").read_bytes() == (paths[1] / "program.json").read_bytes()


def test_scores_are_the_same_alone_abreast_and_after_the_other_process_was_killed(own_shop):
    project = Project.open(own_shop)
    ready = open_project(project, 0, "", Spending(), lambda stage: None, lambda done, of: None)
    journal = create(project, ready.identity(), {"id": "twins", "trials": 1})
    prepare(ready, journal, starts, lambda stage: None, lambda done, of: None)
    weights = ready.project.settings.utility
    alone = [Scoring(ready.arms, weights)(setting) for setting in ready.starts[:3]]
    shared = Scoring([*ready.arms], weights)
    with shared.abreast(ready.spending):
        together = [shared(ready.starts[0])]
        os.kill(children(os.getpid())[0], signal.SIGKILL)
        together += [shared(setting) for setting in ready.starts[1:3]]
    for one, other in zip(alone, together, strict=True):
        for name in ("utility", "routing", "spent"):
            assert np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True)


def test_work_in_two_is_told_in_order_and_done_here_once_the_other_process_is_lost(own_shop):
    spending, here = Spending(), os.getpid()
    ready = open_project(Project.open(own_shop), 0, "", spending, lambda stage: None, lambda done, of: None)
    share = in_two(ready.first, ready.record, spending)

    def work(place):
        spending.add(1, 0.0)
        return [place, os.getpid() == here]

    def lost(place):
        if os.getpid() != here and place == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return work(place)

    seen = []
    assert share(work, 5, lambda *done: seen.append(done)) == [[n, n % 2 == 0] for n in range(5)]
    assert (spending.calls, seen[-1]) == (5, (5, 5))
    assert [place for place, _ in share(lost, 5, lambda done, of: None)] == [0, 1, 2, 3, 4]
    assert share(lost, 5, lambda done, of: None)[3] == [3, True]


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
