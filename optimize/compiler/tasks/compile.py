"""`ragc compile MODULE:FACTORY`: anybody's DSPy program and labelled examples in, a sealed version out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dspy
import orjson

from optimize.compiler.candidates.demonstrations import WORKED, Demonstration, thin_out, to_json
from optimize.compiler.candidates.instructions import propose_instructions
from optimize.compiler.candidates.screening import AS_IT_IS, FEW, LABELLED, CandidateSets, Offer
from optimize.compiler.choice import OperatingPoints, Validation
from optimize.compiler.compile import choose, open_session, search_settings, take_up_study
from optimize.compiler.plan import SEARCHED, begin_study, lead_study
from optimize.compiler.publish import Publisher, compare_grades
from optimize.compiler.record import Entry, digest_json
from optimize.compiler.runs.module_runs import Answered
from optimize.compiler.scoring import Scoring, split_topics
from optimize.compiler.search import Search, Session, Watch
from optimize.compiler.study import Caps, Note, Share, Spending, Study
from optimize.compiler.tasks.examples import Metric, score_prediction
from optimize.compiler.tasks.optimizers import RAGC, require_optimizer, run_optimizer
from optimize.compiler.tasks.task import (
    Task,
    asking,
    check_program,
    evaluate_program,
    open_project,
    open_task,
    plain_outputs,
)
from optimize.compiler.tasks.thresholds import fit_decisions, widen_weights
from optimize.evaluation.comparison import judge_difference
from optimize.evaluation.evaluate import evaluate_side_by_side
from optimize.evaluation.outcome import BALANCED, CompileOutcome
from optimize.labelled.dataset import Question
from optimize.labelled.split import sample_stratified
from program.errors import BudgetError, BudgetStop, DataError
from program.loop.policy import apply_setting, find_dimensions, read_setting
from program.models.embedded.decider import LocalDecider
from program.serve.factory import Factory
from program.serve.reference import resolve

MOST = 4_000  # demonstrations of a predictor that the embedded decider answers


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledProgram(CompileOutcome):
    """A finished compile of anybody's program; what utility is to a project, the metric's score is here."""

    reference: str
    optimizer: str
    study: str
    replayed: bool  # False when the program was run anew for every setting


def compile_program(
    make: Factory,
    data: Path | str,
    metric: Metric,
    *,
    name: str,
    optimizer: str = RAGC,
    trials: int | None = None,
    seed: int | None = None,
    max_calls: int | None = None,
    max_usd: float | None = None,
    max_seconds: float | None = None,
    resume: bool = False,
    study: str = "",
    origin: str = "",
    artifacts: Path | str | None = None,
    watch: Watch = lambda live: None,
) -> CompiledProgram:
    """Compile a function's program against labelled examples, and publish it.

    Searched are the thresholds of its decisions, its knobs and, of each predictor, demonstrations and instructions; or
    an `optimizer` of DSPy's learns in its way. The study is kept in `.ragc` of the working folder. Raises as
    `compile_project`, `SettingsError` and `ModelError` for a program that cannot be made or asked.
    """
    require_optimizer(optimizer)
    project, caps = open_project(name, artifacts), Caps(max_calls, max_usd, max_seconds)
    begun, seed, origin, caps = take_up_study(project, study, resume, trials, seed, origin, caps)
    task = open_task(project, make, data, metric, seed, origin)
    session = open_session(project, caps, watch)
    if begun is not None and session.record.store is not None:
        session.spending.join_study(session.record.store, begun.key, leads=True)
    session.limit(Share.CHOICE)
    with closing(session.record), ExitStack() as held, asking(task, session.spending) as embedded:
        current = begin_study(session, task, begun, trials)
        held.enter_context(lead_study(project, current.name))
        try:
            session.begin_stage("asking the program as it is")
            check_program(task)
            if optimizer == RAGC:
                final, points, search = _search(session, task, current, embedded)
            else:
                session.begin_stage(f"running {optimizer}")
                shown = [task.examples.of(task.parts[part]) for part in ("train", "dev")]
                final, points, search = run_optimizer(optimizer, task.base, shown, metric, seed), None, None
        except BudgetStop as stop:
            what = f"The cap on {stop.tripped} was reached before anything could be learned."
            raise BudgetError(what, f"Give more: --max-{stop.tripped} N, with --resume.") from None
        session.begin_stage("testing")
        publisher = Publisher(project, task.parts)
        looks = publisher.note_look(current.key)
        session.limit(1.0)
        pair = [(task.grade, task.replay(one.deepcopy()).answer_all) for one in (task.base, final)]
        before, after = evaluate_side_by_side(pair, task.parts["test"], session.advance)
        if after.failed and not after.grades:
            what = f"No example of test could be graded: {after.failed[0]}."
            raise DataError(what, "Mend the metric, or the labels that it reads.")
        session.begin_stage("sealing")
        parent = origin or publisher.publish_uncompiled(task.contents(task.base, embedded), before)
        sealed = task.contents(final, embedded)
        gain, spending = compare_grades(before.grades, after.grades), session.spending
        points = points or OperatingPoints({BALANCED: sealed.setting})
        done = CompiledProgram(
            reference="",
            parent=parent,
            verdict=judge_difference("utility", gain),
            gain=gain,
            before=before,
            after=after,
            survived=points.survived,
            labelled=publisher.describe_labels(),
            optimizer=optimizer,
            study=current.name,
            trials=len(search.trials()) if search else 0,
            calls=spending.calls,
            usd=spending.usd,
            seconds=spending.seconds,
            looks=looks,
            stopped_by=spending.tripped,
            replayed=all(arm.replay.replays for arm in search.scoring.arms) if search else True,
            broken={**(search.scoring.broken if search else {}), **dict.fromkeys(after.failed, "in the test")},
        )
        made = done.describe_origin(current.key, seed, optimizer)
        reference = publisher.find_sealed(current.key) or publisher.publish(sealed, after, points, made)
        current.note(Note.FINISHED, reference)
    return replace(done, reference=reference)


def seal_program(
    program: dspy.Module,
    *,
    name: str,
    data: Path | str,
    metric: Metric,
    parent: str = "",
    artifacts: Path | str | None = None,
) -> str:
    """Publish a program as it is, scored on test; raises as `compile_program`."""
    learned = program.deepcopy()
    for _, part in learned.named_sub_modules():
        part._compiled = False  # else its parent's state leaves it out
    project = open_project(name, artifacts)
    task = open_task(project, lambda: learned, data, metric)
    with asking(task, Spending()) as embedded:
        check_program(task)
        publisher = Publisher(project, task.parts)
        looks = publisher.note_look("")
        scores = evaluate_program(task, learned, task.parts["test"])
        made: dict[str, Any] = {"optimizer": {"name": "sealed", "test_looks": looks}}
        made |= {"parent": str(resolve(parent, project.artifacts))} if parent else {}
        points = OperatingPoints({BALANCED: read_setting(learned)})
        return publisher.publish(task.contents(learned, embedded), scores, points, made)


def _search(
    session: Session, task: Task, study: Study, embedded: LocalDecider
) -> tuple[dspy.Module, OperatingPoints, Search]:
    """Return the compiled program, its setting, and the search that found it."""
    asks_models = len(task.undecided) < len(task.base.named_predictors())
    questions = sample_stratified(task.parts["train"], SEARCHED) if asks_models else task.parts["train"]
    folds = split_topics([question.cluster for question in questions])
    arms = [task.arm(task.base.deepcopy(), [questions[n] for n in fold]) for fold in folds]
    candidates = _plan(session, task, study)
    candidates.equip_arms(arms)
    as_it_is = read_setting(arms[0].replay.program)
    begun = {**as_it_is, **candidates.begun_choices}
    space = widen_weights(find_dimensions(arms[0].replay.program))
    shown = {d.name: 1.0 for d in space if d.nominal}
    scoring = Scoring(arms, task.score)
    search = Search(study, scoring, [as_it_is, begun, {**begun, **shown}], 0.0, task.seed, space=space)
    search_settings(session, search, sweep=fit_decisions)
    final = task.base.deepcopy()
    candidates.equip_program(final)
    trial = task.base.deepcopy()
    candidates.equip_program(trial)
    validation = Validation(scoring, task.arm(trial, task.parts["dev"]), 0.0)
    points = choose(session, search, validation, as_it_is)
    apply_setting(final, points.points[BALANCED])
    setting = {BALANCED: points.seal().points[BALANCED]}
    return final, replace(points, points=setting, frontier=()), search


def _plan(session: Session, task: Task, study: Study) -> CandidateSets:
    """Return the demonstrations and instructions that are searched: as they were noted, else made now and noted."""
    if noted := study.notes.get(Note.PLANNED):
        found = session.record.read([bytes.fromhex(noted)]).get(bytes.fromhex(noted))
        if found is not None:
            return CandidateSets.load(found.value)
    session.begin_stage("making demonstrations")
    session.limit(Share.CANDIDATES)
    offers = {}
    replay = task.replay(task.base.deepcopy())
    worked = sample_stratified(task.parts["train"], WORKED)
    try:
        runs = list(zip(worked, replay.answer_all([question.question for question in worked]), strict=True))
    except BudgetStop:
        runs = []
    for name, predictor in task.base.named_predictors():
        made = [to_json(one) for one in label_demonstrations(task, name, predictor, runs)]
        own = {AS_IT_IS: [Demonstration(name, "", dict(demo)) for demo in predictor.demos]}
        texts: list[str] = []
        if name in task.undecided:
            own |= {LABELLED: thin_out(made, MOST)} if made else {}
        else:
            own |= {f"{LABELLED}-{size}": thin_out(made, size) for size in FEW if made}
            lm = predictor.lm or dspy.settings.lm
            if isinstance(lm, dspy.BaseLM) and (failures := _collect_failures(task, name, runs)):
                texts = propose_instructions(lm, task.base, name, failures)
        offers[name] = Offer(tuple(texts), own)
    candidates = CandidateSets(offers)
    digest = digest_json(["plan", study.key])
    session.record.write({digest: Entry(candidates.dump())})
    study.note(Note.PLANNED, digest.hex())
    session.limit(Share.CHOICE)
    return candidates


Runs = Sequence[tuple[Question, Answered]]


def label_demonstrations(task: Task, name: str, predictor: dspy.Predict, runs: Runs) -> list[Demonstration]:
    """Return a predictor's demonstrations, from labels or runs that ended well."""
    inputs, outputs = predictor.signature.input_fields, predictor.signature.output_fields
    made = []
    for question in task.parts["train"]:
        known = dict(task.examples.known[question.id])
        labels = {field: known[field] for field in outputs if known.get(field) is not None}
        if labels and all(field in known for field in inputs):
            made.append(Demonstration(name, question.cluster, {**{field: known[field] for field in inputs}, **labels}))
    for question, answer in () if made else runs:
        if not answer.error and task.grade(question, answer).utility >= task.GOOD:
            said = [(asked, plain_outputs(told)) for one, asked, told in answer.trace if one == name]
            made += [Demonstration(name, question.cluster, {**asked, **told}) for asked, told in said]
    return made


def _collect_failures(task: Task, name: str, runs: Runs) -> list[Mapping[str, Any]]:
    """Return a predictor's part in runs that ended badly, in GEPA's form."""
    failures: list[Mapping[str, Any]] = []
    for question, answer in runs:
        example = task.examples.known[question.id]
        score, said = (0.0, answer.error) if answer.error else score_prediction(task.metric, example, answer.prediction)
        labels = f"The score was {score:g}. Labels: {orjson.dumps(dict(example.labels()), default=str).decode()}"
        failures += [
            {"Inputs": dict(asked), "Generated Outputs": plain_outputs(told), "Feedback": said or labels}
            for one, asked, told in answer.trace
            if one == name and score < task.GOOD
        ]
    return failures
