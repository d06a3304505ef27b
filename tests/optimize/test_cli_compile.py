"""What `ragc compile` shows while it works: lines in a log, a view of one screen on a terminal."""

import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

STAGES = ["indexing the knowledge", "checking the labels", "searching"]


def compiled(folder: Path, stderr: int) -> None:
    command = [sys.executable, "-m", "optimize.cli.main", "compile", str(folder), "--trials", "4", "--processes", "1"]
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
    searching = [line for line in lines if re.fullmatch(r"searching: \d+/\d+, best so far -?\d\.\d{3}", line)]
    done, of = map(int, searching[-1].split(",")[0].removeprefix("searching: ").split("/"))
    assert done == of and len(searching) <= 11
    assert len(lines) == len(set(lines))
    assert "\x1b" not in "".join(lines)


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no pseudo-terminals here")
def test_on_a_terminal_one_view_shows_stage_trial_best_calls_and_seconds_left(own_shop):
    master, slave = pty.openpty()
    shown = bytearray()

    def read() -> None:
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
    for label in ("stage", "done", "best so far", "model calls", "seconds left", "searching"):
        assert label in text
    assert "\x1b[" in text
