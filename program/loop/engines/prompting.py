"""The engine of a model that writes: it is asked once, with the best passages, and replies in one of four kinds.

1. Where the reader's own quotation is probable enough (`quote_above`), that is the answer, without a request.
2. One request shows the question, the conversation and the best passages, whatever anybody thinks of them.
3. The reply is an answer, or says what is missing and the query that would find it, or asks back with the options, or
   answers what needs no document.
4. A statement is said if the passages that it cites exist, and its numbers stand in a passage or in the question, or
   are worked out from such. `check` has its words compared too, or whoever judges decide on it.
5. What is missing is searched for, and the model asked again, where `max_rounds` allows more than one round.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from ragc.answer import Answer, Outcome, Round, StoppedBy
from ragc.loop.answers import answer_from_claims, make_answer, repeats_prompt, state_claims, text_of
from ragc.loop.decide import Verdict
from ragc.loop.engines.quoting import QuotingEngine
from ragc.loop.quotations import quote_passages
from ragc.loop.reply import ReplyKind, TypedReply, read_reply
from ragc.loop.state import DRAFT, Ask, Flow, State, StepFailed, list_ids
from ragc.loop.trust import TRUST, list_opinions, pool_opinions
from ragc.models.language.adapter import LOGPROB
from ragc.notes import NoteKind
from ragc.text.facts import holds, holds_phrase
from ragc.text.numbers import list_unstated
from ragc.text.pieces import Claim, drop_unknown_marks, split_claims, split_sentences

WORDS, MODEL = 1, 2  # values of `check`
UNCITED = 0.5  # share of the words of a sentence without a mark that a passage must hold to be cited for it
UNVOUCHED = 0.5
"""The confidence of what nobody looked at: as probably wrong as right."""
_ENDED = re.compile(r"[.!?…][\"'”’»)\]*_`\s]*\Z")
"""How a sentence ends."""


class PromptingEngine:
    """Asks a model that writes."""

    def judge(self, state: State) -> Flow[Verdict]:
        """Return whether the passages suffice by the model's reply, or what is missing."""
        if state.tuning.quote_above < 1.0 and (yield from _quote_surely(state)):
            return Verdict(True, 1.0, len(state.kept))
        reply = yield from _ask(state)
        answered = reply.kind is not ReplyKind.MISSING
        missing, queries = ("", ()) if answered else (reply.text, (reply.query,))
        verdict = Verdict(answered, float(answered), len(state.kept), missing, queries)
        state.rounds.append(Round(verdict.sufficiency, list_ids(state.kept)))
        return verdict

    def write(self, state: State, stopped_by: StoppedBy) -> Flow[Answer | None]:
        """Return what the last reply comes to; None where nothing can be said."""
        if state.draft is not None:
            return (yield from QuotingEngine().write(state, stopped_by))
        reply = state.reply or (yield from _ask(state))
        state.reply = None
        if reply.kind is ReplyKind.QUOTE:
            return (yield from QuotingEngine().write(state, stopped_by))
        if reply.kind is ReplyKind.MISSING or repeats_prompt(state, DRAFT, reply.text):
            return None
        if not state.program.runtime.withholds:
            claims = split_claims(drop_unknown_marks(reply.text, len(state.kept)))
            return answer_from_claims(state, claims, UNVOUCHED, stopped_by)
        if reply.kind is ReplyKind.WHICH:
            return _ask_back(state, reply, stopped_by)
        if reply.kind is ReplyKind.GENERAL:
            state.path.append(NoteKind.UNRETRIEVED())
            state.kept = []
            return make_answer(state, reply.text, Outcome.ANSWERED, UNVOUCHED, stopped_by=stopped_by)
        return (yield from _check(state, reply, stopped_by))


def _ask(state: State) -> Flow[TypedReply]:
    """Return the reply to the question with the best passages, which are kept."""
    state.kept = state.found[: state.tuning.shown]
    (reply,) = yield [Ask(DRAFT, {**state.asking, "passages": state.kept, "sentences": state.tuning.sentences})]
    state.reply = replace(read_reply(str(reply["answer"])), logprob=reply.get(LOGPROB))
    state.path.append(NoteKind[f"WROTE_{state.reply.kind.name}"]())
    return state.reply


def _quote_surely(state: State) -> Flow[bool]:
    """Draft a quotation where the reader is sure enough of it, and tell whether it is."""
    state.kept = state.found[: state.tuning.keep_at_most]
    draft = yield from quote_passages(state, bool(state.tuning.ground))
    if draft.claims and draft.stated and draft.probability >= state.tuning.quote_above:
        state.draft = draft
    return state.draft is not None


def _ask_back(state: State, reply: TypedReply, stopped_by: StoppedBy) -> Answer | None:
    """Return the question back with its options; nobody is asked back twice in a row."""
    if state.chose:
        return None
    state.kept = []
    text = "\n".join([reply.text, *(f"- {option}" for option in reply.options)]).strip()
    return Answer(make_answer(state, text, Outcome.CLARIFY, UNVOUCHED, stopped_by=stopped_by), options=reply.options)


def _check(state: State, reply: TypedReply, stopped_by: StoppedBy) -> Flow[Answer | None]:
    """Return the answer of those statements of a reply that can be said."""
    texts = [text_of(passage) for passage in state.kept]
    stated = tuple(_cite(drop_unknown_marks(reply.text, len(texts)), texts))
    sources = [state.question, state.own_words, *texts]
    upheld = tuple(claim for claim in stated if claim.cites and not list_unstated(claim.bare, sources))
    if state.tuning.check == WORDS:
        cited = [("\n".join(texts[n - 1] for n in claim.cites), claim) for claim in upheld]
        upheld = tuple(claim for source, claim in cited if holds(source, claim.bare, state.tuning.stated_above))
    if len(upheld) < len(stated):
        state.path.append(NoteKind.STATED(n=len(upheld), all=len(stated)))
    if not upheld or (state.tuning.check == MODEL and not (yield from _is_supported(state, upheld))):
        return None
    supported = len(upheld) / len(stated)
    confidence = (yield from _estimate_confidence(state, upheld, reply.logprob)) * supported
    if confidence < state.tuning.answer_above:
        return None
    return answer_from_claims(state, upheld, confidence, stopped_by, supported)


def _cite(text: str, passages: Sequence[str]) -> Iterator[Claim]:
    """Yield the statements of a text; a sentence without a mark cites the first passage that holds its words.

    What was cut off, or what no passage holds, cites nothing.
    """
    for claim in split_claims(text):
        if claim.cites:
            yield claim
            continue
        for sentence in split_sentences(claim.bare):
            whole = _ENDED.search(sentence) is not None
            places = (n for n, one in enumerate(passages, 1) if whole or holds_phrase(one, sentence))
            n = next((n for n in places if holds(passages[n - 1], sentence, UNCITED)), 0)
            yield Claim(f"{sentence.rstrip(' .;:,')} [{n}]." if n else sentence, (n,) if n else ())


def _is_supported(state: State, claims: Sequence[Claim]) -> Flow[bool]:
    """Tell whether whoever judges finds that the passages which are cited state the claims."""
    cited = sorted({n for claim in claims for n in claim.cites})
    said = " ".join(claim.bare for claim in claims)
    (reply,) = yield [Ask("grounder.support", {"claim": said, "passages": [state.kept[n - 1] for n in cited]})]
    supported = reply["supported"]
    state.path.append(NoteKind.SUPPORTED(share=supported.probability))
    return bool(supported.value)


def _estimate_confidence(state: State, claims: Sequence[Claim], logprob: float | None) -> Flow[float]:
    """Return how probably the claims are right: by their tokens, and by the embedded decider, which costs no call."""
    if logprob is not None:
        state.path.append(NoteKind.WRITTEN(share=math.exp(logprob)))
    if state.program.vouches and not state.tripped():
        inputs = {"question": state.question, "answer": state_claims(claims, state.kept)}
        with suppress(StepFailed):  # the answer is there all the same
            (reply,) = yield [Ask("grounder.responsive", inputs)]
            state.path.append(NoteKind.RESPONSIVE(share=float(reply["responsive"].probability)))
    return pool_opinions(list_opinions(state.path), [getattr(state.tuning, name) for name in TRUST])
