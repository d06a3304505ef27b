"""What a compile and its workers have in common before the search: questions, demonstrations, folds, first settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optimize.compiler.abreast import Ahead, going_up, nothing_ahead
from optimize.compiler.candidates import Offer, Sets, equip, informed
from optimize.compiler.code import replay_digest
from optimize.compiler.content import fingerprint
from optimize.compiler.demonstrations import WORKED, Demonstration, Demonstrator
from optimize.compiler.heads import keep_heads
from optimize.compiler.journal import Journal
from optimize.compiler.limits import SEARCHED
from optimize.compiler.lineage import forebears
from optimize.compiler.offers import agreed
from optimize.compiler.proposals import within
from optimize.compiler.reach import cut_to_reach
from optimize.compiler.record import Record
from optimize.compiler.replay import Replay
from optimize.compiler.routing import Routing, routed
from optimize.compiler.scoring import Arm
from optimize.compiler.spending import Spending
from optimize.labelled.check import find_empty_split, require_sound_labels
from optimize.labelled.dataset import LabelledQuestion, digest_questions, read_labelled
from optimize.labelled.split import find_previous_splits, sample_stratified, split_questions
from program.errors import DataError
from program.knowledge.index.build import Advance, index_project
from program.loop.decisions import clients_of
from program.loop.policy import Setting, apply_setting, find_dimensions, is_candidate, read_setting
from program.loop.rag import AgenticRAG
from program.project import Project
from program.serve.artifact import ROLES, require_keys
from program.serve.opening import load, open_program

FOLDS = 4
RECORD = "record.sqlite"

Stage = Callable[[str], None]


@dataclass(slots=True)
class Preparation:
    """A project on its way to a search. `first` is the program as it is before any compile; `parent` the version it is
    compiled from, `first` itself when none was named; `base` has what `parent` learned. `sets` and `offers` are the
    candidates of each predictor, by its name."""

    project: Project
    questions: Sequence[LabelledQuestion]
    parts: Mapping[str, Sequence[LabelledQuestion]]
    seed: int
    first: AgenticRAG
    parent: AgenticRAG
    base: AgenticRAG
    origin: str
    record: Record
    spending: Spending
    demonstrations: list[Demonstration] = field(default_factory=list)
    sets: dict[str, Sets] = field(default_factory=dict)
    offers: dict[str, Offer] = field(default_factory=dict)
    arms: list[Arm] = field(default_factory=list)
    starts: list[Setting] = field(default_factory=list)
    routing: Routing = field(default_factory=Routing)

    def replay(self, program: AgenticRAG) -> Replay:
        """The program's runs but for confidence, through the project's record and under its caps."""
        return Replay(program, self.record, self.spending, vouches=False, keeps=True)

    def begin(self, journal: Journal) -> None:
        """Spends with a new study, whose time it keeps."""
        if self.record.store is not None:
            self.spending.join(self.record.store, journal.key, leads=True)

    def identity(self) -> dict[str, Any]:
        """All that a study's trials depend on."""
        library = self.first.runtime.library
        settings = self.project.settings
        return {
            "program": replay_digest(),  # what grades a trial, too
            "preset": settings.loop.preset,
            "start": read_setting(self.base),
            "predictors": {name: self._prints(name) for name, _ in self.base.named_predictors()},
            "space": {d.name: [d.low, d.high, d.integral, d.log, d.step] for d in find_dimensions(self.first)},
            "questions": {name: digest_questions(part) for name, part in self.parts.items()},
            "knowledge": {name: library.content_digest(name) for name in self.first.sources},
            "models": {**settings.models.model_dump(), "embedder": self.first.runtime.models.embedder.digest},
            "prices": {name: [m.usd_in, m.usd_out] for name, m in settings.provider.model.items()},
            "utility": settings.utility.model_dump(),
            "rounds": settings.budget.max_rounds,
            "seed": self.seed,
            "from": self.origin,
        }

    def _prints(self, name: str) -> list[str]:
        """Identifies what a predictor is told and shown, the cards of the bases among it, and who answers it."""
        predictor = self.base.predictor(name)
        return [fingerprint(self.base, predictor, model) for model in clients_of(self.base, predictor, {})]

    @property
    def begun(self) -> Setting:
        """What gives every embedded decider that had no demonstrations the labelled ones."""
        return {**informed(self.offers, self.sets)}

    def compiled(self) -> AgenticRAG:
        """The program with every candidate, as it is to be tested: no topic is left out."""
        final = copy_of(self.base)
        equip(final, self.sets, self.offers)
        return final

    def given(self, setting: Setting) -> dict[str, dict[str, str]]:
        """What a setting chose among candidates, by the name of the choice: its kind, and the instruction's text."""
        found = {}
        for name, at in sorted(setting.items()):
            if not is_candidate(name):
                continue
            predictor, _, kind = name.partition("#")
            offer, place = self.offers[predictor], int(at)
            if kind == "demonstrations":
                told = {
                    "kind": ("as it is", *offer.demonstrations)[place],
                    "text": f"of {len(offer.demonstrations) + 1}",
                }
            else:
                now = self.base.predictor(predictor).signature.instructions
                told = {"kind": "another" if place else "as it is", "text": (now, *offer.instructions)[place]}
            found[name] = told
        return found


def open_project(
    project: Project,
    seed: int,
    origin: str,
    spending: Spending,
    stage: Stage,
    advance: Advance,
    journal: Journal | None = None,
    leads: bool = True,
) -> Preparation:
    """The project, indexed, its labels checked and split.

    `origin` is the version to start from, or empty: no question that it or its forebears learnt from comes into the
    test, and what they were tested on is tested on again. `journal` is the study, if there is one: it is spent with
    from the first call on, and its time kept by the process that `leads`, which checks the labels, too. Raises
    `ModelError` when a key is missing for a model that the project names, `DataError` for labels that contradict the
    knowledge or leave nothing to learn from, `BudgetStop` when a cap does not reach.
    """
    for role in (*ROLES, "propose"):  # a stand-in would answer, and what is compiled would be for that
        require_keys(project, role, project.name)
    record = Record(project.settings.study.storage or project.private / RECORD)
    if journal is not None and record.store is not None:
        spending.join(record.store, journal.key, leads)
    try:
        return _opened(project, seed, origin, spending, stage, advance, record, leads)
    except BaseException:
        record.close()
        raise


def _opened(
    project: Project,
    seed: int,
    origin: str,
    spending: Spending,
    stage: Stage,
    advance: Advance,
    record: Record,
    leads: bool,
) -> Preparation:
    """The project opened over a record."""
    stage("indexing the knowledge")
    index_project(project, advance)
    stage("checking the labels")
    questions = read_labelled(project.labelled, project.folder)
    first = open_program(project)
    if leads:  # others join a study of these very questions and this knowledge, or are refused
        require_sound_labels(project, questions)
    parts = split_questions(
        questions, before=find_previous_splits(forebears(origin, project.artifacts)) if origin else None
    )
    if lacks := find_empty_split(parts):
        what, mend = (f"{text[0].upper()}{text[1:]}." for text in lacks)
        raise DataError(what, mend)
    parent = load(origin, artifacts=project.artifacts, project=project.folder) if origin else first
    keep_heads(first, project.private)
    base = successor(first, parent)
    return Preparation(project, questions, parts, seed, first, parent, base, origin, record, spending)


def prepare(
    ready: Preparation,
    journal: Journal,
    starts: Callable[[Setting], list[Setting]],
    stage: Stage,
    advance: Advance,
    worker: bool = False,
    ahead: Ahead = nothing_ahead,
) -> None:
    """Fills in demonstrations, arms, candidates and the settings to start from: exactly as it is; with the labelled
    demonstrations, where it had none, and its routing fitted; and `starts`. Under a cap the arms keep the questions on
    which these can be run.

    What takes long is had worked at `ahead`, part by part, before all of it is done here in one order: what comes about
    is the same, whoever did a part of it. A `worker` works ahead at what the search begins with, too.
    """
    stage("making demonstrations")
    progress = going_up(advance)
    train = ready.parts["train"]
    demonstrator = Demonstrator(ready.first, ready.replay(ready.first), sample_stratified(train, WORKED))

    def demonstrate(place: int) -> None:
        demonstrator.of(train[place])

    ahead(demonstrate, len(train), progress)
    ready.demonstrations = demonstrator.make(train, progress)
    ready.arms = [
        Arm(ready.replay(copy_of(ready.base)), part) for part in topics_apart(sample_stratified(train, SEARCHED))
    ]
    stage("choosing candidates")
    agreed(ready, journal, worker, ahead, advance)
    stage("fitting thresholds")
    progress = going_up(advance)
    as_it_is = read_setting(ready.arms[0].replay.program)
    begun = ready.begun
    for arm in ready.arms:
        apply_setting(arm.replay.program, begun)

    def route(place: int) -> None:
        routed([ready.arms[place]])

    ahead(route, len(ready.arms), progress)
    ready.routing = routed(ready.arms, progress)
    fitted = {**as_it_is, **begun, **ready.routing.fitted(as_it_is)}
    ready.starts = [as_it_is, fitted, *starts(fitted)]
    cut_to_reach(ready, journal, worker)
    if worker and ahead is not nothing_ahead:  # two processes of one compile share the first trials anyway
        stage("trying the first settings")
        _start(ready, journal, advance)


def _start(ready: Preparation, journal: Journal, advance: Advance) -> None:
    """Has those settings run that the search begins with and that no trial has had, "as it is" left out.

    The compile has one after the other run on all arms, the first arm first. Here the later half of the arms comes
    first, setting by setting, where the compile finds it done; and then, from the last setting on, the other half.
    """
    found = find_dimensions(ready.arms[0].replay.program)
    half = len(ready.arms) // 2
    numbers = range(1, len(ready.starts))
    turns = [(number, arm) for number in numbers for arm in reversed(ready.arms[half:])]
    turns += [(number, arm) for number in reversed(numbers) for arm in reversed(ready.arms[:half])]

    for done, (number, arm) in enumerate(turns, 1):
        if number not in journal.begun:
            apply_setting(arm.replay.program, within(found, ready.starts[number]))
            arm.replay.answers([question.question for question in arm.questions])
            ready.record.flush()
        advance(done, len(turns))


def successor(first: AgenticRAG, parent: AgenticRAG) -> AgenticRAG:
    """The first program with what its parent learned: instructions, demonstrations, thresholds and knobs."""
    base = copy_of(first)
    apply_setting(base, read_setting(parent))
    for name, learned in parent.named_predictors():
        predictor = base.predictor(name)
        predictor.signature = predictor.signature.with_instructions(learned.signature.instructions)
        predictor.demos = list(learned.demos)
    return base


def copy_of(program: AgenticRAG) -> AgenticRAG:
    """A program of its own over the same library and models."""
    return program.deepcopy()  # type: ignore[no-any-return]


def topics_apart(questions: Sequence[LabelledQuestion], most: int = FOLDS) -> list[list[LabelledQuestion]]:
    """The questions in at most so many parts of about one size, no topic in two.

    For cross-fitting: each part is judged by a program whose demonstrations hold none of its topics. Otherwise a
    decider would be asked what it was just told, and every threshold would be set for that.
    """
    sizes: dict[str, int] = defaultdict(int)
    for question in questions:
        sizes[question.cluster] += 1
    parts: list[set[str]] = [set() for _ in range(min(most, len(sizes)))]
    for topic in sorted(sizes, key=lambda t: (-sizes[t], t)):
        min(parts, key=lambda part: sum(sizes[t] for t in part)).add(topic)
    return [[q for q in questions if q.cluster in part] for part in parts]
