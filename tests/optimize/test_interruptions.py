"""Compiles that are killed, stopped, or run at once: nothing is lost, nothing is paid twice."""

import contextlib
import multiprocessing
import os
import pty
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from ragc.knowledge.project import Project
from ragc.optimize.compiler.compile import compile_project
from ragc.optimize.compiler.session import Session
from ragc.serve.reference import find_versions
from tests.conftest import write_shop
from tests.optimize.conftest import listening, manifest_of, paid

KILLS = int(os.environ.get("RAGC_KILLS", "4"))  # all of them happen; a hundred take minutes
ON_THEIR_WAY = 2 * 16  # calls that a kill loses at most: so many are under way at once, and as many are asked again
TRIALS = 8
processes = multiprocessing.get_context("forkserver")
# What a compile imports on its way, so that a kill falls into its work:
processes.set_forkserver_preload(
    ["ragc.optimize.compiler.compile", "litellm", "ragc.models.embedded.decider", "xdist.plugin", "hypothesis"]
)


def run(folder, url=""):
    """A compile in a process of its own."""
    import dspy

    os.environ |= {"OPENAI_API_KEY": "none", "OPENAI_API_BASE": url, "OPENAI_BASE_URL": url}
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    compile_project(Project.open(folder), trials=TRIALS)


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
    for file in (folder / ".ragc").glob("record.sqlite*"):
        file.unlink()


def killed_and_given_again(folder, url, upto, wait, whole, clear):
    """Compiles the project, killed `upto` times, each time after `wait()` seconds, and given again; tells when.

    One that was through before its moment is held to be `whole`, and after `clear` begun again.
    """
    kills, ended = [], True
    while len(kills) < upto or not ended:
        process = started(run, folder, url)
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


@pytest.mark.slow
def test_killed_at_random_moments_and_given_again_it_ends_in_the_same_program_for_the_same_calls(
    paid_shop, model, undisturbed
):
    expected, paid = undisturbed
    moments = random.Random(7)

    def whole(kills):
        assert digests(paid_shop)[-1] == expected, kills
        assert len(set(model.calls)) == paid, kills
        assert len(model.calls) <= paid + ON_THEIR_WAY * len(kills), kills

    def clear():
        cleared(paid_shop)
        model.calls.clear()

    killed_and_given_again(paid_shop, model.url, KILLS, lambda: moments.uniform(0.2, 2.5), whole, clear)


def test_two_compiles_of_one_project_at_once_both_finish_in_the_same_program(paid_shop, model, undisturbed):
    expected, paid = undisturbed
    both = [started(run, paid_shop, model.url) for _ in range(2)]
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert digests(paid_shop)[1:] == [expected], "the uncompiled program, and the compiled one, once"
    assert len(set(model.calls)) == len(model.calls) == paid


@pytest.mark.parametrize("killed", [False, True])
def test_a_second_compile_says_at_once_which_one_it_waits_for_and_goes_on_when_that_ends_or_is_killed(
    paid_shop, model, killed
):
    with held_up(model) as waits, compiling(paid_shop) as first:
        assert waits.wait(60)
        with compiling(paid_shop, stderr=subprocess.PIPE, text=True) as second:
            told = f"shop is being compiled by process {first.pid} of {socket.gethostname()}: this compile waits"
            assert next(second.stderr).startswith(told)
            if killed:
                first.kill()
                first.wait()
            with contextlib.suppress(subprocess.TimeoutExpired):
                second.wait(1)
            asked = len(model.calls)
            model.release()
            assert second.wait(60) == 0
        assert killed or (first.wait(60) == 0 and len(model.calls) > asked)
    assert len(digests(paid_shop)) == 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_that_falls_into_a_finalizer_where_python_ignores_it_is_not_lost(paid_shop, ragc, monkeypatch):
    class Finalized:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)

    whole = Session.advance
    monkeypatch.setattr(Session, "advance", lambda *given: Finalized() and whole(*given))
    code, _, err = ragc("compile", paid_shop)
    assert code == 130 and "Give the same command again" in err


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
    command = [sys.executable, "-m", "ragc.optimize.cli.main", "compile", str(folder)]
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
        assert process.stderr.read().endswith("Give the same command again to go on.\n")
    assert process.wait(30) == 130
    model.fails = lambda n: False
    assert compile_project(Project.open(paid_shop)).reference == "shop@v2"


SHARED = "share_in_threads(work, range(100), 4)"
LEFT_BEHIND = "threading.Thread(target=work, args=[1]).start(); time.sleep(60)"
SCRIPT = """
import threading, time, typer
from ragc.optimize.cli import show
from ragc.optimize.cli.interruption import INTERRUPTED
from ragc.optimize.cli.main import run_app
from ragc.threads import share_in_threads

def work(n):
    if n == 0:
        raise ValueError("one failed, and the others are under way")
    if n == 1:  # the threads would write between each other's letters
        print("ready", flush=True)
    time.sleep(60)

app = typer.Typer()

@app.command()
def go():
    try:
        with show.show_compile(lambda: "left at once"):
            {work}
    except KeyboardInterrupt:
        print("stopped", flush=True)
        raise typer.Exit(INTERRUPTED) from None

run_app(app)
"""


@pytest.mark.parametrize("work", [SHARED, LEFT_BEHIND], ids=["shared", "left behind"])
def test_a_second_ctrl_c_leaves_at_once_wherever_threads_are_waited_for(work):
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SCRIPT.format(work=work)], **streams) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline().startswith("Stopping")
        if work == LEFT_BEHIND:
            assert process.stdout.readline() == "stopped\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 130
        assert process.stderr.read().split("\n") == (["left at once", ""] if work == SHARED else [""])
        assert "stopped" not in process.stdout.read()


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no pseudo-terminals here")
def test_on_a_terminal_one_view_shows_how_far_it_is_and_says_that_and_gives_the_cursor_back(paid_shop, model):
    master, slave = pty.openpty()
    shown = bytearray()

    def read():  # all the time, else a full terminal holds up who writes to it
        with contextlib.suppress(OSError):
            while some := os.read(master, 65536):
                shown.extend(some)

    def until(text):
        ends = time.monotonic() + 60
        while text not in shown:
            assert time.monotonic() < ends
            time.sleep(0.01)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with held_up(model) as waits:
        process = compiling(paid_shop, stderr=slave)
        os.close(slave)
        assert waits.wait(60)
        process.send_signal(signal.SIGINT)
        until(b"Stopping: calls on their way")
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 130
        until(b"same command again")
    reader.join()
    os.close(master)
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")
    assert b"model call" in shown and b"0:00:0" in shown
