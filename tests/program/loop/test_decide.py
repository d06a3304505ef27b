"""The next action: ends, never repeats, and says why."""

from dataclasses import replace
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from program.answer import StoppedBy
from program.loop.decide import LoopProgress, Move, Verdict, decide, is_sound, wants_query
from program.loop.policy import Policy

TUNING = Policy().tuning()
SEARCHES = (Move.SEARCH, Move.SEARCH_NEWER, Move.SWITCH)
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
    partial(replace, TUNING),
    max_rounds=st.integers(1, 4),
    min_gain=st.floats(0, 0.5),
    each_part=st.integers(0, 1),
    **dict.fromkeys(("generate_above", "fresh_above", "clarify_above"), probabilities),
)
tripped = st.none() | st.sampled_from([StoppedBy.SECONDS, StoppedBy.TOKENS, StoppedBy.USD])


@given(verdicts, progresses, tunings, st.integers(1, 5), tripped)
def test_a_search_is_within_every_cap_and_new(verdict, progress, tuning, cap, trip):
    action = decide(verdict, progress, tuning, cap, trip)
    if action.move in SEARCHES:
        assert trip is None
        assert progress.rounds < min(cap, tuning.max_rounds)
    if action.move is Move.SEARCH:
        assert action.queries and len(set(action.queries)) == len(action.queries)
        assert all(query and (progress.strategy, query) not in progress.tried for query in action.queries)
    if action.move is Move.SWITCH:
        assert action.strategy in progress.untried
    if action.move is Move.SEARCH_NEWER:
        assert not progress.settled


def after(progress, action, verdict):
    """Where the loop stands once the action was performed."""
    progress = replace(progress, rounds=progress.rounds + 1, previous=verdict.sufficiency)
    if action.move is Move.SEARCH_NEWER:
        return replace(progress, settled=True, tried=progress.tried | {("newer", "question")})
    if action.move is Move.SWITCH:
        left = tuple(name for name in progress.untried if name != action.strategy)
        tried = progress.tried | {(action.strategy, "question")}
        return replace(progress, strategy=action.strategy, untried=left, tried=tried)
    return replace(progress, tried=progress.tried | {(progress.strategy, query) for query in action.queries})


@given(st.lists(verdicts, min_size=10, max_size=10), progresses, tunings, st.integers(1, 5))
def test_from_every_state_it_ends_within_the_caps_and_tries_nothing_twice(sequence, progress, tuning, cap):
    start = progress.rounds
    for done, verdict in enumerate(sequence):
        action = decide(verdict, progress, tuning, cap)
        if action.move not in SEARCHES:
            assert done <= max(0, min(cap, tuning.max_rounds) - start)
            return
        moved = after(progress, action, verdict)
        assert len(moved.tried) > len(progress.tried) or moved.settled
        progress = moved
    raise AssertionError("did not end")


@given(verdicts, progresses, tunings, st.integers(1, 5), tripped)
def test_whatever_ends_on_evidence_that_is_not_sound_says_what_stopped_the_search(verdict, progress, tuning, cap, trip):
    action = decide(verdict, progress, tuning, cap, trip)
    if action.move in SEARCHES or (verdict.sufficient and is_sound(verdict, tuning)):
        return
    if action.move is Move.WRITE:
        assert verdict.kept and (trip or verdict.sufficient or verdict.sufficiency >= tuning.generate_above)
    assert action.stopped_by in ({trip} if trip else {StoppedBy.ROUNDS, StoppedBy.GAIN})
    if trip:
        assert (action.move is Move.WRITE) == (verdict.kept > 0)


@given(verdicts, progresses, tunings, st.integers(1, 5), tripped)
def test_a_query_is_asked_for_only_where_it_would_be_used(verdict, progress, tuning, cap, trip):
    progress = replace(progress, previous=None, tried=frozenset())
    wanted = wants_query(replace(verdict, next_queries=()), progress, tuning, cap, trip)
    action = decide(replace(verdict, next_queries=("a",)), progress, tuning, cap, trip)
    assert wanted == (action.move is Move.SEARCH)
