"""How well search finds what it should, on a set in BEIR's layout or the project's own questions."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optimize.labelled.dataset import LabelledQuestion
from program.errors import DataError
from program.knowledge.index.build import Advance, index_bases
from program.knowledge.index.fusion import STRATEGIES
from program.knowledge.ingest.folder import BaseSpec
from program.knowledge.library import Library, open_bases
from program.settings import Project

BASE = "corpus"
DEPTHS = (2, 5, 8, 10)
"""Ranks of the stable figures: R@2, R@5, all@8 and nDCG@10."""

Judged = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SearchSet:
    """Questions with what answers them: `judged` gives each question's passages a grade above 0."""

    questions: Mapping[str, str]
    judged: Mapping[str, Judged]
    corpus: Path | None = None
    """The file that the passages come from; None for the project's own, whose ids are whole."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One question's result: ids best first, and how long it took, query embedding included."""

    ids: Sequence[str]
    judged: Judged
    milliseconds: float


def read_beir(folder: Path, split: str = "test") -> SearchSet:
    """The set in `folder`: corpus.jsonl, queries.jsonl, qrels/<split>.tsv; questions without a judgement left out.

    Raises `DataError` for a file that is absent or malformed, or when nothing is judged.
    """
    corpus, queries, qrels = folder / "corpus.jsonl", folder / "queries.jsonl", folder / "qrels" / f"{split}.tsv"
    for path in (corpus, queries, qrels):
        if not path.is_file():
            raise DataError(f"{path} does not exist.", "BEIR's layout: corpus.jsonl, queries.jsonl, qrels/test.tsv.")
    judged: dict[str, dict[str, float]] = {}
    try:
        with qrels.open(encoding="utf-8", newline="") as file:
            for question, passage, grade in list(csv.reader(file, delimiter="\t"))[1:]:
                if float(grade) > 0:
                    judged.setdefault(question, {})[passage] = float(grade)
        with queries.open(encoding="utf-8") as file:
            rows = [json.loads(line) for line in file if line.strip()]
        questions = {str(row["_id"]): str(row["text"]) for row in rows if str(row["_id"]) in judged}
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder} is not in BEIR's layout: {error}.", "Compare it with a set from BEIR.") from error
    if not questions:
        raise DataError(f"No question of {queries} is judged in {qrels}.", "Give each a line: question, passage, 1.")
    return SearchSet(questions, judged, corpus)


def read_own(questions: Sequence[LabelledQuestion], passages: Iterable[str]) -> SearchSet:
    """The questions whose evidence is all among the ids of `passages`: what tables and live sources hold is not.

    Raises `DataError` when there is none.
    """
    known = set(passages)
    judged = {q.id: dict.fromkeys(q.evidence, 1.0) for q in questions if q.evidence and known.issuperset(q.evidence)}
    if not judged:
        raise DataError(
            "No labelled question names evidence in documents.",
            "List the ids with: ragc index PROJECT --list; or name a set with --beir.",
        )
    return SearchSet({q.id: q.question for q in questions if q.id in judged}, judged)


def open_beir(project: Project, corpus: Path, progress: Advance | None = None) -> Library:
    """A set's corpus as a library under the project's settings, indexed once and kept in its `.ragc` folder.

    Raises `KnowledgeError` when the corpus cannot be read.
    """
    place = project.private / "beir" / hashlib.sha256(str(corpus.resolve()).encode()).hexdigest()[:16]
    bases = [BaseSpec(BASE, path=corpus)]
    index_bases(project, bases, place, progress)
    return open_bases(project, bases, place)


def evaluate_search(
    library: Library, labelled: SearchSet, strategy: str = "auto", k: int = max(DEPTHS), progress: Advance | None = None
) -> list[Ranked]:
    """The best `k` passages of every question, searched one after the other in the document bases."""
    weight, graph = STRATEGIES[strategy]
    prefix = f"{BASE}/{labelled.corpus.name}#" if labelled.corpus else ""
    sources = list(dict.fromkeys(passage.source for passage in library.passages()))
    library.embedder.encode([BASE])  # loads the model, which is no question's cost
    ranked = []
    for n, (id, question) in enumerate(labelled.questions.items(), 1):
        began = time.perf_counter()
        found = library.search(question, sources, k=k, weight=weight, graph=graph)
        elapsed = 1000 * (time.perf_counter() - began)
        ranked.append(Ranked([p.id.removeprefix(prefix) for p in found], labelled.judged[id], elapsed))
        if progress:
            progress(n, len(labelled.questions))
    return ranked


def figures(ranked: Sequence[Ranked], strategy: str, depths: Sequence[int] = DEPTHS) -> dict[str, Any]:
    """The stable shape of `ragc eval-search --json`; depths beyond DEPTHS add `R@k` and `all@k`."""
    found: dict[str, Any] = {
        "strategy": strategy,
        "n": len(ranked),
        "R@2": _mean([recall(r, 2) for r in ranked]),
        "R@5": _mean([recall(r, 5) for r in ranked]),
        "all@8": _mean([float(recall(r, 8) == 1) for r in ranked]),
        "nDCG@10": _mean([ndcg(r, 10) for r in ranked]),
    }
    for k in sorted(set(depths) - set(DEPTHS)):
        found[f"R@{k}"] = _mean([recall(r, k) for r in ranked])
        found[f"all@{k}"] = _mean([float(recall(r, k) == 1) for r in ranked])
    times = sorted(r.milliseconds for r in ranked)
    return found | {"p50_ms": _quantile(times, 0.5), "p95_ms": _quantile(times, 0.95)}


def recall(ranked: Ranked, k: int) -> float:
    """The share of the judged passages among the best `k`."""
    return len(ranked.judged.keys() & set(ranked.ids[:k])) / len(ranked.judged)


def ndcg(ranked: Ranked, k: int) -> float:
    """Normalised discounted cumulated gain in [0, 1], grades as gains (Järvelin and Kekäläinen 2002, eq. 2)."""
    gains = [ranked.judged.get(id, 0.0) for id in ranked.ids[:k]]
    ideal = sorted(ranked.judged.values(), reverse=True)[:k]
    return _discounted(gains) / _discounted(ideal)


def _discounted(gains: Sequence[float]) -> float:
    return math.fsum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))


def _mean(values: Sequence[float]) -> float:
    return round(math.fsum(values) / len(values), 4)


def _quantile(ascending: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    return round(ascending[max(math.ceil(share * len(ascending)) - 1, 0)], 2)
