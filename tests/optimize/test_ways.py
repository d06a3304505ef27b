"""Whole ways of answering: what a compile finds where the program as it is loses."""

import json
import random

from ragc import load
from ragc.knowledge.project import Project
from ragc.optimize.compiler.compile import compile_project

FIRST = "Mira Jorn Alva Teun Sanne Bram Ilse Koen Lotte Pim Fenna Wout Greet Daan Roos Lars Tess Joep Noor Siem".split()
SYLLABLES = "var dal mer lo ska ren ho vik tun bro lin mar el stad fjo ras".split()


def write_links(folder, people):
    """A project in which a person's page names a town, and the town's page how many live there; both are asked for."""
    rng, made = random.Random(7), set[str]()
    while len(made) < people:
        made.add("".join(rng.sample(SYLLABLES, 3)).title())
    (folder / "docs").mkdir(parents=True)
    lines = []
    for n, town in enumerate(sorted(made)):
        name, lived = f"{FIRST[n % len(FIRST)]} {'Berg Holm'.split()[n // len(FIRST)]}", str(1_207 + 311 * n)
        (folder / "docs" / f"person{n}.md").write_text(
            f"# {name}\n\n{name} is a retired walker. The walker was born in {town} and has three sisters.\n"
        )
        (folder / "docs" / f"town{n}.md").write_text(
            f"# {town}\n\n{town} lies on the coast. At the last census it had a population of {lived}.\n"
        )
        row = {
            "id": f"q{n}",
            "question": f"What was the population of the place where {name} was born?",
            "answer": f"It had a population of {lived}.",
            "facts": [lived],
            "evidence": [f"docs/person{n}.md#{name.lower().replace(' ', '-')}", f"docs/town{n}.md#{town.lower()}"],
            "sources": ["docs"],
            "route": "complex",
            "outcome": "answered",
        }
        lines.append(json.dumps(row))
    (folder / "labelled.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "ragc.toml").write_text(
        'name = "links"\n[knowledge.docs]\nkind = "documents"\npath = "docs"\nabout = "people and places"\n'
    )
    return Project.open(folder)


def test_questions_whose_answers_lie_two_pages_apart_are_looked_up_as_a_whole(tmp_path):
    project = write_links(tmp_path / "links", 40)
    compiled = compile_project(project)
    assert compiled.gain.verdict == "better"
    policy = load("links@v2", artifacts=project.artifacts).policy.tuning()
    assert (policy.k, policy.ground, policy.decompose) == (2, 0, 0)
