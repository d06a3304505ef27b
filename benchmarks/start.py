"""What a user waits for at the command line: help, the first answer, the next ones, an index that is there.

    python benchmarks/start.py [--quick] [--json]

Over a copy of the shipped example. The median of whole processes, from start to end, one after another; the next
answers are those of a process that is given training questions line by line, whose passages it reads for the first
time, then of a second process, which finds what the first has read.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson
from figures import Figure, figure, show

ROOT = Path(__file__).parents[1]
EXAMPLE = "tallowgate"
RAGC = [sys.executable, "-m", "optimize.cli.main"]


def seconds(command: Sequence[str], cwd: Path, given: str = "") -> tuple[float, str]:
    """How long a process took, and what it printed. Raises `CalledProcessError` when it fails."""
    began = time.monotonic()
    done = subprocess.run([*RAGC, *command], cwd=cwd, input=given, capture_output=True, text=True, check=True)
    return time.monotonic() - began, done.stdout


def median(command: Sequence[str], cwd: Path, times: int) -> float:
    return statistics.median(seconds(command, cwd)[0] for _ in range(times))


def answers(version: str, questions: Sequence[str], cwd: Path) -> list[float]:
    """The seconds of each answer, asked of one process line by line."""
    _, printed = seconds(["ask", version, "--json"], cwd, "\n".join(questions) + "\n")
    return [orjson.loads(line)["usage"]["seconds"] for line in printed.splitlines()]


def figures(folder: Path, quick: bool) -> Iterator[Figure]:
    times, n = (2, 8) if quick else (7, 40)
    for name in ("data", "artifacts"):
        shutil.copytree(ROOT / name / EXAMPLE, folder / name / EXAMPLE, ignore=shutil.ignore_patterns(".ragc"))
    lines = (folder / "data" / EXAMPLE / "labelled.jsonl").read_text().splitlines()
    questions = [one["question"] for one in map(orjson.loads, lines) if one["split"] == "train"][:n]
    version, project = f"{EXAMPLE}@latest", f"data/{EXAMPLE}"
    yield figure("ragc --help, seconds", median(["--help"], folder, times), "<= 0.4", times)
    first, _ = seconds(["ask", version, questions[0]], folder)
    yield figure("first answer over knowledge that no index was made of, seconds", first, "<= 8", 1)
    yield figure(
        "first answer of a process, seconds", median(["ask", version, questions[0]], folder, times), "<= 8", times
    )
    yield figure("ragc index, nothing changed, seconds", median(["index", project], folder, times), "reported", times)
    cold, known = (answers(version, questions, folder)[1:] for _ in range(2))
    yield figure(
        "next answer, its passages never read before, seconds, median", statistics.median(cold), "reported", n - 1
    )
    yield figure("next answer, seconds, median", statistics.median(known), "<= 0.15", n - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="each twice, eight questions")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        show(figures(Path(folder), options.quick), options.json)


if __name__ == "__main__":
    main()
