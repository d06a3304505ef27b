"""The compiler end to end: caps that hold, failures that are borne, interruptions that lose nothing."""

import itertools
import json
import random
import shutil
import subprocess
import sys

import pytest

from ragc import open_program
from ragc.errors import BudgetError, DataError, ModelError, StudyError, VersionError
from ragc.knowledge.project import Project
from ragc.models.language.pace import Pace, note_pace
from ragc.optimize.compiler.candidates import demonstrations
from ragc.optimize.compiler.compile import compile_project
from ragc.optimize.compiler.record import FIRST_CALLS, SILENT
from ragc.optimize.evaluation import grades
from ragc.optimize.evaluation.outcome import Compiled
from ragc.optimize.labelled.dataset import SPLITS
from ragc.optimize.registry.aliases import promote_version
from ragc.serve.manifest import verify_folder
from ragc.serve.reference import find_versions, list_aliases, resolve
from ragc.storage import append_row
from tests.conftest import add_toml
from tests.optimize.conftest import compile_, invoke, manifest_of


def digest_of(folder, done):
    return manifest_of(folder, done.reference).content_digest


def test_the_same_compile_again_calls_nothing_and_is_the_version_that_it_sealed_before(paid_shop, model):
    first = compile_(paid_shop)
    paid = len(model.calls)
    assert first.calls == paid > 0 and len(first.learned) == 5, "what is still wrong costs no call"
    second = compile_(paid_shop)
    assert (second.calls, len(model.calls), second.reference) == (0, paid, first.reference)
    assert (first.looks, second.looks) == (1, 1) and second.reused > 0
    other = compile_(paid_shop, seed=1)
    assert other.reference != first.reference and len(model.calls) == paid, "another seed is another compile"


@pytest.mark.parametrize(("cap", "most"), [("calls", 20), ("usd", 0.006)])
def test_no_cap_is_ever_passed_and_the_best_so_far_is_sealed(paid_shop, model, cap, most):
    cost = 100 * 0.15e-6 + 10 * 0.6e-6  # of a call, at the model's list price
    done = compile_(paid_shop, **{f"max_{cap}": most})
    assert 0 < {"calls": len(model.calls), "usd": done.usd}[cap] <= most
    assert done.usd == pytest.approx(len(model.calls) * cost)
    assert done.stopped_by == cap
    assert verify_folder(resolve(done.reference, paid_shop / "artifacts").path).parent == done.parent


def test_a_cap_that_does_not_reach_to_the_program_as_it_is_is_told_and_what_was_paid_is_kept(paid_shop, model):
    with pytest.raises(BudgetError, match="before the program as it is could be tried"):
        compile_(paid_shop, max_calls=2)
    assert len(model.calls) <= 2
    paid = len(model.calls)
    with pytest.raises(BudgetError, match=r"Give a higher cap: .* --max-calls \d+"):
        compile_(paid_shop, max_calls=2)
    assert len(model.calls) == paid, "what was spent before counts"
    done = compile_(paid_shop, max_calls=10_000)
    assert len(model.calls) == len(set(model.calls)) == done.calls > paid


def test_a_model_that_fails_three_calls_in_ten_is_asked_again(paid_shop, model):
    drawn, refused = random.Random(3), []

    def fails(n):
        refused.append(drawn.random() < 0.3)
        return refused[-1]

    model.fails = fails
    done = compile_(paid_shop)
    assert len(done.after.grades) == 1 and done.calls == len(model.calls)
    assert 0.2 < sum(refused) / len(refused) < 0.4
    assert any(a and b for a, b in itertools.pairwise(refused))


def test_a_question_whose_grading_raises_is_named_and_the_rest_goes_on(paid_shop, monkeypatch):
    judge = grades.judge_answer

    def broken(question, outcome, text):
        if question.id in {"q1", "q5"}:
            raise ZeroDivisionError("no share of nothing")
        return judge(question, outcome, text)

    for module in (demonstrations, grades):  # wherever it is used
        monkeypatch.setattr(module, "judge_answer", broken)
    with pytest.raises(DataError, match="No question of test could be graded: q5"):
        compile_(paid_shop)
    more = {"id": "q7", "question": "Who mends a Wren?", "topic": "repair", "outcome": "abstain", "split": "test"}
    with (paid_shop / "labelled.jsonl").open("a") as file:
        file.write(json.dumps(more) + "\n")
    done = compile_(paid_shop)
    assert "ZeroDivisionError" in done.broken["q1"]
    assert done.broken["q5"] == "ZeroDivisionError: no share of nothing"
    assert [one.id for one in done.after.grades] == ["q7"]


def test_a_cap_on_money_is_refused_for_a_model_whose_price_nobody_knows_and_the_default_one_is_told_of(
    own_shop, caplog
):
    unknown = "What openai/nobody-knows-it costs is not known"
    project = add_toml(own_shop, '[models]\nwrite = "openai/nobody-knows-it"\npropose = "openai/nor-this"')
    with pytest.raises(BudgetError, match=r"not known.*usd_in"):
        compile_project(project, trials=1, max_usd=1.0)
    assert open_program(project).runtime.budget.max_usd
    assert f"{unknown}, so that [budget] max_usd could not stop it" in caplog.text
    with pytest.raises(BudgetError, match=rf"{unknown}.*max_usd.*provider.model.\"openai/nobody-knows-it\""):
        open_program(add_toml(own_shop, "[budget]\nmax_usd = 0.1"))


def test_a_missing_key_is_told_before_anything_is_done_and_the_answers_of_a_stand_in_are_counted(
    paid_shop, model, monkeypatch
):
    with monkeypatch.context() as patch, pytest.raises(ModelError, match="OPENAI_API_KEY"):
        patch.delenv("OPENAI_API_KEY")
        compile_(paid_shop)
    assert not model.calls
    assert compile_(paid_shop).stood_in == 0
    shutil.rmtree(paid_shop / ".ragc")
    model.calls.clear()
    model.fails = lambda n: n % 5 == 4
    done = compile_(paid_shop)
    assert done.stood_in > 0


@pytest.mark.parametrize("answered", [0, 20])
def test_a_model_that_is_dead_now_stops_the_compile_before_a_stand_in_answers_for_it(paid_shop, model, answered):
    """Its pace is known from before, or it answered some calls of this compile."""
    for n in range(20):
        row = {"id": f"n{n}", "question": f"Does pot {n} hold 0.8 litres?", "topic": f"t{n}", "outcome": "abstain"}
        append_row(paid_shop / "labelled.jsonl", {**row, "split": "train"})
    note_pace(paid_shop / ".ragc", "openai/gpt-4o-mini", Pace(0.1, 1000, 20))
    model.fails = lambda n: n > answered
    with pytest.raises(ModelError, match=r"openai/gpt-4o-mini answered 400\. Check the name.*same command again"):
        compile_(paid_shop)
    assert len(model.calls) <= answered + (SILENT if answered else FIRST_CALLS) + 16, "so many are under way at once"
    assert not [*(paid_shop / "artifacts").glob("*/versions/*")]
    kept = set(model.calls[:answered])
    model.calls.clear()
    model.fails = lambda n: False
    done = compile_(paid_shop)
    assert (done.reference, done.stood_in) == ("shop@v2", 0) and not kept & set(model.calls)


def test_a_version_for_whose_models_a_stand_in_answered_is_told_and_comes_into_use_nowhere(paid_shop, model, ragc):
    model.fails = lambda n: n % 4 > 0
    code, out, _ = ragc("compile", paid_shop, "--promote", "production", "--require", "no-worse")
    assert code == 3 and "A stand-in had a hand in 100% of the answers to dev and test" in out
    assert "was not moved: a stand-in answered for its models" in out and "is answered by the uncompiled program" in out
    assert manifest_of(paid_shop, "shop@latest").section("gain")["stood_for"] == 1
    model.fails = lambda n: False
    code, out, _ = ragc("compile", paid_shop)
    assert out.startswith("shop@v3 is sealed.") and "is answered by shop@v3" in out
    assert ragc("compile", paid_shop)[1].startswith("shop@v3 was sealed before")


@pytest.mark.parametrize(
    ("option", "values"),
    [("seed", (-1, 2**31, 0.5)), ("trials", (0, 10**9, "6")), ("max_calls", (0, 10**12, 1e4)),
     ("max_usd", (-0.01, float("inf"), float("nan")))],
)  # fmt: skip
def test_a_number_beyond_all_use_is_refused_before_anything_is_done(paid_shop, model, option, values):
    for value in values:
        with pytest.raises(StudyError, match=f"^{option} is a .*number.*, not .*Give another"):
            compile_project(Project.open(paid_shop), **{option: value})
    assert not model.calls and not (paid_shop / ".ragc").exists()


def test_a_disk_that_fills_up_is_told_and_the_compile_goes_on_from_there(own_shop):
    undisturbed = digest_of(own_shop, compile_(own_shop))
    shutil.rmtree(own_shop / "artifacts")
    (own_shop / ".ragc/record.sqlite").unlink()
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))\n"
        "from ragc.optimize.cli.main import main\n"
        "sys.argv = ['ragc', 'compile', sys.argv[1]]; main()"
    )
    done = subprocess.run([sys.executable, "-c", limited, own_shop], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and "give the same command again" in done.stderr
    assert digest_of(own_shop, compile_(own_shop)) == undisturbed


@pytest.mark.parametrize(
    ("verdict", "require", "code"),
    [
        ("better", None, 0), ("no_detectable_difference", None, 0), ("worse", None, 0),
        ("better", "better", 0), ("no_detectable_difference", "better", 3), ("worse", "better", 3),
        ("better", "no-worse", 0), ("no_detectable_difference", "no-worse", 0), ("worse", "no-worse", 3),
    ],
)  # fmt: skip
def test_a_compile_that_sealed_a_version_ends_with_0_unless_more_is_required_and_an_alias_moves_only_to_a_better_one(
    own_shop, monkeypatch, verdict, require, code
):
    monkeypatch.setattr(Compiled, "verdict", verdict)
    required = ["--require", require] if require else []
    done = invoke("compile", own_shop, *required, "--promote", "production", "--json")
    assert (done.exit_code, json.loads(done.stdout)["promoted"]) == (code, verdict == "better")
    assert list_aliases(own_shop / "artifacts", "shop") == (["production"] if verdict == "better" else [])


def test_an_alias_that_cannot_be_moved_is_told_before_anything_is_done(own_shop):
    refused = invoke("compile", own_shop, "--promote", "latest")
    assert isinstance(refused.exception, VersionError) and not (own_shop / ".ragc").exists()


def test_a_compile_from_a_version_however_it_is_named_is_compared_with_that_version_and_names_it(paid_shop):
    first = compile_(paid_shop)
    root = paid_shop / "artifacts"
    promote_version(first.reference, "production", root=root)
    for origin in ("shop@production", str(resolve(first.reference, root).path)):
        second = compile_(paid_shop, origin=origin)
        assert second.parent == manifest_of(paid_shop, second.reference).parent != origin
        assert resolve(second.parent, root) == resolve(first.reference, root)
        assert second.before.measure("utility").value == pytest.approx(first.after.measure("utility").value)


def test_the_uncompiled_program_is_sealed_once_and_what_is_in_use_is_the_parent(own_shop, caplog):
    root, row = own_shop / "artifacts", {"outcome": "answered", "evidence": ["product/kettles.md#capacity"]}

    def label_more(n):
        asked = {"id": f"n{n}", "question": f"Does pot {n} of the Wren hold 0.8 litres?", "topic": f"t{n}"}
        append_row(own_shop / "labelled.jsonl", {**asked, **row, "facts": ["0.8 litres"]})

    def list_parents():
        found = [manifest_of(own_shop, f"shop@{version}") for version in find_versions(root, "shop")]
        return [one.parent and one.parent.partition("-")[0] for one in found]

    splits = {}
    for n in range(2):
        done, again = compile_(own_shop), compile_(own_shop)
        assert (again.reference, again.parent, again.gain) == (done.reference, done.parent, done.gain)
        assert (done.repeated, again.repeated) == (False, True)
        data = manifest_of(own_shop, done.reference).section("data")
        now = {question: part for part in SPLITS for question in data[part]["questions"]}
        assert splits.items() <= now.items(), "what a version learned from is in no test of the next"
        splits = now
        label_more(n)
    assert list_parents() == [None, "shop@v1", "shop@v2"]
    promote_version("shop@v2", "production", root=root)
    assert compile_(own_shop).parent.startswith("shop@v2-")
    label_more(2)
    state = resolve("shop@production", root).path / "program.json"
    state.write_bytes(state.read_bytes() + b" ")
    done = compile_(own_shop)
    assert manifest_of(own_shop, done.parent).section("optimizer")["name"] == "none"
    assert "is in use and cannot be opened" in caplog.text
