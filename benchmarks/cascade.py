"""A cascade on the example: the compiled embedded decider first, behind it a model that is always right.

    python benchmarks/cascade.py [--quick] [--json]

The stand-in server answers from the labels, through LiteLLM and HTTP, so asking it always is the best there is. The
doubts are chosen on half of the topics of the development split, the least that leave as many outcomes right there as
asking always does, and scored on the others: nothing but a compile looks at the test split. Then what
the calls of a question come to when language models do everything: decisions one by one, as a model without `together`
is asked, and those of a step in one call.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))  # for tests.support
sys.path.insert(0, str(Path(__file__).parent))

from figures import Figure, figure, show
from perfect import Perfect

from optimize.compiler.record import Record
from optimize.compiler.replay import Replay
from optimize.evaluation.metrics import judge_answer
from optimize.labelled.dataset import LabelledQuestion, read_labelled
from optimize.labelled.split import split_questions
from program import Answer, load, open_program
from program.loop.policy import Knob
from program.loop.rag import AgenticRAG
from program.loop.state import Budget
from program.models.asked import LanguageDecider
from program.models.catalog import open_models
from program.project import Project
from program.settings import ModelSettings, ProviderSettings
from tests.support.provider import Script, serve

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "data" / "tallowgate"
MODEL = "openai/perfect"
GRID = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
ALWAYS = 1.0
AMPLE = Budget(max_seconds=600.0, max_tokens=10**9, max_usd=1e9)
QUICK = 10


def cascade_figures(quick: bool = False) -> list[Figure]:
    """Outcomes and calls: asking the second model always, in doubt, never."""
    base = load("tallowgate@latest", artifacts=ROOT / "artifacts", project=EXAMPLE)
    chosen_on, scored_on = questions()
    if quick:
        chosen_on, scored_on = chosen_on[:QUICK], scored_on[:QUICK]
    perfect = Perfect({p.id: p.text for p in base.runtime.library.passages()})
    with serve(Script(), perfect) as provider:
        doubts = chosen(cascaded(base, provider.url), chosen_on, perfect)
    settings = {"in doubt": doubts, "always": dict.fromkeys(doubts, ALWAYS), "never": dict.fromkeys(doubts, 0.0)}
    arms = {name: live(base, scored_on, perfect, setting) for name, setting in settings.items()}
    right = {name: accuracy(scored_on, answers) for name, (answers, _) in arms.items()}
    calls = {name: number for name, (_, number) in arms.items()}
    graded = {name: correct(scored_on, answers) for name, (answers, _) in arms.items()}
    mixed = arms["in doubt"][0]
    asked, decisions = sum(a.usage.asked for a in mixed), sum(a.usage.decisions for a in mixed)
    n, share = len(scored_on), calls["in doubt"] / max(1, calls["always"])
    reached = figure("cascade: outcome accuracy", right["in doubt"], f">= {right['always']:.4f}", n)
    reported = {
        "outcome accuracy, always asking": right["always"],
        "outcome accuracy, never asking": right["never"],
        "correct answers": graded["in doubt"],
        "correct answers, always asking": graded["always"],
        "calls a question": calls["in doubt"] / n,
        "calls a question, always asking": calls["always"] / n,
        "decisions passed on": asked / max(1, decisions),
        **{f"doubt of {name.removeprefix('doubt.')}": value for name, value in doubts.items()},
    }
    return [
        {**reached, "holds": right["in doubt"] >= right["always"]},  # the bar is shown rounded
        figure("cascade: calls over those of always asking", share, "<= 0.4", n),
        *(figure(f"cascade: {name}", value, "report", n) for name, value in reported.items()),
    ]


def questions() -> tuple[list[LabelledQuestion], list[LabelledQuestion]]:
    """The questions that the doubts are chosen on, and those that they are scored on: never of the same topic."""
    dev = split_questions(read_labelled(Project.open(EXAMPLE).labelled))["dev"]
    topics = sorted({question.topic for question in dev})
    one = set(topics[::2])
    return [q for q in dev if q.topic in one], [q for q in dev if q.topic not in one]


def cascaded(base: AgenticRAG, url: str) -> AgenticRAG:
    """The program with a model at `url` behind its decider, which keeps what it has learned."""
    names = ModelSettings(decide=("local/minilm", MODEL), write=base.runtime.models.names.write)
    opened = open_models(names, provider_at(url))
    opened.decide.first = base.runtime.models.decide
    models = replace(opened, write=base.runtime.models.write, embedder=base.runtime.models.embedder)
    runtime = replace(
        base.runtime, models=models, log=None, budget=replace(AMPLE, max_rounds=base.runtime.budget.max_rounds)
    )
    program = AgenticRAG(base.runtime.library.describe(), runtime)
    program.load_state({**program.dump_state(), **base.dump_state()})
    return program


def provider_at(url: str) -> ProviderSettings:
    return ProviderSettings(call_seconds=120, model={MODEL: {"api_base": url}})  # type: ignore[dict-item]


def turned(program: AgenticRAG, doubts: Mapping[str, float]) -> None:
    for name, parameter in program.named_parameters():
        if isinstance(parameter, Knob) and name in doubts:
            parameter.set(doubts[name])


def live(
    base: AgenticRAG, asked: Sequence[LabelledQuestion], perfect: Perfect, doubts: Mapping[str, float]
) -> tuple[list[Answer], int]:
    """The answers under these doubts, asked for real, and the calls that the server counted."""
    answers = []
    with serve(Script(), perfect) as provider:
        program = cascaded(base, provider.url)
        turned(program, doubts)
        for question in asked:
            perfect.asked = question
            answers.append(program(question.question))
        return answers, provider.calls


def accuracy(asked: Sequence[LabelledQuestion], answers: Sequence[Answer]) -> float:
    return sum(a.outcome == q.outcome for q, a in zip(asked, answers, strict=True)) / len(asked)


def correct(asked: Sequence[LabelledQuestion], answers: Sequence[Answer]) -> float:
    return sum(judge_answer(q, a.outcome, a.text).correct for q, a in zip(asked, answers, strict=True)) / len(asked)


def chosen(program: AgenticRAG, asked: Sequence[LabelledQuestion], perfect: Perfect) -> dict[str, float]:
    """Each kind's doubt in turn becomes the least at which as many outcomes are right as when the second model is
    always asked; by replay."""
    names = [n for n, p in program.named_parameters() if isinstance(p, Knob) and n.startswith("doubt.")]
    replay = Replay(program, Record())

    def right(doubts: Mapping[str, float]) -> float:
        turned(program, doubts)
        answers = []
        for question in asked:
            perfect.asked = question
            answers.append(replay(question.question))
        return accuracy(asked, answers)

    doubts = dict.fromkeys(names, ALWAYS)
    least = right(doubts)
    for name in names:
        doubts[name] = next(value for value in GRID if right({**doubts, name: value}) >= least)
    return doubts


def call_figures() -> list[Figure]:
    """Calls of a simple and of a complex question, preset full, when language models decide and write."""
    parts = split_questions(read_labelled(Project.open(EXAMPLE).labelled))
    found = []
    picked = [next(q for q in parts["dev"] if q.route == r and q.outcome == "answered") for r in ("simple", "complex")]
    os.environ.update(RAGC_MODELS__DECIDE=MODEL, RAGC_MODELS__WRITE=MODEL)
    base = open_program(EXAMPLE)
    perfect = Perfect({p.id: p.text for p in base.runtime.library.passages()})
    for question in picked:
        perfect.asked = question
        for how in ("one by one", "together"):
            with serve(Script(), perfect) as provider:
                models = open_models(ModelSettings(decide=MODEL, write=MODEL), provider_at(provider.url))
                if how == "one by one":
                    models = replace(models, decide=OneByOne(models.decide))
                program = AgenticRAG(
                    base.runtime.library.describe(), replace(base.runtime, models=models, log=None, budget=AMPLE)
                )
                program.load_state(base.dump_state())
                answer = program(question.question)
            print(f"{question.question} {answer.trace}", file=sys.stderr)
            name = f"{question.route} question, decisions {how}"
            found += [
                figure(f"cascade: calls of a {name}", answer.usage.calls, "report", 1),
                figure(f"cascade: tokens of a {name}", answer.usage.tokens_in + answer.usage.tokens_out, "report", 1),
            ]
    return found


class OneByOne:
    """A language model's client that is asked decision by decision."""

    supports_decision_requests = True
    awaits = True

    def __init__(self, client: LanguageDecider) -> None:
        self.lane, self.model, self.callbacks = client.lane, client.model, client.callbacks
        self.cache, self.kwargs = client.cache, client.kwargs
        self._client = client

    def __call__(self, state: Any, questions: Any) -> Any:
        return self._client(state=state, questions=questions)

    async def acall(self, state: Any, questions: Any) -> Any:
        return await self._client.acall(state=state, questions=questions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer questions, under a minute")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=("cascade", "calls"), default="")
    options = parser.parse_args()
    found: list[Figure] = []
    if options.only in ("", "cascade"):
        found += cascade_figures(options.quick)
    if options.only in ("", "calls"):
        found += call_figures()
    show(found, options.json)


if __name__ == "__main__":
    main()
