"""What a user waits for: help, the first answer, the next ones, an index that is there, versions loaded and listed.

    python benchmarks/start.py [--quick] [--json]

Over a copy of the shipped example: the median of whole processes, one after another; the next answers are those of a
process that is given training questions line by line, whose passages it reads for the first time, then of a second
process. Loading and listing are timed in this process, the best of several runs.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
from figures import ROOT, Figure, figure, run_benchmark

EXAMPLE = "tallowgate"
VERSION = f"{EXAMPLE}@latest"
RAGC = [sys.executable, "-m", "ragc.optimize.cli.main"]


def run_ragc(command: Sequence[str], cwd: Path, given: str = "") -> tuple[float, str]:
    """Return the seconds a process took, and what it printed."""
    began = time.monotonic()
    done = subprocess.run([*RAGC, *command], cwd=cwd, input=given, capture_output=True, text=True, check=True)
    return time.monotonic() - began, done.stdout


def time_median(command: Sequence[str], cwd: Path, times: int) -> float:
    return statistics.median(run_ragc(command, cwd)[0] for _ in range(times))


def time_answers(questions: Sequence[str], cwd: Path) -> list[float]:
    """Return the seconds of each answer, asked of one process line by line."""
    _, printed = run_ragc(["ask", VERSION, "--json"], cwd, "\n".join(questions) + "\n")
    return [orjson.loads(line)["usage"]["seconds"] for line in printed.splitlines()]


def read_rows(file: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in file.read_bytes().splitlines()]


def time_best(run: Callable[[], Any], times: int) -> float:
    """Return the milliseconds of the quickest run."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        found.append(1000 * (time.perf_counter() - began))
    return min(found)


def measure_verbs(folder: Path, quick: bool) -> Iterator[Figure]:
    times, n = (2, 8) if quick else (7, 32)
    labelled = read_rows(folder / "data" / EXAMPLE / "labelled.jsonl")
    answers = max((folder / "artifacts" / EXAMPLE / "versions").glob("v*/reviewed.jsonl"))
    reviewed = {one["question"] for one in read_rows(answers)}  # their answers are given again, and nothing is searched
    asked = [one["question"] for one in labelled if one["split"] == "train"]
    questions = [question for question in asked if question not in reviewed][:n]
    ask = ["ask", VERSION, questions[0]]
    yield figure("ragc --help, seconds", time_median(["--help"], folder, times), "<= 0.4", times)
    first, _ = run_ragc(ask, folder)
    yield figure("first answer over knowledge that no index was made of, seconds", first, "<= 8", 1)
    yield figure("first answer of a process, seconds", time_median(ask, folder, times), "<= 8", times)
    index = time_median(["index", f"data/{EXAMPLE}"], folder, times)
    yield figure("ragc index, nothing changed, seconds", index, "reported", times)
    fresh, known = (statistics.median(time_answers(questions, folder)[1:]) for _ in range(2))
    yield figure("next answer, its passages never read before, seconds, median", fresh, "reported", len(questions) - 1)
    yield figure("next answer, seconds, median", known, "<= 0.15", len(questions) - 1)


def measure_registry(folder: Path, quick: bool) -> Iterator[Figure]:
    from ragc import load
    from ragc.optimize.registry.versions import list_versions, publish_version
    from ragc.serve.reference import resolve

    root, runs, versions = folder / "artifacts", 3 if quick else 7, 200 if quick else 1000
    sealed = resolve(VERSION, root)
    load(VERSION, artifacts=root)  # what is read once for a process is not the version's own time
    loading = time_best(lambda: load(VERSION, artifacts=root), runs)
    yield figure("to load the compiled example, ms", loading, "<= 150", runs, digits=1)
    fields = {name: sealed.section(name) for name in ("program", "models", "points", "data", "scores")}
    for _ in range(versions):
        publish_version("many", fields, {"program.json": b"{}"}, root)
    listing = time_best(lambda: list_versions("many", root), runs)
    yield figure(f"to list {versions:,} versions, ms", listing, f"<= {versions / 2:g}", runs, digits=1)


def measure(quick: bool) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as place:
        for name in ("data", "artifacts"):
            leave = shutil.ignore_patterns(".ragc")
            shutil.copytree(ROOT / name / EXAMPLE, Path(place) / name / EXAMPLE, ignore=leave)
        yield from measure_verbs(Path(place), quick)
        yield from measure_registry(Path(place), quick)


if __name__ == "__main__":
    run_benchmark(__doc__, measure)
