"""The registry under many processes, kills and hostile names: real processes, really killed."""

import multiprocessing
import os
import random
import signal
import sys
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragc.errors import GateError, RagcError, VersionError
from ragc.optimize.registry import versions as registry
from ragc.optimize.registry.aliases import promote_version, read_history
from ragc.optimize.registry.retention import collect_garbage
from ragc.serve import reference

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked and killed")


def publish(root, name="helpdesk"):
    return registry.publish_version(name, {}, {"program.json": b"{}"}, root)


def fork(target, *args):
    process = multiprocessing.get_context("fork").Process(target=target, args=args)
    process.start()
    return process


def publish_often(root, times):
    for _ in range(times):
        publish(root)


def test_sixteen_processes_publish_four_hundred_distinct_numbers(tmp_path):
    for process in [fork(publish_often, tmp_path, 25) for _ in range(16)]:
        process.join(120)
    numbers = [reference.version_number(version) for version in reference.find_versions(tmp_path, "helpdesk")]
    assert numbers == list(range(1, 401))


def work_until_killed(root, name):
    """Publishes, promotes and collects, over and over."""
    while True:
        promote_version(publish(root, name), "production", root=root)
        publish(root, name)
        collect_garbage(2, name, force=True, root=root)


def test_a_hundred_kills_leave_no_partial_version_and_no_torn_alias(tmp_path):
    root, rng = tmp_path / "artifacts", random.Random(0)
    for _ in range(10):
        processes = [fork(work_until_killed, root, f"name{n}") for n in range(10)]
        deadline = time.monotonic() + 60
        while not all(read_history(f"name{n}", root) for n in range(10)) and time.monotonic() < deadline:
            time.sleep(0.01)
        for process in rng.sample(processes, len(processes)):
            time.sleep(rng.uniform(0, 0.02))
            os.kill(process.pid, signal.SIGKILL)
        for process in processes:
            process.join(10)
            assert process.exitcode == -signal.SIGKILL, "it was at work until it was killed"
        assert all(checked.sound for checked in registry.verify_all(root))
    assert {"name0", "name9"} <= set(reference.list_programs(root))
    for n in range(10):
        ref = publish(root, f"name{n}")
        assert registry.verify_version(ref, root).sound
        assert read_history(f"name{n}", root)
        assert not list((root / f"name{n}" / "versions").glob(".tmp-*"))


def promote_from_the_first(root, ref, told):
    try:
        told.put(promote_version(ref, "production", expect="helpdesk@v1", root=root).version)
    except GateError:
        told.put("")


def test_of_many_processes_that_expect_the_same_one_moves_the_alias(tmp_path):
    refs = [publish(tmp_path) for _ in range(9)]
    promote_version("helpdesk@v1", "production", root=tmp_path)
    told = multiprocessing.get_context("fork").Queue()
    processes = [fork(promote_from_the_first, tmp_path, ref, told) for ref in refs[1:]]
    moved = [told.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(10)
    *others, version = sorted(moved)
    assert others == [""] * 7 and reference.resolve("helpdesk@production", tmp_path).version == version
    first, second = read_history("helpdesk", tmp_path)
    assert (second["from"], second["to"]) == (first["to"], version)


PIECES = ["helpdesk", "secret", "..", ".", "/", "\\", "@", "v1", "latest", "production", "~", "\0", "\n", "con", "aliases",
          "versions", "manifest.json", "sha256:", "%2e%2e", "‥", "．．", "C:", " ", "", "*", "-", "é"]  # fmt: skip


@pytest.fixture(scope="module")
def fenced(tmp_path_factory):
    """An artifacts root with one version, beside a version and a file that no reference may reach."""
    outside = tmp_path_factory.mktemp("outside")
    root = outside / "artifacts"
    promote_version(publish(root), "production", root=root)
    publish(outside / "elsewhere", "secret")
    (outside / "secret").write_text("")
    return root


def outside_of(root):
    return sorted(str(p) for p in root.parent.rglob("*") if not p.is_relative_to(root))


names = st.lists(st.sampled_from(PIECES) | st.characters(), min_size=1, max_size=6).map("".join)


@settings(max_examples=300, deadline=None)
@given(names, names)
def test_no_fuzzed_name_or_alias_reaches_or_writes_outside_the_root(fenced, name, alias):
    before = outside_of(fenced)
    with suppress(RagcError):  # what begins with a dot or a slash is a path: its caller's own choice, and no reference
        assert reference.resolve(f"{name.lstrip('./')}@{alias}", fenced).path.is_relative_to(fenced.resolve())
    for write in (lambda: publish(fenced, name), lambda: promote_version("helpdesk@v1", alias, root=fenced)):
        with suppress(VersionError):
            write()
    assert outside_of(fenced) == before
    inside = {p.parts[len(fenced.parts)] for p in fenced.rglob("*")}
    assert all(reference.is_name(part) or part in registry.GIT_FILES for part in inside)
