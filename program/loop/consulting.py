"""Decisions asked of their clients, one model or two; several that go to one language model, in one call.

A step's decisions stay what they are, each with its predictor, demonstrations and threshold. An embedded decider
answers them one by one, or all of a kind in a batch. A language model is put all of them at once, and what is likely
to be asked next with them; with a cascade, only those in doubt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import dspy

from program.loop.deciding import client, decides, prompt_inputs, untraced, unwatched
from program.loop.decisions import Evidence, decode, evidence_from, evidence_of, is_direct, written
from program.loop.requests import Ask, Request
from program.models.cascade import consult_tiers
from program.models.language.adapter import strip_links
from program.models.language.decision_format import TEXT
from program.models.language.spending import current_spending
from program.models.together import Part, Reading

if TYPE_CHECKING:
    from program.loop.rag import AgenticRAG

MOST = 24  # decisions in one call

Consulted = tuple[list[Evidence], list[tuple[Ask, Evidence]]]
"""What decisions came to, in order; and what was answered ahead of its being asked."""

_Work = Generator[tuple[Any, Sequence[Ask]], Consulted, Consulted]


def takes_several(program: AgenticRAG) -> bool:
    """True when a client of the program's takes several decisions at once, and more than these with them."""
    models = program.runtime.models
    return any(hasattr(model, "together") for model in (models.decide, models.judge))


def grouped(program: AgenticRAG, requests: Sequence[Request]) -> list[list[int]]:
    """The places of the requests that are performed as one: decisions that go to the same language model.

    Every other request is performed by itself, and so is what is more than one call can carry.
    """
    groups: list[list[int]] = []
    latest: dict[int, list[int]] = {}
    for at, request in enumerate(requests):
        model = _composer(program, request)
        group = latest.get(id(model), []) if model is not None else []
        if group and len(group) < MOST:
            group.append(at)
            continue
        groups.append([at])
        if model is not None:
            latest[id(model)] = groups[-1]
    return groups


def decide_directly(program: AgenticRAG, asks: Sequence[Ask]) -> Consulted:
    """The probabilities of decisions that go to the same client."""
    work = _work(program, asks)
    asked = next(work)
    try:
        while True:
            asked = work.send(ask_model(program, *asked))
    except StopIteration as stop:
        found: Consulted = stop.value
        return found


async def adecide_directly(program: AgenticRAG, asks: Sequence[Ask]) -> Consulted:
    """As `decide_directly`: a language model is awaited, an embedded one works in another thread."""
    work = _work(program, asks)
    asked = next(work)
    try:
        while True:
            asked = work.send(await _aask(program, *asked))
    except StopIteration as stop:
        found: Consulted = stop.value
        return found


def _work(program: AgenticRAG, asks: Sequence[Ask]) -> _Work:
    """Yields who is to be asked what: one client, or both of a cascade; what was passed on is counted."""
    model = client(program, program.predictor(asks[0].predictor))
    if not hasattr(model, "second"):
        return (yield model, asks)
    tiers = consult_tiers([program.doubt.of(ask.predictor) for ask in asks])
    tier, places = next(tiers)
    spent, before = current_spending(), 0
    try:
        while True:
            before = spent.stood_in
            found, _ = yield (model.first, model.second)[tier], [replace(asks[n], ahead=()) for n in places]
            tier, places = tiers.send(found)
    except StopIteration as stop:
        said = stop.value
    agreed = []
    for ask, each in zip(asks, said, strict=True):
        if len(each) > 1 and spent.stood_in == before:  # else nobody knows to which of them the second model came
            fields = program.predictor(ask.predictor).fields
            first, second = ([d.value for d in decode(one, fields).values()] for one in each)
            agreed.append(first == second)
    passed_on, together = sum(len(each) > 1 for each in said), hasattr(model.second, "together")
    dear, always = (min(1, n) if together else n for n in (passed_on, len(asks)))
    spent.cascaded(agreed, dear, always - dear)
    return [each[-1] for each in said], []


def carried(program: AgenticRAG, model: Any, asks: Sequence[Ask]) -> list[Ask]:
    """What one call to a model carries for these requests: they, and what is asked ahead; nothing when it is asked
    one at a time."""
    if not hasattr(model, "together"):
        return []
    ahead = [after for ask in asks for after in ask.ahead if _same_model(program, model, after)]
    ahead = ahead[: max(0, MOST - len(asks))]
    return [*asks, *ahead] if len(asks) + len(ahead) > 1 else []


def ask_model(program: AgenticRAG, model: Any, asks: Sequence[Ask]) -> Consulted:
    """What one client says of decisions; with what was asked ahead, as far as it answered that."""
    if parts := _parts(program, model, asks):
        return _told(parts, model.together([part for _, part in parts]), len(asks))
    found: list[Evidence] = []
    for name, group in groupby(asks, key=attrgetter("predictor")):
        predictor, inputs = program.predictor(name), [prompt_inputs(ask.inputs) for ask in group]
        if is_direct(model):
            found += program.requests.ask_many(name, predictor, model, inputs)
        else:
            found += [evidence_of(predictor(lm=model, **one)) for one in inputs]
    return found, []


async def _aask(program: AgenticRAG, model: Any, asks: Sequence[Ask]) -> Consulted:
    if parts := _parts(program, model, asks):
        return _told(parts, await model.atogether([part for _, part in parts]), len(asks))
    if not hasattr(model, "awaits"):
        return await asyncio.to_thread(ask_model, program, model, asks)
    put = [(ask.predictor, program.predictor(ask.predictor), prompt_inputs(ask.inputs)) for ask in asks]
    return [await program.requests.aask(name, predictor, model, inputs) for name, predictor, inputs in put], []


def _composer(program: AgenticRAG, request: Request) -> Any:
    """The client of a decision when it, or the one behind it, takes several at once; else None."""
    if not isinstance(request, Ask):
        return None
    predictor = program.predictor(request.predictor)
    if not untraced(program, predictor):
        return None
    model = client(program, predictor)
    return model if hasattr(getattr(model, "second", model), "together") else None


def _parts(program: AgenticRAG, model: Any, asks: Sequence[Ask]) -> list[tuple[Ask, Part]]:
    """The requests, and what is asked ahead, as parts of one call; none when the model is asked one at a time."""
    return [(one, _part(program, model, one, n >= len(asks))) for n, one in enumerate(carried(program, model, asks))]


def _same_model(program: AgenticRAG, model: Any, ask: Ask) -> bool:
    """True when a request, a decision or a text, would go to that language model by itself."""
    predictor = program.predictor(ask.predictor)
    own = client(program, predictor, prompt_inputs(ask.inputs))
    return own is model if decides(predictor) else unwatched() and getattr(own, "endpoint", None) is model.endpoint


def _part(program: AgenticRAG, model: Any, ask: Ask, optional: bool) -> Part:
    predictor, inputs = program.predictor(ask.predictor), prompt_inputs(ask.inputs)
    if decides(predictor):
        return Part(*program.requests.part(ask.predictor, predictor, model, inputs), optional)
    state = {
        "instructions": predictor.signature.instructions,
        "demos": [written(demo) for demo in predictor.demos],
        "inputs": written(inputs),
    }
    return Part(state, _texts(predictor), optional)


def _texts(predictor: dspy.Predict) -> dict[str, dict[str, str]]:
    fields = predictor.signature.output_fields.items()
    return {name: {"type": TEXT, "instructions": field.json_schema_extra["desc"]} for name, field in fields}


def _told(parts: Sequence[tuple[Ask, Part]], readings: Sequence[Reading | None], now: int) -> Consulted:
    """The replies to what was asked, and to what was asked ahead as far as it was answered."""
    found = [(ask, _evidence(ask, part, r)) for (ask, part), r in zip(parts, readings, strict=True) if r is not None]
    return [evidence for _, evidence in found[:now]], found[now:]


def _evidence(ask: Ask, part: Part, reading: Reading) -> Evidence:
    """The probabilities of a decision, or the fields of a text."""
    is_text = any(question["type"] == TEXT for question in part.questions.values())
    return strip_links(reading, prompt_inputs(ask.inputs)) if is_text else evidence_from(reading, part.questions)
