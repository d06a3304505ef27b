"""`ragc compile`: labelled questions in, a sealed and better version out, with plain RAG and its parent beside it."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from typing import Any
from uuid import uuid4

from optimize.compiler.abreast import alone, backwards, can_share, in_two, nothing_ahead, products_by_one_thread
from optimize.compiler.bench import Bench
from optimize.compiler.calibration import judged
from optimize.compiler.choice import choose
from optimize.compiler.heads import fit_heads
from optimize.compiler.journal import CAPS, IDENTITY, Journal, create, join, last
from optimize.compiler.keptruns import gone_through, note_gone_through
from optimize.compiler.lead import Lead
from optimize.compiler.limits import LEAST_SECONDS, MOST_CALLS, MOST_PROCESSES, MOST_SEED, MOST_TRIALS, SEARCHED
from optimize.compiler.outcome import Compiled, paired
from optimize.compiler.preparation import Preparation, Stage, open_project, prepare
from optimize.compiler.publish import Sealing
from optimize.compiler.spending import CHOICE_SHARE, KEPT_EVERY, SEARCH_SHARE, Caps, Spending
from optimize.compiler.starts import starts
from optimize.compiler.study import Live, Search, Watch
from optimize.evaluation.comparison import judge_difference
from optimize.evaluation.evaluate import EvaluatedProgram, evaluate_side_by_side
from optimize.labelled.check import CheckReport
from optimize.labelled.shortcuts import find_shortcuts
from optimize.registry.versions import hold_lock
from optimize.report.page import CompileReport, render_compile_page
from program.errors import BudgetError, BudgetStop, StudyError
from program.knowledge.index.build import Advance
from program.loop.policy import apply_setting
from program.models.catalog import require_price
from program.project import Project
from program.serve.reference import resolve

TRIALS = 60
"""Settings that a search proposes by default."""


@products_by_one_thread()
def compile_project(
    project: Project,
    *,
    trials: int | None = None,
    seed: int | None = None,
    max_calls: int | None = None,
    max_usd: float | None = None,
    max_seconds: float | None = None,
    resume: bool = False,
    study: str = "",
    origin: str = "",
    processes: int = 2,
    watch: Watch = lambda live: None,
) -> Compiled:
    """Compiles the project's program and publishes it.

    The parent is the version `origin`, or the uncompiled program, which the first compile publishes too. Search is on
    train, by cross-fitting over topics; the choice among the finalists is on train and dev, by folds over dev's
    topics; test is read once, at the end. With `processes` 2 half of it all is another process's work where that is
    possible and the record does not have it all; the version is the same to the byte. No cap is ever passed by all
    processes and resumptions of a study together: what is best by then is sealed. With `resume` the project's last
    study, or the one named `study`, goes on where it was, under its own caps but for those given. A new one has seed 0
    unless another is given. Raises `DataError` for labels that contradict the knowledge or leave nothing to learn from,
    `StudyError` for a study made under other conditions and for a number beyond all use, `BudgetError` when a cap does
    not reach to the first setting.
    """
    caps = Caps(max_calls, max_usd, max_seconds)
    _require_sense(project, trials, seed, processes, caps)
    spending = Spending(caps)
    origin = str(resolve(origin, project.artifacts)) if origin else ""  # what an alias names moves on
    with ExitStack() as held:
        lead = held.enter_context(Lead(project))
        live, told, stage, advance = _told(watch, spending)
        journal = _resumed(project, study, lead, {"seed": seed, "from": origin or None}) if resume or study else None
        noted = journal.attributes[IDENTITY] if journal else {}
        caps = caps.or_else(journal.attributes.get(CAPS, {}) if journal else {})
        tried = bool(journal and journal.trials())
        spending.caps = caps if tried else caps.reduced(CHOICE_SHARE)  # what was searched is there to be chosen from
        seed, origin = int(noted.get("seed", seed or 0)), str(noted.get("from", origin))
        try:
            ready = open_project(project, seed, origin, spending, stage, advance, journal)
        except BudgetStop as stop:
            raise _too_little(stop, spending, project, journal) from None
        held.callback(ready.record.close)
        identity = ready.identity()
        if journal is None:
            target = trials or TRIALS
            notes = {"id": uuid4().hex[:8], "trials": target, CAPS: asdict(caps)}
            journal = create(project, identity, notes, begin=lambda new: _begun(new, lead, ready))
        else:
            target = _gone_on_with(journal, identity, trials, caps)
        live.study = journal.name
        known = gone_through(ready.record, identity, target)  # nothing is left for a second process to do
        shared = processes > 1 and not known and can_share(ready.first, ready.project, caps)
        ahead = in_two(ready.first, ready.record, spending) if shared else nothing_ahead
        try:
            prepare(ready, journal, starts, stage, advance, ahead=ahead)
        except BudgetStop as stop:
            raise _too_little(stop, spending, project, journal) from None
        spending.caps = caps.reduced(SEARCH_SHARE)
        search = Search(ready.arms, project.settings.utility, ready.seed, ready.starts, journal)

        def scored(done: int) -> None:  # no look at the time: what is scored is not to be thrown away
            live.done = done
            told(live)

        stage("searching")
        with search.abreast(spending) if shared else nullcontext():
            stopped_by = search.run(target, told, live, spending)
            if not search.trials:  # without one there is nothing to choose from
                spending.caps = caps.reduced(CHOICE_SHARE)
                search.run(1 - len(ready.starts), told, live, spending)
            if not search.trials:
                raise _too_little(BudgetStop(stopped_by), spending, project, journal)
            done = _finish(ready, search, journal, caps, stopped_by, stage, advance, scored, shared)
            if not known and caps == Caps() and search.added() == done.trials:
                note_gone_through(ready.record, identity, target)
            return done


def _require_sense(project: Project, trials: int | None, seed: int | None, processes: int, caps: Caps) -> None:
    """Raises for numbers that are none or beyond all use, and for a cap on money that could not stop what has no
    price."""
    for name, count, least, most in (
        ("trials", trials, 1, MOST_TRIALS),
        ("seed", seed, 0, MOST_SEED),
        ("max_calls", caps.calls, 1, MOST_CALLS),
        ("processes", processes, 1, MOST_PROCESSES),
    ):
        if count is not None and not (isinstance(count, int) and least <= count <= most):
            raise StudyError(f"{name} is a whole number, {least} to {most}, not {count!r}.", "Give another, or none.")
    for name, amount, least in (("max_usd", caps.usd, 0), ("max_seconds", caps.seconds, LEAST_SECONDS)):
        if amount is not None and not (isinstance(amount, int | float) and least <= amount < math.inf):
            raise StudyError(f"{name} is a number from {least}, not {amount!r}.", "Give another, or none for no cap.")
    if caps.usd is not None:
        settings = project.settings
        require_price(settings.models, settings.provider, "--max-usd", "cap --max-calls")


def _begun(journal: Journal, lead: Lead, ready: Preparation) -> None:
    """Leads a new study, and spends with it, where its version can be sealed."""
    with hold_lock(ready.project.artifacts, ready.project.name):
        pass
    lead.take(journal)
    ready.begin(journal)


def _too_little(stop: BudgetStop, spending: Spending, project: Project, journal: Journal | None) -> BudgetError:
    """For a cap that is reached before anything can be sealed; with a study, if there is one yet."""
    tried = len(journal.trials()) if journal else 0
    among = "the setting tried could be chosen" if tried == 1 else f"the {tried} settings tried could be chosen among"
    before = among if tried else "the first setting could be tried"
    named = f"ragc compile {shlex.quote(str(project.folder))}"
    again = f"go on with a higher cap: {named} --resume" if journal else f"give more: {named}"
    gone = f"{spending.calls} calls, ${spending.usd:.2f} and {spending.seconds:.0f} s were spent in all"
    part = "" if tried else f", of which {1 - CHOICE_SHARE:.0%} are kept for the test,"
    return BudgetError(
        f"The cap on {stop.tripped}{part} was reached before {before}; {gone}.",
        f"What was paid for is kept; {again} --max-{stop.tripped} N",
    )


def _resumed(project: Project, study: str, lead: Lead, given: Mapping[str, Any]) -> Journal:
    """The study to go on with, alone. Raises `StudyError` when there is none, or it is finished, led by another process
    or not what was `given`."""
    journal = join(project, study) if study else last(project) or join(project)
    lead.take(journal)
    if sealed := journal.finished:
        raise StudyError(f"The study {journal.name} is finished: {sealed}.", "Start anew: ragc compile PROJECT")
    noted = _identity(journal)
    for option, value in given.items():
        if value is not None and value != noted[option]:
            was = f"with --{option} {noted[option]}" if noted[option] != "" else f"without --{option}"
            raise StudyError(
                f"The study {journal.name} was begun {was}, not {value}.",
                f"Leave --{option} out to go on with it, or start anew without --resume.",
            )
    return journal


def _gone_on_with(journal: Journal, identity: Mapping[str, Any], trials: int | None, caps: Caps) -> int:
    """How many settings a resumed study is to try. That and its caps are noted, for its workers and whoever resumes it
    again. Raises `StudyError` when it was made for something else."""
    journal.expect(identity)
    target = trials or int(journal.attributes["trials"])
    journal.note("trials", target)
    journal.note(CAPS, asdict(caps))
    return target


def _identity(journal: Journal) -> Mapping[str, Any]:
    """What a study was made for. Raises `StudyError` when it was killed before that was noted."""
    noted: Mapping[str, Any] | None = journal.attributes.get(IDENTITY)
    if noted is None:
        raise StudyError(f"The study {journal.name} holds nothing.", "Start anew: ragc compile PROJECT")
    return noted


def _finish(
    ready: Preparation,
    search: Search,
    journal: Journal,
    caps: Caps,
    stopped_by: str,
    stage: Stage,
    advance: Advance,
    scored: Callable[[int], None],
    shared: bool,
) -> Compiled:
    """From the trials to a sealed version; `shared` between two processes."""
    weights, spending = ready.project.settings.utility, ready.spending
    trials, importances = len(search.trials), search.importances()
    stage("choosing on dev")
    spending.caps, spending.tripped = caps.reduced(CHOICE_SHARE), ""
    final = ready.compiled()
    if shared:  # both will want what is fitted to the labelled demonstrations
        apply_setting(final, ready.begun)
        fit_heads(final, in_two(final, ready.record, spending))
    bench = Bench(ready, search, final, scored)
    with bench.abreast(spending) if shared else nullcontext():
        choice = choose(ready, search, bench)
    chosen = choice.points["balanced"]
    apply_setting(final, chosen)
    choice = choice.sealed()
    fit_heads(final, alone)

    stage("testing")
    sealing = Sealing(ready.project, ready.questions, ready.parts, ready.seed)
    looks = sealing.looked(journal.key)  # first, so that a look that is cut short counts
    spending.caps = caps
    plain = ready.first.plain()
    programs = [plain, ready.parent, final]
    evaluations = evaluate_side_by_side(
        [EvaluatedProgram(program, ready.replay(program)) for program in programs],
        ready.parts["test"],
        weights,
        advance,
    )
    stopped_by = stopped_by or spending.tripped

    stage("sealing")
    study = journal.key
    labels = CheckReport(0, shortcuts=find_shortcuts(ready.parts))
    doubts = [f"{found.what} {found.mend}" for found in labels.shortcut_warnings]
    plainly, before, after = evaluations
    parent = ready.origin or sealing.uncompiled(ready.first, before, plainly)
    broken = {**search.broken, **bench.broken, **dict.fromkeys(after.failed, "in the test")}
    against_parent, against_plain = paired(before.grades, after.grades), paired(plainly.grades, after.grades)
    story = CompileReport(
        name=ready.project.name,
        parent=parent,
        verdict=judge_difference("utility", against_parent),
        gain=against_parent,
        over_plain=against_plain,
        plain=plainly,
        before=before,
        after=after,
        points={name: {"utility": one.utility, "calls": one.calls} for name, one in choice.named.items()},
        frontier=[{"utility": one.utility, "calls": one.calls} for one in choice.frontier],
        survived=list(choice.survived),
        oracle=choice.oracle,
        reached=choice.reached,
        chosen=chosen,
        started_from={**search.as_it_is, **ready.begun},
        decisions=[
            {"parameter": one.parameter, "cut": one.cut, "chances": one.chances, "truths": one.truths}
            for one in judged(ready, chosen)
        ],
        given=ready.given(chosen),
        importances=importances,
        trials=trials,
        calls=spending.calls,
        usd=spending.usd,
        seconds=spending.seconds,
        looks=looks,
        doubts=doubts,
        stopped_by=stopped_by,
        broken=broken,
    )
    reference = sealing.sealed_from(study) or sealing.compiled(
        final,
        after,
        plainly,
        choice,
        parent,
        {"name": "ragc", "seed": ready.seed, "trials": trials, "study": study, "test_looks": looks},
        {"seconds": round(spending.seconds, 1), "calls": spending.calls, "usd": round(spending.usd, 6)},
        render_compile_page(story),
    )
    journal.finish(reference)
    return Compiled(
        reference=reference,
        parent=parent,
        evaluation=after,
        plain=plainly,
        before=before,
        against_parent=against_parent,
        against_plain=against_plain,
        trials=trials,
        seconds=spending.seconds,
        calls=spending.calls,
        usd=spending.usd,
        study=journal.name,
        stopped_by=stopped_by,
        looks=looks,
        doubts=doubts,
        points=choice.named,
        survived=choice.survived,
        broken=broken,
        stood_in=ready.record.stood_in,
        asked={
            "settings": (trials, max(trials, int(journal.attributes["trials"]) + len(ready.starts))),
            "train": (bench.asked["train"], min(len(ready.parts["train"]), SEARCHED)),
            "dev": (bench.asked["dev"], len(ready.parts["dev"])),
            "test": (len(after.grades), len(ready.parts["test"])),
        },
    )


@products_by_one_thread()
def work(project: Project, study: str, watch: Watch = lambda live: None) -> int:
    """One more process on a study: adds trials until it has as many as were asked for; returns how many it added.

    What another process has paid for is read from the record. The study's caps are this process's too: what all of them
    spend together passes none. Raises `StudyError` when there is no such study, or it was made under other conditions.
    """
    spending = Spending()
    journal = join(project, study)
    noted = _identity(journal)

    def under() -> Caps:
        caps = Caps(**journal.attributes.get(CAPS, {}))
        spending.caps = caps.reduced(SEARCH_SHARE)
        return caps

    def looked(live: Live) -> None:
        under()  # whoever resumes the compile may have set others
        watch(live)

    live, told, stage, advance = _told(looked, spending)
    try:
        ready = open_project(
            project, int(noted["seed"]), str(noted["from"]), spending, stage, advance, journal, leads=False
        )
    except BudgetStop:
        return 0
    try:
        journal.expect(ready.identity())
        if journal.finished:
            return 0
        capped = under() != Caps()  # what the caps leave room for is the compile's to say
        ahead = nothing_ahead if capped else backwards
        prepare(ready, journal, starts, stage, advance, worker=True, ahead=ahead)
        stage("searching")
        number = 1 + uuid4().int % 2**32  # its own: processes of two hosts, or containers, may have one id
        search = Search(ready.arms, project.settings.utility, ready.seed, ready.starts, journal, number)
        search.run(int(journal.attributes["trials"]), told, live, spending)
        return search.added()
    except BudgetStop:
        return 0
    finally:
        ready.record.close()


def _told(watch: Watch, spending: Spending) -> tuple[Live, Watch, Stage, Advance]:
    """What is shown while the work goes on, and the ways to change it. At each what was spent is kept; as a stage
    advances, the time that is left is looked at."""
    live = Live()

    def told(live: Live) -> None:
        spending.keep(every=KEPT_EVERY)
        live.calls = spending.calls
        watch(live)

    def stage(name: str) -> None:
        live.stage, live.done, live.of, live.started = name, 0, 0, time.monotonic()
        spending.keep()
        told(live)

    def advance(done: int, of: int) -> None:
        live.done, live.of = done, of
        told(live)
        spending.check()

    return live, told, stage, advance
