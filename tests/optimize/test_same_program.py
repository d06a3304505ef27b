"""A version is the program that was given: until something was compiled it sends what that sends, byte for byte."""

import asyncio
import json
import time
import types
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from enum import Enum, StrEnum
from typing import Literal

import dspy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from ragc import RagcError, load
from ragc.errors import DataError, SettingsError
from ragc.optimize import compile_program, seal
from ragc.serve.factory import adopt_predictors
from tests.support.fakes import HABITS, HabitualEngine, habitual_lm


class Team(Enum):
    BILLING = "billing"
    TECHNICAL = "technical"


class Level(StrEnum):
    LOW = "low"
    HIGH = "high"


class Reason(BaseModel):
    why: str
    level: Literal["low", "high"]


KINDS = [
    (Literal["billing", "technical"], "billing"), (Literal[1, 2, 3], 2), (Team, Team.TECHNICAL), (Level, Level.HIGH),
    (bool, True), (int, 3), (str, "so it is"), (Reason, Reason(why="so", level="low")), (list[str], ["a", "b"]),
    (list[Reason], [Reason(why="so", level="high")]), (Literal["a", "b"] | None, "a"), (list[Team], [Team.BILLING]),
    (dict[str, int], {"a": 1}), (dict[str, Reason], {"a": Reason(why="so", level="low")}),
]  # fmt: skip
names = st.sampled_from(["team", "vague", "follows_on", "base_billing", "is_urgent", "states", "answer", "route"])
described = st.sampled_from([None, "", "what it is", "one {brace}, ${dollar} and\ntwo lines"])
outputs = st.dictionaries(names, st.tuples(st.sampled_from(KINDS), described), min_size=1, max_size=3)
adapters = st.sampled_from([dspy.ChatAdapter, dspy.JSONAdapter])
modules = st.sampled_from([dspy.Predict, dspy.ChainOfThought])


class Twice(dspy.Module):
    """Asks one signature in two places, of which one has a demonstration."""

    def __init__(self, signature, demos):
        super().__init__()
        self.parts = {"first": dspy.Predict(signature), "second": dspy.ChainOfThought(signature)}
        self.parts["second"].predict.demos = demos

    def forward(self, ticket):
        self.parts["first"](ticket=ticket)
        return self.parts["second"](ticket=ticket)


def make_signature(found):
    fields = {"ticket": (str, dspy.InputField())}
    for name, ((kind, _), desc) in found.items():
        fields[name] = (kind, dspy.OutputField(**({} if desc is None else {"desc": desc})))
    return dspy.Signature(fields, "Say what a ticket is about.")


def write_examples(folder, count=12):
    rows = [{"ticket": f"ticket {n}", "split": "test" if n > count - 3 else "train"} for n in range(count)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "rows.jsonl"


def ask(program, engine):
    """Return what asking a program sends, and what it says or that it failed."""
    engine.prompts.clear()
    try:
        said = str(program(ticket="My parcel is lost."))
    except Exception as error:
        said = type(error).__name__
    return list(engine.prompts), said


def test_what_was_sealed_and_loaded_sends_byte_for_byte_what_the_given_program_sends(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = write_examples(tmp_path)

    @settings(max_examples=60, deadline=None)
    @given(outputs, adapters, st.sampled_from(HABITS), st.sampled_from(["predict", "thought", "twice"]))
    def holds(found, adapter, habit, kind):
        signature, values = make_signature(found), {name: value for name, ((_, value), _) in found.items()}
        demos = [dspy.Example(ticket="an older one", reasoning="so", **values)]
        make = {
            "predict": lambda: dspy.Predict(signature),
            "thought": lambda: dspy.ChainOfThought(signature),
            "twice": lambda: Twice(signature, demos),
        }[kind]
        lm, engine = habitual_lm(habit, {"reasoning": "because", **values})
        with dspy.context(lm=lm, adapter=adapter()):
            before = ask(make(), engine)
            try:
                ref = seal(make(), name="same", data=data, metric=lambda *_: 1.0, artifacts="kept")
            except RagcError as error:
                assert before[1].endswith("Error") and before[1] in str(error), error
                return
            assert ask(load(ref, make, artifacts="kept"), engine) == before

    holds()


class Ticket(dspy.Signature):
    """Say which team a ticket goes to."""

    ticket: str = dspy.InputField()
    team: Team = dspy.OutputField(desc="the team that can settle it")


TEXTS = {"billing": "The invoice of {} is wrong", "technical": "The app crashes since {}"}


def write_tickets(folder):
    """Write labelled tickets of two teams, in splits."""
    months = ("March", "April", "May", "June", "July", "August", "September", "October")
    rows = [
        {"ticket": text.format(month), "team": team, "split": ("train", "dev", "test", "train")[n % 4]}
        for team, text in TEXTS.items()
        for n, month in enumerate(months)
    ]
    (folder / "tickets.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "tickets.jsonl"


def is_right(example, prediction, trace=None):
    return getattr(prediction.team, "value", prediction.team) == example.team


class Learner(HabitualEngine):
    """Says `technical` once it is shown an example, else `billing`."""

    def write(self, prompt):
        learned = prompt.count("assistant: ") > 0 and "crashes" in prompt.rpartition("user: ")[2]
        self.values["team"] = "technical" if learned else "billing"
        return super().write(prompt)


@pytest.mark.parametrize("habit", HABITS)
@pytest.mark.parametrize("kind", [Literal["billing", "technical"], Team])
def test_what_a_compile_measured_is_what_loads_and_nothing_is_asked_for_as_probabilities(
    tmp_path, monkeypatch, habit, kind
):
    monkeypatch.chdir(tmp_path)
    engine = Learner(habit, {"reasoning": "so", "team": "billing"})
    make = lambda: dspy.ChainOfThought(Ticket.with_updated_fields("team", type_=kind))  # noqa: E731
    with dspy.context(lm=dspy.LM("scripted/learner", engine=engine, cache=False)):
        before = ask(make(), engine)
        done = compile_program(make, write_tickets(tmp_path), is_right, name="tickets", artifacts="kept", trials=8)
        assert not any("Evidence" in prompt for prompt in engine.prompts)
        assert done.after.measure("utility").value > done.before.measure("utility").value
        assert ask(load("tickets@v1", make, artifacts="kept"), engine) == before
        learned = load("tickets@v2", make, artifacts="kept")
        assert [is_right(dspy.Example(team=team), learned(ticket=text)) for team, text in TEXTS.items()] == [True] * 2


def test_probabilities_that_a_model_cannot_give_are_asked_for_once_and_then_never(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data, kept = write_tickets(tmp_path), {"artifacts": "kept"}

    def make():
        return dspy.ChainOfThought(Ticket.with_updated_fields("team", type_=Literal["billing", "technical"]))

    given = make()
    given.predict.fields["team"] = {"weights": {"technical": 2.0}}
    lm, engine = habitual_lm("text", {"reasoning": "so", "team": "billing"})
    able, asked = habitual_lm(
        "json", {"reasoning": "so", "team": {"probabilities": {"billing": 0.6, "technical": 0.4}, "confidence": 0.6}}
    )
    with dspy.context(lm=lm):
        learned = load(seal(given, name="fields", data=data, metric=is_right, **kept), make, **kept)
        plain = ask(make(), engine)
        first, *others = (ask(learned, engine) for _ in range(3))
        assert len(first[0]) == 3 and (first[0][2:], first[1]) == plain
        assert others == [plain, plain]
        trace = []
        with dspy.context(trace=trace):
            learned(ticket="one more")
        assert [one for one, *_ in trace] == [learned.predict]
    with dspy.context(lm=able, adapter=dspy.JSONAdapter()):
        assert learned(ticket="a").team == "technical"
        assert "Evidence" in asked.prompts[0]


class Slow(HabitualEngine):
    """Takes its time, so that requests overlap."""

    def complete(self, request):
        time.sleep(0.02)
        return super().complete(request)


class Awaited:
    def __init__(self, engine):
        self.engine = engine

    async def complete(self, request):
        return await asyncio.to_thread(self.engine.complete, request)


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("questions", [1, 2, 9])
def test_of_many_asked_at_once_one_finds_out_that_a_model_gives_no_probabilities(awaited, questions):
    program = dspy.ChainOfThought(Ticket.with_updated_fields("team", type_=Literal["billing", "technical"]))
    program.predict.fields["team"] = {"weights": {"technical": 2.0}}
    adopt_predictors(program, [])
    engine = Slow("text", {"reasoning": "so", "team": "billing"})
    lm = dspy.LM("scripted/slow", engine=engine, async_engine=Awaited(engine), cache=False)
    texts = [f"ticket {n}" for n in range(questions)]

    async def ask_all():
        return await asyncio.gather(*(program.acall(ticket=text) for text in texts))

    with dspy.context(lm=lm):
        if awaited:
            asyncio.run(ask_all())
        else:
            with ThreadPoolExecutor(questions) as threads:
                asked = [threads.submit(copy_context().run, program.deepcopy(), ticket=text) for text in texts]
            [one.result() for one in asked]
    assert sorted("Evidence" in prompt for prompt in engine.prompts) == [False] * questions + [True] * 2


def test_an_enum_is_decided_as_a_literal_is_and_its_member_is_returned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make = lambda: dspy.Predict(Ticket)  # noqa: E731
    data = write_tickets(tmp_path)
    done = compile_program(make, data, is_right, name="enum", artifacts="kept", trials=2)
    assert done.after.measure("utility").value == 1.0
    learned = load("enum@v2", make, artifacts="kept")
    assert learned(ticket="The app crashes again").team is Team.TECHNICAL
    assert asyncio.run(learned.acall(ticket="The invoice is wrong")).team is Team.BILLING
    streamed = list(dspy.streamify(learned, async_streaming=False)(ticket="The app crashes again"))
    assert streamed[-1].team is Team.TECHNICAL
    learned.save("whole", save_program=True)
    assert dspy.load("whole", allow_pickle=True)(ticket="The invoice is wrong").team is Team.BILLING
    data.write_text(data.read_text().replace('"billing"', '"biling"', 1))
    with pytest.raises(DataError, match="none of its options"):
        compile_program(make, data, is_right, name="enum", artifacts="kept")


class Desk(dspy.Module):
    """Predictors in a dict, by keys that DSPy may write alike."""

    def __init__(self, keys):
        super().__init__()
        self.parts = {key: dspy.Predict(Ticket) for key in keys}

    def forward(self, ticket):
        return next(part(ticket=ticket) for part in self.parts.values())


def test_two_predictors_of_one_name_are_refused_and_both_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wanted = {"data": write_tickets(tmp_path), "metric": is_right, "name": "twice", "artifacts": "kept"}
    for refused in (lambda: compile_program(lambda: Desk([0, "0"]), **wanted), lambda: seal(Desk([0, "0"]), **wanted)):
        with pytest.raises(SettingsError, match=r"parts\[0\] and parts\['0'\]"):
            refused()
    assert seal(Desk([0, "1"]), **wanted) == "twice@v1"


def nearest(program, train):
    embed = dspy.Embedder(lambda texts: np.array([[len(text), text.count("i")] for text in texts], float))
    return dspy.KNNFewShot(k=2, trainset=train, vectorizer=embed, metric=is_right).compile(program)


def replaced(program, train):
    program.forward = lambda ticket: dspy.Prediction(team="billing")
    return program


def bound(program, train):
    program.predict.forward = types.MethodType(lambda self, **inputs: dspy.Prediction(team="billing"), program.predict)
    return program


class Hinted(dspy.Module):
    """A program whose code reads an attribute that is no state."""

    def __init__(self):
        super().__init__()
        self.hint, self.predict = "", dspy.Predict("ticket -> team")

    def forward(self, ticket):
        return self.predict(ticket=self.hint + ticket)


def hint(program, train):
    program = Hinted()
    program.hint = "Mind: "
    return program


@pytest.mark.parametrize(
    ("change", "make"),
    [(nearest, None), (replaced, None), (bound, None), (hint, Hinted),
     (lambda program, train: dspy.Ensemble(reduce_fn=dspy.majority).compile([program, program.deepcopy()]), None)],
)  # fmt: skip
def test_what_is_no_state_is_refused_at_the_seal_and_taken_where_the_code_makes_it_anew(
    tmp_path, monkeypatch, change, make
):
    monkeypatch.chdir(tmp_path)
    lm, engine = habitual_lm("text", {"reasoning": "so", "team": "billing"})
    wanted = {"data": write_tickets(tmp_path), "metric": is_right, "name": "desk", "artifacts": "kept"}
    train = [dspy.Example(ticket=text, team=team).with_inputs("ticket") for team, text in TEXTS.items()] * 2

    def changed():
        return change(dspy.ChainOfThought("ticket -> team"), train)

    with dspy.context(lm=lm):
        with pytest.raises(DataError, match="state only"):
            seal(changed(), make=make, **wanted)
        assert not (tmp_path / "kept" / "desk" / "versions").exists()
        ref = seal(changed(), make=changed, **wanted)
        assert ask(load(ref, changed, artifacts="kept"), engine) == ask(changed(), engine)
