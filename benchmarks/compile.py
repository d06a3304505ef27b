"""The compiler beside others (DSPy's ReAnchor, BootstrapFewShotWithOptuna, BootstrapFewShotWithRandomSearch, MIPROv2),
beside itself with a warm record, and what each of its stages buys on topics that nothing was learned from.

    python benchmarks/compile.py [--quick] [--json] [--seeds N] [--only ROW]

The row `stages` compiles the shipped example, each way round between train and dev, and sets of RAGC_DATASETS: of each
setting that a compile came to, the gain in utility over the program as it is on dev, which had no part in it, with its
interval by topic, of each set and of all questions pooled. The other projects are made here: documents on machines that
do not exist, questions by template, one topic a machine; another seed makes other machines. Both sides of a row have
the same program, questions and utility. A side's seconds are its CPU seconds, or by the clock where that is said. A
call is one decision or one text asked of a model, embedded ones included; on both sides those are counted that find the
program, not those that test it.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import dspy
import numpy as np
from figures import Figure, figure, find_datasets, show
from machines import make_project
from optimizers import PEERS, Peer, calls_of, decisions_capped, mean_utility
from small_projects import write_beir

from ragc import load
from ragc.knowledge.project import Project
from ragc.loop.policy import apply_setting, read_setting
from ragc.loop.rag import AgenticRAG
from ragc.optimize.compiler.compile import compile_project, make_arms, search_task
from ragc.optimize.compiler.plan import SECONDS
from ragc.optimize.compiler.record import Record, open_record
from ragc.optimize.compiler.scoring import Scoring
from ragc.optimize.compiler.session import Session
from ragc.optimize.compiler.spending import Caps
from ragc.optimize.compiler.tasks.project import open_project_task
from ragc.optimize.evaluation.outcome import AS_IT_IS, Compiled
from ragc.optimize.evaluation.stats import Interval, mean_interval
from ragc.optimize.labelled.dataset import read_labelled
from ragc.optimize.labelled.imports import import_set
from ragc.optimize.labelled.split import split_questions

EXAMPLE = Path(__file__).parents[1] / "data" / "tallowgate"
SEEDS = 5
TRIALS = 150
RUNS = 3
SETS = ("squad2", "multihop_rag", "hotpotqa")
IMPORTED = 100  # questions of a public set
SEARCHED = 100  # settings that the search proposes where its stage is measured
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # by the number of seeds: t of a 95 % interval on their mean

Found = TypeVar("Found")


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """What it returns, and its CPU seconds."""
    began = time.process_time()
    found = run()
    return found, time.process_time() - began


def clocked(run: Callable[[], Any]) -> tuple[Any, float]:
    """What it returns, and its seconds by the clock."""
    began = time.monotonic()
    found = run()
    return found, time.monotonic() - began


def alone(run: Callable[..., Found], *given: Any) -> Found:
    """What it returns, run in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(run, *given).result()


def peak() -> float:
    """GB of memory that this process and the largest of those it started have held, together at most."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(one).ru_maxrss for one in who) / 2**20


def warm(folder: Path, quick: bool, seeds: int) -> Iterator[Figure]:
    """A second compile of the same project: everything it asks is in the record.

    It takes seconds, in which a machine may be as fast as at another time or not: there are RUNS pairs of the two.
    """
    machines, trials = (8, 20) if quick else (32, 300)
    pairs = [alone(warm_run, folder / str(n), machines, trials) for n in range(1 if quick else RUNS)]
    cold, second, settings, calls, memory = zip(*pairs, strict=True)
    yield figure(
        "warm record: clock time of the second compile over the first's", sum(second) / sum(cold), "<= 0.2", trials
    )
    yield figure("warm record: model calls of the second compile", sum(calls), "<= 0", trials)
    yield figure("settings tried per second, first compile, all of it", sum(settings) / sum(cold), "reported", trials)
    yield figure("peak memory of its processes, GB", max(memory), "<= 3", trials)


def warm_run(folder: Path, machines: int, trials: int) -> tuple[float, float, int, int, float]:
    """Of one pair both clock times, the settings of the first, the calls of the second, and `peak`."""
    project = make_project(folder, machines)
    first, cold = clocked(lambda: compile_project(project, trials=trials))
    again, second = clocked(lambda: compile_project(project, trials=trials))
    return cold, second, first.trials, again.calls, peak()


def example(folder: Path, quick: bool, seeds: int) -> Iterator[Figure]:
    """The shipped example by the command line: from an empty cache, then with all of that in the record."""
    copy = shutil.copytree(EXAMPLE, folder / EXAMPLE.name, ignore=shutil.ignore_patterns(".ragc"))
    command = [sys.executable, "-m", "ragc.optimize.cli.main", "compile", str(copy), "--json"]

    def compiled() -> dict[str, Any]:
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        found: dict[str, Any] = json.loads(ended.stdout)
        return found

    first, seconds = clocked(compiled)
    again, second = clocked(compiled)
    tried = first["trials"]
    yield figure("shipped example: seconds by the clock", seconds, "<= 120", tried)
    yield figure("shipped example: settings tried", tried, "reported", tried)
    yield figure(
        "shipped example: clock time of a second compile over the first's", second / seconds, "reported", tried
    )
    yield figure("shipped example: model calls of the second compile", again["calls"], "<= 0", tried)
    yield figure("shipped example: peak memory of its processes, GB", peak(), "<= 3", tried)


def stages(folder: Path, quick: bool, seeds: int) -> Iterator[Figure]:
    """What each stage of a compile buys on questions that nothing was learned from, by set and pooled."""
    pooled: dict[str, list[tuple[float, str]]] = {}
    for name, project in open_stage_sets(folder, quick):
        for stage, pairs in measure_stages(project, name, 6 if quick else SEARCHED).items():
            gain = mean_interval([gain for gain, _ in pairs], [topic for _, topic in pairs])
            yield from tell_gain(f"stages, {name}, {stage}: gain on new topics", gain)
            pooled.setdefault(stage, []).extend(pairs)
    for stage, pairs in pooled.items():
        gain = mean_interval([gain for gain, _ in pairs], [topic for _, topic in pairs])
        yield from tell_gain(f"stages, pooled, {stage}: gain on new topics", gain)


def tell_gain(title: str, gain: Interval) -> Iterator[Figure]:
    """A gain and the ends of its interval."""
    yield figure(title, gain.value, "reported", gain.n)
    yield figure(f"{title}, lower end", gain.ci[0], "reported", gain.n)
    yield figure(f"{title}, upper end", gain.ci[1], "reported", gain.n)


def open_stage_sets(folder: Path, quick: bool) -> Iterator[tuple[str, Project]]:
    """The example with train and dev each in its turn as what is learned from, and sets of RAGC_DATASETS."""
    if quick:
        yield "machines", make_project(folder / "machines", 8)
        return
    for turn, (learned, other) in {"train to dev": ("train", "dev"), "dev to train": ("dev", "train")}.items():
        copy = shutil.copytree(EXAMPLE, folder / turn.replace(" ", "-"), ignore=shutil.ignore_patterns(".ragc"))
        project = Project.open(copy)
        renamed = {learned: "train", other: "dev"}
        rows = [json.loads(line) for line in project.labelled.read_text().splitlines()]
        kept = [row | {"split": renamed.get(row["split"], row["split"])} for row in rows]
        project.labelled.write_text("".join(json.dumps(row) + "\n" for row in kept))
        yield f"{EXAMPLE.name}, {turn}", project
    for found in find_datasets(*SETS, "reading"):
        if found.name != "reading":
            import_set(folder / found.name, found, limit=IMPORTED)
            yield found.name, Project.open(folder / found.name)
            continue
        for group, source in write_organisations(found, folder):
            import_set(folder / group, source)
            yield f"invented organisation {group}", Project.open(folder / group)


def write_organisations(found: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Invented organisations that no reader was trained on, as sets of their own."""
    rows, pages = (
        [json.loads(line) for line in (found / name).read_text().splitlines()]
        for name in ("invented_dev.jsonl", "invented_pages.jsonl")
    )
    for group in sorted({row["group"] for row in rows}):
        own = {n: row for n, row in enumerate(rows) if row["group"] == group}
        yield group, write_beir(own, folder / f"{group}-beir", [page for page in pages if page["group"] == group])


def measure_stages(project: Project, name: str, trials: int) -> dict[str, list[tuple[float, str]]]:
    """By stage the gain of each question of dev over the program as it is, and its topic."""
    session = Session(open_record(project), Caps(), jobs=os.cpu_count() or 1)
    try:
        task = open_project_task(project, session, 0, "", "")
        found = search_task(session, task, trials)
        assert found.dev is not None and found.candidates is not None
        own = {one.name: one.setting for one in found.points.stages}
        stages = {"labels alone": own[AS_IT_IS] | found.candidates.begun_choices, **own}
        before = found.dev(stages.pop(AS_IT_IS)).utility
        gains = {stage: found.dev(setting).utility - before for stage, setting in stages.items()}
        gains["sealed"] = np.array(found.points.after) - before
        topics = [question.cluster for question in found.dev.questions]
        return {stage: list(zip(gain.tolist(), topics, strict=True)) for stage, gain in gains.items()}
    finally:
        session.close()


def reanchor(folder: Path, quick: bool, seeds: int) -> Iterator[Figure]:
    """DSPy's own calibration of thresholds, on the program with its demonstrations attached."""
    from dspy.experimental import ReAnchor

    gaps, rates = [], []
    for seed in range(seeds):
        project = make_project(folder / str(seed), 8 if quick else 16, seed)
        session = Session(Record(), Caps())
        opened = open_project_task(project, session, 0, "", "").prepare(session, 0)
        arms = make_arms(session, opened)
        candidates = opened.offer(session, arms)
        program, shown = opened.base.deepcopy(), opened.parts["train"][: 3 if quick else None]
        candidates.equip_program(program)
        apply_setting(program, candidates.begun_choices)
        peer = Peer(opened, shown)
        for question in shown:
            program(question.question)

        def fit(program: AgenticRAG = program, peer: Peer = peer) -> AgenticRAG:
            with dspy.context(trace=[]):  # it reads the evidence off DSPy's own calls
                optimizer = ReAnchor(metric=peer.metric, num_threads=1, require_cache=False)
                return optimizer.compile(program, trainset=peer.examples(peer.shown))

        theirs, seconds = timed(fit)
        scoring = Scoring(arms, opened.search_grader)
        grid = [{**read_setting(theirs), "grounder.responsive:responsive": n / 100} for n in range(2, 99)]
        scoring(grid[0])
        _, ours = timed(lambda score=scoring, rest=grid[1:]: [score(setting) for setting in rest])
        rates.append((len(grid) - 1) * len(scoring.questions) / ours / (peer.asked / seconds))
        made = load(compile_project(project, trials=TRIALS).reference, artifacts=project.artifacts)
        weights = project.settings.utility
        gaps += [mean_utility(made, opened.parts[p], weights) - mean_utility(theirs, opened.parts[p], weights)
                 for p in ("dev", "test")]  # fmt: skip
    named = f"ReAnchor (dspy {dspy.__version__})"
    yield figure(f"{named}: least of ours minus its utility, dev and test", min(gaps), ">= 0", seeds)
    yield figure(f"{named}: mean of ours minus its utility", float(np.mean(gaps)), "reported", seeds)
    yield figure("ReAnchor: questions a CPU second that open no branch, ours over its", min(rates), "reported", seeds)


def peers_run(name: str, folder: Path, seed: int, quick: bool, hashes: int) -> tuple[float, float]:
    """Utility on test of what one of DSPy's optimizers makes of a project, and its calls, in a process of its own."""
    os.environ["PYTHONHASHSEED"] = str(hashes)
    return alone(peer_run, name, folder, seed, quick)


def peer_run(name: str, folder: Path, seed: int, quick: bool) -> tuple[float, float]:
    """The same, here."""
    logging.disable(logging.WARNING)
    session = Session(Record(), Caps())
    opened = open_project_task(Project.open(folder), session, 0, "", "")
    peer = Peer(opened, opened.parts["train"])
    theirs = PEERS[name](peer, seed, quick)
    return mean_utility(theirs, opened.parts["test"], opened.project.settings.utility), peer.calls


def against(folder: Path, quick: bool, seeds: int, name: str, share: float) -> Iterator[Figure]:
    """One of DSPy's optimizers of demonstrations and instructions: utility on test, and calls.

    Theirs draws by Python's hashes, which differ from process to process: it is run in RUNS of them; the mean counts.
    Ours is run twice, without a cap and under one by which it finds the program with that `share` of their calls.
    """
    theirs: list[list[float]] = []
    gaps: dict[str, list[float]] = {"without a cap": [], f"under a cap of {share:.2f}": []}
    shares: dict[str, list[float]] = {way: [] for way in gaps}
    for seed in range(seeds):
        project = make_project(folder / str(seed), 8 if quick else 16, seed)
        runs = [peers_run(name, project.folder, seed, quick, hashes) for hashes in range(1 if quick else RUNS)]
        theirs.append([utility for utility, _ in runs])
        calls = float(np.mean([calls for _, calls in runs]))
        for way, cap in zip(gaps, (None, int(share * calls / SECONDS["choose"])), strict=True):
            project = make_project(folder / f"{seed} {way}", 8 if quick else 16, seed)
            utility, asked = our_run(project, seed, quick, cap)
            gaps[way].append(utility - float(np.mean(theirs[-1])))
            shares[way].append(asked / calls)
    for way, found in gaps.items():
        mean = float(np.mean(found))
        yield figure(f"{name}, {way}: ours minus its utility on test, mean of seeds", mean, ">= 0", seeds)
        if seeds in STUDENT:
            half = STUDENT[seeds] * float(np.std(found, ddof=1)) / seeds**0.5
            yield figure(f"{name}, {way}: lower end of its 95 % interval", mean - half, ">= 0", seeds)
        bar = "reported" if way == "without a cap" else f"<= {share:.4g}"
        yield figure(f"{name}, {way}: calls, ours over its", max(shares[way]), bar, seeds)
    if not quick:
        spread = float(np.std(theirs, axis=1, ddof=1).mean())
        yield figure(f"{name}: deviation of its utility between runs of one seed", spread, "reported", RUNS)


def our_run(project: Project, seed: int, quick: bool, cap: int | None) -> tuple[float, int]:
    """Utility on test of what a compile makes of a project, and the calls until it was tested, decisions included."""
    found = {"": 0}
    with calls_of() as counted, decisions_capped() if cap else nullcontext():
        done: Compiled = compile_project(
            project, trials=20 if quick else TRIALS, seed=seed, max_calls=cap,
            watch=lambda live: found.setdefault(live.stage, live.calls if cap else counted()),
        )  # fmt: skip
    ours = load(done.reference, artifacts=project.artifacts)  # under a cap the test may be cut short
    questions = split_questions(read_labelled(project.labelled, project.folder))["test"]
    return mean_utility(ours, questions, project.settings.utility), found["testing"]


ROWS: dict[str, Callable[[Path, bool, int], Iterator[Figure]]] = {
    "example": example,
    "warm": warm,
    "stages": stages,
    "reanchor": reanchor,
    "random-search": lambda folder, quick, n: against(folder, quick, n, "BootstrapFewShotWithRandomSearch", 1 / 5),
    "optuna": lambda folder, quick, n: against(folder, quick, n, "BootstrapFewShotWithOptuna", 1 / 5),
    "mipro": lambda folder, quick, n: against(folder, quick, n, "MIPROv2 light", 1 / 3),
}
LONG = ("example",)


def measured(name: str, quick: bool, seeds: int) -> Iterator[Figure]:
    """The figures of a row, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        yield from ROWS[name](Path(folder), quick, seeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="eight machines, one seed, few trials, without the example"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seeds", type=int, choices=[1, *STUDENT], default=SEEDS, help="projects for each optimizer")
    parser.add_argument("--only", choices=ROWS, action="append", help="these rows alone")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    chosen = options.only or [name for name in ROWS if not (options.quick and name in LONG)]
    seeds = 1 if options.quick else options.seeds
    show((one for name in chosen for one in measured(name, options.quick, seeds)), options.json)


if __name__ == "__main__":
    main()
