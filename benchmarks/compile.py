"""The compiler beside others: DSPy's ReAnchor, BootstrapFewShotWithOptuna, BootstrapFewShotWithRandomSearch, MIPROv2,
a grid without replay, itself with a warm record, and itself with a second worker.

    python benchmarks/compile.py [--quick] [--json] [--seeds N] [--only ROW]

The projects are made here: documents on machines that do not exist, questions by template, one topic a machine; another
seed makes other machines. Both sides of a row have the same program, the same questions and the same utility, and start
from the same prepared program where a row compares searches. A side's seconds are its CPU seconds, which other work on
the machine does not change, except where several processes work: there they are seconds by the clock. A call is one
decision or one text asked of a model, embedded ones included; on both sides those are counted that find the program,
not those that test it.
"""

from __future__ import annotations

import argparse
import itertools
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
from figures import Figure, figure, show
from machines import make_project
from optimize.compiler.journal import create, last
from optimize.compiler.outcome import Compiled
from optimize.compiler.preparation import Preparation, copy_of, open_project, prepare
from optimize.compiler.starts import starts
from optimizers import PEERS, Peer, calls_of, decisions_capped, mean_utility

from optimize.compiler.compile import compile_project
from optimize.compiler.record import Record
from optimize.compiler.replay import Replay
from optimize.compiler.scoring import Arm, Scoring
from optimize.compiler.spending import CHOICE_SHARE, Spending
from optimize.compiler.study import Live, Search
from optimize.evaluation.evaluate import Grader
from optimize.labelled.dataset import read_labelled, splits
from program import load
from program.loop.parameters import apply, read
from program.loop.rag import AgenticRAG
from program.settings import Project

EXAMPLE = Path(__file__).parents[1] / "data" / "tallowgate"
SEEDS = 5
TRIALS = 150
MANY = 1000
RUNS = 3
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
    command = [sys.executable, "-m", "optimize.cli.main", "compile", str(copy), "--json"]

    def compiled() -> dict[str, Any]:
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        found: dict[str, Any] = json.loads(ended.stdout)
        return found

    first, seconds = clocked(compiled)
    again, second = clocked(compiled)
    tried = first["trials"]
    yield figure("shipped example: seconds by the clock", seconds, "<= 300", tried)
    yield figure("shipped example: settings tried", tried, "reported", tried)
    yield figure(
        "shipped example: clock time of a second compile over the first's", second / seconds, "reported", tried
    )
    yield figure("shipped example: model calls of the second compile", again["calls"], "<= 0", tried)
    yield figure("shipped example: peak memory of its processes, GB", peak(), "<= 3", tried)


def prepared(project: Project, record: Record | None = None) -> Preparation:
    """The project ready to search, its demonstrations made."""
    ready = open_project(project, 0, "", Spending(), lambda name: None, lambda done, of: None)
    ready.record = record or ready.record
    prepare(ready, create(project, ready.identity()), starts, lambda name: None, lambda done, of: None)
    return ready


def grid(folder: Path, quick: bool, seeds: int) -> Iterator[Figure]:
    """Two thresholds on a grid: each setting run anew, and each read from a record."""
    ready = prepared(make_project(folder, 8 if quick else 24))
    program = ready.compiled()
    apply(program, ready.begun)
    questions = list(ready.parts["train"])
    names = ("grounder.responsive:responsive", "grounder.support:supported")
    ticks = np.linspace(0.1, 0.9, 4 if quick else 12)
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
    replayed, quick_ = timed(lambda: [float(np.nanmean(scoring(setting).utility)) for setting in settings])
    _, known = timed(lambda: [scoring(setting) for setting in settings])
    same = int(np.argmax(np.round(live, 9))) == int(np.argmax(np.round(replayed, 9)))
    n = len(settings)
    yield figure("grid without replay: same setting chosen", float(same), ">= 1", n)
    yield figure("grid without replay: times as slow as replay, recording included", slow / quick_, "reported", n)
    yield figure("grid without replay: times as slow as replay of a record", slow / known, ">= 100", n)


def reanchor(folder: Path, quick: bool, seeds: int) -> Iterator[Figure]:
    """DSPy's own calibration of thresholds, on the program with its demonstrations attached."""
    from dspy.experimental import ReAnchor

    gaps, rates, known, reached = [], [], [], []
    for seed in range(seeds):
        project = make_project(folder / str(seed), 8 if quick else 16, seed)
        ready = prepared(project, Record())
        program, shown = ready.compiled(), ready.parts["train"][: 3 if quick else None]
        apply(program, ready.begun)
        peer = Peer(ready, shown)
        for question in shown:
            program(question.question)

        def fit(program: AgenticRAG = program, peer: Peer = peer) -> AgenticRAG:
            with dspy.context(trace=[]):  # it reads the evidence off DSPy's own calls
                optimizer = ReAnchor(metric=peer.metric, num_threads=1, require_cache=False)
                return optimizer.compile(program, trainset=peer.examples(peer.shown))

        theirs, seconds = timed(fit)
        settings = peer.asked / len(shown)
        mark = Scoring(ready.arms, project.settings.utility)(read(theirs)).worth
        trials = TRIALS if quick else MANY
        tried, until, searching = searched(ready, mark, trials)
        theirs_a_second = settings / seconds * len(shown) / len(ready.parts["train"])
        rates.append(tried / searching / theirs_a_second)
        tried, _, searching = searched(ready, mark, trials)
        known.append(tried / searching / theirs_a_second)
        reached.append(until / (seconds * len(ready.parts["train"]) / len(shown)))
        ours = load(compile_project(project, trials=TRIALS).reference, artifacts=project.artifacts)
        weights = project.settings.utility
        gaps += [mean_utility(ours, ready.parts[p], weights) - mean_utility(theirs, ready.parts[p], weights)
                 for p in ("dev", "test")]  # fmt: skip
    named = f"ReAnchor (dspy {dspy.__version__})"
    yield figure(f"{named}: least of ours minus its utility, dev and test", min(gaps), ">= 0", seeds)
    yield figure(f"{named}: mean of ours minus its utility", float(np.mean(gaps)), "reported", seeds)
    yield figure("ReAnchor: settings a CPU second, ours over its, new branches included", min(rates), ">= 50", seeds)
    yield figure("ReAnchor: settings a CPU second, ours that open no branch over its", min(known), ">= 50", seeds)
    yield figure("ReAnchor: CPU time until we are as good, over its", max(reached), "<= 0.1", seeds)


def searched(ready: Preparation, mark: float, trials: int) -> tuple[int, float, float]:
    """Settings tried by a search, and the CPU seconds until one was worth `mark` and until the end."""
    journal = create(ready.project, ready.identity())
    search = Search(ready.arms, ready.project.settings.utility, 0, ready.starts, journal)
    began, reached = time.process_time(), [float("inf")]

    def watch(live: Live) -> None:
        if live.best is not None and live.best >= mark - 1e-9:
            reached[0] = min(reached[0], time.process_time() - began)

    search.run(trials, watch, Live(), Spending())
    return len(search.trials), reached[0], time.process_time() - began


def peers_run(name: str, folder: Path, seed: int, quick: bool, hashes: int) -> tuple[float, float]:
    """Utility on test of what one of DSPy's optimizers makes of a project, and its calls, in a process of its own."""
    os.environ["PYTHONHASHSEED"] = str(hashes)
    return alone(peer_run, name, folder, seed, quick)


def peer_run(name: str, folder: Path, seed: int, quick: bool) -> tuple[float, float]:
    """The same, here."""
    logging.disable(logging.WARNING)
    ready = open_project(Project.open(folder), 0, "", Spending(), lambda stage: None, lambda done, of: None)
    peer = Peer(ready, ready.parts["train"])
    theirs = PEERS[name](peer, seed, quick)
    return mean_utility(theirs, ready.parts["test"], ready.project.settings.utility), peer.calls


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
        for way, cap in zip(gaps, (None, int(share * calls / CHOICE_SHARE)), strict=True):
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
            project, trials=20 if quick else TRIALS, seed=seed, processes=1, max_calls=cap,
            watch=lambda live: found.setdefault(live.stage, live.calls if cap else counted()),
        )  # fmt: skip
    ours = load(done.reference, artifacts=project.artifacts)  # under a cap the test may be cut short
    questions = splits(read_labelled(project.labelled, project.folder))["test"]
    return mean_utility(ours, questions, project.settings.utility), found["testing"]


def going(process: subprocess.Popen[bytes]) -> None:
    """A short wait for it. Raises RuntimeError when it has ended."""
    if process.poll() is not None:
        raise RuntimeError(f"{process.args} ended with {process.returncode}")
    time.sleep(0.1)


def workers(folder: Path, quick: bool, seeds: int) -> Iterator[Figure]:
    """The clock seconds that one process and two take until a study holds so many trials, each from an empty record.

    What two try is another matter every time, so they are run in turns, more than once. One process embeds on every
    processor, so with each on a processor of its own they are compared, too.
    """
    trials, times = (20, 1) if quick else (MANY, RUNS)
    made = make_project(folder / "machines", 8 if quick else 32).folder
    yield helped(folder, made, trials, times, False, "machines")
    if not quick:
        yield helped(folder, EXAMPLE, trials, times, False, "the shipped example")
        if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1:
            yield helped(folder, EXAMPLE, trials, 1, True, "the shipped example, a processor for each")


def helped(folder: Path, project: Path, trials: int, times: int, apart: bool, what: str) -> Figure:
    """Two workers beside one, so many times each, on copies of a project; `apart` each has one processor."""
    command = [sys.executable, "-m", "optimize.cli.main"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

    def started(verb: list[str], place: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([*command, *verb], **quiet)
        if apart:
            os.sched_setaffinity(process.pid, {sorted(os.sched_getaffinity(0))[place]})
        return process

    def run(name: str, second: bool) -> float:
        own = folder / f"{what} {name}" / project.name
        shutil.copytree(project, own, ignore=shutil.ignore_patterns(".ragc"))
        opened = Project.open(own)
        began = time.monotonic()
        running = [started(["compile", str(own), "--trials", str(trials), "--processes", "1"], 0)]
        try:
            while (journal := last(opened)) is None:
                going(running[0])
            if second:
                running.append(started(["worker", str(own), "--study", journal.name], 1))
            while len(journal.trials()) < trials:
                going(running[0])
            return time.monotonic() - began
        finally:
            for process in running:
                process.kill()
                process.wait()

    alone, two = zip(*((run(f"alone {n}", False), run(f"two {n}", True)) for n in range(times)), strict=True)
    return figure(f"two workers, {what}: clock time over one's", sum(two) / sum(alone), "<= 0.65", trials)


ROWS: dict[str, Callable[[Path, bool, int], Iterator[Figure]]] = {
    "example": example,
    "warm": warm,
    "grid": grid,
    "reanchor": reanchor,
    "random-search": lambda folder, quick, n: against(folder, quick, n, "BootstrapFewShotWithRandomSearch", 1 / 5),
    "optuna": lambda folder, quick, n: against(folder, quick, n, "BootstrapFewShotWithOptuna", 1 / 5),
    "mipro": lambda folder, quick, n: against(folder, quick, n, "MIPROv2 light", 1 / 3),
    "workers": workers,
}
LONG = ("example", "workers")


def measured(name: str, quick: bool, seeds: int) -> Iterator[Figure]:
    """The figures of a row, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        yield from ROWS[name](Path(folder), quick, seeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="eight machines, one seed, few trials, neither example nor second worker"
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
