"""Reviewed answers that a version carries, and `ragc answers`, which lists, pins and retires them."""

import json

import pytest

from ragc.optimize.labelled.dataset import read_labelled
from ragc.optimize.labelled.reviewed import hold_out
from ragc.serve.opening import open_program
from tests.optimize.conftest import invoke, invoke_json, manifest_of

WREN, POWER = "How many watts does the Wren draw?", "product/kettles.md#power"


def test_a_version_carries_the_answers_of_its_labels_and_an_evaluation_meets_none_of_its_own(rag, compiled):
    questions = read_labelled(compiled / "labelled.jsonl")
    given = {question.id: rag(*question.asked).reviewed for question in questions}
    assert {id_ for id_, reviewed in given.items() if reviewed} == {"q1", "q3", "q4", "q5", "q6"}  # q2 is a sum
    assert manifest_of(compiled, "shop@v2").section("reviewed")["answers"] == 5
    held_out = hold_out(rag, questions)
    assert not any(held_out(*question.asked).reviewed for question in questions)
    assert invoke_json("eval", "shop@v2", "--artifacts", compiled / "artifacts")["reviewed"] == 0


def test_what_is_pinned_is_given_until_it_is_retired(own_shop):
    shown = invoke_json("answers", own_shop, "--pin", WREN, "--says", "It draws 1 kW.", "--cites", POWER)
    (pinned,) = shown
    assert (pinned["question"], pinned["unused"], pinned["answer"]) == (WREN, "", "It draws 1 kW.")
    assert open_program(own_shop)(WREN).text == "It draws 1 kW [1]." and WREN in invoke("answers", own_shop).stdout
    (retired,) = invoke_json("answers", own_shop, "--retire", pinned["id"])
    assert retired["unused"] == "it was retired" and open_program(own_shop)(WREN).reviewed is None
    assert json.loads(invoke("data", "check", own_shop, "--json").stdout)["reviewed"] == 0


@pytest.mark.parametrize(
    "given",
    [
        ("--pin", WREN, "--says", "It draws 1 kW."),
        ("--pin", WREN, "--says", "It draws 1 kW.", "--cites", "no/such.md#one"),
        ("--pin", WREN, "--says", " ", "--cites", POWER),
        ("--pin", WREN, "--says", "It draws 1 kW.", "--cites", POWER, "--until", "soon"),
        ("--retire", "no-such"),
        ("--pin", WREN, "--retire", "no-such"),
    ],
)
def test_what_cannot_be_pinned_or_retired_is_refused(own_shop, given):
    assert invoke("answers", own_shop, *given).exception and not (own_shop / "reviewed.jsonl").exists()
