"""Anybody's DSPy program compiled with no key: CLINC150 by one Choice signature, and its thresholds against ReAnchor's.

    python benchmarks/programs.py [--quick] [--json]

CLINC150 (20 examples an intent to learn from): recall in scope and out of scope of a module of one signature, compiled
by `ragc compile` under a metric in which the out-of-scope examples weigh as much as all others. Then the compiled
version loaded in a new process: test examples on which it says what was scored. First, for such a module of fewer
intents, thresholds found by ragc and by DSPy's ReAnchor (whose version is printed) on the same examples, taught by the
same demonstrations, one after the other in this process: score on requests that neither saw, and seconds.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dspy
import numpy as np
from figures import ROOT, Figure, figure, find_datasets, run_benchmark

from ragc.loop.policy import apply_setting, read_setting
from ragc.optimize.compiler.compile import compile_program
from ragc.optimize.compiler.runs.runner import Arm
from ragc.optimize.compiler.scoring import Scoring
from ragc.optimize.compiler.spending import Spending
from ragc.optimize.compiler.tasks.module import open_folder, open_module_task
from ragc.optimize.compiler.tasks.optimizers import run_optimizer
from ragc.optimize.compiler.thresholds import fit_thresholds

OUT_OF_SCOPE = "oos"
STEP, SHOWN, FITTED = 12, 4, 60  # of the comparison with ReAnchor, which asks anew for every value it tries
MODULE = '''
import json
from typing import Literal
import dspy
LABELS = {labels}
WEIGHT = {weight}
class Intent(dspy.Signature):
    """Say what a request is for."""
    text: str = dspy.InputField()
    label: Literal[tuple(LABELS)] = dspy.OutputField(desc="the intent; oos when it is none of the others")
def make():
    return dspy.Predict(Intent)
def metric(example, prediction, trace=None):
    return (prediction.label == example.label) * (WEIGHT if example.label == "oos" else 1.0)
'''
ANEW = """
import json, sys
from ragc import load
from intent import make
program = load("clinc@v2", make)
print(json.dumps([program(text=text).label for text in json.load(sys.stdin)]))
"""


def read_rows(folder: Path, step: int) -> list[dict[str, Any]]:
    """Return the requests of every so manieth intent, those of dev to be tested on."""
    files = (("train.jsonl", "train"), ("dev.jsonl", "test"))
    rows = [{**json.loads(line), "split": split} for name, split in files for line in (folder / name).open()]
    kept = {OUT_OF_SCOPE, *sorted({row["label"] for row in rows} - {OUT_OF_SCOPE})[::step]}
    return [{key: row[key] for key in ("text", "label", "split")} for row in rows if row["label"] in kept]


def enter_folder(rows: Sequence[dict[str, Any]]) -> Any:
    """Write module and examples to the working folder, and return the module."""
    labels, train = sorted({row["label"] for row in rows}), [row for row in rows if row["split"] == "train"]
    inside = [row for row in train if row["label"] != OUT_OF_SCOPE]
    Path("clinc.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("intent.py").write_text(
        MODULE.format(labels=labels, weight=round(len(inside) / (len(train) - len(inside)), 2))
    )
    sys.modules.pop("intent", None)
    sys.path.insert(0, str(Path.cwd()))
    return __import__("intent")


def measure_intents(folder: Path, quick: bool) -> Iterator[Figure]:
    rows = read_rows(folder, 5 if quick else 1)
    intent = enter_folder(rows)
    began = time.perf_counter()
    done = compile_program(intent.make, "clinc.jsonl", intent.metric, name="clinc")
    name = f"clinc150 ({len(intent.LABELS) - 1} intents)"
    right: dict[bool, list[int]] = {True: [], False: []}
    for grade in done.after.grades:
        right["label=oos" in grade.tags].append(int(grade.utility > 0))
    yield figure(f"{name} recall in scope", float(np.mean(right[False])), ">= 0.9", len(right[False]))
    yield figure(f"{name} recall out of scope", float(np.mean(right[True])), ">= 0.87", len(right[True]))
    yield figure(f"{name} seconds to compile", time.perf_counter() - began, "-", len(rows), 1)
    texts = [json.loads(grade.question)["text"] for grade in done.after.grades]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path.cwd())])}
    told = subprocess.run(
        [sys.executable, "-c", ANEW], input=json.dumps(texts), env=env, capture_output=True, text=True, check=True
    )
    same = [
        json.loads(grade.answer)["label"] == label
        for grade, label in zip(done.after.grades, json.loads(told.stdout), strict=True)
    ]
    yield figure(f"{name} same answers in a new process", float(np.mean(same)), ">= 1", len(same))


def measure_thresholds(folder: Path, quick: bool) -> Iterator[Figure]:
    """Compare with ReAnchor: demonstrations are one part of train, thresholds are fitted on the other."""
    rows = read_rows(folder, 3 * STEP if quick else STEP)
    random.Random(0).shuffle(rows)
    taken: dict[str, int] = {}
    for row in rows:  # of each intent the first are shown
        taken[row["label"]] = taken.get(row["label"], 0) + (row["split"] == "train")
        row["shown"] = row["split"] == "train" and taken[row["label"]] <= SHOWN
    shown = [row for row in rows if row["shown"]]
    others = [row for row in rows if not row["shown"]]
    train = [row for row in others if row["split"] == "train"][: FITTED if quick else None]
    intent = enter_folder([*train, *(row for row in others if row["split"] == "test")])

    def make() -> dspy.Module:
        program = intent.make()
        program.demos = [{"text": row["text"], "label": row["label"]} for row in shown]
        return program

    task = open_module_task(open_folder("thresholds", None), make, "clinc.jsonl", intent.metric)
    with task.asking(Spending()):
        task.evaluate(task.base, task.parts["test"])  # what is fitted once is neither's time
        began = time.perf_counter()
        scoring = Scoring([Arm(task.run(task.base), task.parts["train"])], task.grade)
        space = task.list_parameters(task.base)
        found = fit_thresholds(scoring, space, read_setting(task.base), lambda done, of: None)
        seconds = time.perf_counter() - began
        began = time.perf_counter()
        examples = [one.example for one in task.parts["train"]]
        anchored = run_optimizer("reanchor", task.base, (examples, []), intent.metric, 0)
        theirs = time.perf_counter() - began
        fitted = task.base.deepcopy()
        apply_setting(fitted, found)
        before, mine, other = (
            task.evaluate(one, task.parts["test"]).measure("utility") for one in (task.base, fitted, anchored)
        )
    n, name = len(task.parts["test"]), f"thresholds ({len(intent.LABELS)} options)"
    yield figure(f"{name} score as it was", before.value, "-", n)
    yield figure(f"{name} score by ReAnchor (dspy {dspy.__version__})", other.value, "-", n)
    yield figure(f"{name} score by ragc", mine.value, "-", n)
    yield figure(f"{name} score, ragc less ReAnchor", mine.value - other.value, ">= 0", n)
    yield figure(
        f"{name} seconds, ragc over ReAnchor ({seconds:.1f} s / {theirs:.1f} s)", seconds / theirs, "<= 0.1", n
    )


def measure(quick: bool) -> Iterator[Figure]:
    for folder in find_datasets("clinc150"):
        for part in (measure_thresholds, measure_intents):
            with tempfile.TemporaryDirectory() as place:
                here = Path.cwd()
                os.chdir(place)
                try:
                    yield from part(folder.resolve(), quick)
                finally:
                    os.chdir(here)


if __name__ == "__main__":
    run_benchmark(__doc__, measure)
