"""What is asked back, and with which options; a part of `outcomes.py`.

On sets of RAGC_DATASETS. `reading` holds vague questions on invented organisations, each beside a twin that one passage
answers; `mtrag_un` last turns of conversations, some underspecified, with the passages that a person found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from figures import Figure, figure, find_datasets

from ragc.models.embedded.decider import LocalDecider
from ragc.models.embedded.encoder import MINILM, Embedder
from ragc.models.embedded.reader import TitledText, shared_reader
from ragc.optimize.reader.vague import VAGUE, list_nearest, read_vague
from ragc.signatures import Route, words_of

FOLDS = 5
MOST_ASKED = 0.05  # of answerable questions, asked back
QUICK = 40  # questions of a set
PUT = {"vague": {"type": "noul", "instructions": words_of(Route, "vague")}}

Asked = Mapping[str, Any]


@cache
def open_decider() -> LocalDecider:
    """Return the embedded decision client."""
    return LocalDecider(Embedder(MINILM), shared_reader())


def show(question: str, texts: Sequence[TitledText]) -> Asked:
    """Return the inputs of the decision: a question and what was found."""
    return {"question": question, "glimpse": [{"title": title, "text": text} for title, text in texts]}


def decide(asked: Sequence[Asked], demos: Sequence[Asked] = ()) -> np.ndarray:
    """Return how probably each question is vague, in the light of labelled ones."""
    state = {"inputs": asked[0], "demos": demos, "input_fields": "`question` `glimpse`"}
    return np.array([reply["vague"]["noul"] for reply in open_decider().batch(state, PUT, asked)])


def score_asking(vague: np.ndarray, back: np.ndarray) -> float:
    """Return F1 of asking back."""
    return float(2 * (vague & back).sum() / max(vague.sum() + back.sum(), 1))


def measure_pairs(folder: Path, quick: bool) -> Iterator[Figure]:
    """Yield how vague questions of held-out organisations and their twins fare, without any label of theirs.

    A question is asked back when it is likelier vague than is assumed of any: over its own passages, and among the
    nearest of its organisation.
    """
    examples = read_vague(folder / "vague_dev.jsonl")
    examples = examples[:QUICK] if quick else examples
    views = {
        "their own passages": (examples, ">= 0.75", ">= 0.60"),
        "the nearest passages": (list_nearest(examples, open_decider().embedder), "reported", "reported"),
    }
    vague = np.array([one.vague for one in examples])
    for title, (shown, least, named) in views.items():
        texts: list[list[TitledText]] = [[text[:2] for text in one.texts] for one in shown]
        chances = decide([show(one.question, some) for one, some in zip(shown, texts, strict=True)])
        back = chances > VAGUE / (1 + VAGUE)
        yield figure(f"vague_dev, {title}: F1 of asking back", score_asking(vague, back), least, len(vague))
        shares = [
            np.mean([option.casefold() in found for option in one.options])
            for one, some in zip(shown, texts, strict=True)
            if one.vague
            for found in ["; ".join(open_decider().name_options(one.question, some)).casefold()]
        ]
        yield figure(f"vague_dev, {title}: labelled options named", float(np.mean(shares)), named, len(shares))


def measure_turns(folder: Path, quick: bool) -> Iterator[Figure]:
    """Yield how last turns fare, a head and its threshold taught by conversations of other folds."""
    tasks = [json.loads(line) for line in (folder / "tasks.jsonl").read_bytes().splitlines()]
    tasks = [task for task in tasks if task["contexts"]][: QUICK if quick else None]
    asked = [show(t["turns"][-1]["text"], [(c["title"] or "", c["text"]) for c in t["contexts"]]) for t in tasks]
    vague = np.array(["UNDERSPECIFIED" in task["answerability"] for task in tasks])
    answerable = np.array(["ANSWERABLE" in task["answerability"] for task in tasks])
    fold = np.array([crc32(task["id"].partition("<")[0].encode()) % FOLDS for task in tasks])
    left_out = [*((n,) for n in range(FOLDS)), *combinations(range(FOLDS), 2)]
    chances = {frozenset(left): _teach(asked, vague, np.isin(fold, left)) for left in left_out}
    back = np.zeros(len(tasks), bool)
    for n in range(FOLDS):
        inner = np.zeros(len(tasks))
        for other in set(range(FOLDS)) - {n}:
            inner[fold == other] = chances[frozenset({n, other})][fold == other]
        seen = fold != n
        back[~seen] = chances[frozenset({n})][~seen] >= _choose_threshold(inner[seen], vague[seen], answerable[seen])
    yield figure("MTRAG-UN: F1 of asking back", score_asking(vague, back), ">= 0.40", len(tasks))
    wrong = float(back[answerable].mean())
    yield figure("MTRAG-UN: answerable asked back", wrong, f"<= {MOST_ASKED}", int(answerable.sum()))


def _teach(asked: Sequence[Asked], vague: np.ndarray, left: np.ndarray) -> np.ndarray:
    demos = [{**one, "vague": bool(label)} for one, label, out in zip(asked, vague, left, strict=True) if not out]
    return decide(asked, demos)


def _choose_threshold(chances: np.ndarray, vague: np.ndarray, answerable: np.ndarray) -> float:
    """Return the threshold of the best F1 that asks few answerable questions back."""
    able = [cut for cut in np.unique(chances) if (chances[answerable] >= cut).mean() <= MOST_ASKED]
    return max(able, key=lambda cut: score_asking(vague, chances >= cut), default=1.0)


ROWS: Mapping[str, Callable[[Path, bool], Iterator[Figure]]] = {"reading": measure_pairs, "mtrag_un": measure_turns}
"""What is measured on each set."""


def measure(quick: bool) -> Iterator[Figure]:
    """Yield the figures of the sets at hand."""
    for folder in find_datasets(*ROWS):
        yield from ROWS[folder.name](folder, quick)
