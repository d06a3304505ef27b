"""Who performs the loop's requests: in time, in parallel, abandoned half-way, and all at once."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import pytest
from staged import Decider, Shelf, Writer, staged

from program.answer import Answer, Outcome, StoppedBy, Usage
from program.loop.metering import Meter, Progress, Token
from program.loop.state import Budget
from program.passage import NO_FILTERS

HURRY = Budget(max_seconds=1.5)
QUESTION = "What is it?"


def lines(folder) -> list[bytes]:
    path = folder / "traces.jsonl"
    return path.read_bytes().splitlines() if path.is_file() else []


async def others() -> set[asyncio.Task]:
    await asyncio.sleep(0)
    return asyncio.all_tasks() - {asyncio.current_task()}


def test_asked_awaited_or_streamed_the_answer_and_its_path_are_the_same():
    program = staged()

    async def both():
        return await program.aask(QUESTION), [event async for event in program.stream(QUESTION)]

    asked, (awaited, events) = program(QUESTION), asyncio.run(both())
    assert asked.text == awaited.text == events[-1].text == "What is it? is 42. [1]"
    assert asked.trace.path == awaited.trace.path == events[-1].trace.path
    assert [e.note for e in events if isinstance(e, Progress)] == list(asked.trace.path)
    assert "".join(e.text for e in events if isinstance(e, Token)) == asked.text
    assert [step.name for step in asked.trace.steps] == [step.name for step in awaited.trace.steps]


def test_a_writer_that_hangs_does_not_outlive_the_deadline():
    writer = Writer(held="answer")
    for answer in (
        staged(writer=writer, budget=HURRY)(QUESTION),
        asyncio.run(asyncio.wait_for(staged(writer=writer, budget=HURRY).aask(QUESTION), 30)),
    ):
        assert (answer.outcome, answer.stopped_by) == (Outcome.ABSTAIN, StoppedBy.FALLBACK)
        assert "failed: generator.answer: no reply in time" in answer.trace.path
        assert answer.usage.seconds < 30
    writer.gate.set()


def test_a_judge_that_hangs_leaves_the_time_to_write_from_what_was_found():
    judge = Writer(held="sufficient", sufficient="0.9", relevant="0.9")
    for ask in (lambda p: p(QUESTION), lambda p: asyncio.run(asyncio.wait_for(p.aask(QUESTION), 30))):
        program = staged(budget=HURRY)
        program.judge.sufficiency.lm = judge.lm()
        answer = ask(program)
        assert answer.stopped_by is StoppedBy.FALLBACK
        assert answer.text == "What is it? is 42. [1]"
        assert answer.citations
    judge.gate.set()


def test_a_decider_that_hangs_leaves_the_time_to_write_too():
    gate = threading.Event()

    class Hangs(Decider):
        def __call__(self, state, questions):
            if "sufficient" in questions:
                gate.wait(60)
            return super().__call__(state, questions)

    answer = staged(Hangs(), budget=HURRY)(QUESTION)
    gate.set()
    assert "failed: judge.sufficiency: no reply in time" in answer.trace.path
    assert (answer.stopped_by, answer.text) == (StoppedBy.FALLBACK, "What is it? is 42. [1]")


def test_a_search_that_hangs_does_not_outlive_the_deadline():
    gate = threading.Event()

    class Hangs(Shelf):
        def candidates(self, query, depth, filters=NO_FILTERS):
            gate.wait(60)
            return super().candidates(query, depth, filters)

    async def awaited(program) -> Answer:
        try:
            return await program.aask(QUESTION)
        finally:
            gate.set()  # the loop, closing, waits for its threads

    def asked(program) -> Answer:
        return program(QUESTION)

    for ask in (asked, lambda program: asyncio.run(awaited(program))):
        answer = ask(staged(budget=HURRY, shelf=Hangs()))
        assert (answer.outcome, answer.stopped_by) == (Outcome.ABSTAIN, StoppedBy.FALLBACK)
        assert "failed: search: no reply in time" in answer.trace.path
        assert answer.usage.seconds < 30


def test_a_streamed_answer_does_not_outlive_the_deadline_either():
    async def last() -> Answer:
        program = staged(writer=Writer(held="answer"), budget=HURRY)
        return [event async for event in program.stream(QUESTION)][-1]

    assert asyncio.run(asyncio.wait_for(last(), 30)).stopped_by is StoppedBy.FALLBACK


def test_an_answer_no_longer_awaited_leaves_no_task_and_no_trace(tmp_path):
    async def abandon() -> set[asyncio.Task]:
        writer = Writer(held="answer")
        task = asyncio.create_task(staged(writer=writer, log=tmp_path).aask(QUESTION))
        while not writer.holding:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await others()

    assert asyncio.run(abandon()) == set()
    assert lines(tmp_path) == []


@pytest.mark.parametrize("until", [Progress, Token])
def test_an_abandoned_stream_leaves_no_task_and_no_trace(tmp_path, until):
    async def abandon() -> set[asyncio.Task]:
        program = staged(log=tmp_path)
        program.grounder.support.lm = Writer(held="supported").lm()
        stream = program.stream(QUESTION)
        async for event in stream:
            if isinstance(event, until):
                break
        await stream.aclose()
        return await others()

    assert asyncio.run(abandon()) == set()
    assert lines(tmp_path) == []


@pytest.mark.parametrize("held", ["answer", "missing"])
def test_a_request_that_came_too_late_is_a_step_with_its_inputs_and_its_time(tmp_path, held):
    async def streamed(program) -> Answer:
        return [event async for event in program.stream(QUESTION)][-1]

    writer = Writer(held=held)
    ways = [lambda p: p(QUESTION), lambda p: asyncio.run(p.aask(QUESTION)), lambda p: asyncio.run(streamed(p))]
    for ask in ways:
        answer = ask(staged(Decider(sufficient=0.2), writer, budget=HURRY, log=tmp_path))
        late = next(step for step in answer.trace.steps if step.error)
        assert late.name.endswith(held)
        assert late.output == "failed: no reply in time"
        assert len(late.inputs) == 16 and late.milliseconds > 100
    assert len([line for line in lines(tmp_path) if b'"error":' in line]) == len(ways)
    writer.gate.set()


def test_one_failed_request_takes_those_beside_it_along():
    class Fails(Writer):
        def respond(self, request):
            raise RuntimeError("no such luck")

    async def ask() -> tuple[Answer, set[asyncio.Task]]:
        program = staged(keep_at_most=3)
        program.judge.relevance.lm = Fails().lm()
        return await program.aask(QUESTION), await others()

    answer, left = asyncio.run(ask())
    assert answer.stopped_by is StoppedBy.FALLBACK
    assert left == set()


def test_two_hundred_questions_at_once_each_get_their_own_answer_and_trace(tmp_path):
    program = staged(log=tmp_path)
    questions = [f"What is number {n}?" for n in range(200)]

    async def together() -> list[Answer]:
        return await asyncio.gather(*(program.aask(question) for question in questions))

    answers = asyncio.run(together())
    assert [a.text for a in answers] == [f"{q} is 42. [1]" for q in questions]
    assert {tuple(s.name for s in a.trace.steps) for a in answers} == {tuple(s.name for s in answers[0].trace.steps)}
    assert {a.usage.calls for a in answers} == {1}
    assert len({a.trace.id for a in answers}) == len(lines(tmp_path)) == 200


def test_many_threads_get_their_own_answers():
    program = staged()
    questions = [f"What is number {n}?" for n in range(40)]
    with ThreadPoolExecutor(8) as threads:
        assert [a.text for a in threads.map(program, questions)] == [f"{q} is 42. [1]" for q in questions]


def test_tokens_spent_end_the_searching():
    program = staged(Decider(sufficient=0.2), budget=Budget(max_tokens=10), ground=0)
    assert program(QUESTION).stopped_by is StoppedBy.TOKENS


def test_every_cap_is_named_when_it_is_reached():
    assert Meter(Budget()).tripped() is None
    assert Meter(Budget(max_seconds=1e-9)).tripped() is StoppedBy.SECONDS
    assert Meter(Budget(max_tokens=10), Usage(tokens_in=6, tokens_out=4)).tripped() is StoppedBy.TOKENS
    assert Meter(Budget(max_usd=0.2), Usage(usd=0.2)).tripped() is StoppedBy.USD


def test_searching_ends_while_there_is_time_to_write():
    meter = Meter(Budget(max_seconds=90), started=perf_counter() - 70)
    assert meter.tripped() is StoppedBy.SECONDS
    assert 0 < meter.left(writing=True) <= 20
