"""A draft written, its claims checked against the passages they cite, and what of it can be said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from program.answer import Answer, Citation, Outcome, StoppedBy
from program.loop.decide import weigh_rivals
from program.loop.decisions import read_chances
from program.loop.evidence import ALIKE, ask_pieces, measure_dispute, order_conflict, rank_source, speak_of_one_time
from program.loop.state import DRAFT, STATES, Ask, Flow, Request, State, StepFailed, format_share, list_ids
from program.models.language.fence import find_addresses, list_hosts, remove_links
from program.passage import TITLE_STEP, Passage, document_of
from program.signatures import CitedClaim, Statement
from program.text.facts import holds, holds_phrase, is_echo
from program.text.pieces import (
    Claim,
    MarkNumbering,
    Piece,
    drop_unknown_marks,
    quote_shortly,
    split_claims,
    split_pieces,
    split_sentences,
)

UNVOUCHED = 0.5  # a draft that nobody looked at is taken to be as probably wrong as right
FOUND_NOTHING = "I could not find {} in the knowledge I have."
OTHERWISE = "another source says otherwise"
NOTE = re.compile(rf"(?<=\]) \((?:from \d\d? \w+ \d{{4}})?(?:(?:; )?{OTHERWISE} \[\d+\])*\)")
"""What stands behind the mark of a source that replaced or overruled another."""
BEST_PIECES = 3  # of a passage, where a prompt shows its best sentences alone
LINKS_REMOVED = "links removed: "
"""How the path begins that names the hosts whose addresses an answer does not show."""
UNSURE = "(not certain)"  # what an answer begins with whose confidence is under the version's bound
_ENDED = re.compile(r"[.!?…][\"'”’»)\]*_`\s]*\Z")


@dataclass(frozen=True, slots=True)
class Draft:
    """What was drafted: its claims, those that passages support, and the decision on the whole.

    A quotation is `responsive` when a piece of it is past the threshold.
    """

    stated: tuple[Claim, ...] = ()
    upheld: tuple[Claim, ...] = ()
    responsive: Any = None
    quoted: float | None = None  # how probably a quotation states what is asked; None for a text that was written

    @property
    def text(self) -> str:
        """What of it can be said."""
        return " ".join(claim.text for claim in self.upheld)

    @property
    def unsupported(self) -> list[str]:
        """The claims without support, each once."""
        return list(dict.fromkeys(claim.bare for claim in self.stated if claim not in self.upheld))


@dataclass(frozen=True, slots=True)
class _Quote:
    """A piece of a passage, and how probably it states what a look-up asks; `stated` is that past the threshold."""

    look_up: int
    n: int
    """The passage's number, from 1."""
    passage: Passage
    piece: Piece
    probability: float
    stated: bool

    @property
    def lead(self) -> str:
        """What leads the list of an item: the line before it, else its heading where the item is no sentence."""
        if self.piece.lead == "" and not _ENDED.search(self.piece.text):
            heading = self.passage.title.rpartition(TITLE_STEP)[2]
            return heading and f"{heading}:"
        return self.piece.lead or ""

    def disputes(self, other: _Quote) -> bool:
        """Tell whether a source of another rank answers alike in other numbers."""
        a, b = self.passage, other.passage
        both = self.stated and other.stated and speak_of_one_time(a, b) and rank_source(a) != rank_source(b)
        return both and measure_dispute(self.piece.text, other.piece.text) >= ALIKE


def write_draft(state: State) -> Flow[Draft]:
    """Return a draft with its claims checked; a probable quotation spares a call."""
    if state.tuning.quote_above < 1.0 and not state.program.quotes(strict=False):
        quotation = yield from quote_passages(state, bool(state.tuning.ground))
        if (quotation.quoted or 0.0) >= state.tuning.quote_above:
            return quotation
    draft = yield from write_once(state, strict=False)
    if (draft.unsupported or not draft.upheld) and state.tuning.rewrites and not state.program.quotes(strict=False):
        again = yield from write_once(state, strict=True)
        draft = again if again.upheld else draft
    return draft


def write_once(state: State, strict: bool) -> Flow[Draft]:
    """Return a checked draft; `strict` quotes rather than paraphrases.

    The embedded writer quotes, and an empty text gives way to a quotation. Of what a language model writes an echo of
    its prompt has no claims, and a claim that no passage states has no support.
    """
    if state.program.quotes(strict):
        return (yield from quote_passages(state, bool(state.tuning.ground)))
    (reply,) = yield [(yield from _ask_draft(state, strict))]
    state.path.append("generate strictly" if strict else "generate")
    text = drop_unknown_marks(str(reply["answer"]), len(state.kept))
    if not text.strip():  # as that of the embedded writer where it stands in for another
        return (yield from quote_passages(state, checked=state.program.runtime.withholds))
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
    if draft.upheld or not state.program.runtime.withholds or state.program.quotes(strict=False):
        return draft
    return (yield from quote_passages(state, checked=True))


def _ask_draft(state: State, strict: bool) -> Flow[Ask]:
    """Return the request for a text from the kept passages, as many and as much of each as the prompt shows."""
    layout = state.program.layout_of(DRAFT)
    shown = state.kept[: layout.passages or len(state.kept)]
    if layout.excerpt != "whole":
        shown = yield from _cut_to_best(state, shown)
    inputs = {"question": state.question, "sub_queries": tuple(state.queries), "passages": shown}
    sentences = state.tuning.sentences * max(len(state.queries), 1)
    return Ask(DRAFT, {**inputs, "sentences": sentences, "strict": strict})


def _cut_to_best(state: State, passages: Sequence[Passage]) -> Flow[list[Passage]]:
    """Return the passages with those of their pieces that state most probably what is asked, in order."""
    found = yield from _weigh_pieces(state)
    cut = []
    for n, passage in enumerate(passages, 1):
        best = list(dict.fromkeys(quote.piece for quote in found if quote.n == n))[:BEST_PIECES]
        shown = dict.fromkeys(piece.text for piece in sorted(best, key=lambda piece: piece.start))
        cut.append(replace(passage, text="\n".join(shown) or passage.text))
    return cut


def quote_passages(state: State, checked: bool) -> Flow[Draft]:
    """Return what the kept passages state of each look-up, with citations.

    The most probable piece of each look-up comes first. Up to `sentences` in all, others follow that say what is not
    said yet, `checked` only those past the threshold. The draft is as probable as a look-up's best piece on
    average, and responsive if any piece is past the threshold.
    """
    found = yield from _weigh_pieces(state)
    taken: list[_Quote] = []
    best: list[float] = []
    for look_up in range(max(len(state.queries), 1)):
        of_this = [quote for quote in found if quote.look_up == look_up]
        best.append(max((quote.probability for quote in of_this), default=0.0))
        allowed = [quote for quote in of_this if quote.stated or not checked]
        taken += _choose_quotes(state, allowed, taken)
    claims = tuple(_quote_all(taken))
    probability = sum(best) / len(best)
    state.path.append(f"quote {format_share(probability)}")
    return Draft(claims, claims, any(quote.stated for quote in found), probability)


def _choose_quotes(state: State, allowed: Sequence[_Quote], said: Sequence[_Quote]) -> list[_Quote]:
    """Return those of a look-up's pieces that say what is not said yet, the most probable first.

    Of two sources that state the like in other numbers the one that ranks higher speaks, and the other is overruled.
    """
    chosen: list[_Quote] = []
    for quote in allowed:
        at = next((at for at, one in enumerate(chosen) if quote.disputes(one)), None)
        if at is not None:
            conflict = order_conflict(quote.passage, chosen[at].passage)
            state.conflicts += [conflict] if conflict not in state.conflicts else []
            chosen[at] = quote if conflict.followed is quote.passage else chosen[at]
            continue
        texts = [one.piece.text for one in (*said, *chosen)]
        new = quote.piece.text not in texts and not holds("\n".join(texts), quote.piece.text, state.tuning.stated_above)
        if new and len(chosen) < state.tuning.sentences:
            chosen.append(quote)
    return chosen


def _quote_all(quotes: Iterable[_Quote]) -> Iterator[Claim]:
    """Yield quotations as claims; neighbours of one list are one claim, in the list's order."""
    for (n, lead), group in groupby(quotes, key=lambda quote: (quote.n, quote.lead)):
        pieces = [quote.piece for quote in group]
        if lead:
            items = [piece.text.removesuffix(".") for piece in sorted(pieces, key=lambda piece: piece.start)]
            yield Claim.quote(f"{lead} {'; '.join(items)}", n)
        else:
            yield from (Claim.quote(piece.shown, n) for piece in pieces)


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


def make_abstention(state: State, missing: str, confidence: float, stopped_by: StoppedBy = StoppedBy.DONE) -> Answer:
    """Return a refusal that names the missing part, and offers the nearest page."""
    state.path.append("abstain")
    part = quote_shortly(missing)
    text = FOUND_NOTHING.format("this" if part in ("", quote_shortly(state.question)) else part)
    nearest = (state.kept or state.found)[:1]
    if page := nearest and quote_shortly(nearest[0].title.partition(TITLE_STEP)[0]):
        text += f" Did you mean {page}? [1]"
    return make_answer(state, text, Outcome.ABSTAIN, confidence, nearest, stopped_by)


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
            ended = bool(claim.cites) or _ENDED.search(said) is not None
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
    spoke = [one.followed for one in conflicts] or [one for one in sources if _replaces_fact(state, claim, one)]
    notes = [f"from {day.day} {day:%B %Y}" for source in spoke if (day := source.as_of)][:1]
    notes += [f"{OTHERWISE} [{passages.index(one.overruled) + 1}]" for one in conflicts]
    return f" ({'; '.join(notes)})" if notes else ""


def _replaces_fact(state: State, claim: Claim, passage: Passage) -> bool:
    """Tell whether a passage's document replaced one, found too, that lacks a number or a name of the claim."""
    document = document_of(passage)
    replaced = [_text_of(one) for pool in state.pools.values() for one in pool if one.superseded_by == document]
    return bool(replaced) and not holds("\n".join(replaced), claim.bare)


def _weigh_pieces(state: State) -> Flow[list[_Quote]]:
    """Return every piece of the passages that each look-up found and the last answer did not say, best first."""
    places = {passage.id: n for n, passage in enumerate(state.kept, 1)}
    asks, of = list[Request](), list[tuple[int, Passage, Piece]]()
    for look_up, (query, passages) in enumerate(_list_look_ups(state)):
        for p in passages:
            every = ask_pieces(query, p.id, p.source, p.title, p.text, p.as_of, p.authority)
            pairs = zip(every, split_pieces(p.text), strict=True)
            new = [(ask, piece) for ask, piece in pairs if piece.shown.rstrip(".") not in state.last_answer]
            asks += [ask for ask, _ in new]
            of += [(look_up, p, piece) for _, piece in new]
    if not asks:
        return []
    alone = [reply["states"].probability for reply in (yield asks)]
    threshold = state.program.threshold(STATES, "states")
    chances = weigh_rivals(alone, [look_up for look_up, *_ in of], state.tuning.rivalry)
    found = [
        _Quote(look_up, places[passage.id], passage, piece, chance, chance >= threshold)
        for (look_up, passage, piece), chance in zip(of, chances, strict=True)
    ]
    return sorted(found, key=lambda quote: -quote.probability)


def _list_look_ups(state: State) -> list[tuple[str, Sequence[Passage]]]:
    """Return the look-ups with the kept passages that each found; those that none found go to all."""
    if len(state.queries) < 2:
        return [(state.question, state.kept)]
    split = state.split_by_look_up(state.kept)
    known = {p.id for _, found in split for p in found}
    return [(query, [p for p in state.kept if p in found or p.id not in known]) for query, found in split]


def _text_of(passage: Passage) -> str:
    return f"{passage.title}\n{passage.text}\n{passage.as_of or ''}"
