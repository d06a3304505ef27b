"""What `ragc compile` shows while it works: lines in a log, a view of one screen on a terminal."""

import os
import re
import subprocess
import sys

import pytest

from tests.optimize.conftest import compile_, invoke

STAGES = ["indexing the knowledge", "checking the labels", "searching"]
COUNTED = ("making demonstrations", "choosing candidates", "sweeping one knob at a time", "choosing on dev")


def compiled(folder, stderr):
    command = [sys.executable, "-m", "optimize.cli.main", "compile", str(folder), "--trials", "4"]
    screen = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=stderr, check=False, env=screen)
    assert done.returncode in (0, 3)  # better, or no detectable difference


def test_without_a_terminal_each_stage_is_a_line_and_the_search_tells_how_far_it_is(own_shop, tmp_path):
    with (tmp_path / "log").open("w+") as log:
        compiled(own_shop, log.fileno())
        log.seek(0)
        lines = log.read().splitlines()
    assert [line for stage in STAGES for line in lines if line == stage] == STAGES
    told = r"searching: \d+/\d+, best so far \(utility \+ routing credit\) -?\d\.\d{3}"
    searching = [line for line in lines if re.fullmatch(told, line)]
    done, of = map(int, searching[-1].split(",")[0].removeprefix("searching: ").split("/"))
    assert done == of and len(searching) <= 11
    assert len(lines) == len(set(lines))
    assert "\x1b" not in "".join(lines)


def test_each_stage_tells_how_far_it_is_and_never_goes_back(own_shop):
    counts = {}

    def watch(live):
        counts.setdefault(live.stage, []).append((live.done, live.of))
        assert live.stage != "choosing on dev" or live.seconds_left is None  # nobody knows how many there will be

    compile_(own_shop, trials=4, watch=watch)
    for stage in COUNTED:
        done = [at for at, _ in counts[stage][1:]]
        assert done == sorted(done) and len(set(done)) > 1, stage
        assert stage == "choosing on dev" or 0 <= counts[stage][-1][1] - done[-1] <= 1


@pytest.mark.parametrize(
    ("verb", "option", "value"),
    [
        *(("compile", option, "9" * 20) for option in ("--trials", "--seed", "--max-calls")),
        *(("compile", option, "inf") for option in ("--max-usd", "--max-seconds")),
        *(("compile", option, "") for option in ("--study", "--from", "--promote")),
        ("worker", "--study", ""),
    ],
)
def test_a_number_beyond_all_use_and_an_empty_name_are_refused_and_nothing_is_begun(own_shop, verb, option, value):
    refused = invoke(verb, own_shop, option, value)
    assert refused.exit_code == 2 and option in refused.output and (value or "empty" in refused.output)
    assert not (own_shop / ".ragc").exists()
