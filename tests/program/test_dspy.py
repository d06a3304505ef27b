"""ragc's program among DSPy's own functions: whatever takes a module takes it."""

import asyncio
import copy
import csv
import itertools
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import dspy
import pytest
from dspy.evaluate import answer_exact_match
from dspy.utils.callback import BaseCallback

from ragc import Answer, Outcome, load, open_program
from tests.conftest import add_toml
from tests.program.loop.scripted import Scripted, ScriptedModels
from tests.support.goods import ask_about, program_at
from tests.support.provider import Script, serve
from tests.support.replies import obliging

QUESTION = "How much water does the Merle hold?"
REFUND = "How many days do I have to get my money back?"
LABELLED = [
    json.loads(line)["question"]
    for line in Path(__file__).parents[1].joinpath("support/shop/labelled.jsonl").read_text().splitlines()
]


@pytest.fixture(scope="module")
def rag(shop):
    return open_program(shop)


@pytest.fixture
def examples():
    return [
        dspy.Example(question=QUESTION, answer="1.7 litres", fact="1.7 litres").with_inputs("question"),
        dspy.Example(question=REFUND, answer="30 days", fact="30 days").with_inputs("question"),
    ]


def own(rag):
    """A copy whose writer is its own, whatever DSPy is configured with."""
    copied = rag.deepcopy()
    copied.set_lm(rag.get_lm())
    return copied


def states_fact(example, prediction, trace=None):
    return example.fact in prediction.answer


def test_an_answer_is_a_prediction_whose_dictionary_is_json(rag):
    answer = rag(QUESTION)
    assert isinstance(answer, dspy.Prediction) and isinstance(answer, Answer)
    assert "1.7 litres" in answer.answer and "[1]" in answer.text and "[1]" not in answer.answer
    assert answer_exact_match(dspy.Example(answer=answer.answer), answer)
    told = json.loads(json.dumps(answer.toDict()))
    assert (told["outcome"], told["citations"][0]["n"], told["trace"]["id"]) == ("answered", 1, answer.trace.id)
    assert Answer(answer) == answer.copy() == answer and answer.copy(text="No. [1]").answer == "No."


def test_evaluate_saves_its_results_as_json_and_csv(rag, examples, tmp_path):
    files = {"save_as_json": str(tmp_path / "a.json"), "save_as_csv": str(tmp_path / "a.csv")}
    found = dspy.Evaluate(devset=examples, metric=states_fact, num_threads=2, **files)(rag)
    assert found.score == 100.0
    rows = json.loads((tmp_path / "a.json").read_text())
    assert [row["states_fact"] for row in rows] == [True, True] and "1.7 litres" in rows[0]["pred_answer"]
    with (tmp_path / "a.csv").open(newline="") as file:
        assert [row["outcome"] for row in csv.DictReader(file)] == ["answered", "answered"]


def test_majority_and_ensemble_vote_on_the_text(rag):
    other = rag.plain()
    other.policy.turn(k=2)
    ensemble = dspy.teleprompt.Ensemble(reduce_fn=dspy.majority).compile([rag, rag.deepcopy(), other])
    assert ensemble(question=QUESTION).answer == rag(QUESTION).answer
    assert dspy.majority([rag(QUESTION), rag(REFUND), rag(QUESTION)]).answer == rag(QUESTION).answer


@pytest.mark.parametrize("kind", [dspy.BestOfN, dspy.Refine])
def test_best_of_n_and_refine_return_the_answer_that_pleases_most(rag, kind):
    advice = dspy.utils.DummyLM([{"discussion": "d", "advice": '{"generator.answer": "be brief"}'}])
    program = kind(own(rag), N=2, reward_fn=lambda args, answer: answer.confidence, threshold=2.0)
    with dspy.context(lm=advice):
        assert "1.7 litres" in program(question=QUESTION).answer
    assert len(advice.history) == (kind is dspy.Refine)
    assert "1.7 litres" in kind(rag, N=2, reward_fn=lambda *_: 1.0, threshold=1.0)(question=QUESTION).answer


async def test_asyncify_and_parallel_ask_it_many_times(rag):
    assert "1.7 litres" in (await dspy.asyncify(rag)(question=QUESTION)).answer
    found = dspy.Parallel(num_threads=2, disable_progress_bar=True)(
        [(rag, {"question": q}) for q in (QUESTION, REFUND)]
    )
    assert [answer.outcome for answer in found] == [Outcome.ANSWERED] * 2


def test_an_agent_uses_it_as_a_tool_with_its_arguments_and_description(rag):
    tool, asked = dspy.Tool(rag), json.dumps({"question": QUESTION})
    assert (tool.name, [*tool.args]) == ("ask_knowledge", ["question", "history"])
    assert tool.args["question"] == {"type": "string"}
    assert "kettles" in tool.desc and "refunds" in tool.desc
    call = {"next_thought": "look", "next_tool_name": "ask_knowledge", "next_tool_args": asked}
    done = {"next_thought": "done", "next_tool_name": "finish", "next_tool_args": "{}"}
    lm = dspy.utils.DummyLM([call, done, {"reasoning": "r", "answer": "1.7 litres"}])
    agent = dspy.ReAct("question -> answer", tools=[dspy.Tool(own(rag))])
    with dspy.context(lm=lm):
        found = agent(question="How big?")
    assert found.answer == "1.7 litres" and "1.7 litres" in found.trajectory["observation_0"].answer


def test_usage_is_tracked_by_model_for_texts_and_decisions(own_shop, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with serve(Script(), obliging) as provider:
        program = program_at(provider.url, own_shop / "goods")
        with dspy.context(track_usage=True):
            answer = program(ask_about(1))
    assert answer.get_lm_usage()["openai/stand-in"]["prompt_tokens"] == answer.usage.tokens_in > 0


def test_dspys_language_model_writes_where_the_project_names_none_and_the_trace_says_so(shop, own_shop):
    rag, lm = open_program(shop), ScriptedModels("scripted/lm", answer=HELD).lm()
    with dspy.context(lm=lm):
        answer = rag(QUESTION)
        assert rag.get_lm() is lm
    assert answer.text == HELD and "scripted/lm writes, as DSPy is configured" in answer.trace.path
    assert rag.get_lm().model == rag.get_lm("decide").model == "local/reader"
    named = open_program(add_toml(own_shop, '[models]\nwrite = "local/reader"'))
    with dspy.context(lm=lm):
        assert named.get_lm().model == "local/reader" and named(QUESTION).text != answer.text


HELD = "It holds 1.7 litres [1]."


def test_set_lm_gives_a_model_to_a_role_and_no_saved_state_holds_it(rag):
    copied, models = rag.deepcopy(), ScriptedModels("scripted/lm", answer=HELD, supported=0.9, responsive=0.9)
    copied.policy.turn(check=2)
    copied.set_lm(models.lm())
    copied.set_lm(models, role="judge")
    answer = copied(QUESTION)
    by = {step.name: step.model for step in answer.trace.steps}
    assert (answer.text, by["generator.answer"], by["grounder.support"]) == (HELD, "scripted/lm", "scripted/lm")
    assert by["classifier.route"] == "local/reader" == rag.get_lm("judge").model
    copied.policy.turn(check=0)
    assert copied.dump_state() == rag.dump_state()
    assert all(part.get("lm") is None for part in copied.dump_state().values())


class Seen(BaseCallback):
    """Every module that was called, with its outputs."""

    def __init__(self):
        self.open, self.calls = {}, []

    def on_module_start(self, call_id, instance, inputs):
        self.open[call_id] = (instance, inputs)

    def on_module_end(self, call_id, outputs, exception=None):
        self.calls.append((*self.open.pop(call_id), outputs))


@pytest.mark.parametrize("ask", [lambda rag: rag(QUESTION), lambda rag: asyncio.run(rag.aask(QUESTION))])
def test_callbacks_see_every_module_decision_and_search_once_with_the_real_values(shop, ask):
    rag, seen = open_program(shop), Seen()
    unwatched = rag(QUESTION)
    rag.requests = type(rag.requests)()  # as of a program that was never asked
    with dspy.context(callbacks=[seen]):
        answer = ask(rag)
    assert answer.text == unwatched.text and answer.trace.path == unwatched.trace.path
    names = {id(predictor): name for name, predictor in rag.named_predictors()} | {id(rag): "rag"}
    told = [(names.get(id(one), "search"), outputs) for one, _, outputs in seen.calls]
    assert Counter(name for name, _ in told) == Counter(["rag", *(step.name for step in answer.trace.steps)])
    decided = [(name, n, d) for name, out in told if "." in name for n, d in out.items() if hasattr(d, "probability")]
    shown = [(name, n, d.probability) for name, n, d in decided]
    steps = [(step.name, name, p) for step in answer.trace.steps for name, p in step.scores.items()]
    assert sorted(shown) == sorted(steps)
    assert {"question": QUESTION} in [inputs["kwargs"] for one, inputs, _ in seen.calls if one is rag]
    (found,) = [out for name, out in told if name == "search"]
    assert set(answer.found) <= {passage.id for passage in found}


@pytest.mark.parametrize("is_async", [False, True])
async def test_streamify_streams_the_answer_with_its_final_citation_numbers_and_ends(is_async):
    program = Scripted(replies={"answer": "Text 1 [2]. Text 0 [1]. Text 1 [2]."}).rag
    stream = dspy.streamify(program, is_async_program=is_async)
    *pieces, answer = [event async for event in stream(question="How big is it?")]
    words = [piece.chunk for piece in pieces if isinstance(piece, dspy.streaming.StreamResponse)]
    assert len(words) > 3 and "".join(words).strip() == answer.text == "Text 1 [1]. Text 0 [2]. Text 1 [1]."


async def test_streamify_honours_listeners_and_status_messages(rag):
    class Said(dspy.streaming.StatusMessageProvider):
        def module_start_status_message(self, instance, inputs):
            return type(instance).__name__

    listener = dspy.streaming.StreamListener("answer", predict=rag.generator.answer, predict_name="writer")
    heard = dspy.streamify(rag, stream_listeners=[listener], status_message_provider=Said())
    events = [event async for event in heard(question=QUESTION)]
    said = [event.message for event in events if isinstance(event, dspy.streaming.StatusMessage)]
    assert {"AgenticRAG", "Search", "Predict"} <= set(said) and len(said) > 10
    assert [e.predict_name for e in events if isinstance(e, dspy.streaming.StreamResponse)] == ["writer"]
    assert isinstance(events[-1], Answer)
    deaf = dspy.streamify(rag, stream_listeners=[dspy.streaming.StreamListener("query")])
    assert [type(event) async for event in deaf(question=QUESTION)] == [Answer]


async def test_streamify_says_in_a_status_message_that_a_draft_is_withdrawn():
    program = Scripted(replies={"answer": "Text 1 [2]. Text 0 [1].", "supported": 0.1}, check=2).rag
    events = [event async for event in dspy.streamify(program, is_async_program=True)(question="How big is it?")]
    words, status = dspy.streaming.StreamResponse, dspy.streaming.StatusMessage
    kinds = [kind for kind, _ in itertools.groupby(map(type, events))]
    assert kinds == [words, status, words, Answer]  # written, and an abstention


def test_a_whole_program_is_saved_and_loaded_and_its_state_alone_too(own_shop, tmp_path):
    rag = open_program(own_shop)
    rag.policy.turn(k=3)
    rag.judge.sufficiency.fields["sufficient"] = {"threshold": 0.2}
    rag.generator.answer.demos = [dspy.Example(question="q", answer="a")]
    rag.save(tmp_path / "whole", save_program=True)
    loaded = dspy.load(str(tmp_path / "whole"), allow_pickle=True)
    assert loaded.dump_state() == rag.dump_state() and loaded(QUESTION).text == rag(QUESTION).text
    rag.save(tmp_path / "state.json")
    other = open_program(own_shop)
    other.load(tmp_path / "state.json")
    assert other.dump_state() == rag.dump_state() and other.view().tuning.k == 3


def save_whole(program, folder):
    program.save(folder / "whole", save_program=True)
    return dspy.load(str(folder / "whole"), allow_pickle=True)


@pytest.mark.parametrize(
    "copied",
    [lambda rag, _: copy.copy(rag), lambda rag, _: rag.deepcopy(), lambda rag, _: rag.readable_by("board"), save_whole,
     lambda rag, folder: save_whole(rag.readable_by("board"), folder)],
)  # fmt: skip
def test_a_copy_of_a_version_however_it_is_made_answers_as_the_version_does(compiled, tmp_path, copied):
    rag = load("shop@v2", artifacts=compiled / "artifacts", point="quality")
    rag.policy.turn(k=3)
    twin = copied(rag, tmp_path)
    shown = [[(one.text, one.confidence, one.reviewed, one.version) for one in map(of, LABELLED)] for of in (rag, twin)]
    assert shown[0] == shown[1] and any(reviewed for _, _, reviewed, _ in shown[0])
    assert twin.dump_state() == rag.dump_state() and twin.risk == rag.risk


def test_reanchor_fits_thresholds_as_its_documentation_says(own_shop, examples):
    from dspy.experimental import ReAnchor

    rag = open_program(own_shop)
    rag.policy.turn(**{"judge": 0, "ground": 0, "max_rounds": 1, "decompose": 0})
    fitted = ReAnchor(states_fact, num_threads=1).compile(rag, trainset=examples)
    assert states_fact(examples[0], fitted(QUESTION))
    assert rag.classifier.route.fields == {}


LAZY = """
import dspy
with dspy.context({context}):
    from ragc.models.language.adapter import is_traced
    assert is_traced() is {inside}
    with dspy.context(lm=None):
        assert is_traced() is {inside}
assert not is_traced()
with dspy.context(trace=[]):
    assert is_traced()
"""


@pytest.mark.parametrize(("context", "inside"), [("trace=[]", True), ("lm=None", False), ("", False)])
def test_whether_a_trace_is_collected_is_told_by_the_moment_not_by_where_ragc_was_first_imported(context, inside):
    subprocess.run([sys.executable, "-c", LAZY.format(context=context, inside=inside)], check=True)
