"""The prior of a reader: how probably a piece of a found passage states what is asked, before any label of a project.

1. Each question of a held-out file searches the file's passages by the cosine of sentence vectors.
2. Every piece of the FOUND best is a case; it is right where it holds one of the question's answers.
3. The pieces of a question compete in one softmax with "none of them", over what the reader made of their passages.
4. The logits, of questions left out, are calibrated, and moved from the files' share of answered questions to ANSWERED
   (Saerens et al. 2002, "Adjusting the outputs of a classifier to new a priori probabilities").
5. What comes out stands in the reader's card.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ragc.models.embedded.encoder import Embedder
from ragc.models.embedded.features import BLOCKS, Case, EvidenceText, FeatureSpace
from ragc.models.embedded.heads import FAR, Head, fit_statement
from ragc.models.embedded.reader import Reader
from ragc.optimize.reader.examples import ReadingExample
from ragc.text.pieces import split_pieces

FOUND = 8  # passages of a question
MOST = 300  # questions of a file
ANSWERED = 0.75  # share of a user's questions that the knowledge is taken to answer, before any label


def fit_prior(reader: Reader, files: Sequence[Sequence[ReadingExample]], embedder: Embedder) -> dict[str, Any]:
    """Return the arrays of a head as lists, by name."""
    rows: list[dict[str, Any]] = []
    labels: list[int] = []
    groups: list[str] = []
    for n, examples in enumerate(files):
        passages = [EvidenceText(*one) for one in dict.fromkeys((one.title, one.text) for one in examples)]
        vectors = embedder.encode([one.embedded for one in passages])
        for one in examples[:: max(1, len(examples) // MOST)]:
            near = np.argsort(-(vectors @ embedder.encode([one.question])[0]), kind="stable")[:FOUND]
            cases = [
                Case(one.question, (passages[i],), (one.question, piece.text))
                for i in near
                for piece in split_pieces(passages[i].text)
            ]
            rows += [
                {"statement": blocks["statement"]}
                for blocks in FeatureSpace.from_cases([]).compute_blocks(cases, embedder, reader)
            ]
            labels += [int(any(answer in case.texts[1] for answer in one.answers)) for case in cases]
            groups += [f"{n} {one.question}"] * len(cases)
    found = fit_statement(rows, labels, groups, make_flat_head(rows, "statement"))
    share = len({group for group, label in zip(groups, labels, strict=True) if label}) / len(set(groups))
    found.calibration[1] += np.log(ANSWERED / (1 - ANSWERED)) - np.log(share / (1 - share))
    return dump_head(found)


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
