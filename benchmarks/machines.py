"""A project on machines that do not exist: documents, and questions by template, one topic a machine."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

from ragc.knowledge.project import Project

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


def make_project(folder: Path, machines: int, seed: int = 0) -> Project:
    """A project of so many machines: two documents and three questions each. Another seed makes other machines."""
    rng = random.Random(seed)
    names = [f"{first} {last}" for last, first in itertools.product(LAST, FIRST)]
    names = (rng.sample(names, len(names)) if seed else names)[:machines]
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
