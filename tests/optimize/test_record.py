"""The record: replies by content, in a file or a database, and the caps on what a study may spend."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from optimize.compiler.record import TABLE_PREFIX, Entry, Record, Store
from optimize.compiler.study import Caps, Spent
from program.errors import RecordError, SettingsError

KEY, OTHER = b"0123456789abcdef", b"\x00\xff" * 8
SERVER = os.environ.get("RAGC_TEST_DATABASE", "")  # the URL of a database server, to try one
PLACES = ["file", "database", *(["server"] if SERVER else [])]


@pytest.fixture(params=PLACES)
def place(request, tmp_path):
    if request.param == "file":
        return tmp_path / "record.sqlite"
    if request.param == "database":
        return f"sqlite:///{tmp_path}/studies.db"
    with sa.create_engine(SERVER).begin() as server:
        for name in ("evidence", "spending"):
            server.execute(sa.text(f"DROP TABLE IF EXISTS {TABLE_PREFIX}{name}"))
    return SERVER


def test_what_one_process_writes_another_reads_to_the_bit(place):
    kept = {KEY: Entry({"yes": 0.1 + 0.2}, 1.5, 10, 2, 0.001), OTHER: Entry([None, "ö", 3])}
    Record(place).write(kept)
    Record(place).write({KEY: Entry("another"), **{b"%016d" % n: Entry(n) for n in range(1203)}})
    assert Record(place).read([OTHER, KEY, b"?" * 16]) == kept, "what is held already stays"
    assert len(Record(place).read([b"%016d" % n for n in range(1300)])) == 1203
    Record().write(kept)
    assert Record().read([KEY]) == {}, "without a place nothing is kept"


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


def test_a_file_that_is_no_database_is_told_and_may_be_deleted(tmp_path):
    (tmp_path / "record.sqlite").write_bytes(b"not a database, and long enough to be taken for one" * 40)
    with pytest.raises(RecordError, match="cannot be used") as told:
        Record(tmp_path / "record.sqlite")
    assert told.value.mend.startswith("Delete it")


def test_a_url_without_its_driver_is_told():
    with pytest.raises(SettingsError, match="study"):
        Store("nonsense://x")


def test_what_a_study_has_spent_is_one_sum_whoever_spent_it(place):
    ours, theirs = Store(place), Store(place)
    assert ours.read_spending("s") == Spent()
    ours.book_spending("s")
    assert ours.reserve_call("s", 0.5, Caps()) and theirs.reserve_call("s", 0.25, Caps())
    ours.book_spending("s", usd=-0.25)
    theirs.book_spending("s", calls=3, seconds=2.0)
    assert theirs.read_spending("s") == Spent(5, 0.5, 2.0)
    assert ours.read_spending("another") == Spent()


@pytest.mark.parametrize(("calls", "usd", "fit"), [(7, None, 7), (None, 1.0, 10), (30, 0.55, 5), (0, None, 0)])
def test_of_many_that_reserve_at_once_no_more_pass_than_the_cap_allows(place, calls, usd, fit):
    several = [Store(place) for _ in range(3)]
    several[0].book_spending("s")
    with ThreadPoolExecutor(6) as threads:
        passed = list(threads.map(lambda n: several[n % 3].reserve_call("s", 0.1, Caps(calls, usd)), range(24)))
    assert sum(passed) == several[0].read_spending("s").calls == pytest.approx(fit, abs=usd == 1.0)
