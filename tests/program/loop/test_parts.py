"""Each part of a question is answered, or named as not found."""

import pytest

from ragc.answer import Answer, Outcome
from ragc.optimize.evaluation.grades import grade_answer, score_support
from ragc.optimize.labelled.dataset import LabelledQuestion
from ragc.settings import UtilitySettings
from tests.support.documents import open_documents

ABOUT = "what the pool offers"
POOL = (
    "# Pool\n\n## Prices\n\nA month costs 32 euros. A single visit costs 6 euros.\n\n## Joining\n\n"
    "The joining fee is 15 euros. Children join free.\n\n## Hours\n\nThe pool is open from 7 to 21.\n"
)
ASKED = [
    ("What does a month cost, and is there a joining fee, and do I need a cap?", ["32", "15"], "do I need a cap?"),
    ("When is the pool open and who teaches the crawl?", ["7 to 21"], "who teaches the crawl?"),
    ("When are you open? What does a month cost?", ["7 to 21", "32"], ""),
    ("What does a single visit cost?", ["6 euros"], ""),
    ("What does a single visit cost? And lockers?", ["6 euros"], "And lockers?"),
]


@pytest.mark.parametrize(("question", "values", "lacking"), ASKED)
def test_each_part_is_answered_or_named_as_not_found(tmp_path, question, values, lacking):
    answer = open_documents(tmp_path, {"pool.md": POOL}, ABOUT)(question)
    assert answer.outcome is Outcome.ANSWERED and all(value in answer.text for value in values)
    named = f"I could not find “{lacking}” in the knowledge I have." if lacking else ""
    assert answer.text.endswith(named) and answer.text.count("could not find") == bool(lacking)


def test_a_part_that_is_named_as_not_found_is_no_claim_and_no_padding():
    labelled = LabelledQuestion(id="1", question="How much, and who?", facts=["32 euros"], not_facts=["a cap"])
    told = "A month costs 32 euros [1]."
    part = f"{told} I could not find “do I need a cap” in the knowledge I have."
    answers = [Answer(text=text, outcome=Outcome.ANSWERED, retrieved=("docs/a#b",)) for text in (told, part)]
    assert len({grade_answer(labelled, one, UtilitySettings()).utility for one in answers}) == 1
    assert len({score_support(one, labelled.question, lambda _: POOL) for one in answers}) == 1
