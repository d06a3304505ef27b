"""How well the local decider decides, and how fast: CLINC150, sufficiency of passages, time.

    python benchmarks/decider.py [--quick] [--json]

CLINC150 (20 examples an intent as demonstrations): accuracy on in-scope requests together with recall of
out-of-scope ones, decided as `dspy.Predict` does, which is checked on the first ten. The weight on the
out-of-scope option is chosen out of fold on the training examples, never on the requests that are scored.
Sufficiency: whether five passages hold all that a multi-hop question needs, cross-validated with both sides
of a question in one fold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import dspy
import numpy as np
from dspy.experimental import Choice
from figures import Figure, figure, show
from numpy.typing import NDArray

from program.models.embedded.decider import LocalDecider
from program.models.embedded.encoder import Embedder, shared_embedder
from program.signatures import Sufficiency

Floats = NDArray[np.float64]
OUT_OF_SCOPE = "oos"
CHECKED = 10
WEIGHTS = [round(2 ** (n / 3), 3) for n in range(24)]
FOLDS = 5
DEMONSTRATIONS = 170


def read_lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def intent_signature(labels: Sequence[str]) -> Any:
    options = tuple((label, label.replace("_", " ")) for label in labels)
    intent = dspy.OutputField(desc="What the request is for.")
    return dspy.Signature(
        {"text": (str, dspy.InputField()), "intent": (Choice.__class_getitem__(options), intent)},
        "Say what a request is for, or that it is out of scope.",
    )


def intents(folder: Path, quick: bool, embedder: Embedder) -> list[Figure]:
    """In-scope accuracy and out-of-scope recall on the development requests."""
    train, scored = read_lines(folder / "train.jsonl"), read_lines(folder / "dev.jsonl")
    labels = sorted({row["label"] for row in train} - {OUT_OF_SCOPE})[:: 5 if quick else 1]
    kept = {*labels, OUT_OF_SCOPE}
    train, scored = ([row for row in rows if row["label"] in kept] for rows in (train, scored))
    signature = intent_signature([*labels, OUT_OF_SCOPE])
    embedder.encode([row["text"] for row in [*train, *scored]])

    decider = LocalDecider(embedder)
    weight = chosen_weight(train, signature, decider)
    began = time.perf_counter()
    intent_shares([train[0]["text"]], train, signature, decider)
    seconds = time.perf_counter() - began
    table = intent_shares([row["text"] for row in scored], train, signature, decider)
    given = weighted(table, signature, weight)
    agrees = dspy.Predict(signature)
    agrees.demos = [dspy.Example(text=row["text"], intent=row["label"]) for row in train]
    agrees.fields = {"intent": {"weights": {OUT_OF_SCOPE: weight}}}
    with dspy.context(lm=decider):
        same = [agrees(text=row["text"]).intent.value for row in scored[:CHECKED]] == given[:CHECKED]
    inside = [answer == row["label"] for answer, row in zip(given, scored, strict=True) if row["label"] != OUT_OF_SCOPE]
    outside = [
        answer == row["label"] for answer, row in zip(given, scored, strict=True) if row["label"] == OUT_OF_SCOPE
    ]
    name = f"clinc150 ({len(labels)} intents)"
    return [
        figure(f"{name} in-scope accuracy", float(np.mean(inside)), ">= 0.9", len(inside)),
        figure(f"{name} out-of-scope recall", float(np.mean(outside)), ">= 0.87", len(outside)),
        figure(f"{name} same answers through dspy.Predict", float(same), ">= 1", CHECKED),
        figure(f"{name} seconds to fit", seconds, "<= 60", len(train)),
    ]


def intent_shares(texts: Sequence[str], train: list[dict[str, Any]], signature: Any, decider: LocalDecider) -> Floats:
    """Shape (texts, options). Asked of the client itself: DSPy takes longer to write 3,100 demonstrations out."""
    criteria = signature.output_fields["intent"].annotation.criteria()
    put = {"intent": {"type": "choice", "instructions": "What the request is for.", "criteria": criteria}}
    demos = [{"text": row["text"], "intent": row["label"]} for row in train]
    answers = [decider({"inputs": {"text": text}, "demos": demos}, put)["intent"] for text in texts]
    return np.array([list(answer["probabilities"].values()) for answer in answers])


def weighted(table: Floats, signature: Any, weight: float) -> list[str]:
    """The option of most weighted probability in each row, as `dspy.Predict` chooses it."""
    options = list(signature.output_fields["intent"].annotation.criteria())
    weights = np.array([weight if option == OUT_OF_SCOPE else 1.0 for option in options])
    return [options[n] for n in (table * weights).argmax(1)]


def chosen_weight(train: list[dict[str, Any]], signature: Any, decider: LocalDecider) -> float:
    """The out-of-scope option's weight of largest in-scope accuracy plus out-of-scope recall, out of fold."""
    rows = sorted(train, key=lambda row: row["label"])
    tables, truth = [], []
    for fold in range(3):
        shown = [row for n, row in enumerate(rows) if n % 3 != fold]
        tables.append(intent_shares([row["text"] for row in rows[fold::3]], shown, signature, decider))
        truth += [row["label"] for row in rows[fold::3]]
    table, labels = np.vstack(tables), np.array(truth)
    out = labels == OUT_OF_SCOPE

    def both(weight: float) -> float:
        right = np.array(weighted(table, signature, weight)) == labels
        return float(right[~out].mean() + right[out].mean())

    return max(WEIGHTS, key=both)


def sufficiency(folder: Path, quick: bool, embedder: Embedder) -> list[Figure]:
    """Accuracy, AUC, calibration, and accuracy on the surest half: means over repeated cross-validation."""
    rows = read_lines(folder / "dev.jsonl")
    decider = LocalDecider(embedder)
    shown = [
        {
            "question": row["question"],
            "passages": [{"n": n, "title": p["title"], "text": p["text"]} for n, p in enumerate(row["context"], 1)],
            "sufficient": row["label"] == "sufficient",
        }
        for row in rows
    ]
    truth = np.array([one["sufficient"] for one in shown], np.float64)
    found = [_cross_validated(shown, seed, decider) for seed in range(1 if quick else 4)]
    scored = np.array([_scores(p, truth) for p in found]).mean(0)
    rng = np.random.default_rng(0)
    perfect = np.mean([_calibration_error(p, rng.random(len(p)) < p) for p in found for _ in range(200)])
    n = len(rows)
    return [
        figure("sufficiency accuracy", scored[0], ">= 0.72", n),
        figure("sufficiency AUC", scored[1], ">= 0.78", n),
        figure("sufficiency expected calibration error", scored[2], "<= 0.06", n),
        figure("the same error, were these probabilities exactly right", float(perfect), "reported", n),
        figure("sufficiency accuracy on the surest half", scored[3], ">= 0.85", n // 2),
    ]


def _cross_validated(shown: list[dict[str, Any]], seed: int, decider: LocalDecider) -> Floats:
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


def _scores(p: Floats, truth: Floats) -> tuple[float, float, float, float]:
    right = (p >= 0.5) == (truth == 1)
    surest = np.argsort(-np.abs(p - 0.5), kind="stable")[: len(p) // 2]
    above = p[truth == 1][:, None] - p[truth == 0][None, :]
    auc = float(((above > 0) + 0.5 * (above == 0)).mean())
    return float(right.mean()), auc, _calibration_error(p, truth), float(right[surest].mean())


def _calibration_error(p: Floats, truth: NDArray[Any]) -> float:
    """Mean distance of stated from found share over ten bins of equal size (Naeini et al. 2015)."""
    bins = np.array_split(np.argsort(p, kind="stable"), 10)
    return float(sum(abs(p[b].mean() - truth[b].mean()) * len(b) for b in bins) / len(p))


def speed(quick: bool, embedder: Embedder) -> list[Figure]:
    """Seconds to fit ten fields on 170 made-up demonstrations of eight passages, and ms a decision."""
    rng = random.Random(0)
    starts, ends = ("har", "mel", "tor", "vin", "sol", "ber"), ("ton", "low", "by", "ger", "ick")
    words = [start + end for start in starts for end in ends]

    def passage(n: int) -> dict[str, Any]:
        text = f"The {' '.join(rng.choices(words, k=9))} is {rng.randrange(90)} days. " * 3
        title = " ".join(rng.choices(words, k=3)).title()
        return {"n": n, "base": f"base{n % 9}", "title": title, "text": text}

    found = [passage(n) for n in range(120)]
    fields: dict[str, dict[str, Any]] = {
        f"base_base{n}": {"type": "noul", "instructions": f"It needs base {n}."} for n in range(9)
    }
    criteria = {"direct": "No look-up.", "simple": "One fact.", "complex": "Several facts."}
    put: dict[str, dict[str, Any]] = {
        **fields,
        "route": {"type": "choice", "instructions": "How much look-up.", "criteria": criteria},
    }
    demos: list[dict[str, Any]] = []
    for n in range(DEMONSTRATIONS):
        passages = rng.sample(found, 8)
        labels = {f"base_{p['base']}": True for p in passages[:2]}
        topic = " ".join(rng.choices(passages[0]["title"].split(), k=3 + n % 3))
        demo = {"question": f"How long is the {topic}?", "passages": passages, "route": list(criteria)[n % 3]}
        demos.append(dict.fromkeys(fields, False) | demo | labels)
    asked = [
        {"question": f"Who runs the {' '.join(rng.choices(words, k=5))}?", "passages": rng.sample(found, 8)}
        for _ in range(20 if quick else 60)
    ]
    decider = LocalDecider(embedder)
    for one in (*demos, *asked):
        embedder.encode([one["question"], *(f"{p['title']}\n{p['text']}" for p in one["passages"])])
    decider({"inputs": asked[0], "demos": demos[:12]}, put)  # loads what is loaded once

    def timed(run: Callable[[], Any]) -> float:
        began = time.perf_counter()
        run()
        return time.perf_counter() - began

    fitting = timed(lambda: decider({"inputs": asked[0], "demos": demos}, put))
    one = {"base_base0": fields["base_base0"]}
    times = [timed(partial(decider, {"inputs": inputs, "demos": demos}, one)) for inputs in asked]
    return [
        figure("seconds to fit ten fields on 170 demonstrations", fitting, "<= 3", len(demos)),
        figure("ms a decision, embedding apart", 1000 * float(np.median(times)), "<= 5", len(asked)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="under a minute: 30 intents, one cross-validation")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    embedder = shared_embedder()
    figures = speed(options.quick, embedder)
    named = os.environ.get("RAGC_DATASETS", "")
    for name, measure in (("sufficiency", sufficiency), ("clinc150", intents)):
        folder = Path(named) / name
        if named and folder.is_dir():
            figures += measure(folder, options.quick, embedder)
        else:
            print(f"{name} is left out: RAGC_DATASETS names no folder that holds it.", file=sys.stderr)
    show(figures, options.json)


if __name__ == "__main__":
    main()
