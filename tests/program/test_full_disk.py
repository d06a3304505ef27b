"""A disk that takes no more: the file is named, nothing half written stays, and what stood there stands.

The system refuses a file of more than so many bytes here, as a full disk refuses any.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragc.optimize.registry import versions as registry
from ragc.optimize.registry.retention import collect_garbage
from ragc.storage import append_row, read_json_rows, write_whole

resource = pytest.importorskip("resource")
HERE = Path(__file__).parents[2]


def run_limited(size, *arguments):
    """Run Python in a process whose files may have so many bytes."""

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    command = [sys.executable, "-B", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, cwd=HERE, timeout=120)


WRITES = """
import json, sys
from pathlib import Path
from ragc import storage
place, name, size = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
try:
    storage.write_whole(place, b"x" * size) if name == "whole" else storage.append_row(place, {"x": "x" * size})
except OSError as error:
    print(json.dumps([error.filename, str(error)]))
"""


@pytest.mark.parametrize("name", ["whole", "row"])
@given(more=st.integers(1, 3))
@settings(max_examples=3)
def test_a_write_that_is_refused_names_its_file_and_leaves_what_stood_there(tmp_path_factory, name, more):
    place = tmp_path_factory.mktemp("full") / "file.jsonl"
    append_row(place, {"first": 1})
    done = run_limited(100, "-c", WRITES, place, name, 100 + more)
    filename, text = json.loads(done.stdout)
    assert filename == str(place) and str(place) in text, done.stderr
    assert next(read_json_rows(place)) == {"first": 1} and [one.name for one in place.parent.iterdir()] == [place.name]
    append_row(place, {"last": 1})
    assert [row for row in read_json_rows(place) if row] == [{"first": 1}, {"last": 1}]
    write_whole(place, b"{}\n")


def publish(root):
    return registry.publish_version("helpdesk", {}, {"program.json": b"{}"}, root)


@pytest.mark.parametrize(
    "verb, at_fault",
    [
        (("init", "{tmp}/help"), "help/ragc.toml"),
        (("promote", "helpdesk@v1", "--to", "production", "--artifacts", "{tmp}"), "helpdesk/history.jsonl"),
    ],
    ids=["init", "promote"],
)
def test_a_verb_names_the_file_that_the_disk_refused(tmp_path, verb, at_fault):
    publish(tmp_path)
    done = run_limited(20, "-m", "ragc.optimize.cli.main", *(one.format(tmp=tmp_path) for one in verb))
    assert done.returncode == 2 and f"{tmp_path}/{at_fault}" in done.stderr and "Traceback" not in done.stderr
    assert not [*tmp_path.rglob(".tmp-*")] and registry.verify_version("helpdesk@v1", tmp_path).sound


@pytest.mark.parametrize(
    "clean", [publish, lambda root: collect_garbage(1, force=True, root=root)], ids=["publish", "gc"]
)
def test_what_a_kill_left_half_written_goes_with_the_next_write_or_gc(tmp_path, clean):
    publish(tmp_path)
    for place in ("aliases", "versions"):
        (tmp_path / "helpdesk" / place).mkdir(exist_ok=True)
        (tmp_path / "helpdesk" / place / ".tmp-production.json-1f").write_text("{")
    (tmp_path / "helpdesk" / "versions" / ".tmp-77").mkdir()
    (tmp_path / "helpdesk" / "versions" / ".tmp-77" / "program.json").write_text("{")
    collect_garbage(1, root=tmp_path)
    assert len([*tmp_path.rglob(".tmp-*")]) == 3  # without force nothing goes
    clean(tmp_path)
    assert not [*tmp_path.rglob(".tmp-*")] and all(one.sound for one in registry.verify_all(tmp_path))
