"""Compiles that are killed, stopped, or run at once: nothing is lost, nothing is paid twice."""

import multiprocessing
import os
import random
import signal
import time

import pytest

from optimize import journal
from optimize.compiler import compile_project, work
from optimize.starts import starts
from program.manifest import read
from program.reference import resolve, versions
from program.settings import Project

KILLS = int(os.environ.get("RAGC_KILLS", "12"))  # a hundred take minutes
TRIALS = 8
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["optimize.compiler", "sentence_transformers", "litellm", "program.models.decider"])


def run(folder, resume, url):
    """A compile in a process of its own."""
    import dspy

    os.environ |= {"OPENAI_API_KEY": "none", "OPENAI_API_BASE": url, "OPENAI_BASE_URL": url}
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    compile_project(Project.open(folder), trials=TRIALS, resume=resume)


def join_in(folder, url):
    os.environ |= {"OPENAI_API_KEY": "none", "OPENAI_API_BASE": url, "OPENAI_BASE_URL": url}
    work(Project.open(folder), "")


def started(target, *arguments):
    process = processes.Process(target=target, args=arguments)
    process.start()
    return process


def digests(folder):
    root = folder / "artifacts"
    return [read(resolve(f"shop@{version}", root).path).content_digest for version in versions(root, "shop")]


@pytest.fixture
def undisturbed(paid_shop, model):
    """What a compile that nothing interrupts ends in, and what it pays; the project is then as before it."""
    import shutil

    compile_project(Project.open(paid_shop), trials=TRIALS)
    found, paid = digests(paid_shop)[-1], len(model.calls)
    shutil.rmtree(paid_shop / "artifacts")
    shutil.rmtree(paid_shop / ".ragc/studies")
    for file in (paid_shop / ".ragc").glob("record.sqlite*"):
        file.unlink()
    model.calls.clear()
    return found, paid


@pytest.mark.slow
def test_killed_at_random_moments_and_resumed_it_ends_in_the_same_program_for_the_same_calls(
    paid_shop, model, undisturbed
):
    expected, paid = undisturbed
    moments = random.Random(7)
    killed = 0
    for n in range(KILLS):
        process = started(run, paid_shop, n > 0, model.url)
        process.join(moments.uniform(0.3, 2.5))
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.join()
        if process.exitcode == 0:
            break
    if process.exitcode != 0:
        process = started(run, paid_shop, True, model.url)
        process.join()
        assert process.exitcode == 0
    assert killed
    assert digests(paid_shop)[-1] == expected
    # A call on its way at the moment of a kill is paid and lost; no other is made twice.
    assert paid <= len(model.calls) <= paid + killed


def test_two_compiles_of_one_project_at_once_both_finish_and_share_their_calls(paid_shop, model, undisturbed):
    expected, paid = undisturbed
    both = [started(run, paid_shop, False, model.url) for _ in range(2)]
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert digests(paid_shop).count(expected) == 2
    assert len(model.calls) == paid


def test_a_worker_adds_trials_to_the_study_and_the_compile_goes_on_with_them(paid_shop, model, undisturbed):
    project = Project.open(paid_shop)
    first = started(run, paid_shop, False, model.url)
    while journal.last(project) is None:
        time.sleep(0.1)
    other = started(join_in, paid_shop, model.url)
    first.join()
    other.join()
    assert (first.exitcode, other.exitcode) == (0, 0)
    trials = journal.join(project).trials()
    given = len(starts({})) + 2
    assert TRIALS + given <= len(trials) <= TRIALS + given + 1
    assert len(model.calls) == len(set(model.calls))


def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(paid_shop, model, capsys, monkeypatch):
    import sys

    from optimize.cli.main import main

    def interrupted(n):
        if n == 30:
            os.kill(os.getpid(), signal.SIGINT)
        return False

    model.fails = interrupted
    monkeypatch.setattr(sys, "argv", ["ragc", "compile", str(paid_shop), "--trials", "4"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 130
    assert "--resume" in capsys.readouterr().err
    model.fails = lambda n: False
    done = compile_project(Project.open(paid_shop), resume=True)
    assert done.trials == len(starts({})) + 2 + 4
