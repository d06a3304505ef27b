"""The loop: what to ask and what to look up next, until there is an answer. It performs nothing itself.

`steps` yields requests and receives replies; a driver performs them. The same generator therefore runs live,
asynchronously, streaming, or from a record.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from program.answer import Answer, Outcome, StoppedBy
from program.claims import Claim, cited, claims
from program.decide import Clarify, Progress, Search, Verdict, decide, rounds_left
from program.decide import Generate as Write
from program.evidence import first_look, interleave, keep, rank, within
from program.knobs import Tuning
from program.knowledge.source import Passage
from program.modules import Classifier, Plan

DEPTH = 30
UNJUDGED = Verdict(True, 1.0, 0)
FOUND_NOTHING = "I could not find this in the knowledge I have."


@dataclass(frozen=True, slots=True)
class Find:
    """A search: the query, the sources to look into, and how many candidates of each to bring."""

    query: str
    sources: tuple[str, ...]
    depth: int = DEPTH


@dataclass(frozen=True, slots=True)
class Ask:
    """A predictor to call, by its name in the program, with its inputs; passages are given as `Passage`."""

    predictor: str
    inputs: Mapping[str, Any]


Request = Find | Ask
Reply = Any
Steps = Generator[list[Request], list[Reply], Answer]
Part = Generator[list[Request], list[Reply], None]


class StepFailed(Exception):
    """Thrown into the loop by a driver when a request could not be performed."""


class Program(Protocol):
    """What the loop reads of a program."""

    classifier: Classifier
    sources: tuple[str, ...]

    def tuning(self) -> Tuning: ...

    def threshold(self, predictor: str, field: str) -> float: ...


@dataclass(slots=True)
class State:
    """What the loop knows so far about one question."""

    question: str
    tuning: Tuning
    max_rounds: int
    tripped: Callable[[], StoppedBy | None]
    path: list[str]
    plan: Plan
    queries: list[str] = field(default_factory=list)
    ranked: dict[str, list[Passage]] = field(default_factory=dict)
    relevant: dict[str, float] = field(default_factory=dict)
    kept: list[Passage] = field(default_factory=list)
    verdict: Verdict = UNJUDGED
    rounds: int = 0
    previous: float | None = None

    @property
    def found(self) -> list[Passage]:
        return interleave(self.ranked.values())


def steps(
    question: str,
    program: Program,
    max_rounds: int = 10,
    tripped: Callable[[], StoppedBy | None] = lambda: None,
    path: list[str] | None = None,
) -> Steps:
    """Yields requests and returns the answer; `path` is filled with the readable trace as it grows."""
    path = [] if path is None else path
    tuning = program.tuning()
    try:
        return (yield from _agentic(question, program, tuning, max_rounds, tripped, path))
    except StepFailed as failure:
        path.append(f"failed: {failure}")
    try:
        return (yield from _fallback(question, program, tuning, path))
    except StepFailed as failure:
        path.append(f"failed: {failure}")
        return Answer(FOUND_NOTHING, Outcome.ABSTAIN, stopped_by=StoppedBy.FALLBACK)


def _agentic(
    question: str,
    program: Program,
    tuning: Tuning,
    max_rounds: int,
    tripped: Callable[[], StoppedBy | None],
    path: list[str],
) -> Steps:
    everywhere = Plan("simple", program.sources, ())
    state = State(question, tuning, max_rounds, tripped, path, everywhere)
    (pool,) = yield [Find(question, program.sources)]
    if tuning.route:
        glimpse = first_look(pool)
        (evidence,) = yield [Ask("classifier.route", {"question": question, "glimpse": glimpse})]
        state.plan = program.classifier.plan(evidence)
        path.append(_plan_note(state.plan))
        if state.plan.route == "direct":
            (reply,) = yield [Ask("generator.direct", {"question": question})]
            if reply["answer"].strip():
                path.append("unretrieved")
                return _answer(state, reply["answer"].strip(), Outcome.ANSWERED, 0.9, [])
            path.append("no direct answer")
        if state.plan.vague:
            (reply,) = yield [Ask("generator.clarify", {"question": question, "passages": glimpse})]
            path.append(f"clarify ({state.plan.vagueness:.2f})")
            state.ranked[question] = glimpse
            return _answer(state, reply["clarifying_question"], Outcome.CLARIFY, state.plan.vagueness, [])
    if tuning.decompose and state.plan.route == "complex":
        (reply,) = yield [Ask("decomposer.split", {"question": question})]
        state.queries = [text for text in reply["sub_queries"] if text.strip()][:4]
    return (yield from _rounds(state, program, pool, state.queries or [question]))


def _rounds(state: State, program: Program, pool: Sequence[Passage], queries: Sequence[str]) -> Steps:
    tuning = state.tuning
    while True:
        yield from _search(state, program, pool, queries)
        yield from _judge(state, program, queries)
        tried = frozenset(state.ranked)
        progress = Progress(state.rounds, tried, state.previous, vague=False)
        action = decide(state.verdict, progress, tuning, state.max_rounds, state.tripped())
        if isinstance(action, Search):
            state.previous = state.verdict.sufficiency
            queries = [action.query]
            continue
        if isinstance(action, Write):
            answer = yield from _write(state, program, action.stopped_by)
            if answer is not None:
                return answer
            return _abstain(state, "", 1.0 - state.verdict.sufficiency)
        if isinstance(action, Clarify):
            (reply,) = yield [Ask("generator.clarify", {"question": state.question, "passages": state.kept})]
            return _answer(state, reply["clarifying_question"], Outcome.CLARIFY, state.plan.vagueness, [])
        return _abstain(state, action.missing, 1.0 - state.verdict.sufficiency)


def _search(state: State, program: Program, pool: Sequence[Passage], queries: Sequence[str]) -> Part:
    """One round of searching; the question's own first look is not repeated."""
    tuning, plan = state.tuning, state.plan
    sources = plan.bases if tuning.only_chosen_bases and tuning.route else program.sources
    new = [query for query in queries if query not in state.ranked]
    asked = [query for query in new if query != state.question]
    pools = dict(zip(asked, (yield [Find(query, sources) for query in asked]), strict=True)) if asked else {}
    pools[state.question] = within(pool, sources)
    for query in new:
        state.ranked[query] = rank(pools[query], tuning, dict(plan.likely))
    state.rounds += 1
    state.path.append(f"search({len(new)})")


def _judge(state: State, program: Program, queries: Sequence[str]) -> Part:
    """Judges each new passage, then the kept ones together; asks what is missing when a round is left."""
    tuning, question = state.tuning, state.question
    found = state.found
    if not tuning.judge:
        state.kept = found[: max(tuning.keep_at_most, tuning.k)] if tuning.route else found[: tuning.k]
        state.verdict = Verdict(True, 1.0, len(state.kept))
        return
    pairs = [(query, passage) for query in queries for passage in state.ranked[query]]
    replies = yield [Ask("judge.relevance", {"question": query, "passage": passage}) for query, passage in pairs]
    for (_, passage), reply in zip(pairs, replies, strict=True):
        state.relevant[passage.id] = max(state.relevant.get(passage.id, 0.0), reply["relevant"].probability)
    state.kept = keep(found, state.relevant, program.threshold("judge.relevance", "relevant"), tuning)
    (reply,) = yield [Ask("judge.sufficiency", {"question": question, "passages": state.kept})]
    sufficient, sufficiency = bool(reply["sufficient"].value), float(reply["sufficient"].probability)
    missing = next_query = ""
    progress = Progress(state.rounds, frozenset(state.ranked), state.previous)
    if not sufficient and rounds_left(progress, tuning, state.max_rounds, state.tripped()):
        (reply,) = yield [Ask("judge.missing", {"question": question, "passages": state.kept})]
        missing, next_query = reply["missing"].strip(), reply["next_query"].strip()
    state.path.append(f"judge {sufficiency:.2f}" + (f' missing "{missing}"' if missing else ""))
    state.verdict = Verdict(sufficient, sufficiency, len(state.kept), missing, next_query)


def _write(
    state: State, program: Program, stopped_by: StoppedBy
) -> Generator[list[Request], list[Reply], Answer | None]:
    """The grounded answer, or None when nothing of it can be upheld."""
    for strict in (False, True):
        (reply,) = yield [_generate(state, strict)]
        draft: str = reply["answer"]
        state.path.append("generate strictly" if strict else "generate")
        if not state.tuning.ground:
            return _answer(state, draft, Outcome.ANSWERED, state.verdict.sufficiency, state.kept, stopped_by)
        stated = claims(draft)
        upheld = yield from _upheld(state, stated)
        state.path.append(f"ground {len(upheld)}/{len(stated)}")
        if len(upheld) == len(stated) or strict:
            break
    if not upheld:
        return None
    text = " ".join(claim.text for claim in upheld)
    (reply,) = yield [Ask("grounder.responsive", {"question": state.question, "answer": _bare(upheld)})]
    responsive = float(reply["responsive"].probability)
    state.path.append(f"responsive {responsive:.2f}")
    if not reply["responsive"].value or responsive < state.tuning.answer_above:
        return None
    supported = len(upheld) / len(stated)
    confidence = responsive * supported
    return _answer(state, text, Outcome.ANSWERED, confidence, state.kept, stopped_by, supported)


def _upheld(state: State, stated: Sequence[Claim]) -> Generator[list[Request], list[Reply], list[Claim]]:
    """The claims that their cited passages support; a claim that cites nothing is not upheld."""
    cites = [[state.kept[n - 1] for n in claim.cites if 1 <= n <= len(state.kept)] for claim in stated]
    checked = [(claim, passages) for claim, passages in zip(stated, cites, strict=True) if passages]
    if not checked:
        return []
    replies = yield [Ask("grounder.support", {"claim": c.bare, "passages": passages}) for c, passages in checked]
    return [claim for (claim, _), reply in zip(checked, replies, strict=True) if reply["supported"].value]


def _fallback(question: str, program: Program, tuning: Tuning, path: list[str]) -> Steps:
    """Plain RAG: one search, one text, nothing judged."""
    (pool,) = yield [Find(question, program.sources)]
    state = State(question, tuning, 1, lambda: None, path, Plan("simple", program.sources, ()))
    state.ranked[question] = rank(pool, tuning)
    state.kept = state.found
    (reply,) = yield [_generate(state, strict=False)]
    path.append("fallback")
    return _answer(state, reply["answer"], Outcome.ANSWERED, 0.0, state.kept, StoppedBy.FALLBACK)


def _generate(state: State, strict: bool) -> Ask:
    looked_up = state.queries or [state.question]
    sentences = state.tuning.sentences * len(looked_up)
    return Ask(
        "generator.answer",
        {
            "question": state.question,
            "sub_queries": tuple(state.queries),
            "passages": state.kept,
            "sentences": sentences,
            "strict": strict,
        },
    )


def _abstain(state: State, missing: str, confidence: float) -> Answer:
    state.path.append("abstain")
    text = f"{FOUND_NOTHING} Missing: {missing}." if missing else FOUND_NOTHING
    return _answer(state, text, Outcome.ABSTAIN, confidence, [])


def _answer(
    state: State,
    text: str,
    outcome: Outcome,
    confidence: float,
    passages: Sequence[Passage],
    stopped_by: StoppedBy = StoppedBy.DONE,
    supported: float = 1.0,
) -> Answer:
    text, citations = cited(text, passages)
    return Answer(
        text=text,
        outcome=outcome,
        citations=citations,
        confidence=min(1.0, max(0.0, confidence)),
        stopped_by=stopped_by,
        route=state.plan.route,
        sources=state.plan.bases,
        retrieved=_ids(state.kept),
        found=_ids(state.found),
        supported=supported,
    )


def _bare(stated: Iterable[Claim]) -> str:
    return " ".join(claim.bare for claim in stated)


def _ids(passages: Iterable[Passage]) -> tuple[str, ...]:
    return tuple(passage.id for passage in passages)


def _plan_note(plan: Plan) -> str:
    return f"classify->{plan.route}[{','.join(plan.bases)}]"
