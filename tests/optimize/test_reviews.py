"""What people say of answers becomes labels: learned from, never tested on."""

import json

import pytest

from ragc.errors import DataError
from ragc.knowledge.library import Library
from ragc.knowledge.project import Project
from ragc.optimize.compiler.compile import compile_project
from ragc.optimize.labelled.dataset import read_labelled
from ragc.optimize.labelled.reviewed import join_reviewed
from ragc.optimize.labelled.split import split_questions
from ragc.optimize.labelled.units import question_digest
from ragc.serve.opening import open_library
from ragc.serve.trace import TraceLog
from ragc.server.feedback import FeedbackLog, ReviewedAnswer
from ragc.storage import append_row
from tests.conftest import add_toml
from tests.optimize.conftest import invoke, manifest_of
from tests.support.provider import serve

ENTRY = {
    "trace_id": "0123456789abcdef",
    "question": "Is it 10 days for firms?",
    "outcome": "answered",
    "version": "shop@v1",
}
FIRMS = "billing/refunds.md#business-customers"
KEPT = ReviewedAnswer("right", ("10 days",), (FIRMS,), 4.2)


BY = {"at": "2026-11-01", "seconds": 2.5, "trace": "0" * 16, "version": "shop@v1"}


def reviewed(project, n, question, fact="", evidence=""):
    labels = {"outcome": "answered", "facts": [fact], "evidence": [evidence]} if fact else {"outcome": "abstain"}
    append_row(project.reviewed, {"id": f"review-{n}", "question": question, **labels, "reviewed": BY})


@pytest.fixture
def project(own_shop):
    return Project.open(own_shop)


@pytest.fixture
def library(project) -> Library:
    return open_library(project)


@pytest.mark.parametrize(
    "review, labels",
    [
        (KEPT, {"outcome": "answered", "facts": ["10 days"], "evidence": [FIRMS]}),
        (
            ReviewedAnswer("wrong", ("10 days",), (FIRMS,)),
            {"outcome": "answered", "facts": ["10 days"], "evidence": [FIRMS]},
        ),
        (ReviewedAnswer("should_clarify", ("10 days",), (FIRMS,)), {"outcome": "clarify"}),
        (ReviewedAnswer("should_abstain"), {"outcome": "abstain"}),
        (ReviewedAnswer("wrong"), None),
        (ReviewedAnswer("skip"), None),
    ],
)
def test_a_review_is_a_labelled_question_or_none(project, library, review, labels):
    log = FeedbackLog(project)
    log.write_review(ENTRY, review, library)
    rows = read_labelled(project.reviewed) if project.reviewed.is_file() else []
    found = [row.model_dump(mode="json", exclude_defaults=True) for row in rows]
    known = {"id": "review-0123456789abcdef", "question": ENTRY["question"], "tags": ["reviewed"]}
    sources = {"sources": ["billing"]} if (labels or {}).get("evidence") else {}
    assert found == ([{**known, **labels, **sources}] if labels else [])
    assert [row.reviewed.version for row in rows] == ["shop@v1"] * len(rows)


@pytest.mark.parametrize(
    "facts, evidence",
    [((), (FIRMS,)), (("10 days",), ()), (("11 days",), (FIRMS,)), (("days to",), ("no/such.md#one",))],
)
def test_a_fact_that_no_chosen_passage_states_is_refused(project, library, facts, evidence):
    with pytest.raises(DataError):
        FeedbackLog(project).write_review(ENTRY, ReviewedAnswer("right", facts, evidence), library)
    assert not project.reviewed.exists()


def test_a_fact_that_the_answer_called_wrong_states_is_refused(project, library):
    entry = {**ENTRY, "text": "Companies have 10 days to return a kettle [1]."}
    with pytest.raises(DataError, match="states “10 days”"):
        FeedbackLog(project).write_review(entry, ReviewedAnswer("wrong", ("10 days",), (FIRMS,)), library)
    assert (
        FeedbackLog(project).write_review(entry, KEPT, library)["answer"]
        == "Companies have 10 days to return a kettle."
    )


def test_a_review_that_is_undone_labels_nothing_and_its_question_waits_again(project, library):
    log, row = FeedbackLog(project), {**ENTRY, "confidence": 0.5, "at": 0, "citations": []}
    TraceLog(project.private).traces.append(row)
    log.write_review(row, KEPT, library)
    assert log.list_queue() == [] and project.reviewed.read_bytes()
    log.write_review(row, ReviewedAnswer("undo"), library)
    assert [one["trace_id"] for one in log.list_queue()] == [ENTRY["trace_id"]] and not project.reviewed.read_bytes()


def test_the_queue_has_the_answer_marked_wrong_and_nobody_sees_a_correction_of_other_groups(project):
    log = FeedbackLog(project)
    for n, readers in enumerate(([], ["finance"], [])):
        row = {"trace_id": f"{n:016x}", "question": "Is it red?", "confidence": 0.5, "at": n, "readers": readers}
        TraceLog(project.private).traces.append(row)
    log.write_verdict(f"{1:016x}", "wrong", "It is blue.")
    for readers, shown in ((["finance"], (f"{1:016x}", "It is blue.")), ([], (f"{2:016x}", ""))):
        assert [(entry["trace_id"], entry["corrected"]) for entry in log.list_queue(readers)] == [shown]


def test_reviews_join_what_is_learned_from_and_never_touch_the_test(project):
    reviewed(project, 1, "Is it 10 days for firms?", "10 days", FIRMS)
    reviewed(project, 2, "Does the Wren need many watts?", "1000 watts", "product/kettles.md#power")
    reviewed(project, 3, "Is money back after 30 days possible?", "30 days", "billing/refunds.md#money-back")
    reviewed(project, 4, "How many days do I have to get my money back?")  # a test question's very words
    before = split_questions(read_labelled(project.labelled))
    found = join_reviewed(project, before)
    new = {split: [q.id for q in part if q.id.startswith("review")] for split, part in found.parts.items()}
    assert new == {"train": ["review-1"], "dev": ["review-2"], "test": []} and found.parts["test"] == before["test"]
    told = json.loads(invoke("data", "check", project.folder, "--json").stdout)
    assert (told["reviewed"], told["reviewed_left_out"], told["passed"], told["questions"]) == (2, 2, True, 8)
    compile_project(project)
    data = manifest_of(project.folder, "shop@latest").section("data")
    digests = {split: set(data[split]["questions"]) for split in ("train", "dev", "test")}
    asked = [question_digest(q) for q in ("Is it 10 days for firms?", "Does the Wren need many watts?")]
    assert asked[0] in digests["train"] and asked[1] in digests["dev"] and len(digests["test"]) == 1


def test_a_wrong_review_is_named_with_its_file(project):
    reviewed(project, 1, "Is it red?", "red", FIRMS)
    told = invoke("data", "check", project.folder)
    assert told.exit_code == 1 and "reviewed.jsonl line 1 (review-1)" in told.stdout


def test_a_language_model_drafts_for_passages_that_no_label_uses(project, monkeypatch):
    def brain(body):
        fact = "10 days" if "10 days" in str(body["messages"][-1]) else "a fact of no passage"
        return f"[[ ## question ## ]]\nHow long do firms have?\n\n[[ ## fact ## ]]\n{fact}\n\n[[ ## completed ## ]]"

    with serve(None, brain) as provider:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        add_toml(
            project.folder,
            f'[models]\npropose = "openai/drafter"\n[provider.model."openai/drafter"]\napi_base = "{provider.url}"',
        )
        (draft,) = json.loads(invoke("data", "draft", project.folder, "--json").stdout)
    assert (draft["question"], draft["facts"], draft["evidence"]) == ("How long do firms have?", ["10 days"], [FIRMS])
