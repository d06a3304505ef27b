"""The shipped example is in order: its knowledge reads well, its labels fit it, its splits share nothing."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from optimize.corpus import Corpus, read_corpus
from optimize.datacheck import check
from optimize.dataset import LabelledQuestion, read_labelled, splits
from program import load
from program.settings import FILE, Project

FOLDER = Path(__file__).parents[1] / "data" / "tallowgate"
SPLIT_SIZES = {"train": 163, "dev": 59, "test": 105}


@cache
def project() -> Project:
    return Project.open(FOLDER)


@cache
def corpus() -> Corpus:
    return read_corpus(project())


@cache
def questions() -> tuple[LabelledQuestion, ...]:
    return tuple(read_labelled(project().labelled))


def test_the_committed_versions_load_and_answer(tmp_path: Path) -> None:
    for path in sorted(FOLDER.rglob("*")):  # of each folder one file: the bases are the same, and indexed in no time
        place = tmp_path / path.relative_to(FOLDER)
        if path.is_file() and ".ragc" not in path.parts and not any(p.is_file() for p in place.parent.glob("*")):
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    shutil.copy(FOLDER / FILE, tmp_path / FILE)
    for version in ("tallowgate@v1", "tallowgate@v2"):
        rag = load(version, artifacts=FOLDER.parents[1] / "artifacts", project=tmp_path)
        assert rag("What is 15% of 240?").text == "15% of 240 is 36 (240 × 15 / 100)."


def test_the_check_finds_nothing() -> None:
    report = check(questions(), corpus().passages, corpus().tables)
    assert report.errors == []
    assert report.warnings == []


def test_every_question_is_fully_labelled() -> None:
    for q in questions():
        assert q.topic and q.outcome and q.answer and q.tags and q.split, q.id
        assert (q.route is None) == (q.outcome == "clarify"), q.id
        assert (q.strategy is None) == (q.outcome == "clarify"), q.id
        assert bool(q.facts) == (q.outcome == "answered"), q.id
        assert bool(q.evidence) == (q.outcome == "answered" and q.route != "direct"), q.id
        assert bool(q.sql) == (q.strategy == "tables"), q.id
        assert (q.as_of is not None) == ("time-sensitive" in q.tags), q.id


def test_the_division_is_the_published_one() -> None:
    parts = splits(questions())
    assert {name: len(part) for name, part in parts.items()} == SPLIT_SIZES
    for name, part in parts.items():
        assert {q.outcome for q in part} == {"answered", "clarify", "abstain"}, name
        assert {q.strategy for q in part} - {None} == {"vector", "graph", "tables", "web", "direct"}, name
    tags = {name: Counter(tag for q in part for tag in q.tags) for name, part in parts.items()}
    for tag in ("stale", "variant", "contradiction", "jargon", "table"):
        assert all(counted[tag] >= 3 for counted in tags.values()), tag


KINDS = {
    "single-fact": 0.25,
    "multi-part": 0.20,
    "cross-base": 0.10,
    "relational": 0.10,
    "table": 0.08,
    "time-sensitive": 0.07,
    "direct": 0.08,
    "underspecified": 0.06,
    "unanswerable": 0.06,
}
"""The shares of kinds of question that the example is meant to have."""


def test_questions_are_of_every_kind_in_the_shares_meant_and_every_fourth_has_a_rival_value() -> None:
    tags = Counter(tag for q in questions() for tag in q.tags)
    n = len(questions())
    assert n >= 320
    assert {kind: tags[kind] / n for kind in KINDS} == pytest.approx(KINDS, abs=0.015)
    assert all(set(q.tags) & set(KINDS) for q in questions())
    assert sum(bool(q.not_facts) for q in questions()) >= n / 4


def test_the_knowledge_is_read_without_a_complaint() -> None:
    assert corpus().warnings == ()
    assert len(corpus().passages) > 250
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", id.partition("#")[2]) for id in corpus().passages)


def test_dated_pages_are_newer_than_what_they_change() -> None:
    pages = [p for p in corpus().passages.values() if p.source == "web"]
    assert all(p.as_of is not None and f"{p.as_of:%Y-%m-%d}" in p.id for p in pages)


def test_the_example_holds_superseded_rules_and_informal_rivals() -> None:
    passages = corpus().passages.values()
    assert sum(bool(p.superseded_by) for p in passages) >= 15
    assert sum(p.authority == 1 for p in passages) >= 15
