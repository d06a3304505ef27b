"""What each predictor may be given: instructions, and sets of demonstrations from labels and from good runs.

The search tells which of them helps. Only what can change an answer is offered: an embedded decider reads
demonstrations alone, the embedded writer neither. New instructions are written by a language model from what a
predictor got wrong (GEPA's reflection).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dspy
import orjson

from ragc.errors import BudgetStop
from ragc.knowledge.index.build import Advance
from ragc.loop.policy import DEMONSTRATIONS, INSTRUCTIONS, LAYOUTS, Setting, apply_setting
from ragc.loop.policy import Candidates as Choices
from ragc.loop.rag import AgenticRAG
from ragc.loop.state import DRAFT
from ragc.models.catalog import is_decision
from ragc.models.deciders import EXAMPLES_SHOWN, is_short
from ragc.models.language.layout import LAYOUT, PromptLayout
from ragc.optimize.compiler.candidates.demonstrations import (
    Demonstration,
    Failure,
    Run,
    bootstrap_demonstrations,
    collect_failures,
    learns_demos,
    observe_runs,
    reads_instructions,
    thin_out,
    to_json,
)
from ragc.optimize.compiler.runs.replay import ReplayArm
from ragc.optimize.compiler.runs.runner import AnyArm
from ragc.optimize.evaluation.outcome import AS_IT_IS

LOG = logging.getLogger(__name__)
FEW = (EXAMPLES_SHOWN, EXAMPLES_SHOWN // 2)  # sizes of the sets for language models
LAYOUTS_TRIED = (PromptLayout.LINE, PromptLayout.QUOTE)
"""Layouts of the writer's prompt that small models did better with: the shortest, and one that has it quote first."""
PROMPT_CHARACTERS = 12_000  # characters of the demonstrations of a text at most
LONGEST = 6000  # characters of an instruction at most
SHOWN, CHARACTERS = 5, 3000  # failures in a reflection at most, and characters of each of their fields
LABELLED = "labelled"

Sets = dict[str, list[Demonstration]]
"""Demonstrations of one predictor by their kind; the first kind is what the predictor has as it is."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What one predictor may be given: instructions beside its own, and sets of demonstrations, its own first."""

    instructions: tuple[str, ...]
    demonstrations: Sets


@dataclass(frozen=True, slots=True)
class CandidateSets:
    """The offers of each predictor, by its name."""

    offers: dict[str, Offer]
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
            for n, kind in enumerate(offer.demonstrations):
                if kind not in (AS_IT_IS, LABELLED, "none"):
                    found[f"{name}: {kind}"] = {name + DEMONSTRATIONS: n}
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


def find_candidates(
    *,
    first: AgenticRAG,
    base: AgenticRAG,
    demonstrations: Sequence[Demonstration],
    arms: Sequence[ReplayArm],
    propose: Callable[[str, Sequence[Failure]], list[str]] | None,
    progress: Advance,
) -> CandidateSets:
    """Return the candidates of each predictor.

    `first` has the instructions in the code, `base` what is compiled from. The programs of the arms are run where a
    language model reads prompts, and given the candidates.
    """
    layouts = {DRAFT: LAYOUTS_TRIED} if reads_instructions(base, DRAFT) else {}
    prompts = [name for name, _ in base.named_predictors() if reads_instructions(base, name)]
    found = CandidateSets(offer_demonstrations(base, demonstrations), layouts)
    found.equip_arms(arms)
    runs: list[Run] = []
    with contextlib.suppress(BudgetStop):
        for arm in arms if prompts else ():
            apply_setting(arm.replay.program, found.begun_choices)
        runs = observe_runs(arms) if prompts else []
    found = CandidateSets(offer_demonstrations(base, demonstrations, bootstrap_demonstrations(runs)), layouts)
    with contextlib.suppress(BudgetStop):
        for done, name in enumerate(prompts, 1):
            written, now = (one.predictor(name).signature.instructions for one in (first, base))
            texts = [written] if written != now else []
            texts += propose(name, collect_failures(runs, name)) if propose is not None else []
            found.offers[name] = replace(found.offers[name], instructions=tuple(texts))
            progress(done, len(prompts))
    found.equip_arms(arms)
    return found


def offer_demonstrations(
    program: AgenticRAG, made: Sequence[Demonstration], good: Sequence[Demonstration] = ()
) -> dict[str, Offer]:
    """Return each predictor's sets: own, labelled and, for a prompt, of good runs."""
    offers: dict[str, Offer] = {}
    for name, predictor in program.named_predictors():
        own, runs = ([to_json(one) for one in some if one.predictor == name] for some in (made, good))
        asked = {str(one.fields.get("question")): one.topic for one in own}
        known = {_to_text(one.fields): one.topic for one in (*runs, *own)}
        had = [
            Demonstration(name, known.get(_to_text(demo)) or asked.get(str(demo.get("question")), ""), dict(demo))
            for demo in predictor.demos
        ]
        if learns_demos(program, name):
            offers[name] = Offer((), _drop_equal({AS_IT_IS: had, LABELLED: own, "none": []}))
        elif reads_instructions(program, name):
            shown = {LABELLED: own, "bootstrapped": runs}
            few = {f"{kind}-{len(some)}": some for kind, all_ in shown.items() for some in _pick_few(all_, predictor)}
            offers[name] = Offer((), _drop_equal({AS_IT_IS: had, **few}))
    return offers


def _pick_few(made: Sequence[Demonstration], predictor: dspy.Predict) -> list[list[Demonstration]]:
    """Return small sets for a prompt; of a text one, for its layout says how many of them are shown."""
    if is_decision(predictor):
        short = [one for one in made if is_short(one.fields, predictor.signature.output_fields)]
        return [thin_out(short, size) for size in FEW]
    few = thin_out(made, FEW[-1])
    return [few] if few and sum(len(_to_text(one.fields)) for one in few) <= PROMPT_CHARACTERS else []


def _drop_equal(sets: Sets) -> Sets:
    """Return the sets without one that is there already."""
    told = [[_to_text(one.fields) for one in own] for own in sets.values()]
    return {kind: own for n, (kind, own) in enumerate(sets.items()) if told[n] not in told[:n]}


def _to_text(fields: Mapping[str, Any]) -> str:
    return orjson.dumps(dict(fields), option=orjson.OPT_SORT_KEYS).decode()


def propose_instructions(lm: dspy.BaseLM, program: dspy.Module, name: str, failures: Sequence[Failure]) -> list[str]:
    """Return new instructions of a predictor by GEPA's reflection, if any."""
    from dspy.teleprompt.gepa import InstructionProposer

    now = dict(program.named_predictors())[name].signature.instructions
    shown = [_shorten_texts(failure) for failure in failures[:SHOWN]]
    try:
        with dspy.context(lm=lm):
            written = InstructionProposer()({name: now}, {name: shown}, [name]) if shown else {}
    except Exception as error:  # DSPy and GEPA raise what they like
        LOG.warning("no instruction for %s: %s", name, " ".join(str(error).split())[:200])
        return []
    texts = (text.strip() for text in written.values())
    return [text for text in texts if text and text != now and len(text) <= LONGEST]


def _shorten_texts(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _shorten_texts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shorten_texts(item) for item in value[:SHOWN]]
    return str(value)[:CHARACTERS]
