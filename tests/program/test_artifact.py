"""A compiled program on disk and back."""

import json
import math
import shutil
from pathlib import Path

import pytest

from program import Outcome, load, open_program
from program.errors import IntegrityError, SettingsError, VersionError
from program.loop.policy import read_setting
from program.serve.fitting import structure_of

QUESTION = "How many days do I have to get my money back?"


def version_folder(project, number):
    (found,) = (project / "artifacts/shop/versions").glob(f"v{number}-*")
    return found


def test_a_loaded_version_ends_in_an_outcome_and_tells_its_name(compiled):
    answer = load("shop@latest", artifacts=compiled / "artifacts")("How much water does the Merle hold?")
    assert answer.version == "shop@v2"
    assert isinstance(answer.outcome, Outcome)
    assert answer.citations


def test_two_loads_give_the_same_answer_byte_for_byte(compiled):
    first, second = (load("shop@v2", artifacts=compiled / "artifacts")(QUESTION) for _ in range(2))
    assert (first.text, first.confidence, first.trace.path) == (
        second.text,
        second.confidence,
        second.trace.path,
    )


def test_an_uncompiled_and_a_compiled_version_differ_only_by_what_they_hold(compiled):
    before = load("shop@v1", artifacts=compiled / "artifacts")
    after = load("shop@v2", artifacts=compiled / "artifacts")
    assert structure_of(before) == structure_of(after)
    assert not before.classifier.route.demos
    assert after.classifier.route.demos


def test_the_operating_points_are_applied(compiled):
    manifest = json.loads((version_folder(compiled, 2) / "manifest.json").read_bytes())
    for point, setting in manifest["points"].items():
        rag = load("shop@v2", artifacts=compiled / "artifacts", point=point)
        assert {k: pytest.approx(v) for k, v in setting.items()} == read_setting(rag)


def test_an_unknown_point_or_version_names_what_there_is(compiled):
    with pytest.raises(VersionError, match="balanced"):
        load("shop@v2", artifacts=compiled / "artifacts", point="cheapest")
    with pytest.raises(VersionError, match="v2"):
        load("shop@v9", artifacts=compiled / "artifacts")


def test_a_path_names_the_version_that_its_text_names(compiled, monkeypatch):
    folder = version_folder(compiled, 2)
    monkeypatch.chdir(folder.parent)
    for path in (folder, Path(folder.name)):
        assert load(path, artifacts=compiled / "artifacts").runtime.version == "shop@v2"


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("nothing", [None, 7, b"shop@v2"])
def test_what_is_neither_text_nor_a_path_names_no_version(compiled, nothing, follow):
    with pytest.raises(VersionError, match=r"named by text or a Path, not by .*Write name@v7"):
        load(nothing, artifacts=compiled / "artifacts", follow=follow)


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize(
    ("wish", "value"),
    [
        ("calls_per_question", "2"),
        ("calls_per_question", -1),
        ("calls_per_question", math.nan),
        ("calls_per_question", True),
        ("usd_per_question", -0.1),
        ("usd_per_question", [1]),
        ("min_utility", "0.5"),
        ("min_utility", math.nan),
    ],
)
def test_a_wish_that_is_no_number_it_could_be_is_refused_by_its_name(compiled, wish, value, follow):
    with pytest.raises(VersionError, match=rf"^{wish} cannot be .*Give a number"):
        load("shop@latest", artifacts=compiled / "artifacts", follow=follow, **{wish: value})


@pytest.mark.parametrize("name", ["manifest.json", "program.json", "scores.jsonl", "heads.safetensors"])
def test_one_changed_byte_is_refused(compiled, tmp_path, name):
    shutil.copytree(compiled, tmp_path / "copy")
    path = version_folder(tmp_path / "copy", 2) / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(IntegrityError):
        load("shop@v2", artifacts=tmp_path / "copy/artifacts")


def test_a_project_with_other_knowledge_bases_is_refused_with_the_difference(compiled, tmp_path):
    shutil.copytree(compiled, tmp_path / "copy")
    toml = tmp_path / "copy/ragc.toml"
    toml.write_text(
        toml.read_text().replace("[knowledge.billing]", "[knowledge.money]").replace('/billing"', '/billing"')
    )
    shutil.rmtree(tmp_path / "copy/.ragc")
    with pytest.raises(IntegrityError, match="base_billing"):
        load("shop@v2", artifacts=tmp_path / "copy/artifacts")


def test_a_project_that_moved_is_named_and_can_be_given(compiled, tmp_path):
    shutil.copytree(compiled / "artifacts", tmp_path / "artifacts")
    with pytest.raises(SettingsError, match="project=FOLDER"):
        load("shop@v2", artifacts=tmp_path / "artifacts")
    assert load("shop@v2", artifacts=tmp_path / "artifacts", project=compiled)(QUESTION).text


def test_nothing_on_disk_is_a_pickle(compiled):
    kinds = {path.suffix for path in (compiled / "artifacts").rglob("*") if path.is_file()}
    assert kinds <= {".json", ".jsonl", ".safetensors", ".html", "", ".lock"}


def test_a_program_marked_as_compiled_is_not_saved_half(shop):
    from program.serve.artifact import files_of

    rag = open_program(shop)
    rag.judge._compiled = True
    with pytest.raises(IntegrityError, match="_compiled"):
        files_of(rag)
