"""Anybody's program: CLINC150 from 20 examples an intent, by a module of one signature, compiled without a key.

    python benchmarks/programs.py [--quick] [--json]

Trained on the set's train split and tested on its dev split (of the folder that RAGC_DATASETS names), `oos` one label
among the others. The metric weighs an out-of-scope request by the intents, divided by five.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import dspy
import numpy as np
from figures import Figure, figure, show

from optimize.programs.compile import compile_program

TRIALS = 10
OUT = "oos"


def measure(folder: Path, quick: bool) -> Iterator[Figure]:
    """Yield the share of right answers in scope and out of scope, and the seconds of the compile."""
    parts = (("train", "train"), ("dev", "test"))
    rows = [
        {**json.loads(line), "split": split}
        for file, split in parts
        for line in (folder / f"{file}.jsonl").read_text().splitlines()
    ]
    labels = [*sorted({row["label"] for row in rows} - {OUT})[:: 10 if quick else 1], OUT]
    kept = [{name: row[name] for name in ("text", "label", "split")} for row in rows if row["label"] in labels]

    class Intent(dspy.Signature):
        """Say what a request is for."""

        text: str = dspy.InputField()
        label: Literal[tuple(labels)] = dspy.OutputField(desc="the intent; oos when it is none of the others")  # type: ignore[valid-type]

    def metric(example: Any, prediction: Any, trace: Any = None) -> float:
        weight = len(labels) / 5 if example.label == OUT else 1.0
        return weight * float(prediction.label == example.label)

    with tempfile.TemporaryDirectory() as made:
        os.chdir(made)
        Path("clinc.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
        done = compile_program(lambda: dspy.Predict(Intent), "clinc.jsonl", metric, name="clinc", trials=TRIALS)
    for name, out, bar in (("in scope", False, ">= 0.90"), ("out of scope", True, ">= 0.87")):
        right = [g.utility > 0 for g in done.after.grades if (f"label={OUT}" in g.tags) is out]
        yield figure(f"CLINC150, right {name}", float(np.mean(right)), "reported" if quick else bar, len(right))
    yield figure("CLINC150, seconds of the compile", done.seconds, "reported", done.trials)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="every tenth intent")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not (sets := os.environ.get("RAGC_DATASETS")):
        sys.exit("RAGC_DATASETS names no folder that holds clinc150.")
    show(measure(Path(sets) / "clinc150", options.quick), options.json)


if __name__ == "__main__":
    main()
