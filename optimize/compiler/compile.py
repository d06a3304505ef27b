"""`ragc compile`: labelled questions in, a sealed version out, with what it was compiled from beside it.

The steps are the same for a project and for anybody's program; what differs is a `Task`.

1. Take up a study or begin one. It is named by all that its trials depend on, and one process leads it.
2. Plan: what each predictor may be given, the questions of train in folds by topic, and the first settings. The plan is
   noted, so that a worker or a resumed compile searches the same.
3. Search on train: the first settings, then knobs swept one by one, then what the study proposes.
4. Choose on train and dev, by folds over topics, against the program as it is. Where a risk is asked for, choose on
   train alone, and prove on dev under which confidence the program has to refuse.
5. Test once, beside what it was compiled from, and seal.

Each stage may use a share of every cap. What was asked is in the record: nothing is paid for twice.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack
from uuid import uuid4

from filelock import FileLock, Timeout

from optimize.compiler import LEAST_SECONDS, MOST_CALLS, MOST_SEED, MOST_TRIALS
from optimize.compiler.candidates.offers import CandidateSets
from optimize.compiler.choice import OperatingPoints, Validation, choose_points
from optimize.compiler.publish import Found, Publisher, Tested, seal
from optimize.compiler.record import Entry, digest_json, open_record
from optimize.compiler.runs.runner import AnyArm, Arm
from optimize.compiler.scoring import Scoring, limit_to_reach, split_topics
from optimize.compiler.search import FIRST, STUDY, SWEEP, Live, Search, Session, Watch
from optimize.compiler.study import WAIT, Caps, Note, Share, Spending, Study, create_study, open_study
from optimize.compiler.tasks.examples import Metric
from optimize.compiler.tasks.module import ModuleTask, open_folder, open_module_task
from optimize.compiler.tasks.optimizers import RAGC, require_optimizer, run_optimizer
from optimize.compiler.tasks.project import open_project_task
from optimize.compiler.tasks.task import SearchPlan, Task
from optimize.compiler.thresholds import fit_parameters
from optimize.evaluation.evaluate import TOGETHER, evaluate_side_by_side
from optimize.evaluation.outcome import BALANCED, Compiled
from optimize.registry.versions import hold_lock
from program.errors import BudgetError, BudgetStop, DataError, StudyError
from program.knowledge.project import Project
from program.loop.policy import Setting, apply_setting, read_setting
from program.models.catalog import require_price
from program.serve.factory import Factory
from program.serve.reference import resolve

FINALISTS = 5  # settings scored on dev
LEAST_TRIALS = 20  # with fewer questions in train, too: the best of more settings would be the luckiest
WITHOUT_CAP = 64  # questions of test that processes are given at once where no cap can cut the test short
STAGES = (SWEEP, STUDY)  # stages of the search past the first settings, which a benchmark may leave out
T = TypeVar("T", bound=Task)


class Terms(TypedDict, total=False):
    """What may be asked of a compile; where its study goes on, what is not given is as it began."""

    trials: int | None  # settings proposed beside the first ones
    seed: int | None
    max_calls: int | None  # caps, which all processes and resumptions of a study together never pass
    max_usd: float | None
    max_seconds: float | None
    resume: bool  # to go on with the last study
    study: str  # to go on with the study of that name
    origin: str  # the version to compile from
    risk: float | None  # the share of wrong among the answers to be proved as the most, in place of the project's
    jobs: int  # processes that share the work; 1 unless given, and for a program of one's own
    watch: Watch


def compile_project(project: Project, *, stages: Collection[str] = STAGES, **terms: Unpack[Terms]) -> Compiled:
    """Compile a project's program against its labelled questions, and publish it.

    The parent is the version `origin`, or the uncompiled program, which the first compile publishes too.

    Raises:
        DataError: the labels contradict the knowledge or leave nothing to learn from.
        StudyError: a study was made under other conditions, or a number is beyond all use.
        BudgetError: a cap does not reach to the first setting.
    """
    command = f"ragc compile {shlex.quote(str(project.folder))}"
    project = project.with_risk(terms.get("risk"))
    search = partial(search_task, stages=stages)
    return compile_task(project, partial(open_project_task, project), search, command, **terms)


def compile_program(
    make: Factory,
    data: Path | str,
    metric: Metric,
    *,
    name: str,
    optimizer: str = RAGC,
    artifacts: Path | str | None = None,
    **terms: Unpack[Terms],
) -> Compiled:
    """Compile a function's program against labelled examples, and publish it.

    Searched are the thresholds of its decisions, its knobs and, of each predictor, demonstrations and instructions; or
    an `optimizer` of DSPy's learns in its way. The study is kept in `.ragc` of the working folder. Raises as
    `compile_project`, `SettingsError` and `ModelError` for a program that cannot be made or asked.
    """
    require_optimizer(optimizer)
    project = open_folder(name, artifacts)
    search = search_task if optimizer == RAGC else partial(learn, optimizer)

    def maker(session: Session, seed: int, origin: str) -> ModuleTask:
        return open_module_task(project, make, data, metric, seed, origin)

    terms["jobs"] = 1  # another's code may hold what does not survive a fork
    return compile_task(project, maker, search, "ragc compile MODULE:FUNCTION", optimizer, **terms)


def compile_task(
    project: Project,
    maker: Callable[[Session, int, str], T],
    search: Callable[[Session, T, Study], Found],
    command: str,
    optimizer: str = RAGC,
    **terms: Unpack[Terms],
) -> Compiled:
    """Compile the task that a maker opens.

    It is given a session, a seed and the version to compile from; `command` is what begins such a compile.
    """
    begun, seed, origin, caps = take_up_study(project, terms)
    session = open_session(project, caps, terms.get("watch") or (lambda live: None), jobs=terms.get("jobs", 1))
    session.limit(Share.CHOICE)
    with closing(session), ExitStack() as held:
        try:
            join_spending(session, begun)
            task = maker(session, seed, origin)
            held.enter_context(task.asking(session.spending))
            study = begin_study(session, task, begun, terms.get("trials"))
            held.enter_context(lead_study(project, study.name))
            found = search(session, task, study)
        except BudgetStop as stop:
            raise _explain_too_little(stop, session, command) from None
        tested = test(session, found, study)
        return seal(session, study, found, tested, optimizer)


def join_study(project: Project, study: str, watch: Watch = lambda live: None, wait: float = WAIT) -> int:
    """Add trials to a project's study, and return how many were added.

    The study's caps are this process's too. Raises `StudyError` when there is no such study, it was made under other
    conditions, or its compile does not say for `wait` seconds what is searched.
    """
    current = open_study(project, study)
    identity = current.notes[Note.IDENTITY]
    project = project.with_risk(identity["utility"].get("risk"))
    session = open_session(project, Caps(**current.notes[Note.CAPS]), watch, current.name)
    session.limit(Share.SEARCH)
    with closing(session), suppress(BudgetStop):
        join_spending(session, current, leads=False)
        task = open_project_task(project, session, identity["seed"], identity["from"], leads=False)
        current.expect(task.describe_conditions())
        session.begin_stage("waiting for the compile")
        current.wait_for(Note.PLANNED, lambda: session.advance(0, 0), wait)
        plan = load_plan(session, task, current)
        worker = 1 + uuid4().int % 2**32  # its own: processes of two hosts, or containers, may have one id
        search = open_search(session, current, task, plan, worker)
        session.begin_stage("searching")
        with suppress(BudgetStop):
            search.run(len(plan.firsts), session)
            swept = current.wait_for(Note.SWEPT, lambda: session.advance(session.live.done, 0), wait)
            search.follow_sweeps(swept)
            search.run(current.notes[Note.TRIALS] + len(search.firsts), session)
        return search.added
    return 0


def take_up_study(project: Project, terms: Terms) -> tuple[Study | None, int, str, Caps]:
    """Return the study to go on with, if any, and the seed, origin and caps.

    Those of the study hold where none is given. Raises `StudyError` for numbers beyond all use, and for a study that
    is finished, is not there, or is not as the terms say.
    """
    caps = Caps(terms.get("max_calls"), terms.get("max_usd"), terms.get("max_seconds"))
    seed, origin, study = terms.get("seed"), terms.get("origin", ""), terms.get("study", "")
    _require_sense(project, terms.get("trials"), seed, terms.get("risk"), caps)
    origin = str(resolve(origin, project.artifacts)) if origin else ""  # what an alias names moves on
    if not (study or terms.get("resume")):
        return None, seed or 0, origin, caps
    begun = open_study(project, study)
    if begun.finished:
        raise StudyError(f"The study {begun.name} is finished: {begun.finished}.", "Start anew: ragc compile PROJECT")
    noted = begun.notes[Note.IDENTITY]
    for option, value in (("seed", seed), ("from", origin or None)):
        if value is not None and value != noted[option]:
            was = f"with --{option} {noted[option]}" if noted[option] != "" else f"without --{option}"
            raise StudyError(
                f"The study {begun.name} was begun {was}, not {value}.",
                f"Leave --{option} out to go on with it, or start anew without --resume.",
            )
    return begun, noted["seed"], noted["from"], caps.fill_from(begun.notes[Note.CAPS])


def open_session(project: Project, caps: Caps, watch: Watch, study: str = "", jobs: int = 1) -> Session:
    """Return what every stage of a compile works with, nothing spent so far."""
    return Session(open_record(project), Spending(), caps, Live(study=study), watch, jobs)


def join_spending(session: Session, study: Study | None, leads: bool = True) -> None:
    """Book for a study what is spent, and its seconds where this process `leads` it."""
    if study is not None and session.record.store is not None:
        session.spending.join_study(session.record.store, study.key, leads)


def begin_study(session: Session, task: Task, begun: Study | None, trials: int | None) -> Study:
    """Return the study to go on with, or a new one.

    Where no number of trials is asked for they are the task's usual number, but no more than there are questions to try
    settings on.
    """
    identity = task.describe_conditions()
    if begun is not None:
        begun.expect(identity)
        begun.note(Note.TRIALS, trials or begun.notes[Note.TRIALS])
        begun.note(Note.CAPS, asdict(session.caps))
        session.live.study = begun.name
        return begun
    with hold_lock(task.project.artifacts, task.project.name):
        pass  # nothing is paid for where no version could be sealed
    trials = trials or min(task.usual_trials, max(LEAST_TRIALS, len(task.parts["train"])))
    study = create_study(task.project, identity, {Note.TRIALS: trials, Note.CAPS: asdict(session.caps)})
    session.live.study = study.name
    join_spending(session, study)
    return study


@contextmanager
def lead_study(project: Project, name: str) -> Iterator[None]:
    """Be the one compile of a study on this machine, until the process ends.

    Raises `StudyError` when another is.
    """
    folder = project.private / "studies"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / f"{name}.lock", timeout=0):
            yield
    except Timeout as error:
        what = f"Another process is compiling {name} already."
        raise StudyError(what, f"Wait for it, or help it: ragc worker PROJECT --study {name}") from error


def search_task(session: Session, task: Task, study: Study, stages: Collection[str] = STAGES) -> Found:
    """Return the compiled program at the setting that was chosen."""
    task = task.prepare(session, study.notes[Note.TRIALS])
    plan = plan_search(session, task, study)
    search = open_search(session, study, task, plan)
    search_settings(session, search, stages)
    final = task.base.deepcopy()
    plan.candidates.equip_program(final)
    dev = Arm(task.runner(session, final), task.parts["dev"] if task.risk is None else [])
    validation = Validation(search.scoring, dev, task.price)
    points = choose(session, search, validation, plan.firsts[0])
    points = points if task.has_points else points.only_balanced()
    apply_setting(final, points.points[BALANCED])
    risks = task.prove_risks(session, final, points)
    return Found(task, final, points, plan, search, validation, risks)


def learn(optimizer: str, session: Session, task: ModuleTask, study: Study) -> Found:
    """Return the program as one of DSPy's optimizers compiled it."""
    task = task.prepare(session, study.notes[Note.TRIALS])
    session.begin_stage(f"running {optimizer}")
    shown = [[one.example for one in task.parts[part]] for part in ("train", "dev")]
    final = run_optimizer(optimizer, task.base, shown, task.metric, task.seed)
    return Found(task, final, OperatingPoints({BALANCED: read_setting(final)}))


def plan_search(session: Session, task: Task, study: Study) -> SearchPlan:
    """Return what the study searches: as it was noted, else found now and noted.

    The first settings are the program as it is, as it begins with labelled demonstrations, and those of the task. Under
    a cap the questions are those on which it lets all of them be run.
    """
    if study.notes.get(Note.PLANNED):
        return load_plan(session, task, study)
    arms = make_arms(session, task)
    candidates = task.offer(session, arms)
    session.limit(Share.CHOICE)
    as_it_is = read_setting(arms[0].replay.program)
    begun = {**as_it_is, **candidates.begun_choices}
    firsts = [as_it_is, begun, *task.starts(begun)]
    if session.caps != Caps():
        session.limit(Share.FIRST)
        arms = limit_to_reach(arms, firsts)
    asked = [question.id for arm in arms for question in arm.questions]
    digest = digest_json(["plan", study.key])
    session.record.write({digest: Entry({"candidates": candidates.dump(), "questions": asked, "firsts": firsts})})
    study.note(Note.PLANNED, digest.hex())
    return SearchPlan(candidates, arms, firsts)


def load_plan(session: Session, task: Task, study: Study) -> SearchPlan:
    """Return the plan noted. Raises `StudyError` when it is not there any more."""
    digest = bytes.fromhex(study.notes[Note.PLANNED])
    noted = session.record.read([digest]).get(digest)
    if noted is None:
        raise StudyError(
            f"What {study.name} searches is not in the record.",
            "Restore the record that was there when it began, or start anew: ragc compile PROJECT",
        )
    candidates, asked = CandidateSets.load(noted.value["candidates"]), set(noted.value["questions"])
    arms = [
        Arm(arm.replay, kept)
        for arm in make_arms(session, task)
        if (kept := [question for question in arm.questions if question.id in asked])
    ]
    candidates.equip_arms(arms)
    return SearchPlan(candidates, arms, noted.value["firsts"])


def make_arms(session: Session, task: Task) -> list[AnyArm]:
    """Return the questions in folds by topic, each with a program of its own."""
    questions = task.searched
    folds = split_topics([question.cluster for question in questions])
    return [Arm(task.runner(session, task.base.deepcopy()), [questions[n] for n in fold]) for fold in folds]


def open_search(session: Session, study: Study, task: Task, plan: SearchPlan, worker: int = 0) -> Search:
    """Return the search of what a plan says."""
    scoring = Scoring(plan.arms, task.search_grader, session.fork)
    space = task.list_parameters(plan.arms[0].replay.program)
    return Search(study, scoring, plan.firsts, task.seed, worker, space)


def search_settings(session: Session, search: Search, stages: Collection[str] = STAGES) -> None:
    """Try first settings, the one fitted from the best, and those of the study.

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
                session.begin_stage("fitting thresholds and knobs")
                session.limit(Share.SWEEP)
                start = search.rank_trials()[0].setting
                study.note(Note.SWEPT, asdict(fit_parameters(search.scoring, search.space, start, session.advance)))
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

    return choose_points(validation, stages=leaders, finalists=finalists, as_it_is=as_it_is, progress=scored)


def test(session: Session, found: Found, study: Study) -> Tested:
    """Return the compiled program and those it is compared with, on test."""
    session.begin_stage("testing")
    task, questions = found.task, found.task.parts["test"]
    looks = Publisher(task.project, task.parts).note_look(study.key)  # first, so that one cut short counts
    session.limit(1.0)
    programs = [*task.controls, found.final]
    asks = session.share([task.tester(session, program).answer_all for program in programs])
    arms = [(task.grader(program), ask) for program, ask in zip(programs, asks, strict=True)]
    together = TOGETHER if session.caps != Caps() else WITHOUT_CAP
    *plain, before, after = evaluate_side_by_side(arms, questions, session.advance, together)
    if after.failed and not after.grades:
        what = f"No question of test could be graded: {after.failed[0]}."
        raise DataError(what, "Mend the metric, or the labels that it reads.")
    return Tested(plain[0] if plain else None, before, after, looks)


def _require_sense(project: Project, trials: int | None, seed: int | None, risk: float | None, caps: Caps) -> None:
    """Raise for numbers beyond all use, and for a cap on money that could not stop what has no price."""
    for name, number, least, most in (
        ("trials", trials, 1, MOST_TRIALS),
        ("seed", seed, 0, MOST_SEED),
        ("risk", risk, 0, 1.0),
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


def _explain_too_little(stop: BudgetStop, session: Session, command: str) -> BudgetError:
    """Return the error for a cap that is reached before the first setting could be tried."""
    spending = session.spending
    again = f"go on with a higher cap: {command} --resume" if session.live.study else f"give more: {command}"
    return BudgetError(
        f"The cap on {stop.tripped}, of which {1 - Share.CHOICE:.0%} are kept for the test, was reached before the"
        f" first setting could be tried; {spending.calls} calls, ${spending.usd:.2f} and {spending.seconds:.0f} s were"
        " spent in all.",
        f"What was paid for is kept; {again} --max-{stop.tripped} N",
    )
