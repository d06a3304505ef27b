"""The record: entries by content, in a file that several processes share and that outlives them."""

import subprocess
import sys
import threading
import time

import pytest

from optimize.compiler.record import Entry, Record
from program.errors import RecordError

KEY = b"0123456789abcdef"


def in_another_process(script, *arguments):
    return subprocess.run([sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True)


def test_entries_are_read_by_another_process(tmp_path):
    Record(tmp_path / "record.sqlite").write({KEY: Entry({"yes": 0.25}, 1.5, 10, 2, 0.001)})
    script = (
        "import sys; from pathlib import Path; from optimize.record import Record\n"
        f"print(Record(Path(sys.argv[1])).read([{KEY!r}]))"
    )
    done = in_another_process(script, tmp_path / "record.sqlite")
    assert "value={'yes': 0.25}, seconds=1.5, tokens_in=10, tokens_out=2, usd=0.001" in done.stdout


def test_without_a_path_nothing_is_written():
    record = Record()
    record.write({KEY: Entry(1)})
    assert record.read([KEY]) == {}


def test_a_call_begun_by_a_process_that_died_is_taken_over_at_once(tmp_path):
    script = (
        "import sys; from pathlib import Path; from optimize.record import Record\n"
        f"assert Record(Path(sys.argv[1])).begin({KEY!r}) is None"
    )
    assert in_another_process(script, tmp_path / "record.sqlite").returncode == 0
    assert Record(tmp_path / "record.sqlite").begin(KEY) is None


def test_a_file_that_is_locked_for_a_while_is_waited_for(tmp_path):
    import sqlite3

    record = Record(tmp_path / "record.sqlite")
    other = sqlite3.connect(tmp_path / "record.sqlite", check_same_thread=False, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    threading.Timer(1.0, lambda: other.execute("COMMIT")).start()
    started = time.monotonic()
    record.write({KEY: Entry(1)})
    assert record.read([KEY])[KEY].value == 1
    assert time.monotonic() - started > 0.5


def test_a_full_disk_is_told_and_what_was_kept_before_is_there(tmp_path):
    record = Record(tmp_path / "record.sqlite")
    record.write({KEY: Entry("before")})
    record.close()
    script = (
        "import resource, sys; from pathlib import Path; from optimize.record import Entry, Record\n"
        "from program.errors import RecordError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"
        "record = Record(Path(sys.argv[1]))\n"
        "try:\n"
        "    for n in range(100): record.write({b'%016d' % n: Entry('x' * 5000)})\n"
        "except RecordError as error: print(error)"
    )
    done = in_another_process(script, tmp_path / "record.sqlite")
    assert "cannot be used" in done.stdout and "--resume" in done.stdout
    after = Record(tmp_path / "record.sqlite")
    assert after.read([KEY])[KEY].value == "before"
    after.write({b"1" * 16: Entry("after")})
    assert after.read([b"1" * 16])


def test_a_file_that_is_no_database_is_told_and_may_be_deleted(tmp_path):
    (tmp_path / "record.sqlite").write_bytes(b"not a database, and long enough to be taken for one" * 40)
    with pytest.raises(RecordError, match="cannot be used") as told:
        Record(tmp_path / "record.sqlite")
    assert told.value.mend.startswith("Delete it")
