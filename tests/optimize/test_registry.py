"""Publishing, aliases and their command line, on real folders, threads and processes."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import typer
from typer.testing import CliRunner

from optimize.cli import versions as cli
from optimize.registry import versions as registry
from optimize.registry.aliases import promote_version, read_history, roll_back
from program.errors import GateError, IntegrityError, VersionError
from program.serve import manifest, reference


def scores(worth):
    """Ten topics of ten questions, each worth `worth` plus its own share."""
    rows = ({"id": f"q{i}", "topic": f"t{i % 10}", "utility": worth + (i % 7) / 10} for i in range(100))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def publish(root, worth=0.0, **fields):
    files = {"program.json": json.dumps({"worth": worth}).encode(), "scores.jsonl": scores(worth)}
    return registry.publish_version("helpdesk", {"scores": {"utility": {"value": worth}}, **fields}, files, root)


def folder(root, ref):
    return reference.resolve(ref, root).path


def test_a_published_version_is_found_sealed_and_numbered(tmp_path):
    assert [publish(tmp_path), publish(tmp_path, parent="helpdesk@v1")] == ["helpdesk@v1", "helpdesk@v2"]
    found = registry.open_version("helpdesk@v2", tmp_path)
    assert (found.name, found.version, found.parent) == ("helpdesk", "v2", "helpdesk@v1")
    assert re.fullmatch("v2-[0-9a-f]{8}", found.folder.name)
    assert found.folder.name.endswith(found.digest[7:15])


def test_a_number_is_not_used_twice_when_an_earlier_version_is_gone(tmp_path):
    for _ in range(3):
        publish(tmp_path)
    folder(tmp_path, "helpdesk@v2").rename(tmp_path / "gone")
    assert publish(tmp_path) == "helpdesk@v4"


def test_git_keeps_its_hands_off_sealed_bytes(tmp_path):
    publish(tmp_path)
    assert (tmp_path / ".gitattributes").read_text() == "* -text\nhistory.jsonl merge=union\n"
    assert (tmp_path / ".gitignore").read_text().split() == [".lock", ".tmp-*", "exposures*.jsonl"]
    (tmp_path / ".gitignore").write_text("mine")
    publish(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == "mine"


@pytest.mark.parametrize("name", ["", "..", "../up", "Helpdesk", "con", "experiments", "a" * 64])
def test_a_name_that_is_no_name_is_refused(tmp_path, name):
    with pytest.raises(VersionError, match="cannot be the name"):
        registry.publish_version(name, {}, {}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_may_not_be_sealed_leaves_nothing_behind(tmp_path):
    with pytest.raises(IntegrityError):
        registry.publish_version("helpdesk", {}, {"program.pkl": b""}, tmp_path)
    assert publish(tmp_path) == "helpdesk@v1"


def test_sixteen_threads_publish_distinct_numbers(tmp_path):
    with ThreadPoolExecutor(16) as pool:
        refs = list(pool.map(lambda i: publish(tmp_path, i / 100), range(48)))
    assert sorted(refs, key=lambda r: int(r.split("@v")[1])) == [f"helpdesk@v{n}" for n in range(1, 49)]
    assert all(c.sound for c in registry.verify_all(tmp_path))


def test_every_flipped_byte_of_a_version_is_found(tmp_path):
    registry.publish_version("small", {"created_at": "2026-01-01"}, {"program.json": b'{"k":8}'}, tmp_path)
    for path in folder(tmp_path, "small").iterdir():
        sound = path.read_bytes()
        for at in range(len(sound)):
            path.write_bytes(sound[:at] + bytes([sound[at] ^ 0x20]) + sound[at + 1 :])
            assert not registry.verify_version("small@v1", tmp_path).sound
        path.write_bytes(sound)
    assert registry.verify_version("small@v1", tmp_path).sound


def test_the_list_tells_aliases_parents_and_scores(tmp_path):
    publish(tmp_path)
    publish(tmp_path, 0.5, parent="helpdesk@v1")
    registry.publish_version("other", {}, {}, tmp_path)
    promote_version("helpdesk@v1", "production", root=tmp_path)
    one, two, three = registry.list_versions(root=tmp_path)
    assert (one.name, one.aliases, two.aliases, three.name) == ("helpdesk", ("production",), (), "other")
    assert (two.parent, two.metrics) == ("helpdesk@v1", {"utility": {"value": 0.5}})
    assert registry.list_versions("other", tmp_path) == [three]
    assert registry.list_versions(root=tmp_path / "empty") == []
    with pytest.raises(VersionError, match="Nearest: helpdesk"):
        registry.list_versions("helpdsk", tmp_path)


def test_a_promoted_version_is_what_the_alias_names(tmp_path):
    publish(tmp_path), publish(tmp_path)
    move = promote_version("helpdesk@latest", "production", reason="first", root=tmp_path)
    assert (move.previous, move.version) == (None, folder(tmp_path, "helpdesk@v2").name)
    assert reference.resolve("helpdesk@production", tmp_path) == reference.resolve("helpdesk@v2", tmp_path)
    line = read_history("helpdesk", tmp_path)[0]
    assert (line["alias"], line["from"], line["to"], line["reason"]) == (
        "production",
        None,
        move.version,
        "first",
    )


def test_rolling_back_goes_back_one_version_at_a_time(tmp_path):
    versions = [promote_version(publish(tmp_path, i), "production", root=tmp_path).version for i in range(3)]
    assert roll_back("helpdesk", root=tmp_path).version == versions[1]
    assert roll_back("helpdesk", root=tmp_path).version == versions[0]
    with pytest.raises(VersionError, match="has no earlier version"):
        roll_back("helpdesk", root=tmp_path)
    promote_version("helpdesk@v3", "production", root=tmp_path)
    assert roll_back("helpdesk", root=tmp_path).version == versions[0]
    assert [line["action"] for line in read_history("helpdesk", tmp_path)][3:5] == ["rollback", "rollback"]


def test_a_history_line_without_its_move_does_not_mislead_a_rollback(tmp_path):
    versions = [promote_version(publish(tmp_path, i), "production", root=tmp_path).version for i in range(3)]
    alias = tmp_path / "helpdesk" / "aliases" / "production.json"
    killed_before_the_move = {
        "version": versions[1],
        "digest": reference.resolve("helpdesk@v2", tmp_path).digest,
    }
    alias.write_text(json.dumps(killed_before_the_move))
    assert roll_back("helpdesk", root=tmp_path).version == versions[0]


@pytest.mark.parametrize("alias", ["latest", "v7", "v7-3fa9c1d2", "../up", "", "Prod"])
def test_what_cannot_be_an_alias_is_refused(tmp_path, alias):
    with pytest.raises(VersionError, match="cannot be an alias"):
        promote_version(publish(tmp_path), alias, root=tmp_path)


def test_a_changed_version_is_neither_promoted_nor_rolled_back_to(tmp_path):
    for worth in (0, 1):
        promote_version(publish(tmp_path, worth), "production", root=tmp_path)
    (folder(tmp_path, "helpdesk@v1") / "program.json").write_bytes(b"{}")
    for act in (
        lambda: promote_version("helpdesk@v1", "canary", root=tmp_path),
        lambda: roll_back("helpdesk", root=tmp_path),
    ):
        with pytest.raises(IntegrityError, match=r"program\.json"):
            act()


def test_an_alias_moves_only_from_where_it_was_expected(tmp_path):
    for _ in range(3):
        publish(tmp_path)
    promote_version("helpdesk@v1", "production", root=tmp_path)
    with pytest.raises(GateError, match="not at v2-"):
        promote_version("helpdesk@v3", "production", expect="helpdesk@v2", root=tmp_path)
    promote_version("helpdesk@v3", "production", expect="helpdesk@v1", root=tmp_path)


def test_of_many_racing_promotions_each_history_line_starts_where_the_last_ended(tmp_path):
    refs = [publish(tmp_path) for _ in range(8)]

    def attempt(ref):
        try:
            promote_version(ref, "production", root=tmp_path)
        except GateError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        done = sum(pool.map(attempt, refs))
    lines = read_history("helpdesk", tmp_path)
    assert len(lines) == done >= 1
    assert [line["from"] for line in lines] == [None, *(line["to"] for line in lines[:-1])]


def test_the_gate_lets_a_better_version_through_and_keeps_others_out(tmp_path):
    worse, same, better = (publish(tmp_path, worth) for worth in (0.0, 0.5, 0.9))
    promote_version(same, "production", require="better", root=tmp_path)
    for ref, require in ((worse, "better"), (worse, "no-worse")):
        with pytest.raises(GateError, match=r"worse: utility -0\.500"):
            promote_version(ref, "production", require=require, root=tmp_path)
    equal = publish(tmp_path, 0.5)
    with pytest.raises(GateError, match="no detectable difference"):
        promote_version(equal, "production", require="better", root=tmp_path)
    with pytest.raises(GateError):
        promote_version(better, "production", require="better", min_gain=0.5, root=tmp_path)
    assert reference.resolve("helpdesk@production", tmp_path).version.startswith("v2-")
    assert (
        promote_version(equal, "production", require="no-worse", root=tmp_path).gate.verdict
        == "no_detectable_difference"
    )
    assert promote_version(better, "production", require="better", min_gain=0.3, root=tmp_path).gate.verdict == "better"


@pytest.fixture
def ragc(tmp_path):
    app = typer.Typer()
    cli.add_version_verbs(app)
    return lambda *args: CliRunner().invoke(app, [*args, "--artifacts", str(tmp_path)])


def test_every_verb_prints_one_json_document(ragc, tmp_path):
    publish(tmp_path), publish(tmp_path, 0.5)
    documents = {
        args[0]: json.loads(ragc(*args, "--json").stdout)
        for args in (
            ("promote", "helpdesk@v1", "--to", "production"),
            ("promote", "helpdesk@v2", "--to", "production", "--require", "better", "--reason", "gain"),
            ("rollback", "helpdesk"),
            ("ls",),
            ("show", "helpdesk@production"),
            ("verify", "--all"),
        )
    }
    assert documents["promote"]["gate"]["verdict"] == "better"
    assert documents["rollback"]["to"].startswith("v1-")
    assert list(documents["ls"][0]) == [
        "name",
        "version",
        "digest",
        "created_at",
        "aliases",
        "parent",
        "metrics",
    ]
    assert documents["ls"][0]["aliases"] == ["production"]
    assert documents["show"]["version"] == "v1"
    assert [c["ok"] for c in documents["verify"]] == [True] * 3


def test_every_verb_prints_something_for_people(ragc, tmp_path):
    publish(tmp_path), publish(tmp_path, 0.5)
    assert "nothing -> v1-" in ragc("promote", "helpdesk@v1", "--to", "production").stdout
    assert (
        "(better: utility +0.500" in ragc("promote", "helpdesk@v2", "--to", "production", "--require", "better").stdout
    )
    for args, shown in (
        (("ls",), "utility"),
        (("show", "helpdesk"), "content_digest"),
        (("verify", "helpdesk"), "sound"),
    ):
        assert shown in ragc(*args).stdout


def test_verify_tells_damage_by_its_exit_code(ragc, tmp_path):
    publish(tmp_path), publish(tmp_path)
    promote_version("helpdesk@v1", "production", root=tmp_path)
    (folder(tmp_path, "helpdesk@v2") / "extra.json").write_bytes(b"{}")
    assert ragc("verify", "helpdesk@v1").exit_code == 0
    assert ragc("verify", "helpdesk@v2").exit_code == 4
    everything = ragc("verify", "--all", "--json")
    assert everything.exit_code == 4
    assert {c["reference"].split("-")[0]: c["ok"] for c in json.loads(everything.stdout)} == {
        "helpdesk@v1": True, "helpdesk@v2": False, "helpdesk@production": True
    }  # fmt: skip


def test_a_lost_version_with_an_alias_is_found_by_verify(ragc, tmp_path):
    publish(tmp_path), publish(tmp_path)
    promote_version("helpdesk@v1", "production", root=tmp_path)
    folder(tmp_path, "helpdesk@v1").rename(tmp_path / "gone")
    everything = ragc("verify", "--all", "--json")
    assert everything.exit_code == 4
    assert "which is not there" in everything.stdout


@pytest.mark.parametrize("content", [b"", b"<<<<<<< HEAD", b"[]", b'{"files": 1}', b'{"files": [], "parent": 7}'])
def test_one_version_that_cannot_be_read_is_named_and_the_others_are_listed(ragc, tmp_path, content):
    publish(tmp_path), publish(tmp_path, parent="helpdesk@v1")
    (folder(tmp_path, "helpdesk@v1") / "manifest.json").write_bytes(content)
    done = ragc("ls", "--json")
    assert done.exit_code == 0
    broken, sound = json.loads(done.stdout)
    assert broken["version"].startswith("v1-") and "unreadable. Restore the folder from a copy" in broken["broken"]
    assert sound["version"].startswith("v2-") and "broken" not in sound
    assert "broken: " in ragc("ls").stdout


def test_a_broken_alias_is_named_and_the_versions_are_listed(ragc, tmp_path):
    publish(tmp_path)
    promote_version("helpdesk@v1", "production", root=tmp_path)
    promote_version("helpdesk@v1", "canary", root=tmp_path)
    (tmp_path / "helpdesk" / "aliases" / "production.json").write_bytes(b"{")
    sound, broken = json.loads(ragc("ls", "--json").stdout)
    assert sound["aliases"] == ["canary"]
    assert (broken["name"], broken["version"], broken["aliases"]) == ("helpdesk", "", ["production"])
    assert "helpdesk@production is unreadable. Set it again with: ragc promote" in broken["broken"]
    shown = ragc("ls")
    assert shown.exit_code == 0 and "broken: The alias" in " ".join(shown.stdout.split())


def test_a_broken_alias_is_set_again_by_promoting_but_compared_with_nothing(ragc, tmp_path):
    publish(tmp_path), publish(tmp_path, 0.5)
    promote_version("helpdesk@v1", "production", root=tmp_path)
    (tmp_path / "helpdesk" / "aliases" / "production.json").write_bytes(b"{")
    for guarded in ({"require": "better"}, {"expect": "helpdesk@v1"}):
        with pytest.raises(IntegrityError, match="without --require and --expect"):
            promote_version("helpdesk@v2", "production", root=tmp_path, **guarded)
    assert "unreadable -> v2-" in ragc("promote", "helpdesk@v2", "--to", "production").stdout
    assert reference.resolve("helpdesk@production", tmp_path).version.startswith("v2-")
    assert roll_back("helpdesk", root=tmp_path).version.startswith("v1-")


def test_a_sound_version_is_promoted_beside_a_broken_one(tmp_path):
    publish(tmp_path), publish(tmp_path)
    (folder(tmp_path, "helpdesk@v1") / "manifest.json").write_bytes(b"")
    assert promote_version("helpdesk@v2", "production", root=tmp_path).version.startswith("v2-")


def test_the_content_digest_is_the_same_for_the_same_program(tmp_path):
    one, two = (registry.open_version(publish(tmp_path, 0.5), tmp_path) for _ in range(2))
    assert one.content_digest == two.content_digest
    assert one.digest != two.digest
    assert manifest.read_manifest(one.folder).created_at
