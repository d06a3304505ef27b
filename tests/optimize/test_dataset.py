"""Reading labelled questions: what is accepted, and what each fault is called."""

import json

import pytest

from ragc.errors import DataError
from ragc.optimize.labelled.dataset import read_labelled, read_lines

GOOD = {"id": "q1", "question": "How long?", "facts": ["30 days"]}


def write(tmp_path, *lines):
    path = tmp_path / "labelled.jsonl"
    path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines), encoding="utf-8")
    return path


def fault(path):
    with pytest.raises(DataError) as caught:
        read_labelled(path)
    assert caught.value.mend, "every error says how to mend it"
    return str(caught.value)


def test_every_label_of_the_interface_is_read_and_one_label_suffices(tmp_path):
    full = """{"id": "q017", "question": "...?", "topic": "billing", "outcome": "answered", "route": "complex",
        "sources": ["product", "billing"], "strategy": "vector", "sub_queries": ["..."], "answer": "...",
        "evidence": ["billing/refunds.md#prorated"], "facts": ["prorated", ["30 days", "a month"]],
        "not_facts": ["14 days"], "as_of": "2026-03-01", "tags": ["multi-part"]}""".replace("\n", "")
    question, least = read_labelled(write(tmp_path, full, GOOD))
    assert question.alternatives == (("prorated",), ("30 days", "a month"))
    assert question.as_of is not None and question.as_of.isoformat() == "2026-03-01"
    assert (least.outcome, least.sources, least.split, least.cluster) == (None, (), None, "q1")


def test_every_line_that_cannot_be_read_is_told_with_its_number_and_id(tmp_path):
    bad = {**GOOD, "id": "q2", "route": "winding"}
    questions, unread = read_lines(write(tmp_path, "{", GOOD, bad, GOOD, {**GOOD, "id": "q5"}))
    assert [q.id for q in questions] == ["q1", "q5"]
    assert [(one.line, one.id) for one in unread] == [(1, ""), (3, "q2"), (4, "q1")]
    assert all(f"line {one.line}" in one.what and one.mend for one in unread)


def test_blank_lines_a_byte_order_mark_and_odd_line_ends_are_passed_over(tmp_path):
    path = tmp_path / "labelled.jsonl"
    second = {**GOOD, "id": "q2", "question": "one\u2028two"}
    path.write_bytes(f"\ufeff{json.dumps(GOOD)}\r\n\r\n{json.dumps(second, ensure_ascii=False)}".encode())
    questions = read_labelled(path)
    assert [(q.id, q.line) for q in questions] == [("q1", 1), ("q2", 3)]
    assert questions[1].question == "one\u2028two"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"id": "q2", ', "line 2 is not JSON"), ("[1]", "line 2 is not a JSON object"),
        ('{"id": "q2", "id": "q3", "question": "a", "facts": ["b"]}', "'id' occurs twice"),
        ({"evidense": []}, "Did you mean 'evidence'?"), ({"line": 3}, "unknown key 'line'"),
        ({"outcome": "answerd"}, "Did you mean 'answered'?"), ({"tags": "table"}, "Make it a list of texts"),
        ({"facts": "30 days"}, "'facts' cannot be \"30 days\""), ({"facts": [[]]}, "'facts' is empty"),
        ({"route": "winding"}, "Use one of direct, simple, complex"), ({"as_of": "last week"}, "Make it a date"),
        *(({"history": it}, "'history' cannot be") for it in ("before", [{"role": "bot", "content": "x"}])),
        ({"history": [" "]}, "'history' is empty or holds an empty text"),
        ({"id": 7}, "Make it text."), ({"sources": ["a", 3]}, "Make it a list of texts."), ({"outcome": 3}, "'outcome' cannot be 3"),
        ({"history": 7}, "A history is a list of messages, not int."), ({"as_of": 7}, "Make it a date such as"),
        ({"id": 7}, "'id' cannot be 7"), ({"id": "q1"}, "the id 'q1' is already that of line 1"),
        ({"facts": [], "topic": "t", "tags": ["x"]}, "line 2 has no label"), ({"question": " "}, "'question' is empty"),
        ('{"id": "q2", "facts": ["a"]}', "the key 'question' is missing"),
        ('{"question": "a?", "facts": ["a"]}', "the key 'id' is missing"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_line(tmp_path, line, says):
    message = fault(write(tmp_path, GOOD, line if isinstance(line, str) else {**GOOD, "id": "q2", **line}))
    assert "labelled.jsonl line 2" in message and says in message


def test_a_missing_an_empty_and_an_unreadable_file_are_told_apart(tmp_path):
    told = fault(tmp_path / "none.jsonl")
    assert "There are no labelled questions" in told and "ragc data draft" in told
    assert "holds no questions" in fault(write(tmp_path, "", ""))
    assert "cannot be read" in fault(tmp_path)
    path = write(tmp_path, GOOD)
    path.write_bytes(path.read_bytes() + b'\n{"id": "\xff"}')
    assert "line 2 is not UTF-8" in fault(path)
