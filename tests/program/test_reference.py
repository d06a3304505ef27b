"""References: every form names its version, nothing leaves the artifacts folder, and what is wrong is said."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from program.errors import IntegrityError, VersionError
from program.serve.manifest import seal_folder
from program.serve.reference import Reference, is_name, list_programs, parse_reference, resolve


def add_version(root, name, number, text="{}"):
    """Seal a version; return its folder's name."""
    sealed = seal_folder(root / "aside", {"name": name, "version": f"v{number}"}, {"program.json": text.encode()})
    version = f"v{number}-{sealed.digest[7:15]}"
    (root / name / "versions").mkdir(parents=True, exist_ok=True)
    sealed.folder.rename(root / name / "versions" / version)
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
    outside = seal_folder(root / "copied", {"name": "helpdesk", "version": "v1"}, {}).folder
    assert resolve(str(outside), root).version == ""


def test_two_versions_of_one_number_are_ambiguous_and_both_are_named(root, known):
    both = sorted([known[10], add_version(root, "helpdesk", 10, '{"other": 1}')])
    for text in ("helpdesk@v10", "helpdesk@latest", "helpdesk"):
        with pytest.raises(VersionError, match=f"{both[0]} and helpdesk@{both[1]}"):
            resolve(text, root)
    assert resolve(f"helpdesk@{both[0]}", root).version == both[0]


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("helpdsk@latest", r"There is no version of helpdsk in .*/artifacts\. Nearest: helpdesk\."),
        ("zzz", r"Nearest: helpdesk\."),
        ("helpdesk@v11", "helpdesk@v10-"),
        ("helpdesk@prod", "helpdesk@production"),
        ("helpdesk@sha256:00000000", "There is no helpdesk@sha256:00000000"),
        ("./nowhere", r"holds no manifest\.json"),
    ],
)
def test_an_unknown_reference_names_the_nearest(root, known, text, nearest):
    with pytest.raises(VersionError, match=nearest):
        resolve(text, root)
    with pytest.raises(VersionError, match=r"elsewhere.*Name another folder, or make one with: ragc compile"):
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


@given(st.from_regex(r"[a-z0-9@:.\-v]{1,20}", fullmatch=True))
def test_what_parses_reads_the_same_again(text):
    try:
        found = parse_reference(text)
    except VersionError:
        return
    assert parse_reference(str(found)) == found
    assert isinstance(found, Reference) and is_name(found.name)
