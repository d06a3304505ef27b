"""How well a reader reads: whether it tells answerable questions from others, and finds the answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from dspy.evaluate.metrics import normalize_text

from optimize.reader.examples import ReadingExample
from program.models.embedded.reader import Reader


def measure_reader(reader: Reader, examples: Sequence[ReadingExample]) -> dict[str, float]:
    """Return how a reader does on labelled questions, as it is served.

    `exact` is the share of answerable questions whose best span is an answer in SQuAD's normal form; `auc_answers`,
    `auc_margin` and `auc_sum` how often an answerable question is above an unanswerable one by that score, the sum
    being `answers` and half the margin. Without unanswerable questions there is `exact` alone.
    """
    from sklearn.metrics import roc_auc_score

    read = reader.read_pairs([(one.question, (one.title, one.text)) for one in examples])
    right = [
        normalize_text(one.text[slice(*found.span)]) in {normalize_text(answer) for answer in one.answers}
        for one, found in zip(examples, read, strict=True)
    ]
    answered = np.array([bool(one.answers) for one in examples])
    answers, margins = np.array([(found.answers, found.margin) for found in read]).T
    figures = {"exact": float(np.mean(np.array(right)[answered]))}
    if not answered.all():
        for name, scores in (("answers", answers), ("margin", margins), ("sum", answers + margins / 2)):
            figures[f"auc_{name}"] = float(roc_auc_score(answered, scores))
    return figures
