"""What a person sees: tables, progress, questions that begin with a dash, and no warning that is not theirs."""

import contextlib
import fcntl
import itertools
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from contextlib import nullcontext, redirect_stdout
from io import StringIO

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from ragc.optimize.cli import show
from ragc.optimize.report.estimate import Expected
from tests.optimize.conftest import invoke

RAGC = [sys.executable, "-m", "ragc.optimize.cli.main"]
WREN = "How many watts does the Wren draw?"


@pytest.fixture
def soon(monkeypatch):
    """Progress without waiting for it."""
    monkeypatch.setattr(show, "EVERY", 0.002)
    monkeypatch.setattr(show, "AGAIN", 0.002)
    show.AS_JSON.set(False)


@pytest.mark.parametrize("verb", ["index", "ask", "eval", "search", "doctor", "compile"])
def test_work_is_told_on_stderr_without_a_terminal_and_never_beside_json(own_shop, soon, capfd, verb):
    words = verb.split()
    asked = [WREN] if verb in ("ask", "search") else ["--trials", "1"] if verb == "compile" else []
    told = invoke(*words, own_shop, *asked)
    lines = re.findall(r"^[a-z ]+: (?:.*, )?\d+:\d\d$", capfd.readouterr().err, re.MULTILINE)
    assert told.exit_code in (0, 3) and lines
    assert not set(lines) & set(told.stdout.splitlines())
    json.loads(invoke(*words, own_shop, *asked, "--json").stdout)
    assert re.findall(r"\d:\d\d", capfd.readouterr().err) == []


def test_progress_has_what_how_many_of_how_many_and_how_long_and_is_not_told_of_what_takes_under_five_seconds(
    soon, capfd, own_shop
):
    with show.show_progress("indexing") as advance:
        advance(3, 10)
        time.sleep(0.1)
    assert "indexing: 3 of 10, 0:00" in capfd.readouterr().err.splitlines()
    with show.show_opening() as advance:
        time.sleep(0.1)
        advance(3, 10)
        time.sleep(0.1)
    told = re.findall(r"^[a-z]+", capfd.readouterr().err, re.MULTILINE)
    assert list(dict.fromkeys(told)) == ["opening", "indexing"]
    began = time.monotonic()
    done = subprocess.run([*RAGC, "index", own_shop], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and (done.stderr == "" or time.monotonic() - began > 5)


@given(st.lists(st.floats(0, 300), min_size=1, max_size=8))
def test_a_log_is_told_of_each_stage_that_lasts_and_then_once_a_minute(lasting):
    cadence, told, now = show.Cadence(), [], 0.0
    for stage, seconds in enumerate(lasting):
        begun = now
        while (now := now + show.EVERY) < begun + seconds:
            told += [(stage, now)] if cadence.is_due(f"stage {stage}", now) else []
    assert {stage for stage, _ in told} == {n for n, seconds in enumerate(lasting) if seconds > show.EVERY}
    assert all(b - a >= show.AGAIN for (one, a), (other, b) in itertools.pairwise(told) if one == other)
    assert len(told) <= len(lasting) + now / show.AGAIN


def test_a_compile_tells_what_it_is_about_to_cost_once_and_then_how_far_it_is(soon, capfd):
    class Live:
        stage, done, of, baseline, best, calls, minutes_left = "searching", 3, 10, 1.061, 1.1, 8, 4.2
        worth = "utility + routing credit"
        expected = Expected(40, {"searching": 600}, 0.1)

    with show.show_compile(str) as tell:
        for _ in range(2):
            tell(Live)
            time.sleep(0.05)
    lines = [line for line in capfd.readouterr().err.splitlines() if not line.startswith("starting")]
    assert lines[0] == "expected: about 40 calls to language models, 10 minutes, US$ 0.10" and lines[0] not in lines[1:]
    figures = "best so far 1.100, as it was 1.061 (utility + routing credit), 8 model calls, about 4 minutes left"
    assert set(lines[1:]) == {f"searching: 3 of 10 settings, {figures}, 0:00"}


@given(st.lists(st.floats(0, 600), min_size=1, max_size=12))
def test_minutes_that_are_left_are_told_to_have_grown_with_the_reason_alone(told):
    class Live:
        stage, done, of, baseline, best, calls, expected, worth = (
            "searching",
            0,
            10,
            None,
            None,
            0,
            Expected(),
            "utility",
        )

    shown = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(show, "show_work", lambda *_, **__: nullcontext(lambda *given, **_: shown.append(given[-1])))
        with show.show_compile(str) as tell:
            for Live.minutes_left in told:
                tell(Live)
    numbers = [int(number[1]) if (number := re.search(r"(\d+) minutes", line)) else 1 for line in shown]
    for n, line in enumerate(shown):
        assert ("as it is slower than planned" in line) == (numbers[n] > min(numbers[: n + 1]))


cells = st.text(st.sampled_from("ab7-[], \n漢") | st.characters(categories=("L", "N")), max_size=60)
tables = st.integers(1, 5).flatmap(
    lambda n: st.tuples(st.lists(cells, min_size=n, max_size=n), st.lists(st.lists(cells, min_size=n, max_size=n)))
)


@given(tables, st.integers(10, 200))
@example((["version", "scores"], [["bikes@v1-99990f95", "utility 0.1"]]), 12)
def test_no_word_of_a_table_is_broken_and_no_line_wider_than_the_terminal_unless_one_word_is(table, width):
    columns, rows = table
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as out:
        patch.setenv("COLUMNS", str(width))
        show.print_table("title", columns, rows)
    printed = out.getvalue().split("\n")
    words = [word for line in printed for word in line.split()]
    assert {word for row in rows for cell in row for word in cell.split()} <= {*words}
    indent = 2 * show.GAP + max(map(cell_len, [*columns, *(row[0] for row in rows)]))  # of a block
    longest = max(map(cell_len, [*show.PART.findall(out.getvalue()), *columns]))
    allowed = max(width, min(indent, 2 * show.GAP + width // 2) + max(show.UNWRAPPED, longest))
    assert all(cell_len(line) <= allowed for line in printed)


def test_the_trace_that_ask_names_can_be_shown_and_is_whole_among_those_to_review(own_shop):
    asked = invoke("ask", own_shop, "How heavy is the Xyzzy?")
    (trace,) = re.findall(r"trace ([0-9a-f]{16})", asked.stderr)
    assert invoke("trace", own_shop, trace[:8]).stdout.startswith("How heavy is the Xyzzy?")


TEXTS = "-5 degrees?|-5°?|--5|-k is what?|--json or YAML?|- what?|-?|--|-1 or --stream, -k 3?|-\tx".split("|")


@pytest.mark.parametrize("text", TEXTS)
def test_a_question_that_begins_with_a_dash_is_a_question(own_shop, text):
    given = [text] if text != "--" else ["--", "--json is what?"]
    for verb, *options in (("ask", "--json"), ("search", "-k", "1", "--json"), ("search", "-k1", "--json")):
        for arguments in ([own_shop, *options, *given], [*options, own_shop, *given]):
            found = json.loads(told_by(verb, *arguments))
            assert len(found) == 1 if verb == "search" else asked_in(own_shop, found["trace_id"]) == given[-1].strip()
    if text != "--":
        told_by("search", own_shop, text, "-k", "1", "--json")


def test_a_question_needs_no_quotes(own_shop):
    words = ["How", "heavy", "is", "-5", "Xyzzy?"]
    assert asked_in(own_shop, json.loads(told_by("ask", own_shop, *words, "--json"))["trace_id"]) == " ".join(words)


def told_by(*arguments):
    told = invoke(*arguments)
    assert told.exit_code == 0, told.output
    return told.stdout


def asked_in(folder, trace):
    return json.loads(told_by("trace", folder, trace, "--json"))["question"]


@pytest.mark.parametrize("option", ["--strem", "-x", "-bicycle", "--point-of=sale"])
def test_an_option_that_there_is_not_is_still_named(own_shop, option):
    told = invoke("ask", own_shop, "What?", option)
    assert told.exit_code == 2 and "No such option" in told.output


def run_loudly(*verb):
    command = [sys.executable, "-W", "default", *RAGC[1:], *map(str, verb)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3) and "Warning" not in done.stderr, done.stderr


def test_no_warning_of_another_package_reaches_whoever_compiles_asks_or_indexes(own_shop):
    for verb in (["index", own_shop], ["compile", own_shop, "--trials", "20"], ["ask", own_shop, WREN]):
        run_loudly(*verb)


@pytest.mark.slow
def test_no_warning_of_another_package_reaches_whoever_compiles_with_a_language_model(paid_shop):
    for verb in (["compile", paid_shop, "--max-calls", "40"], ["ask", paid_shop, WREN]):
        run_loudly(*verb)


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no pseudo-terminals here")
def test_the_lines_of_a_terminal_are_a_conversation_and_those_of_a_pipe_are_not(own_shop):
    lines = f"{WREN}\nAnd how much water does it hold?\n"
    master, slave = pty.openpty()
    os.write(master, f"{lines}\x04".encode())
    ask = [*RAGC, "ask", str(own_shop), "--json"]
    talk = subprocess.run(ask, stdin=slave, capture_output=True, text=True, check=False)
    piped = subprocess.run(ask, input=lines, capture_output=True, text=True, check=False)
    for end in (master, slave):
        os.close(end)
    first, second = (json.loads(line) for line in talk.stdout.splitlines())
    assert (talk.returncode, talk.stderr.count("> ")) == (0, 3)
    assert second["path"][0].startswith("follows on: ") and second["path"][0].endswith(
        ": And how much water does it hold?"
    )
    single = [json.loads(line)["path"] for line in piped.stdout.splitlines()]
    assert first["path"] == single[0] and not any(path[0].startswith("follows on") for path in single)


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no pseudo-terminals here")
@pytest.mark.parametrize("columns", [50, 90, 160])
def test_a_table_is_as_wide_as_the_terminal_at_most(compiled, columns):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    bare = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [*RAGC, "ls", "--artifacts", str(compiled / "artifacts")]
    with subprocess.Popen(command, stdout=slave, stderr=slave, env=bare) as process:
        os.close(slave)
        shown = b""
        with contextlib.suppress(OSError):  # the terminal is closed at the end
            while part := os.read(master, 65536):
                shown += part
    os.close(master)
    lines = re.sub(r"\x1b\[[\d;]*m", "", shown.decode()).splitlines()
    assert process.returncode == 0 and max(map(len, lines)) <= columns
    assert (len(lines) == 5) == (columns == 160), "a line each, or a block"
