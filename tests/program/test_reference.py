"""References that name their version, and sealed folders of which every changed byte is found."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from ragc import load
from ragc.errors import IntegrityError, VersionError
from ragc.optimize.registry import versions as registry
from ragc.serve.manifest import find_differences, seal_folder, verify_folder
from ragc.serve.reference import find_current, list_programs, parse_reference, resolve


def add_version(root, name, number, text="{}"):
    """Seal a version; return its folder's name."""
    sealed = seal_folder(root / "aside", {"name": name, "version": f"v{number}"}, {"program.json": text.encode()})
    version = f"v{number}-{sealed.digest[7:15]}"
    (root / name / "versions").mkdir(parents=True, exist_ok=True)
    sealed.path.rename(root / name / "versions" / version)
    return version


@pytest.fixture
def root(tmp_path):
    return tmp_path / "artifacts"


@pytest.fixture
def known(root):
    """Versions 1, 2 and 10 of helpdesk; production is 2."""
    root.mkdir()
    versions = {n: add_version(root, "helpdesk", n) for n in (1, 2, 10)}
    (root / "helpdesk" / "aliases").mkdir()
    alias = {"version": versions[2], "digest": resolve("helpdesk@v2", root).digest}
    (root / "helpdesk" / "aliases" / "production.json").write_text(json.dumps(alias))
    return versions


def test_every_form_of_reference_names_its_version(root, known):
    digest = resolve("helpdesk@v1", root).digest
    forms = {
        "helpdesk@v1": 1, f"helpdesk@{known[2]}": 2, f"helpdesk@{digest}": 1, f"helpdesk@{digest[:20]}": 1,
        "helpdesk@production": 2, "helpdesk@latest": 10, "helpdesk": 10,
        str(root / "helpdesk" / "versions" / known[1]): 1, root / "helpdesk" / "versions" / known[2]: 2,
    }  # fmt: skip
    for text, number in forms.items():
        found = resolve(text, root)
        assert (found.name, found.version) == ("helpdesk", known[number]), text
        assert found.path == root.resolve() / "helpdesk" / "versions" / known[number]
    outside = seal_folder(root / "copied", {"name": "helpdesk", "version": "v1"}, {}).path
    assert resolve(str(outside), root).version == ""


def test_two_versions_of_one_number_are_ambiguous_and_both_are_named(root, known):
    both = sorted([known[10], add_version(root, "helpdesk", 10, '{"other": 1}')])
    for text in ("helpdesk@v10", "helpdesk@latest", "helpdesk"):
        with pytest.raises(VersionError, match=f"{both[0]} and helpdesk@{both[1]}"):
            resolve(text, root)
    assert resolve(f"helpdesk@{both[0]}", root).version == both[0]


def test_the_latest_version_is_the_newest_whole_one_and_a_warning_names_what_is_passed_over(root, known, caplog):
    partial = root / "helpdesk" / "versions" / "v11-00000000"
    partial.mkdir()
    (partial / "program.json").write_text("{}")
    for text in ("helpdesk@latest", "helpdesk"):
        assert resolve(text, root).version == known[10]
    assert [one.getMessage() for one in caplog.records if "helpdesk@v11-00000000 is left out" in one.getMessage()]
    for text in ("helpdesk@v11", "helpdesk@v11-00000000"):  # whoever names it is told
        with pytest.raises(IntegrityError, match=r"manifest\.json is unreadable"):
            resolve(text, root)
    assert resolve("helpdesk@production", root).version == known[2]
    for version in known.values():
        (root / "helpdesk" / "versions" / version / "manifest.json").unlink()
    with pytest.raises(IntegrityError):
        resolve("helpdesk@latest", root)


def test_an_older_folder_without_a_manifest_is_no_reason_to_warn(root, known, caplog):
    (root / "helpdesk" / "versions" / known[2] / "manifest.json").unlink()
    assert resolve("helpdesk@latest", root).version == known[10] and not caplog.records


def test_a_project_is_opened_by_its_newest_whole_version(root):
    (root / "help" / "versions").mkdir(parents=True)
    for number in (1, 2):
        fields = {"name": "help", "version": f"v{number}", "parent": "help@v0", "gain": {"verdict": "better"}}
        sealed = seal_folder(root / "aside", fields, {"program.json": b"{}"})
        sealed.path.rename(root / "help" / "versions" / f"v{number}-{sealed.digest[7:15]}")
    assert find_current(root, "help").label == "help@v2"
    (root / "help" / "versions" / "v3-00000000").mkdir()
    assert find_current(root, "help").label == "help@v2"


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("helpdsk@latest", r"There is no version of helpdsk in .*/artifacts\. Nearest: helpdesk\."),
        ("zzz", r"Nearest: helpdesk\."), ("helpdesk@v11", "helpdesk@v10-"), ("helpdesk@prod", "helpdesk@production"),
        ("helpdesk@lastest", "Nearest: helpdesk@latest"),
        ("helpdesk@sha256:00000000", "There is no helpdesk@sha256:00000000"),
        ("./nowhere", r"holds no manifest\.json"),
    ],
)  # fmt: skip
def test_an_unknown_reference_names_the_nearest(root, known, text, nearest):
    with pytest.raises(VersionError, match=nearest):
        resolve(text, root)
    with pytest.raises(VersionError, match=r"elsewhere.*Name another folder, or make one by `ragc compile`"):
        resolve("helpdesk", root.parent / "elsewhere")


@pytest.mark.parametrize(
    "text",
    [
        "", "@", "helpdesk@", "@v1", "Helpdesk", "helpdesk\n", "helpdesk@v1\n", "helpdesk@v0",
        "helpdesk@v01-00000000", "help..desk", "con@v1", "nul.txt", "lpt9", "experiments", "helpdesk@..",
        "helpdesk@../production", "helpdesk@a/b", "a" * 64, "hélp", "helpdesk@v1@v2", "helpdesk@sha256:XYZ",
        "helpdesk@v" + "9" * 5000,
    ],
)  # fmt: skip
def test_what_is_not_a_reference_is_refused(root, text):
    with pytest.raises(VersionError, match="is not a reference"):
        parse_reference(text)
    with pytest.raises(VersionError):
        resolve(text, root)


def test_links_are_refused_wherever_they_are(root, known, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    add_version(elsewhere, "other", 1)
    (root / "other").symlink_to(elsewhere / "other")
    (root / "helpdesk" / "versions" / "v11-00000000").symlink_to(next((elsewhere / "other" / "versions").iterdir()))
    (root / "third").mkdir()
    (root / "third" / "versions").symlink_to(elsewhere / "other" / "versions")
    for text in ("other", "helpdesk@v11", "third@latest"):
        with pytest.raises(VersionError):
            resolve(text, root)
    assert resolve("helpdesk@latest", root).version == known[10]
    (root / "shop/versions/.tmp-1").mkdir(parents=True)  # a first version that is still being written
    assert "shop" not in list_programs(root)


def test_an_alias_of_a_changed_or_lost_version_is_an_error(root, known):
    path = root / "helpdesk" / "versions" / known[2] / "manifest.json"
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(IntegrityError, match="was set to"):
        resolve("helpdesk@production", root)
    path.parent.rename(root / "gone")
    with pytest.raises(VersionError, match="which is not there"):
        resolve("helpdesk@production", root)


FILES = {"program.json": b'{"k": 8}', "scores.jsonl": b'{"id": "q1"}\n'}
FIELDS = {"name": "helpdesk", "version": "v1", "points": {"balanced": {"k": 8}}}
EARLIER = Path(__file__).parent / "schema1"


@pytest.fixture
def folder(tmp_path):
    return seal_folder(tmp_path / "sealed", FIELDS, FILES).path


def test_a_sealed_folder_verifies_and_reads_back(folder):
    manifest = verify_folder(folder)
    assert (manifest.label, manifest.version, manifest.parent) == ("helpdesk@v1", "", None)
    assert {n: size for n, (size, _) in manifest.files.items()} == {"program.json": 8, "scores.jsonl": 13}
    assert (manifest.section("points"), manifest.section("cost")) == ({"balanced": {"k": 8}}, {})
    assert manifest.fields["schema"] == {"major": 2, "minor": 0}
    with pytest.raises(FileExistsError):
        seal_folder(folder, FIELDS, FILES)


def test_every_flipped_byte_of_every_file_is_found(folder):
    for path in folder.iterdir():
        sound = path.read_bytes()
        for at in range(len(sound)):
            path.write_bytes(sound[:at] + bytes([sound[at] ^ (1 + at % 255)]) + sound[at + 1 :])
            assert find_differences(folder), f"byte {at} of {path.name}"
        path.write_bytes(sound)
    assert find_differences(folder) == []


def test_every_difference_is_listed_at_once(folder, tmp_path):
    elsewhere = shutil.copytree(folder, tmp_path / "v2-00000000")
    assert "is of another version: helpdesk@v1-" in find_differences(elsewhere)[0]
    (folder / "program.json").rename(tmp_path / "elsewhere.json")
    (folder / "extra.json").write_bytes(b"{}")
    (folder / "scores.jsonl").write_bytes(b"{}")
    with pytest.raises(IntegrityError) as error:
        verify_folder(folder)
    found = ["extra.json is surplus", "program.json is missing", "scores.jsonl has 2 bytes instead of 13"]
    assert error.value.data["differences"] == found
    (folder / "program.json").symlink_to(tmp_path / "elsewhere.json")
    assert "program.json is not a plain file" in find_differences(folder)
    content = json.loads((folder / "manifest.json").read_bytes())
    content["files"][0]["path"] = "../program.json"
    (folder / "manifest.json").write_text(json.dumps(content, indent=2))
    assert any("may not be in a version" in difference for difference in find_differences(folder))
    (folder / "manifest.json").write_text(json.dumps(content | {"schema": {"major": 9, "minor": 0}}))
    with pytest.raises(IntegrityError, match=r"its schema is 9, this program reads 2.*install the ragc that wrote it"):
        verify_folder(folder)


def test_what_earlier_code_sealed_is_listed_and_refused_with_the_command_that_mends_it(shop):
    assert [version.version for version in registry.list_versions("shop", EARLIER)] == ["v1-bfdda811"]
    with pytest.raises(IntegrityError, match=r"its schema is 1, this program reads 2\.") as error:
        load("shop@latest", artifacts=EARLIER, project=shop)
    assert error.value.mend.startswith("Compile it again with this ragc, by `ragc compile`, or install the ragc")
    assert registry.verify_version("shop@v1", EARLIER).mend == error.value.mend


def test_dates_timings_and_scores_do_not_enter_the_content_digest_and_the_same_seal_gives_the_same_bytes(tmp_path):
    fields = {**FIELDS, "created_at": "2026-01-01"}
    one = seal_folder(tmp_path / "1", {**fields, "cost": {"seconds": 3}}, FILES)
    other = seal_folder(tmp_path / "2", FIELDS, {**FILES, "scores.jsonl": b'{"seconds": 2.5}\n', "report.html": b"<p>"})
    third = seal_folder(tmp_path / "3", FIELDS, {**FILES, "program.json": b'{"k": 9}'})
    assert one.content_digest == other.content_digest != third.content_digest
    assert one.digest != other.digest
    backwards = seal_folder(tmp_path / "5", dict(reversed(fields.items())), FILES)
    assert seal_folder(tmp_path / "4", fields, FILES).digest == backwards.digest


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("program.pkl", b"\x80\x04."), ("program.py", b"1"), ("program.json", b"\x80\x04."),
        ("heads.safetensors", b"\x80\x04."), ("scores.jsonl", b"{}\n{"), ("../up.json", b"{}"),
        ("a/b.json", b"{}"), ("con.json", b"{}"), ("manifest.json", b"{}"),
    ],
)  # fmt: skip
def test_only_json_and_safetensors_are_sealed(tmp_path, name, content):
    with pytest.raises(IntegrityError, match="cannot be sealed"):
        seal_folder(tmp_path / "s", FIELDS, {name: content})
    assert not (tmp_path / "s").exists()
    seal_folder(tmp_path / "t", FIELDS, {"heads.safetensors": save({"w": np.eye(2)})})
    verify_folder(tmp_path / "t")
