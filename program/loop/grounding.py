"""The writing stage: a draft, checked claim by claim, written again, looked up once more, or withdrawn."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace

from program.answer import Answer, Outcome, StoppedBy
from program.loop.claims import Claim, claims, statements
from program.loop.decide import rounds_left
from program.loop.judging import weigh
from program.loop.requests import Ask, Reply, Request, StepFailed
from program.loop.retrieval import CLAIM, search_claims
from program.loop.state import State, share
from program.passage import Passage

MOST_CLAIMS = 2  # looked up again, of those without support
UNVOUCHED = 0.5  # a draft that nobody looked at is taken to be as probably wrong as right


def write(state: State, stopped_by: StoppedBy) -> Generator[list[Request], list[Reply], Answer | None]:
    """The grounded answer, or None when nothing of it can be upheld."""
    draft = yield from _draft(state, strict=False)
    if not draft.strip():
        return None
    if not state.tuning.ground:
        confidence = yield from _confidence(state, draft, stopped_by)
        return None if confidence is None else _answered(state, draft, confidence, stopped_by)
    stated, upheld, whole = yield from _checked(state, draft)
    if len(upheld) < len(stated):
        draft = yield from _draft(state, strict=True)
        stated, upheld, whole = yield from _checked(state, draft)
    unsupported = _not_looked_up(state, [claim for claim in stated if claim not in upheld])[:MOST_CLAIMS]
    if unsupported and state.tuning.search_claims and _more(state):
        before = list(state.kept)
        yield from search_claims(state, unsupported)
        yield from weigh(state)
        known = {passage.id for passage in before}
        state.kept = [*before, *(passage for passage in state.kept if passage.id not in known)]
        if len(state.kept) > len(before):
            draft = yield from _draft(state, strict=True)
            stated, upheld, whole = yield from _checked(state, draft)
    if not upheld:
        return None
    (reply,) = yield [replace(whole, foreseen=whole) if upheld == stated else _responsive(state, upheld)]
    responsive = float(reply["responsive"].probability)
    state.path.append(f"responsive {share(responsive)}")
    if not reply["responsive"].value or responsive < state.tuning.answer_above:
        return None
    supported = len(upheld) / len(stated)
    return _answered(state, _text(upheld), responsive * supported, stopped_by, supported)


def draft_request(state: State, strict: bool) -> Ask:
    """The request for a text from the kept passages."""
    looked_up = state.queries or [state.question]
    return Ask(
        "generator.answer",
        {
            "question": state.question,
            "sub_queries": tuple(state.queries),
            "passages": state.kept,
            "sentences": state.tuning.sentences * len(looked_up),
            "strict": strict,
        },
    )


def _draft(state: State, strict: bool) -> Generator[list[Request], list[Reply], str]:
    (reply,) = yield [draft_request(state, strict)]
    state.path.append("generate strictly" if strict else "generate")
    return str(reply["answer"])


def _checked(state: State, draft: str) -> Generator[list[Request], list[Reply], tuple[list[Claim], list[Claim], Ask]]:
    """The draft's claims, those that their cited passages support, and what was asked ahead of the whole draft.

    A claim that cites nothing is not upheld.
    """
    stated = claims(draft)
    whole = _responsive(state, stated)
    cites = [_cited(state.kept, claim) for claim in stated]
    checked = [(claim, passages) for claim, passages in zip(stated, cites, strict=True) if passages]
    asks = [Ask("grounder.support", {"claim": c.bare, "passages": passages}) for c, passages in checked]
    replies = (yield [replace(asks[0], ahead=(whole,)), *asks[1:]]) if asks else []
    upheld = [claim for (claim, _), reply in zip(checked, replies, strict=True) if reply["supported"].value]
    state.path.append(f"ground {len(upheld)}/{len(stated)}")
    return stated, upheld, whole


def _confidence(state: State, draft: str, stopped_by: StoppedBy) -> Generator[list[Request], list[Reply], float | None]:
    """How probably a draft that is not checked claim by claim is right; None when that is too little to say it.

    The draft of a routed question is put to it once, if that costs no call or the draft may be withheld for it. Else
    judged evidence says it itself, and where nothing was judged it is half of what the evidence was taken for, which is
    no calibrated figure.
    """
    tuning, done = state.tuning, stopped_by is StoppedBy.DONE
    otherwise = state.verdict.sufficiency * (UNVOUCHED if done and not (tuning.judge and state.rounds) else 1.0)
    wanted = tuning.answer_above > 0.0 or (done and state.program.vouches)
    if not (tuning.route and wanted) or state.tripped():
        return otherwise
    try:
        (reply,) = yield [_responsive(state, claims(draft))]
    except StepFailed:  # the draft is there all the same
        return otherwise
    responsive = float(reply["responsive"].probability)
    state.path.append(f"responsive {share(responsive)}")
    return None if responsive < tuning.answer_above else responsive


def _responsive(state: State, stated: Sequence[Claim]) -> Ask:
    return Ask("grounder.responsive", {"question": state.question, "answer": statements(stated, state.kept)})


def _cited(kept: Sequence[Passage], claim: Claim) -> list[Passage]:
    return [kept[n - 1] for n in claim.cites if 1 <= n <= len(kept)]


def _not_looked_up(state: State, stated: Iterable[Claim]) -> list[str]:
    """The claims, each once, without those that an earlier draft made and that were searched for then."""
    return [text for text in dict.fromkeys(claim.bare for claim in stated) if (CLAIM, text) not in state.ranked]


def _more(state: State) -> bool:
    return rounds_left(state.progress, state.tuning, state.max_rounds, state.tripped())


def _text(upheld: Iterable[Claim]) -> str:
    return " ".join(claim.text for claim in upheld)


def _answered(state: State, text: str, confidence: float, stopped_by: StoppedBy, supported: float = 1.0) -> Answer:
    """The answer; what was overruled is mentioned, and cited, after it."""
    passages = list(state.kept)
    for conflict in state.conflicts:
        passages.append(conflict.overruled)
        text += f" (another source says otherwise; the {conflict.reason} one is followed) [{len(passages)}]"
    return state.answer(text, Outcome.ANSWERED, confidence, passages, stopped_by, supported)
