"""A compile's project opened, and its search planned: candidates, questions and the settings to begin with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Protocol

from filelock import FileLock, Timeout

from optimize.compiler.candidates.demonstrations import WORKED, Demonstration, Demonstrator
from optimize.compiler.candidates.instructions import open_proposer, propose_instructions
from optimize.compiler.candidates.labels import observe_routing
from optimize.compiler.candidates.layouts import screen_layouts
from optimize.compiler.candidates.screening import CandidateSets, find_candidates
from optimize.compiler.record import Entry, compiler_digest, digest_json, fingerprint_predictor
from optimize.compiler.runs.replay import ReplayArm
from optimize.compiler.runs.runner import Arm
from optimize.compiler.scoring import limit_to_reach, split_topics
from optimize.compiler.search import Session
from optimize.compiler.study import Caps, Note, Share, Study, create_study
from optimize.labelled.check import find_shortages, require_sound_labels
from optimize.labelled.dataset import LabelledQuestion, Question, digest_questions, read_labelled
from optimize.labelled.split import find_previous_splits, sample_stratified, split_questions
from optimize.registry.versions import hold_lock, read_ancestors
from program.errors import DataError, StudyError
from program.knowledge.index.build import index_project
from program.knowledge.project import Project
from program.loop.decisions import clients_of
from program.loop.policy import LEAST, PRESETS, Setting, apply_setting, find_dimensions, read_setting
from program.loop.rag import AgenticRAG
from program.loop.state import DRAFT
from program.models.catalog import is_local, list_names
from program.models.language.layout import Layout
from program.serve.artifact import ROLES, require_keys
from program.serve.opening import load, open_program
from program.serve.reference import Manifest

SEARCHED = 240  # questions of train on which settings are tried at most; a compile's time grows with them
OPEN: Setting = {
    "judge.sufficiency:sufficient": LEAST,
    "generator.states:states": LEAST,
    "grounder.support:supported": LEAST,
    "grounder.responsive:responsive": LEAST,
    "policy.generate_above": 0.0,
    "policy.answer_above": 0.0,
}
"""Thresholds at which nothing is withheld. How far one is best closed shows only while the others are open."""
AS_EMBEDDED: Mapping[str, float] = {"quote_above": 0.0, "sql": 0}
"""Knobs at which a program does under a language model what it did without, until calls prove their worth."""
DEFAULT_TRIALS = 60  # settings that a search proposes by default
EMBEDDED_TRIALS = 250  # where no language model is asked: half a second each
LEAST_TRIALS = 20  # of a project with fewer questions in train: the best of more settings would be the luckiest


@dataclass(frozen=True, slots=True)
class Opened:
    """A project with its labels checked and divided."""

    project: Project
    parts: Mapping[str, Sequence[LabelledQuestion]]
    seed: int
    origin: str  # the version compiled from, or empty
    first: AgenticRAG  # the program before any compile
    parent: AgenticRAG  # the version compiled from, or `first`
    base: AgenticRAG  # `first` with all that `parent` learned
    doubts: Sequence[str] = ()  # shortcuts in the labels

    def describe_conditions(self) -> dict[str, Any]:
        """Return all that a study's trials depend on."""
        library, settings = self.first.runtime.library, self.project.settings
        return {
            "program": compiler_digest(),
            "preset": settings.loop.preset,
            "start": read_setting(self.base),
            "predictors": {
                name: [fingerprint_predictor(self.base, name, model) for model in clients_of(self.base, predictor, {})]
                for name, predictor in self.base.named_predictors()
            },
            "space": {d.name: [d.low, d.high, d.integral, d.log, d.step] for d in find_dimensions(self.first)},
            "questions": {name: digest_questions(part) for name, part in self.parts.items()},
            "knowledge": {name: library.content_digest(name) for name in self.first.sources},
            "models": {**settings.models.model_dump(), **self.first.runtime.models.weights},
            "prices": {name: [m.usd_in, m.usd_out] for name, m in settings.provider.model.items()},
            "utility": settings.utility.model_dump(),
            "rounds": settings.budget.max_rounds,
            "seed": self.seed,
            "from": self.origin,
        }


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """What a study searches: candidates, the questions settings are tried on, and the settings to begin with."""

    candidates: CandidateSets
    arms: Sequence[ReplayArm]
    firsts: Sequence[Setting]  # as it is, as it begins, thresholds fitted, then open, and the published designs if any

    @property
    def opened(self) -> Setting:
        """The program with nothing withheld, from which knobs are swept."""
        return self.firsts[3]


def open_compile(
    session: Session, project: Project, seed: int, origin: str, study: Study | None, leads: bool = True
) -> Opened:
    """Return the project, indexed, its labels checked and divided.

    No question that the version `origin` or its ancestors learnt from comes into the test. The process that `leads`
    checks the labels and books the study's seconds. Raises `ModelError` when a key is missing for a model that the
    project names, `DataError` for labels that contradict the knowledge or leave nothing to learn from.
    """
    for role in (*ROLES, "propose"):  # a stand-in would answer, and what is compiled would be for that
        require_keys(project, role, project.name)
    if study is not None and session.record.store is not None:
        session.spending.join_study(session.record.store, study.key, leads)
    session.begin_stage("indexing the knowledge")
    index_project(project, session.advance)
    session.begin_stage("checking the labels")
    questions = read_labelled(project.labelled, project.folder)
    first = open_program(project)
    ancestors = read_ancestors(origin, project.artifacts) if origin else []
    before = find_previous_splits(ancestors) if origin else None
    parts = split_questions(questions, before=before)
    doubts: list[str] = []
    if leads:
        report = require_sound_labels(project, questions, parts)
        doubts = [f"{found.what} {found.mend}" for found in report.shortcut_warnings]
    if not (parts["train"] and parts["test"]):
        lacks = next(find_shortages(parts))
        raise DataError(f"{lacks.what[0].upper()}{lacks.what[1:]}", lacks.mend)
    parent = load(origin, artifacts=project.artifacts, project=project.folder) if origin else first
    if ancestors and _wrote_here(ancestors[0]) and not first.quotes(strict=False):
        parent.policy.turn(**AS_EMBEDDED)
    return Opened(project, parts, seed, origin, first, parent, inherit_learned(first, parent), doubts)


def _wrote_here(manifest: Manifest) -> bool:
    """Return True for a version that was compiled for the embedded writer."""
    return is_local(list_names(manifest.section("models").get("write", ""))[0])


class Conditions(Protocol):
    """What a study is of."""

    @property
    def project(self) -> Project: ...

    @property
    def parts(self) -> Mapping[str, Sequence[Question]]: ...

    def describe_conditions(self) -> dict[str, Any]:
        """Return all that a study's trials depend on."""


def begin_study(
    session: Session, opened: Conditions, begun: Study | None, trials: int | None, usual: int = DEFAULT_TRIALS
) -> Study:
    """Return the study to go on with, or a new one.

    Where no number of trials is asked for they are `usual`, but no more than there are questions to try settings on.
    """
    identity = opened.describe_conditions()
    if begun is not None:
        begun.expect(identity)
        begun.note(Note.TRIALS, trials or begun.notes[Note.TRIALS])
        begun.note(Note.CAPS, asdict(session.caps))
        session.live.study = begun.name
        return begun
    with hold_lock(opened.project.artifacts, opened.project.name):
        pass  # nothing is paid for where no version could be sealed
    trials = trials or min(usual, max(LEAST_TRIALS, len(opened.parts["train"])))
    study = create_study(opened.project, identity, {Note.TRIALS: trials, Note.CAPS: asdict(session.caps)})
    session.live.study = study.name
    if session.record.store is not None:
        session.spending.join_study(session.record.store, study.key, leads=True)
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


def plan_search(session: Session, opened: Opened, study: Study, demonstrations: Sequence[Demonstration]) -> SearchPlan:
    """Return what the study searches: as it was noted, else found now and noted.

    The first settings are the program as it is, with the labelled demonstrations, with the router's thresholds fitted
    to its labels, with nothing withheld, and, for a program without a parent, the published designs of `PRESETS`.
    """
    if study.notes.get(Note.PLANNED):
        return load_plan(session, opened, study)
    session.begin_stage("screening layouts of prompts")
    arms = make_arms(session, opened)
    session.limit(Share.LAYOUTS)
    replay = session.replay(copy_program(opened.base))
    layouts = tuple(screen_layouts(replay, opened.parts["train"], demonstrations, opened.seed, session.advance))
    session.begin_stage("choosing candidates")
    session.limit(Share.CANDIDATES)
    model = opened.base.runtime.models.propose
    candidates = find_candidates(
        first=opened.first,
        base=opened.base,
        demonstrations=demonstrations,
        arms=arms,
        propose=partial(propose_instructions, open_proposer(model, session.record, session.spending), opened.base)
        if model is not None
        else None,
        layouts={DRAFT: layouts} if layouts else {},
        progress=session.advance,
    )
    session.limit(Share.CHOICE)
    session.begin_stage("fitting thresholds")
    as_it_is = read_setting(arms[0].replay.program)
    begun = {**as_it_is, **candidates.begun_choices}
    fitted = {**begun, **observe_routing(arms, begun).fit(begun)}
    firsts = [as_it_is, begun, fitted, {**fitted, **OPEN}]
    if not opened.origin:
        unset = {f"policy.{name}": knob.default for name, knob in opened.base.policy.named_parameters()}
        firsts += [{**fitted, **unset, **{f"policy.{n}": v for n, v in preset.items()}} for preset in PRESETS.values()]
    if session.caps != Caps():
        session.limit(Share.FIRST)
        arms = limit_to_reach(arms, firsts)
    asked = [question.id for arm in arms for question in arm.questions]
    digest = digest_json(["plan", study.key])
    session.record.write({digest: Entry({"candidates": candidates.dump(), "questions": asked, "firsts": firsts})})
    study.note(Note.PLANNED, digest.hex())
    return SearchPlan(candidates, arms, firsts)


def inherit_learned(first: AgenticRAG, parent: AgenticRAG) -> AgenticRAG:
    """Return the first program with all that its parent learned."""
    base = copy_program(first)
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


def copy_program(program: AgenticRAG) -> AgenticRAG:
    """Return a program of its own over the same library and models."""
    return program.deepcopy()  # type: ignore[no-any-return]


def make_arms(session: Session, opened: Opened) -> list[ReplayArm]:
    """Return train in folds by topic, each with a program of its own."""
    questions = sample_stratified(opened.parts["train"], SEARCHED)
    folds = split_topics([question.cluster for question in questions])
    return [Arm(session.replay(copy_program(opened.base)), [questions[n] for n in fold]) for fold in folds]


def load_plan(session: Session, opened: Opened, study: Study) -> SearchPlan:
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
        for arm in make_arms(session, opened)
        if (kept := [question for question in arm.questions if question.id in asked])
    ]
    candidates.equip_arms(arms)
    return SearchPlan(candidates, arms, noted.value["firsts"])


def make_demonstrations(session: Session, opened: Opened) -> list[Demonstration]:
    """Return the demonstrations that the labels of train give."""
    session.begin_stage("making demonstrations")
    train = opened.parts["train"]
    demonstrator = Demonstrator(opened.first, session.replay(opened.first), sample_stratified(train, WORKED))
    return demonstrator.make(train, session.advance)
