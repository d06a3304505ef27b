"""What a question comes to: the answer with its marks and notes, or a refusal, free of planted links."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ragc.answer import Answer, Citation, Outcome, StoppedBy
from ragc.loop.evidence import begins_after
from ragc.loop.quotations import quote_nearest
from ragc.loop.state import Flow, State, StepFailed, list_ids
from ragc.models.language.fence import find_addresses, list_hosts, remove_links
from ragc.notes import NoteKind
from ragc.passage import TITLE_STEP, Passage, document_of
from ragc.signatures import Statement
from ragc.text.days import spell_day
from ragc.text.facts import holds, is_echo
from ragc.text.history import FOUND_NOTHING
from ragc.text.pieces import Claim, MarkNumbering, quote_shortly

PARAGRAPH = "\n\n"
OTHERWISE = "another source says otherwise"
NOTE = re.compile(rf"(?<=\]) \((?:from \d\d? \w+ \d{{4}})?(?:(?:; )?{OTHERWISE}(?: \[\d+\])+)?\)")
"""What stands behind the mark of a source that replaced or overruled another."""
UNSURE = "(not certain)"  # what an answer begins with whose confidence is under the version's bound


def repeats_prompt(state: State, predictor: str, text: str) -> bool:
    """Tell whether a text is empty or an echo of its prompt, and note it on the path."""
    prompt = f"{state.program.prompt_of(predictor)}\n{state.question}"
    echo = state.program.runtime.withholds and is_echo(text, prompt, map(text_of, state.kept))
    if echo:
        state.path.append((NoteKind.ECHO if text.strip() else NoteKind.NO_TEXT)(predictor=predictor))
    return echo


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
        state.path.append(NoteKind.LINKS_REMOVED(hosts=", ".join(removed)))
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
    """Return a refusal that names what is missing, and quotes what is nearest."""
    state.path.append(NoteKind.ABSTAINED())
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


def answer_from_claims(
    state: State, claims: Iterable[Claim], confidence: float, stopped_by: StoppedBy, supported: float = 1.0
) -> Answer:
    """Return the answer, with a note once where a source replaced another."""
    passages, texts, notes = list(state.kept), [], {""}
    for claim in claims:
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
    notes = [f"from {spell_day(day)}" for source in spoke if (day := source.as_of)][:1]
    marks = [f"[{passages.index(one.overruled) + 1}]" for one in conflicts]
    notes += [f"{OTHERWISE} {' '.join(marks)}"] if marks else []
    return f" ({'; '.join(notes)})" if notes else ""


def _replaces_fact(state: State, claim: Claim, passage: Passage) -> bool:
    """Tell whether a passage's document replaced one, found too, that lacks a number or a name of the claim."""
    document = document_of(passage)
    replaced = [text_of(one) for pool in state.pools.values() for one in pool if one.superseded_by == document]
    return bool(replaced) and not holds("\n".join(replaced), claim.bare)


def text_of(passage: Passage) -> str:
    """Return what a claim may rest on: title, text and date of a passage."""
    return f"{passage.title}\n{passage.text}\n{passage.as_of or ''}"
