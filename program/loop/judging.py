"""The judging stage: which passages help, whether they suffice, are current and agree, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from program.answer import Round
from program.loop.consistency import Conflict, suspects
from program.loop.decide import Verdict, rounds_left, wants_query
from program.loop.decisions import undecided
from program.loop.evidence import interleave, keep
from program.loop.freshness import freshness, is_stale, newest_of
from program.loop.requests import Ask, Part, StepFailed
from program.loop.state import State, ids, share
from program.passage import Passage

FOLLOWED = 3  # passages that look-ups written from others add to unjudged evidence
HELPS = 0.5  # probability of relevance under which a model, by its own word, takes no notice of a passage


def judge(state: State) -> Part:
    """Judges each new passage, then the kept ones together; asks what is missing when a round is left.

    A judgement that cannot be read is none: nothing is concluded from it. Raises `StepFailed` when that leaves every
    passage, or the whole, unjudged.
    """
    tuning = state.tuning
    if not tuning.judge:
        state.kept = _unjudged(state, max(tuning.keep_at_most, tuning.k) if tuning.route else tuning.k)
        state.verdict = Verdict(True, 1.0, len(state.kept))
        state.rounds.append(Round(1.0, ids(state.kept)))
        return
    ahead = _ahead(state)
    yield from weigh(state, ahead)
    if tuning.filter and state.found and not state.relevant:
        raise StepFailed("judge.relevance: no reply that can be read")
    parts = _parts(state, state.kept)
    pairs = suspects(state.kept) if tuning.consistent else []
    wanted = [(state.question, state.kept), *parts]
    enough = [_foreseen(state, ahead, _enough(query, passages)) for query, passages in wanted]
    if enough[0].foreseen is None:
        ahead = _missing_ahead(state, state.kept)
        enough = _with_ahead(enough, ahead)
    whole, *rest = yield [*enough, *(_contradict(state.question, pair) for pair in pairs)]
    of_parts, of_pairs = rest[: len(parts)], rest[len(parts) :]
    if undecided(whole["sufficient"]):
        raise StepFailed("judge.sufficiency: no reply that can be read")
    state.conflicts = [p for p, r in zip(pairs, of_pairs, strict=True) if r["contradict"].value]
    _overrule(state)
    judged = [(q, r["sufficient"]) for (q, _), r in zip(parts, of_parts, strict=True) if not undecided(r["sufficient"])]
    open_parts = [query for query, sufficient in judged if not sufficient.value]
    verdict = _verdict(state, whole["sufficient"], 1.0 - len(open_parts) / len(judged) if judged else _coverage(state))
    if wants_query(verdict, state.progress, tuning, state.max_rounds, state.tripped()):
        asked = open_parts or [state.question]
        replies = yield [_foreseen(state, ahead, _missing(query, state.kept)) for query in asked]
        verdict = _with_missing(verdict, replies)
    state.path.append(_note(verdict))
    state.verdict = verdict
    if not verdict.sufficient:
        lacking = " and ".join(f"“{part.strip(' .?')}”" for part in open_parts)
        state.missing = verdict.missing or lacking or state.missing
    else:
        state.missing = verdict.missing
    counts = verdict.relevance, verdict.completeness, verdict.freshness
    state.rounds.append(Round(verdict.sufficiency, ids(state.kept), *counts))


def _unjudged(state: State, most: int) -> list[Passage]:
    """The best of what was found; of what a look-up written from others found, the best beside theirs, not for it."""
    own = [found for (_, query), found in state.ranked.items() if query not in state.followed]
    kept = interleave(own)[:most]
    known = set(ids(kept))
    more = interleave(found for (_, query), found in state.ranked.items() if query in state.followed)
    return interleave([kept, [passage for passage in more if passage.id not in known][:FOLLOWED]])


def weigh(state: State, ahead: Sequence[Ask] = ()) -> Part:
    """Judges the passages of the new searches one by one, and keeps of all that was found what helps."""
    tuning = state.tuning
    new, state.new = state.new, []
    if not tuning.filter:
        state.kept = _current(state)[: tuning.keep_at_most]
        return
    pairs = [(key[1], passage) for key in new for passage in state.ranked[key]]
    asks = [Ask("judge.relevance", {"question": query, "passage": passage}) for query, passage in pairs]
    replies = yield [*_with_ahead(asks, ahead)]
    for (_, passage), reply in zip(pairs, replies, strict=True):
        if not undecided(reply["relevant"]):
            state.relevant[passage.id] = max(state.relevant.get(passage.id, 0.0), reply["relevant"].probability)
    state.kept = keep(_current(state), state.relevant, _threshold(state), tuning)


def _current(state: State) -> list[Passage]:
    """What was found; once newer evidence was searched for, without what is out of date, unless that is all."""
    found = state.found
    if not (state.settled and state.tuning.fresh_above):
        return found
    newest = newest_of(found)
    return [passage for passage in found if not is_stale(passage, state.need, newest)] or found


def _ahead(state: State) -> list[Ask]:
    """What will be asked about the passages that help, put to all that may: judged with them, in the same call."""
    if not (state.foresees and state.tuning.filter and state.new):
        return []
    new = {passage.id for key in state.new for passage in state.ranked[key]}
    passages = [p for p in _current(state) if p.id in new or state.relevant.get(p.id, 0.0) >= HELPS]
    wanted = [(state.question, passages), *_parts(state, passages)]
    return [*(_enough(query, found) for query, found in wanted), *_missing_ahead(state, passages)]


def _missing_ahead(state: State, passages: Sequence[Passage]) -> list[Ask]:
    """What is asked once the evidence is found wanting, if a round is left then."""
    if not state.foresees or not rounds_left(state.progress, state.tuning, state.max_rounds, state.tripped()):
        return []
    queries = state.queries if state.tuning.each_part and len(state.queries) > 1 else []
    return [_missing(query, passages) for query in (state.question, *queries)]


def _foreseen(state: State, ahead: Sequence[Ask], ask: Ask) -> Ask:
    """The request, with the one asked ahead whose reply is as good: what it was shown besides was found not to help."""
    kept = set(ids(ask.inputs["passages"]))
    for other in ahead:
        shown = set(ids(other.inputs["passages"]))
        alike = other.predictor == ask.predictor and other.inputs["question"] == ask.inputs["question"]
        if alike and kept <= shown and all(state.relevant.get(id_, 1.0) < HELPS for id_ in shown - kept):
            return replace(ask, foreseen=other)
    return ask


def _with_ahead(asks: Sequence[Ask], ahead: Sequence[Ask]) -> list[Ask]:
    """The requests, the first of them with what is likely to be asked next."""
    return [replace(asks[0], ahead=tuple(ahead)), *asks[1:]] if asks and ahead else [*asks]


def _parts(state: State, passages: Sequence[Passage]) -> list[tuple[str, list[Passage]]]:
    """Each look-up of a plan with those of the passages that it found."""
    if not state.tuning.each_part or len(state.queries) < 2:
        return []
    found = {q: {p.id for (_, query), ps in state.ranked.items() if query == q for p in ps} for q in state.queries}
    return [(query, [p for p in passages if p.id in found[query]]) for query in state.queries]


def _coverage(state: State) -> float:
    """The share of the look-ups of which a kept passage was found."""
    kept = set(ids(state.kept))
    hits = [any(p.id in kept for p in passages) for key, passages in state.ranked.items() if key[1] in state.queries]
    return sum(hits) / len(hits) if hits else 1.0


def _verdict(state: State, sufficient: Any, completeness: float) -> Verdict:
    passing = [chance for chance in state.relevant.values() if chance >= _threshold(state)]
    disputed = state.conflicts and not state.settled
    return Verdict(
        sufficient=bool(sufficient.value),
        sufficiency=float(sufficient.probability),
        kept=len(state.kept),
        relevance=len(passing) / len(state.relevant) if state.relevant else 1.0,
        completeness=completeness,
        freshness=freshness(state.kept, state.need, newest_of(state.found)),
        contradiction=state.conflicts[0].between if disputed else "",
    )


def _with_missing(verdict: Verdict, replies: Sequence[Any]) -> Verdict:
    missing = [text for reply in replies if (text := reply["missing"].strip())]
    queries = [text for reply in replies if (text := reply["next_query"].strip())]
    return replace(verdict, missing="; ".join(dict.fromkeys(missing)), next_queries=tuple(dict.fromkeys(queries)))


def _overrule(state: State) -> None:
    """Takes from the kept passages those that give way to another kept one."""
    overruled = {conflict.overruled.id for conflict in state.conflicts}
    state.kept = [passage for passage in state.kept if passage.id not in overruled]


def _threshold(state: State) -> float:
    return state.program.threshold("judge.relevance", "relevant")


def _enough(question: str, passages: Sequence[Passage]) -> Ask:
    return Ask("judge.sufficiency", {"question": question, "passages": list(passages)})


def _missing(question: str, passages: Sequence[Passage]) -> Ask:
    return Ask("judge.missing", {"question": question, "passages": list(passages)})


def _contradict(question: str, pair: Conflict) -> Ask:
    return Ask("judge.contradiction", {"question": question, "passages": [pair.followed, pair.overruled]})


def _note(verdict: Verdict) -> str:
    """`judge .41 missing "enterprise"`."""
    return (
        f"judge {share(verdict.sufficiency)}"
        + (f' missing "{verdict.missing}"' if verdict.missing else "")
        + (f" contradiction {verdict.contradiction}" if verdict.contradiction else "")
    )
