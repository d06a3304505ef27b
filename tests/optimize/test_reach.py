"""Under a cap: whatever settings are compared on was asked under every one of them."""

import json
import re
import threading

import numpy as np
import pytest
from typer.testing import CliRunner

from optimize.cli.main import app
from optimize.compiler.bench import Bench
from optimize.compiler.journal import create, last
from optimize.compiler.preparation import Preparation
from optimize.compiler.reach import LEAST, REACH
from optimize.compiler.scoring import Scoring
from optimize.compiler.spending import Caps
from optimize.compiler.study import Search
from program.errors import BudgetStop
from program.project import Project
from tests.optimize.conftest import opened, prepared
from tests.optimize.test_caps import compile_, interrupted

DEV = {"weight": "How heavy is the kettle?", "colour": "Which colours are there?", "noise": "How loud is the kettle?"}


@pytest.fixture
def wide_shop(paid_shop):
    """A project with four topics to train and four to choose on."""
    rows = [
        {"id": topic, "topic": topic, "split": "dev", "question": question, "outcome": "abstain", "route": "simple"}
        for topic, question in DEV.items()
    ]
    rows.append({**rows[0], "id": "lid", "topic": "lid", "split": "train", "question": "Does the kettle have a lid?"})
    labelled = paid_shop / "labelled.jsonl"
    labelled.write_text(labelled.read_text() + "".join(json.dumps(row) + "\n" for row in rows))
    return paid_shop


def kept(ready: Preparation) -> list[str]:
    return [question.id for arm in ready.arms for question in arm.questions]


def begun(folder):
    project = Project.open(folder)
    return create(project, opened(project).identity(), {"id": "1", "trials": 1})


@pytest.mark.parametrize("calls", [140, 150, 160])
def test_under_a_cap_what_is_kept_was_asked_under_every_setting_that_the_search_begins_with(wide_shop, model, calls):
    ready = prepared(wide_shop, caps=Caps(calls))
    paid = len(model.calls)
    scoring = Scoring(ready.arms, ready.project.settings.utility)
    assert paid <= calls
    assert ready.spending.caps == Caps(calls)
    found = [scoring(start) for start in ready.starts[1:]]
    assert np.isfinite([one.utility for one in found]).all()
    assert len(model.calls) == paid
    assert LEAST <= len(kept(ready)) < len(ready.parts["train"])


@pytest.mark.parametrize("calls", [60, 80, 100])
def test_a_cap_that_reaches_for_few_settings_leaves_two_topics_of_two_folds_to_try_them_on(wide_shop, model, calls):
    ready = prepared(wide_shop, caps=Caps(calls))
    assert [len({question.cluster for question in arm.questions}) for arm in ready.arms] == [1, 1]
    assert len(model.calls) <= calls


@pytest.mark.parametrize("calls", range(80, 170, 10))
def test_whatever_the_cap_every_point_is_sealed_with_what_it_comes_to_on_the_same_questions(wide_shop, model, calls):
    done = compile_(wide_shop, max_calls=calls)
    assert set(done.points) == {"quality", "balanced", "economy"}
    assert len(model.calls) == len(set(model.calls)) <= calls
    assert all(np.isfinite([one.utility, one.calls]).all() for one in done.points.values())


def test_what_a_worker_and_a_resumed_compile_search_on_is_what_was_kept_first(wide_shop, model):
    journal = begun(wide_shop)
    first = kept(prepared(wide_shop, journal=journal, caps=Caps(150)))
    assert len(first) < 5
    paid = len(model.calls)
    assert kept(prepared(wide_shop, journal=journal, caps=Caps(1000))) == first
    assert kept(prepared(wide_shop, journal=journal, worker=True, caps=Caps(150))) == first
    assert len(model.calls) == paid


def test_a_worker_waits_for_the_compile_to_say_what_is_kept_and_no_longer_than_its_time(wide_shop):
    journal = begun(wide_shop)
    prepared(wide_shop, journal=journal)  # candidates are noted, and nothing of what is kept: there was no cap
    later = threading.Timer(0.5, journal.note, [REACH, ["q1", "q3"]])
    later.start()
    assert kept(prepared(wide_shop, journal=journal, worker=True, caps=Caps(1000))) == ["q3", "q1"]
    with pytest.raises(BudgetStop):
        prepared(wide_shop, journal=begun(wide_shop), worker=True, caps=Caps(seconds=5.0))


def test_without_a_cap_or_once_there_are_trials_every_question_is_searched_on(wide_shop, model):
    journal = begun(wide_shop)
    ready = prepared(wide_shop, journal=journal)
    assert sorted(kept(ready)) == sorted(question.id for question in ready.parts["train"])
    interrupted(wide_shop)
    compile_(wide_shop, resume=True, max_calls=len(model.calls) + 5)
    assert len(last(Project.open(wide_shop)).attributes[REACH]) == 5


def test_a_compile_tells_on_how_many_questions_a_cap_let_it_search_choose_and_test(wide_shop, model):
    short = compile_(wide_shop, max_calls=150)
    assert 0 < short.asked["train"][0] < short.asked["train"][1] == 5
    assert short.asked["test"] == (len(short.evaluation.grades), 1)
    whole = compile_(wide_shop)
    assert whole.asked == {"settings": (whole.trials, whole.trials), "train": (5, 5), "dev": (4, 4), "test": (1, 1)}
    assert len(model.calls) == len(set(model.calls))


def test_the_command_line_says_on_how_many_questions_it_searched_chose_and_tested_under_a_cap(wide_shop):
    done = CliRunner().invoke(app, ["compile", str(wide_shop), "--trials", "6", "--max-calls", "150"])
    told = r"\d+ of \d+ settings tried, searched on [1-4] of 5 questions of train, chosen on \d of 4 questions of dev, tested on \d of 1 questions"
    assert re.search(told, " ".join(done.stdout.split())), done.stdout


@pytest.mark.parametrize("calls", [0, 4, 7, 10, 14, 20, 40])
def test_settings_are_chosen_among_on_what_a_cap_let_all_of_them_be_asked(wide_shop, model, calls):
    journal = begun(wide_shop)
    ready = prepared(wide_shop, journal=journal)
    search = Search(ready.arms, ready.project.settings.utility, 0, ready.starts, journal)
    for start in ready.starts[1:]:
        search.scores(start)
    paid = len(model.calls)
    ready.spending.caps = Caps(paid + calls)
    bench = Bench(ready, search, ready.compiled())
    table, before = bench.all(ready.starts[1:], ready.starts[0])
    assert len(model.calls) <= paid + calls
    dev = len(bench.questions) - len(ready.parts["train"])
    topics = {question.cluster for question in bench.questions[-dev:]} if dev else set()
    assert dev == 0 or len(topics) >= LEAST
    assert np.isfinite(table.utility).all()
    assert np.isfinite(before.utility[len(before.utility) - dev :]).all()
    ready.spending.caps = Caps()
    for setting, row in zip(table.settings, table.utility, strict=True):
        assert bench(setting).utility.tolist() == row.tolist()
