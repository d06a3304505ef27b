"""What a compile of anybody's program learns: thresholds by arithmetic, and what DSPy's own optimizers write."""

import json
import re
import sys
from pathlib import Path
from typing import Literal

import dspy
import numpy as np
import pytest
from dspy.experimental import Score
from dspy.lm15 import TextPart

from ragc.errors import BudgetError
from ragc.loop.policy import read_setting
from ragc.optimize import compile_program, seal
from ragc.optimize.cli.main import main
from ragc.optimize.compiler.runs.runner import Arm
from ragc.optimize.compiler.scoring import Scoring
from ragc.optimize.compiler.spending import Spending
from ragc.optimize.compiler.tasks.module import open_folder, open_module_task
from ragc.optimize.compiler.thresholds import fit_thresholds
from ragc.optimize.registry.aliases import promote_version
from ragc.serve.reference import find_versions, resolve
from tests.support.fakes import HabitualEngine
from tests.support.prompts import TextDecider, reply_with


def fit(make, rows, metric):
    """Return the setting before and after a fit on rows of evidence and label, and the score of each."""
    lines = [{"text": json.dumps(found), "said": label, "split": "train"} for found, label in rows]
    lines.append(lines[0] | {"split": "test"})
    Path("rows.jsonl").write_text("".join(json.dumps({**line, "id": str(n)}) + "\n" for n, line in enumerate(lines)))
    task = open_module_task(open_folder("fitted", None), make, "rows.jsonl", metric)
    with task.asking(Spending()):
        scoring = Scoring([Arm(task.run(task.base), task.parts["train"])], task.grade)
        before = read_setting(task.base)
        after = fit_thresholds(scoring, task.list_parameters(task.base), before, lambda done, of: None)
        return before, after, *(float(scoring(one).utility.mean()) for one in (before, after))


def make_decider(kind):
    def make():
        fields = {"text": (str, dspy.InputField()), "said": (kind, dspy.OutputField(desc="what it says"))}
        program = dspy.Predict(dspy.Signature(fields, "Say it."))
        program.lm = TextDecider(json.loads)
        return program

    return make


def test_a_threshold_falls_where_missing_costs_more_than_a_false_alarm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    rows = [({"noul": float(p)}, bool(draw.random() < p)) for p in draw.uniform(0.02, 0.98, 200).round(3)]
    cost = lambda example, told, trace=None: (told.said == example.said) * (5.0 if example.said else 1.0)  # noqa: E731
    before, after, worth, reached = fit(make_decider(bool), rows, cost)
    assert before["self:said"] == 0.5
    assert 0.08 < after["self:said"] < 0.3  # 1 / 6 is best for probabilities that are true
    assert reached > worth


def test_a_cut_moves_to_where_the_labels_change_level(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = np.linspace(0.02, 0.98, 60).tolist()
    rows = [({"probabilities": {"0": 1 - x, "1": x}, "confidence": 1.0}, x > 0.75) for x in places]
    rated = lambda example, told, trace=None: (told.said.level > 0) == (example.said > 0)  # noqa: E731
    before, after, worth, reached = fit(make_decider(Score["poor", "good"]), rows, rated)
    assert before["self:said>1"] == 0.5 and 0.7 < after["self:said>1"] < 0.8
    assert worth < 0.8 and reached > 0.97


def test_an_option_that_is_chosen_too_rarely_gets_more_weight_and_the_others_are_fitted_with_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw, rows = np.random.default_rng(1), []
    for _ in range(240):
        label, found = int(draw.integers(3)), draw.dirichlet((1.0, 1.0, 1.0))
        found[label] += 0.6
        found *= (4.0, 1.0, 0.3)  # the first is told too often, the last too rarely
        shares = dict(zip("abc", found / found.sum(), strict=True))
        rows.append(({"probabilities": shares, "confidence": 0.5}, "abc"[label]))
    right = lambda example, told, trace=None: told.said == example.said  # noqa: E731
    _, after, worth, reached = fit(make_decider(Literal["a", "b", "c"]), rows, right)
    assert 1 < after["self:said=b"] < after["self:said=c"] and reached > worth + 0.15


class Twice(dspy.Module):
    """Asks one decision of the text and again of the same text, so that no one value can be forced."""

    def __init__(self):
        super().__init__()
        self.decide = make_decider(bool)()

    def forward(self, text):
        first, second = self.decide(text=text).said, self.decide(text=text).said
        return dspy.Prediction(said=first and second)


def test_a_decision_that_is_asked_several_times_is_swept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [({"noul": float(p)}, bool(p > 0.75)) for p in np.linspace(0.02, 0.98, 60).round(3)]
    right = lambda example, told, trace=None: told.said == example.said  # noqa: E731
    _, after, worth, reached = fit(Twice, rows, right)
    assert after["decide:said"] == pytest.approx(0.02 + 0.7 * 0.96)  # of the places at which a threshold is swept
    assert reached > worth + 0.1


CAREFUL = "Say which team, with care."


class Writer:
    """An engine that knows the team when told to take care, and writes that instruction for whichever optimizer."""

    def __deepcopy__(self, memo):
        return self

    def complete(self, request):
        texts = [part.text for message in request.messages for part in message.parts if isinstance(part, TextPart)]
        said = "\n".join([str(request.system), *texts])
        if "new_instruction" in said:
            reply = json.dumps({"new_instruction": CAREFUL})
        elif "[[ ## team ## ]]" in said and "proposed_instruction" not in said:
            reply = f"[[ ## team ## ]]\n{'delivery' if CAREFUL in said and 'parcel' in texts[-1] else 'billing'}"
        else:
            written = ("observations", "summary", "program_description", "module_description", "proposed_instruction")
            reply = "\n\n".join(f"[[ ## {name} ## ]]\n{CAREFUL}" for name in written)
        return reply_with(request, reply)


def make_written():
    program = dspy.Predict("ticket -> team: str")
    program.set_lm(dspy.LM("scripted/writer", engine=Writer(), cache=False))
    return program


def write_rows(folder):
    what = {"billing": "My invoice", "delivery": "My parcel"}
    rows = [
        {"ticket": f"{what[team]} {n} is wrong.", "team": team, "split": ("train", "dev", "test")[n % 3]}
        for n in range(12)
        for team in what
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def compile_written(folder, optimizer, **caps):
    write_rows(folder)
    metric = lambda example, told, trace=None: told.team == example.team  # noqa: E731
    return compile_program(
        make_written, "rows.jsonl", metric, name="written", optimizer=optimizer, artifacts=folder / "kept", **caps
    )


@pytest.mark.parametrize("optimizer", ["gepa", "mipro"])
def test_an_optimizer_of_dspys_writes_through_the_programs_own_model(tmp_path, monkeypatch, optimizer):
    monkeypatch.chdir(tmp_path)
    done = compile_written(tmp_path, optimizer)
    assert [one.measure("utility").value for one in (done.before, done.after)] == [0.5, 1.0] and done.calls > 20


def test_gepa_that_the_cap_on_calls_stops_keeps_what_it_had_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = compile_written(tmp_path, "gepa", max_calls=80)
    assert (done.stopped_by, done.calls <= 80, done.after.measure("utility").value) == ("calls", True, 1.0)


def run_cli(*arguments):
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as end:
        patch.setattr(sys, "argv", ["ragc", *map(str, arguments)])
        main()
    return end.value.code


WRITTEN = """
from tests.optimize.test_program_learning import make_written as make


def metric(example, prediction, trace=None):
    return prediction.team == example.team
"""


@pytest.mark.parametrize(("optimizer", "enough", "few"), [("gepa", 90, 8), ("mipro", 130, 40), ("bootstrap", 30, 1)])
def test_a_cap_that_an_optimizer_meets_seals_the_best_so_far_or_says_what_it_wants(
    tmp_path, monkeypatch, capfd, optimizer, enough, few
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RAGC_ARTIFACTS", str(tmp_path / "kept"))
    (tmp_path / "written.py").write_text(WRITTEN)
    monkeypatch.delitem(sys.modules, "written", raising=False)
    write_rows(tmp_path)
    task = ("written:make", "--data", "rows.jsonl", "--metric", "written:metric", "--name", "written")
    assert run_cli("compile", *task, "--optimizer", optimizer, "--max-calls", few) == 2
    said = capfd.readouterr().err
    assert f"before {optimizer} had found anything" in said or "before the program as it is could be tried" in said
    command = re.search(r"higher cap: ragc (.*) --max-calls (\d+)", " ".join(said.split()))
    assert command and command[1].startswith("compile written:make --data=rows.jsonl") and int(command[2]) > few
    assert run_cli("compile", *task, "--optimizer", optimizer, "--max-calls", enough) == 0
    told = capfd.readouterr()
    assert "cap on calls was reached" in told.out or optimizer == "bootstrap"
    assert not any(mark in told.err for mark in ("it/s", "Average Metric", "==>", "Traceback", "Bootstrapped"))


MUTE = """
import dspy

from tests.optimize.test_program_learning import Writer
from tests.support.prompts import reply_with


class Mute(Writer):
    calls = 0

    def complete(self, request):
        Mute.calls += 1
        asked = request.messages[-1].parts[-1].text
        can = any(ticket in asked for ticket in ANSWERED)
        return super().complete(request) if can else reply_with(request, "I cannot say.")


def make():
    program = dspy.Predict("ticket -> team: str")
    program.set_lm(dspy.LM("scripted/mute", engine=Mute(), cache=False))
    return program


def metric(example, prediction, trace=None):
    return prediction.team == example.team
"""


@pytest.mark.parametrize("answered", [(), ("0 is wrong", "3 is wrong")])
def test_a_model_that_cannot_be_read_is_told_of_once_before_more_is_paid_for(tmp_path, monkeypatch, capfd, answered):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RAGC_ARTIFACTS", str(tmp_path / "kept"))
    (tmp_path / "mute.py").write_text(f"{MUTE}\nANSWERED = {answered}\n")
    monkeypatch.delitem(sys.modules, "mute", raising=False)
    write_rows(tmp_path)
    task = ("mute:make", "--data", "rows.jsonl", "--metric", "mute:metric", "--name", "mute")
    code, told = run_cli("compile", *task), capfd.readouterr().err
    (line,) = (line for line in told.splitlines() if "AdapterParseError: " in line)
    assert "I cannot say." in line and told.count("I cannot say.") == 1 + told.count("no instruction for self: ")
    assert len(told.splitlines()) < 12, "a line each"
    if answered:
        assert code == 0 and "of the 24 questions of train, dev, test failed: AdapterParseError, as e0000" in told
    else:
        calls = sys.modules["mute"].Mute.calls
        assert code == 2 and "The program failed on the example" in told and calls == 2, "by both adapters"


class Judge(HabitualEngine):
    """A model that gives probabilities where they are asked for, a little other ones for each ticket."""

    def write(self, prompt):
        if "Evidence" not in prompt:
            return json.dumps(self.values)
        share = 0.5 + len(prompt) % 7 / 20
        return json.dumps({"team": {"probabilities": {"billing": share, "delivery": 1 - share}, "confidence": 0.5}})


def test_a_cap_met_by_an_optimizer_whose_calls_nobody_knows_is_told_with_a_higher_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path)

    def make():
        kind = Literal["billing", "delivery"]
        program = dspy.Predict(
            dspy.Signature("ticket -> team").with_updated_fields("team", type_=kind, desc="whose it is")
        )
        program.set_lm(dspy.LM("scripted/judge", engine=Judge("json", {"team": "billing"}), cache=False))
        return program

    wanted = {
        "metric": lambda example, told, trace=None: told.team == example.team,
        "name": "judged",
        "optimizer": "reanchor",
    }
    with dspy.context(adapter=dspy.JSONAdapter()):
        with pytest.raises(
            BudgetError, match=r"before reanchor had found anything\. Give a higher cap: .* --max-calls 40$"
        ):
            compile_program(make, "rows.jsonl", **wanted, max_calls=20)
        assert compile_program(make, "rows.jsonl", **wanted, max_calls=900).optimizer == "reanchor"


@pytest.mark.parametrize("optimizer", ["ragc", "gepa", "bootstrap"])
def test_a_program_of_ones_own_is_compared_with_the_version_in_use_and_its_uncompiled_one_is_sealed_once(
    tmp_path, monkeypatch, caplog, optimizer
):
    monkeypatch.chdir(tmp_path)
    kept = tmp_path / "kept"
    assert compile_written(tmp_path, "gepa").parent == "written@v1"
    for used in ("written@v2", "written@v1"):
        done = compile_written(tmp_path, optimizer, seed=int(used[-1]))
        assert done.parent.startswith(f"{used}-") and "answers as written" not in done.explain()
        again = compile_written(tmp_path, optimizer, seed=int(used[-1]))
        assert (again.reference, again.parent, again.gain) == (done.reference, done.parent, done.gain)
        promote_version("written@v1", "production", root=kept)
    promote_version("written@v2", "production", root=kept)
    wanted = {"data": "rows.jsonl", "metric": lambda example, told, _: told.team == example.team, "artifacts": kept}
    assert resolve(seal(make_written(), name="written", **wanted), kept).parent.startswith("written@v2-")
    state = resolve("written@v2", kept).path / "program.json"
    state.write_bytes(state.read_bytes() + b" ")
    assert compile_written(tmp_path, optimizer, seed=3).parent == "written@v1"
    assert "is in use and cannot be opened" in caplog.text
    made = [resolve(f"written@{one}", kept).section("optimizer")["name"] for one in find_versions(kept, "written")]
    assert made == ["none", "gepa", optimizer, optimizer, "sealed", optimizer]
