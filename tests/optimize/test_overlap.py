"""Questions that a version learnt from stay out of the test of whatever is compiled from it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from optimize.cli.main import app
from optimize.compiler.compile import compile_project
from optimize.compiler.publish import read_ancestors
from optimize.labelled.dataset import LabelledQuestion, read_labelled, splits
from optimize.labelled.overlap import LEARNT_FROM, places, question_digest
from program.settings import Project

NEW = ("colour", "price", "weight", "noise", "size", "age")


def undivided(folder, *topics):
    """The project's questions without a split, and one more of each of these topics."""
    path = folder / "labelled.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row.pop("split", None)
    rows += [
        {"id": topic, "question": f"What is its {topic}?", "topic": topic, "outcome": "abstain"} for topic in topics
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Project.open(folder)


def digests(manifest, *parts):
    return {digest for part in parts for digest in manifest.section("data")[part]["questions"]}


@pytest.mark.parametrize("added", [NEW, ()])
def test_what_a_parent_learnt_from_is_in_no_test_of_its_children_however_labels_and_seeds_change(own_shop, added):
    first = compile_project(undivided(own_shop), trials=2)
    again = compile_project(undivided(own_shop, *added), trials=2, seed=5, origin=first.reference)
    child, parent = read_ancestors(again.reference, own_shop / "artifacts")[:2]
    assert child.parent.partition("@")[2].startswith(parent.version)
    assert digests(parent, *LEARNT_FROM)
    assert not digests(child, "test") & digests(parent, *LEARNT_FROM)
    assert digests(parent, "test") <= digests(child, "test")
    assert len(digests(child, *LEARNT_FROM, "test")) == len(read_labelled(own_shop / "labelled.jsonl"))


def test_an_evaluation_of_a_version_asks_nothing_that_it_learnt_from(own_shop):
    done = compile_project(undivided(own_shop), trials=2)
    (version, *_) = read_ancestors(done.reference, own_shop / "artifacts")
    undivided(own_shop, *NEW)
    ran = CliRunner().invoke(
        app, ["eval", done.reference, "--artifacts", str(own_shop / "artifacts"), "--split", "test", "--json"]
    )
    assert ran.exit_code == 0, ran.output
    asked = json.loads(ran.stdout)["n"]
    parts = splits(read_labelled(own_shop / "labelled.jsonl"), before=places([version]))
    assert asked == len(parts["test"])
    assert not {question_digest(q.question) for q in parts["test"]} & digests(version, *LEARNT_FROM)


@given(
    st.dictionaries(st.integers(0, 30), st.tuples(st.integers(0, 8), st.sampled_from(["train", "dev", "test", None]))),
    st.dictionaries(st.integers(0, 30), st.sampled_from(["train", "dev", "test"])),
    st.integers(0, 3),
)
def test_a_question_stays_in_the_split_it_was_in_before_whatever_its_own(rows, before, seed):
    questions = [
        LabelledQuestion(id=f"q{n}", question=f"What of {n}?", topic=f"t{topic}", outcome="abstain", split=own)
        for n, (topic, own) in rows.items()
    ]
    known = {question_digest(f"What of {n}?"): split for n, split in before.items()}
    found = splits(questions, seed, known)
    where = {question.id: split for split, part in found.items() for question in part}
    assert len(where) == len(questions)
    assert all(where[f"q{n}"] == split for n, split in before.items() if n in rows)
