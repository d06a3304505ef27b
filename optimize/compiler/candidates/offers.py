"""What each predictor may be given: instructions, and sets of demonstrations from labels and from good runs.

The search tells which of them helps. Only what can change an answer is offered: an embedded decider reads
demonstrations alone, the embedded writer neither.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy
import orjson

from ragc.errors import BudgetStop
from ragc.loop.policy import DEMONSTRATIONS, INSTRUCTIONS, LAYOUTS, Setting, apply_setting, is_candidate
from ragc.loop.policy import Candidates as Choices
from ragc.loop.rag import AgenticRAG
from ragc.loop.state import DRAFT
from ragc.models.clients import is_decision
from ragc.models.deciders import EXAMPLES_SHOWN, is_short
from ragc.models.language.layout import LAYOUT, PromptLayout
from ragc.optimize.compiler.candidates.demonstrations import (
    MOST,
    Demonstration,
    Failure,
    Run,
    bootstrap_demonstrations,
    collect_failures,
    label_of,
    learns_demos,
    observe_runs,
    reads_instructions,
    thin_out,
    to_json,
)
from ragc.optimize.compiler.runs.replay import ReplayArm
from ragc.optimize.compiler.runs.runner import AnyArm

FEW = (EXAMPLES_SHOWN, EXAMPLES_SHOWN // 2)  # sizes of the sets for language models
WORTH_ADDING = 1.25  # times as many demonstrations as are labelled from which the program's own are a set beside
LAYOUTS_TRIED = (PromptLayout.LINE, PromptLayout.QUOTE)
"""Layouts of the writer's prompt that small models did better with: the shortest, and one that has it quote first."""
PROMPT_CHARACTERS = 12_000  # characters of the demonstrations of a text at most
AS_IT_IS, LABELLED = "as it is", "labelled"

Sets = dict[str, list[Demonstration]]
"""Demonstrations of one predictor by their kind; the first kind is what the predictor has as it is."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Offer:
    """What one predictor may be given: instructions beside its own, and sets of demonstrations, its own first."""

    instructions: tuple[str, ...]
    demonstrations: Sets


@dataclass(frozen=True, slots=True)
class CandidateSets:
    """The offers of each predictor, by its name."""

    offers: Mapping[str, Offer]
    layouts: Mapping[str, tuple[PromptLayout, ...]] = field(default_factory=dict)
    """Other layouts of a predictor's prompt."""

    @property
    def begun_choices(self) -> Setting:
        """Choices that give what has no demonstration the labelled ones."""
        own = {name: offer.demonstrations for name, offer in self.offers.items()}
        begun = (name for name, sets in own.items() if list(sets)[1:2] == [LABELLED] and not sets[AS_IT_IS])
        return dict.fromkeys((name + DEMONSTRATIONS for name in begun), 1.0)

    def list_ways(self) -> dict[str, Setting]:
        """Return by name each choice for a prompt in place of its own.

        It is a set of demonstrations, an instruction, or a layout.
        """
        found: dict[str, Setting] = {}
        for name, offer in self.offers.items():
            kinds = [kind for kind in offer.demonstrations if kind not in (AS_IT_IS, LABELLED, "none")]
            places = [list(offer.demonstrations).index(kind) for kind in kinds]
            found |= {f"{name}: {kind}": {name + DEMONSTRATIONS: n} for kind, n in zip(kinds, places, strict=True)}
            for n in range(1, len(offer.instructions) + 1):
                found[f"{name}: instruction {n}"] = {name + INSTRUCTIONS: n}
        for name, layouts in self.layouts.items():
            found |= {f"{name}: layout {n}": {name + LAYOUTS: n} for n in range(1, len(layouts) + 1)}
        return found

    def equip_program(self, program: dspy.Module, without: frozenset[str] = frozenset()) -> None:
        """Give each predictor its candidates, without those of some topics."""
        predictors = dict(program.named_predictors())
        for name, offer in self.offers.items():
            predictor = predictors[name]
            before: Choices | None = getattr(predictor, "candidates", None)
            base = predictor.signature if before is None else before.signatures[0]
            shown = [[one.fields for one in own if one.topic not in without] for own in offer.demonstrations.values()]
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

    def equip_arms(self, arms: Sequence[AnyArm]) -> None:
        """Give each arm's program its candidates, its own topics left out."""
        for arm in arms:
            self.equip_program(arm.replay.program, frozenset(question.cluster for question in arm.questions))

    def describe_choice(self, base: dspy.Module, setting: Setting) -> dict[str, dict[str, str]]:
        """Return the kind of candidate that a setting chooses, by the choice's name."""
        found, predictors = {}, dict(base.named_predictors())
        for name, place in sorted((name, int(at)) for name, at in setting.items() if is_candidate(name)):
            predictor = name.partition("#")[0]
            if name.endswith(DEMONSTRATIONS):
                kinds = list(self.offers[predictor].demonstrations)
                found[name] = {"kind": kinds[place], "text": f"of {len(kinds)}"}
                continue
            if name.endswith(LAYOUTS):
                texts = [*map(str, (base.layout_of(predictor), *self.layouts[predictor]))]
            else:
                texts = [predictors[predictor].signature.instructions, *self.offers[predictor].instructions]
            found[name] = {"kind": "another" if place else AS_IT_IS, "text": texts[place]}
        return found


def find_candidates(
    *,
    first: AgenticRAG,
    base: AgenticRAG,
    demonstrations: Sequence[Demonstration],
    arms: Sequence[ReplayArm],
    propose: Callable[[str, Sequence[Failure]], list[str]] | None,
    progress: Progress,
) -> CandidateSets:
    """Return the candidates of each predictor.

    `first` has the instructions in the code, `base` what is compiled from. The
    programs of the arms are given the candidates on the way.
    """
    sets = gather_sets(base, demonstrations, [])
    layouts = {DRAFT: LAYOUTS_TRIED} if reads_instructions(base, DRAFT) else {}
    begun = CandidateSets(offer_labels(sets), layouts)
    begun.equip_arms(arms)
    runs: list[Run] = []
    with contextlib.suppress(BudgetStop):
        if _is_worth_running(base, demonstrations):
            for arm in arms:
                apply_setting(arm.replay.program, begun.begun_choices)
            runs = observe_runs(arms)
    if good := bootstrap_demonstrations(runs):
        sets = gather_sets(base, demonstrations, good)
    offers = offer_labels(sets)
    with contextlib.suppress(BudgetStop):
        for done, name in enumerate(sets):
            progress(done, len(sets))
            written, now = (one.predictor(name).signature.instructions for one in (first, base))
            texts = [written] if written != now and reads_instructions(base, name) else []
            if propose is not None and reads_instructions(base, name):
                texts += propose(name, collect_failures(runs, name))
            offers[name] = Offer(tuple(texts), sets[name])
    found = CandidateSets(offers, layouts)
    found.equip_arms(arms)
    return found


def gather_sets(program: AgenticRAG, made: Sequence[Demonstration], good: Sequence[Demonstration]) -> dict[str, Sets]:
    """Return each predictor's sets: as it is, from labels, and from good runs."""
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
    return sets


def offer_labels(sets: Mapping[str, Sets]) -> dict[str, Offer]:
    """Return the offers to begin with: labelled demonstrations where none are."""
    new = {name for name, own in sets.items() if LABELLED in own and not own[AS_IT_IS]}
    return {name: Offer((), _pick_kinds(own, [LABELLED] if name in new else [])) for name, own in sets.items()}


def _pick_kinds(sets: Sets, kinds: Sequence[str]) -> Sets:
    return {kind: sets[kind] for kind in (AS_IT_IS, *kinds)}


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
        fit = [one for one in source if is_short(one.fields, outputs)] if decision else source
        for size in FEW if decision else FEW[-1:]:  # of a text the layout says how many of them are shown
            few = thin_out(fit, size)
            if decision:
                found[f"{kind}-{size}"] = few
            elif few and sum(len(_to_text(one.fields)) for one in few) <= PROMPT_CHARACTERS:
                found[f"{kind}-{len(few)}"] = few
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


def _is_worth_running(base: AgenticRAG, demonstrations: Sequence[Demonstration]) -> bool:
    """Return True where the program's own runs can be of use: to a prompt, or to a decider with few labels."""
    counts = Counter(one.predictor for one in demonstrations)
    names = [name for name, _ in base.named_predictors()]
    return any(reads_instructions(base, n) or (learns_demos(base, n) and 0 < counts[n] < MOST // 2) for n in names)
