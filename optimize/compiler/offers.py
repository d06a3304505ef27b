"""Which candidates a study searches: proposed, screened by module-level labels, agreed upon once and noted."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optimize.compiler.abreast import Ahead, going_up, nothing_ahead
from optimize.compiler.candidates import Offer, Sets, equip, gathered, informed, learns, reads_instructions, taught
from optimize.compiler.demonstrations import MOST, Demonstration
from optimize.compiler.instructions import Failure, Proposer
from optimize.compiler.journal import Journal
from optimize.compiler.record import Entry, key_of
from optimize.compiler.runs import Run, bootstrapped, observed, said
from optimize.compiler.screening import Examples, examples
from optimize.compiler.spending import CANDIDATES_SHARE, CHOICE_SHARE
from program.errors import BudgetStop, StudyError
from program.knowledge.index.build import Advance
from program.loop.decisions import to_jsonable, to_prompt_inputs
from program.loop.policy import DEMONSTRATIONS, INSTRUCTIONS, apply_setting

if TYPE_CHECKING:
    from optimize.compiler.preparation import Preparation

CANDIDATES = "candidates"
SHOWN = "shown"


def agreed(ready: Preparation, journal: Journal, worker: bool, ahead: Ahead, advance: Advance) -> None:
    """Gives the arms their candidates: those noted in the study, else those found now, which are then noted.

    The demonstrations themselves are kept in the record. What takes longest is worked at `ahead`; a worker does no
    more than that, and waits for the compile that began the study. Raises `StudyError` when nothing is noted in WAIT
    seconds, or the record lacks them and others come about now.
    """
    noted = journal.attributes.get(CANDIDATES)
    ran, screened = _counts(ready, advance)
    if noted is None and worker:
        if ahead is not nothing_ahead:  # all the more is left for the compile, whose turn it is
            _screened_ahead(ready, _gathered(ready, ahead, ran), ahead, screened)
        ready.record.flush()
        noted = journal.awaited(CANDIDATES, ready.spending.check)
    before = ready.spending.caps
    kept = _kept(ready, journal) if noted is not None else None
    if kept is not None:
        ready.sets = {name: {**sets, **kept.get(name, {})} for name, sets in _sets(ready, []).items()}
    else:
        if noted is None:
            ready.spending.caps = before.reduced(CANDIDATES_SHARE / CHOICE_SHARE)
        runs = _gathered(ready, ahead, ran)
    if noted is None:
        _screened_ahead(ready, runs, ahead, screened)
        ready.offers = _found(ready, runs, screened)
        _keep(ready, journal)
        journal.note(CANDIDATES, {name: offer.noted() for name, offer in sorted(ready.offers.items())})
    else:
        ready.offers = {name: Offer.read(offer) for name, offer in noted.items()}
        if kept is None and _shown(ready)[0].hex() != journal.attributes[SHOWN]:
            raise StudyError(
                f"The demonstrations that {journal.name} searches are not in the record, and can not be made again.",
                "Restore the record that was there when it began, or start anew: ragc compile PROJECT",
            )
    ready.spending.caps = before
    _equip(ready, ready.sets, ready.offers)


def _counts(ready: Preparation, advance: Advance) -> tuple[Advance, Advance]:
    """Show how far the runs, arm by arm, and then the screening, predictor by predictor, are of both together."""
    program, arms = ready.base, len(ready.arms)
    of = arms + sum(learns(program, n) or reads_instructions(program, n) for n, _ in program.named_predictors())
    show = going_up(advance)
    return lambda done, _: show(done, of), lambda done, _: show(arms + done, of)


def _shown(ready: Preparation) -> tuple[bytes, dict[str, dict[str, Any]]]:
    """The demonstrations offered, by predictor and kind, each with its topic; and their digest. A kind that did not
    come about is left out."""
    found = {}
    for name, offer in sorted(ready.offers.items()):
        sets = ready.sets[name]
        found[name] = {kind: [[d.topic, d.fields] for d in sets[kind]] for kind in offer.demonstrations if kind in sets}
    return key_of(["shown", found]), found


def _keep(ready: Preparation, journal: Journal) -> None:
    digest, found = _shown(ready)
    ready.record.write({digest: Entry(found)})
    journal.note(SHOWN, digest.hex())


def _kept(ready: Preparation, journal: Journal) -> dict[str, Sets] | None:
    """The demonstrations that the study searches, as they were when it began; None when the record lacks them."""
    digest = bytes.fromhex(journal.attributes[SHOWN])
    entry = ready.record.read([digest]).get(digest)
    if entry is None:
        return None
    return {
        name: {kind: [Demonstration(name, topic, fields) for topic, fields in shown] for kind, shown in sets.items()}
        for name, sets in entry.value.items()
    }


def _gathered(ready: Preparation, ahead: Ahead, progress: Advance) -> list[Run]:
    """Gathers the sets of demonstrations; the program's own runs, from which some of them are."""
    ready.sets = _sets(ready, [])
    _equip(ready, ready.sets, taught(ready.base, ready.sets))
    try:
        runs = _runs(ready, ahead, progress)
    except BudgetStop:
        runs = []
    if good := bootstrapped(runs):
        ready.sets = _sets(ready, good)
    return runs


def _sets(ready: Preparation, good: Sequence[Demonstration]) -> dict[str, Sets]:
    return gathered(ready.base, ready.demonstrations, good, ready.first.runtime.models.embedder)


def _runs(ready: Preparation, ahead: Ahead, progress: Advance) -> list[Run]:
    """The program's own runs, once it has what is labelled, where they can be of use."""
    program = ready.base
    names = [name for name, _ in program.named_predictors()]
    counts = {name: sum(one.predictor == name for one in ready.demonstrations) for name in names}
    of_use = [n for n in names if reads_instructions(program, n) or (learns(program, n) and 0 < counts[n] < MOST // 2)]
    for arm in ready.arms if of_use else ():
        apply_setting(arm.replay.program, informed(taught(program, ready.sets), ready.sets))
    if not of_use:
        return []

    def observe(place: int) -> None:
        observed([ready.arms[place]])

    ahead(observe, len(ready.arms), progress)
    runs: list[Run] = []
    for done, arm in enumerate(ready.arms):
        progress(done, len(ready.arms))
        runs += observed([arm])
    return runs


def _equip(ready: Preparation, sets: Mapping[str, Sets], offers: Mapping[str, Offer]) -> None:
    for arm in ready.arms:
        equip(arm.replay.program, sets, offers, frozenset(q.cluster for q in arm.questions))


def _found(ready: Preparation, runs: Sequence[Run], progress: Advance) -> dict[str, Offer]:
    """What is worth searching, predictor by predictor; what a cap leaves no room for is not."""
    offers = taught(ready.base, ready.sets)
    with contextlib.suppress(BudgetStop):
        for done, (name, sets) in enumerate(ready.sets.items()):
            progress(done, len(ready.sets))
            offers[name] = _screened(ready, name, sets, runs, offers.get(name, Offer()))
    return {name: offer for name, offer in offers.items() if offer != Offer()}


def _screened_ahead(ready: Preparation, runs: Sequence[Run], ahead: Ahead, progress: Advance) -> None:
    """Screens the candidates of the embedded deciders, whose heads take longest, for what that leaves behind."""
    offers = taught(ready.base, ready.sets)
    names = [name for name in ready.sets if learns(ready.base, name)]

    def screen(place: int) -> None:
        _screened(ready, names[place], ready.sets[names[place]], runs, offers.get(names[place], Offer()))

    ahead(screen, len(names), progress)


def _screened(ready: Preparation, name: str, sets: Sets, runs: Sequence[Run], anyway: Offer) -> Offer:
    """A predictor's candidates that its labels speak for, beside those it is offered anyway; all of them where there
    are too few labels to tell."""
    base = len(anyway.demonstrations)
    known = examples(ready.arms, ready.demonstrations, name, base)
    kinds = tuple(sets)[1:]
    proposes = ready.base.runtime.models.propose is not None and reads_instructions(ready.base, name)
    if known.tell and proposes:
        known.as_it_is()  # says what it gets wrong
    texts = (*_handwritten(ready, name), *(_proposed(ready, name, sets, known, runs) if proposes else ()))
    every = Offer(texts, kinds)
    if not known.tell:  # an embedded decider of so few labels would but guess
        return anyway if known.cases and learns(ready.base, name) else every
    if every == Offer():
        return every
    _equip(ready, {name: sets}, {name: every})
    return Offer(
        tuple(texts[place - 1] for place in known.let_in(INSTRUCTIONS, texts)),
        anyway.demonstrations + tuple(kinds[place - 1] for place in known.let_in(DEMONSTRATIONS, kinds)),
    )


def _handwritten(ready: Preparation, name: str) -> tuple[str, ...]:
    """The instruction in the code, when the version it is compiled from has another and anyone reads it."""
    text = ready.first.predictor(name).signature.instructions
    new = text != ready.base.predictor(name).signature.instructions and reads_instructions(ready.base, name)
    return (text,) if new else ()


def _proposed(ready: Preparation, name: str, sets: Sets, known: Examples, runs: Sequence[Run]) -> list[str]:
    """New instructions, from what the predictor got wrong; none when it got nothing wrong."""
    failures = known.failures or _failures(runs, name)
    model = ready.base.runtime.models.propose
    if model is None or not failures:
        return []
    good: list[Demonstration] = max(sets.values(), key=len, default=[])
    return Proposer(model, ready.record, ready.spending, ready.seed).propose(
        ready.base, name, [one.fields for one in good], failures
    )


def _failures(runs: Sequence[Run], name: str) -> list[Failure]:
    """The predictor's part in runs that ended badly."""
    found: list[Failure] = []
    for run in runs:
        if run.verdict.correct:
            continue
        for ask, reply in run.asked:
            if ask.predictor == name:
                inputs = {n: to_jsonable(value) for n, value in to_prompt_inputs(ask.inputs).items()}
                outputs = {n: to_jsonable(value) for n, value in said(reply).items()}
                found.append({"Inputs": inputs, "Generated Outputs": outputs, "Feedback": _feedback(run)})
    return found


def _feedback(run: Run) -> str:
    question, word = run.question, "wrong" if run.verdict.wrong else "incomplete"
    told = f"The question was {question.question!r}. The program's outcome, {run.answer.outcome}, was {word}."
    if question.outcome is not None and question.outcome != run.answer.outcome:
        told += f" It should have been {question.outcome}."
    if question.alternatives:
        told += f" A right answer states {'; '.join(' or '.join(map(str, forms)) for forms in question.alternatives)}."
    if question.not_facts:
        told += f" It does not state {'; '.join(map(str, question.not_facts))}."
    return f"{told} The final answer was: {run.answer.text!r}"
