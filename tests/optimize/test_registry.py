"""Publishing, listing, verifying and aliases, on real folders and threads, by Python and by the command line."""

import json
import re
import shutil

import pytest

from ragc.errors import GateError, IntegrityError, VersionError
from ragc.optimize.registry import versions as registry
from ragc.optimize.registry.aliases import promote_version, read_history, roll_back
from ragc.serve import reference
from ragc.serve.manifest import open_version
from tests.optimize.conftest import invoke, publish_rows


def publish(root, worth=0.0, **fields):
    """A version of ten topics of ten questions, each worth `worth` plus its own share."""
    rows = ({"id": f"q{i}", "topic": f"t{i % 10}", "utility": worth + (i % 7) / 10} for i in range(100))
    state = json.dumps({"worth": worth}).encode()
    return publish_rows(root, rows, state, scores={"utility": {"value": worth}}, **fields)


def folder(root, ref):
    return reference.resolve(ref, root).path


@pytest.fixture
def two(tmp_path):
    """v1 and v2, compiled from it; production is v1."""
    publish(tmp_path), publish(tmp_path, 0.5, parent="helpdesk@v1")
    promote_version("helpdesk@v1", "production", root=tmp_path)
    return tmp_path


@pytest.fixture
def ragc(tmp_path):
    return lambda *args: invoke(*args, "--artifacts", tmp_path)


def test_a_published_version_is_sealed_and_numbered_and_no_number_is_used_twice(two):
    found = open_version("helpdesk@v2", two)
    assert (str(found), found.label, found.parent) == (found.full_label, "helpdesk@v2", "helpdesk@v1")
    assert re.fullmatch("v2-[0-9a-f]{8}", found.version) and found.version.endswith(found.digest[7:15])
    same = open_version(publish(two, 0.5), two)
    assert (same.content_digest, same.digest == found.digest) == (found.content_digest, False)
    folder(two, "helpdesk@v1").rename(two / "gone")
    assert (two / ".gitattributes").read_text() == "* -text\nhistory.jsonl merge=union\n"
    assert (two / ".gitignore").read_text().split() == [".lock", ".tmp-*", "exposures*.jsonl"]
    (two / ".gitignore").write_text("mine")
    assert (publish(two), (two / ".gitignore").read_text()) == ("helpdesk@v4", "mine")


def test_a_promoted_version_is_what_the_alias_names_and_history_says_why(two):
    move = promote_version("helpdesk@latest", "production", reason="better", root=two)
    assert (move.previous[:3], move.version) == ("v1-", folder(two, "helpdesk@v2").name)
    assert reference.resolve("helpdesk@production", two) == reference.resolve("helpdesk@v2", two)
    first, second = read_history("helpdesk", two)
    assert (first["alias"], first["from"], second["from"], second["to"]) == (
        "production", None, first["to"], move.version,
    )  # fmt: skip
    assert second["reason"] == "better"
    for alias in ("latest", "v7", "v7-3fa9c1d2", "../up", "", "Prod"):
        with pytest.raises(VersionError, match="cannot be an alias"):
            promote_version("helpdesk@v1", alias, root=two)
    with pytest.raises(GateError, match="not at v1-"):
        promote_version("helpdesk@v1", "production", expect="helpdesk@v1", root=two)
    promote_version("helpdesk@v1", "production", expect="helpdesk@v2", root=two)


def test_an_alias_that_is_set_to_what_it_names_already_does_not_move(ragc, two):
    promote_version("helpdesk@v2", "production", root=two)
    before = read_history("helpdesk", two)
    told = ragc("promote", "helpdesk@v2", "--to", "production", "--artifacts", two).stdout
    assert told.startswith("helpdesk@production: still v2-") and read_history("helpdesk", two) == before
    assert roll_back("helpdesk", root=two).version.startswith("v1-")


def test_rolling_back_goes_back_one_version_at_a_time(tmp_path):
    versions = [promote_version(publish(tmp_path, i), "production", root=tmp_path).version for i in range(3)]
    assert roll_back("helpdesk", root=tmp_path).version == versions[1]
    assert roll_back("helpdesk", root=tmp_path).version == versions[0]
    with pytest.raises(VersionError, match="has no earlier version"):
        roll_back("helpdesk", root=tmp_path)
    promote_version("helpdesk@v3", "production", root=tmp_path)
    assert roll_back("helpdesk", root=tmp_path).version == versions[0]
    assert [line["action"] for line in read_history("helpdesk", tmp_path)][3:5] == ["rollback", "rollback"]
    promote_version("helpdesk@v2", "production", root=tmp_path)
    alias = tmp_path / "helpdesk" / "aliases" / "production.json"
    before_the_move = alias.read_bytes()
    promote_version("helpdesk@v3", "production", root=tmp_path)
    alias.write_bytes(before_the_move)  # a line of history whose move was killed does not mislead
    assert roll_back("helpdesk", root=tmp_path).version == versions[0]
    promote_version("helpdesk@v2", "production", root=tmp_path)
    shutil.rmtree(folder(tmp_path, "helpdesk@v1"))
    with pytest.raises(VersionError, match=rf"before {versions[1]} is helpdesk@{versions[0]}, which .* was deleted"):
        roll_back("helpdesk", root=tmp_path)


def test_a_changed_version_is_neither_promoted_nor_rolled_back_to_but_a_sound_one_beside_it_is(two):
    promote_version("helpdesk@v2", "production", root=two)
    (folder(two, "helpdesk@v1") / "program.json").write_bytes(b"{}")
    for act in (lambda: promote_version("helpdesk@v1", "canary", root=two), lambda: roll_back("helpdesk", root=two)):
        with pytest.raises(IntegrityError, match=r"program\.json"):
            act()
    (folder(two, "helpdesk@v1") / "manifest.json").write_bytes(b"")
    assert promote_version("helpdesk@v2", "canary", root=two).version.startswith("v2-")


def test_the_gate_lets_a_better_version_through_and_keeps_others_out(tmp_path):
    worse, same, better, equal = (publish(tmp_path, worth) for worth in (0.0, 0.5, 0.9, 0.5))

    def promote(ref, require, **more):
        return promote_version(ref, "production", require=require, root=tmp_path, **more)

    promote_version(same, "production", root=tmp_path)
    for ref, require, more, told in (
        (worse, "better", {}, r"worse: utility -0\.500"), (worse, "no-worse", {}, r"is worse than .*worse: utility -0\.500"),
        (equal, "better", {}, "not detectably better than .*no detectable difference"),
        (same, "better", {}, "not detectably better"), (better, "better", {"min_gain": 0.5}, r"may be below \+0\.5"),
        (worse, None, {"min_gain": -0.1}, r"may be below -0\.1"),
    ):  # fmt: skip
        with pytest.raises(GateError, match=told):
            promote(ref, require, **more)
    assert reference.resolve("helpdesk@production", tmp_path).version.startswith("v2-")
    assert promote(equal, "no-worse").gate.verdict == "no_detectable_difference"
    assert promote(better, "better", min_gain=0.3).gate.verdict == "better"


NOTHING = "cannot be compared: helpdesk@staging points at nothing, and it was compiled from no version"


@pytest.mark.parametrize(
    ("ref", "alias", "require", "told"),
    [
        ("v2", "staging", "better", ""),
        ("v2", "staging", "no-worse", ""),
        ("v3", "staging", "better", "no detectable difference"),
        ("v3", "staging", "no-worse", ""),
        ("v4", "staging", "better", "worse: utility"),
        ("v4", "staging", "no-worse", "worse: utility"),
        ("v1", "staging", "better", NOTHING),
        ("v1", "staging", "no-worse", NOTHING),
        ("v5", "staging", "better", "were scored on different questions"),
        ("v3", "production", "better", ""),
        ("v4", "production", "no-worse", ""),
        ("v1", "production", "no-worse", ""),
        ("v1", "production", "better", "no detectable difference"),
    ],
)
def test_a_gate_tests_against_the_version_in_use_else_the_parent_and_refuses_where_there_is_none(
    tmp_path, ragc, ref, alias, require, told
):
    publish(tmp_path), publish(tmp_path, 0.5, parent="helpdesk@v1")
    publish(tmp_path, 0.5, parent="helpdesk@v2"), publish(tmp_path, 0.2, parent="helpdesk@v3")
    publish_rows(tmp_path, [{"id": "other", "topic": "t", "utility": 1.0}], parent="helpdesk@v1")
    promote_version("helpdesk@v1", "production", root=tmp_path)
    done = ragc("promote", f"helpdesk@{ref}", "--to", alias, "--require", require)
    assert done.exit_code == 0 if not told else str(told) in str(done.exception)
    if told and isinstance(done.exception, GateError):
        assert done.exception.exit_code == 1
    moved = alias in reference.list_aliases(tmp_path, "helpdesk") and reference.read_alias(tmp_path, "helpdesk", alias)
    assert (moved or {"version": ""})["version"].startswith(f"{ref}-") is not bool(told) or ref == "v1"


def test_every_verb_prints_one_json_document_or_something_for_people(ragc, two):
    def told(line):
        return json.loads(ragc(*line.split(), "--json").stdout)

    gated = "promote helpdesk@v2 --to production --require better"
    assert told(f"{gated} --reason gain")["gate"]["verdict"] == "better"
    assert told("rollback helpdesk")["to"].startswith("v1-")
    registry.publish_version("other", {}, {}, two)
    one, second, third = told("ls")
    assert list(one) == ["name", "version", "digest", "created_at", "aliases", "parent", "metrics", "broken"]
    assert (one["name"], one["aliases"], second["aliases"], third["name"]) == ("helpdesk", ["production"], [], "other")
    assert (second["parent"], second["metrics"]) == ("helpdesk@v1", {"utility": {"value": 0.5}})
    assert told("ls other") == [third]
    with pytest.raises(VersionError, match="Nearest: helpdesk"):
        registry.list_versions("helpdsk", two)
    assert told("show helpdesk@production")["version"] == "v1"
    assert [c["ok"] for c in told("verify --all")] == [True] * 4
    shown = {
        "ls": "utility",
        "show helpdesk": "sha256:",
        "verify helpdesk": "sound",
    }
    for line, part in {gated: "(better: utility +0.500", **shown}.items():
        assert part in ragc(*line.split()).stdout


def test_verify_tells_damage_and_lost_versions_by_its_exit_code(ragc, two):
    (folder(two, "helpdesk@v2") / "extra.json").write_bytes(b"{}")
    assert (ragc("verify", "helpdesk@v1").exit_code, ragc("verify", "helpdesk@v2").exit_code) == (0, 4)
    everything = ragc("verify", "--all", "--json")
    assert everything.exit_code == 4
    assert {c["reference"].split("-")[0]: c["ok"] for c in json.loads(everything.stdout)} == {
        "helpdesk@v1": True, "helpdesk@v2": False, "helpdesk@production": True
    }  # fmt: skip
    folder(two, "helpdesk@v1").rename(two / "gone")
    assert "which is not there" in ragc("verify", "--all", "--json").stdout


def test_a_broken_alias_is_named_and_set_again_by_promoting_but_compared_with_nothing(ragc, two):
    promote_version("helpdesk@v1", "canary", root=two)
    (two / "helpdesk" / "aliases" / "production.json").write_bytes(b"{")
    first, _, broken = json.loads(ragc("ls", "--json").stdout)
    assert first["aliases"] == ["canary"]
    assert (broken["name"], broken["version"], broken["aliases"]) == ("helpdesk", "", ["production"])
    assert "helpdesk@production is unreadable. Set it again with: ragc promote" in broken["broken"]
    for guarded in ({"require": "better"}, {"expect": "helpdesk@v1"}):
        with pytest.raises(IntegrityError, match="production is unreadable"):
            promote_version("helpdesk@v2", "production", root=two, **guarded)
    assert "nothing -> v2-" in ragc("promote", "helpdesk@v2", "--to", "production").stdout
    assert roll_back("helpdesk", root=two).version.startswith("v1-")
