"""One process leads a study: a second that would go on with it is told so before anything is paid."""

import multiprocessing
import os
import signal
import time

import pytest

from optimize.compiler import journal, lead
from optimize.compiler.compile import compile_project
from optimize.compiler.lead import LEADER, Lead
from optimize.compiler.twin import Twin, can_fork
from program.errors import BudgetError, StudyError
from program.project import Project
from program.serve.reference import find_versions


@pytest.fixture
def project(paid_shop, request):
    """A project with a study that was begun and not finished."""
    if getattr(request, "param", "") == "a database":
        settings = paid_shop / "ragc.toml"
        settings.write_text(settings.read_text() + f'\n[study]\nstorage = "sqlite:///{paid_shop}/studies.db"\n')
    project = Project.open(paid_shop)
    with pytest.raises(BudgetError):
        compile_project(project, trials=4, max_calls=2)
    return project


def elsewhere(project):
    """The lead of a study as another host takes it, in a folder of its own."""
    other = Lead(project)
    other._folder = project.folder / "elsewhere"
    other._owner = "elsewhere:/data/shop"
    return other


@pytest.mark.parametrize("project", ["a journal file", "a database"], indirect=True)
def test_a_second_resume_of_a_study_is_refused_before_anything_is_paid_and_one_version_is_sealed(project, model):
    refused = []

    def resume(live):
        if live.stage == "searching" and not refused:
            paid = len(model.calls)
            with pytest.raises(StudyError, match="shop-1 is being compiled by another process") as told:
                compile_project(project, resume=True)
            refused.append(told.value)
            assert len(model.calls) == paid

    done = compile_project(project, resume=True, max_calls=10_000, watch=resume)
    assert refused and done.study == "shop-1"
    assert len(find_versions(project.artifacts, "shop")) == 2  # the uncompiled program and the one


def test_a_new_study_is_led_from_its_beginning_by_the_compile_that_began_it(project):
    refused = []

    def resume(live):
        if live.stage == "making demonstrations" and not refused:
            refused.append(live.study)
            with pytest.raises(StudyError, match="shop-2 is being compiled"):
                compile_project(project, resume=True)

    compile_project(project, trials=4, watch=resume)
    assert refused == ["shop-2"]


def test_a_study_can_be_gone_on_with_once_its_leader_is_gone_however_it_went(project):
    def fails(live):
        if live.stage == "searching":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_project(project, resume=True, max_calls=10_000, watch=fails)
    assert compile_project(project, resume=True).study == "shop-1"


@pytest.mark.parametrize("project", ["a database"], indirect=True)
def test_a_study_in_a_database_is_led_from_one_host_until_that_says_no_more_that_it_is_there(project, model):
    study, paid = journal.join(project), len(model.calls)
    with elsewhere(project) as other:
        other.take(study)
        with pytest.raises(StudyError, match="being compiled by elsewhere:"):
            compile_project(project, resume=True)
        assert len(model.calls) == paid
        owner, _ = study.attributes[LEADER]
    assert study.attributes[LEADER] is None
    study.note(LEADER, [owner, time.time() - lead.LEASE])  # of one that was killed
    assert compile_project(project, resume=True, max_calls=10_000).study == "shop-1"


@pytest.mark.parametrize("project", ["a database"], indirect=True)
def test_a_leader_that_is_busy_for_longer_than_it_is_waited_for_leads_on_and_one_that_was_replaced_does_not(
    project, monkeypatch
):
    monkeypatch.setattr(lead, "LEASE", 0.4)
    study = journal.join(project)
    with elsewhere(project) as other:
        other.take(study)
        _, said = study.attributes[LEADER]
        time.sleep(3 * lead.LEASE)
        assert study.attributes[LEADER][1] > said + lead.LEASE
        with pytest.raises(StudyError, match="being compiled by elsewhere:"):
            Lead(project).take(study)
        study.note(LEADER, ["a third", time.time()])
        time.sleep(lead.LEASE)
    assert study.attributes[LEADER][0] == "a third"


def hold(project, ready):
    """Leads the study, a second process at work for long beside it."""
    lead = Lead(project)
    lead.take(journal.join(project))
    twin = Twin(lambda message: (time.sleep(60), message)[1], lambda: None)
    twin.send(b"")
    ready.set()
    time.sleep(60)


@pytest.mark.skipif(not can_fork(), reason="there is no second process where a process cannot be forked")
def test_a_study_whose_leader_is_killed_is_free_at_once_though_its_second_process_is_still_at_work(project):
    spawned = multiprocessing.get_context("forkserver")
    ready = spawned.Event()
    leader = spawned.Process(target=hold, args=(project, ready))
    leader.start()
    assert ready.wait(60)
    with pytest.raises(StudyError, match="being compiled by another process"):
        Lead(project).take(journal.join(project))
    os.kill(leader.pid, signal.SIGKILL)
    leader.join()
    with Lead(project) as free:
        free.take(journal.join(project))
