"""What people reviewed: who gets a reviewed answer, who must not, and what it costs a question.

    python benchmarks/reviewed.py [--quick] [--json]

Rewordings: the project in `sandpilots` has 8 documents, 65 labelled questions and 7 reviews of answers that were wrong.
It is compiled as `ragc compile` does by default; then each question is asked in three other wordings that no compile
saw, and in one that looks alike and asks for something else. Look-alikes, which need RAGC_DATASETS: of each pair one
question is reviewed and the other asked. Half of the pairs are vague questions beside their twins, of `reading` and of
the example; in the other half one thing of a question of `reading` is changed. Time: the example's program with 1,000
reviewed answers and without any, in turn. `--quick` compiles nothing and times few questions.
"""

from __future__ import annotations

import copy
import json
import random
import re
import shutil
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from figures import ROOT, Figure, figure, find_datasets, run_benchmark
from small_projects import EXAMPLE, open_example, read_rows, write_beir

from ragc.answer import Answer
from ragc.knowledge.project import Project
from ragc.loop.rag import AgenticRAG
from ragc.loop.reviewed import LEAST_SAME, SAME, Review, see_sources, write_answer
from ragc.optimize.compiler.compile import compile_project
from ragc.optimize.labelled.dataset import LabelledQuestion, read_labelled
from ragc.optimize.labelled.imports import import_set
from ragc.optimize.labelled.reviewed import seal_answers
from ragc.serve.opening import open_latest, open_program
from ragc.text.facts import states
from ragc.text.history import Asked

SANDPILOTS = ROOT / "benchmarks" / "sandpilots"
PAIRS = {"vague": 50, "example": 50, "name": 40, "opposite": 25, "number": 15, "year": 10, "denied": 10}
HELD, ASKED = 1000, 200  # reviewed answers, and questions that are timed
OPPOSITES = """monthly/yearly month/year week/day hour/day minimum/maximum least/most earliest/latest first/last
    before/after open/close begin/end summer/winter morning/evening weekend/weekday new/old adult/child arrive/leave
    start/end buy/sell above/below sunday/saturday male/female driver/passenger longer/shorter"""
VERB = re.compile(r"\b(?:can|may|must|do|does|is|are) (?:I|we|you|they|it)\b", re.IGNORECASE)
CELL = re.compile(r"^\| *([^|]+?) *\|", re.MULTILINE)


class Pair(NamedTuple):
    """A reviewed question with its answer, and one that only looks like it."""

    kind: str
    known: LabelledQuestion
    asked: str


def is_right(answer: Answer, facts: Sequence[Any]) -> bool:
    """Tell whether an answer states what is asked for; without any fact, whether it states nothing."""
    if not facts:
        return answer.outcome != "answered"
    return answer.outcome == "answered" and all(states(answer.text, fact) for fact in facts)


def measure_rewordings(folder: Path) -> Iterator[Figure]:
    shutil.copytree(SANDPILOTS, folder, ignore=shutil.ignore_patterns("questions.jsonl", ".ragc", "artifacts"))
    rows = read_rows(SANDPILOTS / "questions.jsonl")
    own = {row["id"]: {key: row[key] for key in ("id", "question", "outcome", "facts", "evidence")} for row in rows}
    labels = [json.dumps(label) + "\n" for id_, label in own.items() if id_.startswith("label")]
    (folder / "labelled.jsonl").write_text("".join(labels), encoding="utf-8")
    project = Project.open(folder)
    program = open_program(project)
    before = ask_all(program, rows)
    for row in rows:
        if row["id"].startswith("review"):
            noted = Review(at="2026-05-05T09:00:00+00:00", seen=see_sources(row["evidence"], program.runtime.library))
            write_answer(project, {**own[row["id"]], "reviewed": noted.model_dump(mode="json")})
    compile_project(project)
    compiled = open_latest(folder)
    after = ask_all(compiled, rows)
    same = compiled.runtime.reviewed.same
    yield figure("probability from which the compile gives reviewed answers", same, "reported", len(rows))
    for kind, bar in (("rewordings", ">= 0.9"), ("look-alikes", "reported")):
        for when, found in (("before labelling", before), ("compiled", after)):
            right = [is_right(one, facts) for _, one, facts in found[kind]]
            limit = bar if found is after else "reported"
            yield figure(f"{kind} right, {when}", statistics.mean(right), limit, len(right))
    given = {kind: [one.reviewed is not None for _, one, _ in found] for kind, found in after.items()}
    yield figure("rewordings given a reviewed answer", statistics.mean(given["rewordings"]), "reported", 3 * len(rows))
    yield figure("look-alikes given a reviewed answer", statistics.mean(given["look-alikes"]), "reported", len(rows))
    wrong = [one.reviewed is not None and not is_right(one, facts) for _, one, facts in after["look-alikes"]]
    yield figure("look-alikes given one that is wrong", statistics.mean(wrong), "<= 0.01", len(rows))
    for kind, ways in given.items():
        worse = [
            question
            for (question, was, facts), (_, one, _) in zip(before[kind], after[kind], strict=True)
            if is_right(was, facts) and not is_right(one, facts)
        ]
        yield figure(f"{kind} right before and not after", len(worse), "<= 0", len(ways))


def ask_all(program: AgenticRAG, rows: Iterable[dict[str, Any]]) -> dict[str, list[tuple[str, Answer, list[Any]]]]:
    """Return each rewording and look-alike with its answer and its facts."""
    asked: dict[str, list[tuple[str, list[Any]]]] = {"rewordings": [], "look-alikes": []}
    for row in rows:
        asked["rewordings"] += [(question, row["facts"]) for question in row["rewordings"]]
        asked["look-alikes"].append((row["alike"]["question"], row["alike"]["facts"]))
    return {kind: [(one, program(one), facts) for one, facts in found] for kind, found in asked.items()}


def measure_alike(folder: Path) -> Iterator[Figure]:
    rng = random.Random(0)
    example = open_program(EXAMPLE)
    found = [(example, Project.open(EXAMPLE), pair) for pair in pair_example()]
    for reading in find_datasets("reading"):
        sets = {
            "vague": pick_vague(rng, reading / "vague.jsonl"),
            "changed": pick_changed(rng, [reading / "invented_dev.jsonl", reading / "subject_dev.jsonl"]),
        }
        for name, own in sets.items():
            import_set(folder / name, write_beir(dict(enumerate(row for _, row, _ in own)), folder / f"{name}-beir"))
            project = Project.open(folder / name)
            labelled = {one.question: one for one in read_labelled(project.labelled, project.folder)}
            program = open_program(project)
            for kind, row, asked in own:
                known = labelled[row["question"]]
                if row.get("vague"):
                    known = known.model_copy(update={"outcome": "clarify", "answer": ", ".join(row["options"]) + "?"})
                found.append((program, project, Pair(kind, known, asked)))
    for same in (SAME, LEAST_SAME):
        given = [(pair.kind, gives(program, project, pair, same)) for program, project, pair in found]
        rate = statistics.mean(one for _, one in given)
        yield figure(f"look-alikes given the answer of their pair, from {same} on", rate, "<= 0.01", len(given))
        for kind in dict.fromkeys(kind for kind, _ in given):
            of = [one for of, one in given if of == kind]
            yield figure(f"... {kind}, from {same} on", statistics.mean(of), "reported", len(of))


def gives(program: AgenticRAG, project: Project, pair: Pair, same: float) -> bool:
    """Tell whether a question is given the answer of its pair, which is all that was reviewed."""
    library = program.runtime.library
    held = program.runtime.reviewed.sealed_with(seal_answers([pair.known], project, library), same)
    if not held.list_answers():
        raise ValueError(f"nothing of {pair.known.id} was sealed")
    return held.find(Asked(pair.asked), library) is not None


def pair_example() -> Iterator[Pair]:
    """Yield vague questions of the example beside their twins, either of them asked."""
    rows = read_labelled(EXAMPLE / "labelled.jsonl")
    twins = [row for row in rows if "twin" in row.tags and row.outcome == "answered"]
    beside = []
    for vague in (row for row in rows if row.outcome == "clarify" and row.answer):
        near = max(twins, key=lambda one: (one.topic == vague.topic, compare_words(one.question, vague.question)))
        beside.append((compare_words(near.question, vague.question), vague, near))
    beside = sorted(beside, key=lambda one: -one[0])[: PAIRS["example"]]
    for n, (_, vague, twin) in enumerate(beside):
        yield Pair("example", *((twin, vague.question) if n % 2 else (vague, twin.question)))


def compare_words(first: str, other: str) -> float:
    """Return the share of the words of both that both have."""
    one, two = (set(re.findall(r"\w+", text.lower())) for text in (first, other))
    return len(one & two) / len(one | two)


def pick_vague(rng: random.Random, file: Path) -> list[tuple[str, dict[str, Any], str]]:
    """Return vague questions beside their twins, either of them asked: kind, reviewed row and asked question."""
    by_pair: dict[str, list[dict[str, Any]]] = {}
    for row in read_rows(file):
        by_pair.setdefault(row["pair"], []).append({**row, **row["passages"][0], "answerable": not row["vague"]})
    pairs = rng.sample(list(by_pair.values()), PAIRS["vague"])
    ways = [(one, two) if n % 2 else (two, one) for n, (one, two) in enumerate(pairs)]
    return [("vague", known, other["question"]) for known, other in ways]


def pick_changed(rng: random.Random, files: Iterable[Path]) -> list[tuple[str, dict[str, Any], str]]:
    """Return questions in which one thing is changed, each once: kind, reviewed row and asked question."""
    rows = [row for file in files for row in read_rows(file) if row["answerable"]]
    rng.shuffle(rows)
    found, used = [], set[str]()
    for kind in list(PAIRS)[2:]:
        for row in rows:
            if len([one for one in found if one[0] == kind]) == PAIRS[kind]:
                break
            changed = "" if row["question"] in used else change_one(kind, row)
            if changed:
                used.add(row["question"])
                found.append((kind, row, changed))
    return found


def change_one(kind: str, row: dict[str, Any]) -> str:
    """Return a question in which one thing is changed, or "" where there is none of its kind."""
    question = row["question"]
    swaps: list[tuple[str, str]] = []
    if kind == "name":
        keys = [key for key in CELL.findall(row["context"])[2:] if len(key) > 2]
        swaps = list(zip(keys, keys[1:] + keys[:1], strict=True)) if len(set(keys)) > 1 else []
    elif kind == "opposite":
        pairs = [pair.split("/") for pair in OPPOSITES.split()]
        swaps = [(a, b) for a, b in pairs] + [(b, a) for a, b in pairs]
    elif kind == "number":
        swaps = [(number, str(int(number) + 1)) for number in re.findall(r"(?<![\w.,])\d{1,3}(?![\w.,]\d)", question)]
    elif kind == "year":
        years = re.findall(r"\b20\d\d\b", question)
        return question.replace(years[0], str(int(years[0]) - 1)) if years else question.rstrip(" ?") + " in 2019?"
    elif kind == "denied":
        swaps = [(words, f"{words} not") for words in VERB.findall(question)]
    for old, new in swaps:
        changed = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, question, count=1, flags=re.IGNORECASE)
        if changed.lower() != question.lower():
            return changed
    return ""


def measure_time(folder: Path, n: int) -> Iterator[Figure]:
    project = open_example(folder)  # nothing is read there yet
    program = open_program(project)
    library = program.runtime.library
    labelled = read_labelled(EXAMPLE / "labelled.jsonl")
    asked = [one.question for one in labelled if one.split == "test" and not one.history][:n]
    rest = [one for one in labelled if one.question not in asked and not one.history]
    lines = seal_answers(rest, project, library).splitlines()
    rows = [json.loads(line) for line in lines]
    rows += [{**row, "id": f"{row['id']}-again", "question": f"Please: {row['question']}"} for row in rows]
    sealed = "".join(json.dumps(row) + "\n" for row in rows[:HELD]).encode()
    ways = {"without": copy.copy(program), "with": copy.copy(program)}
    ways["with"].runtime = replace(program.runtime, reviewed=program.runtime.reviewed.sealed_with(sealed, SAME))
    ways["without"].runtime = replace(program.runtime, reviewed=None)
    held = ways["with"].runtime.reviewed
    yield figure("reviewed answers held", len(held.list_answers()), ">= 1000", 1)
    held.find(Asked("What is held?"), library)  # the vectors of the questions
    first, given, seconds = [], 0, {"without": [], "with": []}
    for question in asked:
        began = time.perf_counter()
        given += held.find(Asked(question), library) is not None
        first.append(time.perf_counter() - began)
    for number, question in enumerate(asked):
        best = {}
        turns = list(ways) if number % 2 else list(ways)[::-1]
        for way in turns:
            ways[way](question)  # reads what is kept
        for way in turns:
            times = []
            for _ in range(3):
                began = time.perf_counter()
                ways[way](question)
                times.append(time.perf_counter() - began)
            best[way] = min(times)
        for way, one in best.items():
            seconds[way].append(one)
    medians = {way: 1000 * statistics.median(times) for way, times in seconds.items()}
    for way, median in medians.items():
        yield figure(f"ms of a question {way} reviewed answers, median", median, "reported", len(asked))
    yield figure("their difference", medians["with"] - medians["without"], "<= 2", len(asked))
    added = [1000 * (one - other) for one, other in zip(seconds["with"], seconds["without"], strict=True)]
    yield figure("ms that they add to a question, median", statistics.median(added), "reported", len(asked))
    median = 1000 * statistics.median(first)
    yield figure("ms of looking for a reviewed answer the first time, median", median, "reported", len(asked))
    yield figure("of these given one", given, "reported", len(asked))


def measure(quick: bool) -> Iterator[Figure]:
    with TemporaryDirectory() as place:
        if not quick:
            yield from measure_rewordings(Path(place) / "sandpilots")
        yield from measure_alike(Path(place))
        yield from measure_time(Path(place) / "example", 20 if quick else ASKED)


if __name__ == "__main__":
    run_benchmark(__doc__, measure)
