"""Judge and ground: a fast path, parts, only what helps, what is missing, and no claim without support."""

from scripted import Scripted, noul, of_request, passage, planned, scores

from program.answer import Outcome, StoppedBy
from program.loop.policy import PRESETS
from program.passage import SourceCard

CARDS = [SourceCard("docs", "documents", "contracts")]
POOL = [passage("docs/consumer.md#a", dense=0.9), passage("docs/enterprise.md#b", dense=0.8)]
COMPLEX = {"classifier.route": planned("complex", docs=0.9)}


def design(changed=None, pool=POOL, **knobs: float) -> Scripted:
    return Scripted({**COMPLEX, **(changed or {})}, cards=CARDS, pool=pool, **{**PRESETS["judge-and-ground"], **knobs})


def supports(*words: str) -> of_request:
    """A grounder that upholds the claims with one of these words."""
    return of_request(lambda ask: {"supported": noul(0.9 if any(w in ask.inputs["claim"] for w in words) else 0.1)})


def test_a_simple_question_takes_the_fast_path_of_one_search_and_no_judge():
    program = design({"classifier.route": planned("simple", sure=0.9, docs=0.9)})
    answer = program("What is the refund period?")
    assert len(program.found) == 1
    assert not [name for name in program.asked if name.startswith("judge")]
    assert answer.outcome is Outcome.ANSWERED


def test_a_classifier_that_is_unsure_of_simple_has_the_evidence_judged():
    program = design({"classifier.route": planned("simple", sure=0.45, docs=0.9)})
    program("What is the refund period?")
    assert "judge.sufficiency" in program.asked


def test_a_fast_answer_without_support_is_not_given_but_judged_and_written_anew():
    support = {"grounder.support": lambda n: {"supported": noul(0.1 if n <= 4 else 0.9)}}
    program = design({"classifier.route": planned("simple", sure=0.9, docs=0.9), **support}, search_claims=0)
    answer = program("What is the refund period?")
    assert "unsure" in program.path and "judge.sufficiency" in program.asked
    assert answer.outcome is Outcome.ANSWERED


def test_a_fast_answer_whose_claims_are_looked_up_has_all_of_its_evidence_judged():
    support = {"grounder.support": {"supported": noul(0.1)}}
    found = {"Text 0.": passage("docs/other.md#c")}
    program = design(
        {"classifier.route": planned("simple", sure=0.9, docs=0.9), **support},
        pool=lambda find: [found[find.query]] if find.query in found else POOL,
    )
    program("What is the refund period?")
    judged = {inputs["passage"].id for inputs in program.inputs("judge.relevance")}
    assert judged == {"docs/consumer.md#a", "docs/enterprise.md#b", "docs/other.md#c"}


def test_what_the_judge_finds_beside_the_point_never_reaches_the_writer():
    helps = of_request(lambda ask: {"relevant": noul(0.9 if "enterprise" in ask.inputs["passage"].id else 0.1)})
    program = design({"judge.relevance": helps})
    program("What is our refund policy for enterprise contracts?")
    (inputs,) = program.inputs("generator.answer")[:1]
    assert [p.id for p in inputs["passages"]] == ["docs/enterprise.md#b"]


def test_the_judge_sees_the_very_passages_that_the_writer_will():
    program = design()
    program("Compare the two policies.")
    assert program.inputs("judge.sufficiency")[-1]["passages"] == program.inputs("generator.answer")[0]["passages"]


def test_a_missing_piece_is_looked_up_with_the_judges_query():
    program = design({"judge.sufficiency": scores(0.41, 0.83)})
    program("Compare the two policies.")
    assert program.path[:6] == [
        "classify->complex[docs]", "search(2)", 'judge .41 missing "the price"', "search(1)", "judge .83", "generate",
    ]  # fmt: skip


def test_an_unsupported_claim_is_written_strictly_then_looked_up_then_withdrawn():
    program = design(
        {"generator.answer": {"answer": "Sure thing. [1] Made up. [2]"}, "grounder.support": supports("Sure")},
        pool=lambda find: [*POOL, passage("docs/other.md#c")] if find.query == "Made up." else POOL,
    )
    answer = program("Compare the two policies.")
    after = program.path[program.path.index("generate") :]
    assert after == [
        "generate", "ground 1/2", "generate strictly", "ground 1/2", "search claim(1)", "generate strictly",
        "ground 1/2", "responsive .80",
    ]  # fmt: skip
    assert "Made up" not in answer.text
    assert answer.supported == 0.5


def test_a_claim_that_a_further_search_supports_stays():
    drafts = {"generator.answer": lambda n: {"answer": "Sure. [1] Rare. [2]" if n < 3 else "Sure. [1] Rare. [3]"}}
    support = of_request(
        lambda ask: {"supported": noul(0.9 if "Sure" in ask.inputs["claim"] or len(POOL) < len(kept) else 0.1)}
    )
    kept: list[str] = []

    def pool(find):
        if find.query == "Rare.":
            kept[:] = ["a", "b", "c"]
            return [*POOL, passage("docs/other.md#c")]
        return POOL

    answer = design({**drafts, "grounder.support": support}, pool=pool)("Compare the two policies.")
    assert answer.supported == 1.0
    assert "docs/other.md#c" in [citation.id for citation in answer.citations]


def test_a_claim_is_looked_up_once_however_often_it_is_drafted():
    """By the fast path first, then again once the judge has had its say; twice in each draft."""
    program = design(
        {
            "classifier.route": planned("simple", sure=0.9, docs=0.9),
            "generator.answer": {"answer": "Made up. [1] Made up. [2]"},
            "grounder.support": {"supported": noul(0.1)},
            "judge.missing": {"missing": "it", "next_query": ""},
        }
    )
    program("What does it cost?")
    assert "unsure" in program.path
    assert program.path.count("generate") == 2
    assert [find.query for find in program.found] == ["What does it cost?", "Made up."]
    assert [note for note in program.path if note.startswith("search claim")] == ["search claim(1)"]


def test_a_claim_that_was_a_query_before_is_not_searched_a_second_time():
    program = design(
        {
            "judge.sufficiency": scores(0.2, 0.9),
            "judge.missing": {"missing": "it", "next_query": "Made up."},
            "generator.answer": {"answer": "Sure. [1] Made up. [2]"},
            "grounder.support": supports("Sure"),
        }
    )
    program("What does it cost?")
    assert "search claim(1)" in program.path
    assert [find.query for find in program.found].count("Made up.") == 1


def test_no_round_is_left_for_the_claim_when_the_rounds_are_spent():
    program = design({"grounder.support": {"supported": noul(0.1)}}, max_rounds=1)
    answer = program("Compare the two policies.")
    assert not [note for note in program.path if note.startswith("search claim")]
    assert answer.outcome is Outcome.ABSTAIN


def test_a_judge_that_cannot_be_read_is_no_score():
    """A parse failure is neither sufficient nor insufficient: nothing is judged, and the answer says so."""
    program = design()
    answer = program("Compare.", fail=lambda r: getattr(r, "predictor", "") == "judge.sufficiency")
    assert answer.stopped_by is StoppedBy.FALLBACK
    assert answer.confidence == 0.0
    assert not answer.rounds
    assert [note for note in program.path if note.startswith("judge")] == []


def test_a_judge_that_always_says_no_ends_at_the_cap():
    fresh = {"judge.missing": lambda n: {"missing": "x", "next_query": f"try {n}"}}
    program = design({"judge.sufficiency": scores(0.2), **fresh})
    assert program("Compare the two.").stopped_by is StoppedBy.ROUNDS
    assert sum(note.startswith("search(") for note in program.path) == 3
