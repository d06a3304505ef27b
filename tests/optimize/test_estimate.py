"""Slow models: the time limits follow a measured call, and a compile tells what it comes to before it spends."""

import asyncio
import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragc import open_program
from ragc.errors import BudgetStop, ModelError
from ragc.knowledge.project import Project
from ragc.models.language.gateway import shared_gateway
from ragc.models.language.pace import Pace, note_pace, read_paces
from ragc.optimize.compiler.compile import compile_project
from ragc.optimize.compiler.spending import Caps, Spending
from ragc.optimize.report.doctor import examine_setup
from ragc.optimize.report.estimate import Expected, estimate_cost, measure_model
from tests.conftest import add_toml
from tests.support.provider import Script, serve
from tests.support.replies import obliging

MODEL = "openai/stand-in"


@pytest.fixture
def slow_shop(own_shop):
    """A project whose writer is served here, and the server."""
    shared_gateway.cache_clear()
    with serve(Script(), obliging) as provider:
        terms = f'api_base = "{provider.url}"\nusd_in = 1.0\nusd_out = 1.0\nconcurrency = 1'
        add_toml(own_shop, f'[models]\nwrite = "{MODEL}"\n[provider.model."{MODEL}"]\n{terms}')
        yield own_shop, provider


def limits(folder):
    rag = open_program(folder)
    return rag.runtime.budget.max_seconds, rag.runtime.models.write.endpoint.terms.call_seconds


def test_limits_leave_room_for_a_slow_model_once_it_was_measured_and_a_fast_one_changes_nothing(slow_shop):
    folder, _ = slow_shop
    for pace, seconds in ((None, (15.0, 30.0)), (0.4, (15.0, 30.0)), (20.0, (160.0, 80.0))):
        if pace:
            note_pace(folder / ".ragc", MODEL, Pace(pace, 1000, 20))
        assert limits(folder) == seconds


def test_a_limit_of_the_projects_own_stays_and_doctor_measures_the_pace_and_says_when_it_cuts_answers_off(slow_shop):
    def told():
        return next(one for one in examine_setup(folder) if MODEL in one.what)

    folder, provider = slow_shop
    assert told().good and re.search(r"answers, \d+\.\d s a call", told().what)
    assert read_paces(folder / ".ragc")[MODEL].tokens_in > 500
    add_toml(folder, "[budget]\nmax_seconds = 1")
    note_pace(folder / ".ragc", MODEL, Pace(20.0, 1000, 20))
    assert limits(folder)[0] == 1.0
    provider.follow(Script(delay=0.6))
    assert not told().good and "max_seconds = 1 cuts its answers off" in told().mend


def test_a_compile_measures_once_under_its_cap_and_tells_calls_minutes_and_money_before_it_spends(slow_shop):
    folder, provider = slow_shop
    seen = []
    done = compile_project(Project.open(folder), watch=lambda live: seen.append((live.expected.describe(), live.calls)))
    first = next(expected for expected, _ in seen if expected)
    spent = next(calls for expected, calls in seen if expected)
    assert re.match(r"about \d+ calls to language models, (a minute|\d+ minutes), US\$ \d+\.\d\d", first) and spent == 1
    assert done.calls == provider.calls
    (folder / ".ragc" / "pace.json").unlink()
    assert compile_project(Project.open(folder)).calls == 0  # the record holds the pace, too
    spending = Spending(Caps(calls=1))
    spending.before_call()
    with pytest.raises(BudgetStop):
        measure_model(Project.open(folder), MODEL, spending)


def test_an_estimate_grows_with_the_questions_and_ends_at_the_cap(slow_shop, shop):
    folder, _ = slow_shop
    note_pace(folder / ".ragc", MODEL, Pace(6.0, 1000, 100))
    project = Project.open(folder)
    few, many, capped = (estimate_cost(project, n, n, most, 0.6) for n, most in ((10, None), (100, None), (100, 60)))
    assert few.calls < many.calls and capped.calls == 60
    assert capped.minutes == pytest.approx(2.682 + 60 * 6 / 60), "the work of this machine counts, too"
    assert capped.usd == pytest.approx(60 * 1100 / 1e6)
    assert estimate_cost(Project.open(shop), 100, 100, None, 0.4, 0.018, 10).describe() == "about 2 minutes"


shares = st.lists(st.floats(0.01, 1), min_size=2, max_size=8)


@given(shares, st.floats(0.3, 10), st.integers(0, 7), st.floats(0, 0.99))
def test_what_is_said_to_be_left_follows_the_clock_whatever_the_machine_is_slower_by(planned, slower, at, share):
    """Every stage takes `slower` times what was planned; from the middle on what is left is right within a quarter."""
    stages = {f"stage {n}": 60 * minutes for n, minutes in enumerate(planned)}
    at = min(at, len(planned) - 1)
    took = {f"{name}: of it": slower * seconds for name, seconds in [*stages.items()][:at]}
    elapsed = slower * share * stages[f"stage {at}"]
    left, true = Expected(0, stages).tell_left(took, f"stage {at}: of it", elapsed, share), slower * sum(planned)
    true -= (sum(took.values()) + elapsed) / 60
    if true <= slower * sum(planned) / 2:
        assert left == pytest.approx(true, rel=0.25)
    assert left >= 0 and Expected().tell_left(took, "stage 0", elapsed, share) is None


@given(st.lists(st.tuples(st.floats(1, 300), st.floats(0.82, 1.22)), min_size=1, max_size=9), st.floats(0.3, 10))
def test_what_is_said_to_be_left_comes_true_from_the_middle_on_though_no_stage_is_quite_as_planned(stages, slower):
    """By a clock that is simulated: within a factor of 1.5, or half a minute, at every step of every stage."""
    expected = Expected(0, {f"stage {n}": planned for n, (planned, _) in enumerate(stages)})
    lasting = [slower * planned * other for planned, other in stages]
    for at, seconds in enumerate(lasting):
        took = {f"stage {n}": one for n, one in enumerate(lasting[:at])}
        for tenth in range(10):
            elapsed = seconds * tenth / 10
            true = (sum(lasting[at:]) - elapsed) / 60
            if true <= sum(lasting) / 120:
                left = expected.tell_left(took, f"stage {at}", elapsed, tenth / 10)
                assert true / 1.5 - 0.5 <= left <= true * 1.5 + 0.5


@pytest.mark.parametrize("fault", ["gone", "rate_limited", "server_error"])
def test_a_compile_whose_model_does_not_answer_stops_where_its_pace_is_measured_and_seals_nothing(slow_shop, fault):
    folder, provider = slow_shop
    add_toml(folder, "[provider]\nretries = 0")
    if fault == "gone":
        provider.stop()
    else:
        provider.follow(Script({fault: 1.0}))
    told = f"{MODEL} {'cannot be reached' if fault == 'gone' else 'answered'}.*that its server runs"
    with pytest.raises(ModelError, match=told):
        compile_project(Project.open(folder))
    assert provider.calls <= 1, "what was repeated already is not asked again"
    assert not list((folder / "artifacts").glob("*/versions/*"))


def test_a_compile_whose_model_is_gone_though_its_pace_is_known_is_told_so_after_ten_seconds_of_waiting_at_most(
    slow_shop, monkeypatch
):
    folder, provider = slow_shop
    provider.stop()
    note_pace(folder / ".ragc", MODEL, Pace(0.4, 1000, 20))
    waited = []

    async def wait(seconds):
        waited.append(seconds)

    monkeypatch.setattr("dspy.clients.execution.asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": wait}))
    monkeypatch.setattr("dspy.clients.execution.time", SimpleNamespace(sleep=waited.append))
    with pytest.raises(ModelError, match=f"{MODEL} cannot be reached"):
        compile_project(Project.open(folder))
    assert 0 < sum(waited) <= 10, "one call at a time, so that all are waited for"
