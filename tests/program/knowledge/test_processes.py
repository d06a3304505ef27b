"""What other processes do to an index: kill its writer, read it while it is written, write it at once."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from word_embedder import WordEmbedder

from ragc.knowledge.index.build import build_index, open_index
from ragc.settings import DocumentsSettings

HERE = Path(__file__).parent
WRITE = """
import sys
from word_embedder import WordEmbedder
from ragc.knowledge.index import build, store
from ragc.knowledge.ingest import folder as ingest
from ragc.settings import DocumentsSettings

stop_at, knowledge, folder = sys.argv[1:]

def halt(*_):
    print("halted", flush=True)
    sys.stdin.read()

if stop_at != "nowhere":  # just before one of the steps of writing
    setattr({"parse_file": ingest, "encode": WordEmbedder}.get(stop_at, store), stop_at, halt)
report = build.build_index({"x": DocumentsSettings(path=knowledge)}, folder, WordEmbedder())
print(report.index_digest, report.unchanged, report.parsed, flush=True)
"""
READ = """
import sys
from pathlib import Path
from word_embedder import WordEmbedder
from ragc.settings import DocumentsSettings
from ragc.knowledge.library import Library

seen = set()
print("ready", flush=True)
while not Path(sys.argv[2], "stop").exists():
    found = Library.open({"x": DocumentsSettings(path=".")}, sys.argv[1], WordEmbedder()).search("door lock", k=100)
    versions = {p.text.split()[-1] for p in found}
    assert len(found) == 6 and len(versions) == 1, found
    seen |= versions
print(len(seen))
"""


def start(code, *arguments, release=HERE.parents[2]):
    path = f"{release}{os.pathsep}{HERE}"
    command, pipe = [sys.executable, "-c", code, *map(str, arguments)], subprocess.PIPE
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdin=pipe, stdout=pipe, text=True)


def line(process):
    assert process.stdout is not None
    return process.stdout.readline().strip()


class Place:
    """A folder of six files and its index."""

    def __init__(self, root):
        self.knowledge, self.folder = root / "knowledge", root / "index"

    def build(self, version):
        self.fill(version)
        build_index({"x": DocumentsSettings(path=str(self.knowledge))}, self.folder, WordEmbedder())

    def fill(self, version):
        self.knowledge.mkdir(exist_ok=True)
        for n in range(6):
            aside = self.knowledge / f".{n}.new"
            aside.write_text(f"# Door {n}\n\nThe lock of door {n} has version {version}\n")
            aside.replace(self.knowledge / f"{n}.md")

    def versions(self):
        index = open_index(self.folder, WordEmbedder())
        assert len(index.passages) == 6
        return {p.text.split()[-1] for p in index.passages}


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.mark.parametrize("stop_at", ["parse_file", "encode", "write_index", "set_current"])
def test_killing_the_writer_leaves_the_last_index_and_the_next_run_completes(place, stop_at):
    place.build("v1")
    place.fill("v2")
    writer = start(WRITE, stop_at, place.knowledge, place.folder)
    assert line(writer) == "halted"
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    assert place.versions() == {"v1"}
    place.build("v2")
    assert place.versions() == {"v2"} and not list(place.folder.glob(".tmp-*"))


def test_two_processes_read_whole_indexes_while_a_third_writes(place, tmp_path):
    place.build("v0")
    readers = [start(READ, place.folder, tmp_path) for _ in range(2)]
    assert [line(r) for r in readers] == ["ready", "ready"]
    for n in range(1, 13):
        place.build(f"v{n}")
        time.sleep(0.05)
    (tmp_path / "stop").write_text("")
    for reader in readers:
        told, _ = reader.communicate(timeout=60)
        assert reader.returncode == 0 and json.loads(told) > 1  # it met more than one index


def test_two_writers_at_once_make_one_index(place):
    place.fill("v1")
    writers = [start(WRITE, "nowhere", place.knowledge, place.folder) for _ in range(2)]
    told = sorted(w.communicate(timeout=60)[0].split() for w in writers)
    assert told[0][0] == told[1][0] == open_index(place.folder, WordEmbedder()).index_digest
    assert [t[1] for t in told] == ["False", "True"]


def write_release(folder, changed):
    """Write another release of ragc, of which one file has another text."""
    (folder / "ragc").mkdir(parents=True)
    for one in (HERE.parents[2] / "program").iterdir():
        if one.name == Path(changed).parts[0]:
            shutil.copytree(one, folder / "ragc" / one.name)
        else:
            (folder / "ragc" / one.name).symlink_to(one)
    with (folder / "ragc" / changed).open("a") as file:
        file.write("\nCHANGED = True\n")
    return folder


@pytest.mark.parametrize("changed", ["knowledge/ingest/pdf/layout.py", "text/pieces.py", "loop/decide.py", ""])
def test_files_are_read_anew_by_a_release_that_reads_otherwise_and_by_no_other(place, tmp_path, changed):
    place.build("v1")
    release = write_release(tmp_path / "release", changed) if changed else HERE.parents[2]
    told, _ = start(WRITE, "nowhere", place.knowledge, place.folder, release=release).communicate(timeout=60)
    name, unchanged, parsed = told.split()
    assert name == open_index(place.folder, WordEmbedder()).index_digest and unchanged == "True"
    assert int(parsed) == (0 if changed in ("", "loop/decide.py") else 6)
    assert int(start(WRITE, "nowhere", place.knowledge, place.folder, release=release).communicate()[0].split()[2]) == 0
