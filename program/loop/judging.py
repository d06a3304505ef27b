"""The judge: which passages help, whether they suffice, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ragc.answer import Round
from ragc.loop.decide import Verdict, wants_query
from ragc.loop.decisions import is_undecided, read_chances
from ragc.loop.evidence import keep_helpful, keep_unjudged
from ragc.loop.state import Ask, Flow, State, StepFailed, format_share, list_ids
from ragc.passage import Passage

Judgement = tuple[Any, Mapping[str, Any] | None]
"""The decision whether the kept passages suffice, and what is missing; None where that was not asked yet."""


def judge_evidence(state: State) -> Flow[None]:
    """Judge the new passages, then those kept, and learn what is missing.

    Nothing is concluded from a judgement that cannot be read; where that is all there is, it raises `StepFailed`.
    """
    tuning = state.tuning
    if not tuning.judge:
        keep_unjudged(state, max(tuning.keep_at_most, tuning.k) if tuning.route else tuning.k)
        state.verdict = Verdict(True, 1.0, len(state.kept))
        state.rounds.append(Round(1.0, list_ids(state.kept)))
        return
    sufficient, hint = yield from (_judge_at_once(state) if state.at_once else _judge_one_by_one(state))
    if is_undecided(sufficient):
        raise StepFailed("judge.sufficiency", "no reply that can be read")
    verdict = Verdict(bool(sufficient.value), float(sufficient.probability), len(state.kept))
    if wants_query(verdict, state.progress, tuning, state.max_rounds, state.tripped()):
        if hint is None:
            (hint,) = yield [Ask("judge.missing", {"question": state.question, "passages": [*state.kept]})]
        query = hint["next_query"].strip()
        verdict = replace(verdict, missing=hint["missing"].strip(), next_queries=(query,) if query else ())
    state.verdict = verdict
    state.missing = verdict.missing if verdict.sufficient else verdict.missing or state.missing
    state.path.append(_note_verdict(verdict))
    state.rounds.append(Round(verdict.sufficiency, list_ids(state.kept)))


def _judge_one_by_one(state: State) -> Flow[Judgement]:
    yield from _judge_passages(state)
    return (yield from _judge_kept(state))


def _judge_at_once(state: State) -> Flow[Judgement]:
    """Judge everything in one call; what it cannot tell of the passages that are kept is asked one by one."""
    new = {passage.id for key in state.new for passage in state.ranked[key]} | set(list_ids(state.kept))
    threshold = state.program.threshold("judge.relevance", "relevant")
    shown = [p for p in state.found if p.id in new or state.relevant.get(p.id, 0.0) >= threshold]
    if not state.filters:
        shown = state.found[: state.tuning.keep_at_most]
    (reply,) = yield [_ask_evidence(state, shown)]
    if reply is None:
        state.at_once = False
        return (yield from _judge_one_by_one(state))
    _note_relevance(state, shown, reply)
    left_out = any(state.relevant.get(p.id, 1.0) >= threshold and p not in state.kept for p in shown)
    if state.filters and left_out:
        return (yield from _judge_kept(state))
    above = state.program.threshold("judge.sufficiency", "sufficient")
    (sufficient,) = read_chances(reply["sufficient"], 1, above)
    return sufficient, reply


def _judge_passages(state: State) -> Flow[None]:
    """Judge the passages of the new searches, and keep what helps."""
    pairs = [(query, passage) for name, query in state.new for passage in state.ranked[name, query]]
    if not state.filters:
        state.new = []
        keep_helpful(state, 0.0)
        return
    if state.at_once and pairs:
        shown = list({passage.id: passage for _, passage in pairs}.values())
        (reply,) = yield [_ask_evidence(state, shown)]
        state.at_once = reply is not None
        if state.at_once:
            _note_relevance(state, shown, reply)
            return
    replies = yield [Ask("judge.relevance", {"question": query, "passage": passage}) for query, passage in pairs]
    _note_decisions(state, [passage for _, passage in pairs], [reply["relevant"] for reply in replies])


def _note_relevance(state: State, shown: Sequence[Passage], reply: Mapping[str, Any]) -> None:
    threshold = state.program.threshold("judge.relevance", "relevant")
    _note_decisions(state, shown, read_chances(reply["relevant"], len(shown), threshold))


def _note_decisions(state: State, passages: Sequence[Passage], decisions: Sequence[Any]) -> None:
    """Note how probably passages help, and keep of all that was found what does."""
    state.new = []
    for passage, decision in zip(passages, decisions, strict=True):
        if not is_undecided(decision):
            state.relevant[passage.id] = max(state.relevant.get(passage.id, 0.0), decision.probability)
    if state.filters and state.found and not state.relevant:
        raise StepFailed("judge.relevance", "no reply that can be read")
    keep_helpful(state, state.program.threshold("judge.relevance", "relevant"))


def _judge_kept(state: State) -> Flow[Judgement]:
    (reply,) = yield [Ask("judge.sufficiency", {"question": state.question, "passages": [*state.kept]})]
    return reply["sufficient"], None


def _ask_evidence(state: State, shown: Sequence[Passage]) -> Ask:
    return Ask("judge.evidence", {"question": state.question, "passages": [*shown]})


def _note_verdict(verdict: Verdict) -> str:
    """Return the path's note of a judgement: `judge .41 missing "enterprise"`."""
    missing = f' missing "{verdict.missing}"' if verdict.missing else ""
    return f"judge {format_share(verdict.sufficiency)}{missing}"
