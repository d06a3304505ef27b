"""Runs kept in the record: what one process went through, another need not, and comes to the very same answers."""

import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from optimize import keptruns
from optimize.compiler import compile_project
from optimize.keptruns import KeptRuns
from optimize.record import Record
from optimize.replay import Replay
from program.models.script import Script, obliging
from program.models.testing import serve
from program.parameters import Candidates, apply
from program.settings import Project
from tests.optimize.test_paths import QUESTIONS, moved

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from goods import program_at


def replayed(program, folder):
    """A replay that keeps its runs in a file, as a process of its own would have it."""
    return Replay(program.deepcopy(), Record(folder / "record.sqlite"), keeps=True)


def offered(rag):
    """The program with a second set of demonstrations for two of its predictors."""
    program = rag.deepcopy()
    for name in ("judge.relevance", "grounder.responsive"):
        predictor = program.predictor(name)
        predictor.candidates = Candidates([predictor.signature], [predictor.demos, list(predictor.demos[:6])])
    return program


def answers_of(replay, settings):
    """The answers under each setting, but for the seconds that they took."""
    found = []
    for setting in settings:
        apply(replay.program, setting)
        answers = replay.answers(QUESTIONS)
        found.append([replace(answer, usage=replace(answer.usage, seconds=0.0)) for answer in answers])
    replay.record.close()
    return found


def test_under_any_setting_the_answers_of_kept_runs_are_those_of_runs_made_anew(rag, tmp_path):
    settings = []
    for number, setting in enumerate(moved(offered(rag), 40)):
        places = {name: (number >> at) % 2 for at, name in enumerate(sorted(n for n in setting if "#" in n))}
        settings.append({**setting, **places})
    made = answers_of(Replay(offered(rag), Record()), settings)
    first, second = replayed(offered(rag), tmp_path), replayed(offered(rag), tmp_path)
    assert answers_of(first, settings[::2]) == made[::2]
    assert answers_of(second, settings) == made
    third = replayed(offered(rag), tmp_path)
    assert answers_of(third, settings) == made
    assert (third.record.performed, third.record.replayed) == (0, 0)


def test_what_another_process_went_through_meanwhile_is_read(rag, tmp_path, monkeypatch):
    monkeypatch.setattr(keptruns, "REFRESH", 0.0)
    one, other = replayed(rag, tmp_path), replayed(rag, tmp_path)
    answers_of(one, [{"policy.k": 6}])
    answers_of(other, [{"policy.k": 6}, {"policy.k": 9}])
    read = one.record.replayed
    assert answers_of(one, [{"policy.k": 9}]) == answers_of(other, [{"policy.k": 9}])
    assert one.record.replayed == read


def test_runs_of_another_question_or_another_way_of_making_them_are_not_taken(rag, tmp_path):
    answers_of(replayed(rag, tmp_path), [{}])
    record = Record(tmp_path / "record.sqlite")
    Replay(rag.deepcopy(), record, vouches=False, keeps=True).answers(QUESTIONS)
    assert record.replayed
    assert replayed(rag, tmp_path).answers(["How many watts does the Wren draw?"])[0].text


def test_a_run_that_cannot_be_read_is_made_again(rag, tmp_path):
    made = answers_of(replayed(rag, tmp_path), [{}])
    with sqlite3.connect(tmp_path / "record.sqlite") as db:
        assert db.execute("UPDATE runs SET value = substr(value, 1, 40)").rowcount >= len(QUESTIONS)
    again = replayed(rag, tmp_path)
    assert answers_of(again, [{}]) == made
    assert again.record.replayed


def test_a_run_that_a_stand_in_or_no_model_answered_is_made_again(tmp_path):
    question, terms = "How many watts does the lamp draw?", "retries = 0\nbreaker_after = 1000"
    with serve(Script(), obliging) as second, serve(Script(), obliging) as first:
        for fallback in ('"openai/second"', "false"):
            folder = tmp_path / fallback.strip('"').replace("/", "-")
            own = f'{terms}\nfallback = {fallback}\n[provider.model."openai/second"]\napi_base = "{second.url}"'
            first.follow(Script({"server_error": 1.0}))
            program = program_at(first.url, folder, provider=own)
            lost = Replay(program, Record(folder / "record.sqlite"), keeps=True)
            lost.answers([question])
            lost.record.close()
            first.follow(Script())
            calls = first.calls
            Replay(program_at(first.url, folder, provider=own), Record(folder / "record.sqlite"), keeps=True)(question)
            assert first.calls > calls


@pytest.mark.parametrize("digest", ["", "sha256:0"])
def test_nothing_is_kept_over_a_source_that_may_change_unseen(rag, tmp_path, monkeypatch, digest):
    monkeypatch.setattr(type(rag.runtime.library), "content_digest", lambda self, name: digest)
    answers_of(replayed(rag, tmp_path), [{}])
    with sqlite3.connect(tmp_path / "record.sqlite") as db:
        assert bool(db.execute("SELECT count(*) FROM runs").fetchone()[0]) == bool(digest)


def test_a_second_compile_comes_upon_no_run_that_is_not_kept(own_shop, monkeypatch):
    kept, keep = [], KeptRuns.keep

    def keeping(self, path):
        kept.append(path.question)
        keep(self, path)

    monkeypatch.setattr(KeptRuns, "keep", keeping)
    project = Project.open(own_shop)
    first = compile_project(project, trials=12)
    assert kept
    kept.clear()
    second = compile_project(project, trials=12, processes=1)
    assert not kept
    assert second.evaluation.grades == first.evaluation.grades
    assert second.points == first.points
