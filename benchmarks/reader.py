"""How well the packaged reader reads, and how fast: answerable or not, which passage answers, where the answer stands.

    python benchmarks/reader.py [--quick] [--json]

On the public sets of RAGC_DATASETS. `answers` is the logit that the passage answers, `margin` the best span's score
over no answer, `sum` the first and half the second. Labelled pairs: how often an answerable question is above an
unanswerable one (AUC over all pairs of them), and whether the best span is an answer (SQuAD's normalisation) or stands
in a sentence that holds one. Search: the eight passages that `auto` finds, how often one that answers is above one that
does not, the mean over questions that found both. Speed: made-up passages of 200 tokens.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from dspy.evaluate.metrics import normalize_text
from figures import Figure, figure, find_datasets, run_benchmark

from ragc.knowledge.project import Project
from ragc.models.embedded.encoder import THREADS
from ragc.models.embedded.reader import Reader, Reading
from ragc.optimize.cli.project import TOML
from ragc.optimize.evaluation.retrieval import open_beir, rank_questions, read_judged
from ragc.optimize.reader.examples import ReadingExample, measure_reader, read_examples
from ragc.text.pieces import split_pieces

SCORES = ("answers", "margin", "sum")
DEPTH = 8  # passages that search returns
PASSAGES, TOKENS = 64, 200  # timed, and of each
ROUNDS = 3
QUICK = 40  # questions of a set


def measure_pairs(name: str, examples: Sequence[ReadingExample], reader: Reader) -> Iterator[Figure]:
    answered = [one for one in examples if one.answers]
    found = measure_reader(reader, examples)
    for score in SCORES:
        title = f"{name} answerable above unanswerable, AUC by {score}"
        yield figure(title, found[f"auc_{score}"], "reported", len(examples))
    yield figure(f"{name} best span is an answer", found["exact"], "reported", len(answered))
    held = np.mean([holds_answer(one, reader) for one in answered])
    yield figure(f"{name} sentence around the best span holds an answer", float(held), "reported", len(answered))


def holds_answer(one: ReadingExample, reader: Reader) -> bool:
    """Return whether the piece of the text that the best span begins in holds an answer."""
    (found,) = reader.read(one.question, [(one.title, one.text)])
    around = [piece.text for piece in split_pieces(one.text) if piece.start <= found.span[0] < piece.end]
    return any(normalize_text(answer) in normalize_text(text) for text in around for answer in one.answers)


def read_pairs(folder: Path) -> list[ReadingExample]:
    """Return a set's questions, each with the passage that it was asked about."""
    corpus, queries = (
        [json.loads(line) for line in (folder / f"{name}.jsonl").read_bytes().splitlines()]
        for name in ("corpus", "queries")
    )
    passages = {row["_id"]: row for row in corpus}
    shown = [(row["text"], row["metadata"], passages[row["metadata"]["context_id"]]) for row in queries]
    return [ReadingExample(q, passage["title"], passage["text"], tuple(told["answers"])) for q, told, passage in shown]


def measure_search(folder: Path, quick: bool, reader: Reader) -> Iterator[Figure]:
    """Which of the passages that search found answers."""
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / "ragc.toml").write_text(TOML.format(name="reader", path="docs", gap=" "), encoding="utf-8")
        library = open_beir(Project.open(made), folder / "corpus.jsonl")
        labelled = read_judged(folder)
        ranked = rank_questions(library, labelled, k=DEPTH)
        passages = {passage.id: (passage.title, passage.text) for passage in library.passages()}
    shares = []
    for question, one in list(zip(labelled.questions.values(), ranked, strict=True))[: QUICK if quick else None]:
        right = np.array([id_ in one.judged for id_ in one.ids])
        if right.any() and not right.all():
            read = reader.read(question, [passages[id_] for id_ in one.ids])
            shares.append([compare(scores[right], scores[~right]) for scores in list_scores(read)])
    for score, share in zip(SCORES, np.mean(shares, axis=0), strict=True):
        name = f"{folder.name} a passage that answers above others of {DEPTH}, by {score}"
        yield figure(name, float(share), "reported", len(shares))


def list_scores(read: Sequence[Reading]) -> np.ndarray:
    answers, margins = np.array([(one.answers, one.margin) for one in read]).T
    return np.stack([answers, margins, answers + margins / 2])


def compare(high: np.ndarray, low: np.ndarray) -> float:
    """Return how often a score of the first is above one of the second, a tie counted half."""
    above = high[:, None] - low[None, :]
    return float(((above > 0) + 0.5 * (above == 0)).mean())


def measure_speed(quick: bool) -> Iterator[Figure]:
    passages = [("", f"{n} " + "word " * (TOKENS - 1)) for n in range(PASSAGES)]
    Reader().read("Which word?", passages[:1])  # loads the model
    for threads in (1, 2):
        os.environ[THREADS] = str(threads)
        times = []
        for _ in range(1 if quick else ROUNDS):
            reader = Reader()  # that has read nothing
            began = time.perf_counter()
            reader.read("Which word?", passages)
            times.append(1000 * (time.perf_counter() - began) / PASSAGES)
        name = f"ms a passage of {TOKENS} tokens, {threads} thread{'s'[: threads - 1]}"
        yield figure(name, float(np.median(times)), "reported", PASSAGES)
    os.environ[THREADS] = "1"


def measure(quick: bool) -> Iterator[Figure]:
    reader = Reader()
    yield from measure_speed(quick)
    for folder in find_datasets("reading", "squad2", *(() if quick else ("hotpotqa",))):
        if folder.name != "hotpotqa":
            pairs = read_pairs(folder) if folder.name == "squad2" else read_examples(folder / "dev.jsonl")
            yield from measure_pairs(folder.name, pairs[: 2 * QUICK if quick else None], reader)
        if folder.name != "reading":
            yield from measure_search(folder, quick, reader)


if __name__ == "__main__":
    run_benchmark(__doc__, measure)
