"""The next action: ends, never repeats, and says why."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from program.answer import StoppedBy
from program.decide import Abstain, Clarify, Generate, Progress, Search, Verdict, decide
from program.knobs import Policy, Tuning

TUNING: Tuning = Policy().tuning()
probabilities = st.floats(0, 1)
queries = st.sampled_from(["", "a", "b", "c", "d", "e"])
verdicts = st.builds(Verdict, st.booleans(), probabilities, st.integers(0, 8), st.text(max_size=5), queries)
progresses = st.builds(
    Progress,
    st.integers(0, 6),
    st.frozensets(st.sampled_from(["a", "b", "c", "d", "e"])),
    st.none() | probabilities,
    st.booleans(),
)
tunings = st.builds(
    lambda rounds, gain, above: replace(TUNING, max_rounds=rounds, min_gain=gain, generate_above=above),
    st.integers(1, 4),
    st.floats(0, 0.5),
    probabilities,
)
tripped = st.none() | st.sampled_from([StoppedBy.SECONDS, StoppedBy.TOKENS, StoppedBy.USD])


@given(verdicts, progresses, tunings, st.integers(1, 5), tripped)
def test_a_search_is_within_every_cap_and_new(verdict, progress, tuning, cap, trip):
    action = decide(verdict, progress, tuning, cap, trip)
    if isinstance(action, Search):
        assert trip is None
        assert progress.rounds < min(cap, tuning.max_rounds)
        assert action.query and action.query not in progress.tried


@given(st.lists(verdicts, min_size=10, max_size=10), tunings, st.integers(1, 5))
def test_every_sequence_of_verdicts_ends_within_the_caps(sequence, tuning, cap):
    progress = Progress(1, frozenset({"question"}))
    for rounds, verdict in enumerate(sequence, 1):
        action = decide(verdict, progress, tuning, cap)
        if not isinstance(action, Search):
            assert rounds <= min(cap, tuning.max_rounds)
            return
        progress = Progress(progress.rounds + 1, progress.tried | {action.query}, verdict.sufficiency)
    raise AssertionError("did not end")


@given(verdicts, progresses, tunings, st.integers(1, 5), tripped)
def test_rejected_evidence_is_written_up_only_with_a_reason_in_stopped_by(verdict, progress, tuning, cap, trip):
    action = decide(verdict, progress, tuning, cap, trip)
    if isinstance(action, Generate) and not verdict.sufficient:
        assert action.stopped_by is not StoppedBy.DONE
        assert verdict.kept
        assert verdict.sufficiency >= tuning.generate_above


@given(verdicts, progresses, tunings, st.integers(1, 5), tripped)
def test_the_same_inputs_give_the_same_action(verdict, progress, tuning, cap, trip):
    assert decide(verdict, progress, tuning, cap, trip) == decide(verdict, progress, tuning, cap, trip)


def test_a_vague_question_is_asked_back_before_anything_else():
    vague = Progress(1, frozenset(), None, vague=True)
    assert isinstance(decide(Verdict(True, 1.0, 3), vague, TUNING, 3), Clarify)


def test_a_spent_budget_makes_do_with_what_there_is_and_says_so():
    action = decide(
        Verdict(False, 0.4, 2, "price", "price of pro"),
        Progress(1, frozenset()),
        TUNING,
        3,
        StoppedBy.SECONDS,
    )
    assert action == Generate(StoppedBy.SECONDS, "the budget for seconds is spent")


def test_no_evidence_at_all_is_an_abstention():
    assert isinstance(decide(Verdict(False, 0.0, 0, "price"), Progress(2, frozenset()), TUNING, 2), Abstain)


def test_too_small_a_gain_ends_the_search():
    tuning = replace(TUNING, min_gain=0.2, max_rounds=4)
    progress = Progress(2, frozenset({"a"}), previous=0.35)
    action = decide(Verdict(False, 0.4, 2, "price", "b"), progress, tuning, 4)
    assert isinstance(action, Generate) and action.stopped_by is StoppedBy.GAIN
