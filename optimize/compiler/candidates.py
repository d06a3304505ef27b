"""What each predictor may be given: sets of demonstrations by their kind, and instructions.

Only what can change an answer is offered: an embedded decider reads demonstrations and no instructions, the embedded
writer neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dspy
import orjson

from optimize.compiler.demonstrations import MOST, Demonstration, label_of, plain
from optimize.compiler.diversity import diverse
from program.loop.decisions import all_clients_of, clients_of, is_decision
from program.loop.policy import DEMONSTRATIONS, Candidates
from program.loop.rag import AgenticRAG
from program.models.catalog import LOCAL
from program.models.embedded.encoder import Embedder
from program.models.language.decision_format import EXAMPLES_SHOWN, format_example

FEW = (EXAMPLES_SHOWN, EXAMPLES_SHOWN // 2)
"""Sizes of the sets for language models."""
SMALLER = (100, 50)
"""Sizes of the diverse sets for embedded deciders, which otherwise have every one, up to MOST."""
MUCH_SMALLER = 0.6  # of the whole, or a set is hardly another
WORTH_ADDING = 1.25  # times as many demonstrations as are labelled
PROMPT_CHARACTERS = 12_000  # of the demonstrations of a text
LABELLED = "labelled"

Sets = dict[str, list[Demonstration]]
"""Demonstrations of one predictor by their kind; the first is exactly what it has as it is."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a predictor is offered beside what it has: instructions, and kinds of demonstration sets."""

    instructions: tuple[str, ...] = ()
    demonstrations: tuple[str, ...] = ()

    def noted(self) -> dict[str, list[str]]:
        """As a study keeps it."""
        return {"instructions": list(self.instructions), "demonstrations": list(self.demonstrations)}

    @classmethod
    def read(cls, noted: Mapping[str, Sequence[str]]) -> Offer:
        """As it was noted."""
        return cls(tuple(noted["instructions"]), tuple(noted["demonstrations"]))


def reads_instructions(program: AgenticRAG, name: str) -> bool:
    """True when a language model may answer the predictor."""
    return any(not str(model.model).startswith(LOCAL) for model in all_clients_of(program, program.predictor(name)))


def learns(program: AgenticRAG, name: str) -> bool:
    """True when an embedded decider, which is fitted to its demonstrations, is the first to answer the predictor."""
    predictor = program.predictor(name)
    return is_decision(predictor) and str(clients_of(program, predictor, {})[0].model).startswith(LOCAL)


def gathered(
    program: AgenticRAG, made: Sequence[Demonstration], good: Sequence[Demonstration], embedder: Embedder
) -> dict[str, Sets]:
    """The sets of every predictor to which they make a difference: from labels (`made`) and from good runs (`good`).

    `program` holds what there is as it is.
    """
    found: dict[str, Sets] = {}
    for name, predictor in program.named_predictors():
        own = [plain(one) for one in made if one.predictor == name]
        runs = [plain(one) for one in good if one.predictor == name]
        asked = {str(one.fields.get("question")): one.topic for one in own}
        known = {_told(one.fields): one.topic for one in (*runs, *own)}
        had = [
            Demonstration(name, known.get(_told(demo)) or asked.get(str(demo.get("question")), ""), dict(demo))
            for demo in predictor.demos
        ]
        if learns(program, name):
            seen = {_told(_inputs(one, predictor)) for one in own}
            new = [one for one in runs if _told(_inputs(one, predictor)) not in seen]
            found[name] = _for_heads(had, own, new, embedder)
        elif reads_instructions(program, name):
            found[name] = _for_prompts(had, own, runs, embedder, predictor)
    return found


def taught(program: AgenticRAG, sets: Mapping[str, Sets]) -> dict[str, Offer]:
    """What is offered whatever its labels say: to an embedded decider without demonstrations, which is not yet one,
    every labelled one."""
    new = [name for name, own in sets.items() if LABELLED in own and learns(program, name) and not _first(own)]
    return {name: Offer((), (LABELLED,)) for name in new}


def informed(offers: Mapping[str, Offer], sets: Mapping[str, Sets]) -> dict[str, int]:
    """The candidates with which a decider that had no demonstrations begins to be one; nothing for the others."""
    begun = [
        name for name, offer in offers.items() if offer.demonstrations[:1] == (LABELLED,) and not _first(sets[name])
    ]
    return {name + DEMONSTRATIONS: 1 for name in begun}


def equip(
    program: AgenticRAG,
    sets: Mapping[str, Sets],
    offers: Mapping[str, Offer],
    without: frozenset[str] = frozenset(),
) -> None:
    """Gives each predictor of `sets` its candidates, of which it takes the first, demonstrations of the topics in
    `without` left out."""
    for name, own in sets.items():
        predictor, offer = program.predictor(name), offers.get(name, Offer())
        before: Candidates | None = getattr(predictor, "candidates", None)
        base = predictor.signature if before is None else before.signatures[0]
        kinds = [next(iter(own)), *offer.demonstrations]
        shown = [[one.fields for one in own[kind] if one.topic not in without] for kind in kinds]
        if before is not None and before.demonstrations[0] == shown[0]:
            shown[0] = before.demonstrations[0]  # the very same, so that nothing is worked out anew
        signatures = [base, *(base.with_instructions(text) for text in offer.instructions)]
        predictor.candidates = Candidates(signatures, shown)
        predictor.candidates.choose(predictor)


def _for_heads(
    had: list[Demonstration], own: list[Demonstration], new: list[Demonstration], embedder: Embedder
) -> Sets:
    found = {"as it is": had, LABELLED: own, "none": []}
    for size in SMALLER:
        if size <= MUCH_SMALLER * len(own):
            found[f"diverse-{size}"] = diverse(own, size, embedder)
    more = [*own, *new][:MOST]
    if len(more) >= WORTH_ADDING * len(own) and len({label_of(one) for one in more}) > 1:
        found["bootstrapped"] = more
    return _apart(found)


def _for_prompts(
    had: list[Demonstration],
    own: list[Demonstration],
    runs: list[Demonstration],
    embedder: Embedder,
    predictor: dspy.Predict,
) -> Sets:
    found, decision = {"as it is": had}, is_decision(predictor)
    outputs = predictor.signature.output_fields
    for kind, source in ((LABELLED, own), ("bootstrapped", runs)):
        fit = [one for one in source if format_example(one.fields, outputs) is not None] if decision else source
        for size in FEW:
            few = diverse(fit, size, embedder)
            if decision or sum(len(_told(one.fields)) for one in few) <= PROMPT_CHARACTERS:
                found[f"{kind}-{size}"] = few
    return _apart(found)


def _first(sets: Sets) -> list[Demonstration]:
    return next(iter(sets.values()))


def _apart(sets: Sets) -> Sets:
    """Without those that are as one before them."""
    seen: list[list[str]] = []
    kept: Sets = {}
    for kind, demonstrations in sets.items():
        told = [_told(one.fields) for one in demonstrations]
        if told not in seen:
            seen.append(told)
            kept[kind] = demonstrations
    return kept


def _inputs(one: Demonstration, predictor: dspy.Predict) -> dict[str, Any]:
    return {name: one.fields[name] for name in predictor.signature.input_fields}


def _told(fields: Mapping[str, Any]) -> str:
    return orjson.dumps(dict(fields), option=orjson.OPT_SORT_KEYS).decode()
