"""How well the local decider decides: CLINC150, and sufficiency of passages.

    python benchmarks/decider.py [--quick] [--json]

CLINC150 (20 examples an intent as demonstrations): accuracy on in-scope requests together with recall of out-of-scope
ones. The weight on the out-of-scope option is chosen out of fold on the training examples, never on the requests that
are scored. Sufficiency: whether five passages hold all that a multi-hop question needs, cross-validated with both
sides of a question in one fold.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from figures import Figure, figure, find_datasets, run_benchmark
from numpy.typing import NDArray

from ragc.models.embedded.decider import LocalDecider
from ragc.models.embedded.encoder import shared_embedder
from ragc.models.embedded.reader import shared_reader
from ragc.signatures import Sufficiency

Floats = NDArray[np.float64]
Rows = list[dict[str, Any]]
OUT_OF_SCOPE = "oos"
WEIGHTS = [round(2 ** (n / 3), 3) for n in range(24)]
FOLDS = 5


def read_lines(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def measure_intents(folder: Path, quick: bool, decider: LocalDecider) -> Iterator[Figure]:
    train, scored = read_lines(folder / "train.jsonl"), read_lines(folder / "dev.jsonl")
    labels = sorted({row["label"] for row in train} - {OUT_OF_SCOPE})[:: 5 if quick else 1]
    options = [*labels, OUT_OF_SCOPE]
    train, scored = ([row for row in rows if row["label"] in options] for rows in (train, scored))
    weight = choose_weight(train, options, decider)
    began = time.perf_counter()
    score_options([train[0]["text"]], train, options, decider)
    seconds = time.perf_counter() - began
    table = score_options([row["text"] for row in scored], train, options, decider)
    truth = np.array([row["label"] for row in scored])
    right, out = pick_options(table, options, weight) == truth, truth == OUT_OF_SCOPE
    name = f"clinc150 ({len(labels)} intents)"
    yield figure(f"{name} in-scope accuracy", float(right[~out].mean()), ">= 0.9", int((~out).sum()))
    yield figure(f"{name} out-of-scope recall", float(right[out].mean()), ">= 0.87", int(out.sum()))
    yield figure(f"{name} seconds to fit", seconds, "<= 60", len(train))


def score_options(texts: Sequence[str], train: Rows, options: Sequence[str], decider: LocalDecider) -> Floats:
    """Return probabilities of shape (texts, options)."""
    criteria = {label: label.replace("_", " ") for label in options}
    put = {"intent": {"type": "choice", "instructions": "What the request is for.", "criteria": criteria}}
    demos = [{"text": row["text"], "intent": row["label"]} for row in train]
    answers = [decider({"inputs": {"text": text}, "demos": demos}, put)["intent"] for text in texts]
    return np.array([list(answer["probabilities"].values()) for answer in answers])


def pick_options(table: Floats, options: Sequence[str], weight: float) -> NDArray[np.str_]:
    """Return the option of most weighted probability in each row."""
    weights = np.array([weight if option == OUT_OF_SCOPE else 1.0 for option in options])
    return np.array(options)[(table * weights).argmax(1)]


def choose_weight(train: Rows, options: Sequence[str], decider: LocalDecider) -> float:
    """Return the out-of-scope weight of largest accuracy plus recall, out of fold."""
    rows = sorted(train, key=lambda row: row["label"])
    tables, truth = [], []
    for fold in range(3):
        shown = [row for n, row in enumerate(rows) if n % 3 != fold]
        tables.append(score_options([row["text"] for row in rows[fold::3]], shown, options, decider))
        truth += [row["label"] for row in rows[fold::3]]
    table, labels = np.vstack(tables), np.array(truth)
    out = labels == OUT_OF_SCOPE

    def add_both(weight: float) -> float:
        right = pick_options(table, options, weight) == labels
        return float(right[~out].mean() + right[out].mean())

    return max(WEIGHTS, key=add_both)


def measure_sufficiency(folder: Path, quick: bool, decider: LocalDecider) -> Iterator[Figure]:
    shown = [
        {
            "question": row["question"],
            "passages": [{"n": n, "title": p["title"], "text": p["text"]} for n, p in enumerate(row["context"], 1)],
            "sufficient": row["label"] == "sufficient",
        }
        for row in read_lines(folder / "dev.jsonl")
    ]
    truth = np.array([one["sufficient"] for one in shown], np.float64)
    found = [cross_validate(shown, seed, decider) for seed in range(1 if quick else 4)]
    accuracy, auc, error, surest = np.array([score_probabilities(p, truth) for p in found]).mean(0)
    n = len(shown)
    yield figure("sufficiency accuracy", accuracy, ">= 0.72", n)
    yield figure("sufficiency AUC", auc, ">= 0.78", n)
    yield figure("sufficiency expected calibration error", error, "<= 0.06", n)
    yield figure("sufficiency accuracy on the surest half", surest, ">= 0.85", n // 2)


def cross_validate(shown: Rows, seed: int, decider: LocalDecider) -> Floats:
    questions = sorted({one["question"] for one in shown})
    random.Random(seed).shuffle(questions)
    fold_of = {question: n % FOLDS for n, question in enumerate(questions)}
    desc = Sufficiency.output_fields["sufficient"].json_schema_extra["desc"]
    put = {"sufficient": {"type": "noul", "instructions": desc}}
    found = np.zeros(len(shown))
    for fold in range(FOLDS):
        demos = [one for one in shown if fold_of[one["question"]] != fold]
        for n, one in enumerate(shown):
            if fold_of[one["question"]] == fold:
                inputs = {"question": one["question"], "passages": one["passages"]}
                found[n] = decider({"inputs": inputs, "demos": demos}, put)["sufficient"]["noul"]
    return found


def score_probabilities(p: Floats, truth: Floats) -> tuple[float, float, float, float]:
    """Return accuracy, AUC, calibration error over ten equal bins (Naeini et al. 2015), accuracy on the surest half."""
    right = (p >= 0.5) == (truth == 1)
    surest = np.argsort(-np.abs(p - 0.5), kind="stable")[: len(p) // 2]
    above = p[truth == 1][:, None] - p[truth == 0][None, :]
    auc = float(((above > 0) + 0.5 * (above == 0)).mean())
    bins = np.array_split(np.argsort(p, kind="stable"), 10)
    error = sum(abs(p[b].mean() - truth[b].mean()) * len(b) for b in bins) / len(p)
    return float(right.mean()), auc, float(error), float(right[surest].mean())


def measure(quick: bool) -> Iterator[Figure]:
    parts = {"sufficiency": measure_sufficiency, "clinc150": measure_intents}
    for folder in find_datasets(*parts):
        yield from parts[folder.name](folder, quick, LocalDecider(shared_embedder(), shared_reader()))


if __name__ == "__main__":
    run_benchmark(__doc__, measure)
