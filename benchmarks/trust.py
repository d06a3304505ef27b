"""How well the confidence of what a model writes tells right from wrong, by whose opinion, on train and dev.

    python benchmarks/trust.py --base-url http://127.0.0.1:8081/v1 --model NAME [--project DIR] [--questions 92]
        [--passages 3] [--layout line] [--json]

The server has to give log-probabilities. `uncompiled` is the area under the curve (AUC) of wrong answers against others
as the knobs are; `fitted` that with weights fitted to the questions of other topics, with the log loss beside that of
the share alone. A small model needs few passages and a short layout. Plain RAG is asked in the same words.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from figures import Figure, figure, show
from writer import EXAMPLE, PATIENCE, Arm, ask_all, written_by

from ragc.answer import Outcome
from ragc.knowledge.project import Project
from ragc.loop.policy import Tuning
from ragc.loop.rag import AgenticRAG
from ragc.loop.trust import TRUST, UNKNOWN, list_opinions, pool_opinions
from ragc.models.language.layout import PromptLayout
from ragc.optimize.compiler.choice import fit_trust
from ragc.optimize.compiler.scoring import split_topics
from ragc.optimize.labelled.dataset import read_labelled
from ragc.optimize.labelled.split import order_stratified, split_questions
from ragc.serve.opening import open_program

WHO = {"tokens": (0,), "decider": (1,), "both": (0, 1)}


def measure(options: argparse.Namespace) -> Iterator[Figure]:
    """Yield what each arm gets right and wrong, and how well opinions tell which."""
    logging.disable(logging.WARNING)
    project = Project.open(options.project)
    os.environ["RAGC_BUDGET__MAX_SECONDS"] = str(PATIENCE)
    parts = split_questions(read_labelled(project.labelled, project.folder))
    known = [question for part in ("train", "dev") for question in parts[part] if not question.readers]
    questions, weights = [known[n] for n in order_stratified(known)][: options.questions], project.settings.utility
    arms = [ask_all("no model", open_program(project.folder), questions, weights)]
    with written_by(f"openai/{options.model}", options.base_url):
        program = open_program(project.folder)
        shorten_prompts(program, options)
        start = program.policy.tuning()
        arms.append(ask_all("ragc", program, questions, weights))
        shorten_prompts(plain := program.plain(), options)
        arms.append(ask_all("plain RAG", plain, questions, weights))
    for arm in arms:
        for metric in ("correct", "wrong"):
            share = float(np.mean([grade.read_metric(metric) for grade in arm.grades]))
            yield figure(f"{arm.name}: {metric}", share, "", len(questions))
    yield from measure_trust(arms[1], start)


def shorten_prompts(program: AgenticRAG, options: argparse.Namespace) -> None:
    """Show so many passages in a layout, found alike for plain RAG and for the program."""
    program.policy.turn(shown=options.passages, graph_weight=0.0)
    program.generator.answer_layout.value = PromptLayout(options.layout)


def measure_trust(arm: Arm, tuning: Tuning) -> Iterator[Figure]:
    """Yield how well the opinions on what was written tell what is wrong."""
    told = [
        (list_opinions(answer.trace.path), bool(grade.wrong), grade.topic)
        for answer, grade in zip(arm.answers, arm.grades, strict=True)
        if answer.outcome is Outcome.ANSWERED and {*list_opinions(answer.trace.path)} != {UNKNOWN}
    ]
    start = [getattr(tuning, name) for name in TRUST]
    wrong, folds = np.array([bad for _, bad, _ in told]), split_topics([topic for *_, topic in told])
    for who, places in WHO.items():
        judged = [([one if n in places else UNKNOWN for n, one in enumerate(said)], bad) for said, bad, _ in told]
        fitted = np.zeros(len(judged))
        for fold in folds:
            trust = fit_trust([one for n, one in enumerate(judged) if n not in fold], start)
            fitted[fold] = [pool_opinions(judged[n][0], trust) for n in fold]
        yield figure(
            f"{who}: uncompiled", rank([pool_opinions(said, start) for said, _ in judged], wrong), "", len(told)
        )
        yield figure(f"{who}: fitted", rank(fitted, wrong), "", len(told))
        yield figure(f"{who}: log loss, fitted", lose(np.where(wrong, 1 - fitted, fitted)), "", len(told))
    yield figure("log loss of the share alone", lose(np.where(wrong, wrong.mean(), 1 - wrong.mean())), "", len(told))


def rank(sure: Sequence[float], wrong: np.ndarray) -> float:
    """Return the chance that an answer that is not wrong is told as surer than a wrong one."""
    gaps = np.asarray(sure)[~wrong][:, None] - np.asarray(sure)[wrong]
    return float(((gaps > 0) + 0.5 * (gaps == 0)).mean())


def lose(chances: np.ndarray) -> float:
    """Return the mean log loss of the probabilities that were given to what came."""
    return float(-np.log(chances).mean())


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", type=Path, default=EXAMPLE)
    parser.add_argument("--base-url", required=True, help="the server of the model")
    parser.add_argument("--model", required=True, help="its name there")
    parser.add_argument("--questions", type=int, default=92)
    parser.add_argument("--passages", type=int, default=3)
    parser.add_argument("--layout", choices=[*PromptLayout], default=PromptLayout.LINE)
    parser.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    options = make_parser().parse_args()
    show(measure(options), options.json)
