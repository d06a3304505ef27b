"""The record, replies by content; and caps: never passed, whoever spends and however many at once."""

import re
import shutil
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from ragc import open_program
from ragc.errors import BudgetStop, RecordError
from ragc.models.language.gateway import EndpointTerms, ProviderLM, shared_gateway
from ragc.models.language.provider import count_messages
from ragc.models.language.spending import MAX_REPLY_TOKENS, track_spending
from ragc.optimize.compiler import record
from ragc.optimize.compiler.record import Entry, Record
from ragc.optimize.compiler.runs.replay import Replay
from ragc.optimize.compiler.spending import Caps, Spending, Spent
from ragc.text.history import Asked
from tests.conftest import add_toml
from tests.optimize.conftest import invoke, invoke_json, paid
from tests.support.provider import Script, serve
from tests.support.replies import obliging

KEY, OTHER = b"0123456789abcdef", b"\x00\xff" * 8


@pytest.fixture
def place(tmp_path):
    return tmp_path / "record.sqlite"


def test_what_one_process_writes_another_reads_to_the_bit(place):
    kept = {KEY: Entry({"yes": 0.1 + 0.2}, 1.5, 10, 2, 0.001), OTHER: Entry([None, "ö", 3])}
    Record(place).write(kept)
    Record(place).write({KEY: Entry("another"), **{b"%016d" % n: Entry(n) for n in range(1203)}})
    assert Record(place).read([OTHER, KEY, b"?" * 16]) == kept, "what is held already stays"
    assert len(Record(place).read([b"%016d" % n for n in range(1300)])) == 1203
    Record().write(kept)
    assert Record().read([KEY]) == {}, "without a place nothing is kept"


def test_what_is_read_waits_for_nobody_who_writes(place, monkeypatch):
    monkeypatch.setattr(record, "PATIENCE", 0.0)
    Record(place).write({KEY: Entry("kept")})
    ours = Record(place)
    spending = Spending()
    spending.use_account(ours.open_account("c"))
    spending.before_call()
    with sqlite3.connect(place) as another:
        another.execute("BEGIN IMMEDIATE")
        assert ours.read([KEY]) == {KEY: Entry("kept")}
        assert (spending.calls, spending.usd) == (1, 0.0)
        with pytest.raises(RecordError, match="locked"):
            ours.write({OTHER: Entry("late")})


def test_a_file_that_is_no_database_is_told_and_may_be_deleted(tmp_path):
    (tmp_path / "record.sqlite").write_bytes(b"not a database, and long enough to be taken for one" * 40)
    with pytest.raises(RecordError, match="cannot be used") as told:
        Record(tmp_path / "record.sqlite")
    assert told.value.mend.startswith("Delete it")


def test_what_a_compile_has_spent_is_one_sum_whoever_spent_it_until_it_is_sealed(place):
    ours, theirs = Record(place).open_account("c"), Record(place).open_account("c")
    assert ours.read() == Spent()
    ours.change(lambda spent: spent.plus(1, 0.5))
    theirs.change(lambda spent: spent.plus(4, 0.25, 2.0))
    assert ours.change(lambda spent: None) is None
    ours.change(lambda spent: spent.plus(usd=-0.25))
    assert theirs.read() == Spent(5, 0.5, 2.0)
    assert Record(place).open_account("another").read() == Spent()
    ours.end()
    assert theirs.read() == Spent()


@pytest.mark.parametrize(("calls", "usd", "fit"), [(7, None, 7), (None, 1.0, 10), (30, 0.55, 5), (0, None, 0)])
def test_of_many_that_reserve_at_once_no_more_pass_than_the_cap_allows(place, calls, usd, fit):
    several = [Spending(Caps(calls, usd)) for _ in range(3)]
    for one in several:
        one.use_account(Record(place).open_account("c"))

    def passes(n):
        with suppress(BudgetStop):
            several[n % 3].before_call(0.1)
            several[n % 3].after_call(0.1, 0.1)
            return True
        return False

    with ThreadPoolExecutor(6) as threads:
        passed = list(threads.map(passes, range(24)))
    assert sum(passed) == several[0].calls == pytest.approx(fit, abs=usd == 1.0)


MODELS = (
    '[models]\ndecide = "openai/x"\nwrite = "openai/x"\n[provider]\nfallback = false\n[provider.model."openai/x"]\n'
)


def test_the_time_is_up_before_a_call_not_after_and_one_on_its_way_may_leave_room_for_the_next():
    with pytest.raises(BudgetStop, match="seconds"):
        Spending(Caps(seconds=0.0)).before_call()
    spending = Spending(Caps(usd=1.0))
    spending.before_call(0.9)
    threading.Timer(0.1, spending.after_call, (0.9, 0.1)).start()
    spending.before_call(0.9)
    assert spending.calls == 2


@pytest.mark.parametrize("fault", ["refusal", "server_error"])
def test_what_is_asked_again_counts_and_no_request_is_sent_past_the_cap(own_shop, fault):
    with serve(Script({fault: 1.0}), obliging) as provider:
        add_toml(own_shop, f'{MODELS}api_base = "{provider.url}"\nusd_in = 1.0\nusd_out = 1.0')
        spending = Spending(Caps(calls=3))
        replay = Replay(open_program(own_shop), Record(), spending)
        with pytest.raises(BudgetStop, match="calls"):
            for n in range(9):
                replay(Asked(f"How much water does the Merle {n} hold?"))
        assert spending.calls == provider.calls == 3
        spending.caps = Caps(usd=spending.usd + 0.001)
        with pytest.raises(BudgetStop, match="usd"):
            replay(Asked("How much water does the Heron hold?"))
        assert provider.calls == 3


def priced(provider, model="openai/x", usd_out=1.0):
    terms = EndpointTerms(usd_in=1.0, usd_out=usd_out)
    return ProviderLM(shared_gateway().endpoint(model, provider.url, terms))


def test_calls_that_might_pass_the_cap_together_wait_for_each_other_and_none_is_lost():
    spending = Spending(Caps(usd=0.0075))  # room for one call at its dearest
    with serve(Script(delay=0.02)) as provider:
        lm = priced(provider)

        def ask(n):
            with track_spending(cap=spending):
                return lm(f"Hello {n}.")

        with ThreadPoolExecutor(12) as threads:
            assert len(list(threads.map(ask, range(12)))) == 12
        assert provider.calls == spending.calls == 12 and provider.most_in_flight == 1
        assert spending.usd == pytest.approx((provider.tokens_in + provider.tokens_out) / 1e6)


@pytest.mark.parametrize(("cap", "sent"), [(Caps(usd=1.0), MAX_REPLY_TOKENS), (Caps(calls=9), None)])
def test_where_money_is_capped_a_reply_is_no_longer_than_what_is_reserved_for_it(cap, sent):
    asked = []

    def brain(body):
        asked.append(body.get("max_tokens") or body.get("max_completion_tokens"))
        return "Yes."

    with serve(None, brain) as provider:
        for settings in ({}, {"max_tokens": 7}):
            with track_spending(cap=Spending(cap)):
                priced(provider)("Is it so?", **settings)
    assert asked == [sent, 7]


@pytest.mark.parametrize("letter", "aф水\U0001f643\U00013000")
def test_a_prompt_in_any_script_is_reserved_no_less_than_its_tokens(letter):
    reserved = []

    class Cap(Spending):
        def before_call(self, usd=0.0):
            reserved.append(usd)

    with serve(None, obliging) as provider, track_spending(cap=Cap(Caps(usd=1.0))):
        priced(provider, "openai/gpt-4", usd_out=0.0)(letter * 6000)
    assert reserved[0] * 1e6 >= count_messages("openai/gpt-4", [{"role": "user", "content": letter * 6000}])


def measured(folder, *options):
    """The figures of the program and of plain RAG, but for the time that searches take."""
    found = invoke_json("eval", folder, "--split", "dev", *options)
    sides = found["metrics"], found["plain"]
    return [{name: one for name, one in side.items() if not name.startswith("seconds")} for side in sides]


def test_recorded_replies_give_the_same_figures_without_the_model(own_shop, monkeypatch, tmp_path):
    file = tmp_path / "replies.jsonl"
    with serve(None, obliging) as provider:
        folder = paid(own_shop, provider.url, monkeypatch)
        recorded = measured(folder, "--record", file)
        asked = provider.calls
        assert measured(folder, "--record", file) == recorded
        assert asked == provider.calls > 0
    shutil.rmtree(folder / ".ragc")
    assert measured(folder, "--replay", file) == recorded
    for content, said in ((b"", "another program"), (b"{}\n", "recorded replies"), (b"\xff", "recorded replies")):
        file.write_bytes(content)
        done = invoke("eval", folder, "--split", "dev", "--replay", file)
        assert done.exit_code == 1 and said in str(done.exception)
    for others in (("--max-calls", 3), ("--record", file), ("--program", "shop:make")):
        done = invoke("eval", folder, "--replay", file, *others)
        assert done.exit_code == 1 and re.search("goes? (with|together)|go together", str(done.exception))
