"""How well a reader reads: whether it tells answerable questions from others, and finds the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
from dspy.evaluate.metrics import normalize_text

from optimize.reader.examples import ReadingExample
from program.models.embedded.reader import SPAN_TOKENS, Reader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from optimize.reader.network import ReaderNet
    from optimize.reader.pairs import PairEncoder

BATCH = 16  # pairs that are measured at once


def measure_reader(reader: Reader, examples: Sequence[ReadingExample]) -> dict[str, float]:
    """Return how a reader does on labelled questions, as it is served.

    `exact` is the share of answerable questions whose best span is an answer in SQuAD's normal form; `auc_answers`,
    `auc_margin` and `auc_sum` how often an answerable question is above an unanswerable one by that score, the sum
    being `answers` and half the margin. Without unanswerable questions there is `exact` alone.
    """
    read = reader.read_pairs([(one.question, (one.title, one.text)) for one in examples])
    right = [
        normalize_text(one.text[slice(*found.span)]) in {normalize_text(answer) for answer in one.answers}
        for one, found in zip(examples, read, strict=True)
    ]
    scores = np.array([(found.answers, found.margin) for found in read])
    return _summarise(examples, np.array(right), scores[:, 0], scores[:, 1])


def measure_weights(
    net: ReaderNet, weights: Mapping[str, Any], examples: Sequence[ReadingExample], encoder: PairEncoder
) -> dict[str, float]:
    """Return the figures of `measure_reader` for weights in training, of one window a passage, by tokens."""
    import torch

    from optimize.reader.pairs import collate

    trained = {name: net.get_parameter(name).detach().clone() for name in weights}
    net.load_state_dict(weights, strict=False)
    net.eval()
    encoded = [encoder.encode(one, Random(0)) for one in examples]
    order = sorted(range(len(encoded)), key=lambda n: len(encoded[n].ids))
    right, answering, margins = np.zeros(len(encoded), bool), np.zeros(len(encoded)), np.zeros(len(encoded))
    with torch.no_grad():
        for at in range(0, len(order), BATCH):
            rows = order[at : at + BATCH]
            start, end, answering[rows] = net.read(collate([encoded[n] for n in rows]))
            width = start.shape[1] - 1  # the first token stands for no answer
            allowed = torch.ones(width, width).triu().tril(SPAN_TOKENS - 1)
            scores = (start[:, 1:, None] + end[:, None, 1:]).masked_fill(allowed == 0, -1e4).flatten(1)
            best, places = scores.max(dim=1)
            margins[rows] = best - start[:, 0] - end[:, 0]
            spans = [(n // width + 1, n % width + 1) for n in places.tolist()]
            right[rows] = [span in encoded[n].spans for n, span in zip(rows, spans, strict=True)]
    net.load_state_dict(trained, strict=False)
    return _summarise(examples, right, answering, margins)


def _summarise(
    examples: Sequence[ReadingExample],
    right: NDArray[np.bool_],
    answers: NDArray[np.float64],
    margins: NDArray[np.float64],
) -> dict[str, float]:
    from sklearn.metrics import roc_auc_score

    answered = np.array([bool(one.answers) for one in examples])
    found = {"exact": float(right[answered].mean())}
    if not answered.all():
        for name, scores in (("answers", answers), ("margin", margins), ("sum", answers + margins / 2)):
            found[f"auc_{name}"] = float(roc_auc_score(answered, scores))
    return found
