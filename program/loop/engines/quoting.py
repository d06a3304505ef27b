"""The engine of the embedded reader: the evidence is judged as a whole, and its pieces are quoted word for word.

1. A question that is surely simple (`fast_above`) is quoted at once, where something can be said.
2. A decision says whether the passages suffice. Where they do not, and another search is allowed, what is missing and
   the query that would find it are asked for.
3. The answer is the pieces that state what each look-up asks (`quotations`). Where the best differ only in a subject
   that the question leaves open, it is asked which is meant, and told what is said of each.
"""

from __future__ import annotations

from dataclasses import replace

from ragc.answer import Answer, Outcome, Round, StoppedBy
from ragc.loop.answers import answer_from_claims, make_answer
from ragc.loop.choices import list_choices
from ragc.loop.decide import Verdict, wants_query
from ragc.loop.evidence import keep_unjudged
from ragc.loop.quotations import quote_passages
from ragc.loop.state import Ask, Draft, Flow, State, StepFailed, list_ids
from ragc.models.requests import is_undecided
from ragc.notes import NoteKind

WHICH = "Which do you mean?"


class QuotingEngine:
    """Quotes, word for word."""

    def judge(self, state: State) -> Flow[Verdict]:
        """Return what the passages found are worth.

        Raises `StepFailed` for a judgement that cannot be read.
        """
        tuning = state.tuning
        if not tuning.judge:
            keep_unjudged(state, max(tuning.keep_at_most, tuning.k) if tuning.route else tuning.k)
            return _note_verdict(state, Verdict(True, 1.0, len(state.kept)))
        state.kept = state.found[: tuning.keep_at_most]
        if not state.rounds and state.plan.route == "simple" and state.plan.confidence > tuning.fast_above:
            state.draft = yield from quote_passages(state, bool(tuning.ground))
            if _can_be_said(state, state.draft):
                return Verdict(True, state.plan.confidence, len(state.kept))
            state.path.append(NoteKind.UNSURE())
        evidence = {"question": state.question, "passages": [*state.kept]}
        (reply,) = yield [Ask("judge.sufficiency", evidence)]
        sufficient = reply["sufficient"]
        if is_undecided(sufficient):
            raise StepFailed("judge.sufficiency", "no reply that can be read")
        verdict = Verdict(bool(sufficient.value), float(sufficient.probability), len(state.kept))
        if wants_query(verdict, state.progress, tuning, state.max_rounds, state.tripped()):
            (hint,) = yield [Ask("judge.missing", evidence)]
            query = hint["next_query"].strip()
            verdict = replace(verdict, missing=hint["missing"].strip(), next_queries=(query,) if query else ())
        judged = NoteKind.LACKING if verdict.missing else NoteKind.JUDGED
        state.path.append(judged(share=verdict.sufficiency, lacks=verdict.missing))
        return _note_verdict(state, verdict)

    def write(self, state: State, stopped_by: StoppedBy) -> Flow[Answer | None]:
        """Return the quotations that can be said, or what a question leaves open."""
        which = (yield from list_choices(state)) if state.tuning.ground else None
        if which and which.options:
            text = f"{WHICH} {' '.join(claim.text for claim in which.claims)}"
            asked = make_answer(state, text, Outcome.CLARIFY, which.probability, state.kept, stopped_by)
            return Answer(asked, options=which.options)
        draft = which or state.draft or (yield from quote_passages(state, bool(state.tuning.ground)))
        state.draft = None
        if not _can_be_said(state, draft):
            return None
        return answer_from_claims(state, draft.claims, draft.probability, stopped_by)


def _can_be_said(state: State, draft: Draft) -> bool:
    """Tell whether a draft says something that is probable enough; unchecked, whatever it says."""
    probable = draft.stated and draft.probability >= state.tuning.answer_above
    return bool(draft.claims) and (probable or not state.tuning.ground)


def _note_verdict(state: State, verdict: Verdict) -> Verdict:
    state.draft = None
    state.rounds.append(Round(verdict.sufficiency, list_ids(state.kept)))
    return verdict
