"""DSPy's optimizers on ragc's program, by the metric made from labels; a script is the language model."""

import json

import dspy
import pytest
from dspy.clients.provider import Provider
from dspy.lm15 import TextPart

from ragc import Answer, Outcome, load, open_program
from ragc.errors import DataError
from ragc.knowledge.project import Project
from ragc.optimize import graded, seal
from ragc.optimize.labelled.dataset import read_labelled
from tests.support.prompts import reply_with


class Proposer:
    """An engine that writes one instruction, whichever optimizer asks."""

    def complete(self, request):
        text = "[[ ## proposed_instruction ## ]]\nDo it with care.\n\n```\nDo it with care.\n```\n"
        text += "[[ ## proposed_prefix_for_output_field ## ]]\nSo:\n\n"
        text += "[[ ## reasoning ## ]]\nso\n\n[[ ## natural_language_rules ## ]]\nMind months.\n\n[[ ## completed ## ]]"
        return reply_with(request, text)


@pytest.fixture(scope="module")
def rag(shop):
    rag = open_program(shop)
    rag.set_lm(rag.get_lm())  # the embedded writer, whatever DSPy is configured with
    return rag


@pytest.fixture(scope="module")
def examples(shop):
    return [question.as_example() for question in read_labelled(Project.open(shop).labelled)]


def bootstrap(rag, examples, script):
    return dspy.BootstrapFewShot(graded, max_bootstrapped_demos=1, max_labeled_demos=1).compile(rag, trainset=examples)


def labelled(rag, examples, script):
    return dspy.LabeledFewShot(k=2).compile(rag, trainset=examples)


def mipro(rag, examples, script):
    few = {"num_candidates": 2, "auto": None, "max_bootstrapped_demos": 1, "max_labeled_demos": 1}
    optimizer = dspy.MIPROv2(graded, prompt_model=script, task_model=script, num_threads=1, seed=0, **few)
    plainly = {"program_aware_proposer": False, "data_aware_proposer": False, "minibatch": False}
    return optimizer.compile(rag, trainset=examples[:2], valset=examples[:2], num_trials=1, **plainly)


def gepa(rag, examples, script):
    optimizer = dspy.GEPA(metric=graded, max_metric_calls=12, reflection_lm=script, num_threads=1, seed=0)
    return optimizer.compile(rag, trainset=examples[:3], valset=examples[:3])


def random_search(program, examples, script):
    few = {"max_bootstrapped_demos": 1, "max_labeled_demos": 1, "num_candidate_programs": 1, "num_threads": 1}
    optimizer = dspy.BootstrapFewShotWithRandomSearch(graded, **few)
    return optimizer.compile(program, trainset=examples[:3], valset=examples[:2])


def copro(program, examples, script):
    optimizer = dspy.COPRO(prompt_model=script, metric=graded, breadth=2, depth=1)
    return optimizer.compile(program, trainset=examples[:2], eval_kwargs={"num_threads": 1, "display_progress": False})


def simba(program, examples, script):
    small = {"bsize": 2, "num_candidates": 1, "max_steps": 1, "max_demos": 1, "num_threads": 1}
    return dspy.SIMBA(metric=graded, prompt_model=script, **small).compile(program, trainset=examples[:4], seed=0)


def infer_rules(program, examples, script):
    few = {"max_bootstrapped_demos": 1, "max_labeled_demos": 1, "num_candidates": 1, "num_threads": 1}
    return dspy.InferRules(metric=graded, **few).compile(program, trainset=examples[:3], valset=examples[:2])


def better_together(program, examples, script):
    for predictor in program.predictors():  # it wants a model at each
        predictor.lm = predictor.lm or script
    both = {"p": dspy.LabeledFewShot(k=1), "q": dspy.BootstrapFewShot(graded, max_bootstrapped_demos=1)}
    steps = {"strategy": "p -> q", "num_threads": 1, "seed": 0}
    return dspy.BetterTogether(graded, **both).compile(program, trainset=examples[:4], valset=examples[:2], **steps)


OPTIMIZERS = [bootstrap, labelled, random_search, mipro, gepa, copro, simba, infer_rules, better_together]


@pytest.mark.parametrize("optimize", OPTIMIZERS)
def test_dspys_optimizers_work_on_the_program(rag, examples, optimize):
    script = dspy.LM("scripted/proposer", engine=Proposer(), cache=False)
    with dspy.context(lm=script):
        found = optimize(rag.deepcopy(), examples, script)
        assert found(question="How much water does the Merle hold?").outcome
    assert [name for name, _ in found.named_parameters()] == [name for name, _ in rag.named_parameters()]


class Teams:
    """An engine that writes an instruction to who asks for one, and a team to all others."""

    def complete(self, request):
        text = str([part.text for message in request.messages for part in message.parts if isinstance(part, TextPart)])
        if "[[ ## team ## ]]" in text:
            return reply_with(
                request, "[[ ## reasoning ## ]]\nso\n\n[[ ## team ## ]]\nbilling\n\n[[ ## completed ## ]]"
            )
        return Proposer().complete(request)


@pytest.mark.parametrize("optimize", OPTIMIZERS)
def test_what_dspys_optimizers_made_of_a_strangers_program_is_sealed_and_loads(tmp_path, monkeypatch, optimize):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(globals(), "graded", lambda example, prediction, *_: float(prediction.team == example.team))
    rows = [{"ticket": f"The invoice of month {n} is wrong.", "team": "billing"} for n in range(12)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    examples = [dspy.Example(**row).with_inputs("ticket") for row in rows]
    script = dspy.LM("scripted/teams", engine=Teams(), cache=False)
    make = lambda: dspy.ChainOfThought("ticket -> team")  # noqa: E731
    with dspy.context(lm=script):
        found = optimize(make(), examples, script)
        wanted = {"name": "teams", "data": tmp_path / "rows.jsonl", "metric": graded, "artifacts": "kept"}
        loaded = load(seal(found, make=make, **wanted), make, artifacts="kept")
        assert loaded(ticket="Which?").team == found(ticket="Which?").team == "billing"


class Tuner(Provider):
    """A provider whose tuned model is another one."""

    def __init__(self):
        super().__init__()
        self.finetunable = True

    @staticmethod
    def finetune(job, model, train_data, train_data_format, train_kwargs=None):
        return f"{model}-tuned"


def test_a_model_that_was_tuned_is_no_state_and_refused_at_the_seal_unless_the_code_names_it(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.chdir(tmp_path)
    rows = [{"ticket": f"The invoice of month {n} is wrong.", "team": "billing"} for n in range(12)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    metric = lambda example, prediction, *_: float(prediction.team == example.team)  # noqa: E731
    script = dspy.LM("scripted/teams", engine=Teams(), cache=False, provider=Tuner())

    def make(lm=script):
        program = dspy.ChainOfThought("ticket -> team")
        program.set_lm(lm)
        return program

    train = [dspy.Example(**row).with_inputs("ticket") for row in rows]
    wanted = {"name": "teams", "data": tmp_path / "rows.jsonl", "metric": metric, "artifacts": "kept"}
    with dspy.context(lm=script):
        tuned = dspy.BootstrapFinetune(metric=metric, num_threads=1).compile(make(), trainset=train[:4])
        assert tuned.predict.lm.model == "scripted/teams-tuned"
        with pytest.raises(DataError, match="predict is answered by scripted/teams-tuned, and what makes it gives it"):
            seal(tuned, make=make, **wanted)
        assert not (tmp_path / "kept" / "teams" / "versions").exists()
        again = lambda: make(tuned.predict.lm)  # noqa: E731
        ref = seal(tuned, make=again, **wanted)
        loaded = load(ref, again, artifacts="kept")
        assert loaded.predict.lm is tuned.predict.lm and loaded(ticket="Which?").team == "billing"
        assert "sealed with" not in caplog.text
        load(ref, make, artifacts="kept")
        assert "sealed with scripted/teams-tuned for predict, and here it is scripted/teams" in caplog.text


REFUND = dspy.Example(
    question="How many days?", outcome="answered", route="simple", sources=["billing"],
    evidence=["billing/a.md#x", "billing/a.md#y", "billing/a.md#z"], facts=["30 days", "to the card"], not_facts=["14 days"],
).with_inputs("question")  # fmt: skip
WRONG = Answer(
    text="Within 14 days. [1]", outcome=Outcome.ANSWERED, route="direct", sources=("product",),
    found=("billing/a.md#x", "billing/a.md#y"), retrieved=("billing/a.md#x",),
)  # fmt: skip


def test_feedback_says_in_words_what_the_labels_hold_against_an_answer():
    found = graded(REFUND, WRONG)
    assert found == found["score"] == 0.0
    for part in ("should be simple", "chosen: product; needed: billing", "no search found: billing/a.md#z",
                 "left out: billing/a.md#y", "lacks: 30 days, to the card", "must not: 14 days"):  # fmt: skip
        assert part in found.feedback
    right = Answer(text="30 days, to the card.", outcome=Outcome.ANSWERED)
    assert graded(dspy.Example(facts=["30 days"], question="?"), right) == 1.0
    assert "should have asked back" in graded(dspy.Example(outcome="clarify", question="?"), right).feedback


@pytest.mark.parametrize(
    ("predictor", "first"),
    [("classifier.route", "The route was"), ("decomposer.split", "Evidence that no search"), ("judge.relevance", "Evidence that was found"),
     ("generator.answer", "Facts that the answer lacks"), ("retriever.sql", "Evidence that no search")],
)  # fmt: skip
def test_feedback_for_a_predictor_begins_with_its_own_part(predictor, first):
    found = graded(REFUND, WRONG, [], predictor, [])
    assert found.feedback.startswith(first) and found == graded(REFUND, WRONG)


def test_while_demonstrations_are_bootstrapped_only_a_correct_answer_counts():
    partly = Answer(text="30 days.", outcome=Outcome.ANSWERED)
    assert graded(REFUND, partly) > 0 and not graded(REFUND, partly, trace=[])
