"""The loop: what to ask and what to look up next, until there is an answer. It performs nothing itself.

`steps` yields requests and receives replies; a driver performs them. The same generator therefore runs live,
asynchronously, streaming, or from a record.
"""

from __future__ import annotations

from collections.abc import Callable

from program.answer import Outcome, StoppedBy
from program.loop.decide import Clarify, Generate, Search, Settle, Switch, Verdict, decide
from program.loop.evidence import first_look, rank
from program.loop.freshness import need
from program.loop.grounding import draft_request, write
from program.loop.judging import judge
from program.loop.modules import Plan, look_ups
from program.loop.requests import DEPTH, Ask, Find, Part, Reply, Request, StepFailed, Steps
from program.loop.retrieval import search, search_newer, search_plan
from program.loop.state import Program, State, share

__all__ = ["DEPTH", "Ask", "Find", "Program", "Reply", "Request", "StepFailed", "Steps", "steps"]

DIRECT_CONFIDENCE = 0.9


def steps(
    question: str,
    program: Program,
    max_rounds: int = 10,
    tripped: Callable[[], StoppedBy | None] = lambda: None,
    path: list[str] | None = None,
    foresees: bool = False,
) -> Steps:
    """Yields requests and returns the answer; `path` is filled with the readable trace as it grows.

    `foresees` says that the driver can use word of what is likely to be asked next.
    """
    path = [] if path is None else path
    state = State.of(question, program, need(question), max_rounds, tripped, path)
    state.foresees = foresees
    try:
        return (yield from _agentic(state))
    except StepFailed as failure:
        path.append(f"failed: {failure}")
    try:
        return (yield from _fallback(state))
    except StepFailed as failure:
        path.append(f"failed: {failure}")
        return state.abstention("", 0.0, StoppedBy.FALLBACK)


def _agentic(state: State) -> Steps:
    question, tuning = state.question, state.tuning
    yield from _first_look(state)
    if state.plan.vague and not _rather_direct(state.plan):
        state.path.append(f"clarify ({share(state.plan.vagueness)})")
        state.kept = first_look(state.pool or ())
        state.ranked[state.strategy.name, question] = state.kept
        return (yield from _clarify(state))
    if tuning.route and state.plan.route == "direct":
        (reply,) = yield [Ask("generator.direct", {"question": question})]
        if text := reply["answer"].strip():
            state.path.append("unretrieved")
            return state.answer(text, Outcome.ANSWERED, DIRECT_CONFIDENCE)
        state.path.append("no direct answer")
        if not tuning.look_up_unknown:
            return state.abstention("", 0.5)
    if tuning.one_strategy:
        state.order = state.promising
        state.strategy = state.order[0]
    if tuning.decompose and state.plan.route == "complex":
        (reply,) = yield [Ask("decomposer.split", {"question": question})]
        state.look_ups = look_ups(reply)
    yield from search_plan(state)
    if tuning.judge and state.plan.route == "simple" and state.plan.confidence > tuning.fast_above:
        state.kept = state.found[: tuning.keep_at_most]
        state.verdict = Verdict(True, state.plan.confidence, len(state.kept))
        answer = yield from write(state, StoppedBy.DONE)
        if answer is not None:
            return answer
        state.path.append("unsure")
    return (yield from _rounds(state))


def _rather_direct(plan: Plan) -> bool:
    """Whether it is likelier that no look-up is needed than that the question is vague: what is there to ask back?"""
    return plan.route == "direct" and plan.confidence > plan.vagueness


def _first_look(state: State) -> Part:
    """The question's own pool, and the plan; the classifier sees the pool, or thinks while it is searched."""
    question, find = state.question, Find(state.question, state.program.sources)
    if not state.tuning.route:
        (state.pool,) = yield [find]
        return
    if state.tuning.glimpse:
        (state.pool,) = yield [find]
        (evidence,) = yield [Ask("classifier.route", {"question": question, "glimpse": first_look(state.pool or ())})]
    else:
        state.pool, evidence = yield [find, Ask("classifier.route", {"question": question, "glimpse": []})]
    state.plan = state.program.classifier.plan(evidence)
    state.path.append(_plan_note(state.plan))


def _rounds(state: State) -> Steps:
    """Judges what was searched, and does what `decide` says until there is an answer."""
    while True:
        if state.tripped() is StoppedBy.SECONDS:
            return (yield from _out_of_time(state))
        yield from judge(state)
        action = decide(state.verdict, state.progress, state.tuning, state.max_rounds, state.tripped())
        if isinstance(action, Search | Switch | Settle):
            state.previous = state.verdict.sufficiency
            if isinstance(action, Settle):
                yield from search_newer(state)
            elif isinstance(action, Search):
                yield from search(state, action.queries)
            else:
                state.strategy = next(s for s in state.order if s.name == action.strategy)
                state.path.append(f"switch->{action.strategy}")
                yield from search(state, state.queries or [state.question])
            continue
        if isinstance(action, Generate):
            return (yield from _written(state, action.stopped_by))
        if isinstance(action, Clarify):
            state.path.append("clarify")
            return (yield from _clarify(state, action.stopped_by))
        return state.abstention(state.missing, 1.0 - state.verdict.sufficiency, action.stopped_by)


def _out_of_time(state: State) -> Steps:
    """What can be written from the best so far: what was judged, else what was found, of which nobody is sure."""
    if not state.rounds:
        state.kept = state.found[: state.tuning.keep_at_most]
        state.verdict = Verdict(False, 0.0, len(state.kept))
    return (yield from _written(state, StoppedBy.SECONDS))


def _written(state: State, stopped_by: StoppedBy) -> Steps:
    """The answer; when nothing of it can be upheld, what is known to be missing."""
    answer = yield from write(state, stopped_by)
    return answer or state.abstention(state.missing, 1.0 - state.verdict.sufficiency, stopped_by)


def _clarify(state: State, stopped_by: StoppedBy = StoppedBy.DONE) -> Steps:
    """One question back, naming the options found; what it is made of counts as found, not as cited."""
    (reply,) = yield [Ask("generator.clarify", {"question": state.question, "passages": state.kept})]
    state.kept = []
    text = reply["clarifying_question"]
    return state.answer(text, Outcome.CLARIFY, state.plan.vagueness, stopped_by=stopped_by)


def _fallback(state: State) -> Steps:
    """Plain RAG with what is there: at most one search, one text, nothing judged."""
    if not state.ranked:
        if state.pool is None:
            (state.pool,) = yield [Find(state.question, state.program.sources)]
        state.ranked[state.strategy.name, state.question] = rank(state.pool or (), state.tuning)
    state.kept = state.kept or state.found[: state.tuning.k]
    state.conflicts = []
    state.path.append("fallback")
    text = ""
    if state.kept:
        (reply,) = yield [draft_request(state, strict=False)]
        text = reply["answer"].strip()
    if not text:
        return state.abstention("", 0.0, StoppedBy.FALLBACK)
    return state.answer(text, Outcome.ANSWERED, 0.0, state.kept, StoppedBy.FALLBACK)


def _plan_note(plan: Plan) -> str:
    """`classify->complex[billing,product]`."""
    return f"classify->{plan.route}[{','.join(plan.bases)}]"
