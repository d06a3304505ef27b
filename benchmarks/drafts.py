"""What a writer drafts with the right passages in hand, and the share of the facts that would be delivered of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from ragc.answer import Outcome
from ragc.loop.evidence import rank_pool
from ragc.loop.grounding import write_once
from ragc.loop.quoting import Draft
from ragc.loop.state import Find, Flow, State
from ragc.optimize.compiler.runs.replay import Replay
from ragc.optimize.evaluation.grades import judge_answer
from ragc.optimize.labelled.dataset import LabelledQuestion
from ragc.passage import Passage

SHOWN = 4  # passages shown with a question, its evidence among them


@dataclass(frozen=True, slots=True)
class Case:
    """A question with the passages to answer it from."""

    question: LabelledQuestion
    passages: Sequence[Passage]


def gather_cases(replay: Replay, questions: Sequence[LabelledQuestion], most: int) -> list[Case]:
    """Return questions with their evidence among what is found, of many topics."""
    texts = {passage.id: passage for passage in replay.program.readable_by().runtime.library.passages()}
    questions = [question for question in questions if not question.readers]
    told = [
        q for q in questions if q.facts and not q.history and q.evidence and all(one in texts for one in q.evidence)
    ]
    topics: dict[str, list[LabelledQuestion]] = {}
    for question in told:
        if question.outcome in (None, Outcome.ANSWERED):
            topics.setdefault(question.cluster, []).append(question)
    turns = (q for turn in zip_longest(*topics.values()) for q in turn if q is not None)
    chosen = [question for question, _ in zip(turns, range(most), strict=False)]
    pools = replay.reply_all([Find(question.question, replay.program.sources) for question in chosen])
    cases = []
    for question, pool in zip(chosen, pools, strict=True):
        ranked = rank_pool(pool or (), replay.program.view().tuning)
        gold = [texts[one] for one in question.evidence]
        others = [one for one in ranked if one.id not in question.evidence][: max(SHOWN - len(gold), 0)]
        order = {one.id: place for place, one in enumerate(ranked)}
        shown = sorted((*gold, *others), key=lambda one: order.get(one.id, SHOWN))
        cases.append(Case(question, shown))
    return cases


def score_cases(replay: Replay, cases: Sequence[Case]) -> list[float]:
    """Return the share of facts delivered of each, 0 if wrong."""
    shares = []
    for case, draft in zip(cases, write_drafts(replay, cases), strict=True):
        verdict = judge_answer(case.question, Outcome.ANSWERED, draft.text)
        shares.append(0.0 if verdict.wrong else verdict.fact_share)
    return shares


def write_drafts(replay: Replay, cases: Sequence[Case]) -> list[Draft]:
    """Return what is drafted for each question; its text would be delivered."""
    return [draft or Draft() for draft in replay.finish_flows(_list_flows(replay, cases))]


def _list_flows(replay: Replay, cases: Sequence[Case]) -> list[Flow[Draft]]:
    return [write_once(_state_of(replay, case), strict=False) for case in cases]


def _state_of(replay: Replay, case: Case) -> State:
    asked, program = case.question.question, replay.program
    state = State(asked, program.view(), 1, lambda: None, [])
    state.kept, state.tuning = list(case.passages), replace(state.tuning, ground=0)
    return state
