"""What other processes do to an index: kill its writer, read it while it is written, write it at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from word_embedder import WordEmbedder

from program.knowledge.index.build import build_index, open_index
from program.knowledge.ingest.folder import BaseSpec

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

WRITE = """
import sys
from pathlib import Path
from word_embedder import WordEmbedder
from program.knowledge.index import build, store
from program.knowledge.ingest import folder as ingest
from program.knowledge.ingest.folder import BaseSpec

stop_at, knowledge, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])

def halt(*_):
    print("halted", flush=True)
    sys.stdin.read()

if stop_at == "embedding":
    WordEmbedder.encode = halt
elif stop_at == "anywhere":
    import filelock, markdown_it, safetensors.numpy, scipy.sparse  # so that the time goes to indexing
    print("started", flush=True)
elif stop_at != "nowhere":  # just before one of the steps of writing
    setattr(ingest if stop_at == "parse_file" else store, stop_at, halt)
report = build.build_index([BaseSpec("x", path=knowledge)], folder, WordEmbedder())
print(report.index_digest, report.unchanged, flush=True)
"""

READ = """
import sys, time
from pathlib import Path
from word_embedder import WordEmbedder
from program.knowledge.ingest.folder import BaseSpec
from program.knowledge.library import Library

seen = set()
print("ready", flush=True)
stop = Path(sys.argv[2]) / "stop"
while not stop.exists():
    library = Library.open([BaseSpec("x", path=".")], sys.argv[1], WordEmbedder())
    found = library.search("door lock", k=100)
    generation = {p.text for p in found}
    assert len(found) == 6 and len({t.split()[-1] for t in generation}) == 1, generation
    seen |= {t.split()[-1] for t in generation}
print(sorted(seen))
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def fill(knowledge: Path, version: str) -> None:
    knowledge.mkdir(exist_ok=True)
    for n in range(6):
        aside = knowledge / f".{n}.new"
        aside.write_text(f"# Door {n}\n\nThe lock of door {n} has version {version}\n")
        aside.replace(knowledge / f"{n}.md")


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("stop_at", ["parse_file", "embedding", "write_index", "publish_index", "set_current"])
def test_killing_the_writer_leaves_the_last_index_and_the_next_run_completes(tmp_path: Path, stop_at: str) -> None:
    knowledge, folder = tmp_path / "knowledge", tmp_path / "index"
    base = [BaseSpec("x", path=knowledge)]
    fill(knowledge, "v1")
    first = build_index(base, folder, WordEmbedder())
    fill(knowledge, "v2")
    writer = start(WRITE, stop_at, knowledge, folder)
    assert line(writer) == "halted"
    writer.send_signal(signal.SIGKILL)
    writer.communicate()

    assert open_index(folder, WordEmbedder()).index_digest == first.index_digest
    second = build_index(base, folder, WordEmbedder())
    assert not second.unchanged
    index = open_index(folder, WordEmbedder())
    assert {p.text.split()[-1] for p in index.passages} == {"v2"}
    assert not list(folder.glob("aside-*"))


def test_killing_the_writer_at_any_moment_leaves_an_index_that_opens(tmp_path: Path) -> None:
    knowledge, folder = tmp_path / "knowledge", tmp_path / "index"
    fill(knowledge, "v0")
    build_index([BaseSpec("x", path=knowledge)], folder, WordEmbedder())
    for attempt, seconds in enumerate((0.005, 0.01, 0.02, 0.04, 0.06, 0.1), 1):
        fill(knowledge, f"v{attempt}")
        writer = start(WRITE, "anywhere", knowledge, folder)
        assert line(writer) == "started"
        time.sleep(seconds)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        index = open_index(folder, WordEmbedder())
        assert len(index.passages) == 6
        assert len({p.text.split()[-1] for p in index.passages}) == 1


def test_two_processes_read_whole_indexes_while_a_third_writes(tmp_path: Path) -> None:
    knowledge, folder = tmp_path / "knowledge", tmp_path / "index"
    base = [BaseSpec("x", path=knowledge)]
    fill(knowledge, "v0")
    build_index(base, folder, WordEmbedder())
    readers = [start(READ, folder, tmp_path) for _ in range(2)]
    assert [line(r) for r in readers] == ["ready", "ready"]
    for n in range(1, 13):
        fill(knowledge, f"v{n}")
        build_index(base, folder, WordEmbedder())
        time.sleep(0.05)
    (tmp_path / "stop").write_text("")
    for reader in readers:
        told, _ = reader.communicate(timeout=60)
        assert reader.returncode == 0
        assert len(json.loads(told.replace("'", '"'))) > 1  # it met more than one index


def test_two_writers_at_once_make_one_index(tmp_path: Path) -> None:
    knowledge, folder = tmp_path / "knowledge", tmp_path / "index"
    fill(knowledge, "v1")
    writers = [start(WRITE, "nowhere", knowledge, folder) for _ in range(2)]
    told = sorted(w.communicate(timeout=60)[0].split() for w in writers)
    assert told[0][0] == told[1][0]
    assert [t[1] for t in told] == ["False", "True"]
    assert open_index(folder, WordEmbedder()).index_digest == told[0][0]
