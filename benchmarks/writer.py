"""A model that writes: plain RAG with it, ragc uncompiled and compiled, and no model at all, on the same questions.

    python benchmarks/writer.py [--project DIR] [--split test] [--strengths 60,80,95] [--calls 800] [--quick] [--json]
    python benchmarks/writer.py --base-url http://127.0.0.1:8081/v1 --model qwen

Without a server the model is simulated (`simulated_model.py`): it is right about a known share of the questions. The
compile, where `--calls` caps one, is of a copy of the project. `ceiling` is the share of the questions that are looked
up whose facts all stand in the passages that the model is shown. A server that wants a key finds it in
RAGC_API_KEY_<HOST>_<PORT>.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from figures import ROOT, Figure, figure, show
from simulated_model import simulate

from ragc.answer import Answer, Outcome
from ragc.knowledge.project import Project
from ragc.loop.rag import AgenticRAG
from ragc.models.embedded.encoder import count_threads
from ragc.models.language.provider import key_variable, listed_price
from ragc.optimize.compiler.compile import compile_project
from ragc.optimize.evaluation.evaluate import Grader
from ragc.optimize.evaluation.grades import Grade
from ragc.optimize.evaluation.stats import paired_test
from ragc.optimize.labelled.dataset import LabelledQuestion, read_labelled
from ragc.optimize.labelled.split import split_questions
from ragc.serve.opening import open_latest, open_program
from ragc.settings import UtilitySettings
from ragc.text.facts import states
from tests.support.provider import serve

EXAMPLE = ROOT / "data" / "tallowgate"
STRENGTHS = "60,80,95"
AT_ONCE = 8  # questions
PATIENCE = 600  # seconds of a call and of a question: a small model on a processor is slow, not gone
QUICK = 24  # questions
PRICED = ("openai/gpt-5-mini", "gemini/gemini-2.5-flash", "anthropic/claude-sonnet-4-5")


@dataclass(frozen=True, slots=True)
class Arm:
    """The answers of one program to the questions, graded."""

    name: str
    questions: Sequence[LabelledQuestion]
    answers: Sequence[Answer]
    grades: Sequence[Grade]

    def show(self) -> Iterator[Figure]:
        """Yield the shares of right and wrong answers, utility, calls, tokens, and money at list prices."""
        n = len(self.grades)
        for metric in ("correct", "wrong", "utility", "model_calls"):
            yield figure(f"{self.name}: {metric}", sum(g.read_metric(metric) or 0.0 for g in self.grades) / n, "", n)
        tokens = [
            sum(each) for each in zip(*((a.usage.tokens_in, a.usage.tokens_out) for a in self.answers), strict=True)
        ]
        if any(tokens):
            yield figure(f"{self.name}: tokens sent", tokens[0] / n, "", n)
            yield figure(f"{self.name}: tokens received", tokens[1] / n, "", n)
            for model in PRICED:
                usd = 1000 / n * (listed_price(model, *tokens) or 0.0)
                yield figure(f"{self.name}: US$ for 1,000 questions, {model}", usd, "", n)
        backs = [(a.outcome is Outcome.CLARIFY, q.outcome) for a, q in zip(self.answers, self.questions, strict=True)]
        for name, wanted in (("vague", "clarify"), ("answerable", "answered")):
            own = [back for back, outcome in backs if outcome == wanted]
            yield figure(f"{self.name}: {name} questions asked back", sum(own) / max(len(own), 1), "", len(own))


def measure(options: argparse.Namespace) -> Iterator[Figure]:
    """Yield the figures of every arm, for each strength or for the model on a server."""
    logging.disable(logging.WARNING)
    project = Project.open(options.project)
    os.environ["RAGC_BUDGET__MAX_SECONDS"] = str(PATIENCE)
    yield from measure_arms(project, options, "no model", write="")
    if options.base_url:
        name = f"openai/{options.model}"
        yield from measure_arms(project, options, options.model, write=name, url=options.base_url)
        return
    with serve(None, simulate(project)) as server:
        for strength in options.strengths.split(","):
            name = f"openai/sim-{strength}"
            yield from measure_arms(project, options, f".{strength}", write=name, url=server.url)


def measure_arms(
    project: Project, options: argparse.Namespace, name: str, write: str, url: str = ""
) -> Iterator[Figure]:
    """Yield the figures of plain RAG, the uncompiled program and, with `--calls`, the compiled one."""
    with written_by(write, url):
        program = open_program(Project.open(project.folder))
        questions = split_questions(read_labelled(project.labelled, project.folder))[options.split]
        questions = [question for question in questions if not question.readers][: QUICK if options.quick else None]
        weights = project.settings.utility
        arms = [ask_all(f"{name}, plain RAG", program.plain(), questions, weights)] if write else []
        arms.append(ask_all(f"{name}, uncompiled", program, questions, weights))
        if write:
            yield figure(f"{name}: ceiling", measure_ceiling(program, arms[-1]), "", len(questions))
        if options.calls and write:
            with TemporaryDirectory() as place:
                copy = Path(place) / project.folder.name
                shutil.copytree(project.folder, copy)
                compile_project(Project.open(copy), max_calls=options.calls, jobs=count_threads())
                arms.append(ask_all(f"{name}, compiled", open_latest(copy), questions, weights))
        for arm in arms:
            yield from arm.show()
        for arm in arms[1:]:
            a, b = ([grade.utility for grade in one.grades] for one in (arms[0], arm))
            gain = paired_test(a, b, [grade.topic for grade in arm.grades])
            yield figure(f"{arm.name}: utility over plain RAG", gain.difference, "> 0", len(b))
            yield figure(f"{arm.name}: the same, lower end of its interval", gain.ci[0], "", len(b))


def ask_all(name: str, program: AgenticRAG, questions: Sequence[LabelledQuestion], weights: UtilitySettings) -> Arm:
    """Return a program's graded answers, none of them a reviewed one: a version carries those of its own labels."""
    program.runtime = replace(program.runtime, reviewed=None)

    async def ask(question: LabelledQuestion, free: asyncio.Semaphore) -> Answer:
        async with free:
            return await program.aask(question.question, question.history)

    async def ask_each() -> list[Answer]:
        free = asyncio.Semaphore(AT_ONCE)
        return await asyncio.gather(*(ask(question, free) for question in questions))

    answers, grade = asyncio.run(ask_each()), Grader(program, weights, relevancy=False)
    return Arm(name, questions, answers, [grade(q, a) for q, a in zip(questions, answers, strict=True)])


def measure_ceiling(program: AgenticRAG, arm: Arm) -> float:
    """Return the share of the questions that are looked up all of whose facts stand in what a model is shown."""
    most = program.policy.tuning().shown
    texts = {passage.id: f"{passage.title}\n{passage.text}" for passage in program.runtime.library.passages()}
    whole = []
    for question, answer in zip(arm.questions, arm.answers, strict=True):
        if question.facts and question.route != "direct" and question.outcome in (None, Outcome.ANSWERED):
            shown = [texts.get(one, "") for one in answer.found[:most]]
            whole.append(all(any(states(text, forms) for text in shown) for forms in question.alternatives))
    return sum(whole) / max(len(whole), 1)


@contextmanager
def written_by(model: str, url: str) -> Iterator[None]:
    """Have projects that are opened inside written by a model on a server, by none where it has no name."""
    if not model:
        yield
        return
    parts = urlsplit(url)
    terms = {model: {"api_base": url, "usd_in": 0.15, "usd_out": 0.6}}
    given = {"RAGC_MODELS__WRITE": model, "RAGC_PROVIDER__MODEL": json.dumps(terms)}
    given |= {"RAGC_PROVIDER__CALL_SECONDS": str(PATIENCE), "RAGC_PROVIDER__FALLBACK": "false"}
    keys = {key_variable(f"{parts.scheme}://{parts.netloc}"): "none"}
    os.environ.update(given | {name: key for name, key in keys.items() if name not in os.environ})
    try:
        yield
    finally:
        for name in given:
            del os.environ[name]


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", type=Path, default=EXAMPLE)
    parser.add_argument("--split", choices=("train", "dev", "test"), default="test")
    parser.add_argument("--strengths", default=STRENGTHS, help="chances in per cent that the simulated model is right")
    parser.add_argument("--base-url", default="", help="the server of a real model, in place of the simulated one")
    parser.add_argument("--model", default="", help="its name there")
    parser.add_argument("--calls", type=int, help="compile under this cap of calls, and measure the version")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} questions")
    parser.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    options = make_parser().parse_args()
    show(measure(options), options.json)
