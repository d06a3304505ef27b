"""What each predictor may be given (instructions, sets of demonstrations), screened by its labels before any search.

A candidate is let in when its loss on labelled examples of topics that it was not shown is lower than that of what the
predictor has, by a standard error over topics. Where there are too few labels the search itself must tell. Only what
can change an answer is offered: an embedded decider reads demonstrations alone, the embedded writer neither.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import dspy
import numpy as np
import orjson
from pydantic import TypeAdapter

from optimize.compiler.demonstrations import (
    MOST,
    Demonstration,
    Failure,
    Run,
    bootstrap_demonstrations,
    collect_failures,
    label_of,
    learns_demos,
    observe_runs,
    plain_values,
    reads_instructions,
    thin_out,
    to_json,
)
from optimize.compiler.replay import Arm
from optimize.compiler.scoring import Floats, LabelledCases, label_cases, survives
from program.errors import BudgetStop
from program.loop.decisions import Decision, is_decision, is_undecided
from program.loop.policy import DEMONSTRATIONS, INSTRUCTIONS, LAYOUTS, Setting, apply_setting, is_candidate
from program.loop.policy import Candidates as Choices
from program.loop.rag import AgenticRAG
from program.loop.state import Ask
from program.models.language.decision_format import EXAMPLES_SHOWN, format_example
from program.models.language.layout import LAYOUT, PromptLayout
from program.models.requests import to_jsonable

FEW = (EXAMPLES_SHOWN, EXAMPLES_SHOWN // 2)  # sizes of the sets for language models
WORTH_ADDING = 1.25  # times as many demonstrations as are labelled from which the program's own are a set beside
PROMPT_CHARACTERS = 12_000  # characters of the demonstrations of a text at most
AS_IT_IS, LABELLED = "as it is", "labelled"
FEWEST = 8  # labelled examples under which nothing is said of a candidate
SURE = 1e-3  # probabilities are kept this far from 0 and 1
MOST_LET_IN = 3

Sets = dict[str, list[Demonstration]]
"""Demonstrations of one predictor by their kind; the first kind is what the predictor has as it is."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Offer:
    """Instructions, and kinds of demonstration sets, that a predictor is offered beside what it has."""

    instructions: tuple[str, ...] = ()
    demonstrations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CandidateSets:
    """The sets of demonstrations and the offers of each predictor, by its name."""

    sets: Mapping[str, Sets]
    offers: Mapping[str, Offer]
    layouts: Mapping[str, tuple[PromptLayout, ...]] = field(default_factory=dict)
    """The layouts of its prompt that did better than a predictor's own, the best first."""

    @property
    def begun_choices(self) -> Setting:
        """Choices that give what has none the labelled demonstrations, and prompts their best layouts."""
        begun = (
            n for n, o in self.offers.items() if o.demonstrations[:1] == (LABELLED,) and not self.sets[n][AS_IT_IS]
        )
        laid = (name + LAYOUTS for name, layouts in self.layouts.items() if layouts)
        return dict.fromkeys([*(name + DEMONSTRATIONS for name in begun), *laid], 1.0)

    def equip_program(self, program: dspy.Module, without: frozenset[str] = frozenset()) -> None:
        """Give each predictor its candidates, without those of some topics."""
        predictors = dict(program.named_predictors())
        for name, own in self.sets.items():
            predictor, offer = predictors[name], self.offers.get(name, Offer())
            before: Choices | None = getattr(predictor, "candidates", None)
            base = predictor.signature if before is None else before.signatures[0]
            shown = [
                [one.fields for one in own[kind] if one.topic not in without]
                for kind in (AS_IT_IS, *offer.demonstrations)
            ]
            if before is not None and before.demonstrations[0] == shown[0]:
                shown[0] = before.demonstrations[0]  # the very same list, so that nothing is worked out anew
            signatures = [base, *(base.with_instructions(text) for text in offer.instructions)]
            predictor.candidates = Choices(signatures, shown)
            predictor.candidates.choose(predictor)
        parameters = dict(program.named_parameters())
        for name, layouts in self.layouts.items():
            layout = parameters[name + LAYOUT]
            layout.candidates = ((layout.candidates or (layout.value,))[0], *layouts)
            layout.choose(0)

    def equip_arms(self, arms: Sequence[Arm]) -> None:
        """Give each arm's program its candidates, its own topics left out."""
        for arm in arms:
            self.equip_program(arm.replay.program, frozenset(question.cluster for question in arm.questions))

    def describe_choice(self, base: AgenticRAG, setting: Setting) -> dict[str, dict[str, str]]:
        """Return the kind of candidate that a setting chooses, by the choice's name."""
        found = {}
        for name, at in sorted(setting.items()):
            if not is_candidate(name):
                continue
            predictor, _, kind = name.partition("#")
            place = int(at)
            if kind == "layout":
                laid = (base.layout_of(predictor), *self.layouts[predictor])[place]
                found[name] = {"kind": "another" if place else AS_IT_IS, "text": str(asdict(laid))}
                continue
            offer = self.offers[predictor]
            if kind == "demonstrations":
                count = len(offer.demonstrations) + 1
                found[name] = {"kind": (AS_IT_IS, *offer.demonstrations)[place], "text": f"of {count}"}
            else:
                now = base.predictor(predictor).signature.instructions
                text = (now, *offer.instructions)[place]
                found[name] = {"kind": "another" if place else AS_IT_IS, "text": text}
        return found

    def dump(self) -> Any:
        """Return JSON values."""
        return TypeAdapter(CandidateSets).dump_python(self, mode="json")

    @classmethod
    def load(cls, dumped: Any) -> CandidateSets:
        """Return the candidates of such JSON values."""
        return TypeAdapter(cls).validate_python(dumped)


def find_candidates(
    *,
    first: AgenticRAG,
    base: AgenticRAG,
    demonstrations: Sequence[Demonstration],
    arms: Sequence[Arm],
    propose: Callable[[str, Sequence[Failure]], list[str]] | None,
    layouts: Mapping[str, tuple[PromptLayout, ...]],
    progress: Progress,
) -> CandidateSets:
    """Return the candidates worth searching for each predictor.

    The `layouts` of prompts are among them.

    `first` has the instructions in the code, `base` what is compiled from. The programs of the arms are given the
    candidates on the way.
    """
    found = replace(gather_sets(base, demonstrations, []), layouts=layouts)
    found.equip_arms(arms)
    runs: list[Run] = []
    with contextlib.suppress(BudgetStop):
        runs = _observe_useful(base, demonstrations, arms, found)
    if good := bootstrap_demonstrations(runs):
        found = replace(gather_sets(base, demonstrations, good), layouts=layouts)
    offers = dict(found.offers)
    with contextlib.suppress(BudgetStop):
        for done, name in enumerate(found.sets):
            progress(done, len(found.sets))
            written, now = (one.predictor(name).signature.instructions for one in (first, base))
            texts = [written] if written != now and reads_instructions(base, name) else []
            screening = Screening(label_cases(arms, demonstrations, name), len(_offered_anyway(found, name)))
            if propose is not None and reads_instructions(base, name):
                failures = screening.find_failures() or collect_failures(runs, name)
                texts += propose(name, failures)
            offers[name] = _screen_offer(found, screening, texts, arms, learns_demos(base, name))
    offered = {name: offer for name, offer in offers.items() if offer != Offer()}
    found = CandidateSets(found.sets, offered, layouts)
    found.equip_arms(arms)
    return found


@dataclass(slots=True)
class Screening:
    """Labelled examples that judge a predictor's candidates; `base` is the place of the set to be beaten."""

    labelled: LabelledCases
    base: int = 0
    _before: Floats | None = None
    _failures: list[Failure] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the predictor."""
        return self.labelled.name

    @property
    def topics(self) -> list[str]:
        """Topic of each example."""
        return [one.topic for _, one in self.labelled.cases]

    @property
    def can_tell(self) -> bool:
        """True when there are enough examples to judge a candidate by."""
        return len(self.topics) >= FEWEST and len(set(self.topics)) > 1

    def find_failures(self) -> list[Failure]:
        """Return what the predictor gets wrong as it is."""
        if self.can_tell:
            self._losses_before()
        return self._failures

    def let_in(self, kind: str, count: int) -> list[int]:
        """Return the places, from 1, of the few candidates that surely do better."""
        gains: dict[int, float] = {}
        for place in range(1, count + 1):
            if kind == DEMONSTRATIONS and place == self.base:
                continue
            gain = self._losses_before() - self._score_losses(kind, place)
            if survives(gain, self.topics):
                gains[place] = float(np.nanmean(gain))
        return sorted(sorted(gains, key=lambda place: (-gains[place], place))[:MOST_LET_IN])

    def _losses_before(self) -> Floats:
        if self._before is None:
            self._before = self._score_losses(DEMONSTRATIONS, self.base, learning=True)
        return self._before

    def _score_losses(self, kind: str, place: int, learning: bool = False) -> Floats:
        """Return the logarithmic loss of each example under one candidate; NaN where no reply could be had."""
        found = np.full(len(self.topics), np.nan)
        as_it_is = {self.name + INSTRUCTIONS: 0.0, self.name + DEMONSTRATIONS: float(self.base)}
        for n, ask, reply, wanted in self.labelled.decide({**as_it_is, self.name + kind: place}):
            found[n] = label_loss(reply, wanted)
            if learning:
                self._note_failure(ask, reply, wanted)
        return found

    def _note_failure(self, ask: Ask, reply: Mapping[str, Decision], wanted: Mapping[str, Any]) -> None:
        told = plain_values(reply)
        if wrong := {name: value for name, value in wanted.items() if told[name] != value}:
            inputs = {name: to_jsonable(value) for name, value in ask.inputs.items()}
            feedback = "; ".join(f"{name} should have been {value}" for name, value in wrong.items())
            failure = {"Inputs": inputs, "Generated Outputs": told, "Feedback": feedback}
            if failure not in self._failures:
                self._failures.append(failure)


def label_loss(reply: Mapping[str, Decision], wanted: Mapping[str, Any]) -> float:
    """Return the mean negative log-probability of the labels."""
    right = []
    for name, value in wanted.items():
        decision = reply[name]
        if is_undecided(decision):
            right.append(0.5)
        elif decision.probabilities is not None:
            right.append(decision.probabilities.get(str(value), 0.0))
        else:
            right.append(decision.probability if value else 1 - decision.probability)
    return float(-np.log(np.clip(right, SURE, 1 - SURE)).mean()) if right else float("nan")


def gather_sets(program: AgenticRAG, made: Sequence[Demonstration], good: Sequence[Demonstration]) -> CandidateSets:
    """Return each predictor's sets; one without any that decides embedded, or writes, is offered the labelled."""
    sets: dict[str, Sets] = {}
    for name, predictor in program.named_predictors():
        own = [to_json(one) for one in made if one.predictor == name]
        runs = [to_json(one) for one in good if one.predictor == name]
        asked = {str(one.fields.get("question")): one.topic for one in own}
        known = {_to_text(one.fields): one.topic for one in (*runs, *own)}
        had = [
            Demonstration(name, known.get(_to_text(demo)) or asked.get(str(demo.get("question")), ""), dict(demo))
            for demo in predictor.demos
        ]
        if learns_demos(program, name):
            inputs = predictor.signature.input_fields
            seen = {_to_text({field: one.fields[field] for field in inputs}) for one in own}
            new = [one for one in runs if _to_text({field: one.fields[field] for field in inputs}) not in seen]
            sets[name] = _sets_for_heads(had, own, new)
        elif reads_instructions(program, name):
            sets[name] = _sets_for_prompts(had, own, runs, predictor)
    new = [name for name, own in sets.items() if LABELLED in own and not own[AS_IT_IS]]
    return CandidateSets(sets, {name: Offer((), (LABELLED,)) for name in new})


def _sets_for_heads(had: list[Demonstration], own: list[Demonstration], new: list[Demonstration]) -> Sets:
    found = {AS_IT_IS: had, LABELLED: own, "none": []}
    more = [*own, *new][:MOST]
    if len(more) >= WORTH_ADDING * len(own) and len({label_of(one) for one in more}) > 1:
        found["bootstrapped"] = more
    return _drop_equal(found)


def _sets_for_prompts(
    had: list[Demonstration], own: list[Demonstration], runs: list[Demonstration], predictor: dspy.Predict
) -> Sets:
    found, decision = {AS_IT_IS: had}, is_decision(predictor)
    outputs = predictor.signature.output_fields
    for kind, source in ((LABELLED, own), ("bootstrapped", runs)):
        fit = [one for one in source if format_example(one.fields, outputs) is not None] if decision else source
        for size in FEW if decision else FEW[-1:]:  # of a text the layout says how many of them are shown
            few = thin_out(fit, size)
            if decision:
                found[f"{kind}-{size}"] = few
            elif few and sum(len(_to_text(one.fields)) for one in few) <= PROMPT_CHARACTERS:
                found[kind] = few
    return _drop_equal(found)


def _drop_equal(sets: Sets) -> Sets:
    seen: list[list[str]] = []
    kept: Sets = {}
    for kind, demonstrations in sets.items():
        told = [_to_text(one.fields) for one in demonstrations]
        if told not in seen:
            seen.append(told)
            kept[kind] = demonstrations
    return kept


def _to_text(fields: Mapping[str, Any]) -> str:
    return orjson.dumps(dict(fields), option=orjson.OPT_SORT_KEYS).decode()


def _observe_useful(
    base: AgenticRAG, demonstrations: Sequence[Demonstration], arms: Sequence[Arm], found: CandidateSets
) -> list[Run]:
    """Return the program's own runs with the labelled demonstrations, where they can be of use."""
    names = [name for name, _ in base.named_predictors()]
    counts = {name: sum(one.predictor == name for one in demonstrations) for name in names}
    if not any(reads_instructions(base, n) or (learns_demos(base, n) and 0 < counts[n] < MOST // 2) for n in names):
        return []
    for arm in arms:
        apply_setting(arm.replay.program, found.begun_choices)
    return observe_runs(arms)


def _offered_anyway(found: CandidateSets, name: str) -> tuple[str, ...]:
    return found.offers.get(name, Offer()).demonstrations


def _screen_offer(
    found: CandidateSets, screening: Screening, texts: Sequence[str], arms: Sequence[Arm], embedded: bool
) -> Offer:
    """Return the candidates of a predictor that its labels speak for, or all where there are too few to tell."""
    sets, anyway = found.sets[screening.name], _offered_anyway(found, screening.name)
    kinds = tuple(kind for kind in sets if kind != AS_IT_IS)
    every = Offer(tuple(texts), kinds)
    if not screening.can_tell:  # an embedded decider of so few labels would but guess
        return Offer((), anyway) if screening.topics and embedded else every
    if every == Offer():
        return every
    CandidateSets({screening.name: sets}, {screening.name: every}).equip_arms(arms)
    return Offer(
        tuple(texts[place - 1] for place in screening.let_in(INSTRUCTIONS, len(texts))),
        anyway + tuple(kinds[place - 1] for place in screening.let_in(DEMONSTRATIONS, len(kinds))),
    )
