"""Exposure files: one a process, whole rows only, and nothing in them that says who a user is."""

import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from program.errors import ExperimentError
from program.serve.exposures import ExposureLog, log_files, pseudonymize, read_rows, read_unit_key
from tests.experiments import KEY, NAME

fork = multiprocessing.get_context("fork") if sys.platform != "win32" else None
needs_fork = pytest.mark.skipif(fork is None, reason="processes are forked and killed")


def log(folder):
    return ExposureLog(folder, NAME, "sha256:0", KEY.encode())


def rows(folder):
    return [row for path in log_files(folder) for row in read_rows(path)]


def test_threads_of_a_process_write_whole_rows_to_one_file(tmp_path):
    mine = log(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: mine.append("exposure", request=str(n)), range(400)))
    found = rows(tmp_path)
    assert found[0]["kind"] == "opened"
    assert {row["request"] for row in found[1:]} == {str(n) for n in range(400)}
    assert [path.name for path in tmp_path.iterdir()] == [mine.path.name]
    assert mine.path.name.endswith(f"-{os.getpid()}.jsonl")


def _write_for_ever(folder):
    mine = log(folder)
    for n in range(10**9):
        mine.append("exposure", request=str(n), padding="x" * 500)


@needs_fork
def test_rows_survive_a_killed_process_and_its_torn_last_line_is_counted(tmp_path):
    child = fork.Process(target=_write_for_ever, args=(tmp_path,))
    child.start()
    while not (files := list(tmp_path.iterdir())) or files[0].stat().st_size < 50_000:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    left = files[0].read_bytes()  # a kill, too, may come in the midst of a row: between two pages of the file
    whole = left.count(b"\n")
    with files[0].open("r+b") as file:  # what a power cut leaves of the last row
        file.truncate(left.rindex(b"\n") + 1 - 7)
    *found, torn = rows(tmp_path)
    assert [row["request"] for row in found[1:]] == [str(n) for n in range(len(found) - 1)]
    assert (len(found), torn) == (whole - 1, None)


def _write_to_a_small_disk(folder):
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    mine = log(folder)
    with pytest.raises(OSError):
        for n in range(100):
            mine.append("exposure", request=str(n))


@needs_fork
def test_a_full_disk_is_an_error_and_tears_one_row_at_most(tmp_path):
    child = fork.Process(target=_write_to_a_small_disk, args=(tmp_path,))
    child.start()
    child.join()
    assert child.exitcode == 0
    found = rows(tmp_path)
    assert len(found) > 5
    assert found.count(None) == 1


def test_a_process_id_that_comes_again_starts_on_a_line_of_its_own(tmp_path):
    first = log(tmp_path)
    first.append("exposure", request="1")
    with first.path.open("ab") as file:
        file.write(b'{"kind":"exposure","ts":1,"requ')
    log(tmp_path).append("exposure", request="2")
    found = rows(tmp_path)
    assert [row and row["kind"] for row in found] == ["opened", "exposure", None, "opened", "exposure"]
    assert [found[n]["request"] for n in (1, 4)] == ["1", "2"]


def test_lines_that_are_no_rows_are_counted_and_passed_over(tmp_path):
    (tmp_path / "exposures-host-1.jsonl").write_bytes(
        b'[1]\n{"kind":"exposure"}\n\xff\xfe\n{"kind":"exposure","ts":1}\n'
    )
    assert rows(tmp_path) == [None, None, None, {"kind": "exposure", "ts": 1}]


def test_a_pseudonym_is_stable_within_an_experiment_and_unlinkable_beyond():
    key = KEY.encode()
    assert pseudonymize(key, NAME, "ann") == pseudonymize(key, NAME, "ann")
    others = {
        pseudonymize(key, NAME, "bob"),
        pseudonymize(key, "exp-b", "ann"),
        pseudonymize(b"another key", NAME, "ann"),
    }
    assert pseudonymize(key, NAME, "ann") not in others


def test_a_missing_or_short_key_is_told_with_its_remedy(monkeypatch):
    for key in ("", "short"):
        monkeypatch.setenv("RAGC_UNIT_KEY", key)
        with pytest.raises(ExperimentError, match="openssl rand"):
            read_unit_key()
