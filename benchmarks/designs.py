"""Every published design as a preset of the one program, plain RAG and the compiled version, on the same questions.

    python benchmarks/designs.py [--quick] [--json]

Quality and calls come from one record that all presets share: what one has asked is not asked again for the
next. Time and tokens come from live runs on a sample, the designs taking turns question by question. The
compiled version is the latest in the project's artifacts; `NAME (compiled deciders)` is a preset's knobs over
that version's demonstrations and thresholds. A version that does not fit this code is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from figures import ROOT, Figure, figure, run_benchmark

from ragc.answer import Answer
from ragc.errors import RagcError
from ragc.knowledge.project import Project
from ragc.loop.policy import PRESETS, Tuning
from ragc.loop.rag import AgenticRAG
from ragc.notes import NoteKind
from ragc.optimize.compiler.record import Record
from ragc.optimize.compiler.runs.replay import Replay
from ragc.optimize.evaluation.evaluate import Evaluation, Grader
from ragc.optimize.labelled.dataset import LabelledQuestion, read_labelled
from ragc.optimize.labelled.split import split_questions
from ragc.serve.opening import load, open_program

Asked = tuple[LabelledQuestion, Answer]
METRICS = {
    "outcome": "outcome_accuracy",
    "correct": "correct",
    "wrong": "wrong",
    "recall": "retrieval_recall",
    "complete": "fact_recall",
    "calls": "model_calls",
}
COMPILED = "compiled"
TIMED, TIMED_QUICK = 20, 4  # questions run live for time and tokens
QUICK = 15


@dataclass(slots=True)
class Design:
    """One program under measure, its answers and what the live ones took."""

    name: str
    program: AgenticRAG
    asked: list[Asked] = field(default_factory=list)
    evaluation: Evaluation = field(default_factory=lambda: Evaluation(()))
    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def row(self) -> dict[str, tuple[float, int]]:
        """Each column's value and the number of questions it rests on."""
        found = {
            title: (measured.value, measured.n)
            for title, metric in METRICS.items()
            if (measured := self.evaluation.measure(metric)) is not None
        }
        timed = len(self.seconds)
        found["tokens"] = float(np.mean(self.tokens)), timed
        return found | {f"p{at} s": (float(np.percentile(self.seconds, at)), timed) for at in (50, 95)}


def open_designs(project: Project) -> list[Design]:
    """Open the presets over one library and its models, and the compiled version when there is one that fits."""
    made = [turn_preset(open_program(project), name) for name in PRESETS]
    try:
        compiled = load(f"{project.name}@latest", artifacts=project.artifacts, project=project.folder)
    except RagcError as error:
        print(f"{COMPILED} is left out: {error}", file=sys.stderr)
        return made
    compiled.runtime = replace(compiled.runtime, reviewed=None)  # its own questions' answers among them
    made += [turn_preset(compiled, name, f"{name} (compiled deciders)") for name in PRESETS if name != "plain"]
    return [*made, Design(COMPILED, compiled)]


def turn_preset(of: AgenticRAG, name: str, title: str = "") -> Design:
    program = of.deepcopy()
    defaults = {knob: getattr(program.policy, knob).default for knob in Tuning.__slots__}
    program.policy.turn(**{**defaults, **PRESETS[name]})
    return Design(title or name, program)


def ask_designs(found: Sequence[Design], questions: Sequence[LabelledQuestion], project: Project, timed: int) -> None:
    """Fill in each design's answers, grades, times and tokens."""
    record = Record()
    for design in found:
        replay = Replay(design.program, record)
        grader = Grader(design.program, project.settings.utility, relevancy=False)
        design.asked = [(question, replay(question.asked)) for question in questions]
        design.evaluation = Evaluation(tuple(grader(question, answer) for question, answer in design.asked))
        print(f"{design.name}: {len(record.kept)} replies kept so far", file=sys.stderr)
    sample = questions[:: max(1, len(questions) // timed)][:timed]
    for at, question in enumerate(sample):
        for turn in range(len(found)):
            design = found[(at + turn) % len(found)]
            usage = design.program(question.question).usage
            design.seconds.append(usage.seconds)
            design.tokens.append(usage.tokens_in + usage.tokens_out)


def check_goals(compiled: Design, plain: Design) -> list[Figure]:
    """Return what the compiled version is held to."""

    def share(of: Callable[[LabelledQuestion], bool], did: Callable[[Answer], bool]) -> tuple[float, int]:
        hits = [did(answer) for question, answer in compiled.asked if of(question)]
        return (float(np.mean(hits)) if hits else 0.0), len(hits)

    def clarified(answer: Answer) -> bool:
        return answer.outcome == "clarify"

    def unretrieved(answer: Answer) -> bool:
        return NoteKind.UNRETRIEVED() in answer.trace.path

    wrong, calls = compiled.row()["wrong"], compiled.row()["calls"]
    control = plain.row()["wrong"][0]
    abstained = share(lambda q: q.outcome == "abstain", lambda a: a.outcome == "abstain")
    held = [
        ("underspecified questions asked back", ">= 0.95", share(lambda q: q.outcome == "clarify", clarified)),
        ("clear questions asked back", "<= 0.02", share(lambda q: q.outcome != "clarify", clarified)),
        ("unanswerable questions abstained on", ">= 0.9", abstained),
        ("direct questions not looked up", ">= 0.95", share(lambda q: q.route == "direct", unretrieved)),
        ("look-ups skipped where needed", "<= 0", share(lambda q: q.route != "direct", unretrieved)),
        ("wrong answers over plain RAG's", "<= 0.2", (wrong[0] / control if control else 0.0, wrong[1])),
        ("model calls a question", "<= 1.5", calls),
    ]
    return [figure(name, value, bar, n) for name, bar, (value, n) in held]


def measure(quick: bool) -> Iterator[Figure]:
    project = Project.open(ROOT / "data" / "tallowgate")
    questions = split_questions(read_labelled(project.labelled))["dev"]
    found = open_designs(project)
    if quick:
        questions = questions[:: max(1, len(questions) // QUICK)][:QUICK]
        found = [design for design in found if "(" not in design.name]
    ask_designs(found, questions, project, TIMED_QUICK if quick else TIMED)
    for design in found:
        for title, (value, n) in design.row().items():
            yield figure(f"{design.name}: {title}", value, "reported", n)
    by_name = {design.name: design for design in found}
    if COMPILED in by_name:
        yield from check_goals(by_name[COMPILED], by_name["plain"])


if __name__ == "__main__":
    run_benchmark(__doc__, measure)
