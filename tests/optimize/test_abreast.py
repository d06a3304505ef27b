"""Two processes: the same scores, the same version, and no harm when one of them is killed."""

import multiprocessing
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from optimize.compiler import journal, keptruns
from optimize.compiler.abreast import can_share, in_two
from optimize.compiler.compile import compile_project, work
from optimize.compiler.journal import Journal, create
from optimize.compiler.preparation import open_project
from optimize.compiler.proposals import within
from optimize.compiler.replay import Replay
from optimize.compiler.scoring import Arm, Scoring
from optimize.compiler.spending import Caps, Spending
from optimize.compiler.study import SHARES, Live, Search
from optimize.compiler.twin import Twin, TwinLost, can_fork
from program import open_program
from program.errors import StudyError
from program.knowledge.index.build import index_project
from program.loop.policy import find_dimensions
from program.models.embedded.encoder import THREADS
from program.models.embedded.heads import fit_decision
from program.project import Project
from program.serve.manifest import read_manifest
from program.serve.reference import resolve
from program.settings import FILE
from tests.optimize.conftest import opened, prepared

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


def test_a_twin_leaves_as_it_should_even_when_nobody_waits_for_its_answer(tmp_path):
    for n, busy in enumerate((False, True)):
        left = tmp_path / str(n)
        twin = Twin(lambda message: time.sleep(0.3) or b"x" * 1_000_000, left.touch)
        if busy:
            twin.send(b"anything")
        twin.close()
        assert left.exists()


def test_a_twin_whose_answers_nobody_heard_leaves_as_it_should(tmp_path):
    twin = Twin(lambda message: message, (tmp_path / "left").touch)
    for _ in range(3):
        twin.send(b"anything")
    twin.receive()
    patience = time.monotonic() + 10
    while not twin.answered and time.monotonic() < patience:
        time.sleep(0.01)
    assert twin.answered
    time.sleep(0.1)  # until it waits for more
    twin.close()
    assert (tmp_path / "left").exists()


def test_a_version_is_the_same_to_the_byte_whether_one_or_two_processes_made_it(own_shop, tmp_path):
    other = shutil.copytree(own_shop, tmp_path / "other/shop")
    paths = [compiled(own_shop, processes=1), compiled(other, processes=2)]
    assert read_manifest(paths[0]).content_digest == read_manifest(paths[1]).content_digest
    assert (paths[0] / "program.json").read_bytes() == (paths[1] / "program.json").read_bytes()


def test_a_compile_that_was_gone_through_ends_the_same_without_a_second_process(own_shop, monkeypatch):
    first = compiled(own_shop)
    monkeypatch.setattr(Twin, "__init__", lambda *_: pytest.fail("a second process was made"))
    assert read_manifest(compiled(own_shop)).content_digest == read_manifest(first).content_digest
    with pytest.raises(pytest.fail.Exception):
        compiled(own_shop, trials=13)


def test_scores_are_the_same_alone_abreast_and_after_the_other_process_was_killed(own_shop):
    ready = prepared(own_shop)
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


@pytest.mark.parametrize(("told", "half"), [("1", 1), ("7", 3), (None, None)])
def test_two_processes_have_half_of_the_threads_each_and_afterwards_there_are_as_many_as_before(
    own_shop, told, half, monkeypatch
):
    monkeypatch.setenv(THREADS, told) if told else monkeypatch.delenv(THREADS)
    each = str(half or len(os.sched_getaffinity(0)) // 2)
    ready = opened(Project.open(own_shop))
    share = in_two(ready.first, ready.record, Spending())
    assert share(lambda place: os.environ[THREADS], 2, lambda *_: None) == [each] * 2
    with Scoring([Arm(ready.replay(ready.first), [])], ready.project.settings.utility).abreast(Spending()):
        assert os.environ[THREADS] == each
        assert share(lambda place: os.environ[THREADS], 2, lambda *_: None) == [each] * 2  # and not a quarter
    assert os.environ.get(THREADS) == told


def test_a_compile_and_a_worker_multiply_with_one_thread_and_afterwards_there_are_as_many_as_before(own_shop):
    project, seen = Project.open(own_shop), []
    with threadpool_limits(2, user_api="blas"):
        study = compile_project(project, trials=1, watch=lambda live: seen.append(products())).study
        by_compile = len(seen)
        work(project, study, lambda live: seen.append(products()))
        assert set(seen) == {1} and 0 < by_compile < len(seen)
        assert products() == 2


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


@pytest.fixture
def fits(tmp_path, monkeypatch):
    """Counts the heads fitted so far, in this process and those forked from it."""
    counted = tmp_path / "fits"
    counted.touch()

    def counting(*given):
        with counted.open("a") as file:
            file.write("one\n")
        return fit_decision(*given)

    monkeypatch.setattr("program.models.decider.fit_decision", counting)
    return lambda: len(counted.read_text().splitlines())


def test_work_in_two_ends_however_many_places_there_are_and_however_much_is_told_of_each(own_shop):
    ready = opened(Project.open(own_shop))
    share = in_two(ready.first, ready.record, Spending())
    assert share(lambda place: "x" * 1000 + str(place), 3000, lambda *_: None)[2999] == "x" * 1000 + "2999"


def test_a_preparation_in_two_comes_to_the_same_and_fits_no_head_twice(own_shop, tmp_path, fits):
    other = shutil.copytree(own_shop, tmp_path / "other/shop")
    alone, before = prepared(own_shop), fits()
    shared = prepared(other, two=True)
    assert told(shared) == told(alone)
    assert fits() == 2 * before > 0
    assert shared.record.performed < alone.record.performed


def test_a_second_process_lost_in_preparation_costs_time_only(own_shop, tmp_path):
    other = shutil.copytree(own_shop, tmp_path / "other/shop")

    def killing(*_):
        for child in children(os.getpid()):
            os.kill(child, signal.SIGKILL)

    assert told(prepared(other, two=True, advance=killing)) == told(prepared(own_shop))


def test_what_a_worker_did_until_the_candidates_were_noted_is_not_done_again(own_shop, monkeypatch, fits, tmp_path):
    prepared(shutil.copytree(own_shop, tmp_path / "other/shop"))
    alone = fits()
    with monkeypatch.context() as impatient, pytest.raises(StudyError):
        impatient.setattr(journal, "WAIT", 0.0)
        prepared(own_shop, worker=True)
    by_worker = fits() - alone
    ready = prepared(own_shop)
    assert fits() - alone == by_worker == alone
    assert ready.record.performed <= len(ready.parts["train"])  # routes, asked once the candidates are noted


def test_a_worker_has_gone_through_the_settings_that_the_compile_begins_with(own_shop, monkeypatch):
    monkeypatch.setattr(keptruns, "REFRESH", 0.0)
    project = Project.open(own_shop)
    journal = create(project, opened(project).identity(), {"id": "helped", "trials": 1})
    ready = prepared(own_shop, journal=journal)
    prepared(own_shop, worker=True, journal=journal).record.close()
    before = ready.record.performed, ready.record.replayed
    scoring, found = Scoring(ready.arms, project.settings.utility), find_dimensions(ready.arms[0].replay.program)
    assert not any(np.isnan(scoring(within(found, setting)).utility).any() for setting in ready.starts[1:])
    assert (ready.record.performed, ready.record.replayed) == before


def test_a_worker_begins_with_the_half_of_the_arms_that_the_compile_comes_to_last(own_shop, monkeypatch):
    project, asked, answers = Project.open(own_shop), [], Replay.answers
    journal = create(project, opened(project).identity(), {"id": "helped", "trials": 1})
    monkeypatch.setattr(Replay, "answers", lambda self, questions: asked.append(questions) or answers(self, questions))
    ready = prepared(own_shop, journal=journal)
    prepared(own_shop, worker=True, journal=journal)
    arms = [[question.question for question in arm.questions] for arm in ready.arms]
    settings, half = len(ready.starts) - 1, len(arms) // 2
    tried = [arms.index(questions) for questions in asked[-len(arms) * settings :]]
    later, sooner = tried[: settings * (len(arms) - half)], tried[settings * (len(arms) - half) :]
    assert max(sooner) < half <= min(later)


def test_a_worker_goes_through_none_of_the_settings_that_are_tried(own_shop, monkeypatch):
    project = Project.open(own_shop)
    journal = create(project, opened(project).identity(), {"id": "helped", "trials": 1})
    before = prepared(own_shop, journal=journal).record
    monkeypatch.setattr(Journal, "begun", {*range(99)})
    helping = prepared(own_shop, worker=True, journal=journal).record
    assert helping.performed == 0 < before.performed


def test_a_worker_leaves_what_is_as_it_is_for_the_compile_to_try(own_shop):
    project = Project.open(own_shop)
    journal = create(project, opened(project).identity(), {"id": "helped", "trials": 1})
    ready = prepared(own_shop, journal=journal)
    known = set(range(len(ready.starts)))
    for worker, target, tried in ((7, 0, known - {0}), (0, 1, known)):
        search = Search(ready.arms, project.settings.utility, 0, ready.starts, journal, worker)
        search.run(target, lambda live: None, Live(), Spending())
        assert len(journal.trials()) == len(known) + target
        assert journal.begun == tried


def test_a_worker_does_nothing_for_a_study_that_is_finished(own_shop, monkeypatch):
    project = Project.open(own_shop)
    study = compile_project(project, trials=1).study
    monkeypatch.setattr("optimize.compiler.prepare", lambda *_, **__: pytest.fail("it prepares"))
    assert work(project, study) == 0


def test_a_worker_stops_once_the_study_is_sealed_and_is_none_but_itself(own_shop):
    project = Project.open(own_shop)
    journal = create(project, opened(project).identity(), {"id": "helped", "trials": 99})
    ready = prepared(own_shop, journal=journal)
    first, second = (Search(ready.arms, project.settings.utility, 0, ready.starts, journal, n) for n in (7, 8))

    def seal(live):
        journal.finish("shop@v2")

    for search in (first, second):
        assert search.run(99, seal, Live(), Spending()) == ""
    assert (len(journal.trials()), first.added(), second.added()) == (1, 1, 0)


def test_a_trial_is_judged_on_no_more_questions_than_there_are_and_the_best_come_first(own_shop):
    project = Project.open(own_shop)
    journal = create(project, opened(project).identity(), {"id": "few", "trials": 1})
    ready = prepared(own_shop, journal=journal)
    arm = min(ready.arms, key=lambda arm: len(arm.questions))
    assert len(arm.questions) < len(SHARES)
    search = Search([arm], project.settings.utility, 0, ready.starts, journal)
    search.run(8, lambda live: None, Live(), Spending())
    assert {trial.judged_on for trial in search.trials if not trial.pruned} == {len(arm.questions)}
    ranked = [(-trial.worth, trial.number) for trial in search.complete()]
    assert ranked == sorted(ranked)


def test_a_worker_killed_while_it_helps_changes_nothing(own_shop, tmp_path):
    other = shutil.copytree(own_shop, tmp_path / "other/shop")
    project = Project.open(other)
    journal = create(project, opened(project).identity(), {"id": "helped", "trials": 1})
    helping = multiprocessing.get_context("forkserver").Process(target=work, args=(project, journal.name))
    helping.start()
    while helping.is_alive() and not list((other / ".ragc").glob("fitted.sqlite")):
        time.sleep(0.01)
    assert helping.is_alive()
    os.kill(helping.pid, signal.SIGKILL)
    helping.join()
    assert told(prepared(other)) == told(prepared(own_shop))


def compiled(folder, trials=12, processes=2):
    """Where the version is that a compile seals."""
    done = compile_project(Project.open(folder), trials=trials, processes=processes)
    return resolve(done.reference, folder / "artifacts").path


def products():
    """The threads that numpy multiplies matrices with."""
    return next(one["num_threads"] for one in threadpool_info() if "numpy" in one["filepath"])


def told(ready):
    """All that a preparation comes to."""
    return repr((ready.demonstrations, ready.sets, ready.offers, ready.starts, ready.routing))


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_nothing_is_shared_where_a_second_draft_is_paid_for(own_shop):
    told = (own_shop / FILE).read_text()
    for write, shared in (('"local/extract"', True), ('["local/extract", "openai/x"]', False)):
        (own_shop / FILE).write_text(f"{told}\n[models]\nwrite = {write}\n")
        project = Project.open(own_shop)
        index_project(project)
        assert can_share(open_program(project), project, Caps()) == shared
