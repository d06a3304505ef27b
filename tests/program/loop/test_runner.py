"""Who performs the loop's requests: in time, in parallel, abandoned half-way, all at once, and every cost in the books."""

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import dspy
import pytest
from dspy.utils.callback import BaseCallback
from scripted import POOL, Scripted, ScriptedModels, passage, read_drafts, turns

from ragc.answer import NEAREST, Outcome, Progress, StoppedBy, Token
from ragc.loop.runner import shared_loop
from ragc.models.language.adapter import FencedAdapter
from ragc.models.language.gateway import EndpointTerms, ProviderLM, shared_gateway
from ragc.settings import BudgetSettings
from tests.support.fakes import answer_in_child
from tests.support.provider import Script, serve

HURRY = BudgetSettings(max_seconds=1.5)
QUESTION = "What does the text say?"
MODEL = "openai/stand-in"
TEXT = "Text 0. [1] Text 1. [2]"


def answered(inputs):
    return f"{inputs['question']} is 42. [1]"


def lines(folder):
    path = folder / "traces.jsonl"
    return path.read_bytes().splitlines() if path.is_file() else []


async def other_tasks():
    await asyncio.sleep(0)
    return asyncio.all_tasks() - {asyncio.current_task()}


def limited(work):
    return asyncio.run(asyncio.wait_for(work, 60))


async def streamed(program):
    return [event async for event in program.stream(QUESTION)]


WAYS = {
    "asked": lambda program: program(QUESTION),
    "awaited": lambda program: limited(program.aask(QUESTION)),
    "streamed": lambda program: limited(streamed(program))[-1],
}


def test_asked_awaited_or_streamed_the_answer_and_its_path_are_the_same():
    asked, awaited, last = (way(Scripted().rag) for way in WAYS.values())
    assert asked.text == awaited.text == last.text == TEXT
    assert asked.trace.path == awaited.trace.path == last.trace.path
    events = limited(streamed(Scripted().rag))
    assert [e.note for e in events if isinstance(e, Progress)] == list(asked.trace.path)
    assert "".join(e.text for e in events if isinstance(e, Token)) == TEXT
    assert [s.name for s in asked.trace.steps] == [s.name for s in awaited.trace.steps]
    assert asked.usage.decisions == awaited.usage.decisions == len(asked.trace.steps) - 2 == 1


REST = "Text 1. [2]"
NOT_FOUND = "I could not find this in the knowledge I have. The nearest page is “billing/a.md#0” [1]."
MADE_UP = "Nobody could possibly tell."
LACKS = "MISSING: the rest. QUERY: rest"


@pytest.mark.parametrize(
    ("replies", "told"),
    [
        ({}, [TEXT]),
        ({"answer": turns(LACKS, REST)}, ["Text 1. [1]"]),
        ({"answer": MADE_UP}, [MADE_UP, NOT_FOUND]),
        ({"answer": f"{REST} {MADE_UP}"}, [f"Text 1. [1] {MADE_UP}", "Text 1. [1]"]),
        ({"supported": 0.1}, [TEXT, NOT_FOUND]),
        ({"answer": "WHICH: Which one?\n- it\n- that"}, ["Which one?\n- it\n- that"]),
        ({"answer": "GENERAL: 144."}, ["144."]),
    ],
)
def test_a_draft_that_does_not_count_is_withdrawn_and_the_last_that_is_told_is_the_answer(replies, told):
    *events, answer = limited(streamed(Scripted(replies=replies, max_rounds=2, check=2).rag))
    drafts = read_drafts(events)
    assert drafts[-1].split() == answer.shown.split()
    assert [draft.removesuffix(f"\n\n{NEAREST} {answer.nearest}") for draft in drafts] == told


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("held", ["answer", "missing", "sufficient"])
def test_what_hangs_does_not_outlive_the_deadline_and_is_a_step_with_its_inputs_and_its_time(tmp_path, way, held):
    models = ScriptedModels(held=held, sufficient=0.2, states=0.9, answer=answered)
    program = Scripted(models=models, budget=HURRY, log=tmp_path, max_rounds=2, quotes=held != "answer")
    if held == "sufficient":  # asked as a language model, which can be called off
        program.rag.judge.sufficiency.lm = models.lm()
    answer = WAYS[way](program.rag)
    models.gate.set()
    assert answer.stopped_by is StoppedBy.FALLBACK and answer.usage.seconds < 30
    assert answer.outcome is (Outcome.FAILED if held == "answer" else Outcome.ANSWERED)
    late = next(step for step in answer.trace.steps if step.error)
    assert late.output == "failed: no reply in time" and len(late.inputs) == 16 and late.milliseconds > 100
    assert f"failed: {late.name}: no reply in time" in answer.trace.path
    assert len([line for line in lines(tmp_path) if b'"error":' in line]) == 1


def test_a_search_that_hangs_does_not_outlive_the_deadline():
    gate = threading.Event()

    async def awaited(program):
        try:
            return await program.aask(QUESTION)
        finally:
            gate.set()  # the loop, closing, waits for its threads

    for ask in (WAYS["asked"], lambda program: asyncio.run(awaited(program))):
        answer = ask(Scripted(pool=lambda find: gate.wait(60) and POOL, budget=HURRY).rag)
        assert (answer.outcome, answer.stopped_by) == (Outcome.FAILED, StoppedBy.FALLBACK)
        assert "raise max_seconds" in answer.text and "failed: search: no reply in time" in answer.trace.path


def test_searching_ends_while_there_is_time_to_write():
    def slow(inputs):
        threading.Event().wait(1.1)
        return 0.2

    models = ScriptedModels("local/slow", sufficient=slow, states=0.9)
    answer = Scripted(models=models, budget=HURRY, quotes=True, max_rounds=2).rag(QUESTION)
    assert (answer.outcome, answer.stopped_by) == (Outcome.ANSWERED, StoppedBy.SECONDS)
    assert answer.trace.path.count("search(1)") == 1


@pytest.mark.parametrize("until", [None, Progress, Token])
def test_an_answer_no_longer_awaited_and_an_abandoned_stream_leave_no_task_and_no_trace(tmp_path, until):
    async def unawaited():
        models = ScriptedModels(held="answer")
        task = asyncio.create_task(Scripted(models=models, log=tmp_path).rag.aask(QUESTION))
        while not models.holding:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await other_tasks()

    async def abandoned():
        program = Scripted(log=tmp_path, check=2).rag
        program.grounder.support.lm = ScriptedModels(held="supported").lm()
        stream = program.stream(QUESTION)
        async for event in stream:
            if isinstance(event, until):
                break
        await stream.aclose()
        return await other_tasks()

    assert asyncio.run(abandoned() if until else unawaited()) == set() and lines(tmp_path) == []


def test_many_questions_at_once_each_get_their_own_answer_and_trace(tmp_path):
    said = {"pool": lambda find: [passage("product/a", f"{find.query} is 42.")], "replies": {"answer": answered}}
    program = Scripted(log=tmp_path, **said).rag
    questions = [f"What is number {n}?" for n in range(100)]

    async def together():
        return await asyncio.gather(*(program.aask(question) for question in questions))

    answers = asyncio.run(together())
    assert [a.text for a in answers] == [f"{q} is 42. [1]" for q in questions]
    assert {a.usage.calls for a in answers} == {1}
    assert len({a.trace.id for a in answers}) == len(lines(tmp_path)) == 100
    with ThreadPoolExecutor(8) as threads:
        assert [a.text for a in threads.map(program, questions[:40])] == [f"{q} is 42. [1]" for q in questions[:40]]


# ---- whoever asks without awaiting


class Awaited(ScriptedModels):
    """A client that is awaited; each decision waits until `together` of them are under way."""

    awaits, together = True, None

    async def acall(self, state, questions):
        if self.together and "states" in questions:
            self.together = asyncio.Barrier(self.together) if isinstance(self.together, int) else self.together
            await asyncio.wait_for(self.together.wait(), 30)
        return self(state, questions)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("awaited", [True, False])
def test_independent_decisions_are_under_way_at_once_whoever_asks_and_whoever_decides(way, awaited):
    def asking(models):
        answer = WAYS[way](Scripted(models=models, quotes=True).rag)
        return [step.name for step in answer.trace.steps if not step.error].count("generator.states")

    pieces = asking(ScriptedModels(states=0.9))
    meeting = threading.Barrier(pieces)
    models = Awaited(states=0.9) if awaited else ScriptedModels(states=lambda inputs: 0.9 + 0 * meeting.wait(30))
    models.together = pieces
    assert asking(models) == pieces > 3


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["an engine", "a class"])
def test_a_language_model_that_was_never_made_to_be_awaited_writes_all_the_same(way, kind):
    program = Scripted().rag

    class Plain(dspy.BaseLM):
        def forward(self, prompt=None, messages=None, **kwargs):
            return dspy.LM(MODEL, engine=program.runtime.models.decide, cache=False).forward(prompt, messages, **kwargs)

    lm = Plain(MODEL) if kind == "a class" else dspy.LM(MODEL, engine=program.runtime.models.decide, cache=False)
    program.generator.answer.lm = lm
    answer = WAYS[way](program)
    assert (answer.text, answer.degraded) == (TEXT, ())


def test_a_question_is_asked_inside_a_running_loop_and_by_a_callback_of_another():
    class Asking(BaseCallback):
        told = None

        def on_lm_start(self, call_id, instance, inputs):
            if self.told is None:
                self.told = ""
                self.told = Scripted().rag(QUESTION).text

    async def ask():
        with dspy.context(callbacks=[asking]):
            return Scripted().rag(QUESTION)

    asking = Asking()
    assert asyncio.run(ask()).text == asking.told == TEXT


def test_what_dspy_keeps_in_a_context_is_kept_of_what_is_asked_in_it():
    program = Scripted(models=ScriptedModels(), check=2).rag
    with dspy.context(trace=[]), dspy.track_usage() as used:
        asked = program(QUESTION)
        traced = [id(predictor) for predictor, *_ in dspy.settings.trace]
    names = {id(predictor): name for name, predictor in program.named_predictors()}
    steps = [step.name for step in asked.trace.steps if step.name != "search"]
    assert [names[one] for one in traced if one in names] == steps
    assert set(used.get_total_tokens()) == {"scripted/model"}
    with dspy.context(trace=[]):
        awaited = limited(program.aask(QUESTION))
    assert awaited.trace.path == asked.trace.path


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_a_forked_process_asks_as_its_parent():
    program = Scripted().rag
    assert program(QUESTION).text == TEXT
    assert answer_in_child(lambda: program(QUESTION).text, 60) == TEXT


async def running():
    return {task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}}


@pytest.fixture
def interruptible():
    """A process started in the background of a shell ignores interruptions."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interruption_calls_off_what_is_waited_for():
    models = ScriptedModels(held="answer")
    program = Scripted(models=models).rag

    def interrupt():
        while not models.holding:
            threading.Event().wait(0.01)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        program(QUESTION)
    for _ in range(100):
        left = shared_loop().run(running())
        threading.Event().wait(0.05 if left else 0)
    assert not left
    assert Scripted().rag(QUESTION).text == TEXT


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_what_ends_a_process_ends_its_own_question_alone(error):
    program = Scripted(replies={"answer": lambda inputs: (_ for _ in ()).throw(error())}).rag
    with pytest.raises(error):
        program(QUESTION)
    assert Scripted().rag(QUESTION).text == TEXT


# ---- what language models cost


def lane(provider):
    """The provider's lane, past its first request, which LiteLLM takes long for."""
    opened = shared_gateway().endpoint(MODEL, provider.url, EndpointTerms(retries=0))
    script, provider.script = provider.script, Script()
    ProviderLM(opened)("Hello.")
    provider.script = script
    provider.calls = provider.tokens_in = provider.tokens_out = 0
    return opened


async def idle(provider):
    while provider.in_flight:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_text_that_comes_too_late_is_counted(streaming):
    text = "word " * 400
    with serve(Script(delay=0 if streaming else 30, token_delay=0.05), lambda body: text) as provider:
        program = Scripted(budget=BudgetSettings(max_seconds=3)).rag
        program.generator.answer.lm = ProviderLM(lane(provider), FencedAdapter())

        async def ask():
            events = await streamed(program) if streaming else [await program.aask(QUESTION)]
            await idle(provider)
            return events

        *events, answer = limited(ask())
        assert any(isinstance(event, Token) for event in events) is streaming
        assert answer.stopped_by is StoppedBy.FALLBACK
        assert answer.usage.calls == provider.calls >= 1
        assert answer.usage.tokens_in == provider.tokens_in > 0
