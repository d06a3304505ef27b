"""Anybody's DSPy program: the programs of docs/dspy.md, compiled, sealed, loaded and compared from the command line."""

import asyncio
import itertools
import json
import linecache
import logging
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import dspy
import hypothesis
import pytest
from dspy.experimental import Choice
from dspy.lm15 import Request, Response, TextPart
from hypothesis import strategies as st

from ragc import Experiment, load
from ragc.errors import BudgetError, DataError, ExperimentError, IntegrityError, ModelError, RagcError, SettingsError
from ragc.loop.policy import Knob, apply_setting
from ragc.optimize import compile_program, seal
from ragc.optimize.abtest.online import start_experiment
from ragc.optimize.cli.main import main
from ragc.optimize.compiler.record import Record
from ragc.optimize.compiler.runs.module_runs import ModuleRuns
from ragc.optimize.compiler.tasks.examples import read_examples
from ragc.optimize.registry.aliases import promote_version
from tests.support.prompts import TextDecider, reply_with

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python (\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
WRITTEN = {
    "billing": "The invoice of {} is wrong|I was charged twice in {}|How do I pay the bill of {}|Send the receipt of {}",
    "technical": "The app crashes since {}|I cannot log in after {}|The export of {} shows an error|Sync fails since {}",
    "delivery": "My parcel of {} has not come|The courier lost the box of {}|When is {} shipped|The package of {} is wet",
}
SPLITS = ("train", "test", "train", "dev", "train")


def write_tickets(path, field="ticket"):
    rows = [
        {field: text.format(month) + end, "team": team, "urgent": bool(end.strip(".")), "split": SPLITS[(i + j) % 5]}
        for team, texts in WRITTEN.items()
        for i, text in enumerate(texts.split("|"))
        for j, month in enumerate(("March", "April", "May", "June", "July"))
        for end in [".", ". It is urgent, answer today."][(i + j) % 2 : (i + j) % 2 + 1]
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A folder with the programs of the page, `triage` and `intake` compiled in it."""
    folder = tmp_path_factory.mktemp("programs")
    for name, block in BLOCK.findall((ROOT / "docs" / "dspy.md").read_text()):
        (folder / name).write_text(block)
    write_tickets(folder / "tickets.jsonl")
    write_tickets(folder / "letters.jsonl", field="letter")
    with pytest.MonkeyPatch.context() as patch:
        enter(folder, patch)
        for name, data in (("triage", "tickets"), ("intake", "letters")):
            assert run("compile", f"{name}:make", *task(name, data), "--name", name, "--trials", "4") in (0, 3)
    return folder


@pytest.fixture
def desk(compiled, tmp_path, monkeypatch):
    """A copy of the folder, entered."""
    shutil.copytree(compiled, tmp_path / "desk")
    return enter(tmp_path / "desk", monkeypatch)


def enter(folder, patch):
    patch.chdir(folder)
    patch.syspath_prepend(str(folder))
    patch.setenv("RAGC_ARTIFACTS", str(folder / "artifacts"))
    for name in ("triage", "intake"):
        patch.delitem(sys.modules, name, raising=False)
    return folder


def task(name, data, option="--data"):
    return option, f"{data}.jsonl", "--metric", f"{name}:metric"


def run(*arguments):
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as end:
        patch.setattr(sys, "argv", ["ragc", *map(str, arguments)])
        main()
    return end.value.code


def ask(capsys, *arguments):
    capsys.readouterr()
    code = run(*arguments, "--json")
    return code, json.loads(capsys.readouterr().out)


def read_module(name):
    return __import__(name)


@pytest.mark.parametrize(("name", "data"), [("triage", "tickets"), ("intake", "letters")])
def test_a_strangers_classifier_learns_from_its_labels_with_no_key_and_answers_in_a_new_process_as_it_was_scored(
    desk, capsys, name, data
):
    code, found = ask(capsys, "eval", f"{name}@v2", "--program", f"{name}:make", *task(name, data, "--questions"))
    before = ask(capsys, "ls", name)[1][0]["metrics"]["utility"]["value"]
    assert code == 0 and found["metrics"]["utility"]["value"] > before + 0.1
    assert found["metrics"]["model_calls"]["value"] == 0
    script = (
        f"import json; from ragc import load; from {name} import make\n"
        f"rows = [json.loads(line) for line in open('{data}.jsonl')]; program = load('{name}@v2', make)\n"
        "key = next(iter(rows[0]))\n"
        "print(json.dumps({r[key]: dict(program(**{key: r[key]})) for r in rows if r['split'] == 'test'}))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(desk)])}
    told = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    answers = json.loads(told.stdout)
    (folder,) = (desk / "artifacts" / name / "versions").glob("v2-*")
    scored = [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]
    assert len(scored) == len(answers) > 8
    for row in scored:
        assert answers[next(iter(json.loads(row["question"]).values()))] == json.loads(row["answer"])


def test_the_registry_and_the_ab_test_take_any_program(desk, capsys):
    (shown,) = ask(capsys, "diff", "triage@v1", "triage@v2")[1]["demonstrations"].values()
    assert shown["came"]
    assert ask(capsys, "compare", "triage@v1", "triage@v2")[1]["difference"] > 0
    again = ("--program", "triage:make", *task("triage", "tickets"))
    assert ask(capsys, "compare", "triage@v1", "triage@v2", *again)[1]["n"] == 60
    assert ask(capsys, "verify", "triage@v2", "--program", "triage:make")[1][0]["ok"]
    assert run("promote", "triage@v1", "--to", "production") == run("promote", "triage@v2", "--to", "production") == 0
    assert load("triage@production", read_module("triage").make)(ticket="The courier lost it").team == "delivery"
    assert ask(capsys, "rollback", "triage")[1]["to"].startswith("v1-")


def test_an_alias_of_a_program_of_ones_own_is_followed_with_the_inputs_it_has(desk):
    make = read_module("triage").make
    assert run("promote", "triage@v1", "--to", "production") == 0
    triage = load("triage@production", make, follow=True)
    before = triage.current
    asked = "The courier lost it"
    assert triage(ticket=asked).team == load("triage@v1", make)(ticket=asked).team and triage.current is before
    assert run("promote", "triage@v2", "--to", "production") == 0
    assert asyncio.run(triage.acall(ticket=asked)).team == "delivery" == triage(ticket=asked).team
    assert triage.current is not before
    with pytest.raises(SettingsError, match="Give the function"):
        load("triage@production", follow=True)
    intake = load("intake@latest", read_module("intake").make, follow=True)  # which has no aforward
    assert asyncio.run(intake.aask(letter=asked)).team == intake(letter=asked).team


def test_versions_of_a_program_of_ones_own_are_put_to_a_live_test(desk, capsys, monkeypatch):
    monkeypatch.setenv("RAGC_UNIT_KEY", "a secret of the tests, long enough")
    arms = ("A=triage@v1", "B=triage@v2", "--primary", "right", "--max-units", "500")
    assert run("experiment", "start", "exp-triage", *arms) == 0
    with pytest.raises(SettingsError, match="Give the function"):
        Experiment.open("exp-triage")
    make = read_module("triage").make
    rows = [json.loads(line) for line in Path("tickets.jsonl").read_text().splitlines()]
    for given in (make, {"A": make, "B": make}):
        exp = Experiment.open("exp-triage", given)
        for n, row in enumerate(rows):
            with exp.assign(unit=f"user-{n}") as arm:
                said = arm.program(ticket=row["ticket"])
                if n % 2:
                    exp.record(said, {"right": said.team == row["team"]})
            if n % 2 == 0:
                exp.record(arm.request_id, {"right": said.team == row["team"]})
    for unknown in ("no-such-request", said):
        with pytest.raises(ExperimentError, match="has logged no request"):
            exp.record(unknown, {"right": True})
    found = ask(capsys, "experiment", "report", "exp-triage")[1]
    assert found["units"] == len(rows) == sum(arm["measured"] for arm in found["arms"])
    assert found["accounting"]["unmatched"] == 0 and set(found["measures"]) >= {"latency_s", "error", "right"}
    assert found["arms"][1]["mean"] > found["arms"][0]["mean"] + 0.1


def test_an_arm_is_answered_by_nothing_but_its_version(desk, monkeypatch):
    monkeypatch.setenv("RAGC_UNIT_KEY", "a secret of the tests, long enough")
    make = read_module("triage").make
    start_experiment("exp-triage", {"A": "triage@v1", "B": "triage@v2"}, primary="right", max_units=500)
    promote_version("triage@v1", "production")
    first, second = (load(f"triage@v{number}", make) for number in (1, 2))
    followed = load("triage@production", make, follow=True)
    for wrong in ({"A": second}, {"A": second, "B": first}, {"A": first, "B": make()}, {"A": followed}):
        with pytest.raises(ExperimentError, match=r"given for arm . is not triage@v.*load\("):
            Experiment.open("exp-triage", make, programs=wrong)
    assert Experiment.open("exp-triage", make, programs={"A": first.deepcopy()}).programs["A"] is not first
    Experiment.open("exp-triage", programs={"A": first, "B": second})


def test_what_another_optimizer_learned_becomes_a_version(desk, capsys):
    own = *task("triage", "tickets"), "--name", "triage"
    capsys.readouterr()
    exec((desk / "learn.py").read_text(), {})
    assert capsys.readouterr().out.split() == ["triage@v3"]
    read_module("triage").make().save(desk / "state.json")
    assert ask(capsys, "seal", "triage:make", "state.json", *own)[1] == {"version": "triage@v4"}
    code, done = ask(capsys, "compile", "triage:make", *own, "--optimizer", "reanchor", "--from", "triage@v3")
    assert (code in (0, 3), done["version"], done["optimizer"]) == (True, "triage@v5", "reanchor")
    learned = load("triage@v3", read_module("triage").make)
    assert len(learned.demos) == 24
    assert seal(learned, name="triage", data="tickets.jsonl", metric=read_module("triage").metric) == "triage@v6"
    scores = [one["metrics"]["utility"]["value"] for one in ask(capsys, "ls", "triage")[1]]
    assert scores[5] == scores[2] > scores[3]


def test_a_sealed_folder_has_nothing_imported(desk, monkeypatch):
    def refuse(name, *rest, real=__import__, **more):
        assert name != "triage"
        return real(name, *rest, **more)

    monkeypatch.setattr("builtins.__import__", refuse)
    with pytest.raises(SettingsError, match="Give the function"):
        load("triage@v2")


def test_a_program_of_another_structure_is_refused_and_changed_code_is_told(desk, caplog):
    with pytest.raises(IntegrityError, match="missing here"):
        load("triage@v2", lambda: dspy.Predict("ticket -> team: bool"))
    with (desk / "intake.py").open("a") as file:
        file.write("# another line\n")
    with caplog.at_level(logging.WARNING):
        load("intake@v2", read_module("intake").make)
    assert "changed since" in caplog.text


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ("def make(a): return dspy.Predict(Triage)", "without arguments"),
        ("def make(): return 7", "not a dspy.Module"),
        ("def make(): raise ValueError('no')", "raised ValueError"),
        ("class Later(dspy.Module):\n async def aforward(self, ticket): pass\nmake = Later", "no forward"),
        ("def make(): return dspy.Predict('ticket -> team')", "no language model"),
        ("def make(): return dspy.Predict('ticket -> team: bool')", "no description"),
        ("def metric(example, prediction, trace=None): return prediction.colour", "metric raised AttributeError"),
        ("def metric(example, prediction, trace=None): return 'good'", "no number"),
        ("def metric(example, prediction, trace=None): return 1 / (example.split != 'test')", "No question of test"),
        ("import nowhere_to_be_found", "no module nowhere_to_be_found"),
        ("make = 3", "not a function"),
        ("make = dspy.Predict(Triage)", "triage:make is a program, not a function that makes one."),
    ],
)
def test_what_is_wrong_with_a_program_is_said_in_a_sentence(desk, capsys, broken, told):
    (desk / "triage.py").write_text((desk / "triage.py").read_text() + f"\n{broken}\n")
    capsys.readouterr()
    assert run("compile", "triage:make", *task("triage", "tickets"), "--name", "wrong", "--json") == 2
    error = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert told in error["what"]
    assert error["mend"]


def test_labels_are_tags_where_they_have_few_values_or_are_named(desk):
    make = lambda: dspy.Predict("ticket -> team: str, customer: str, note: str")  # noqa: E731
    rows = [
        {
            "ticket": f"t{n}",
            "team": "ab"[n % 2],
            "customer": f"C-{n}",
            "note": f"n{n}",
            "tags": ["vip", "note"][: n % 3],
        }
        for n in range(12)
    ]
    Path("tagged.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_examples(Path("tagged.jsonl"), make())
    assert [one.tags for one in found[:3]] == [("team=a",), ("team=b", "vip"), ("team=a", "note=n2", "vip")]
    Path("tagged.jsonl").write_text("".join(json.dumps({**row, "tags": "vip"}) + "\n" for row in rows))
    with pytest.raises(DataError, match="line 1: tags is no list of texts"):
        read_examples(Path("tagged.jsonl"), make())


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (['{"team": "billing"}'] * 12, "has no ticket"),
        (["{"] * 12, "is not JSON"),
        (['{"ticket": "a", "team": "billing"}'] * 3, "too few"),
        (['{"id": "a", "ticket": "a", "team": "billing"}'] * 12, "is there twice"),
        (['{"ticket": "a", "team": "billing", "split": "later"}'] * 12, "is no split"),
        (['{"ticket": "a", "team": "biling"}'] * 12, "line 1: the team 'biling' is none of its options"),
    ],
)
def test_what_is_wrong_with_examples_is_said_in_a_sentence(desk, lines, told):
    (desk / "few.jsonl").write_text("\n".join(lines))
    triage = read_module("triage")
    with pytest.raises(DataError, match=told):
        compile_program(triage.make, "few.jsonl", triage.metric, name="few")


@pytest.mark.parametrize("changed", ["def other(example, prediction, trace=None):", "    return 2.0 * (", ""])
def test_versions_scored_by_different_metrics_are_compared_only_where_one_metric_asks_both_anew(desk, capsys, changed):
    text = (desk / "triage.py").read_text()
    named = "other" if changed.startswith("def") else "metric"
    line = (
        "def metric(example, prediction, trace=None):"
        if named == "other"
        else "    return prediction.team == example.team"
    )
    ended = changed + "prediction.team == example.team)" if changed.startswith(" ") else changed
    (desk / "triage.py").write_text(text.replace(line, ended) if changed else f"{text}\nMORE = 1\n")
    linecache.checkcache()
    sys.modules.pop("triage", None)
    own = ("--data", "tickets.jsonl", "--metric", f"triage:{named}")
    assert run("compile", "triage:make", *own, "--name", "triage", "--seed", "1") == 0
    last = f"triage@v{len(ask(capsys, 'ls', 'triage')[1])}"
    code = run("compare", "triage@v2", last)
    told = "scored by different metrics: triage@v2 by triage:metric"
    assert (code == 2 and told in capsys.readouterr().err) if changed else code in (0, 3)
    assert run("promote", last, "--to", "production", "--require", "no-worse") == (2 if changed else 0)
    assert ask(capsys, "compare", "triage@v2", last, "--program", "triage:make", *own)[1]["n"] == 60


@pytest.mark.parametrize("verb", [("ask", "triage@v2", "Where is it?"), ("serve", "triage@v2"), ("eval", "triage@v2")])
def test_a_verb_that_cannot_run_a_program_of_ones_own_says_what_can(desk, capsys, verb):
    assert run(*verb, "--json") == 2
    error = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert "program of your own code" in error["what"]
    assert 'load("triage@v2", make)' in error["mend"] and "eval, compare, verify --program" in error["mend"]


def test_options_that_lack_their_fellows_are_refused(desk):
    own = task("triage", "tickets")
    for wrong in (
        ("compile", "triage:make", "--name", "triage"), ("eval", "triage@v2", "--program", "triage:make"),
        ("compile", "triage:make", *own, "--name", "x", "--optimizer", "gepa"),
        ("compile", "triage:lost", *own, "--name", "x"), ("compile", "triage:make", *own, "--name", "No Name"),
    ):  # fmt: skip
        assert run(*wrong) == 2
    with pytest.raises(SettingsError, match="no optimizer 'gepaa'"):
        compile_program(None, "tickets.jsonl", read_module("triage").metric, name="x", optimizer="gepaa")
    with pytest.raises(ModelError, match="no language model"):
        compile_program(lambda: dspy.Predict("ticket -> team"), "tickets.jsonl", lambda e, p: 1, name="x")


class Polite(dspy.Module):
    """Takes what a field of an example may say, and says one word."""

    def __init__(self, decide):
        super().__init__()
        self.decide = decide

    def forward(self, ticket, greeting="", team=""):
        assert not team
        return f"{greeting}{self.decide(ticket=ticket).team}"


def test_a_program_that_takes_optional_inputs_and_returns_plain_text_is_compiled(desk):
    rows = [json.loads(line) for line in Path("tickets.jsonl").read_text().splitlines()]
    rows = [json.dumps(row | {"greeting": "Dear "} if n % 2 else row) + "\n" for n, row in enumerate(rows)]
    Path("greeted.jsonl").write_text("".join(rows))
    metric = lambda example, said: 100 if said == example.get("greeting", "") + example.team else -5  # noqa: E731
    make = lambda: Polite(read_module("triage").make())  # noqa: E731
    done = compile_program(make, "greeted.jsonl", metric, name="polite")
    worth = done.after.measure("utility")
    assert worth.ci[1] - worth.value == pytest.approx(worth.value - worth.ci[0]) and worth.ci[1] > 1, "without a bound"
    assert worth.value > done.before.measure("utility").value + 0.1
    assert {json.loads(grade.answer)["prediction"][:5] == "Dear " for grade in done.after.grades} == {True, False}


class Engine:
    """A language model that answers at random once it is shown no example, and is counted."""

    def __init__(self):
        self.calls = 0

    def __deepcopy__(self, memo):
        return self

    def complete(self, request: Request) -> Response:
        self.calls += 1
        texts = [part.text for message in request.messages for part in message.parts if isinstance(part, TextPart)]
        return reply_with(request, f"[[ ## reasoning ## ]]\nso\n\n[[ ## team ## ]]\n{self.decide(''.join(texts))}")

    def decide(self, text):
        shown = text.count("[[ ## ticket ## ]]")
        return "delivery" if shown > 2 and "parcel" in text.rpartition("[[ ## ticket ## ]]")[2] else "billing"


def make_writer(engine):
    def make():
        program = dspy.ChainOfThought("ticket -> team: str")
        program.set_lm(dspy.LM("scripted/model", engine=engine, cache=False))
        return program

    return make


def test_a_language_model_is_asked_once_for_each_content_and_never_past_a_cap(desk):
    engine, told = Engine(), set()
    metric = lambda example, prediction, trace=None: prediction.team == example.team  # noqa: E731
    wanted = [("My parcel {} is late.", "delivery"), ("The invoice {} is wrong.", "billing")]
    tickets = [{"ticket": words.format(n), "team": team} for n in range(40) for words, team in wanted]
    (desk / "many.jsonl").write_text("".join(json.dumps(ticket) + "\n" for ticket in tickets))
    options = {"data": "many.jsonl", "metric": metric, "name": "writer", "trials": 4}
    with pytest.raises(BudgetError, match="is not known"):
        compile_program(make_writer(engine), **options, max_usd=1.0)
    with pytest.raises(BudgetError, match="cap on calls"):
        compile_program(make_writer(engine), **options, max_calls=2)
    assert engine.calls <= 2
    done = compile_program(make_writer(engine), **options, watch=lambda live: told.add(live.worth))
    assert told == {"utility"}, "a program of one's own has no routes"
    assert done.after.measure("utility").value > done.before.measure("utility").value
    assert done.replayed
    assert engine.calls == done.calls, "what the refused one paid is booked, too"
    again = compile_program(make_writer(engine), **options)
    assert (again.calls, engine.calls) == (0, done.calls)
    shown = load("writer@v2", make_writer(engine)).predict.demos
    assert shown and all(demo["reasoning"] == "so" for demo in shown), "a label is shown with what a good run wrote"
    assert run("diff", "writer@v1", "writer@v2") == 0, "though neither has a knob or a threshold"


@pytest.mark.parametrize("answered", [0, 1, 30])
def test_a_model_that_dies_stops_the_compile_of_a_program_which_goes_on_when_it_is_back(desk, answered):
    class Mortal(Engine):
        def complete(self, request):
            if self.calls >= answered:
                raise ConnectionError("no server")
            return super().complete(request)

    tickets = [{"ticket": f"My parcel {n} is late.", "team": ("delivery", "billing")[n % 2]} for n in range(90)]
    (desk / "many.jsonl").write_text("".join(json.dumps(ticket) + "\n" for ticket in tickets))
    metric = lambda example, prediction, trace=None: prediction.team == example.team  # noqa: E731
    options = {"data": "many.jsonl", "metric": metric, "name": "mortal"}
    with pytest.raises(RagcError, match=r"no server.*Check the name, the key and that its server runs"):
        compile_program(make_writer(Mortal()), **options)
    assert not (desk / "artifacts" / "mortal" / "versions").exists()
    assert compile_program(make_writer(Engine()), **options).reused == answered


class Numbered(Engine):
    """Replies by how often it was asked."""

    def decide(self, text):
        return self.calls


class Best(dspy.Module):
    """Takes the second of three replies to the same words."""

    def __init__(self):
        super().__init__()
        reward = lambda inputs, said: float(said.team == "2")  # noqa: E731
        self.best = dspy.BestOfN(dspy.Predict("ticket -> team: str"), N=3, reward_fn=reward, threshold=1.0)

    def forward(self, ticket):
        return self.best(ticket=ticket)


def test_replies_to_the_same_words_are_recorded_one_by_one_and_for_another_process(tmp_path):
    examples = {"a": dspy.Example(ticket="a").with_inputs("ticket")}
    for wanted in (2, 0):
        engine, program = Numbered(), Best()
        program.set_lm(dspy.LM("scripted/model", engine=engine, cache=False, temperature=1.0))
        (answer,) = ModuleRuns(program, examples, Record(tmp_path / "record.sqlite")).answer_all(["a"])
        assert (answer.prediction.team, engine.calls) == ("2", wanted)


def test_a_compile_that_was_cut_short_goes_on_and_the_same_one_given_again_is_the_version_that_it_sealed(desk):
    triage = read_module("triage")
    options = {"data": "tickets.jsonl", "metric": triage.metric, "name": "again"}

    def stop(live):
        if live.stage == "testing":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_program(triage.make, **options, watch=stop)
    done = compile_program(triage.make, **options)
    assert done.reference == "again@v2"
    assert compile_program(triage.make, **options).reference == "again@v2"


def test_the_examples_on_which_a_program_raises_are_told_with_what_it_raised(desk):
    triage = read_module("triage")

    class Absent(dspy.Module):
        def __init__(self):
            super().__init__()
            self.inner = triage.make()

        def forward(self, ticket):
            if "June" in ticket:
                raise ValueError("nobody is there")
            return self.inner(ticket=ticket)

    done = compile_program(Absent, data="tickets.jsonl", metric=triage.metric, name="absent")
    tested = {grade.id for grade in done.after.grades if "June" in grade.question}
    assert tested and {done.broken[id_] for id_ in tested} == {"ValueError: nobody is there"}


class Doubting(dspy.Module):
    """Answers by one decision and a knob, and counts its runs."""

    def __init__(self, luck=None):
        super().__init__()
        self.decide = dspy.Predict("text -> sure: bool")
        self.patience = Knob(1, 0, 2, meaning="how long it waits")
        self.runs, self.luck = [], luck

    def forward(self, text):
        self.runs.append(text)
        said = self.decide(text=text).sure
        return dspy.Prediction(said=said, waited=self.patience.value, luck=self.luck and len(self.runs))


@pytest.mark.parametrize("luck", [None, True])
def test_a_threshold_is_tried_by_arithmetic_where_a_program_does_the_same_twice(luck):
    examples = {text: dspy.Example(text=text).with_inputs("text") for text in ("a", "aaaa", "aaaaaaaa")}
    program = Doubting(luck)
    program.decide.signature = program.decide.signature.with_updated_fields("sure", desc="whether it is sure")
    program.decide.lm = TextDecider(lambda text: {"noul": len(text) / 10})
    replay = ModuleRuns(program, examples)
    said = {}
    for threshold in (0.5, 0.3, 0.9, 0.55, 0.35, 0.85):
        apply_setting(program, {"decide:sure": threshold})
        said[threshold] = [answer.prediction.said for answer in replay.answer_all(list(examples))]
    assert said == {t: [p >= t for p in (0.1, 0.4, 0.8)] for t in said}
    assert replay.replays is (luck is None)
    assert luck or len(program.runs) == 3 + 3 + 2, "three are checked twice, and two fall otherwise"
    apply_setting(program, {"patience": 2})
    assert [answer.prediction.waited for answer in replay.answer_all(list(examples))] == [2, 2, 2]


class Said:
    """What a program says, as an object without a text of its own."""

    def __init__(self, said):
        self.said = said


class AtOnce(dspy.Module):
    """Asks for two decisions at once, which end in any order, and for a third where both fall alike."""

    def __init__(self):
        super().__init__()
        self.runs, self.ends = [], itertools.cycle([(0.0, 0.02), (0.02, 0.0)])
        self.first, self.second, self.third = (make_doubting() for _ in range(3))

    def forward(self, text):
        self.runs.append(text)
        waits = dict(zip("ab", next(self.ends), strict=True))

        def ask(name, decide):
            time.sleep(waits[name])
            return decide(text=text).sure

        pairs = [(ask, {"name": "a", "decide": self.first}), (ask, {"name": "b", "decide": self.second})]
        one, other = dspy.Parallel(num_threads=2, disable_progress_bar=True)(pairs)
        return Said((one, other, self.third(text=text).sure if one == other else None))


def make_doubting(given="text"):
    decide = dspy.Predict(f"{given} -> sure: bool")
    decide.signature = decide.signature.with_updated_fields("sure", desc="whether it is sure")
    decide.lm = TextDecider(lambda text: {"noul": len(text) / 10})
    return decide


def test_a_program_that_asks_at_once_and_says_an_object_does_the_same_twice():
    examples = {text: dspy.Example(text=text).with_inputs("text") for text in ("a", "aaaa", "aaaaaaaa")}
    program = AtOnce()
    replay = ModuleRuns(program, examples)
    for first, second, third in [(0.5, 0.5, 0.5), (0.3, 0.5, 0.5), (0.3, 0.3, 0.5), (0.3, 0.3, 0.3), (0.4, 0.4, 0.4)]:
        apply_setting(program, {"first:sure": first, "second:sure": second, "third:sure": third})
        for text, answer in zip(examples, replay.answer_all(list(examples)), strict=True):
            one, other, last = (len(text) / 10 >= at for at in (first, second, third))
            assert answer.prediction.said == (one, other, last if one == other else None)
    assert replay.replays
    assert len(program.runs) == 3 + 3 + 3, "three are checked twice, and of one the decisions fall otherwise thrice"


class Chain(dspy.Module):
    """Decides step after step, each of what the steps before it came to."""

    def __init__(self, steps):
        super().__init__()
        self.steps, self.runs = [make_doubting("text" if n == 0 else "said") for n in range(steps)], 0

    def forward(self, text):
        self.runs += 1
        said = [self.steps[0](text=text).sure]
        for step in self.steps[1:]:
            said.append(step(said=text + "x" * sum(said)).sure)
        return dspy.Prediction(said=said)


@hypothesis.given(
    thresholds=st.integers(2, 4).flatmap(
        lambda n: st.lists(st.tuples(*[st.sampled_from((0.2, 0.3, 0.6))] * n), min_size=4)
    )
)
@hypothesis.settings(max_examples=20, deadline=None)
def test_a_program_whose_steps_are_given_what_earlier_ones_decided_is_replayed_as_it_runs_anew(thresholds):
    examples = {text: dspy.Example(text=text).with_inputs("text") for text in ("a", "aa", "aaaaa")}
    chain = Chain(len(thresholds[0]))
    anew, replay = chain.deepcopy(), ModuleRuns(chain, examples)
    for tried in thresholds:
        for program in (anew, chain):
            apply_setting(program, {f"steps[{n}]:sure": at for n, at in enumerate(tried)})
        said = [answer.prediction.said for answer in replay.answer_all(list(examples))]
        assert said == [anew(**one.inputs()).said for one in examples.values()]
    assert replay.replays
    assert chain.runs - 3 <= 3 * len(set(thresholds)), "three are checked twice"


def test_what_is_declared_as_a_choice_says_how_sure_the_embedded_decider_is(desk):
    kind = Choice[("billing", "invoices and money"), ("delivery", "parcels and couriers")]
    make = lambda: dspy.Predict(  # noqa: E731
        dspy.Signature("ticket -> team", "Say whose it is.").with_updated_fields("team", type_=kind, desc="whose it is")
    )
    rows = [
        row for row in map(json.loads, Path("tickets.jsonl").read_text().splitlines()) if row["team"] != "technical"
    ]
    Path("two.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ref = seal(make(), name="sure", data="two.jsonl", metric=lambda e, p, _: p.team.value == e.team, make=make)
    sure = load(ref, make)(ticket="The courier left my parcel in the rain.").team
    assert sure.value == "delivery" and sure.probabilities["delivery"] == sure.confidence > 0.5
