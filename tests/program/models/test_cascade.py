"""The embedded decider first, a language model only in doubt."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimize.compiler.replay import Record, Replay
from optimize.evaluation.evaluate import evaluate
from optimize.labelled.dataset import read_labelled
from program import open_program
from program.loop.policy import find_dimensions
from program.models.cascade import certainty, consult, settled
from program.settings import FILE
from tests.support.provider import Script, serve
from tests.support.replies import obliging, wanted

QUESTION = "How much water does the Merle kettle hold?"
DOUBTS = ("route", "relevance", "sufficiency", "contradiction", "support", "responsive")


@pytest.fixture
def cascade(own_shop):
    text = (own_shop / FILE).read_text()
    with serve(Script(), obliging) as provider:
        models = '[models]\ndecide = ["local/minilm", "openai/x"]\nwrite = ["local/extract", "openai/x"]\n'
        (own_shop / FILE).write_text(f'{text}\n{models}[provider.model."openai/x"]\napi_base = "{provider.url}"\n')
        yield open_program(own_shop), provider, own_shop


def doubt(program, value):
    for name in DOUBTS:
        getattr(program.doubt, name).set(value)


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_doubt_of_nought_never_asks_and_of_one_always_does(p, doubt):
    evidence = {"relevant": p, "route": {"a": p, "b": 1 - p}}
    assert settled(evidence, 0.0) and not settled(evidence, 1.0)
    assert 0 <= certainty(evidence) <= 1
    if settled(evidence, doubt):
        assert settled(evidence, doubt / 2)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5))
def test_only_the_decisions_in_doubt_are_put_to_the_second_model_and_all_of_them_together(decisions):
    work, second = consult([doubt for _, doubt in decisions]), {"x": 0.3}
    assert next(work) == (0, list(range(len(decisions))))
    first = [{"x": p} for p, _ in decisions]
    doubtful = [n for n, (_, doubt) in enumerate(decisions) if not settled(first[n], doubt)]
    with pytest.raises(StopIteration) as stop:
        assert work.send(first) == (1, doubtful)
        work.send([second] * len(doubtful))
    assert [said[-1] for said in stop.value.value] == [
        second if n in doubtful else evidence for n, evidence in enumerate(first)
    ]


def test_the_doubts_are_parameters_of_a_cascade_and_of_no_other_program(cascade, shop):
    program, _, _ = cascade
    assert {f"doubt.{name}" for name in DOUBTS} <= {d.name for d in find_dimensions(program)}
    assert not [d for d in find_dimensions(open_program(shop)) if d.name.startswith("doubt.")]


def test_the_language_model_is_asked_as_often_as_doubt_says(cascade):
    program, provider, _ = cascade
    doubt(program, 0.0)
    never = program(QUESTION)
    assert (provider.calls, never.usage.asked) == (0, 0)
    doubt(program, 1.0)
    always = program("How much water does the Wren kettle hold?")
    assert always.usage.asked == always.usage.decisions > provider.calls  # those of a step are put in one call
    assert provider.calls == always.usage.calls - 1  # the embedded writer's text is a call too
    assert 0 <= always.usage.agreed <= always.usage.asked


def test_a_replay_asks_each_model_once_and_then_turns_doubt_as_it_likes(cascade):
    program, provider, _ = cascade
    replay = Replay(program, Record())
    doubt(program, 1.0)
    dear = replay(QUESTION).usage.calls
    asked = provider.calls
    doubt(program, 0.0)
    cheap = replay(QUESTION).usage.calls
    doubt(program, 1.0)
    assert replay(QUESTION).usage.calls == dear > cheap
    assert provider.calls == asked > 0


def test_what_a_language_model_decided_is_kept_in_the_file_and_a_default_taken_for_it_is_not(cascade, tmp_path):
    program, provider, _ = cascade
    doubt(program, 1.0)

    def calls(question):
        record = Record(tmp_path / "record.sqlite")
        Replay(program, record)(question)
        return record.calls

    assert calls(QUESTION) > 0
    assert calls(QUESTION) == 0
    provider.script = Script({"refusal": 1.0})
    assert calls("Does the Merle come in green?") > 0
    assert calls("Does the Merle come in green?") > 0


def test_what_stands_in_for_the_second_model_does_not_agree_with_the_first(cascade):
    program, provider, _ = cascade
    doubt(program, 1.0)
    for fault in ("refusal", "server_error"):
        provider.follow(Script({fault: 1.0}))
        usage = program(f"How much water does the Merle hold? {fault}").usage
        assert provider.calls > 0 and (usage.asked, usage.agreed) == (0, 0)


def test_the_calls_spared_are_those_that_always_asking_would_have_made(cascade):
    program, provider, _ = cascade
    program.runtime = replace(program.runtime, models=replace(program.runtime.models, rewrite=None))
    doubt(program, 1.0)
    usage = program(QUESTION).usage
    assert usage.dear == provider.calls > 0 and usage.spared == 0
    always = provider.calls
    doubt(program, 0.0)
    usage = program("How much water does the Wren kettle hold?").usage
    assert (usage.dear, usage.spared) == (0, always)


def test_a_draft_of_the_cheaper_writer_spares_a_call_of_the_dearer_one_until_it_has_to_write(cascade):
    program, _, _ = cascade
    doubt(program, 0.0)
    upheld = program(QUESTION).usage
    program.runtime = replace(program.runtime, models=replace(program.runtime.models, rewrite=None))
    assert upheld.dear == 0 and upheld.spared == program(QUESTION).usage.spared + 1


def test_an_evaluation_tells_calls_saved_and_agreement(cascade):
    program, _, folder = cascade
    program.runtime = replace(program.runtime, models=replace(program.runtime.models, rewrite=None))
    doubt(program, 1.0)
    metrics = evaluate(program, read_labelled(folder / "labelled.jsonl")[:2]).metrics()
    assert metrics["calls_saved"]["value"] == 0
    assert 0 <= metrics["agreement"]["value"] <= 1
    doubt(program, 0.0)
    metrics = evaluate(program, read_labelled(folder / "labelled.jsonl")[:2]).metrics()
    assert metrics["calls_saved"]["value"] == 1 and "agreement" not in metrics


def test_only_the_decisions_in_doubt_are_put_to_the_second_model_in_one_call_a_step(own_shop):
    prompts = []

    def brain(body):
        prompts.append([(value.name, value.passages) for value in wanted(body)])
        return obliging(body)

    text = (own_shop / FILE).read_text()
    with serve(Script(), brain) as provider:
        models = '[models]\ndecide = ["local/minilm", "openai/x"]\n'
        (own_shop / FILE).write_text(f'{text}\n{models}[provider.model."openai/x"]\napi_base = "{provider.url}"\n')
        program = open_program(own_shop)
        doubt(program, 0.0)
        program.doubt.relevance.set(0.9)
        answer = program(QUESTION)
    judged = [step.scores["relevant"] for step in answer.trace.steps if step.name == "judge.relevance"]
    (asked,) = prompts
    assert [name for name, _ in asked] == ["relevant"] * answer.usage.asked
    assert 0 < len(asked) <= len(judged)
    assert len(asked) == len({passages for _, passages in asked})
    assert all(abs(2 * p - 1) >= 0.8 for p in judged), "each is certain by the embedded decider or by the stand-in's .9"


def test_a_draft_of_the_cheaper_writer_that_is_not_upheld_is_written_anew_by_the_dearer_one(own_shop):
    def brain(body):
        values = wanted(body)
        if not values:
            return "The Merle holds 1.7 litres, says the dearer one. [1]"
        reply = json.loads(obliging(body))
        for value in values:
            if value.name == "supported" and "dearer" not in value.inputs["claim"]:
                reply[value.key] = {"reason": "not so", "verdict": "no", "probability": 0.1}
        return json.dumps(reply)

    text = (own_shop / FILE).read_text()
    with serve(Script(), brain) as provider:
        models = '[models]\ndecide = "openai/x"\nwrite = ["local/extract", "openai/x"]\n'
        (own_shop / FILE).write_text(f'{text}\n{models}[provider.model."openai/x"]\napi_base = "{provider.url}"\n')
        answer = open_program(own_shop)(QUESTION)
    writers = [step.model for step in answer.trace.steps if step.name == "generator.answer"]
    assert writers == ["local/extract-v1", "openai/x"]
    assert "dearer" in answer.text and answer.supported == 1.0


def test_the_dearer_writer_writes_what_the_cheaper_ones_draft_was_not_upheld_in(cascade):
    program, _, _ = cascade
    models = program.runtime.models
    assert models.writer({"strict": False}).model == "local/extract-v1"
    assert models.writer({"strict": True}).model == "openai/x"
