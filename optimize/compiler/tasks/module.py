"""The task of compiling anybody's DSPy program: its examples and its metric.

1. Make the program by the caller's function, with the state of the version compiled from.
2. Divide the examples by topic, as those of earlier versions were.
3. Offer each predictor demonstrations from labels or runs that scored 1 and, where a language model answers it,
   instructions that the model writes from what went wrong.
4. A version holds the state, and the heads of what the embedded decider answers.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dspy
import orjson
from dspy.adapters.types.decision import Choice, Noul, Score

from ragc.errors import BudgetError, BudgetStop, DataError, SettingsError
from ragc.knowledge.index.build import Advance
from ragc.knowledge.project import Project
from ragc.loop.policy import Dimension, find_dimensions, read_setting
from ragc.models.embedded.decider import LocalDecider
from ragc.models.language.pace import UNANSWERED
from ragc.models.language.provider import listed_price
from ragc.optimize.abtest.offline import score_anew
from ragc.optimize.compiler.candidates.demonstrations import (
    WORKED,
    Demonstration,
    Failure,
    describe_failure,
    thin_out,
    to_json,
)
from ragc.optimize.compiler.candidates.offers import FEW, LABELLED, CandidateSets, Offer, propose_instructions
from ragc.optimize.compiler.record import Record, RecordedLM
from ragc.optimize.compiler.runs.module_runs import Answered, CallMeter, ModuleRuns, run_example
from ragc.optimize.compiler.runs.runner import AnyArm
from ragc.optimize.compiler.session import Session
from ragc.optimize.compiler.spending import Spending
from ragc.optimize.compiler.tasks.examples import (
    ExampleQuestion,
    Metric,
    check_metric,
    read_examples,
    score_prediction,
    split_examples,
)
from ragc.optimize.compiler.tasks.task import Contents, Task
from ragc.optimize.evaluation.comparison import Row
from ragc.optimize.evaluation.evaluate import Evaluation, Grading, evaluate_side_by_side
from ragc.optimize.evaluation.grades import Grade
from ragc.optimize.evaluation.outcome import AS_IT_IS
from ragc.optimize.labelled.split import find_previous_splits, sample_stratified
from ragc.optimize.labelled.units import question_digest
from ragc.optimize.registry.versions import note_test_use, read_ancestors
from ragc.serve import factory
from ragc.serve.artifact import STATE, describe_structure
from ragc.serve.opening import load
from ragc.serve.reference import digest_of, resolve
from ragc.settings import NAME, Settings, artifacts_root

GOOD = 1.0  # score from which a run is worth showing
COMPARED = 3  # examples on which a program is compared with what its state makes
LONGEST = 2_000  # characters of an answer in `scores.jsonl`
MOST = 4_000  # demonstrations of a predictor that the embedded decider answers
LIGHTEST, HEAVIEST = 1e-3, 1e3  # weights of a choice's options

Run = tuple[ExampleQuestion, Answered]


@dataclass(frozen=True, kw_only=True)
class ModuleTask(Task):
    """A program with its examples divided, and the metric."""

    undecided: list[str]  # predictors that the embedded decider answers
    examples: Sequence[ExampleQuestion]
    metric: Metric
    make: factory.Factory
    control: dspy.Module  # the version, or the program as it is, that a new one is compared with
    embedded: LocalDecider = field(default_factory=factory.open_decider)
    graded: dict[Answered, Grade] = field(default_factory=dict)  # of answers that several settings come to

    @property
    def searched(self) -> Sequence[ExampleQuestion]:
        asks_models = len(self.undecided) < len(self.base.named_predictors())
        return super().searched if asks_models else self.parts["train"]

    @property
    def controls(self) -> list[dspy.Module]:
        return [self.control]

    def put_beside(self, ref: str) -> ModuleTask:
        control = _without_decider(load(ref, self.make, artifacts=self.project.artifacts))
        return replace(self, against=ref, control=control)

    def describe_program(self) -> dict[str, Any]:
        """Return the program as it begins, and the metric."""
        start = digest_of(factory.export_module(self.base, [], self.embedded)[STATE])
        own = {"start": start, "metric": self.describe_metric()}
        return {**factory.describe_module(self.base, self.undecided), **own}

    def describe_metric(self) -> dict[str, str]:
        """Return the metric by module and name, and by its source, if known."""
        called = self.metric if hasattr(self.metric, "__qualname__") else type(self.metric)
        try:
            source = inspect.getsource(called)
        except (OSError, TypeError):  # defined in a shell, or built in
            source = ""
        return {"name": f"{called.__module__}:{called.__qualname__}", "sha256": digest_of(source.encode())}

    @contextmanager
    def asking(self, spending: Spending) -> Iterator[None]:
        """Have the embedded decider answer what has no model, and count the rest.

        Raises `BudgetError` when money is capped and a model's price is not known.
        """
        models = {one.lm or dspy.settings.lm for _, one in self.base.named_predictors()} - {None}
        if spending.money and (unknown := [m.model for m in models if listed_price(m.model, 1, 1) is None]):
            what = f"What {unknown[0]} costs is not known, so that --max-usd could not stop it."
            raise BudgetError(what, "Cap --max-calls instead.")
        self.embedded.embedder.remember_in(self.project.private)
        with dspy.context(lm=dspy.settings.lm or self.embedded), CallMeter(spending).watch():
            yield

    def prepare(self, session: Session, trials: int) -> ModuleTask:
        """Return the task, its program and metric tried."""
        session.begin_stage("asking the program as it is")
        self.check(session.record)
        return self

    def check(self, record: Record | None = None) -> None:
        """Raise `DataError` when the program or the metric fails on the first example."""
        first = self.parts["train"][0]
        (answer,) = self.run(self.base, record).answer_all([first.question])
        if answer.error:
            what = f"The program failed on the example {first.id}: {answer.error}."
            silent = record is not None and any(record.silent.values())
            raise DataError(what, UNANSWERED if silent else "Mend the program, or the example.")
        check_metric(self.metric, first.example, answer.prediction)

    def require_state(self, contents: Contents, make: factory.Factory | None, record: Record) -> None:
        """Raise `DataError` where sealed state does not make a program what it is.

        That is tried on some examples of test, with the program that `make` makes, else with a copy of the given one.
        """
        stateless = factory.find_stateless(self.base)
        fresh = factory.make_program(make) if make else self.base.deepcopy()
        factory.adopt_predictors(fresh, self.undecided)
        kept = factory.find_stateless(fresh) if make else {}
        lost = [f"of {name}, {what}" for name, what in stateless.items() if name not in kept]
        if not lost and describe_structure(fresh) != describe_structure(self.base):
            lost = [f"{getattr(make, '__qualname__', make)} makes a program of other predictors or knobs"]
        models, made = factory.list_models(self.base, self.undecided), factory.list_models(fresh, self.undecided)
        if not lost and (tuned := next((name for name in made if made[name] != models[name]), "")):
            lost = [
                f"its {tuned} is answered by {models[tuned]}, and what makes it gives it {made[tuned] or 'no model'}"
            ]
        if not lost:
            factory.take_state(fresh, contents.files[STATE], self.undecided)
            lost = self._find_differences(fresh, record)
        if lost:
            what = f"A version holds state only, and this program is more: {lost[0]}."
            mend = "Write it into the program's code, and give the function that makes it: seal(..., make=make)."
            raise DataError(what, mend)

    def _find_differences(self, fresh: dspy.Module, record: Record) -> list[str]:
        """Return in words an example on which a program asks or says something else than the task's own."""
        factory.share_abilities(self.base, fresh)
        asked, said, calls = self.parts["test"][:COMPARED], [], []
        runs = [self.run(program, record) for program in (self.base, fresh)]
        for run in runs:
            answers = run.answer_all([one.question for one in asked])
            said.append([one.content for one in answers])
            calls.append(record.calls)
        if not runs[0].replays or (said[0] == said[1] and calls[0] == calls[1]):  # by chance it is no program twice
            return []
        first = next((n for n in range(len(asked)) if said[0][n] != said[1][n]), 0)
        return [f"made of its state, it asks or says something else on the example {asked[first].id}"]

    def run(self, program: dspy.Module, record: Record | None = None) -> ModuleRuns:
        """Return the runs of a copy of a program, from a record if there is one."""
        return ModuleRuns(program.deepcopy(), {one.question: one.example for one in self.examples}, record)

    def runner(self, session: Session, program: dspy.Module) -> ModuleRuns:
        """Return the runs of a copy of a program."""
        return self.run(program, session.record)

    def grader(self, program: dspy.Module) -> Grading:
        """Return what grades by the metric."""
        return self.grade

    def grade(self, question: ExampleQuestion, answer: Answered) -> Grade:
        """Grade an answer, once, by the metric: correct at 1, wrong at 0 or raised."""
        if answer not in self.graded:
            self.graded[answer] = self._grade_anew(question, answer)
        return self.graded[answer]

    def _grade_anew(self, question: ExampleQuestion, answer: Answered) -> Grade:
        usage, score = answer.usage, 0.0
        if not answer.error:
            score, _ = score_prediction(self.metric, question.example, answer.prediction)
        text = answer.error or orjson.dumps(plain_outputs(answer.prediction), default=str).decode()
        return Grade(
            id=question.id,
            topic=question.cluster,
            tags=question.tags,
            question=question.question,
            outcome="",
            correct=int(score >= GOOD),
            partial=int(0 < score < GOOD),
            wrong=int(score <= 0),
            utility=score,
            answer=text[:LONGEST],
            path=(),
            metrics={"model_calls": float(usage.calls), "usd": usage.usd, "seconds": usage.seconds},
            failed=answer.error,
        )

    def offer(self, session: Session, arms: Sequence[AnyArm]) -> CandidateSets:
        """Return demonstrations from labels or good runs, and instructions from bad runs."""
        session.begin_stage("making demonstrations")
        worked = sample_stratified(self.parts["train"], WORKED)
        runs: list[Run] = []
        with suppress(BudgetStop):
            answers = self.runner(session, self.base).answer_all([one.question for one in worked])
            runs += zip(worked, answers, strict=True)
        candidates = CandidateSets(
            {name: self._offer(session, name, one, runs) for name, one in self.base.named_predictors()}
        )
        candidates.equip_arms(arms)
        return candidates

    def _offer(self, session: Session, name: str, predictor: dspy.Predict, runs: Sequence[Run]) -> Offer:
        made = [to_json(one) for one in self._label_demonstrations(name, predictor, runs)]
        sets = {AS_IT_IS: [Demonstration(name, "", dict(demo)) for demo in predictor.demos]}
        if name in self.undecided:
            return Offer((), sets | ({LABELLED: thin_out(made, MOST)} if made else {}))
        kinds = {LABELLED: FEW[0], **{f"{LABELLED}-{size}": size for size in FEW[1:]}}
        sets |= {kind: thin_out(made, size) for kind, size in kinds.items() if made}
        lm, failures = predictor.lm or dspy.settings.lm, self._list_failures(name, runs)
        if not (isinstance(lm, dspy.BaseLM) and failures):
            return Offer((), sets)
        written = propose_instructions(RecordedLM(lm, session.record), self.base, name, failures)
        return Offer(tuple(written), sets)

    def _label_demonstrations(self, name: str, predictor: dspy.Predict, runs: Sequence[Run]) -> list[Demonstration]:
        """Return a predictor's demonstrations from labels, else from the runs that scored best.

        What a language model writes beside the labels, such as its reasoning, is that of a good run; where there are
        such demonstrations, others are left out.
        """
        inputs, outputs = predictor.signature.input_fields, predictor.signature.output_fields
        worked = [
            (question, {**given, **plain_outputs(made)})
            for question, answer in runs
            if not answer.error and self.grade(question, answer).utility >= GOOD
            for predicted, given, made in answer.trace
            if predicted == name
        ]
        written = {} if name in self.undecided else {question.id: shown for question, shown in worked}
        made = []
        for question in self.parts["train"]:
            known = dict(question.example)
            labels = {field: known[field] for field in outputs if known.get(field) is not None}
            if labels and all(field in known for field in inputs):
                given = {field: known[field] for field in inputs}
                made.append(Demonstration(name, question.cluster, {**written.get(question.id, {}), **given, **labels}))
        whole = [one for one in made if outputs.keys() <= one.fields.keys()] if written else []
        made = whole if len(whole) >= FEW[0] else made
        return made or [Demonstration(name, one.cluster, shown) for one, shown in worked]

    def _list_failures(self, name: str, runs: Sequence[Run]) -> list[Failure]:
        """Return a predictor's part in runs that ended badly, in GEPA's form."""
        failures: list[Failure] = []
        for question, answer in runs:
            score, feedback = 0.0, answer.error
            if not answer.error:
                score, feedback = score_prediction(self.metric, question.example, answer.prediction)
            labels = orjson.dumps(dict(question.example.labels()), default=str).decode()
            failures += [
                describe_failure(
                    given, plain_outputs(outputs), feedback or f"The score was {score:g}. Labels: {labels}"
                )
                for predicted, given, outputs in answer.trace
                if predicted == name and score < GOOD
            ]
        return failures

    def list_parameters(self, program: dspy.Module) -> list[Dimension]:
        """Return every parameter, the weights of options in a wide range."""
        found = find_dimensions(program)
        return [replace(d, low=LIGHTEST, high=HEAVIEST) if ":" in d.name and d.log else d for d in found]

    def contents(self, program: dspy.Module) -> Contents:
        """Return the program's files, and what it is made of."""
        files = factory.export_module(program, self.undecided, self.embedded)
        return Contents(files, factory.describe_module(program, self.undecided), read_setting(program))

    def evaluate(
        self, program: dspy.Module, questions: Sequence[ExampleQuestion], progress: Advance = lambda done, of: None
    ) -> Evaluation:
        """Ask a program and grade the answers."""
        return evaluate_side_by_side([(self.grade, self.run(program).answer_all)], questions, progress)[0]


def open_module_task(
    project: Project,
    make: factory.Factory,
    data: Path | str,
    metric: Metric,
    seed: int = 0,
    origin: str = "",
    used: str = "",
) -> ModuleTask:
    """Return the program made, with an origin's state, and its examples divided as those of the version `used` were."""
    made = load(origin, make, artifacts=project.artifacts) if origin else factory.make_program(make)
    base = _without_decider(made)
    undecided = factory.find_undecided(base)
    factory.adopt_predictors(base, undecided)
    examples = read_examples(Path(data), base)
    before = find_previous_splits(read_ancestors(used, project.artifacts) if used else [])
    return ModuleTask(
        project=project,
        parts=split_examples(examples, before),
        base=base,
        seed=seed,
        origin=origin,
        undecided=undecided,
        examples=examples,
        metric=metric,
        make=make,
        control=base,
    )


def _without_decider(program: dspy.Module) -> dspy.Module:
    """Return the program, what the embedded decider answers left without a model."""
    for _, predictor in program.named_predictors():
        predictor.lm = None if isinstance(predictor.lm, LocalDecider) else predictor.lm
    return program


def open_folder(name: str, artifacts: Path | str | None) -> Project:
    """Return the working folder for a program's studies. Raises `SettingsError`."""
    if not re.fullmatch(NAME, name):
        what = f"{name!r} is no name for versions."
        raise SettingsError(what, "Write small letters, digits and -._ between them, 63 at most.")
    return Project(Path.cwd(), Settings(name=name, knowledge={}, artifacts=str(artifacts_root(artifacts))))


def plain_outputs(prediction: Any) -> dict[str, Any]:
    """Return a prediction's outputs, decisions as values; else it is one output."""
    decided = Choice | Noul | Score
    named = dict(prediction) if isinstance(prediction, dspy.Example | Mapping) else {"prediction": prediction}
    return {name: value.value if isinstance(value, decided) else value for name, value in named.items()}


def open_version(
    ref: str, make: factory.Factory, data: Path | str, metric: Metric, artifacts: Path | str | None = None
) -> ModuleTask:
    """Return the task of measuring a version's program on examples."""
    program, project = load(ref, make, artifacts=artifacts), open_folder(resolve(ref, artifacts).name, artifacts)
    examples = read_examples(Path(data), program)
    return ModuleTask(
        project=project,
        parts={},
        base=program,
        undecided=[],
        examples=examples,
        metric=metric,
        make=make,
        control=program,
    )


def evaluate_version(
    task: ModuleTask, ref: str, split: str = "test", progress: Advance = lambda done, of: None
) -> tuple[Evaluation, int]:
    """Measure a version on a split; return also how often that was looked at."""
    project = task.project
    before = find_previous_splits(read_ancestors(ref, project.artifacts))
    splits = [before.get(question_digest(one.question)) for one in task.examples]
    wanted = {None, "test"} if split == "test" else {split}  # what no version learnt from is as good as test
    asked = [one for one, own in zip(task.examples, splits, strict=True) if own in wanted]
    looks = note_test_use(project.artifacts, project.name, "eval", [question.question for question in asked])
    with task.asking(Spending()):
        return task.evaluate(task.base, asked, progress), looks


def compare_anew(
    tasks: Sequence[ModuleTask], repeats: int = 1, progress: Advance = lambda done, of: None
) -> list[list[Row]]:
    """Return the rows of each version of a program on every example of a file."""
    first = tasks[0]
    by_inputs = {one.question: one.example for one in first.examples}
    with first.asking(Spending()):
        sides = [
            (first.grade, lambda texts, of=task.base: [run_example(of, by_inputs[text]) for text in texts])
            for task in tasks
        ]
        return score_anew(sides, first.examples, repeats, progress)
