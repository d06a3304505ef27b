"""How often the piece that is quoted first states what is asked, of all pieces of the eight passages found.

    python benchmarks/first_piece.py [--quick] [--json]

On train and dev of the shipped example, and squad2 of RAGC_DATASETS. Three orders are compared: the bare score of the
reader's best answer in a piece; the prior that the reader's card holds; and weights fitted on the labels of some
topics, tried on questions of the others.

`fit_prior` fits that prior, before any label of a project:

1. Each question of a held-out file searches the file's passages by the cosine of sentence vectors.
2. Every piece of the FOUND best is a case; it is right where it holds one of the question's answers.
3. The pieces of a question compete in one softmax with "none of them", over what the reader made of their passages.
4. The logits are calibrated in that softmax as the loop weighs them: less what the subjects of rivals take from each.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from figures import ROOT, Figure, figure, find_datasets, run_benchmark

from ragc import open_program
from ragc.knowledge.project import Project
from ragc.loop.evidence import rank_pool
from ragc.loop.policy import Policy
from ragc.loop.state import Find
from ragc.loop.subjects import count_strange, find_subject
from ragc.models.embedded.encoder import Embedder
from ragc.models.embedded.features import BLOCKS, Case, EvidenceText, FeatureSpace, Vector
from ragc.models.embedded.heads import FAR, Head, calibrate_competing, fit_statement
from ragc.models.embedded.reader import Reader
from ragc.optimize.compiler.record import Record
from ragc.optimize.compiler.runs.replay import Replay
from ragc.optimize.labelled.dataset import read_labelled
from ragc.optimize.labelled.imports import import_set
from ragc.optimize.reader.examples import ReadingExample
from ragc.text.facts import states
from ragc.text.pieces import split_pieces

EXAMPLE = ROOT / "data" / "tallowgate"
FOUND = 8  # passages of a question
SIZES, DRAWS = (60, 120, 200), 4  # labelled questions that weights are fitted on, and how often they are drawn
QUICK, FEW = 60, 30  # questions of a set, and of them to fit weights on
MOST = 300  # questions of a file that the prior is fitted on

Score = Callable[[Vector], float]


@dataclass(frozen=True, slots=True)
class Asked:
    """A labelled question with its pieces: what is read of each, and how many of the facts it states."""

    question: str
    topic: str
    simple: bool
    facts: int
    rows: Sequence[Vector]
    stated: Sequence[int]

    def first(self, score: Score) -> int:
        """Return how many facts the piece of the highest score states."""
        return self.stated[int(np.argmax([score(row) for row in self.rows]))]


def collect(project: Project, most: int | None) -> Iterator[Asked]:
    """Yield the questions of train and dev that facts or an abstention are labelled of."""
    program = open_program(project)
    reader, embedder = program.runtime.models.reader, program.runtime.models.embedder
    replay, space = Replay(program, Record()), FeatureSpace.from_cases([])
    tuning = replace(program.policy.tuning(), k=FOUND)
    labelled = [one for one in read_labelled(project.labelled, project.folder) if one.split != "test"]
    wanted = [one for one in labelled if one.alternatives or one.outcome == "abstain"]
    for one in wanted[:: max(1, len(wanted) // most)] if most else wanted:
        pool = rank_pool(replay.reply(Find(one.question, program.sources)) or [], tuning)
        cases = [
            Case(one.question, (EvidenceText(passage.title, passage.text),), (one.question, piece.text))
            for passage in pool
            for piece in split_pieces(passage.text)
        ]
        if cases:
            rows = [blocks["statement"] for blocks in space.compute_blocks(cases, embedder, reader)]
            stated = [sum(states(case.texts[1], forms) for forms in one.alternatives) for case in cases]
            facts = len(one.alternatives)
            yield Asked(one.question, one.cluster, one.route in (None, "simple"), facts, rows, stated)


def fit(asked: Sequence[Asked], prior: Head) -> Head:
    """Return the weights that the labels of some questions give."""
    rows = [{"statement": row} for one in asked for row in one.rows]
    labels = [int(count > 0) for one in asked for count in one.stated]
    return fit_statement(rows, labels, [one.question for one in asked for _ in one.rows], prior)


def score_by(head: Head) -> Score:
    """Return a head's logit as a score."""
    return lambda row: float(head.calibrated_logits({"statement": row})[0])


def measure_set(name: str, project: Project, quick: bool) -> Iterator[Figure]:
    """Yield how often the first piece states a fact and all of them, and what labels add."""
    prior = Head.from_arrays(open_program(project).runtime.models.reader.priors["statement"])
    every = list(collect(project, QUICK if quick else None))
    bare: Score = lambda row: float(row[0])  # noqa: E731
    simple = [one for one in every if one.simple and one.facts]
    for order, score in (("bare score", bare), ("prior", score_by(prior))):
        first = [(one.first(score), one.facts) for one in simple]
        any_fact, all_facts = (float(np.mean([hit(*pair) for pair in first])) for hit in (_states_any, _states_all))
        yield figure(f"{name} the first piece by the {order} states a fact", any_fact, "reported", len(first))
        yield figure(f"{name} the first piece by the {order} states all facts", all_facts, "reported", len(first))
    topics = sorted({one.topic for one in every})
    for size in (FEW,) if quick else SIZES:
        gains = []
        for draw in range(DRAWS):
            order = np.random.default_rng(draw).permutation(topics).tolist()
            taught: list[Asked] = []
            while order and len(taught) < size:
                topic = order.pop()
                taught += [one for one in every if one.topic == topic]
            held = [one for one in every if one.topic in order and one.facts]
            if held:
                score = score_by(fit(taught, prior))
                gains.append(np.mean([(one.first(score) > 0) - (one.first(bare) > 0) for one in held]))
        if gains:
            title = f"{name} labels of {size} questions over the bare score, other topics"
            yield figure(title, float(np.mean(gains)), "> 0", len(gains))


def _states_any(stated: int, facts: int) -> bool:
    return stated > 0


def _states_all(stated: int, facts: int) -> bool:
    return stated == facts


def fit_prior(reader: Reader, files: Sequence[Sequence[ReadingExample]], embedder: Embedder) -> dict[str, Any]:
    """Return the arrays of a head as lists, by name."""
    rows: list[dict[str, Any]] = []
    labels: list[int] = []
    groups: list[str] = []
    lost: list[float] = []
    weight = Policy().tuning().subject
    for n, examples in enumerate(files):
        passages = [EvidenceText(*one) for one in dict.fromkeys((one.title, one.text) for one in examples)]
        vectors = embedder.encode([one.embedded for one in passages])
        for one in examples[:: max(1, len(examples) // MOST)]:
            near = np.argsort(-(vectors @ embedder.encode([one.question])[0]), kind="stable")[:FOUND]
            of = [(passages[i], piece) for i in near for piece in split_pieces(passages[i].text)]
            cases = [Case(one.question, (passage,), (one.question, piece.text)) for passage, piece in of]
            rows += [
                {"statement": blocks["statement"]}
                for blocks in FeatureSpace.from_cases([]).compute_blocks(cases, embedder, reader)
            ]
            labels += [int(any(answer in case.texts[1] for answer in one.answers)) for case in cases]
            groups += [f"{n} {one.question}"] * len(cases)
            subjects = tuple(find_subject(passage.title, piece) for passage, piece in of)
            lost += [weight * count for count in count_strange(one.question, subjects)]
    found = fit_statement(rows, labels, groups, make_flat_head(rows, "statement"))
    logits = np.array([found.calibrated_logits(row)[0] for row in rows])
    _, asked = np.unique(groups, return_inverse=True)
    slope, shift = calibrate_competing(logits, np.array(labels, bool), asked, np.array(lost))
    calibration = np.array([slope * found.calibration[0], slope * found.calibration[1] + shift], np.float32)
    return dump_head(replace(found, calibration=calibration))


def make_flat_head(rows: Sequence[Mapping[str, Any]], block: str) -> Head:
    """Return a head that scales a block as these rows are spread, and weighs nothing."""
    x = np.stack([row[block] for row in rows])
    return Head(
        blocks=np.array([BLOCKS.index(block)], np.uint8),
        mean=x.mean(0),
        scale=(1 / (FAR * np.maximum(x.std(0), 1e-6))).astype(np.float32),
        weights=np.zeros((x.shape[1], 1), np.float32),
        bias=np.zeros(1, np.float32),
        calibration=np.array([1, 0], np.float32),
        classes=np.array([0, 1], np.int32),
        n=np.array([len(rows)], np.int32),
    )


def dump_head(head: Head) -> dict[str, Any]:
    """Return the arrays of a head as a card holds them."""
    return {name: np.round(array.astype(float), 5).tolist() for name, array in vars(head).items()}


def measure(quick: bool) -> Iterator[Figure]:
    """Yield the figures of the example, and of squad2 where it is at hand."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / EXAMPLE.name
        shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns(".ragc"))
        yield from measure_set(EXAMPLE.name, Project.open(folder), quick)
        for found in [] if quick else find_datasets("squad2"):
            import_set(Path(place) / found.name, found)
            yield from measure_set(found.name, Project.open(Path(place) / found.name), quick)


if __name__ == "__main__":
    run_benchmark(__doc__, measure)
