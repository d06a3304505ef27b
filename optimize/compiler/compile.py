"""`ragc compile`: labelled questions in, a sealed version out, with what it was compiled from beside it.

The steps are the same for a project and for anybody's program; what differs is a `Task`.

1. Read: the program, its labelled questions, what is found for them, and the demonstrations that they give.
2. Score: the program as it is, with what the labels teach, and a few whole ways of answering, on train. Every question
   is answered with demonstrations of other topics; replies are kept, so that other settings are arithmetic.
3. Fit: thresholds, cuts and weights of decisions, together with the demonstrations; of the best whole way, too.
4. Search, where `trials` are asked for: knobs one by one, then what Optuna proposes.
5. Choose: dev, which nothing was learned from, has the say (`choice`).
6. Test once, beside what it was compiled from, and seal.

Replies are kept by content, the search is seeded, and what is spent is booked under the digest of what is compiled: so
the same command given again goes on where a killed one was. How caps are divided among the stages is `plan`'s.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

from ragc.errors import BudgetError, BudgetStop, DataError, StudyError
from ragc.knowledge.project import Project
from ragc.loop.policy import Setting, apply_setting, read_setting
from ragc.loop.state import STATES
from ragc.models.catalog import require_price
from ragc.optimize.compiler.choice import FITTED, OperatingPoints, choose_points
from ragc.optimize.compiler.plan import SECONDS, CapPlan, ask_within
from ragc.optimize.compiler.publish import Found, find_sealed, note_look, seal
from ragc.optimize.compiler.record import digest_json, hold_turn, open_record
from ragc.optimize.compiler.runs.runner import AnyArm, Arm
from ragc.optimize.compiler.scoring import Scoring, split_topics
from ragc.optimize.compiler.search import search_settings
from ragc.optimize.compiler.session import Session, Watch
from ragc.optimize.compiler.spending import Caps
from ragc.optimize.compiler.tasks.examples import Metric
from ragc.optimize.compiler.tasks.module import ModuleTask, open_folder, open_module_task
from ragc.optimize.compiler.tasks.optimizers import RAGC, require_optimizer, run_optimizer
from ragc.optimize.compiler.tasks.project import open_project_task
from ragc.optimize.compiler.tasks.task import Task, find_in_use
from ragc.optimize.compiler.thresholds import fit_caution, fit_thresholds
from ragc.optimize.evaluation.evaluate import TOGETHER, Evaluation, evaluate_side_by_side
from ragc.optimize.evaluation.outcome import AS_IT_IS, BALANCED, Compiled
from ragc.optimize.registry.versions import hold_lock
from ragc.optimize.report.estimate import LISTING
from ragc.serve.factory import Factory, adopt_predictors
from ragc.serve.reference import resolve

WITHOUT_CAP = 64  # questions of test that processes are given at once where no cap can cut the test short
BEST_WAY, SEARCHED = "best whole way", "search"
QUOTED = f"{STATES}:states"
T = TypeVar("T", bound=Task)


class Terms(TypedDict, total=False):
    """What may be asked of a compile."""

    trials: int | None  # settings proposed beside those that are fitted; none unless given
    seed: int | None
    max_calls: int | None  # caps, which the same compile given again never passes either
    max_usd: float | None
    max_seconds: float | None
    origin: str  # the version to compile from
    risk: float | None  # the share of wrong among the answers to be proved as the most, in place of the project's
    jobs: int  # processes that share the work; 1 unless given, and for a program of one's own
    watch: Watch


def compile_project(project: Project, **terms: Unpack[Terms]) -> Compiled:
    """Compile a project's program against its labelled questions, and publish it.

    The parent is the version `origin`, else the one in use; else the uncompiled program, which the first compile
    publishes too. It is compiled from `origin` alone. The same
    compile given again after it was sealed makes no call and seals nothing new where it ends in the same bytes.

    Raises:
        DataError: the labels contradict the knowledge or leave nothing to learn from.
        StudyError: a number is beyond all use.
        BudgetError: a cap does not reach to the program as it is.
    """
    command = f"ragc compile {shlex.quote(str(project.folder))}"
    project = project.with_risk(terms.get("risk"))
    return compile_task(project, partial(open_project_task, project), search_task, command, **terms)


def compile_program(
    make: Factory,
    data: Path | str,
    metric: Metric,
    *,
    name: str,
    optimizer: str = RAGC,
    artifacts: Path | str | None = None,
    command: str = "",
    **terms: Unpack[Terms],
) -> Compiled:
    """Compile a function's program against labelled examples, and publish it.

    Learned are the demonstrations of each predictor, the thresholds of its decisions and, where it gains, its
    instructions; or an `optimizer` of DSPy's learns in its way. It is compared with the version in use. The
    record is kept in `.ragc` of the working folder; `command` is what errors say to run again. Raises as
    `compile_project`, `SettingsError` and `ModelError` for a program that cannot be made or asked.
    """
    require_optimizer(optimizer)
    project = open_folder(name, artifacts)
    command = command or f"ragc compile MODULE:FUNCTION --data {shlex.quote(str(data))} --metric ... --name {name}"
    search = search_task if optimizer == RAGC else partial(learn, optimizer, command)

    def maker(session: Session, seed: int, origin: str, used: str) -> ModuleTask:
        return open_module_task(project, make, data, metric, seed, origin, used)

    terms["jobs"] = 1  # another's code may hold what does not survive a fork
    return compile_task(project, maker, search, command, optimizer, **terms)


def compile_task(
    project: Project,
    maker: Callable[[Session, int, str, str], T],
    search: Callable[[Session, T, int], Found],
    command: str,
    optimizer: str = RAGC,
    **terms: Unpack[Terms],
) -> Compiled:
    """Compile the task that a maker opens.

    It is given a session, a seed, the version to compile from and the one in use; `command` begins such a compile.
    """
    caps = Caps(terms.get("max_calls"), terms.get("max_usd"), terms.get("max_seconds"))
    trials, seed, origin = terms.get("trials"), terms.get("seed") or 0, terms.get("origin", "")
    _require_sense(project, trials, terms.get("seed"), terms.get("risk"), caps)
    watch = terms.get("watch") or (lambda progress: None)
    with ExitStack() as held:
        held.enter_context(hold_turn(project))
        session = held.enter_context(closing(Session(open_record(project), caps, watch, terms.get("jobs", 1))))
        session.limit("choose")
        origin = str(resolve(origin, project.artifacts)) if origin else ""  # what an alias names moves on
        try:
            used = origin or find_in_use(project)
            task = maker(session, seed, origin, used)
            digest = digest_json([task.describe_conditions(), optimizer, trials or 0]).hex()
            again = find_sealed(project, digest)
            if again and (then := resolve(again, project.artifacts).parent or "") != used:  # compared as it was then
                used = then if resolve(then, project.artifacts).section("optimizer").get("name") != "none" else ""
            task = task.compared_with(used)
            account = session.record.open_account(digest)
            session.spending.use_account(account)
            with hold_lock(project.artifacts, project.name):
                pass  # nothing is paid for where no version could be sealed
            held.enter_context(task.asking(session.spending))
            found = search(session, task, trials or 0)
        except BudgetStop as stop:
            raise _explain_too_little(stop, session, command) from None
        looks = note_look(task, digest)  # before the first question is asked, so that one cut short counts
        done = seal(session, found, test(session, found), looks, optimizer, digest)
        account.end()
        return done


def search_task(session: Session, task: Task, trials: int) -> Found:
    """Return the compiled program at the settings that were chosen."""
    task = task.prepare(session, trials)
    arms, dev_questions = make_arms(session, task), task.parts["dev"]
    splits = (len(task.searched), len(dev_questions), len(task.parts["test"]))
    session.plan = CapPlan(session.caps, *splits, task.prompts, others=len(task.controls) - 1 + bool(task.against))
    arms = ask_arms(session, arms, [read_setting(arms[0].replay.program)], "ask")
    session.limit("try")
    candidates = task.offer(session, arms)
    as_it_is = read_setting(arms[0].replay.program)  # with its choices among the candidates
    begun = {**as_it_is, **candidates.begun_choices}
    arms = ask_arms(session, arms, [as_it_is, begun], "teach")
    ways = {name: {**begun, **way} for name, way in task.list_ways(session, candidates).items()}
    ways = {AS_IT_IS: as_it_is, FITTED: begun, **ways}
    train = Scoring(arms, task.search_grader, session.fork)
    stages, untried = fit_stages(session, task, train, ways, trials)
    final = task.base.deepcopy()
    candidates.equip_program(final)
    asked = [Arm(task.runner(session, final), dev_questions)] if dev_questions else []
    dev = train.over(ask_arms(session, asked, list(stages.values()), "choose"))
    session.begin_stage("choosing on dev")
    points = choose_points(train, dev, stages, task.price, task.risk is None, session.advance)
    points = points if task.has_points else replace(points, points={BALANCED: points.points[BALANCED]})
    if task.against:
        parent = task.controls[-1]
        before = train.over([Arm(task.runner(session, parent), dev.questions)] if dev_questions else [])
        with suppress(BudgetStop):
            before(read_setting(parent))
        points = replace(points, before=before.read(read_setting(parent)).utility.tolist())
    apply_setting(final, points.points[BALANCED])
    risks = task.prove_risks(session, final, points, train)
    session.begin_stage(LISTING)
    learned = task.grade_learned(session, final, points, train, dev)
    lacking = (untried, session.plan.price_ways(len(untried)))
    return Found(task, final, points, candidates, train, dev, risks, learned, *lacking)


def ask_arms(session: Session, arms: list[AnyArm], settings: Sequence[Setting], stage: str) -> list[AnyArm]:
    """Return the arms with the questions that a stage of the plan leaves room for."""
    session.limit(stage)
    if session.caps == Caps() or not arms:
        return arms
    session.begin_stage("asking under the cap")
    arms, each = ask_within(arms, settings, lambda n: session.advance(n, sum(len(arm.questions) for arm in arms)))
    session.plan = replace(session.plan, each=session.plan.each or each)
    return arms


def make_arms(session: Session, task: Task) -> list[AnyArm]:
    """Return the questions in folds by topic, each with a program of its own."""
    questions = task.searched
    folds = split_topics([question.cluster for question in questions])
    return [Arm(task.runner(session, task.base.deepcopy()), [questions[n] for n in fold]) for fold in folds]


def fit_stages(
    session: Session, task: Task, train: Scoring, ways: dict[str, Setting], trials: int
) -> tuple[dict[str, Setting], list[str]]:
    """Return the settings among which dev chooses, and the ways that a cap left out.

    They are the program as it is, fitted, the best whole way, and what a search found. A cap ends all of it. Raises
    `BudgetStop` when even that does not reach to the program as it is.
    """
    space = task.list_parameters(train.arms[0].replay.program)
    thresholds = [dimension for dimension in space if ":" in dimension.name and dimension.name != QUOTED]
    stages = {AS_IT_IS: ways[AS_IT_IS]}
    worth: dict[str, float] = {}
    untried = list(ways)
    session.begin_stage("trying whole ways")
    session.limit("try")
    with suppress(BudgetStop):
        for done, (name, setting) in enumerate(ways.items(), 1):
            train(setting, train.preview)
            if name in (AS_IT_IS, FITTED) or not train.loses(setting, ways[max(worth, key=worth.__getitem__)]):
                worth[name] = train(setting).worth
            untried.remove(name)
            session.progress.best = max(worth.values())
            session.progress.baseline = worth[AS_IT_IS]
            session.progress.worth = train.read(setting).unit
            session.advance(done, len(ways))
    if not worth:
        session.limit("choose")
        worth[AS_IT_IS] = train(ways[AS_IT_IS]).worth
    untried = [name for name in untried if name not in worth]
    session.limit("fit")
    best = max(worth, key=worth.__getitem__)
    for name, way in {FITTED: FITTED, BEST_WAY: best}.items():
        if way in worth and (name == FITTED or best not in (AS_IT_IS, FITTED)):
            session.begin_stage(f"fitting thresholds: {way}")
            stages[name] = fit_thresholds(train, thresholds, ways[way], session.advance)
            with suppress(BudgetStop):
                stages[name] = fit_caution(train, QUOTED, stages[name]) if QUOTED in stages[name] else stages[name]
    if trials:
        session.begin_stage("searching")
        with suppress(BudgetStop):
            start = max(stages.values(), key=lambda setting: train(setting).worth)
            stages[SEARCHED] = search_settings(train, space, start, trials, task.seed, session.advance)
    return stages, untried


def learn(optimizer: str, command: str, session: Session, task: ModuleTask, trials: int) -> Found:
    """Return the program as one of DSPy's optimizers compiled it.

    Raises `BudgetError` where a cap stops it before it found anything.
    """
    task = task.prepare(session, trials)
    shown = [[one.example for one in task.parts[part]] for part in ("train", "dev")]
    session.begin_stage(f"running {optimizer}")
    try:
        final = run_optimizer(optimizer, task.base, shown, task.metric, task.seed)
    except BudgetStop as stop:
        share = f"The cap on {stop.tripped}, of which {1 - SECONDS['choose']:.0%} are kept for the test,"
        what = f"{share} was reached before {optimizer} had found anything."
        raise BudgetError(what, _name_higher_cap(session, command, stop)) from None
    adopt_predictors(final, task.undecided)
    return Found(task, final, OperatingPoints({BALANCED: read_setting(final)}))


def test(session: Session, found: Found) -> list[Evaluation]:
    """Return the task's controls and the compiled program on test."""
    session.begin_stage("testing")
    task, questions = found.task, found.task.parts["test"]
    session.limit("test")
    programs = [*task.controls, found.final]
    arms = [(task.grader(program), task.runner(session, program).answer_all) for program in programs]
    together = TOGETHER if session.caps != Caps() else WITHOUT_CAP
    session.end_processes()
    tested = evaluate_side_by_side(arms, questions, session.advance, together, fork=session.fork)
    if (after := tested[-1]).failed and not after.grades:
        what = f"No question of test could be graded: {after.first_failure}."
        raise DataError(what, "Mend the metric, or the labels that it reads.")
    return tested


def _require_sense(project: Project, trials: int | None, seed: int | None, risk: float | None, caps: Caps) -> None:
    """Raise for numbers beyond all use, and for a cap on money that could not stop what has no price."""
    for name, number, least, most in (
        ("trials", trials, 1, 1_000_000),
        ("seed", seed, 0, 2**31 - 1),
        ("risk", risk, 0, 1.0),
        ("max_calls", caps.calls, 1, 10**9),
        ("max_usd", caps.usd, 0, sys.float_info.max),
        ("max_seconds", caps.seconds, 1, sys.float_info.max),
    ):
        whole = isinstance(most, int)
        if number is not None and not (isinstance(number, int if whole else int | float) and least <= number <= most):
            kind = f"whole number, {least} to {most}" if whole else f"number from {least}"
            raise StudyError(f"{name} is a {kind}, not {number!r}.", "Give another, or leave it out.")
    if caps.usd is not None:
        require_price(project.settings.models, project.settings.provider, "--max-usd", "cap --max-calls")


def _explain_too_little(stop: BudgetStop, session: Session, command: str) -> BudgetError:
    """Return the error for a cap that is reached before the program as it is could be tried."""
    spending = session.spending
    return BudgetError(
        f"The cap on {stop.tripped}, a part of which is kept for dev and the test, was reached before the program as it"
        f" is could be tried; {spending.calls} calls, ${spending.usd:.2f} and {spending.seconds:.0f} s were spent.",
        f"What was paid for is kept. {_name_higher_cap(session, command, stop)}",
    )


def _name_higher_cap(session: Session, command: str, stop: BudgetStop) -> str:
    """Return the command under twice the cap that was reached."""
    return f"Give a higher cap: {command} --max-{stop.tripped} {round(2 * getattr(session.caps, stop.tripped), 6)}"
