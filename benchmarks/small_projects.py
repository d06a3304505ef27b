"""What a compile does to a project of few labels: the program that `ragc ask PROJECT` uses after it, on other topics.

    python benchmarks/small_projects.py [--quick] [--json]

Projects of SIZES labels are drawn from four sets, SEEDS of each size: the example's train and dev, and from
RAGC_DATASETS `squad2` and FILES of `reading`. The topics of a set that are measured on are in no project. A project is
compiled as `ragc compile` does by default. What is used afterwards is the version that was sealed unless it was worse,
else the uncompiled program, whose difference from itself is 0.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from figures import ROOT, Figure, figure, find_datasets, run_benchmark
from machines import make_project

from ragc.knowledge.project import Project
from ragc.loop.rag import AgenticRAG
from ragc.optimize.compiler.compile import compile_project
from ragc.optimize.compiler.record import Record
from ragc.optimize.compiler.runs.replay import Replay
from ragc.optimize.evaluation.evaluate import Grader
from ragc.optimize.evaluation.stats import mean_interval
from ragc.optimize.labelled.dataset import LabelledQuestion, read_labelled
from ragc.optimize.labelled.imports import import_set
from ragc.serve.opening import open_latest, open_program

EXAMPLE = ROOT / "data" / "tallowgate"
SIZES, SEEDS = (12, 20, 30, 50, 100), 5
QUICK, QUICK_SEEDS = (12, 20), 2
FILES = ("invented", "handbooks")  # of `reading`: questions on invented organisations, and on public handbooks
QUESTIONS = 500  # of such a file
MEASURED = 120  # questions on which a program is measured, of topics that no project has
WORSE = 0.02  # utility by which a project must not become worse
SHARE = 0.05  # of the projects in which it may


@dataclass(slots=True)
class Pool:
    """A set as one project: the questions that projects are drawn from, and those that all are measured on."""

    name: str
    project: Project
    drawn: Sequence[LabelledQuestion]
    held: Sequence[LabelledQuestion]

    @classmethod
    def split(cls, name: str, project: Project, most: int = MEASURED, drawn: int = SIZES[-1]) -> Pool:
        """Divide a set by topic: about `most` of its questions to be measured on, `drawn` or more to draw from."""
        questions = read_labelled(project.labelled, project.folder)
        rng = np.random.default_rng(0)
        held: list[LabelledQuestion] = []
        topics = sorted({question.cluster for question in questions})
        for topic in rng.permutation(topics):
            own = [question for question in questions if question.cluster == topic]
            if len(held) + len(own) / 2 <= most and len(held) + len(own) <= len(questions) - drawn:
                held += own
        kept = {question.id for question in held}
        return cls(name, project, [question for question in questions if question.id not in kept], held)

    def label(self, size: int, seed: int) -> None:
        """Leave of the project's labels `size` that are drawn by chance."""
        rng = np.random.default_rng([seed, size])
        chosen = [self.drawn[n] for n in sorted(rng.permutation(len(self.drawn))[:size])]
        _write_labels(self.project.labelled, chosen)

    def measure(self, program: AgenticRAG) -> dict[str, float]:
        """Return the utility of each question that is measured on."""
        grade = Grader(program, self.project.settings.utility, relevancy=False)
        answers = Replay(program, Record()).answer_all([question.asked for question in self.held])
        return {q.id: grade(q, answer).utility for q, answer in zip(self.held, answers, strict=True)}


def open_example(folder: Path) -> Project:
    """Return the shipped example with the labels of train and dev, undivided."""
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns(".ragc"))
    toml = folder / "ragc.toml"
    toml.write_text(toml.read_text().replace("../../artifacts", "artifacts"))
    project = Project.open(folder)
    questions = read_labelled(project.labelled, folder)
    _write_labels(project.labelled, [question for question in questions if question.split in ("train", "dev")])
    return project


def open_set(source: Path, folder: Path) -> Project:
    """Return a public set as a project."""
    if source.is_file():
        every = read_rows(source)
        drawn = sorted(np.random.default_rng(0).permutation(len(every))[:QUESTIONS])
        source = write_beir({n: every[n] for n in drawn}, folder.with_name(f"{folder.name}-beir"))
    import_set(folder, source)
    return Project.open(folder)


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of `reading`."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def write_beir(rows: Mapping[int, dict[str, Any]], folder: Path, pages: Sequence[dict[str, Any]] = ()) -> Path:
    """Write questions, by number, the passages that they were written on and further `pages` in BEIR's layout."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    passages = {(page["title"], page["context"]): f"p{n}" for n, page in enumerate(pages)}
    queries, qrels = [], ["query-id\tcorpus-id\tscore"]
    for n, row in rows.items():
        passage = passages.setdefault((row["title"], row["context"]), f"p{len(passages)}")
        answers = list(dict.fromkeys(answer["text"] for answer in row["answers"]))
        known = {"answers": answers, "answerable": row["answerable"]}
        queries.append({"_id": f"q{n}", "text": row["question"], "metadata": known})
        if row["answerable"]:
            qrels.append(f"q{n}\t{passage}\t1")
    corpus = [{"_id": key, "title": title, "text": text} for (title, text), key in passages.items()]
    _write_rows(folder / "corpus.jsonl", corpus)
    _write_rows(folder / "queries.jsonl", queries)
    (folder / "qrels" / "test.tsv").write_text("\n".join(qrels) + "\n")
    return folder


def compile_pool(pool: Pool, size: int, seed: int, before: dict[str, float]) -> dict[str, Any]:
    """Return what one compile came to: the mean difference in utility of what is used after it, and seconds."""
    began = time.monotonic()
    root = pool.project.artifacts
    shutil.rmtree(root, ignore_errors=True)
    pool.label(size, seed)
    done = compile_project(pool.project, seed=seed)
    took = time.monotonic() - began
    used = open_latest(pool.project.folder)
    gain = 0.0
    if used.runtime.version:
        after = pool.measure(used)
        gain = float(np.mean([after[id_] - worth for id_, worth in before.items()]))
    return {
        **{"set": pool.name, "size": size, "seed": seed, "version": used.runtime.version, "gain": gain},
        **{"stage": done.stage, "verdict": done.verdict, "held out": done.gain.difference},
        **{"settings": done.trials, "seconds": took, "all": time.monotonic() - began},
    }


def measure(quick: bool) -> Iterator[Figure]:
    """Yield how many projects became worse, stayed as they were and became better, and the mean gain."""
    rows = []
    with TemporaryDirectory() as place:
        pools = [(pool, pool.measure(open_program(pool.project))) for pool in open_pools(Path(place), quick)]
        for seed in range(QUICK_SEEDS if quick else SEEDS):
            for size in QUICK if quick else SIZES:
                for pool, before in pools:
                    rows.append(compile_pool(pool, size, seed, before))
                    print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    yield from summarize(rows)


def open_pools(folder: Path, quick: bool) -> Iterator[Pool]:
    """Yield each set as a project, indexed once for all that are drawn from it."""
    if quick:
        yield Pool.split("machines", make_project(folder / "machines", 24), 36, QUICK[-1])
        return
    openers: dict[str, Callable[[Path], Project]] = {EXAMPLE.name: open_example}
    for found in find_datasets("squad2", "reading"):
        sources = [found / f"{name}.jsonl" for name in FILES] if found.name == "reading" else [found]
        openers |= {source.stem: partial(open_set, source) for source in sources}
    for name, opener in openers.items():
        yield Pool.split(name, opener(folder / name))


def summarize(rows: Sequence[dict[str, Any]]) -> Iterator[Figure]:
    """Yield the figures of all projects, and the mean gain of each set and size."""
    gains = np.array([row["gain"] for row in rows])
    n = len(rows)
    yield figure(
        "projects that became worse by more than .02 of utility, share", float((gains < -WORSE).mean()), "<= 0.05", n
    )
    yield figure("projects within .02 of what they were, share", float((np.abs(gains) <= WORSE).mean()), "reported", n)
    yield figure("projects that became better by more than .02, share", float((gains > WORSE).mean()), "reported", n)
    yield figure(
        "projects whose version is used, share", float(np.mean([bool(r["version"]) for r in rows])), "reported", n
    )
    found = mean_interval(gains.tolist())
    yield figure("mean difference in utility", found.value, "> 0", n)
    yield figure("mean difference in utility, lower end of its interval", found.ci[0], "reported", n)
    yield figure("mean difference in utility, upper end of its interval", found.ci[1], "reported", n)
    for key in ("set", "size"):
        for value in dict.fromkeys(row[key] for row in rows):
            own = [row["gain"] for row in rows if row[key] == value]
            named = f"{value} labels" if key == "size" else value
            yield figure(f"mean difference in utility, {named}", float(np.mean(own)), "reported", len(own))
    seconds = [row["seconds"] for row in rows]
    yield figure("seconds a compile, median", float(np.median(seconds)), "reported", n)


def _write_rows(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def _write_labels(file: Path, questions: Sequence[LabelledQuestion]) -> None:
    """Write questions without their splits."""
    left_out = {"line", "split"}
    _write_rows(file, [q.model_dump(mode="json", exclude_defaults=True, exclude=left_out) for q in questions])


if __name__ == "__main__":
    run_benchmark(__doc__, measure)
