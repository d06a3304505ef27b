"""How well the local decider decides, and how fast: CLINC150, sufficiency of passages, time.

    python benchmarks/decider.py [--quick] [--json]

CLINC150 (20 examples an intent as demonstrations): accuracy on in-scope requests together with recall of
out-of-scope ones, through `dspy.Predict`. The weight on the out-of-scope option is chosen out of fold on the
training examples, never on the requests that are scored. Sufficiency: whether five passages hold all that a
multi-hop question needs, cross-validated with both sides of a question in one fold.
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
from numpy.typing import NDArray

from program.knowledge.embedder import Embedder, shared_embedder
from program.models.decider import LocalDecider
from program.signatures import Excerpt, Sufficiency

Figure = dict[str, Any]
Floats = NDArray[np.float64]
OUT_OF_SCOPE = "oos"
IN_SCOPE_BAR, OUT_OF_SCOPE_BAR = 0.90, 0.87
WEIGHTS = [round(2 ** (n / 3), 3) for n in range(24)]
FOLDS = 5
DEMONSTRATIONS = 170


def figure(name: str, value: float, bar: str, n: int) -> Figure:
    """One line of the result. A `bar` is `<= x` or `>= x`; any other only reports."""
    sign, _, limit = bar.partition(" ")
    holds = value <= float(limit) if sign == "<=" else value >= float(limit) if sign == ">=" else True
    return {"figure": name, "value": round(value, 4), "bar": bar, "holds": holds, "n": n}


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
    labels = sorted({row["label"] for row in train} - {OUT_OF_SCOPE})[:: 3 if quick else 1]
    kept = {*labels, OUT_OF_SCOPE}
    train, scored = ([row for row in rows if row["label"] in kept] for rows in (train, scored))
    signature = intent_signature([*labels, OUT_OF_SCOPE])
    embedder.encode([row["text"] for row in [*train, *scored]])

    decider = LocalDecider(embedder)
    predict = dspy.Predict(signature)
    predict.demos = [dspy.Example(text=row["text"], intent=row["label"]) for row in train]
    weight = chosen_weight(train, signature, decider)
    predict.fields = {"intent": {"weights": {OUT_OF_SCOPE: weight}}}
    with dspy.context(lm=decider):
        began = time.perf_counter()
        predict(text=train[0]["text"])
        seconds = time.perf_counter() - began
        given = [predict(text=row["text"]).intent.value for row in scored]
    pairs = [(row["label"], answer) for row, answer in zip(scored, given, strict=True)]
    right = [(label == OUT_OF_SCOPE, answer == label) for label, answer in pairs]
    inside = [yes for out, yes in right if not out]
    outside = [yes for out, yes in right if out]
    name = f"clinc150 ({len(labels)} intents)"
    return [
        figure(f"{name} in-scope accuracy", float(np.mean(inside)), f">= {IN_SCOPE_BAR}", len(inside)),
        figure(
            f"{name} out-of-scope recall", float(np.mean(outside)), f">= {OUT_OF_SCOPE_BAR}", len(outside)
        ),
        figure(f"{name} seconds to fit", seconds, "<= 60", len(train)),
    ]


def chosen_weight(train: list[dict[str, Any]], signature: Any, decider: LocalDecider) -> float:
    """The out-of-scope option's weight that leaves the worse of both figures the most room, out of fold."""
    criteria = signature.output_fields["intent"].annotation.criteria()
    put = {"intent": {"type": "choice", "instructions": "What the request is for.", "criteria": criteria}}
    rows = sorted(train, key=lambda row: row["label"])
    shares, labels = [], []
    for fold in range(3):
        demos = [{"text": r["text"], "intent": r["label"]} for n, r in enumerate(rows) if n % 3 != fold]
        for row in rows[fold::3]:
            answer = decider({"inputs": {"text": row["text"]}, "demos": demos}, put)["intent"][
                "probabilities"
            ]
            shares.append(list(answer.values()))
            labels.append(row["label"])
    options, truth = np.array(list(criteria)), np.array(labels)
    table = np.array(shares)
    out, at = truth == OUT_OF_SCOPE, list(criteria).index(OUT_OF_SCOPE)

    def room(weight: float) -> float:
        weighted = table.copy()
        weighted[:, at] *= weight
        right = options[weighted.argmax(1)] == truth
        return float(min(right[~out].mean() - IN_SCOPE_BAR, right[out].mean() - OUT_OF_SCOPE_BAR))

    return max(WEIGHTS, key=room)


def sufficiency(folder: Path, quick: bool, embedder: Embedder) -> list[Figure]:
    """Accuracy, AUC, calibration, and accuracy on the surest half: means over repeated cross-validation."""
    rows = read_lines(folder / "dev.jsonl")
    decider = LocalDecider(embedder)
    shown = [
        {
            "question": row["question"],
            "passages": [
                Excerpt(n=n, base="", title=p["title"], text=p["text"])
                for n, p in enumerate(row["context"], 1)
            ],
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
    found = np.zeros(len(shown))
    predict = dspy.Predict(Sufficiency)
    with dspy.context(lm=decider):
        for fold in range(FOLDS):
            predict.demos = [dspy.Example(**one) for one in shown if fold_of[one["question"]] != fold]
            for n, one in enumerate(shown):
                if fold_of[one["question"]] == fold:
                    reply = predict(question=one["question"], passages=one["passages"])
                    found[n] = reply.sufficient.probability
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
    """Seconds to fit ten fields on 170 demonstrations, with eight passages each, and ms a decision."""
    rng = random.Random(0)
    starts, ends = ("har", "mel", "tor", "vin", "sol", "ber"), ("ton", "low", "by", "ger", "ick")
    words = [start + end for start in starts for end in ends]

    def passage(n: int) -> dict[str, Any]:
        text = f"The {' '.join(rng.choices(words, k=9))} is {rng.randrange(90)} days. " * 3
        title = " ".join(rng.choices(words, k=3)).title()
        return {"n": n, "base": f"base{n % 5}", "title": title, "text": text}

    found = [passage(n) for n in range(120)]
    fields: dict[str, dict[str, Any]] = {
        f"base_base{n}": {"type": "noul", "instructions": f"It needs base {n}."} for n in range(9)
    }
    criteria = {"direct": "No look-up.", "simple": "One fact.", "complex": "Several facts."}
    put: dict[str, dict[str, Any]] = {
        **fields,
        "route": {"type": "choice", "instructions": "How much look-up.", "criteria": criteria},
    }
    demos: list[dict[str, Any]] = [
        {
            "question": f"How long is the {' '.join(rng.choices(words, k=5))}?",
            "passages": rng.sample(found, 8),
            **{name: rng.random() < 0.4 for name in fields},
            "route": rng.choice(list(criteria)),
        }
        for _ in range(DEMONSTRATIONS)
    ]
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="under a minute: 50 intents, one cross-validation"
    )
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
    if options.json:
        print(json.dumps(figures))
        return
    for one in figures:
        verdict = "holds" if one["holds"] else "MISSED"
        print(f"{one['figure']:<58} {one['value']:>9.4f}  {one['bar']:<9} {verdict:<7} n={one['n']}")


if __name__ == "__main__":
    main()
