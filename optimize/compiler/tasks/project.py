"""The task of compiling a project: its program over its knowledge, its labelled questions, and the utility of answers.

1. Index the knowledge, read the labels, check them against it, and divide them by topic.
2. Make the program anew, with all that the version compiled from has learned.
3. Offer each predictor demonstrations from labels and good runs, and instructions.
4. List whole ways of answering: the search that finds most evidence, the published designs, with and without a model.
5. Before it is sealed, fit the heads of the decisions that were asked, and the bound of confidence, on dev.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import chain, groupby
from operator import attrgetter
from typing import Any

from pydantic import TypeAdapter

from ragc.answer import Answer, Outcome
from ragc.errors import BudgetStop, DataError
from ragc.knowledge.index.build import index_project
from ragc.knowledge.project import Project
from ragc.loop import reviewed
from ragc.loop.policy import PRESETS, WHOLE, Risk, Setting, apply_setting, find_dimensions, read_setting
from ragc.loop.rag import AgenticRAG
from ragc.loop.state import Find
from ragc.loop.trust import TRUST, UNKNOWN, list_opinions
from ragc.models.catalog import client_of, is_local
from ragc.models.language.layout import Layout
from ragc.models.language.pace import Pace, note_pace, read_paces
from ragc.optimize.compiler.candidates.demonstrations import WORKED, Demonstration, Demonstrator, learns_demos, thin_out
from ragc.optimize.compiler.candidates.offers import CandidateSets, find_candidates, propose_instructions
from ragc.optimize.compiler.candidates.retrieval import count_evidence, find_best_search
from ragc.optimize.compiler.choice import OperatingPoints, fit_doubt, fit_trust
from ragc.optimize.compiler.record import Entry, RecordedLM, digest_json, fingerprint_predictor, source_digest
from ragc.optimize.compiler.runs.replay import Replay, ReplayArm
from ragc.optimize.compiler.scoring import Scoring
from ragc.optimize.compiler.session import Session
from ragc.optimize.compiler.tasks.task import Contents, Task
from ragc.optimize.evaluation.evaluate import Grader
from ragc.optimize.evaluation.grades import Grade
from ragc.optimize.evaluation.outcome import AS_IT_IS, BALANCED
from ragc.optimize.evaluation.risk import judge_grades, prove_risk
from ragc.optimize.labelled.check import find_shortages, require_sound_labels
from ragc.optimize.labelled.dataset import LabelledQuestion, read_labelled
from ragc.optimize.labelled.reviewed import fit_same, join_reviewed, seal_answers
from ragc.optimize.labelled.split import find_previous_splits, sample_stratified, split_questions
from ragc.optimize.registry.versions import read_ancestors
from ragc.optimize.report.estimate import estimate_cost, list_asked, measure_model
from ragc.serve.artifact import ROLES, describe_structure, export_files, require_keys
from ragc.serve.opening import load, open_program
from ragc.serve.reference import digest_of, resolve
from ragc.text.history import Asked

PROBED = 12  # questions asked to see how long a compile takes
AS_EMBEDDED: Mapping[str, float] = {"quote_above": 0.0, "sql": 0}
"""Knobs at which a program does under a language model what it did without, until calls prove their worth."""
READER_FIRST: Mapping[str, float] = {"quote_above": 0.5, "sql": 1}
"""Knobs at which a language model writes where the reader is not sure."""


@dataclass(frozen=True, kw_only=True)
class ProjectTask(Task):
    """A project with its labels checked and divided."""

    has_points, prompts = True, 1

    first: AgenticRAG  # the program before any compile
    parent: AgenticRAG  # the version compiled from or compared with, or `first`
    demonstrations: Sequence[Demonstration] = ()  # that the labels of train give

    @property
    def controls(self) -> list[AgenticRAG]:
        return [self.first.plain(), self.parent]

    @cached_property
    def search_grader(self) -> Grader:
        return Grader(self.base, self.project.settings.utility, relevancy=False)

    def grader(self, program: AgenticRAG) -> Grader:
        """Return what measures every metric of an answer."""
        return Grader(program, self.project.settings.utility)

    def describe_program(self) -> dict[str, Any]:
        """Return program, knowledge, models, and what they are worth and cost."""
        library, settings = self.first.runtime.library, self.project.settings
        return {
            "preset": settings.loop.preset,
            "start": read_setting(self.base),
            "predictors": {
                name: fingerprint_predictor(self.base, name, model)
                for name, predictor in self.base.named_predictors()
                if (model := client_of(self.base.runtime.models, predictor)) is not None
            },
            "space": {d.name: [d.low, d.high, d.integral, d.log, d.step] for d in find_dimensions(self.first)},
            "knowledge": {name: library.content_digest(name) for name in self.first.sources},
            "models": {**settings.models.model_dump(), **self.first.runtime.models.weights},
            "prices": {name: [m.usd_in, m.usd_out] for name, m in settings.provider.model.items()},
            "utility": settings.utility.model_dump(),
            "rounds": settings.budget.max_rounds,
        }

    def describe_metric(self) -> dict[str, str]:
        """Return the utility, by what `[utility]` gives an answer."""
        worth = self.project.settings.utility.model_dump_json(exclude={"risk"})
        return {"name": "utility", "sha256": digest_of(worth.encode())}

    def prepare(self, session: Session, trials: int) -> ProjectTask:
        """Return the project under limits that fit its models, with demonstrations."""
        session.begin_stage("measuring how long answers take")
        before = read_paces(self.project.private)
        for name in list_asked(self.project):
            if name not in before:
                note_pace(self.project.private, name, _find_pace(session, self.project, name))
        task = self
        if read_paces(self.project.private) != before:  # by which a program limits its calls
            first = open_program(self.project)
            task = replace(self, first=first, base=inherit_learned(first, self.parent if self.origin else first))
        session.progress.expected = estimate_cost(
            self.project,
            searched=len(self.searched) + len(self.parts["dev"]),
            tested=len(self.parts["test"]),
            most=session.caps.calls,
            trials=trials,
            **task._time_questions(session),
        )
        runner, asked = task.runner(session, task.base), {one.asked for one in (*task.searched, *task.parts["dev"])}

        def read(questions: Sequence[Asked]) -> None:
            runner.reply_all([Find(one.question, task.first.sources) for one in questions if not one.readers])
            runner.answer_all([question for question in questions if question in asked])

        session.begin_stage("reading what is found for the questions")
        every = [one.asked for part in ("train", "dev") for one in task.parts[part]]
        session.divide(read, every, needed=False)
        session.begin_stage("comparing the questions")
        known, library = task._known[1], task.first.runtime.library
        session.divide(lambda some: [known.rank_near(one.question, library) for one in some], task._questions, False)
        session.begin_stage("making demonstrations")
        train = task.parts["train"]
        demonstrator = Demonstrator(task.first, task.runner(session, task.first), sample_stratified(train, WORKED))
        single = session.divide(demonstrator.make, train)
        told = demonstrator.label_conversations([one for one in train if not one.readers])
        made = thin_out([*told, *(one for found in single for one in found or ())])
        topics = [list(own) for _, own in groupby(made, attrgetter("topic"))]
        session.divide(lambda some: demonstrator.read_inputs([*chain(*some)]), topics, needed=False)
        return replace(task, demonstrations=made)

    def _time_questions(self, session: Session) -> dict[str, float]:
        """Return the seconds that a question takes here to be answered anew and again, by a few that are asked now."""
        runner = self.runner(session, self.base.deepcopy())
        asked = [
            question for question in self.searched[:: max(1, len(self.searched) // PROBED)] if not question.readers
        ]
        started = time.monotonic()
        runner.reply_all([Find(question.question, self.first.sources) for question in asked])
        if not (models := list_asked(self.project)):
            runner.answer_all([question.asked for question in asked])
        anew, started = time.monotonic() - started, time.monotonic()
        if not models:
            apply_setting(runner.program, {"policy.answer_above": 0.5})
            runner.answer_all([question.asked for question in asked])
        again = time.monotonic() - started
        share = 1 / max(1, len(asked)) / session.jobs
        return {"anew": anew * share, "again": again * share}

    def runner(self, session: Session, program: AgenticRAG) -> Replay:
        """Return a program's runs."""
        return Replay(program, session.record, session.spending)

    def _grade_answers(
        self, session: Session, program: AgenticRAG, questions: Sequence[LabelledQuestion]
    ) -> list[tuple[Answer, Grade]]:
        """Return what a program answers, each answer with its grade, but those that cannot be graded."""
        answers = self.runner(session, program).answer_all([one.asked for one in questions])
        graded = list[tuple[Answer, Grade]]()
        for question, answer in zip(questions, answers, strict=True):
            with suppress(Exception):  # the search names it
                graded.append((answer, self.search_grader(question, answer)))
        return graded

    def prove_risks(
        self, session: Session, program: AgenticRAG, points: OperatingPoints, train: Scoring
    ) -> dict[str, Risk]:
        """Return the risk of each point as dev proves it; nothing else was chosen there."""
        withholds = any(setting.get("policy.answer_above") for setting in points.points.values())
        if not self.base.view().quotes and not withholds:  # a bound that was found is one of the confidence as it was
            program.policy.turn(**self._fit_trust(session, points, train.arms))
        if self.risk is None:
            return {}
        session.begin_stage("proving the risk on dev")
        dev, twin, found = self.parts["dev"], program.deepcopy(), dict[str, Risk]()
        for name, setting in points.points.items():
            apply_setting(twin, setting)
            try:
                graded = self._grade_answers(session, twin, dev)
                found[name] = prove_risk(judge_grades(grade for _, grade in graded), self.risk)
            except BudgetStop as stop:
                found[name] = replace(
                    prove_risk([], self.risk), lacks=f"room to answer dev under the cap on {stop.tripped}"
                )
        program.policy.turn(refuse_below=found[BALANCED].threshold)
        return found

    def _fit_trust(self, session: Session, points: OperatingPoints, arms: Sequence[Any]) -> Mapping[str, float]:
        """Return the knobs of the confidence of what a model writes, fitted to the answers to train's questions."""
        session.begin_stage("fitting the confidence")
        judged: list[tuple[Sequence[float], bool]] = []
        for arm in arms:
            apply_setting(arm.replay.program, points.points[BALANCED])
            with suppress(BudgetStop):
                for answer, grade in self._grade_answers(session, arm.replay.program, arm.questions):
                    said = list_opinions(answer.trace.path)
                    if answer.outcome is Outcome.ANSWERED and {*said} != {UNKNOWN}:
                        judged.append((said, bool(grade.wrong)))
        fitted = fit_trust(judged, [getattr(self.base.policy, name).default for name in TRUST])
        return dict(zip(TRUST, fitted, strict=True))

    def offer(self, session: Session, arms: Sequence[ReplayArm]) -> CandidateSets:
        """Return demonstrations and instructions."""
        session.begin_stage("choosing candidates")
        model = self.base.runtime.models.propose
        found = find_candidates(
            first=self.first,
            base=self.base,
            demonstrations=self.demonstrations,
            arms=arms,
            propose=partial(propose_instructions, RecordedLM(model, session.record, session.spending), self.base)
            if model is not None
            else None,
            progress=session.advance,
        )
        self._fit_heads(session, found, arms)
        return found

    def _fit_heads(self, session: Session, candidates: CandidateSets, arms: Sequence[ReplayArm]) -> None:
        """Fit the heads with which the search begins, of each arm and of all topics, in several processes."""
        session.begin_stage("fitting decisions")
        whole, embedded = self.base.deepcopy(), self.base.runtime.models.embedded
        candidates.equip_program(whole)
        programs = [whole, *(arm.replay.program for arm in arms)]

        def fit(program: AgenticRAG, name: str) -> Any:
            apply_setting(program, {**read_setting(program), **candidates.begun_choices})
            _fit_head(program, name)
            return embedded.export_heads()

        wanted = [(program, name) for name in candidates.offers for program in programs]
        tasks = [(n, n) for n in range(len(wanted))]
        for heads in session.fork(lambda n: fit(*wanted[n])).run(tasks, lambda n: session.advance(n, len(wanted))):
            embedded.import_heads(heads or {})
        session.end_processes()

    def put_beside(self, ref: str) -> ProjectTask:
        return replace(self, against=ref, parent=_open_parent(self.project, self.first, ref))

    def list_ways(self, session: Session, candidates: CandidateSets) -> dict[str, Setting]:
        """Return the best search, the published designs, and the ways to use a model."""
        if not self.base.view().quotes:
            ways: dict[str, Mapping[str, float]] = {"no model": AS_EMBEDDED, "the reader first": READER_FIRST}
            return {name: _name_knobs(one) for name, one in ways.items()} | candidates.list_ways()
        unset = {name: knob.default for name, knob in self.base.policy.named_parameters()}
        ways = {} if self.origin else {name: {**unset, **one} for name, one in PRESETS.items()}
        search = partial(find_best_search, self.runner(session, self.base), self.searched)
        if found := search(self.base.policy.k.value):
            ways["the search that finds most evidence"] = found
        if (k := count_evidence(self.searched)) > 1:  # of several subjects
            ways["as many passages as the evidence has"] = {**search(k), **WHOLE, "k": k, "subject": 0}
        return {name: _name_knobs(one) for name, one in ways.items()}

    def grade_learned(
        self, session: Session, program: AgenticRAG, points: OperatingPoints, train: Scoring, dev: Scoring
    ) -> Sequence[Grade]:
        """Return the graded answers to train and dev, as far as the caps reach."""
        if bound := program.policy.refuse_below.value:
            session.end_processes()  # they hold programs without the bound
            for arm in train.arms:
                arm.replay.program.policy.turn(refuse_below=bound)
        return [grade for scoring in (train, dev) for grade in scoring.grade_all(points.points[BALANCED])]

    def complete(
        self, session: Session, program: AgenticRAG, points: OperatingPoints, learned: Sequence[Grade]
    ) -> AgenticRAG:
        """Return the program with heads for its decisions, and a bound of confidence, which dev gives."""
        sealed: AgenticRAG = program.deepcopy()  # what was asked of it so far depends on the record
        apply_setting(sealed, points.points[BALANCED])
        if points.chosen != AS_IT_IS:
            dev = self.parts["dev"]
            answers = [grade for grade in learned if grade.id in {question.id for question in dev}]
            if not sealed.view().quotes:  # by the confidence that was fitted
                with suppress(BudgetStop):
                    answers = [grade for _, grade in self._grade_answers(session, sealed, dev)]
            judged = [(one.confidence, bool(one.wrong)) for one in answers if one.confidence is not None]
            sealed.policy.turn(unsure_below=fit_doubt(judged))
        for name, _ in sealed.named_predictors():
            _fit_head(sealed, name)
        return sealed

    def contents(self, program: AgenticRAG) -> Contents:
        """Return the program's files, and what it was compiled over."""
        library, project = program.runtime.library, self.project
        tables = {
            "program": {
                "structure": describe_structure(program),
                "source_digest": source_digest(),
                "preset": project.settings.loop.preset,
            },
            "knowledge": {
                "project": os.path.relpath(project.folder, project.artifacts),
                "corpus_digest": library.corpus_digest,
                "index_digest": library.index_digest,
                "passages": len(library.passages()),
            },
            "models": {**program.runtime.models.names.model_dump(), **program.runtime.models.weights},
        }
        carried, same = self.carried
        tables["reviewed"] = {"answers": len(carried.splitlines()), "same": same}
        return Contents({**export_files(program), reviewed.FILE: carried}, tables, read_setting(program))

    @cached_property
    def carried(self) -> tuple[bytes, float]:
        """The reviewed answers that a version carries, and how sure their decision has to be."""
        rows, known = self._known
        return rows, fit_same(self._questions, known, self.first.runtime.library)

    @cached_property
    def _known(self) -> tuple[bytes, reviewed.ReviewedAnswers]:
        rows = seal_answers(self._questions, self.project, self.first.runtime.library)
        known = reviewed.ReviewedAnswers(None, self.first.runtime.models.embedded)
        return rows, known.sealed_with(rows, reviewed.SAME)

    @property
    def _questions(self) -> list[Any]:
        return [question for part in self.parts.values() for question in part]


def open_project_task(project: Project, session: Session, seed: int, origin: str, used: str) -> ProjectTask:
    """Return the project, indexed, its labels checked and divided.

    No question that the version `used` or its ancestors learnt from comes into the test. Raises `ModelError` when a
    key is missing for a model that the project names, `DataError` for labels that contradict the knowledge or leave
    nothing to learn from.
    """
    for role in (*ROLES, "propose"):  # a stand-in would answer, and what is compiled would be for that
        require_keys(project, role, project.name)
    session.begin_stage("indexing the knowledge")
    index_project(project, session.advance)
    session.begin_stage("checking the labels")
    questions = read_labelled(project.labelled, project.folder)
    first = open_program(project)
    parent = _open_parent(project, first, origin) if origin else first
    before = find_previous_splits(read_ancestors(used, project.artifacts)) if used else None
    joined = join_reviewed(project, split_questions(questions, before=before))
    if joined.unread:
        raise DataError(joined.unread[0].what, "Mend that line, or take it out of the reviewed questions.")
    parts = joined.parts
    report = require_sound_labels(project, joined.questions, parts)
    if not (parts["train"] and parts["test"]):
        lacks = next(find_shortages(parts, project.argument))
        raise DataError(f"{lacks.what[0].upper()}{lacks.what[1:]}", lacks.mend)
    return ProjectTask(
        project=project,
        parts=parts,
        base=inherit_learned(first, parent if origin else first),
        seed=seed,
        origin=origin,
        doubts=[f"{found.what} {found.mend}" for found in report.shortcut_warnings],
        price=project.settings.utility.call,
        risk=project.settings.utility.risk,
        first=first,
        parent=parent,
    )


def _open_parent(project: Project, first: AgenticRAG, ref: str) -> AgenticRAG:
    """Return a version's program, under a language model as it answered without one."""
    parent = load(ref, artifacts=project.artifacts, project=project.folder)
    wrote = resolve(ref, project.artifacts).section("models").get("write", "")
    if is_local(wrote) and not first.view().quotes:
        parent.policy.turn(**AS_EMBEDDED)
    return parent


def _name_knobs(values: Mapping[str, float]) -> Setting:
    return {f"policy.{name}": value for name, value in values.items()}


def inherit_learned(first: AgenticRAG, parent: AgenticRAG) -> AgenticRAG:
    """Return the first program with all that its parent learned."""
    base: AgenticRAG = first.deepcopy()
    apply_setting(base, read_setting(parent))
    for name, learned in parent.named_predictors():
        predictor = base.predictor(name)
        predictor.signature = predictor.signature.with_instructions(learned.signature.instructions)
        predictor.demos = list(learned.demos)
    laid = {name: one for name, one in parent.named_parameters() if isinstance(one, Layout)}
    for name, layout in base.named_parameters():
        if name in laid:
            layout.value = laid[name].value
    return base


def _find_pace(session: Session, project: Project, name: str) -> Pace:
    """Return the pace that the record holds of a model, else that of a call made now."""
    digest = digest_json(["pace", name, project.settings.provider.model_dump(mode="json")])
    if (found := session.record.read([digest]).get(digest)) is not None:
        return Pace(**found.value)
    pace = measure_model(project, name, session.spending)
    session.record.write({digest: Entry(asdict(pace), pace.seconds, pace.tokens_in, pace.tokens_out)})
    return pace


def _fit_head(program: AgenticRAG, name: str) -> None:
    """Have the embedded decider of a predictor fitted to its demonstrations."""
    predictor = program.predictor(name)
    if not (predictor.demos and learns_demos(program, name)):
        return
    inputs = {
        field: TypeAdapter(info.annotation).validate_python(predictor.demos[0][field])
        for field, info in predictor.signature.input_fields.items()
    }
    program.requests.ask(name, predictor, client_of(program.runtime.models, predictor), [inputs])
