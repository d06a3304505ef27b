"""The next action: ends, never repeats, and says why."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from program.answer import StoppedBy
from program.loop.decide import (
    AskBack,
    GiveUp,
    LoopProgress,
    SearchAgain,
    SearchNewer,
    SwitchStrategy,
    Verdict,
    WriteUp,
    decide,
    find_doubt,
    wants_query,
)
from program.loop.policy import Policy, Tuning

TUNING: Tuning = Policy().tuning()
LETTERS = ["a", "b", "c", "d", "e"]
STRATEGIES = ("vector", "web", "tables")
probabilities = st.floats(0, 1)
queries = st.lists(st.sampled_from(["", *LETTERS]), max_size=3).map(tuple)
verdicts = st.builds(
    Verdict,
    st.booleans(),
    probabilities,
    st.integers(0, 8),
    st.sampled_from(["", "the price"]),
    queries,
    probabilities,
    probabilities,
    probabilities,
    st.sampled_from(["", "x and y"]),
)
progresses = st.builds(
    LoopProgress,
    st.integers(0, 6),
    st.frozensets(st.tuples(st.sampled_from(["", *STRATEGIES]), st.sampled_from(LETTERS))),
    st.none() | probabilities,
    st.sampled_from(["", *STRATEGIES]),
    st.lists(st.sampled_from(STRATEGIES), unique=True).map(tuple),
    probabilities,
    st.booleans(),
)
tunings = st.builds(
    lambda rounds, gain, above, fresh, clarify, part: replace(
        TUNING,
        max_rounds=rounds,
        min_gain=gain,
        generate_above=above,
        fresh_above=fresh,
        clarify_above=clarify,
        each_part=part,
    ),
    st.integers(1, 4),
    st.floats(0, 0.5),
    *[probabilities] * 3,
    st.integers(0, 1),
)
tripped = st.none() | st.sampled_from([StoppedBy.SECONDS, StoppedBy.TOKENS, StoppedBy.USD])
SEARCHES = (SearchAgain, SwitchStrategy, SearchNewer)


@given(verdicts, progresses, tunings, st.integers(1, 5), tripped)
def test_a_search_is_within_every_cap_and_new(verdict, progress, tuning, cap, trip):
    action = decide(verdict, progress, tuning, cap, trip)
    if isinstance(action, SEARCHES):
        assert trip is None
        assert progress.rounds < min(cap, tuning.max_rounds)
    if isinstance(action, SearchAgain):
        assert action.queries
        assert all(query and (progress.strategy, query) not in progress.tried for query in action.queries)
        assert len(set(action.queries)) == len(action.queries)
    if isinstance(action, SwitchStrategy):
        assert action.strategy in progress.untried
    if isinstance(action, SearchNewer):
        assert not progress.settled


def after(progress: LoopProgress, action: SearchAgain | SwitchStrategy | SearchNewer, verdict: Verdict) -> LoopProgress:
    """Where the loop stands once the action was performed."""
    progress = replace(progress, rounds=progress.rounds + 1, previous=verdict.sufficiency)
    if isinstance(action, SearchNewer):
        return replace(progress, settled=True, tried=progress.tried | {("newer", "question")})
    if isinstance(action, SwitchStrategy):
        left = tuple(name for name in progress.untried if name != action.strategy)
        tried = progress.tried | {(action.strategy, "question")}
        return replace(progress, strategy=action.strategy, untried=left, tried=tried)
    return replace(progress, tried=progress.tried | {(progress.strategy, query) for query in action.queries})


@given(st.lists(verdicts, min_size=10, max_size=10), progresses, tunings, st.integers(1, 5))
def test_from_every_state_it_ends_within_the_caps_and_tries_nothing_twice(sequence, progress, tuning, cap):
    start = progress.rounds
    for done, verdict in enumerate(sequence):
        action = decide(verdict, progress, tuning, cap)
        if not isinstance(action, SEARCHES):
            assert done <= max(0, min(cap, tuning.max_rounds) - start)
            return
        moved = after(progress, action, verdict)
        assert len(moved.tried) > len(progress.tried) or moved.settled
        progress = moved
    raise AssertionError("did not end")


@given(verdicts, progresses, tunings, st.integers(1, 5), tripped)
def test_whatever_ends_on_evidence_that_is_not_sound_says_what_stopped_the_search(verdict, progress, tuning, cap, trip):
    action = decide(verdict, progress, tuning, cap, trip)
    if isinstance(action, SEARCHES) or (verdict.sufficient and not find_doubt(verdict, tuning)):
        return
    if isinstance(action, WriteUp):
        assert verdict.kept and (trip or verdict.sufficient or verdict.sufficiency >= tuning.generate_above)
    assert action.stopped_by in ({trip} if trip else {StoppedBy.ROUNDS, StoppedBy.GAIN})
    if trip:
        assert isinstance(action, WriteUp) == (verdict.kept > 0)


@given(verdicts, progresses, tunings, st.integers(1, 5), tripped)
def test_a_query_is_asked_for_only_where_it_would_be_used(verdict, progress, tuning, cap, trip):
    progress = replace(progress, previous=None, tried=frozenset())
    wanted = wants_query(replace(verdict, next_queries=()), progress, tuning, cap, trip)
    action = decide(replace(verdict, next_queries=("a",)), progress, tuning, cap, trip)
    assert wanted == isinstance(action, SearchAgain)


def test_a_spent_budget_makes_do_with_what_there_is_and_says_so():
    verdict = Verdict(False, 0.4, 2, "price", ("price of pro",))
    action = decide(verdict, LoopProgress(1, frozenset()), TUNING, 3, StoppedBy.SECONDS)
    assert action == WriteUp(StoppedBy.SECONDS, "the budget for seconds is spent")


def test_no_evidence_at_all_is_an_abstention():
    assert isinstance(decide(Verdict(False, 0.0, 0, "price"), LoopProgress(2, frozenset()), TUNING, 2), GiveUp)


def test_too_small_a_gain_ends_the_search():
    tuning = replace(TUNING, min_gain=0.2, max_rounds=4)
    progress = LoopProgress(2, frozenset({("", "a")}), previous=0.35)
    action = decide(Verdict(False, 0.4, 2, "price", ("b",)), progress, tuning, 4)
    assert isinstance(action, WriteUp) and action.stopped_by is StoppedBy.GAIN


def test_poor_evidence_for_a_question_that_may_be_vague_is_asked_back_about():
    tuning = replace(TUNING, clarify_above=0.3, max_rounds=2)
    poor = Verdict(False, 0.1, 2)
    assert isinstance(decide(poor, LoopProgress(2, frozenset(), vagueness=0.4), tuning, 2), AskBack)
    assert not isinstance(decide(poor, LoopProgress(2, frozenset(), vagueness=0.2), tuning, 2), AskBack)
