"""Claims and citations."""

from hypothesis import example, given
from hypothesis import strategies as st

from program.loop.grounding import cite_passages, split_claims, statements
from program.passage import Passage

PASSAGES = [Passage(f"a/b.md#{n}", "a", f"title {n}", f"text {n}") for n in range(1, 4)]


def test_an_answer_is_split_at_its_marks():
    found = split_claims("One thing. [1] Another thing, of two passages. [2][3] And more.")
    assert [(c.bare, c.cites) for c in found] == [
        ("One thing.", (1,)),
        ("Another thing, of two passages.", (2, 3)),
        ("And more.", ()),
    ]


def test_marks_are_renumbered_in_order_of_use():
    text, citations = cite_passages("B. [3] A. [1] B again. [3]", PASSAGES)
    assert text == "B. [1] A. [2] B again. [1]"
    assert [(c.n, c.id) for c in citations] == [(1, "a/b.md#3"), (2, "a/b.md#1")]


@given(st.text(alphabet="ab .[]0123456789", max_size=60))
@example("[[0]0]")
@example("[[0]1]")
def test_every_mark_left_in_an_answer_has_its_citation(answer):
    text, citations = cite_passages(answer, PASSAGES)
    known = {c.n for c in citations}
    assert known == set(range(1, len(citations) + 1))
    assert {n for claim in split_claims(text) for n in claim.cites} <= known


@given(st.text(max_size=80))
def test_no_text_is_lost_in_splitting(answer):
    joined = "".join(claim.text for claim in split_claims(answer))
    assert "".join(joined.split()) == "".join(answer.split())


def test_a_claim_is_judged_under_the_title_of_the_first_passage_it_cites():
    said = statements(split_claims("One. [2][1] Two. [3] Cites nothing that exists. [9] And nothing at all."), PASSAGES)
    assert [(s.title, s.text) for s in said] == [
        ("title 2", "One."), ("title 3", "Two."), ("", "Cites nothing that exists."), ("", "And nothing at all."),
    ]  # fmt: skip
