"""A cascade on the example: the compiled embedded decider first, behind it a model that is always right.

The stand-in server answers from the labels, so asking it always is the best there is. The doubts are chosen on the
development split: of a grid for each kind of decision, the least asking that loses no outcome. They are then scored
on the test split, which nothing was chosen on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from optimize.dataset import LabelledQuestion, read_labelled, splits
from optimize.facts import states
from optimize.replay import Record, Replay
from program import Answer, load
from program.knobs import Knob
from program.models.catalog import Models, open_models
from program.models.fence import clean
from program.models.script import Script
from program.models.testing import serve
from program.rag import AgenticRAG
from program.settings import ModelSettings, Project, ProviderSettings

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "data" / "tallowgate"
GRID = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
ALWAYS = 1.0
_DECIDE = re.compile(r"Decide now: (.+?)\. Reply")
_FIELD = re.compile(r"<(question|claim|answer)>\n(.*?)\n</\1>", re.DOTALL)
_PASSAGE = re.compile(r"<passage [^>]*>\n(.*?)\n</passage>", re.DOTALL)


class Perfect:
    """Decides as the labels of the question that is being asked say."""

    def __init__(self, passages: Mapping[str, str]) -> None:
        self._ids = {clean(text).strip(): id_ for id_, text in passages.items()}
        self.asked: LabelledQuestion | None = None

    def __call__(self, body: Mapping[str, Any]) -> str:
        user = body["messages"][-1]["content"]
        fields = dict(_FIELD.findall(user))
        shown = {self._ids.get(text.replace("&lt;", "<").strip(), "") for text in _PASSAGE.findall(user)}
        names = _DECIDE.search(user)[1].split(", ")  # type: ignore[index]
        return json.dumps({name: self._decided(name, fields, shown) for name in names})

    def _decided(self, name: str, fields: Mapping[str, str], shown: set[str]) -> dict[str, Any]:
        label = self.asked
        assert label is not None
        if name == "route":
            chosen = label.route or "simple"
            shares = {route: float(route == chosen) for route in ("direct", "simple", "complex")}
            return {"reason": "labelled so", "choice": chosen, "probabilities": shares}
        evidence = set(label.evidence)
        yes = {
            "vague": label.outcome == "clarify",
            "relevant": bool(shown & evidence),
            "sufficient": label.outcome == "answered" and evidence <= shown,
            "supported": True,  # the embedded writer only quotes
            "responsive": label.outcome == "answered"
            and (not label.facts or any(states(fields.get("answer", ""), forms) for forms in label.alternatives)),
        }.get(name, name.removeprefix("base_") in label.sources)
        return {"reason": "labelled so", "verdict": "yes" if yes else "no", "probability": 0.99 if yes else 0.01}


def cascade_figures(most: int = 0) -> list[dict[str, Any]]:
    """The figures; `most` limits the questions of each split, 0 takes all."""
    base = load("tallowgate@latest", artifacts=ROOT / "artifacts", project=EXAMPLE)
    parts = splits(read_labelled(Project.open(EXAMPLE).labelled))
    dev, test = (list(parts[name])[: most or None] for name in ("dev", "test"))
    perfect = Perfect({p.id: p.text for p in base.runtime.library.passages()})
    with serve(Script(), perfect) as provider:
        program = cascaded(base, provider.url)
        record = Record()
        doubts = chosen(program, dev, perfect, record)
        always = [answered(program, q, perfect, record, dict.fromkeys(doubts, ALWAYS)) for q in test]
        mixed = [answered(program, q, perfect, record, doubts) for q in test]
        never = [answered(program, q, perfect, record, dict.fromkeys(doubts, 0.0)) for q in test]
    calls = [sum(a.usage.calls for a in arm) - sum(a.usage.calls for a in never) for arm in (mixed, always)]
    right = [accuracy(test, arm) for arm in (mixed, always, never)]
    share = calls[0] / max(1, calls[1])
    n = len(test)

    def figure(name: str, value: float, bar: str, holds: bool = True) -> dict[str, Any]:
        return {"figure": f"cascade: {name}", "value": round(value, 4), "bar": bar, "holds": holds, "n": n}

    return [
        figure("outcome accuracy", right[0], f">= {right[1]:.4f}", right[0] >= right[1]),
        figure("outcome accuracy, always asking", right[1], "report"),
        figure("outcome accuracy, never asking", right[2], "report"),
        figure("calls over those of always asking", share, "<= 0.4", share <= 0.4),
        *(figure(f"doubt of {name.removeprefix('doubt.')}", value, "report") for name, value in doubts.items()),
    ]


def cascaded(base: AgenticRAG, url: str) -> AgenticRAG:
    """The program with a model at `url` behind its decider, which keeps what it has learned."""
    names = ModelSettings(decide=("local/minilm", "openai/perfect"), write=base.runtime.models.names.write)
    provider = ProviderSettings(model={"openai/perfect": {"api_base": url}})  # type: ignore[dict-item]
    opened = open_models(names, provider)
    opened.decide.first = base.runtime.models.decide
    models: Models = replace(opened, write=base.runtime.models.write, embedder=base.runtime.models.embedder)
    runtime = replace(base.runtime, models=models, log=None)
    program = AgenticRAG(base.runtime.library.describe(), runtime)
    program.load_state({**program.dump_state(), **base.dump_state()})
    return program


def answered(
    program: AgenticRAG, question: LabelledQuestion, perfect: Perfect, record: Record, doubts: Mapping[str, float]
) -> Answer:
    """The answer under these doubts."""
    for name, parameter in program.named_parameters():
        if isinstance(parameter, Knob) and name in doubts:
            parameter.set(doubts[name])
    perfect.asked = question
    return Replay(program, record)(question.question)


def accuracy(questions: Sequence[LabelledQuestion], answers: Sequence[Answer]) -> float:
    return sum(a.outcome == q.outcome for q, a in zip(questions, answers, strict=True)) / len(questions)


def chosen(program: AgenticRAG, dev: Sequence[LabelledQuestion], perfect: Perfect, record: Record) -> dict[str, float]:
    """From always asking, each kind's doubt is lowered as far as no outcome of the development split is lost."""
    names = [n for n, p in program.named_parameters() if isinstance(p, Knob) and n.startswith("doubt.")]
    doubts = dict.fromkeys(names, ALWAYS)
    bar = accuracy(dev, [answered(program, q, perfect, record, doubts) for q in dev])
    for name in names:
        for value in GRID:
            tried = {**doubts, name: value}
            if accuracy(dev, [answered(program, q, perfect, record, tried) for q in dev]) >= bar:
                doubts = tried
                break
    return doubts
