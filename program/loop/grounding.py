"""A draft written, its claims checked against the passages they cite, and what of it can be said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ragc.answer import Answer, Citation, Outcome, StoppedBy
from ragc.loop.decisions import read_chances
from ragc.loop.evidence import begins_after
from ragc.loop.quoting import ENDED, Draft, quote_nearest, quote_passages
from ragc.loop.state import DRAFT, Ask, Flow, State, StepFailed, format_share, list_ids
from ragc.models.language.fence import find_addresses, list_hosts, remove_links
from ragc.passage import TITLE_STEP, Passage, document_of
from ragc.signatures import NOTHING, CitedClaim, Statement
from ragc.text.facts import holds, holds_phrase, is_echo
from ragc.text.history import FOUND_NOTHING
from ragc.text.pieces import Claim, MarkNumbering, drop_unknown_marks, quote_shortly, split_claims, split_sentences

UNVOUCHED = 0.5  # a draft that nobody looked at is taken to be as probably wrong as right
PARAGRAPH = "\n\n"
OTHERWISE = "another source says otherwise"
NOTE = re.compile(rf"(?<=\]) \((?:from \d\d? \w+ \d{{4}})?(?:(?:; )?{OTHERWISE} \[\d+\])*\)")
"""What stands behind the mark of a source that replaced or overruled another."""
LINKS_REMOVED = "links removed: "
"""How the path begins that names the hosts whose addresses an answer does not show."""
UNSURE = "(not certain)"  # what an answer begins with whose confidence is under the version's bound


def write_draft(state: State) -> Flow[Draft]:
    """Return a checked draft; one quoted as surely as `quote_above` takes no call."""
    tuning = state.tuning
    if not state.program.quotes and tuning.quote_above < 1.0:
        quotation = yield from quote_passages(state, bool(tuning.ground))
        if (quotation.quoted or 0.0) >= tuning.quote_above:
            return quotation
    draft = yield from write_once(state, strict=False)
    if draft.quoted is None and (draft.unsupported or not draft.upheld):
        again = yield from write_once(state, strict=True)
        draft = again if again.upheld else draft
    return draft


def write_once(state: State, strict: bool) -> Flow[Draft]:
    """Return a checked draft; `strict` quotes rather than paraphrases.

    The embedded writer quotes, and an empty text gives way to a quotation. Of what a language model writes an echo of
    its prompt has no claims, and a claim that no passage states has no support.
    """
    if state.program.quotes:
        return (yield from quote_passages(state, bool(state.tuning.ground)))
    (reply,) = yield [_ask_draft(state, strict)]
    state.path.append("generate strictly" if strict else "generate")
    text = drop_unknown_marks(str(reply["answer"]), len(state.kept))
    if not text.strip():  # as that of the embedded writer where it stands in for another
        return (yield from quote_passages(state, checked=state.program.runtime.withholds))
    if text.strip(" .\"'").casefold() == NOTHING:
        return Draft(quoted=0.0)
    if not state.program.runtime.withholds:
        stated = tuple(split_claims(text))
        return Draft(stated, stated)
    if repeats_prompt(state, DRAFT, text):
        return Draft()
    stated = tuple(trace_claims(text, state.kept, state.tuning.stated_above))
    upheld = tuple(claim for claim in stated if claim.cites)
    if len(upheld) < len(stated):
        state.path.append(f"stated {len(upheld)}/{len(stated)}")
    if state.tuning.ground and upheld:
        return (yield from _check_claims(state, stated, upheld))
    return Draft(stated, upheld)


def conclude_answer(state: State, draft: Draft, stopped_by: StoppedBy) -> Flow[Answer | None]:
    """Return the answer that a draft comes to, or None when nothing is upheld."""
    if draft.quoted is not None:
        withheld = state.tuning.ground and (not draft.responsive or draft.quoted < state.tuning.answer_above)
        said = draft.upheld and not withheld
        return _answer_from_source(state, draft, draft.quoted, stopped_by) if said else None
    if not draft.upheld:
        return None
    supported = len(draft.upheld) / len(draft.stated)
    if not state.tuning.ground:
        confidence = yield from _estimate_confidence(state, draft.upheld, stopped_by)
        confidence = None if confidence is None else confidence * supported
    else:
        decision = draft.responsive
        if decision is None or draft.upheld != draft.stated:
            (reply,) = yield [_ask_responsive(state, draft.upheld)]
            decision = reply["responsive"]
        responsive = float(decision.probability)
        state.path.append(f"responsive {format_share(responsive)}")
        withheld = not decision.value or responsive < state.tuning.answer_above
        confidence = None if withheld else responsive * supported
    if confidence is None:
        return None
    return _answer_from_source(state, draft, confidence, stopped_by, supported)


def repeats_prompt(state: State, predictor: str, text: str) -> bool:
    """Tell whether a text is empty or an echo of its prompt, and note it on the path."""
    prompt = f"{state.program.prompt_of(predictor)}\n{state.question}"
    echo = state.program.runtime.withholds and is_echo(text, prompt, map(_text_of, state.kept))
    state.path += [f"{'echo' if text.strip() else 'no text'} of {predictor}"] if echo else []
    return echo


def quote_unsupported(state: State, draft: Draft) -> Flow[Draft]:
    """Return a quotation in place of what a language model wrote without any support."""
    written = draft.quoted is None and not state.program.quotes
    if draft.upheld or not written or not state.program.runtime.withholds:
        return draft
    return (yield from quote_passages(state, checked=True))


def _ask_draft(state: State, strict: bool) -> Ask:
    """Return the request for a text from the kept passages, as many as the prompt shows."""
    shown = state.kept[: state.program.layout_of(DRAFT).passages or None]
    inputs = {"question": state.question, "sub_queries": tuple(state.queries), "passages": shown}
    sentences = state.tuning.sentences * max(len(state.queries), 1)
    return Ask(DRAFT, {**inputs, "sentences": sentences, "strict": strict})


def make_answer(
    state: State,
    text: str,
    outcome: Outcome,
    confidence: float,
    passages: Sequence[Passage] = (),
    stopped_by: StoppedBy = StoppedBy.DONE,
    supported: float = 1.0,
) -> Answer:
    """Return the answer, without links, images and tags planted in it.

    Its marks point into `passages`; they are numbered in order of use.
    """
    known = known_addresses(passages, state.program.runtime.links)
    shown = remove_links(text, known, [one.text for one in passages])
    if removed := [host for host in list_hosts(text) if host not in list_hosts(shown)]:
        state.path.append(f"{LINKS_REMOVED}{', '.join(removed)}")
    text, cited = cite_passages(shown, passages)
    if outcome is Outcome.ANSWERED and confidence < state.tuning.unsure_below:
        text = f"{UNSURE} {text}"
    return Answer(
        text=text,
        outcome=outcome,
        citations=tuple(replace(one, title=remove_links(one.title, known, [one.title])) for one in cited),
        confidence=min(1.0, max(0.0, confidence)),
        stopped_by=stopped_by,
        route=state.plan.route,
        sources=state.plan.bases,
        strategy=state.chosen,
        retrieved=list_ids(state.kept),
        found=list_ids(state.found),
        supported=supported,
        rounds=tuple(state.rounds),
    )


def abstain(state: State, missing: str, confidence: float, stopped_by: StoppedBy = StoppedBy.DONE) -> Flow[Answer]:
    """Return a refusal that names the missing part, and quotes what is nearest."""
    state.path.append("abstain")
    part = quote_shortly(missing)
    text = FOUND_NOTHING.format("this" if part in ("", quote_shortly(state.question)) else part)
    try:
        nearest = yield from quote_nearest(state)
    except StepFailed:  # the refusal stands all the same
        nearest = ()
    passages = list(state.kept or state.found[:1])
    n = nearest[0].cites[0] if nearest else 1
    if page := passages and quote_shortly(passages[n - 1].title.partition(TITLE_STEP)[0]):
        text += f" The nearest page is {page} [{n}]."
    shown = f"{text}{PARAGRAPH}{' '.join(claim.text for claim in nearest)}"
    answer = make_answer(state, shown, Outcome.ABSTAIN, confidence, passages, stopped_by)
    text, _, quoted = answer.text.partition(PARAGRAPH)
    return Answer(answer, text=text, nearest=quoted)


def known_addresses(passages: Iterable[Passage], hosts: Sequence[str]) -> set[str]:
    """Return the addresses of the project's hosts that the passages state."""
    return find_addresses((passage.text for passage in passages), hosts) if hosts else set()


def state_claims(stated: Sequence[Claim], passages: Sequence[Passage]) -> tuple[Statement, ...]:
    """Return claims under the title of the first passage that each cites."""
    return tuple(
        Statement(title=next((passages[n - 1].title for n in claim.cites if n <= len(passages)), ""), text=claim.bare)
        for claim in stated
    )


def cite_passages(answer: str, passages: Sequence[Passage]) -> tuple[str, tuple[Citation, ...]]:
    """Renumber an answer's marks in order of use, and list their citations."""
    numbering = MarkNumbering(len(passages))
    text = (numbering.feed(answer) + numbering.rest()).strip()
    cited = [(n, passages[old - 1]) for old, n in numbering.order.items()]
    return text, tuple(Citation(n, p.source, p.id, p.title, p.reason, p.copies) for n, p in cited)


def trace_claims(answer: str, passages: Sequence[Passage], least: float) -> list[Claim]:
    """Return an answer's claims, each citing passages that state it, or none.

    What the passages that a claim cites do not state, or that cites none, is given sentence by sentence to the first
    passage that does. `least` is the share of its words that must stand there. What was cut off cites nothing.
    """
    texts = [_text_of(passage) for passage in passages]
    traced = []
    for claim in split_claims(answer):
        cited = [n for n in claim.cites if 0 < n <= len(texts)]
        if cited and holds("\n".join(texts[n - 1] for n in cited), claim.bare, least):
            traced.append(claim)
            continue
        for said in split_sentences(claim.bare):
            ended = bool(claim.cites) or ENDED.search(said) is not None
            asked = (n for n in [*cited, *range(1, len(texts) + 1)] if ended or holds_phrase(texts[n - 1], said))
            n = next((n for n in asked if holds(texts[n - 1], said, least)), 0)
            traced.append(Claim(f"{said.rstrip(' .;:,')} [{n}]." if n else said, (n,) if n else ()))
    return traced


def _check_claims(state: State, stated: tuple[Claim, ...], cited: tuple[Claim, ...]) -> Flow[Draft]:
    """Return the draft with those of its claims that a model, too, finds their cited passages to support."""
    supported: list[Any] = []
    responsive = None
    if state.at_once:
        claims = [CitedClaim(n=n, text=claim.bare, cites=claim.cites) for n, claim in enumerate(cited, 1)]
        inputs = {"question": state.question, "claims": claims, "passages": state.kept}
        (reply,) = yield [Ask("grounder.claims", {**inputs, "answer": state_claims(stated, state.kept)})]
        state.at_once = reply is not None
        if state.at_once:
            threshold = state.program.threshold
            supported = read_chances(reply["supported"], len(cited), threshold("grounder.support", "supported"))
            (responsive,) = read_chances(reply["responsive"], 1, threshold("grounder.responsive", "responsive"))
    if not supported:
        asks = [
            Ask("grounder.support", {"claim": c.bare, "passages": [state.kept[n - 1] for n in c.cites]}) for c in cited
        ]
        supported = [reply["supported"] for reply in (yield [*asks])]
    upheld = tuple(claim for claim, decision in zip(cited, supported, strict=True) if decision.value)
    state.path.append(f"ground {len(upheld)}/{len(stated)}")
    return Draft(stated, upheld, responsive)


def _estimate_confidence(state: State, stated: Sequence[Claim], stopped_by: StoppedBy) -> Flow[float | None]:
    """Return how probably an unchecked draft is right; None when that is too little to say it.

    The draft of a routed question is put to it once, if that costs no call or the draft may be withheld for it. Else
    it is what the evidence was judged at, or half of what unjudged evidence was taken for.
    """
    tuning, done = state.tuning, stopped_by is StoppedBy.DONE
    otherwise = state.verdict.sufficiency * (UNVOUCHED if done and not (tuning.judge and state.rounds) else 1.0)
    wanted = tuning.answer_above > 0.0 or (done and state.program.vouches)
    if not (tuning.route and wanted) or state.tripped():
        return otherwise
    try:
        (reply,) = yield [_ask_responsive(state, stated)]
    except StepFailed:  # the draft is there all the same
        return otherwise
    responsive = float(reply["responsive"].probability)
    state.path.append(f"responsive {format_share(responsive)}")
    return None if responsive < tuning.answer_above else responsive


def _ask_responsive(state: State, stated: Sequence[Claim]) -> Ask:
    return Ask("grounder.responsive", {"question": state.question, "answer": state_claims(stated, state.kept)})


def _answer_from_source(
    state: State, draft: Draft, confidence: float, stopped_by: StoppedBy, supported: float = 1.0
) -> Answer:
    """Return the answer; a claim whose source replaced or overruled another has a note, the same one once."""
    passages, texts, notes = list(state.kept), [], {""}
    for claim in draft.upheld:
        note = _note_source(state, claim, passages)
        stop = "." if claim.text.endswith("].") else ""
        texts.append(claim.text if note in notes else f"{claim.text.removesuffix(stop)}{note}{stop}")
        notes.add(note)
    return make_answer(state, " ".join(texts), Outcome.ANSWERED, confidence, passages, stopped_by, supported)


def _note_source(state: State, claim: Claim, passages: list[Passage]) -> str:
    """Return ` (from 1 May 2026)` of a source that replaced or overruled another; the overruled is added and cited."""
    sources = [passages[n - 1] for n in claim.cites]
    conflicts = [one for one in state.conflicts if any(one.followed.id == source.id for source in sources)]
    passages += [one.overruled for one in conflicts if one.overruled not in passages]
    spoke = [one.followed for one in conflicts] or [
        one for one in sources if begins_after(one, state.day) or _replaces_fact(state, claim, one)
    ]
    notes = [f"from {day.day} {day:%B %Y}" for source in spoke if (day := source.as_of)][:1]
    notes += [f"{OTHERWISE} [{passages.index(one.overruled) + 1}]" for one in conflicts]
    return f" ({'; '.join(notes)})" if notes else ""


def _replaces_fact(state: State, claim: Claim, passage: Passage) -> bool:
    """Tell whether a passage's document replaced one, found too, that lacks a number or a name of the claim."""
    document = document_of(passage)
    replaced = [_text_of(one) for pool in state.pools.values() for one in pool if one.superseded_by == document]
    return bool(replaced) and not holds("\n".join(replaced), claim.bare)


def _text_of(passage: Passage) -> str:
    return f"{passage.title}\n{passage.text}\n{passage.as_of or ''}"
