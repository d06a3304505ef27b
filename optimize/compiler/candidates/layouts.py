"""Layouts of the writer's prompt, screened with the right passages in hand before anything else is searched.

A few dozen calls drop the hopeless: does what would be delivered of the text state the facts? Layouts are halved round
by round (successive halving; Jamieson and Talwalkar, 2016), and the neighbours of the best join the last round. Within
a standard error of the best the one of fewest tokens leads (Breiman et al., 1984): so few questions cannot tell such
layouts apart, and each later call is paid for by its prompt. A cap on calls makes the race smaller, not shorter.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np

from optimize.compiler.candidates.demonstrations import Demonstration, thin_out, to_json
from optimize.compiler.runs.replay import Replay
from optimize.evaluation.grades import judge_answer
from optimize.labelled.dataset import LabelledQuestion
from program.answer import Outcome
from program.errors import BudgetStop
from program.loop.evidence import rank_pool
from program.loop.grounding import write_once
from program.loop.quoting import Draft
from program.loop.state import DRAFT, Find, Flow, State
from program.models.language.layout import AS_IT_IS, LAYOUT, Layout, PromptLayout, vary_layout
from program.passage import Passage

ROUNDS = ((16, 2), (8, 4), (4, 8))  # layouts in the race, and the questions that each has then been tried on
NEIGHBOURS = 8  # layouts that differ in one part from the best, which join the race before its last round
LET_IN = 3  # layouts that go into the study, beside the one that the program has
SHOWN = 4  # passages shown with a question, its evidence among them

Score = Callable[[PromptLayout, Sequence[int]], Sequence[tuple[float, int]]]
"""The share of the facts that a layout brings out of each question at those places, and the tokens that it takes."""


@dataclass(frozen=True, slots=True)
class Case:
    """A question with the passages to answer it from."""

    question: LabelledQuestion
    passages: Sequence[Passage]


def screen_layouts(
    replay: Replay,
    questions: Sequence[LabelledQuestion],
    demonstrations: Sequence[Demonstration],
    seed: int,
    progress: Callable[[int, int], None],
    calls: int | None = None,
) -> list[PromptLayout]:
    """Return the layouts of the writer's prompt that do better than its own.

    One that does about as well for fewer tokens is better; the best come first. There is none for the embedded writer.
    A writer without demonstrations is shown some of other topics. The race is planned for so many `calls`; a cap ends
    it where it is.
    """
    program = replay.program
    if program.view().quotes(strict=False):
        return []
    cases = gather_cases(replay, questions, ROUNDS[-1][1])
    known = {case.question.cluster for case in cases}
    others = [one for one in demonstrations if one.predictor == DRAFT and one.topic not in known]
    predictor = program.predictor(DRAFT)
    predictor.demos = predictor.demos or [to_json(one).fields for one in thin_out(others, AS_IT_IS.demonstrations)]
    parameter: Layout = dict(program.named_parameters())[DRAFT + LAYOUT]
    now, tried, planned = parameter.value, 0, count_calls(len(cases))
    share = 1.0 if calls is None else min(1.0, calls / max(planned, 1))

    def score(layout: PromptLayout, places: Sequence[int]) -> list[tuple[float, int]]:
        nonlocal tried
        progress(tried, int(planned * share))
        parameter.value = layout
        found = score_cases(replay, [cases[place] for place in places])
        tried += len(places)
        return found

    try:
        ranked = race_layouts(now, parameter.choices, score, len(cases), seed, share) if len(cases) > 1 else [now]
        return ranked[: ranked.index(now)][:LET_IN] if now in ranked else []
    finally:
        parameter.value = now


def race_layouts(
    now: PromptLayout, choices: Mapping[str, Sequence[Any]], score: Score, count: int, seed: int, share: float = 1.0
) -> list[PromptLayout]:
    """Return the layouts left of a race over `count` questions, the best first.

    The layout `now` is in it to the end. `share`, 0 to 1, is that of the usual calls that the race may take.
    """
    rounds = [(max(2, int(most * share)), upto) for most, upto in ROUNDS]
    draw = random.Random(seed)
    drawn = (
        PromptLayout(**{name: draw.choice(list(values)) for name, values in choices.items()})
        for _ in range(4 * ROUNDS[0][0])
    )
    racing = list(dict.fromkeys([now, *drawn]))
    found: dict[PromptLayout, list[tuple[float, int]]] = {}

    def rank(layouts: Sequence[PromptLayout]) -> list[PromptLayout]:
        means = {one: tuple(np.mean(found[one], axis=0).tolist()) for one in layouts}
        spread = float(np.std([stated for one in layouts for stated, _ in found[one]]))
        error = spread / math.sqrt(min(len(found[one]) for one in layouts))
        least = max(stated for stated, _ in means.values()) - error

        def order(layout: PromptLayout) -> tuple[bool, float]:
            stated, tokens = means[layout]
            return (False, tokens) if stated >= least else (True, -stated)

        return sorted(layouts, key=order)

    def ask(layouts: Sequence[PromptLayout], upto: int) -> None:
        for layout in layouts:
            had = found.setdefault(layout, [])
            had += score(layout, range(len(had), min(upto, count)))

    with suppress(BudgetStop):
        for place, (most, upto) in enumerate(rounds):
            best, racing = racing[0], [now, *(one for one in racing if one != now)][:most]
            if place == len(rounds) - 1:
                near = [one for one in vary_layout(best, choices) if one not in found]
                joined = draw.sample(near, min(int(NEIGHBOURS * share), len(near)))
                ask(joined, rounds[place - 1][1])
                racing = [now, *(one for one in rank([*racing, *joined]) if one != now)][:most]
            ask(racing, upto)
            racing = rank(racing)
    tried = [one for one in racing if found.get(one)]
    return rank(tried) if tried else []


def count_calls(count: int) -> int:
    """Return the calls that a race over so many questions comes to at most."""
    tried = [0, *(min(upto, count) for _, upto in ROUNDS)]
    race = sum(most * (b - a) for (most, _), (a, b) in zip(ROUNDS, pairwise(tried), strict=True))
    return race + NEIGHBOURS * tried[-2]


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


def score_cases(replay: Replay, cases: Sequence[Case]) -> list[tuple[float, int]]:
    """Return the share of facts delivered, 0 if wrong, and the tokens taken."""
    scored = []
    for case, (draft, tokens) in zip(cases, replay.weigh_flows(_list_flows(replay, cases)), strict=True):
        verdict = judge_answer(case.question, Outcome.ANSWERED, (draft or Draft()).text)
        scored.append((0.0 if verdict.wrong else verdict.fact_share, tokens))
    return scored


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
