"""The shipped example is in order: its knowledge reads well, its labels fit it, its splits share nothing."""

import re
import shutil
from collections import Counter
from functools import cache
from pathlib import Path

from ragc import load
from ragc.knowledge.project import Project
from ragc.optimize.labelled.check import check_questions
from ragc.optimize.labelled.dataset import read_labelled
from ragc.optimize.labelled.rules import read_corpus
from ragc.optimize.labelled.split import split_questions
from ragc.settings import FILE

FOLDER = Path(__file__).parents[1] / "data" / "tallowgate"
SPLIT_SIZES = {"train": 483, "dev": 218, "test": 308}


@cache
def project():
    return Project.open(FOLDER)


@cache
def corpus():
    return read_corpus(project())


@cache
def questions():
    return tuple(read_labelled(project().labelled))


def test_the_committed_versions_load_and_answer(tmp_path):
    for path in sorted(FOLDER.rglob("*")):  # of each folder one file: the bases are the same, and indexed in no time
        place = tmp_path / path.relative_to(FOLDER)
        if path.is_file() and ".ragc" not in path.parts and not any(p.is_file() for p in place.parent.glob("*")):
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    shutil.copy(FOLDER / FILE, tmp_path / FILE)
    for version in ("tallowgate@v1", "tallowgate@v2"):
        rag = load(version, artifacts=FOLDER.parents[1] / "artifacts", project=tmp_path)
        answer = rag("What is 15% of 240?")
        assert answer.version == version and answer.text
    assert answer.text == "36"  # the compiled one knows that this needs no look-up


def test_the_check_finds_nothing_and_no_label_can_be_told_from_the_form_of_its_question():
    report = check_questions(questions(), corpus(), flaws=corpus().read.flaws)
    assert report.errors == report.warnings == []
    assert max(shortcut.auc for shortcut in report.shortcuts) <= 0.70
    told = {(s.split, s.value) for s in report.shortcuts}
    assert {(split, value) for split in SPLIT_SIZES for value in ("clarify", "abstain", "complex")} <= told


def test_every_question_is_fully_labelled_and_those_the_bases_name_as_typical_are_among_them():
    for q in questions():
        elsewhere = q.outcome == "clarify" or "foreign" in q.tags  # nothing says where it would be looked up
        assert q.topic and q.outcome and q.answer and q.tags and q.split, q.id
        assert (q.route is None) == (q.strategy is None) == elsewhere, q.id
        assert bool(q.facts) == (q.outcome == "answered"), q.id
        assert bool(q.evidence) == (q.outcome == "answered" and q.route != "direct"), q.id
        assert bool(q.sql) == (q.strategy == "tables" and q.outcome == "answered"), q.id
    labelled = {q.question: q.outcome for q in questions()}
    asks = [ask for base in project().settings.knowledge.values() for ask in base.asks]
    assert {labelled.get(ask) for ask in asks} == {"answered"}


def test_every_passage_is_well_named_dated_if_of_the_web_and_evidence_of_a_question():
    passages = [p for p in corpus().passages.values() if p.source != "records"]  # its rows are evidence as a table
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", p.id.partition("#")[2]) for p in passages)
    assert all(p.as_of is not None and f"{p.as_of:%Y-%m-%d}" in p.id for p in passages if p.source == "web")
    assert sum(bool(p.superseded_by) for p in passages) >= 15 and sum(p.authority == 1 for p in passages) >= 15
    assert {p.id for p in passages} == {id_ for q in questions() for id_ in q.evidence if "#" in id_}


def test_the_division_is_the_published_one():
    parts = split_questions(questions())
    assert {name: len(part) for name, part in parts.items()} == SPLIT_SIZES
    for name, part in parts.items():
        assert {q.outcome for q in part} == {"answered", "clarify", "abstain"}, name
        assert {q.strategy for q in part} - {None} == {"vector", "graph", "tables", "web", "direct"}, name
    tags = {name: Counter(tag for q in part for tag in q.tags) for name, part in parts.items()}
    for tag in ("stale", "variant", "contradiction", "table"):
        assert all(counted[tag] >= 3 for counted in tags.values()), tag


LEAST = {
    **dict.fromkeys(("single-fact", "multi-part", "relational"), 60),
    **dict.fromkeys(("comparison", "table", "direct"), 40),
    **{"underspecified": 90, "twin": 90, "unanswerable": 110},
    **dict.fromkeys(("neighbour", "missing-property", "false-premise", "foreign"), 20),
}
"""How many questions of each kind the example is meant to have at least."""


def test_there_are_enough_questions_of_every_kind():
    tags = Counter(tag for q in questions() for tag in q.tags)
    assert len(questions()) >= 700 and {kind: tags[kind] for kind, least in LEAST.items() if tags[kind] < least} == {}
    assert sum("stale" in q.tags and bool(q.not_facts) for q in questions()) >= 50
    assert sum(len(q.question.split()) < 12 for q in questions()) >= len(questions()) / 2
    test = Counter(q.outcome for q in split_questions(questions())["test"])
    assert test["abstain"] >= 35 and test["clarify"] >= 30
