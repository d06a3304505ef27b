"""`ragc compile MODULE:FACTORY`: anybody's DSPy program and labelled examples in, a sealed version out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import dspy
import numpy as np
import orjson
from dspy.adapters.types.decision import Choice, Noul, Score

from optimize.compiler.candidates import AS_IT_IS, FEW, LABELLED, CandidateSets, Offer
from optimize.compiler.choice import BALANCED, OperatingPoints, Validation
from optimize.compiler.compile import RECORD, choose, require_sense, resume_study, search_settings
from optimize.compiler.demonstrations import WORKED, Demonstration, thin_out, to_json
from optimize.compiler.plan import SEARCHED, begin_study, lead_study, propose_instructions
from optimize.compiler.publish import Contents, Publisher, compare_grades, read_ancestors
from optimize.compiler.record import Entry, Record, compiler_digest, digest_json
from optimize.compiler.replay import Arm, Replay
from optimize.compiler.scoring import Scoring, split_topics
from optimize.compiler.search import Live, Search, Session, Watch
from optimize.compiler.study import Caps, Note, Share, Spending, Study
from optimize.evaluation.comparison import judge_difference
from optimize.evaluation.evaluate import Evaluation, evaluate_side_by_side
from optimize.evaluation.metrics import Grade
from optimize.evaluation.stats import PairedResult
from optimize.labelled.dataset import LabelledQuestion, digest_questions
from optimize.labelled.split import find_previous_splits, sample_stratified
from optimize.programs.examples import Examples, Metric, check_metric, read_examples, score_prediction
from optimize.programs.optimizers import run_optimizer
from optimize.programs.recording import Answered, CallMeter, ModuleReplay
from optimize.programs.thresholds import fit_decisions, widen_weights
from program.errors import BudgetError, BudgetStop, DataError
from program.knowledge.project import Project
from program.loop.policy import apply_setting, find_dimensions, read_setting
from program.models.embedded.decider import LocalDecider
from program.models.language.transport import listed_price
from program.serve.factory import Factory, describe_module, export_module, find_undecided, make_program, restore_module
from program.serve.manifest import digest_of
from program.serve.reference import resolve
from program.settings import Settings, artifacts_root

RAGC = "ragc"
GOOD = 1.0  # score from which a run is worth showing
MOST = 4_000  # demonstrations of a predictor that the embedded decider answers
LONGEST = 2_000  # characters of an answer in `scores.jsonl`


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledProgram:
    """A finished compile of anybody's program."""

    reference: str
    parent: str
    verdict: str
    gain: PairedResult  # in score, example by example on test
    before: Evaluation
    after: Evaluation
    optimizer: str
    study: str
    trials: int
    calls: int
    usd: float
    seconds: float
    looks: int
    stopped_by: str
    replayed: bool  # False when the program was run anew for every setting
    broken: Mapping[str, str]

    @property
    def improved(self) -> bool:
        """True when it is better than its parent."""
        return self.verdict == "better"


@dataclass(frozen=True, slots=True)
class Task:
    """A program with its examples divided, and the metric."""

    project: Project  # its name, and the folders it works in
    base: dspy.Module  # what is compiled from
    undecided: list[str]  # predictors that the embedded decider answers
    examples: Examples
    parts: Mapping[str, Sequence[LabelledQuestion]]
    metric: Metric
    seed: int = 0
    origin: str = ""

    def describe_conditions(self) -> dict[str, Any]:
        """Return all that a study's trials depend on."""
        return {
            **describe_module(self.base, self.undecided),
            "compiler": compiler_digest(),
            "start": digest_of(orjson.dumps(self.base.dump_state(), default=str)),
            "questions": {name: digest_questions(part) for name, part in self.parts.items()},
            "metric": getattr(self.metric, "__qualname__", repr(self.metric)),
            "seed": self.seed,
            "from": self.origin,
        }

    def replay(self, program: dspy.Module) -> ModuleReplay:
        """Return the program's runs on the examples."""
        return ModuleReplay(program, self.examples.by_inputs)

    def arm(self, program: dspy.Module, questions: Sequence[LabelledQuestion]) -> Arm:
        """Return a program and questions as a search takes them."""
        return Arm(cast(Replay, self.replay(program)), questions)

    def grade(self, question: LabelledQuestion, answer: Answered) -> Grade:
        """Grade an answer by the metric: correct at 1, wrong at 0; a program that raised is worth 0."""
        score = (
            0.0
            if answer.error
            else score_prediction(self.metric, self.examples.known[question.id], answer.prediction)[0]
        )
        said = answer.error or orjson.dumps(plain_outputs(answer.prediction), default=str).decode()
        return Grade(
            id=question.id,
            topic=question.cluster,
            tags=question.tags,
            question=question.question[:LONGEST],
            outcome="",
            correct=int(score >= GOOD),
            partial=int(0 < score < GOOD),
            wrong=int(score <= 0),
            utility=score,
            answer=said[:LONGEST],
            path=(),
            metrics={"model_calls": float(answer.usage.calls), "usd": answer.usage.usd},
        )

    def contents(self, program: dspy.Module, embedded: LocalDecider) -> Contents:
        """Return what a version holds of a program."""
        files = export_module(program, self.undecided, embedded)
        return Contents(files, describe_module(program, self.undecided), read_setting(program))


class ModuleScoring(Scoring):
    """Settings of anybody's program, scored by its metric."""

    weights: Task

    def grade_answer(self, question: LabelledQuestion, answer: Answered) -> tuple[float, ...]:
        """Return score, NaN for routing, calls and US dollars."""
        key = (question.id, id(answer))
        if key not in self._grades:
            if answer.error:
                self.broken[question.id] = answer.error
            try:
                score = self.weights.grade(question, answer).utility
            except Exception as error:
                self.broken[question.id], score = f"{type(error).__name__}: {error}", np.nan
            self._grades[key] = score, np.nan, float(answer.usage.calls), answer.usage.usd
        return self._grades[key]


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
    """Compile the program that a function makes against labelled examples, and publish it.

    Searched are the thresholds of its decisions, its knobs and, of each predictor, demonstrations and instructions; or
    an `optimizer` of DSPy's learns in its way. The study is kept in `.ragc` of the working folder. Raises as
    `compile_project`, `SettingsError` and `ModelError` for a program that cannot be made or asked.
    """
    project, caps = _open_project(name, artifacts), Caps(max_calls, max_usd, max_seconds)
    require_sense(project, trials, seed, caps)
    origin = str(resolve(origin, project.artifacts)) if origin else ""
    begun = resume_study(project, study, {"seed": seed, "from": origin or None}) if resume or study else None
    if begun is not None:
        seed, origin = begun.notes[Note.IDENTITY]["seed"], begun.notes[Note.IDENTITY]["from"]
        caps = caps.fill_from(begun.notes[Note.CAPS])
    task = open_task(project, make, data, metric, seed or 0, origin)
    record = Record(project.private / RECORD)
    session = Session(record, Spending(), caps, Live(), watch)
    if begun is not None and record.store is not None:
        session.spending.join_study(record.store, begun.key, leads=True)
    session.limit(Share.CHOICE)
    with closing(record), ExitStack() as held, asking(task, session.spending) as embedded:
        current = begin_study(session, task, begun, trials)
        held.enter_context(lead_study(project, current.name))
        try:
            session.begin_stage("asking the program as it is")
            _check_program(task)
            if optimizer == RAGC:
                final, points, search = _search(session, task, current, embedded)
            else:
                session.begin_stage(f"running {optimizer}")
                shown = [task.examples.of(task.parts[part]) for part in ("train", "dev")]
                final, points, search = run_optimizer(optimizer, task.base, shown, metric, seed or 0), None, None
        except BudgetStop as stop:
            what = f"The cap on {stop.tripped} was reached before anything could be learned."
            raise BudgetError(what, f"Give more: --max-{stop.tripped} N, with --resume.") from None
        session.begin_stage("testing")
        publisher = Publisher(project, task.parts)
        looks = publisher.note_look(current.key)
        session.limit(1.0)
        pair = [(task.grade, task.replay(one.deepcopy()).answer_all) for one in (task.base, final)]
        before, after = evaluate_side_by_side(pair, task.parts["test"], GOOD, session.advance)
        session.begin_stage("sealing")
        parent = origin or publisher.publish_uncompiled(task.contents(task.base, embedded), before)
        sealed = task.contents(final, embedded)
        gain, spending = compare_grades(before.grades, after.grades), session.spending
        tried = len(search.trials()) if search else 0
        reference = publisher.find_sealed(current.key) or publisher.publish(
            sealed,
            after,
            points or OperatingPoints({BALANCED: sealed.setting}),
            parent=parent,
            optimizer={
                "name": optimizer,
                "seed": seed or 0,
                "trials": tried,
                "study": current.key,
                "test_looks": looks,
            },
            cost={"seconds": round(spending.seconds, 1), "calls": spending.calls, "usd": round(spending.usd, 6)},
        )
        current.note(Note.FINISHED, reference)
    return CompiledProgram(
        reference=reference,
        parent=parent,
        verdict=judge_difference("utility", gain),
        gain=gain,
        before=before,
        after=after,
        optimizer=optimizer,
        study=current.name,
        trials=tried,
        calls=spending.calls,
        usd=spending.usd,
        seconds=spending.seconds,
        looks=looks,
        stopped_by=spending.tripped,
        replayed=all(cast(Any, arm.replay).replays for arm in search.scoring.arms) if search else True,
        broken={**(search.scoring.broken if search else {}), **dict.fromkeys(after.failed, "in the test")},
    )


def seal_program(
    program: dspy.Module,
    *,
    name: str,
    data: Path | str,
    metric: Metric,
    parent: str = "",
    artifacts: Path | str | None = None,
) -> str:
    """Publish a program as it is, whatever taught it, scored on the test split of its examples.

    Raises as `compile_program`.
    """
    learned = program.deepcopy()
    for _, part in learned.named_sub_modules():
        part._compiled = False  # else its parent's state leaves it out
    for _, predictor in learned.named_predictors():
        predictor.lm = None if isinstance(predictor.lm, LocalDecider) else predictor.lm
    project = _open_project(name, artifacts)
    task = open_task(project, lambda: learned, data, metric)
    with asking(task, Spending()) as embedded:
        _check_program(task)
        publisher = Publisher(project, task.parts)
        looks = publisher.note_look("")
        scores = evaluate_program(task, learned, task.parts["test"])
        return publisher.publish(
            task.contents(learned, embedded),
            scores,
            OperatingPoints({BALANCED: read_setting(learned)}),
            parent=str(resolve(parent, project.artifacts)) if parent else "",
            optimizer={"name": "sealed", "test_looks": looks},
        )


def evaluate_program(
    task: Task,
    program: dspy.Module,
    questions: Sequence[LabelledQuestion],
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Evaluation:
    """Ask a program and grade the answers."""
    replay = task.replay(program.deepcopy())
    return evaluate_side_by_side([(task.grade, replay.answer_all)], questions, GOOD, progress)[0]


def open_task(
    project: Project, make: Factory, data: Path | str, metric: Metric, seed: int = 0, origin: str = ""
) -> Task:
    """Return the program made, with the state of the version `origin` if any, and its examples divided."""
    ancestors = read_ancestors(origin, project.artifacts) if origin else []
    base = restore_module(ancestors[0], make) if ancestors else make_program(make)
    for _, predictor in base.named_predictors():
        predictor.lm = None if isinstance(predictor.lm, LocalDecider) else predictor.lm
    examples = read_examples(Path(data), base)
    parts = examples.split(find_previous_splits(ancestors))
    return Task(project, base, find_undecided(base), examples, parts, metric, seed, origin)


@contextmanager
def asking(task: Task, spending: Spending) -> Iterator[LocalDecider]:
    """Have the embedded decider answer what has no model, and every other request counted and capped.

    Raises `BudgetError` when money is capped and a model's price is not known.
    """
    from program.serve.factory import open_decider

    models = {one.lm or dspy.settings.lm for _, one in task.base.named_predictors()} - {None}
    if spending.money and (unknown := [m.model for m in models if listed_price(m.model, 1, 1) is None]):
        what = f"What {unknown[0]} costs is not known, so that --max-usd could not stop it."
        raise BudgetError(what, "Cap --max-calls instead.")
    embedded = open_decider()
    embedded.embedder.remember_in(task.project.private)
    callbacks = [*(dspy.settings.callbacks or []), CallMeter(spending)]
    with dspy.context(lm=dspy.settings.lm or embedded, callbacks=callbacks):
        yield embedded


def plain_outputs(prediction: Any) -> dict[str, Any]:
    """Return a prediction's outputs, decisions as their values."""
    decided = Choice | Noul | Score
    return {name: value.value if isinstance(value, decided) else value for name, value in dict(prediction).items()}


def _open_project(name: str, artifacts: Path | str | None) -> Project:
    """Return the working folder as the place of a program's studies."""
    return Project(Path.cwd(), Settings(name=name, knowledge={}, artifacts=str(artifacts_root(artifacts))))


def _check_program(task: Task) -> None:
    """Raise `DataError` when the program or the metric fails on the first example."""
    first = task.parts["train"][0]
    answer = task.replay(task.base.deepcopy())(first.question)
    if answer.error:
        raise DataError(
            f"The program failed on the example {first.id}: {answer.error}.", "Mend the program, or the example."
        )
    check_metric(task.metric, task.examples.known[first.id], answer.prediction)


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
    shown = {d.name: 1.0 for d in find_dimensions(arms[0].replay.program) if d.nominal}
    space = widen_weights(find_dimensions(arms[0].replay.program))
    scoring = ModuleScoring(arms, task)
    search = Search(study, scoring, [as_it_is, begun, {**begun, **shown}], 0.0, task.seed, space=space)
    search_settings(session, search, sweep=fit_decisions)
    final = task.base.deepcopy()
    candidates.equip_program(final)
    trial = task.base.deepcopy()
    candidates.equip_program(trial)
    validation = Validation(scoring, task.arm(trial, task.parts["dev"]), 0.0, wary=bool(task.origin))
    points = choose(session, search, validation, begun, begun, None)
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
    sets, offers = {}, {}
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
        sets[name], offers[name] = own, Offer(tuple(texts), tuple(own)[1:])
    candidates = CandidateSets(sets, {name: offer for name, offer in offers.items() if offer != Offer()})
    digest = digest_json(["plan", study.key])
    session.record.write({digest: Entry(candidates.dump())})
    study.note(Note.PLANNED, digest.hex())
    session.limit(Share.CHOICE)
    return candidates


Runs = Sequence[tuple[LabelledQuestion, Answered]]


def label_demonstrations(task: Task, name: str, predictor: dspy.Predict, runs: Runs) -> list[Demonstration]:
    """Return a predictor's demonstrations: by the examples' labels, else from runs that ended well."""
    inputs, outputs = predictor.signature.input_fields, predictor.signature.output_fields
    made = []
    for question in task.parts["train"]:
        known = dict(task.examples.known[question.id])
        labels = {field: known[field] for field in outputs if known.get(field) is not None}
        if labels and all(field in known for field in inputs):
            made.append(Demonstration(name, question.cluster, {**{field: known[field] for field in inputs}, **labels}))
    for question, answer in () if made else runs:
        if not answer.error and task.grade(question, answer).utility >= GOOD:
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
            if one == name and score < GOOD
        ]
    return failures
