"""What a compile puts to language models: the very calls that serving makes, each of them once."""

import pytest

from optimize.compiler.record import Record
from optimize.compiler.replay import Replay
from program import open_program
from program.loop.policy import apply_setting, read_setting
from program.settings import FILE
from tests.support.provider import Script, serve
from tests.support.replies import obliging

QUESTIONS = [
    "How much water does the Merle kettle hold?",
    "How many days do I have to get my money back and how many watts does the Wren draw?",
]


@pytest.fixture
def asked(own_shop, request):
    """A program decided for by the models named, texts by the stand-in alone; and what that is asked, in order."""
    prompts = []

    def brain(body):
        prompts.append("\n".join(message["content"] for message in body["messages"]))
        return obliging(body)

    with serve(Script(), brain) as provider:
        models = f'[models]\ndecide = {request.param}\nwrite = "openai/x"\n[provider]\nfallback = false\n'
        models += f'[provider.model."openai/x"]\napi_base = "{provider.url}"\n'
        (own_shop / FILE).write_text(f"{(own_shop / FILE).read_text()}\n{models}")
        yield open_program(own_shop), prompts


def told(prompts, ask):
    """What `ask` returns, and the prompts that it took."""
    before = len(prompts)
    found = ask()
    return found, prompts[before:]


@pytest.mark.parametrize(
    "asked", ['"openai/x"', '["local/minilm", "openai/x"]'], indirect=True, ids=["model", "cascade"]
)
def test_a_replay_makes_the_calls_that_serving_makes(asked):
    program, prompts = asked
    for question in QUESTIONS:
        for doubt in (0.3, 0.95):
            apply_setting(program, {name: doubt for name in read_setting(program) if name.startswith("doubt.")})
            live, served = told(prompts, lambda question=question: program(question))
            again, recorded = told(prompts, lambda question=question: Replay(program.deepcopy(), Record())(question))
            assert sorted(recorded) == sorted(served)
            assert (again.text, again.trace.path) == (live.text, live.trace.path)
            assert (again.usage.calls, again.usage.decisions) == (live.usage.calls, live.usage.decisions)
            assert (again.usage.asked, again.usage.agreed) == (live.usage.asked, live.usage.agreed)
            assert (again.usage.dear, again.usage.spared) == (live.usage.dear, live.usage.spared)


@pytest.mark.parametrize("asked", ['"openai/x"'], indirect=True, ids=["model"])
def test_what_went_in_one_call_is_read_from_the_file_and_serves_other_thresholds(asked, tmp_path):
    program, prompts = asked
    first = Replay(program.deepcopy(), Record(tmp_path / "record"))
    answers, recorded = told(prompts, lambda: first.answers(QUESTIONS))
    assert any("relevant_2" in prompt and "sufficient_" in prompt for prompt in recorded)
    second = Replay(program.deepcopy(), Record(tmp_path / "record"))
    again, more = told(prompts, lambda: second.answers(QUESTIONS))
    assert not more
    assert [a.text for a in again] == [a.text for a in answers]
    apply_setting(second.program, {"grounder.responsive:responsive": 0.98})
    strict, more = told(prompts, lambda: second.answers(QUESTIONS[:1]))
    assert not more
    assert strict[0].outcome == "abstain"


@pytest.mark.parametrize("asked", ['"openai/x"'], indirect=True, ids=["model"])
def test_other_instructions_for_a_part_are_another_call(asked):
    program, prompts = asked
    replay = Replay(program.deepcopy(), Record())
    told(prompts, lambda: replay(QUESTIONS[0]))
    judge = replay.program.judge.sufficiency
    judge.signature = judge.signature.with_instructions("Say whether nothing is lacking.")
    _, more = told(prompts, lambda: replay(QUESTIONS[0]))
    assert any("relevant_1" in prompt and "nothing is lacking" in prompt for prompt in more)
