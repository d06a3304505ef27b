"""The compiler end to end: caps that hold, failures that are borne, interruptions that lose nothing."""

import itertools
import json
import random
import shutil
import subprocess
import sys

import pytest

from optimize.compiler.candidates import demonstrations
from optimize.compiler.compile import LEAST_TRIALS, compile_project
from optimize.compiler.study import Note, open_study
from optimize.compiler.tasks.project import DEFAULT_TRIALS, EMBEDDED_TRIALS
from optimize.evaluation import grades
from optimize.evaluation.comparison import read_scores
from optimize.evaluation.outcome import Compiled
from optimize.registry.aliases import promote_version
from program import open_program
from program.errors import BudgetError, DataError, ModelError, StudyError, VersionError
from program.knowledge.project import Project
from program.loop.policy import PRESETS
from program.serve.manifest import verify_folder
from program.serve.reference import list_aliases, resolve
from tests.conftest import add_toml
from tests.optimize.conftest import compile_, invoke, manifest_of, paid

FIRSTS = 2 + len(PRESETS) + 1  # as it is, with labels, the published designs; then what is fitted
TRIALS = FIRSTS + 6


def digest_of(folder, done):
    return manifest_of(folder, done.reference).content_digest


def test_a_second_compile_calls_nothing_and_ends_in_the_same_program_on_another_host_on_the_same_database_too(
    paid_shop, model, tmp_path
):
    add_toml(paid_shop, f'[study]\nstorage = "sqlite:///{tmp_path}/studies.db"')
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(paid_shop, elsewhere)
    first = compile_(paid_shop)
    paid = len(model.calls)
    assert first.calls == paid > 0
    for folder, looks in ((paid_shop, 2), (elsewhere, 1)):
        second = compile_(folder)
        assert (second.calls, len(model.calls)) == (0, paid)
        assert digest_of(folder, second) == digest_of(paid_shop, first)
        assert (first.looks, second.looks) == (1, looks)
        assert (folder is elsewhere) or second.reference != first.reference


@pytest.mark.parametrize(("cap", "most"), [("calls", 90), ("usd", 0.0078)])
def test_no_cap_is_ever_passed_and_the_best_so_far_is_sealed(paid_shop, model, cap, most):
    cost = 100 * 0.15e-6 + 10 * 0.6e-6  # of a call, at the model's list price
    done = compile_(paid_shop, **{f"max_{cap}": most})
    assert 0 < {"calls": len(model.calls), "usd": done.usd}[cap] <= most
    assert done.usd == pytest.approx(len(model.calls) * cost)
    assert done.stopped_by == cap
    assert verify_folder(resolve(done.reference, paid_shop / "artifacts").path).parent == done.parent


def test_a_cap_that_does_not_reach_to_the_first_setting_is_told_and_what_was_paid_is_kept(paid_shop, model):
    with pytest.raises(BudgetError, match="before the first setting"):
        compile_(paid_shop, max_calls=2)
    assert len(model.calls) <= 2
    paid = len(model.calls)
    with pytest.raises(BudgetError, match="resume --max-calls"):
        compile_(paid_shop, resume=True)
    assert len(model.calls) == paid
    done = compile_(paid_shop, resume=True, max_calls=10_000)
    assert len(model.calls) == len(set(model.calls)) == done.calls > paid


def test_a_model_that_fails_three_calls_in_ten_is_asked_again(paid_shop, model):
    drawn, refused = random.Random(3), []

    def fails(n):
        refused.append(drawn.random() < 0.3)
        return refused[-1]

    model.fails = fails
    done = compile_(paid_shop)
    assert len(done.after.grades) == 1 and done.trials == TRIALS
    assert done.calls == len(model.calls)
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
    assert done.broken["q5 (ZeroDivisionError: no share of nothing)"] == "in the test"
    assert done.trials == TRIALS and [one.id for one in done.after.grades] == ["q7"]


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        ("[knowledge.product]", '[loop]\npreset = "judge-and-ground"\n[knowledge.product]', "preset was full"),
        ("prices, refunds and invoices", "what is paid and paid back", r"predictors\.classifier\.route was"),
        ("[knowledge.product]", "[utility]\nwrong = -2.0\n[knowledge.product]", r"utility\.wrong was -1\.0, is -2\.0"),
    ],
)
def test_a_study_that_began_with_another_program_or_other_terms_is_refused(paid_shop, was, now, told):
    with pytest.raises(BudgetError):
        compile_(paid_shop, max_calls=2)
    settings = paid_shop / "ragc.toml"
    settings.write_text(settings.read_text().replace(was, now, 1))
    with pytest.raises(StudyError, match=told):
        compile_(paid_shop, resume=True)


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
    model.fails = lambda n: n % 50 > 10
    assert compile_(paid_shop).stood_in > 0


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


def test_as_many_settings_are_tried_as_train_has_questions_and_more_where_no_language_model_is_asked(
    own_shop, model, monkeypatch
):
    labels = (own_shop / "labelled.jsonl").read_text().splitlines()

    def stop(live):
        if live.study:
            raise KeyboardInterrupt

    def plan(questions):
        more = [labels[2].replace("q3", f"r{n}").replace("descaled", f"part {n} descaled") for n in range(questions)]
        (own_shop / "labelled.jsonl").write_text("\n".join([*labels, *more]))
        with pytest.raises(KeyboardInterrupt):
            compile_project(Project.open(own_shop), watch=stop)
        return open_study(Project.open(own_shop)).notes[Note.TRIALS]

    assert [plan(n) for n in (0, 40, 300)] == [LEAST_TRIALS, 44, EMBEDDED_TRIALS]
    paid(own_shop, model.url, monkeypatch)
    assert plan(300) == DEFAULT_TRIALS


def test_each_study_is_gone_on_with_as_it_was_begun(paid_shop):
    with pytest.raises(StudyError, match="no study to go on with"):
        compile_(paid_shop, resume=True)
    for seed in (1, 3):
        with pytest.raises(BudgetError):
            compile_(paid_shop, max_calls=2, seed=seed)
    with pytest.raises(StudyError, match="begun with --seed 3, not 4"):
        compile_(paid_shop, resume=True, seed=4)
    older = compile_(paid_shop, study="shop-1", seed=1, max_calls=10_000)
    assert older.study == "shop-1"
    assert manifest_of(paid_shop, older.reference).section("optimizer")["seed"] == 1
    with pytest.raises(StudyError, match="begun without --from, not shop@v1-"):
        compile_(paid_shop, study="shop-2", origin="shop@v1")
    assert compile_(paid_shop, resume=True, max_calls=10_000).study == "shop-2"
    for study, told in (("shop-1", "shop-1 is finished"), ("shop-7", "no study 'shop-7'")):
        with pytest.raises(StudyError, match=told):
            compile_(paid_shop, study=study)


def test_a_disk_that_fills_up_is_told_and_the_compile_goes_on_from_there(own_shop):
    undisturbed = digest_of(own_shop, compile_(own_shop))
    shutil.rmtree(own_shop / "artifacts")
    for gone in (own_shop / ".ragc/studies", own_shop / ".ragc/record.sqlite"):
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))\n"
        "from optimize.cli.main import main\n"
        "sys.argv = ['ragc', 'compile', sys.argv[1], '--trials', '6']; main()"
    )
    done = subprocess.run([sys.executable, "-c", limited, own_shop], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and "--resume" in done.stderr
    assert digest_of(own_shop, compile_(own_shop, resume=True)) == undisturbed


@pytest.mark.parametrize(("verdict", "code"), [(True, 0), (False, 3)])
def test_an_alias_moves_only_to_a_version_that_is_detectably_better(own_shop, monkeypatch, verdict, code):
    refused = invoke("compile", own_shop, "--trials", 2, "--promote", "latest")
    assert isinstance(refused.exception, VersionError) and not (own_shop / ".ragc").exists()
    monkeypatch.setattr(Compiled, "improved", verdict)
    done = invoke("compile", own_shop, "--trials", 2, "--promote", "production", "--json")
    assert (done.exit_code, json.loads(done.stdout)["promoted"]) == (code, verdict)
    assert list_aliases(own_shop / "artifacts", "shop") == (["production"] if verdict else [])


def test_a_compile_from_a_version_however_it_is_named_is_compared_with_that_version_and_names_it(paid_shop):
    first = compile_(paid_shop)
    root = paid_shop / "artifacts"
    promote_version(first.reference, "production", root=root)
    for origin in ("shop@production", str(resolve(first.reference, root).path)):
        second = compile_(paid_shop, origin=origin)
        assert second.parent == manifest_of(paid_shop, second.reference).parent != origin
        assert resolve(second.parent, root) == resolve(first.reference, root)
        assert second.before.measure("utility").value == pytest.approx(first.after.measure("utility").value)


def test_a_version_that_quoted_goes_on_so_under_a_language_model_until_calls_pay(
    compiled, tmp_path, model, monkeypatch
):
    folder = shutil.copytree(compiled, tmp_path / "shop")
    first = [row["answer"] for row in read_scores("shop@v2", folder / "artifacts")]
    paid(folder, model.url, monkeypatch, '[models]\nwrite = "openai/gpt-4o-mini"\n\n')
    second = compile_(folder, origin="shop@v2")
    assert [one.answer for one in second.before.grades] == first
