import json
import shutil

import orjson
import pytest

from program.errors import IntegrityError
from program.serve.manifest import find_differences, read_manifest, seal_folder, verify_folder

FILES = {"program.json": b'{"k": 8}', "scores.jsonl": b'{"id": "q1"}\n'}
FIELDS = {"name": "helpdesk", "version": "v1", "points": {"balanced": {"k": 8}}}


@pytest.fixture
def folder(tmp_path):
    return seal_folder(tmp_path / "sealed", FIELDS, FILES).folder


def resealed(folder, change):
    """The folder with its manifest rewritten by `change`, seal and all."""
    fields = orjson.loads((folder / "manifest.json").read_bytes())
    files = {name: (folder / name).read_bytes() for name in FILES}
    shutil.rmtree(folder)
    seal_folder(folder, fields, files)
    content = orjson.loads((folder / "manifest.json").read_bytes())
    change(content)
    (folder / "manifest.json").write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2))


def test_a_sealed_folder_verifies_and_reads_back(folder):
    manifest = verify_folder(folder)
    assert (manifest.name, manifest.version, manifest.parent) == ("helpdesk", "v1", None)
    assert [(f.path, f.size) for f in manifest.files] == [("program.json", 8), ("scores.jsonl", 13)]
    assert manifest.section("points") == {"balanced": {"k": 8}}
    assert manifest.section("cost") == {}
    assert manifest.fields["schema"] == {"major": 1, "minor": 0}


def test_every_flipped_byte_of_every_file_is_found(folder):
    for path in folder.iterdir():
        sound = path.read_bytes()
        for at in range(len(sound)):
            path.write_bytes(sound[:at] + bytes([sound[at] ^ (1 + at % 255)]) + sound[at + 1 :])
            assert find_differences(folder), f"byte {at} of {path.name}"
        path.write_bytes(sound)
    assert find_differences(folder) == []


def test_every_difference_is_listed_at_once(folder):
    (folder / "program.json").unlink()
    (folder / "extra.json").write_bytes(b"{}")
    (folder / "scores.jsonl").write_bytes(b"{}")
    with pytest.raises(IntegrityError) as error:
        verify_folder(folder)
    for part in (
        "extra.json is surplus",
        "program.json is missing",
        "scores.jsonl has 2 bytes instead of 13",
    ):
        assert part in error.value.what


def test_a_link_in_place_of_a_file_is_found(folder, tmp_path):
    (folder / "program.json").rename(tmp_path / "elsewhere.json")
    (folder / "program.json").symlink_to(tmp_path / "elsewhere.json")
    assert find_differences(folder) == ["program.json is not a plain file"]


def test_another_version_than_the_expected_one_is_found(folder):
    assert find_differences(folder, read_manifest(folder).digest) == []
    assert "instead of sha256:0" in find_differences(folder, "sha256:" + "0" * 64)[0]


def test_a_newer_major_schema_is_refused_by_name(folder):
    resealed(folder, lambda m: m.update(schema={"major": 2, "minor": 0}))
    assert find_differences(folder) == ["its schema is 2, this program reads 1"]


def test_keys_of_a_newer_minor_schema_are_kept(tmp_path):
    assert seal_folder(tmp_path / "s", {**FIELDS, "carbon": {"kg": 1}}, FILES).fields["carbon"] == {"kg": 1}


def test_a_manifest_that_is_no_manifest_is_an_error(folder):
    for content in (b"", b"[]", b"{}", b'{"files": 1}', b'{"files": [{}]}', b"\xff"):
        (folder / "manifest.json").write_bytes(content)
        with pytest.raises(IntegrityError, match="unreadable"):
            verify_folder(folder)


def test_dates_timings_and_scores_do_not_enter_the_content_digest(tmp_path):
    one = seal_folder(tmp_path / "1", {**FIELDS, "created_at": "2026-01-01", "cost": {"seconds": 3}}, FILES)
    other = seal_folder(tmp_path / "2", FIELDS, {**FILES, "scores.jsonl": b'{"seconds": 2.5}\n', "report.html": b"<p>"})
    third = seal_folder(tmp_path / "3", FIELDS, {**FILES, "program.json": b'{"k": 9}'})
    assert one.content_digest == other.content_digest != third.content_digest
    assert one.digest != other.digest


def test_the_same_seal_gives_the_same_bytes(tmp_path):
    fields = {**FIELDS, "created_at": "2026-01-01"}
    one, other = (
        seal_folder(tmp_path / "1", fields, FILES),
        seal_folder(tmp_path / "2", dict(reversed(fields.items())), FILES),
    )
    assert one.digest == other.digest


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("program.pkl", b"\x80\x04."),
        ("program.py", b"1"),
        ("program.json", b"\x80\x04."),
        ("heads.safetensors", b"\x80\x04."),
        ("scores.jsonl", b"{}\n{"),
        ("../up.json", b"{}"),
        ("a/b.json", b"{}"),
        ("con.json", b"{}"),
        ("manifest.json", b"{}"),
    ],
)
def test_only_json_and_safetensors_are_sealed(tmp_path, name, content):
    with pytest.raises(IntegrityError, match="cannot be sealed"):
        seal_folder(tmp_path / "s", FIELDS, {name: content})
    assert not (tmp_path / "s").exists()


def test_safetensors_are_sealed(tmp_path):
    import numpy as np
    from safetensors.numpy import save

    seal_folder(tmp_path / "s", FIELDS, {"heads.safetensors": save({"w": np.eye(2)})})
    verify_folder(tmp_path / "s")


def test_a_listed_file_that_could_run_is_refused(tmp_path):
    folder = seal_folder(tmp_path / "s", FIELDS, FILES).folder
    content = json.loads((folder / "manifest.json").read_text())
    content["files"][0]["path"] = "../program.json"
    (folder / "manifest.json").write_text(json.dumps(content, indent=2))
    assert any("may not be in a version" in d for d in find_differences(folder))


def test_an_existing_folder_is_never_written_into(folder):
    with pytest.raises(FileExistsError):
        seal_folder(folder, FIELDS, FILES)
