"""How long the registry keeps people waiting: loading a version of 200 demonstrations, listing 1,000 versions.

    python benchmarks/registry.py [--quick] [--json]

The version that is loaded is of a made-up project of forty pages, with 200 demonstrations of eight passages in
each predictor that learns from examples; what is timed is `load`, from the reference to a program that can be
asked, once the libraries are imported and the project is indexed. What is listed is 1,000 sealed versions with
manifests as large as a compile writes. The best of several runs counts: the rest is the machine's other work.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
from figures import Figure, figure, show

from optimize.labelled.split import question_digest
from optimize.registry import versions as registry
from program import load, open_program
from program.loop.policy import read_setting
from program.loop.rag import AgenticRAG
from program.serve.artifact import describe_structure, export_files

DEMONSTRATIONS, VERSIONS, PAGES = 200, 1000, 40
TOML = """name = "shop"
artifacts = "artifacts"

[knowledge.product]
path = "knowledge"
about = "kettles and what they are made of"
asks = ["How much water does the kettle hold?"]
"""


def timed(name: str, run: Callable[[], Any], limit: float, times: int) -> list[Figure]:
    """Milliseconds of the quickest run, and of processor time in it: on a busy machine the two differ."""
    wall, busy = [], []
    for _ in range(times):
        began, began_busy = time.perf_counter(), time.process_time()
        run()
        wall.append(1000 * (time.perf_counter() - began))
        busy.append(1000 * (time.process_time() - began_busy))
    return [
        figure(f"ms {name}", min(wall), f"<= {limit:g}", times, digits=1),
        figure(f"ms of processor time {name}", min(busy), "reported", times, digits=1),
    ]


def made_up_project(folder: Path) -> AgenticRAG:
    """A project of forty pages, its program shown 200 demonstrations wherever it learns from them."""
    (folder / "knowledge").mkdir(parents=True)
    (folder / "ragc.toml").write_text(TOML, encoding="utf-8")
    for n in range(PAGES):
        text = f"# Kettle {n}\n## Capacity\nKettle {n} holds {n / 10 + 0.5:.1f} litres.\n"
        (folder / "knowledge" / f"kettle-{n}.md").write_text(text, encoding="utf-8")
    program = open_program(folder)
    passages = [
        {"n": n, "base": "product", "title": f"Kettle {n}", "text": f"Kettle {n} holds {n / 10:.1f} litres. " * 6}
        for n in range(1, 9)
    ]
    for _, predictor in program.named_predictors():
        if predictor.signature.output_fields.keys() & {"relevant", "sufficient", "route"}:
            predictor.demos = [demonstration(predictor, n, passages) for n in range(DEMONSTRATIONS)]
    return program


def demonstration(predictor: dspy.Predict, n: int, passages: list[dict[str, Any]]) -> dspy.Example:
    """The n-th made-up example for a predictor."""
    values: dict[str, Any] = dict.fromkeys(predictor.signature.input_fields, passages)
    values |= {name: f"Does kettle {n} hold {n / 7:.1f} litres?" for name in values if name in {"question", "claim"}}
    values |= {name: passages[n % 8] for name in values if name == "passage"}
    values |= {name: bool(n % 2) for name in predictor.signature.output_fields}
    if "route" in values:
        values["route"] = ("direct", "simple", "complex")[n % 3]
    return dspy.Example(**values).with_inputs(*predictor.signature.input_fields)


def sealed_fields(program: AgenticRAG, folder: Path) -> dict[str, Any]:
    """A manifest's fields, as a compile on 200 questions writes them."""
    models = program.runtime.models
    questions = sorted(question_digest(f"question {n}") for n in range(DEMONSTRATIONS))
    scores = {name: {"value": 0.5, "ci": [0.4, 0.6], "n": 100} for name in ("utility", "correct", "wrong", "tokens")}
    return {
        "program": {"structure": describe_structure(program)},
        "models": {**models.names.model_dump(), "embedder": models.embedder.digest},
        "knowledge": {"project": os.path.relpath(folder, folder / "artifacts")},
        "points": {point: read_setting(program) for point in ("quality", "balanced", "economy")},
        "data": {"train": {"n": DEMONSTRATIONS, "sha256": "0" * 64, "questions": questions}},
        "scores": {**scores, "plain": scores},
    }


def loading(folder: Path, runs: int) -> tuple[list[Figure], dict[str, Any]]:
    program = made_up_project(folder)
    program("How much water does kettle 7 hold?")  # fits the heads that are sealed with it
    fields = sealed_fields(program, folder)
    files = export_files(program)
    ref = registry.publish_version("shop", fields, files, folder / "artifacts")
    load(ref, artifacts=folder / "artifacts")  # what is read once for a process is not the version's own time
    megabytes = sum(map(len, files.values())) / 2**20
    name = f"to load a version of {DEMONSTRATIONS} demonstrations ({megabytes:.1f} MB)"
    return timed(name, lambda: load(ref, artifacts=folder / "artifacts"), 150, runs), fields


def listing(root: Path, fields: dict[str, Any], versions: int, runs: int) -> list[Figure]:
    for _ in range(versions):
        registry.publish_version("shop", fields, {"program.json": b"{}"}, root)
    return timed(
        f"to list {versions:,} versions", lambda: registry.list_versions("shop", root), 500 * versions / VERSIONS, runs
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="under a minute: 200 versions, three runs of each")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    runs = 3 if options.quick else 7
    with tempfile.TemporaryDirectory() as place:
        loaded, fields = loading(Path(place) / "shop", runs)
        listed = listing(Path(place) / "many", fields, VERSIONS // 5 if options.quick else VERSIONS, runs)
    show([*loaded, *listed], options.json)


if __name__ == "__main__":
    main()
