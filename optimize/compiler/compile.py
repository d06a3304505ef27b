"""`ragc compile`: labelled questions in, a sealed version out, with plain RAG and its parent beside it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, replace
from typing import Any
from uuid import uuid4

from optimize.compiler import LEAST_SECONDS, MOST_CALLS, MOST_SEED, MOST_TRIALS
from optimize.compiler.candidates.layouts import ROUNDS, count_calls
from optimize.compiler.choice import OperatingPoints, Validation, choose_points
from optimize.compiler.plan import (
    DEFAULT_TRIALS,
    EMBEDDED_TRIALS,
    SEARCHED,
    Opened,
    SearchPlan,
    begin_study,
    copy_program,
    lead_study,
    load_plan,
    make_demonstrations,
    open_compile,
    plan_search,
)
from optimize.compiler.publish import Compiled, Publisher, TestReport, seal
from optimize.compiler.record import Entry, digest_json, open_record
from optimize.compiler.runs.replay import PARALLEL_CALLS
from optimize.compiler.runs.runner import Arm
from optimize.compiler.scoring import Scoring, Sweeps, UtilityGrader, sweep_knobs
from optimize.compiler.search import FIRST, STUDY, SWEEP, Live, Search, Session, Watch
from optimize.compiler.study import WAIT, Caps, Note, Share, Spending, Study, open_study
from optimize.evaluation.evaluate import Grader, evaluate_side_by_side
from optimize.evaluation.outcome import BALANCED
from optimize.labelled.split import sample_stratified
from optimize.report.estimate import estimate_cost, list_asked, measure_model
from program.errors import BudgetError, BudgetStop, StudyError
from program.knowledge.project import Project
from program.loop.policy import Dimension, Setting, apply_setting
from program.loop.rag import AgenticRAG
from program.models.catalog import require_price
from program.models.language.pace import Pace, note_pace, read_paces
from program.serve.reference import resolve

FINALISTS = 5  # settings scored on dev
STAGES = (SWEEP, STUDY)  # stages of the search past the first settings, which a benchmark may leave out
Sweep = Callable[[Scoring, Sequence[Dimension], Setting, Callable[[int, int], None]], Sweeps]


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
    stages: Collection[str] = STAGES,
    jobs: int = 1,
    watch: Watch = lambda live: None,
) -> Compiled:
    """Compile a project's program against its labelled questions, and publish it.

    The parent is the version `origin`, or the uncompiled program, which the first compile publishes too. Settings are
    searched on train, by cross-fitting over topics, chosen on train and dev by folds, and tested once at the end. No
    cap is ever passed by all processes and resumptions of a study together. With `resume` the project's last study, or
    the one named `study`, goes on under its own caps but for those given.

    Raises:
        DataError: the labels contradict the knowledge or leave nothing to learn from.
        StudyError: a study was made under other conditions, or a number is beyond all use.
        BudgetError: a cap does not reach to the first setting.
    """
    caps = Caps(max_calls, max_usd, max_seconds)
    begun, seed, origin, caps = take_up_study(project, study, resume, trials, seed, origin, caps)
    session = open_session(project, caps, watch, jobs=jobs)
    session.limit(Share.CHOICE)
    with closing(session), ExitStack() as held:
        try:
            opened = open_compile(session, project, seed, origin, begun)
            usual = DEFAULT_TRIALS if list_asked(project) else EMBEDDED_TRIALS
            current = begin_study(session, opened, begun, trials, usual)
            held.enter_context(lead_study(project, current.name))
            opened = _take_pace(session, opened)
            ahead = [*sample_stratified(opened.parts["train"], SEARCHED), *opened.parts["dev"]]
            session.read_ahead(session.replay(opened.base).answer_all, [question.question for question in ahead])
            demonstrations = make_demonstrations(session, opened)
            plan = plan_search(session, opened, current, demonstrations)
            search = open_search(session, current, opened, plan)
            search_settings(session, search, stages, start=plan.opened)
        except BudgetStop as stop:
            raise _explain_too_little(stop, session, project) from None
        final = copy_program(opened.base)
        plan.candidates.equip_program(final)
        dev = Arm(session.replay(final), opened.parts["dev"])
        validation = Validation(search.scoring, dev, search.price)
        points = choose(session, search, validation, plan.firsts[0])
        apply_setting(final, points.points[BALANCED])
        tested = test(session, opened, current, final)
        return seal(
            session,
            opened=opened,
            plan=plan,
            search=search,
            validation=validation,
            points=points,
            tested=tested,
            demonstrations=demonstrations,
        )


def open_session(project: Project, caps: Caps, watch: Watch, study: str = "", jobs: int = 1) -> Session:
    """Return what every stage of a compile works with, nothing spent so far."""
    return Session(open_record(project), Spending(), caps, Live(study=study), watch, jobs)


def open_search(session: Session, study: Study, opened: Opened, plan: SearchPlan, worker: int = 0) -> Search:
    """Return the search of what a plan says."""
    weights = opened.project.settings.utility
    scoring = Scoring(plan.arms, UtilityGrader(weights, opened.base.runtime.library), session.fork)
    return Search(study, scoring, plan.firsts, weights.call, opened.seed, worker)


def take_up_study(
    project: Project, study: str, resume: bool, trials: int | None, seed: int | None, origin: str, caps: Caps
) -> tuple[Study | None, int, str, Caps]:
    """Return the study to go on with, if any, and the seed, origin and caps.

    Those of the study hold where none is given. Raises `StudyError` for numbers beyond all use, and for a study that
    cannot be gone on with.
    """
    require_sense(project, trials, seed, caps)
    origin = str(resolve(origin, project.artifacts)) if origin else ""  # what an alias names moves on
    if not (resume or study):
        return None, seed or 0, origin, caps
    begun = resume_study(project, study, {"seed": seed, "from": origin or None})
    identity = begun.notes[Note.IDENTITY]
    return begun, identity["seed"], identity["from"], caps.fill_from(begun.notes[Note.CAPS])


def join_study(project: Project, study: str, watch: Watch = lambda live: None, wait: float = WAIT) -> int:
    """Add trials to a study, and return how many were added.

    The study's caps are this process's too. Raises `StudyError` when there is no such study, it was made under other
    conditions, or its compile does not say for `wait` seconds what is searched.
    """
    current = open_study(project, study)
    notes = current.notes[Note.IDENTITY]
    session = open_session(project, Caps(**current.notes[Note.CAPS]), watch, current.name)
    session.limit(Share.SEARCH)
    with closing(session), suppress(BudgetStop):
        opened = open_compile(session, project, notes["seed"], notes["from"], current, leads=False)
        current.expect(opened.describe_conditions())
        session.begin_stage("waiting for the compile")
        current.wait_for(Note.PLANNED, lambda: session.advance(0, 0), wait)
        plan = load_plan(session, opened, current)
        worker = 1 + uuid4().int % 2**32  # its own: processes of two hosts, or containers, may have one id
        search = open_search(session, current, opened, plan, worker)
        session.begin_stage("searching")
        with suppress(BudgetStop):
            search.run(len(plan.firsts), session)
            swept = current.wait_for(Note.SWEPT, lambda: session.advance(session.live.done, 0), wait)
            search.follow_sweeps(swept)
            search.run(current.notes[Note.TRIALS] + len(search.firsts), session)
        return search.added
    return 0


def search_settings(
    session: Session,
    search: Search,
    stages: Collection[str] = STAGES,
    sweep: Sweep = sweep_knobs,
    start: Setting | None = None,
) -> None:
    """Try first settings, the one that sweeps find from `start` (else the best), and those that the study proposes.

    A cap ends all of it; with nothing tried yet the share of the choice is used. Raises `BudgetStop` when even that
    does not reach to the first setting.
    """
    session.limit(Share.SEARCH)
    session.spending.tripped = ""
    study = search.study
    session.begin_stage("trying the first settings")
    with suppress(BudgetStop):
        search.run(len(search.firsts), session)
        if SWEEP in stages:
            if Note.SWEPT not in study.notes:
                session.begin_stage("sweeping one knob at a time")
                session.limit(Share.SWEEP)
                start = search.fit_ranges(start) if start is not None else search.rank_trials()[0].setting
                study.note(Note.SWEPT, asdict(sweep(search.scoring, search.space, start, session.advance)))
                session.limit(Share.SEARCH)
            search.follow_sweeps(study.notes[Note.SWEPT])
        session.begin_stage("searching")
        search.run(len(search.firsts), session)
        if STUDY in stages:
            search.run(study.notes[Note.TRIALS] + len(search.firsts), session)
    if not search.rank_trials():
        session.limit(Share.CHOICE)
        search.run(1, session)


def choose(session: Session, search: Search, validation: Validation, as_it_is: Setting) -> OperatingPoints:
    """Return the setting of each operating point, chosen among the finalists."""
    session.begin_stage("choosing on dev")
    session.limit(Share.CHOICE)
    as_it_is = search.fit_ranges(as_it_is)
    finalists: list[Setting] = []
    with suppress(BudgetStop):
        finalists = [trial.setting for trial in search.pick_finalists(FINALISTS)]
    if session.caps != Caps():
        validation.limit_to_reach([as_it_is, *finalists])
    leaders = {one: ranked[0].setting for one in (FIRST, *STAGES) if (ranked := search.rank_trials([one]))}

    def scored(done: int) -> None:  # no look at the time: a setting that was scored is not thrown away
        session.live.done = done
        session.tell()

    return choose_points(
        validation,
        stages=leaders,
        finalists=finalists,
        as_it_is=as_it_is,
        progress=scored,
    )


def test(session: Session, opened: Opened, study: Study, final: AgenticRAG) -> TestReport:
    """Return plain RAG, the parent and the compiled program on test."""
    session.begin_stage("testing")
    looks = Publisher(opened.project, opened.parts).note_look(study.key)  # first, so that one cut short counts
    session.limit(1.0)
    programs = [opened.first.plain(), opened.parent, final]
    weights = opened.project.settings.utility
    asks = session.share([session.replay(program).answer_all for program in programs])
    asked = [(Grader(program, weights), ask) for program, ask in zip(programs, asks, strict=True)]
    plain, before, after = evaluate_side_by_side(asked, opened.parts["test"], session.advance)
    return TestReport(plain, before, after, looks)


def require_sense(project: Project, trials: int | None, seed: int | None, caps: Caps) -> None:
    """Raise for numbers beyond all use, and for a cap on money that could not stop what has no price."""
    for name, number, least, most in (
        ("trials", trials, 1, MOST_TRIALS),
        ("seed", seed, 0, MOST_SEED),
        ("max_calls", caps.calls, 1, MOST_CALLS),
        ("max_usd", caps.usd, 0, sys.float_info.max),
        ("max_seconds", caps.seconds, LEAST_SECONDS, sys.float_info.max),
    ):
        whole = isinstance(most, int)
        if number is not None and not (isinstance(number, int if whole else int | float) and least <= number <= most):
            kind = f"whole number, {least} to {most}" if whole else f"number from {least}"
            raise StudyError(f"{name} is a {kind}, not {number!r}.", "Give another, or leave it out.")
    if caps.usd is not None:
        require_price(project.settings.models, project.settings.provider, "--max-usd", "cap --max-calls")


def resume_study(project: Project, study: str, given: Mapping[str, Any]) -> Study:
    """Return the study to go on with.

    Raises `StudyError` when there is none, or it is finished or not as `given`.
    """
    begun = open_study(project, study)
    if begun.finished:
        raise StudyError(f"The study {begun.name} is finished: {begun.finished}.", "Start anew: ragc compile PROJECT")
    for option, value in given.items():
        noted = begun.notes[Note.IDENTITY][option]
        if value is not None and value != noted:
            was = f"with --{option} {noted}" if noted != "" else f"without --{option}"
            raise StudyError(
                f"The study {begun.name} was begun {was}, not {value}.",
                f"Leave --{option} out to go on with it, or start anew without --resume.",
            )
    return begun


def _take_pace(session: Session, opened: Opened) -> Opened:
    """Return the project opened under limits that fit its models, and tell what the compile comes to."""
    session.begin_stage("measuring the language models")
    before = read_paces(opened.project.private)
    for name in list_asked(opened.project):
        if name not in before and (pace := _find_pace(session, opened.project, name)) is not None:
            note_pace(opened.project.private, name, pace)
    if read_paces(opened.project.private) != before:
        anew = open_compile(session, opened.project, opened.seed, opened.origin, None, leads=False)
        opened = replace(anew, doubts=opened.doubts)
    parts = opened.parts
    session.live.expected = estimate_cost(
        opened.project,
        searched=min(len(parts["train"]), SEARCHED) + len(parts["dev"]),
        tested=len(parts["test"]),
        screened=count_calls(ROUNDS[-1][1]),
        at_once=PARALLEL_CALLS,
        most=session.caps.calls,
    ).describe()
    session.tell()
    return opened


def _find_pace(session: Session, project: Project, name: str) -> Pace | None:
    """Return the pace that the record holds of a model, else that of a call made now."""
    digest = digest_json(["pace", name, project.settings.provider.model_dump(mode="json")])
    if (found := session.record.read([digest]).get(digest)) is not None:
        return Pace(**found.value)
    if (pace := measure_model(project, name, session.spending)) is not None:
        session.record.write({digest: Entry(asdict(pace), pace.seconds, pace.tokens_in, pace.tokens_out)})
    return pace


def _explain_too_little(stop: BudgetStop, session: Session, project: Project) -> BudgetError:
    """Return the error for a cap that is reached before the first setting could be tried."""
    spending = session.spending
    named = f"ragc compile {shlex.quote(str(project.folder))}"
    again = f"go on with a higher cap: {named} --resume" if session.live.study else f"give more: {named}"
    return BudgetError(
        f"The cap on {stop.tripped}, of which {1 - Share.CHOICE:.0%} are kept for the test, was reached before the"
        f" first setting could be tried; {spending.calls} calls, ${spending.usd:.2f} and {spending.seconds:.0f} s were"
        " spent in all.",
        f"What was paid for is kept; {again} --max-{stop.tripped} N",
    )
