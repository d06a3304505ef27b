"""The compiler beside others: DSPy's ReAnchor, a grid without replay, itself with a warm record, and with two workers.

    python benchmarks/compile.py [--quick] [--json]

The project is made here: documents on machines that do not exist, questions by template, one topic a machine. Both
sides of a row have the same program, the same questions and the same utility; a side's seconds are its CPU seconds,
which other work on the machine does not change, except with two workers, where they are seconds by the clock.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from optimize.compiler import Compiled, compile_project
from optimize.dataset import LabelledQuestion
from optimize.evaluation import Grader, evaluate
from optimize.journal import join
from optimize.metrics import value
from optimize.preparation import Preparation, copy_of, open_project, prepare
from optimize.record import Record
from optimize.replay import Replay
from optimize.scoring import Arm, Scoring
from optimize.spending import Spending
from program.parameters import apply
from program.rag import AgenticRAG
from program.settings import Project

Figure = dict[str, Any]
TOML = """name = "machines"
artifacts = "artifacts"
[trace]
enabled = false
[knowledge.product]
path = "knowledge/product"
about = "machines: their power, weight and noise"
[knowledge.policy]
path = "knowledge/policy"
about = "guarantees, returns and repairs of machines"
"""
FIRST = ("Quartz", "Velvet", "Amber", "Copper", "Sierra", "Meadow", "Winter", "Falcon")
LAST = ("kettle", "loom", "drill", "printer", "lantern", "mower")
# A wording for each machine in four, so that no question of one split is nearly one of another.
POWER = (
    "How many watts does the {} draw?",
    "What power in watts is the {} rated at?",
    "Tell me the electrical load of a {}.",
    "When it runs, which wattage has the {}?",
)
BACK = (
    "Until when may I return a {}?",
    "How long do I have to send the {} back?",
    "Within which time is a {} taken back?",
    "I do not like my {}: what is the deadline for giving it back?",
)
UNKNOWN = (
    "Is the {} sold in green?",
    "Who designed the {}?",
    "Does the {} come with batteries?",
    "Can the {} be rented by the hour?",
)


def figure(name: str, value_: float, bar: str, n: int) -> Figure:
    """One line of the result. A `bar` is `<= x` or `>= x`; any other only reports."""
    sign, _, limit = bar.partition(" ")
    holds = value_ <= float(limit) if sign == "<=" else value_ >= float(limit) if sign == ">=" else True
    return {"figure": name, "value": round(value_, 4), "bar": bar, "holds": holds, "n": n}


def make_project(folder: Path, machines: int) -> Project:
    """A project of so many machines: two documents and three questions each."""
    rng = random.Random(0)
    names = [f"{first} {last}" for last, first in itertools.product(LAST, FIRST)][:machines]
    rows = []
    for n, name in enumerate(names):
        file = name.lower().replace(" ", "-")
        watts, kilos, days = rng.randrange(100, 3000), rng.randrange(2, 60), rng.randrange(10, 90)
        text = (
            f"# {name}\n## Power\nThe {name} draws {watts} watts.\n\n## Weight\nThe {name} weighs {kilos} kilograms.\n"
        )
        _write(folder / f"knowledge/product/{file}.md", text)
        text = f"# {name} terms\n## Returns\nThe {name} can be sent back within {days} days of delivery.\n"
        _write(folder / f"knowledge/policy/{file}.md", text)
        split = ("train", "train", "dev", "test")[n % 4]
        common = {"topic": name, "route": "simple", "split": split}
        rows += [
            {
                **common,
                "id": f"{file}-power",
                "question": POWER[n % 4].format(name),
                "outcome": "answered",
                "sources": ["product"],
                "evidence": [f"product/{file}.md#power"],
                "facts": [f"{watts} watts"],
            },
            {
                **common,
                "id": f"{file}-back",
                "question": BACK[n % 4].format(name),
                "outcome": "answered",
                "sources": ["policy"],
                "evidence": [f"policy/{file}.md#returns"],
                "facts": [f"{days} days"],
            },
            {
                **common,
                "id": f"{file}-green",
                "question": UNKNOWN[n % 4].format(name),
                "outcome": "abstain",
                "sources": ["product"],
            },
        ]
    _write(folder / "labelled.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    _write(folder / "ragc.toml", TOML)
    return Project.open(folder)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """What it returns, and its CPU seconds."""
    began = time.process_time()
    found = run()
    return found, time.process_time() - began


def warm(project: Project, trials: int) -> tuple[list[Figure], Compiled]:
    """A second compile of the same project: everything it asks is in the record."""
    first, cold = timed(lambda: compile_project(project, trials=trials))
    again, second = timed(lambda: compile_project(project, trials=trials))
    return [
        figure("warm record: CPU time of the second compile over the first's", second / cold, "<= 0.2", trials),
        figure("warm record: model calls of the second compile", again.calls, "<= 0", trials),
        figure(
            "settings tried per CPU second, first compile, all of it", first.trials / cold, "reported", first.trials
        ),
    ], first


def prepared(project: Project) -> Preparation:
    """The project ready to search, its record warm."""
    ready = open_project(project, 0, "", Spending(), lambda name: None, lambda done, of: None)
    prepare(ready, lambda fitted: [fitted], lambda name: None, lambda done, of: None)
    return ready


def grid(ready: Preparation, steps: int) -> list[Figure]:
    """Two thresholds on a grid: each setting run anew, and each read from a record."""
    program = ready.compiled()
    questions = list(ready.parts["train"])
    names = ("grounder.responsive:responsive", "grounder.support:supported")
    ticks = np.linspace(0.1, 0.9, steps)
    settings = [dict(zip(names, map(float, pair), strict=True)) for pair in itertools.product(ticks, ticks)]
    weights = ready.project.settings.utility

    def anew(setting: dict[str, float]) -> float:
        apply(program, setting)
        grader = Grader(program, weights, relevancy=False)
        return float(np.mean([grader(q, program(q.question)).utility for q in questions]))

    scoring = Scoring([Arm(Replay(copy_of(program), Record()), questions)], weights)
    for question in questions:
        program(question.question)  # heads are fitted before either side is timed
    live, slow = timed(lambda: [anew(setting) for setting in settings])
    replayed, quick = timed(lambda: [float(np.nanmean(scoring(setting).utility)) for setting in settings])
    _, known = timed(lambda: [scoring(setting) for setting in settings])
    same = int(np.argmax(np.round(live, 9))) == int(np.argmax(np.round(replayed, 9)))
    n = len(settings)
    return [
        figure("grid without replay: same setting chosen", float(same), ">= 1", n),
        figure("grid without replay: times as slow as replay, recording included", slow / quick, "reported", n),
        figure("grid without replay: times as slow as replay of a record", slow / known, ">= 100", n),
    ]


def reanchor(ready: Preparation, ours: Compiled, limit: int) -> list[Figure]:
    """DSPy's own calibration of thresholds, on the program with its demonstrations attached."""
    from dspy.experimental import ReAnchor

    program = ready.compiled()
    weights = ready.project.settings.utility
    by_question = {q.question: q for q in ready.questions}
    shown: Sequence[LabelledQuestion] = ready.parts["train"][:limit]
    grader = Grader(program, weights, relevancy=False)
    asked = 0

    def metric(example: Any, answer: Any, trace: Any = None) -> float:
        nonlocal asked
        asked += 1
        return grader(by_question[example.question], answer).utility

    examples = [dspy.Example(question=q.question).with_inputs("question") for q in shown]
    for question in shown:
        program(question.question)

    def fit() -> AgenticRAG:
        with dspy.context(trace=[]):  # it reads the evidence off DSPy's own calls
            return ReAnchor(metric=metric, num_threads=1, require_cache=False).compile(program, trainset=examples)

    theirs, seconds = timed(fit)
    settings = asked / len(shown)
    scored = evaluate(theirs, ready.parts["test"], weights)
    mine, quick = timed(lambda: compile_project(ready.project, trials=150))
    gap = float(np.mean([value(g, "utility") or 0.0 for g in ours.evaluation.grades])) - float(
        np.mean([g.utility for g in scored.grades])
    )
    rate = (mine.trials / quick) / (settings / seconds * len(shown) / len(ready.parts["train"]))
    return [
        figure(f"ReAnchor (dspy {dspy.__version__}): utility on test, ours minus its", gap, ">= 0", len(scored.grades)),
        figure("ReAnchor: settings a second, ours (warm record) over its", rate, ">= 50", int(settings)),
        figure("ReAnchor: CPU seconds it took", seconds, "reported", int(settings)),
    ]


def workers(project: Project, trials: int) -> list[Figure]:
    """The clock seconds of one process and of two to add the same number of trials to a study."""
    command = [sys.executable, "-m", "optimize.cli.main"]

    def run(helped: bool) -> float:
        began = time.monotonic()
        known = len(list((project.private / "studies").glob("*.journal")))
        options = ["--seed", str(1 + helped), "--processes", "1"]
        main = [*command, "compile", str(project.folder), "--trials", str(trials), *options]
        first = subprocess.Popen(main, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if helped:
            while len(list((project.private / "studies").glob("*.journal"))) == known:
                time.sleep(0.1)
            time.sleep(1)
            name = join(project).name
            helper = [*command, "worker", str(project.folder), "--study", name]
            subprocess.run(helper, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        first.wait()
        return time.monotonic() - began

    alone = run(False)
    return [figure("two workers: clock time over one worker's", run(True) / alone, "<= 0.65", trials)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="eight machines, few trials, no second worker")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        project = make_project(Path(folder), 8 if options.quick else 32)
        figures, ours = warm(project, 20 if options.quick else 300)
        ready = prepared(project)
        figures += grid(ready, 4 if options.quick else 12)
        figures += reanchor(ready, ours, 3 if options.quick else 48)
        if not options.quick:
            figures += workers(project, 300)
    if options.json:
        print(json.dumps(figures))
        return
    for one in figures:
        verdict = "holds" if one["holds"] else "MISSED"
        print(f"{one['figure']:<72} {one['value']:>10.4f}  {one['bar']:<9} {verdict:<7} n={one['n']}")


if __name__ == "__main__":
    main()
