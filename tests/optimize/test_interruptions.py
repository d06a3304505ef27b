"""Compiles that are killed, stopped, or run at once: nothing is lost, nothing is paid twice."""

import contextlib
import multiprocessing
import os
import pty
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from optimize.compiler.compile import compile_project, join_study
from optimize.compiler.runs.replay import PARALLEL_CALLS
from optimize.compiler.search import Search
from optimize.compiler.study import list_studies, open_study
from program.errors import StudyError
from program.knowledge.project import Project
from program.loop.policy import PRESETS
from program.serve.reference import find_versions
from tests.conftest import add_toml, write_shop
from tests.optimize.conftest import listening, manifest_of, paid

KILLS = int(os.environ.get("RAGC_KILLS", "4"))  # all of them happen; a hundred take minutes
ON_THEIR_WAY = 2 * PARALLEL_CALLS  # calls that a kill loses at most
TRIALS = 8
FIRSTS = 2 + len(PRESETS) + 1
processes = multiprocessing.get_context("forkserver")
# What a compile imports on its way, so that a kill falls into its work:
processes.set_forkserver_preload(
    ["optimize.compiler.compile", "litellm", "program.models.embedded.decider", "xdist.plugin", "hypothesis"]
)


def run(folder, resume, url=""):
    """A compile in a process of its own."""
    import dspy

    at(url)
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    project = Project.open(folder)
    compile_project(project, trials=TRIALS, resume=resume and is_begun(project))


def at(url):
    os.environ |= {"OPENAI_API_KEY": "none", "OPENAI_API_BASE": url, "OPENAI_BASE_URL": url}


def is_begun(project):
    with contextlib.suppress(StudyError):
        return bool(list_studies(project)) and bool(open_study(project))
    return False


def join_in(folder, url):
    at(url)
    join_study(Project.open(folder), "")


def started(target, *arguments):
    process = processes.Process(target=target, args=arguments)
    process.start()
    return process


def digests(folder):
    versions = find_versions(folder / "artifacts", "shop")
    return [manifest_of(folder, f"shop@{version}").content_digest for version in versions]


def cleared(folder):
    """The project as it was before anything was compiled."""
    shutil.rmtree(folder / "artifacts", ignore_errors=True)
    shutil.rmtree(folder / ".ragc/studies", ignore_errors=True)
    for file in [*(folder / ".ragc").glob("record.sqlite*"), *folder.glob("studies.db*")]:
        file.unlink()


def killed_and_resumed(folder, url, upto, wait, whole, clear):
    """Compiles the project, killed `upto` times, each time after `wait()` seconds, and resumed; tells when that was.

    One that was through before its moment is held to be `whole`, and after `clear` begun again.
    """
    kills, ended = [], True
    while len(kills) < upto or not ended:
        process = started(run, folder, bool(kills) and not ended, url)
        process.join(wait() if len(kills) < upto else None)
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            kills.append(time.monotonic())
        process.join()
        ended = process.exitcode == 0
        assert ended or process.exitcode == -signal.SIGKILL
        if ended:
            whole(kills)
            if len(kills) < upto:
                clear()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What a compile that nothing interrupts ends in, and what it pays, wherever the project lies."""
    with pytest.MonkeyPatch.context() as patch, listening() as model:
        folder = paid(write_shop(tmp_path_factory.mktemp("undisturbed") / "shop"), model.url, patch)
        compile_project(Project.open(folder), trials=TRIALS)
        assert len(set(model.calls)) == len(model.calls)
        return digests(folder)[-1], len(model.calls)


def test_a_worker_helps_with_a_compile_under_a_stated_risk(own_shop):
    workers = []

    def watch(live):
        if live.study and not workers:
            workers.append(started(join_in, own_shop, ""))

    done = compile_project(Project.open(own_shop), trials=TRIALS, risk=0.3, watch=watch)
    (worker,) = workers
    worker.join()
    assert worker.exitcode == 0 and done.risks["balanced"].level == 0.3


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["a journal file", "a database"])
def test_killed_at_random_moments_and_resumed_it_ends_in_the_same_program_for_the_same_calls(
    paid_shop, model, undisturbed, storage
):
    expected, paid = undisturbed
    if storage == "a database":
        add_toml(paid_shop, f'[study]\nstorage = "sqlite:///{paid_shop}/studies.db"')
    moments = random.Random(f"7 {storage}")

    def whole(kills):
        assert digests(paid_shop)[-1] == expected, kills
        assert len(set(model.calls)) == paid, kills
        assert len(model.calls) <= paid + ON_THEIR_WAY * len(kills), kills

    def clear():
        cleared(paid_shop)
        model.calls.clear()

    killed_and_resumed(paid_shop, model.url, KILLS // 2, lambda: moments.uniform(0.2, 2.5), whole, clear)


def test_two_compiles_of_one_project_at_once_both_finish_in_the_same_program(paid_shop, model, undisturbed):
    expected, paid = undisturbed
    both = [started(run, paid_shop, False, model.url) for _ in range(2)]
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert digests(paid_shop).count(expected) == 2 and len(set(model.calls)) == paid
    assert len(digests(paid_shop)) == 3  # the uncompiled program once


def test_a_worker_adds_trials_to_the_study_and_the_compile_goes_on_with_them(paid_shop, model, undisturbed):
    project = Project.open(paid_shop)
    first = started(run, paid_shop, False, model.url)
    while not is_begun(project):
        time.sleep(0.1)
    other = started(join_in, paid_shop, model.url)
    first.join()
    other.join()
    assert (first.exitcode, other.exitcode) == (0, 0)
    assert TRIALS + FIRSTS <= len(open_study(project).trials()) <= TRIALS + FIRSTS + 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_that_falls_into_a_finalizer_where_python_ignores_it_is_not_lost(paid_shop, ragc, monkeypatch):
    class Finalized:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)

    whole = Search._try_setting
    monkeypatch.setattr(Search, "_try_setting", lambda *given: Finalized() and whole(*given))
    code, _, err = ragc("compile", paid_shop, "--trials", "4")
    assert code == 130 and "--resume" in err


@contextlib.contextmanager
def held_up(model):
    """Inside, the model answers its first ten calls, and no other before the block ends; tells when one waits."""
    waits, go_on = threading.Event(), threading.Event()

    def held(n):
        if n > 10:
            waits.set()
            go_on.wait(60)
        return False

    model.fails, model.release = held, go_on.set
    try:
        yield waits
    finally:
        go_on.set()


def compiling(folder, **streams):
    command = [sys.executable, "-m", "optimize.cli.main", "compile", str(folder), "--trials", "4"]
    return subprocess.Popen(command, **streams)


@pytest.mark.parametrize("again", [False, True])
def test_ctrl_c_says_at_once_that_calls_are_waited_for_and_a_second_one_leaves(paid_shop, model, again):
    with held_up(model) as waits, compiling(paid_shop, stderr=subprocess.PIPE, text=True) as process:
        assert waits.wait(60)
        process.send_signal(signal.SIGINT)
        said = next(line for line in process.stderr if line.startswith("Stopping"))
        assert "Press Ctrl-C again to leave at once." in said
        if again:
            process.send_signal(signal.SIGINT)
            assert process.wait(5) == 130  # though the model has not answered
        else:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)
            model.release()
        assert process.stderr.read().endswith(f"Go on with: ragc compile {paid_shop} --resume\n")
    assert process.wait(30) == 130
    model.fails = lambda n: False
    assert compile_project(Project.open(paid_shop), resume=True).trials == FIRSTS + 4


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no pseudo-terminals here")
def test_on_a_terminal_one_view_shows_how_far_it_is_and_says_that_and_gives_the_cursor_back(paid_shop, model):
    master, slave = pty.openpty()
    shown = bytearray()

    def until(text):
        while text not in shown:
            shown.extend(os.read(master, 65536))

    with held_up(model) as waits:
        process = compiling(paid_shop, stderr=slave)
        os.close(slave)
        assert waits.wait(60)
        process.send_signal(signal.SIGINT)
        until(b"Stopping: calls on their way")
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 130
        until(b"--resume")
    os.close(master)
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")
    assert b"model call" in shown and b"0:00:0" in shown
