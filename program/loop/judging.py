"""The judge: which passages help, whether they suffice and agree, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragc.answer import Round
from ragc.loop.decide import Verdict, wants_query
from ragc.loop.decisions import is_undecided, read_chances
from ragc.loop.evidence import drop_overruled, find_suspects, keep_helpful, keep_unjudged
from ragc.loop.state import Ask, Conflict, Flow, State, StepFailed, format_share, list_ids
from ragc.passage import Passage


@dataclass(frozen=True, slots=True)
class _Judgement:
    """What a judge said of the kept passages, of each look-up judged by itself, and unasked of what is missing."""

    sufficient: Any
    parts: list[tuple[str, Any]]
    conflicts: list[Conflict]
    hints: list[Mapping[str, Any]] | None = None


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
    judged = yield from (_judge_at_once(state) if state.at_once else _judge_one_by_one(state))
    if is_undecided(judged.sufficient):
        raise StepFailed("judge.sufficiency", "no reply that can be read")
    drop_overruled(state, judged.conflicts)
    parts = [(query, decision) for query, decision in judged.parts if not is_undecided(decision)]
    open_parts = [query for query, decision in parts if not decision.value]
    completeness = 1.0 - len(open_parts) / len(parts) if parts else _measure_coverage(state)
    verdict = _make_verdict(state, judged.sufficient, completeness)
    if wants_query(verdict, state.progress, tuning, state.max_rounds, state.tripped()):
        hints = judged.hints
        if hints is None:
            asked = open_parts or [state.question]
            hints = yield [Ask("judge.missing", {"question": q, "passages": [*state.kept]}) for q in asked]
        missing, queries = (
            dict.fromkeys(text for hint in hints if (text := hint[name].strip())) for name in ("missing", "next_query")
        )
        verdict = replace(verdict, missing="; ".join(missing), next_queries=tuple(queries))
    state.verdict = verdict
    lacking = verdict.missing or "; ".join(open_parts) or state.missing
    state.missing = verdict.missing if verdict.sufficient else lacking
    state.path.append(_note_verdict(verdict))
    state.rounds.append(Round(verdict.sufficiency, list_ids(state.kept), verdict.relevance, verdict.completeness))


def _judge_one_by_one(state: State) -> Flow[_Judgement]:
    yield from judge_passages(state)
    return (yield from _judge_kept(state))


def _judge_at_once(state: State) -> Flow[_Judgement]:
    """Judge everything in one call; what it cannot tell of the passages that are kept is asked one by one."""
    new = {passage.id for key in state.new for passage in state.ranked[key]} | set(list_ids(state.kept))
    threshold = state.program.threshold("judge.relevance", "relevant")
    shown = [p for p in state.found if p.id in new or state.relevant.get(p.id, 0.0) >= threshold]
    if not state.filters:
        shown = state.found[: state.tuning.keep_at_most]
    parts = [query for query, _ in _list_parts(state, shown)]
    pairs = find_suspects(state, shown)
    (reply,) = yield [_ask_evidence(state, shown, parts, pairs)]
    if reply is None:
        state.at_once = False
        return (yield from _judge_one_by_one(state))
    _note_relevance(state, shown, reply)
    left_out = any(state.relevant.get(p.id, 1.0) >= threshold and p not in state.kept for p in shown)
    if state.filters and left_out:
        return (yield from _judge_kept(state))
    above = state.program.threshold("judge.sufficiency", "sufficient")
    whole, *rest = read_chances(reply["sufficient"], 1 + len(parts), above)
    above = state.program.threshold("judge.contradiction", "contradict")
    contradict = zip(pairs, read_chances(reply["contradicting"], len(pairs), above), strict=True)
    disputed = [pair for pair, decision in contradict if decision.value]
    conflicts = [pair for pair in disputed if pair.followed in state.kept and pair.overruled in state.kept]
    return _Judgement(whole, list(zip(parts, rest, strict=True)), conflicts, [reply])


def judge_passages(state: State) -> Flow[None]:
    """Judge the passages of the new searches, and keep what helps."""
    pairs = [(query, passage) for name, query in state.new for passage in state.ranked[name, query]]
    if not state.filters:
        state.new = []
        keep_helpful(state, 0.0)
        return
    if state.at_once and pairs:
        shown = list({passage.id: passage for _, passage in pairs}.values())
        (reply,) = yield [_ask_evidence(state, shown, [], [])]
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


def _judge_kept(state: State) -> Flow[_Judgement]:
    """Judge the kept passages: for the question, for each of its parts, and whether any two contradict each other."""
    parts, pairs = _list_parts(state, state.kept), find_suspects(state, state.kept)
    shown = [("judge.sufficiency", query, [*passages]) for query, passages in [(state.question, state.kept), *parts]]
    shown += [("judge.contradiction", state.question, [pair.followed, pair.overruled]) for pair in pairs]
    whole, *rest = yield [Ask(name, {"question": query, "passages": passages}) for name, query, passages in shown]
    of_parts = [(query, reply["sufficient"]) for (query, _), reply in zip(parts, rest, strict=False)]
    of_pairs = zip(pairs, rest[len(parts) :], strict=True)
    return _Judgement(whole["sufficient"], of_parts, [pair for pair, reply in of_pairs if reply["contradict"].value])


def _ask_evidence(state: State, shown: Sequence[Passage], parts: Sequence[str], pairs: Sequence[Conflict]) -> Ask:
    place = {passage.id: n for n, passage in enumerate(shown, 1)}
    questions = [f"{n}. {query}" for n, query in enumerate([state.question, *parts], 1)]
    named = [f"{n}. {place[p.followed.id]} and {place[p.overruled.id]}" for n, p in enumerate(pairs, 1)]
    inputs = {"question": state.question, "questions": questions, "pairs": named, "passages": [*shown]}
    return Ask("judge.evidence", inputs)


def _list_parts(state: State, passages: Sequence[Passage]) -> list[tuple[str, list[Passage]]]:
    """Return each look-up of a plan that is judged by itself, with those of the passages that it found."""
    if not state.tuning.each_part or len(state.queries) < 2:
        return []
    return state.split_by_look_up(passages)


def _measure_coverage(state: State) -> float:
    """Return the share of the look-ups of which a kept passage was found."""
    kept = set(list_ids(state.kept))
    hits = [any(p.id in kept for p in passages) for key, passages in state.ranked.items() if key[1] in state.queries]
    return sum(hits) / len(hits) if hits else 1.0


def _make_verdict(state: State, sufficient: Any, completeness: float) -> Verdict:
    threshold = state.program.threshold("judge.relevance", "relevant")
    passing = [chance for chance in state.relevant.values() if chance >= threshold]
    return Verdict(
        sufficient=bool(sufficient.value),
        sufficiency=float(sufficient.probability),
        kept=len(state.kept),
        relevance=len(passing) / len(state.relevant) if state.relevant else 1.0,
        completeness=completeness,
    )


def _note_verdict(verdict: Verdict) -> str:
    """Return the path's note of a judgement: `judge .41 missing "enterprise"`."""
    missing = f' missing "{verdict.missing}"' if verdict.missing else ""
    return f"judge {format_share(verdict.sufficiency)}{missing}"
