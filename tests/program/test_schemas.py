"""A version of each past schema is kept beside this file, as it was written then: `schema1` and so on."""

import json
import shutil
from pathlib import Path

import pytest

from optimize.evaluation.comparison import compare_versions
from optimize.registry import versions as registry
from optimize.registry.diff import diff_versions
from program import load
from program.errors import IntegrityError
from program.serve.manifest import SCHEMA

SCHEMAS = sorted(Path(__file__).parent.glob("schema*"))
QUESTION = "How many watts does the Wren draw?"


def test_a_version_of_every_schema_so_far_is_kept():
    assert [folder.name for folder in SCHEMAS] == [f"schema{n}" for n in range(1, SCHEMA["major"] + 1)]


@pytest.mark.parametrize("folder", SCHEMAS, ids=lambda folder: folder.name)
def test_a_version_of_an_old_schema_answers_or_says_how_to_upgrade_it(folder, shop):
    try:
        rag = load("shop@production", artifacts=folder, project=shop)
    except IntegrityError as error:
        assert "ragc compile" in error.mend
    else:
        assert rag(QUESTION).version == "shop@v2"


@pytest.mark.parametrize("folder", SCHEMAS, ids=lambda folder: folder.name)
def test_a_version_of_an_old_schema_is_listed_verified_and_compared(folder):
    assert [(v.version, v.aliases) for v in registry.list_versions("shop", folder)] == [
        ("v1-bfdda811", ()), ("v2-cfbabc6b", ("production",))
    ]  # fmt: skip
    assert all(checked.sound for checked in registry.verify_all(folder))
    assert diff_versions("shop@v1", "shop@v2", root=folder).demonstrations
    assert compare_versions("shop@v1", "shop@v2", root=folder).test.n == 1


@pytest.mark.parametrize(("major", "mend"), [(9, "Install the ragc that wrote it"), (0, "ragc compile")])
def test_a_foreign_schema_is_refused_with_what_to_do(tmp_path, major, mend):
    shutil.copytree(SCHEMAS[0], tmp_path / "artifacts")
    path = tmp_path / "artifacts/shop/versions/v2-cfbabc6b/manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": {"major": major, "minor": 0}}))
    with pytest.raises(IntegrityError, match=f"its schema is {major}, this program reads 1") as error:
        load("shop@v2", artifacts=tmp_path / "artifacts")
    assert mend in error.value.mend
    checked = registry.verify_version("shop@v2", tmp_path / "artifacts")
    assert (checked.sound, checked.mend) == (False, error.value.mend)
