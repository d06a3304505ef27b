"""What every place that a record is kept in does: a file of one machine, and a database that hosts share."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from optimize.compiler import record as records
from optimize.compiler import store as stores
from optimize.compiler.record import Entry, Record
from optimize.compiler.store import Spent, Store
from program.errors import SettingsError

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
        for name in ("evidence", "begun", "spent"):
            server.execute(sa.text(f"DROP TABLE IF EXISTS {stores.SHARED}{name}"))
    return SERVER


def elsewhere(place):
    """The record as a process of another host has it, of which nobody here knows whether it lives."""
    theirs = Record(place)
    theirs._owner = "elsewhere:1"
    return theirs


def test_what_one_process_writes_another_reads_to_the_bit(place):
    kept = {KEY: Entry({"yes": 0.1 + 0.2}, 1.5, 10, 2, 0.001), OTHER: Entry([None, "ö", 3])}
    Record(place).write(kept)
    assert Record(place).read([OTHER, KEY, b"?" * 16]) == kept


def test_what_is_held_already_stays(place):
    record = Record(place)
    record.write({KEY: Entry("first")})
    record.write({KEY: Entry("second"), OTHER: Entry("new")})
    assert {key: entry.value for key, entry in record.read([KEY, OTHER]).items()} == {KEY: "first", OTHER: "new"}


def test_more_keys_than_go_in_one_statement_are_read(place):
    record = Record(place)
    entries = {b"%016d" % n: Entry(n) for n in range(1203)}
    record.write(entries)
    assert record.read(entries) == entries


def test_a_call_that_another_has_begun_is_waited_for_and_not_made_again(place):
    ours, theirs = Record(place), elsewhere(place)
    assert theirs.begin(KEY) is None
    threading.Timer(0.3, lambda: theirs.write({KEY: Entry("paid once")})).start()
    assert ours.begin(KEY) == Entry("paid once")


def test_a_call_that_takes_longer_than_a_lease_is_not_made_again(place, monkeypatch):
    for module in (records, stores):
        monkeypatch.setattr(module, "LEASE", 0.4)
    ours, theirs = Record(place), elsewhere(place)
    assert theirs.begin(KEY) is None
    threading.Timer(1.5, lambda: theirs.write({KEY: Entry("paid once")})).start()
    assert ours.begin(KEY) == Entry("paid once")


def test_a_call_whose_host_is_gone_is_taken_over_when_its_lease_is_out(place, monkeypatch):
    monkeypatch.setattr(stores, "LEASE", 0.4)  # which nobody renews
    ours, theirs = Record(place), elsewhere(place)
    assert theirs.begin(KEY) is None
    assert ours.begin(KEY) is None


def test_a_call_given_up_may_be_tried_by_another(place):
    ours, theirs = Record(place), elsewhere(place)
    assert theirs.begin(KEY) is None
    theirs.give_up(KEY)
    assert ours.begin(KEY) is None


def test_of_many_that_begin_a_call_at_once_one_makes_it(place):
    several = [elsewhere(place) for _ in range(6)]
    for n, record in enumerate(several):
        record._owner = f"elsewhere:{n}"
    made = []

    def call(record):
        if (known := record.begin(KEY)) is not None:
            return known
        made.append(record)
        time.sleep(0.2)
        entry = Entry("paid once")
        record.write({KEY: entry})
        return entry

    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(call, several))
    assert found == [Entry("paid once")] * 6 and len(made) == 1


def test_what_a_study_has_spent_is_one_sum_whoever_spent_it(place):
    ours, theirs = Store(place), Store(place)
    assert ours.spent("s") == Spent()
    assert ours.reserve("s", 0.5, None, None) and theirs.reserve("s", 0.25, None, None)
    ours.book("s", usd=-0.25, landed=1)
    theirs.book("s", calls=3, seconds=2.0)
    found = theirs.spent("s")
    assert (found.calls, found.usd, found.seconds, found.underway) == (5, 0.5, 2.0, 1)
    assert ours.spent("another") == Spent()


@pytest.mark.parametrize(("calls", "usd", "fit"), [(7, None, 7), (None, 1.0, 10), (30, 0.55, 5), (0, None, 0)])
def test_of_many_that_reserve_at_once_no_more_pass_than_the_cap_allows(place, calls, usd, fit):
    several = [Store(place) for _ in range(3)]
    several[0].book("s")
    with ThreadPoolExecutor(6) as threads:
        passed = list(threads.map(lambda n: several[n % 3].reserve("s", 0.1, calls, usd), range(24)))
    assert sum(passed) == several[0].spent("s").calls == pytest.approx(fit, abs=usd == 1.0)


def test_a_url_without_its_driver_is_told():
    with pytest.raises(SettingsError, match="study"):
        Store("nonsense://x")
