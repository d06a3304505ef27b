"""An experiment on disk: arms by hash, and exposure files of whole rows that say nothing of who a user is."""

import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from program.serve.experiment_store import Assignment, ExposureLog, log_files, pseudonymize_unit, read_exposures
from tests.experiments import KEY, NAME

fork = multiprocessing.get_context("fork") if sys.platform != "win32" else None
needs_fork = pytest.mark.skipif(fork is None, reason="processes are forked and killed")

weights = st.lists(st.sampled_from([0.5, 1, 10, 33.3, 90]), min_size=2, max_size=5).map(tuple)
units = st.text(st.characters(), min_size=1)  # whatever a caller may hold, lone surrogates included


def test_golden_units_are_put_in_the_arms_that_sha256sum_says():
    # printf 'exp-2026-11-refunds\0arm\0user-1' | sha256sum | cut -c1-16
    ninety_ten = Assignment("exp-2026-11-refunds", (90, 10), 0.5)
    assert [ninety_ten.arm(unit) for unit in ("user-1", "user-2", "üñí")] == [0, 0, 1]
    assert [ninety_ten.includes(unit) for unit in ("user-1", "user-2", "üñí")] == [False, True, False]


@given(units, weights, st.integers(2, 9))
def test_an_arm_depends_on_nothing_but_experiment_unit_and_the_ratios_of_weights(unit, shares, times):
    first = Assignment("exp-a", shares).arm(unit)
    assert Assignment("exp-a", [times * weight for weight in shares], include=0.3).arm(unit) == first
    assert 0 <= first < len(shares)


@given(units, st.floats(0.01, 1), st.floats(0.01, 1))
def test_a_larger_share_keeps_everyone_who_was_included(unit, one, other):
    low, high = sorted((round(one, 3), round(other, 3)))
    assert Assignment("exp-a", (1, 1), high).includes(unit) >= Assignment("exp-a", (1, 1), low).includes(unit)


def test_shares_are_those_asked_for_and_inclusion_tells_nothing_about_the_arm():
    n = 40_000
    assignment = Assignment("exp-a", (90, 10), 0.5)
    drawn = [(assignment.includes(f"u{i}"), assignment.arm(f"u{i}")) for i in range(n)]
    included, outside = ([arm for inside, arm in drawn if inside is wanted] for wanted in (True, False))
    assert abs(len(included) - n / 2) < 4 * (n / 4) ** 0.5
    for part in (included, outside):
        assert abs(sum(part) - len(part) / 10) < 4 * (len(part) * 0.09) ** 0.5


def log(folder):
    return ExposureLog(folder, NAME, "sha256:0", KEY.encode())


def rows(folder):
    return [row for path in log_files(folder) for row in read_exposures(path)]


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
    found = rows(tmp_path)
    assert (child.exitcode, len(found) > 5, found.count(None)) == (0, True, 1)


def test_a_process_id_that_comes_again_starts_on_a_line_of_its_own(tmp_path):
    first = log(tmp_path)
    first.append("exposure", request="1")
    with first.path.open("ab") as file:
        file.write(b'[1]\n{"kind":"exposure"}\n\xff\xfe\n{"kind":"exposure","ts":1,"requ')
    log(tmp_path).append("exposure", request="2")
    kinds = [row and row["kind"] for row in rows(tmp_path)]
    assert kinds == ["opened", "exposure", None, None, None, None, "opened", "exposure"]


def test_a_pseudonym_is_stable_within_an_experiment_and_unlinkable_beyond():
    key = KEY.encode()
    assert pseudonymize_unit(key, NAME, "ann") == pseudonymize_unit(key, NAME, "ann")
    others = ((key, NAME, "bob"), (key, "exp-b", "ann"), (b"another key", NAME, "ann"))
    assert pseudonymize_unit(key, NAME, "ann") not in {pseudonymize_unit(*other) for other in others}
