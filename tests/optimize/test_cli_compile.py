"""What `ragc compile` shows while it works: lines in a log, a view of one screen on a terminal."""

import os
import pty
import re
import subprocess
import sys
import threading

import pytest
from typer.testing import CliRunner

from optimize.cli import compile as compile_
from optimize.cli.main import app
from optimize.compiler.compile import compile_project
from optimize.compiler.search import Live
from program.knowledge.project import Project

STAGES = ["indexing the knowledge", "checking the labels", "searching"]


def compiled(folder, stderr):
    command = [sys.executable, "-m", "optimize.cli.main", "compile", str(folder), "--trials", "4"]
    done = subprocess.run(
        command,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        check=False,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    assert done.returncode in (0, 3)  # better, or no detectable difference


def test_without_a_terminal_each_stage_is_a_line_and_the_search_tells_how_far_it_is(own_shop, tmp_path):
    with (tmp_path / "log").open("w+") as log:
        compiled(own_shop, log.fileno())
        log.seek(0)
        lines = log.read().splitlines()
    told = [line for stage in STAGES for line in lines if line == stage]
    assert told == STAGES
    searching = [
        line
        for line in lines
        if re.fullmatch(r"searching: \d+/\d+, best so far \(utility \+ routing credit\) -?\d\.\d{3}", line)
    ]
    done, of = map(int, searching[-1].split(",")[0].removeprefix("searching: ").split("/"))
    assert done == of and len(searching) <= 11
    assert len(lines) == len(set(lines))
    assert "\x1b" not in "".join(lines)


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no pseudo-terminals here")
def test_on_a_terminal_one_view_shows_stage_trial_best_calls_and_seconds_left(own_shop):
    master, slave = pty.openpty()
    shown = bytearray()

    def read():
        try:
            while piece := os.read(master, 65536):
                shown.extend(piece)
        except OSError:  # the other end is closed
            return

    reader = threading.Thread(target=read)
    reader.start()
    compiled(own_shop, slave)
    os.close(slave)
    reader.join(10)
    os.close(master)
    text = shown.decode()
    for label in (
        "stage",
        "done",
        "best so far (utility + routing credit)",
        "model calls",
        "seconds left",
        "searching",
    ):
        assert label in text
    assert "\x1b[" in text


def test_without_a_terminal_a_stage_says_every_ten_seconds_how_far_it_is(monkeypatch, capsys):
    now = 0.0
    monkeypatch.setattr(compile_.time, "monotonic", lambda: now)
    lines = compile_._Lines()
    live = Live(started=0.0)

    def told(stage, done, of, at):
        nonlocal now
        now, live.stage, live.done, live.of = at, stage, done, of
        lines(live)

    told("fitting thresholds", 0, 0, 100)
    told("fitting thresholds", 1, 9, 109)
    told("fitting thresholds", 2, 9, 111)
    told("fitting thresholds", 2, 9, 125)  # nothing new
    told("fitting thresholds", 3, 9, 126)
    told("fitting thresholds", 4, 9, 127)
    told("choosing on dev", 0, 0, 128)
    told("choosing on dev", 3, 0, 139)
    assert capsys.readouterr().err.splitlines() == [
        "fitting thresholds",
        "fitting thresholds: 2/9",
        "fitting thresholds: 3/9",
        "choosing on dev",
        "choosing on dev: 3 done",
    ]


def test_the_choice_tells_how_many_settings_it_has_scored(own_shop):
    counts = []

    def watch(live):
        if live.stage == "choosing on dev":
            assert live.seconds_left is None  # nobody knows how many there will be
            counts.append(live.done)

    compile_project(Project.open(own_shop), trials=4, watch=watch)
    assert counts[0] == 0 and counts == sorted(counts)
    assert counts[-1] > 1


@pytest.mark.parametrize("stage", ["making demonstrations", "choosing candidates", "sweeping one knob at a time"])
def test_what_is_prepared_tells_how_far_it_is_and_never_goes_back(own_shop, stage):
    counts = []

    def watch(live):
        if live.stage == stage:
            counts.append((live.done, live.of))
        elif counts:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_project(Project.open(own_shop), trials=4, watch=watch)
    (_, *shown) = counts
    assert shown == sorted(set(shown)) and len(shown) > 1
    ((of,), most) = {of for _, of in shown}, shown[-1][0]
    assert of - 1 <= most <= of


HUGE = "9" * 20


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--trials", HUGE),
        ("--trials", "1000001"),
        ("--seed", HUGE),
        ("--seed", str(2**31)),
        ("--max-calls", HUGE),
        ("--max-usd", "inf"),
        ("--max-usd", "nan"),
        ("--max-seconds", "inf"),
    ],
)
def test_a_number_beyond_all_use_is_refused_and_nothing_begun(own_shop, option, value):
    refused = CliRunner().invoke(app, ["compile", str(own_shop), option, value])
    assert refused.exit_code == 2 and option in refused.output
    assert not (own_shop / ".ragc").exists()


@pytest.mark.parametrize(
    ("verb", "option"), [("compile", "--study"), ("compile", "--from"), ("compile", "--promote"), ("worker", "--study")]
)
def test_an_empty_name_is_refused_not_taken_as_none_given(own_shop, verb, option):
    refused = CliRunner().invoke(app, [verb, str(own_shop), option, ""])
    assert refused.exit_code == 2 and option in refused.output and "empty" in refused.output
    assert not (own_shop / ".ragc").exists()
