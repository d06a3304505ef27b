"""Runs kept in the record: what one process went through, another need not, and comes to the very same answers."""

import sqlite3
import time
from dataclasses import replace

import pytest

from optimize.compiler import keptruns
from optimize.compiler.compile import compile_project
from optimize.compiler.keptruns import KeptRuns, gone_through, note_gone_through
from optimize.compiler.record import Record
from optimize.compiler.replay import Replay
from program.knowledge.library import Library
from program.loop.policy import Candidates, apply_setting
from program.models.embedded.encoder import Embedder
from program.passage import SourceCard
from program.project import Project
from program.settings import ModelSettings
from tests.optimize.test_paths import QUESTIONS, moved
from tests.support.goods import program_at
from tests.support.provider import Script, serve
from tests.support.replies import obliging


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
        apply_setting(replay.program, setting)
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


def test_runs_of_another_question_are_not_taken(rag, tmp_path):
    answers_of(replayed(rag, tmp_path), [{}])
    other = ["How many watts does the Wren draw?"]
    (kept,), (made,) = replayed(rag, tmp_path).answers(other), Replay(rag.deepcopy(), Record()).answers(other)
    assert (kept.text, kept.trace.path) == (made.text, made.trace.path)


CHANGES = {
    "code": lambda program, patch: patch.setattr(keptruns, "replay_digest", lambda: "other"),
    "knowledge": lambda program, patch: patch.setattr(Library, "content_digest", lambda self, name: "other"),
    "cards": lambda program, patch: patch.setattr(SourceCard, "describe", lambda self: "other"),
    "links": lambda program, patch: changed(program, links=("example.com",)),
    "rounds": lambda program, patch: changed(program, budget=replace(program.runtime.budget, max_rounds=9)),
    "models": lambda program, patch: changed(
        program, models=replace(program.runtime.models, names=ModelSettings(propose="openai/x"))
    ),
    "embedder": lambda program, patch: patch.setattr(Embedder, "digest", "other"),
}


def changed(program, **fields):
    program.runtime = replace(program.runtime, **fields)


@pytest.mark.parametrize("what", [None, *CHANGES])
def test_runs_are_taken_only_while_all_that_they_depend_on_is_the_same(rag, tmp_path, monkeypatch, what):
    answers_of(replayed(rag, tmp_path), [{}])
    program = rag.deepcopy()
    if what is not None:
        CHANGES[what](program, monkeypatch)
    record = Record(tmp_path / "record.sqlite")
    Replay(program, record, keeps=True).answers(QUESTIONS)
    assert bool(record.performed + record.replayed) == (what is not None)


def test_a_compile_is_gone_through_only_for_the_same_code_conditions_and_number_of_settings(tmp_path, monkeypatch):
    record = Record(tmp_path / "record.sqlite")
    note_gone_through(record, {"seed": 0}, 20)
    record.close()
    assert gone_through(record, {"seed": 0}, 20)
    assert not gone_through(record, {"seed": 1}, 20)
    assert not gone_through(record, {"seed": 0}, 19)
    monkeypatch.setattr(keptruns, "replay_digest", lambda: "other")
    assert not gone_through(record, {"seed": 0}, 20)


def test_runs_made_in_another_way_are_not_taken(rag, tmp_path):
    answers_of(replayed(rag, tmp_path), [{}])
    record = Record(tmp_path / "record.sqlite")
    Replay(rag.deepcopy(), record, vouches=False, keeps=True).answers(QUESTIONS)
    assert record.replayed


def test_a_run_is_found_whenever_another_question_was_read_in_between(rag, tmp_path):
    one = replayed(rag, tmp_path)
    one.answers(QUESTIONS[:1])
    other = replayed(rag, tmp_path)
    apply_setting(other.program, {"policy.k": 9})
    for question in QUESTIONS:
        other.answers([question])
        other.record.flush()
    one.answers(QUESTIONS[1:])  # too soon to look again for the first
    time.sleep(keptruns.REFRESH)
    replayed_before = one.record.replayed
    apply_setting(one.program, {"policy.k": 9})
    one.answers(QUESTIONS)
    assert one.record.replayed == replayed_before


def test_a_record_that_keeps_no_run_costs_time_only(rag, tmp_path):
    replay = replayed(rag, tmp_path)
    with sqlite3.connect(tmp_path / "record.sqlite") as db:
        db.execute("DROP TABLE runs")
    assert replay.answers(QUESTIONS)[0].text
    replay.record.close()


def test_runs_are_kept_for_a_month(rag, tmp_path, monkeypatch):
    answers_of(replayed(rag, tmp_path), [{}])
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 31 * 86400)
    answers_of(replayed(rag, tmp_path), [{"policy.k": 9}])
    with sqlite3.connect(tmp_path / "record.sqlite") as db:
        assert [at > now for (at,) in db.execute("SELECT at FROM runs")] == [True] * len(QUESTIONS)


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
