"""What an answer says where a source or a model does not work: never that the knowledge lacks it."""

import asyncio
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scripted, passage

from ragc import open_program
from ragc.answer import Outcome, Progress, StoppedBy
from ragc.errors import KnowledgeError
from ragc.knowledge.library import Library
from ragc.passage import NO_FILTERS, Source, SourceCard
from ragc.serve.experiment import measure_answer
from ragc.settings import BudgetSettings
from tests.conftest import add_toml
from tests.support.provider import serve

NAMES = ("docs", "orders", "web")
QUESTION = "How big is it?"
IGNORANT = "in the knowledge I have"


class Stub(Source):
    """A source that finds a passage or nothing, fails, or hangs until the gate opens."""

    gate = threading.Event()

    def __init__(self, name, does):
        self.card, self.does = SourceCard(name, "http", name), does

    def describe(self):
        return self.card

    def candidates(self, query, depth, filters=NO_FILTERS):
        if self.does == "fails":
            raise KnowledgeError(f"{self.name} answered with status 401.", "Look at its key.")
        if self.does == "hangs":
            self.gate.wait(60)
        return [passage(f"{self.name}/a", "Text 0, text 1.")] if self.does == "finds" else []


def asked(rag):
    return rag(QUESTION), None


def awaited(rag):
    return asyncio.run(rag.aask(QUESTION)), None


def streamed(rag):
    async def collect():
        return [event async for event in rag.stream(QUESTION)]

    *events, answer = asyncio.run(collect())
    return answer, [event.note for event in events if isinstance(event, Progress)]


def program(*does, wanted=0, budget=None, **replies):
    sources = [Stub(name, one) for name, one in zip(NAMES, does, strict=False)]
    library = Library([], None, None, sources)
    chances = {f"base_{source.name}": 0.9 if n == wanted else 0.1 for n, source in enumerate(sources)}
    cards = [source.card for source in sources]
    return Scripted(cards=cards, library=library, budget=budget, replies=chances | replies).rag


DOES = st.lists(st.sampled_from(["finds", "nothing", "fails"]), min_size=1, max_size=3)


@settings(max_examples=60, deadline=None)
@given(DOES, st.integers(0, 2), st.sampled_from([asked, awaited, streamed]), st.booleans())
def test_a_source_that_fails_is_told_and_what_could_not_be_searched_is_never_called_unknown(does, wanted, ask, upheld):
    wanted %= len(does)
    unsupported = {} if upheld else {"states": 0.1, "supported": 0.1, "answer": "Nobody could tell."}
    answer, notes = ask(program(*does, wanted=wanted, **unsupported))
    failing = [name for name, one in zip(NAMES, does, strict=False) if one == "fails"]
    missed = [f"not searched: {name} ({name} answered with status 401)" for name in failing]
    assert [note for note in answer.degraded if note.startswith("not searched")] == missed
    assert set(missed) <= set(answer.trace.path) and (notes is None or set(missed) <= set(notes))
    assert answer.as_dict()["degraded"] == list(answer.degraded)
    lost = does[wanted] == "fails" and not ("finds" in does and upheld)
    assert (answer.outcome is Outcome.FAILED) is (lost or set(does) == {"fails"})
    if answer.outcome is Outcome.FAILED:
        assert answer.text == f"The search failed: {NAMES[wanted]} answered with status 401. Look at its key." or (
            set(does) == {"fails"} and answer.text.startswith("The search failed: docs answered")
        )
        assert (answer.stopped_by, answer.confidence, answer.citations) == (StoppedBy.FALLBACK, 0.0, ())
        assert (figures := measure_answer(answer, 1.0))["error"] == figures["failed"] == 1.0
    elif answer.outcome is Outcome.ABSTAIN:
        assert all(f"Not searched: {name} (" in answer.text for name in failing)


@pytest.mark.parametrize("ask", [asked, awaited, streamed])
def test_a_source_that_hangs_is_left_out_in_time_and_the_others_answer(ask):
    opened = threading.Timer(4, Stub.gate.set)  # asyncio waits for its threads
    opened.start()
    answer, _ = ask(program("finds", "hangs", budget=BudgetSettings(max_seconds=3)))
    Stub.gate.set()
    opened.cancel()
    Stub.gate.clear()
    assert answer.outcome is Outcome.ANSWERED and answer.citations
    assert answer.degraded == ("not searched: orders (orders did not answer in time)",)


@pytest.mark.parametrize("ask", [asked, awaited, streamed])
def test_a_model_that_fails_at_every_step_is_told_with_its_reason(ask):
    answer, _ = ask(program("finds", route=RuntimeError("gone"), answer=RuntimeError("out of memory")))
    assert answer.outcome is Outcome.FAILED and IGNORANT not in answer.text
    assert answer.text.startswith("I could not answer this: out of memory. Ask again")
    assert [note.partition(":")[0] for note in answer.degraded] == ["failed", "failed"]


def test_who_stood_in_is_told_where_sources_that_failed_are(own_shop, monkeypatch):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it is looked for on the network
    with serve() as provider:
        provider.stop()
        models = '[models]\nwrite = "openai/x"\n[provider]\nretries = 0\n[provider.model."openai/x"]\n'
        models += f'api_base = "{provider.url}"\nusd_in = 0\nusd_out = 0\n'
        stock = '[knowledge.stock]\nkind = "http"\nabout = "stock"\nurl = "http://127.0.0.1:9/{query}"\ntext = "/t"\n'
        answer = open_program(add_toml(own_shop, f"{models}{stock}allow_private = true"))("What does the Merle hold?")
    assert {note.partition(" ")[0] for note in answer.degraded} == {"openai/x", "not"}
