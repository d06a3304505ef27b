"""Under a cap: whatever settings are compared on was asked under every one of them."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from optimize.bench import TOPICS, Bench
from optimize.cli.main import app
from optimize.journal import create, last
from optimize.preparation import Preparation
from optimize.reach import REACH
from optimize.scoring import Scoring
from optimize.spending import Caps
from optimize.study import Search
from program.settings import Project
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


@pytest.mark.parametrize("calls", [110, 120, 130])
def test_under_a_cap_what_is_kept_was_asked_under_every_setting_that_the_search_begins_with(wide_shop, model, calls):
    ready = prepared(wide_shop, caps=Caps(calls))
    paid = len(model.calls)
    scoring = Scoring(ready.arms, ready.project.settings.utility)
    assert paid <= calls
    assert ready.spending.caps == Caps(calls)
    found = [scoring(start) for start in ready.starts[1:]]
    assert np.isfinite([one.utility for one in found]).all()
    assert len(model.calls) == paid
    assert 0 < len(kept(ready)) < len(ready.parts["train"])


def test_what_a_worker_and_a_resumed_compile_search_on_is_what_was_kept_first(wide_shop, model):
    journal = begun(wide_shop)
    first = kept(prepared(wide_shop, journal=journal, caps=Caps(120)))
    assert len(first) < 5
    paid = len(model.calls)
    assert kept(prepared(wide_shop, journal=journal, caps=Caps(1000))) == first
    assert kept(prepared(wide_shop, journal=journal, worker=True, caps=Caps(120))) == first
    assert len(model.calls) == paid


def test_without_a_cap_or_once_there_are_trials_every_question_is_searched_on(wide_shop, model):
    journal = begun(wide_shop)
    ready = prepared(wide_shop, journal=journal)
    assert sorted(kept(ready)) == sorted(question.id for question in ready.parts["train"])
    interrupted(wide_shop)
    compile_(wide_shop, resume=True, max_calls=len(model.calls) + 5)
    assert REACH not in last(Project.open(wide_shop)).attributes


def test_a_compile_tells_on_how_many_questions_a_cap_let_it_search_choose_and_test(wide_shop, model):
    short = compile_(wide_shop, max_calls=150)
    assert 0 < short.asked["train"][0] < short.asked["train"][1] == 5
    assert short.asked["test"] == (len(short.evaluation.grades), 1)
    whole = compile_(wide_shop)
    assert whole.asked == {"train": (5, 5), "dev": (4, 4), "test": (1, 1)}
    assert len(model.calls) == len(set(model.calls))


def test_the_command_line_says_on_how_many_questions_it_searched_chose_and_tested_under_a_cap(wide_shop):
    done = CliRunner().invoke(app, ["compile", str(wide_shop), "--trials", "6", "--max-calls", "150"])
    told = r"searched on [1-4] of 5 questions of train, chosen on \d of 4 questions of dev, tested on \d of 1 questions"
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
    assert dev == 0 or len(topics) >= TOPICS
    assert np.isfinite(table.utility).all()
    assert np.isfinite(before.utility[len(before.utility) - dev :]).all()
    ready.spending.caps = Caps()
    for setting, row in zip(table.settings, table.utility, strict=True):
        assert bench(setting).utility.tolist() == row.tolist()
