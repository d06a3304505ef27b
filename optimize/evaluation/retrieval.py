"""How well search finds what it should, on a set in BEIR's layout or the project's own questions."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragc.errors import DataError
from ragc.knowledge.index.build import Advance, build_index
from ragc.knowledge.index.fusion import STRATEGIES, name_copies
from ragc.knowledge.library import Library
from ragc.knowledge.project import Project
from ragc.models.embedded.encoder import shared_embedder
from ragc.optimize.labelled.dataset import LabelledQuestion
from ragc.optimize.labelled.formats import read_beir
from ragc.settings import DocumentsSettings

BASE = "corpus"
DEPTHS = (2, 5, 8, 10)  # ranks of the stable figures: R@2, R@5, all@8 and nDCG@10


@dataclass(frozen=True, slots=True)
class SearchSet:
    """Questions by id, and by question the grade, above 0, of each passage that answers it, by its whole id."""

    questions: Mapping[str, str]
    judged: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Ranked:
    """The ids found for one question, best first, its judged passages, and the time with query embedding."""

    ids: Sequence[str]
    judged: Mapping[str, float]
    milliseconds: float


def read_judged(folder: Path) -> SearchSet:
    """Read the questions that the test of a set in BEIR's layout judges.

    Raises `DataError` when there is none.
    """
    beir = read_beir(folder, "test")
    questions = {id_: row["text"] for id_, row in beir.queries.items() if id_ in beir.judged}
    if not questions:
        raise DataError(f"No question of {folder} is judged in qrels.", "Give each a line: question, passage, 1.")
    place = f"{BASE}/{beir.corpus.name}#"
    return SearchSet(questions, {id_: {place + key: n for key, n in own.items()} for id_, own in beir.judged.items()})


def build_search_set(questions: Sequence[LabelledQuestion], passages: Iterable[str]) -> SearchSet:
    """Return the questions whose evidence is all among the ids of passages.

    Raises `DataError` when there is none.
    """
    known = set(passages)
    judged = {q.id: dict.fromkeys(q.evidence, 1.0) for q in questions if q.evidence and known.issuperset(q.evidence)}
    if not judged:
        mend = "List the ids with: ragc index PROJECT --list; or name a set with --beir."
        raise DataError("No labelled question names evidence in documents.", mend)
    return SearchSet({q.id: q.question for q in questions if q.id in judged}, judged)


def open_beir(project: Project, corpus: Path, progress: Advance | None = None) -> Library:
    """Open a set's corpus under the project's settings, indexed once.

    Raises `KnowledgeError` when the corpus cannot be read.
    """
    place = project.private / "beir" / hashlib.sha256(str(corpus.resolve()).encode()).hexdigest()[:16]
    bases = {BASE: DocumentsSettings(path=str(corpus))}
    embedder = shared_embedder(project.settings.models.embed)
    build_index(bases, place, embedder, progress, project.settings)
    return Library.open(bases, place, embedder, settings=project.settings)


def rank_questions(
    library: Library, labelled: SearchSet, strategy: str = "auto", k: int = max(DEPTHS), progress: Advance | None = None
) -> list[Ranked]:
    """Return the best `k` passages of every question in the document bases."""
    weight, graph = STRATEGIES[strategy]
    sources = list(dict.fromkeys(passage.source for passage in library.passages()))
    library.embedder.encode([BASE])  # loads the model, which is no question's cost
    first = name_copies(library.passages())
    ranked = []
    for n, (id_, question) in enumerate(labelled.questions.items(), 1):
        began = time.perf_counter()
        found = library.search(question, sources, k=k, weight=weight, graph=graph)
        elapsed = 1000 * (time.perf_counter() - began)
        judged = {first.get(key, key): gain for key, gain in labelled.judged[id_].items()}
        ranked.append(Ranked([first[p.id] for p in found], judged, elapsed))
        if progress:
            progress(n, len(labelled.questions))
    return ranked


def measure_rankings(ranked: Sequence[Ranked], strategy: str, depths: Sequence[int] = DEPTHS) -> dict[str, Any]:
    """Return the shape of `ragc eval --search --json`, further depths added."""
    recalls = {k: [recall_at_k(r, k) for r in ranked] for k in {*DEPTHS, *depths}}
    recall = {k: _round_mean(values) for k, values in recalls.items()}
    complete = {k: _round_mean([float(value == 1) for value in values]) for k, values in recalls.items()}
    found: dict[str, Any] = {"strategy": strategy, "n": len(ranked), "R@2": recall[2], "R@5": recall[5]}
    found |= {"all@8": complete[8], "nDCG@10": _round_mean([ndcg_at_k(r, 10) for r in ranked])}
    for k in sorted(set(depths) - set(DEPTHS)):
        found |= {f"R@{k}": recall[k], f"all@{k}": complete[k]}
    half, most = np.percentile([r.milliseconds for r in ranked], (50, 95), method="inverted_cdf")
    return found | {"p50_ms": round(float(half), 2), "p95_ms": round(float(most), 2)}


def recall_at_k(ranked: Ranked, k: int) -> float:
    """Return the share of the judged passages among the best `k`."""
    return len(ranked.judged.keys() & set(ranked.ids[:k])) / len(ranked.judged)


def ndcg_at_k(ranked: Ranked, k: int) -> float:
    """Return nDCG in [0, 1] (Järvelin and Kekäläinen 2002, eq. 2)."""
    gains = [ranked.judged.get(id_, 0.0) for id_ in ranked.ids[:k]]
    ideal = sorted(ranked.judged.values(), reverse=True)[:k]
    return _discount_gains(gains) / _discount_gains(ideal)


def _discount_gains(gains: Sequence[float]) -> float:
    return math.fsum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))


def _round_mean(values: Sequence[float]) -> float:
    return round(math.fsum(values) / len(values), 4)
