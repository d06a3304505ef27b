"""A project opened after its files changed: what is answered from is what is there."""

import logging
import os
import shutil

import pytest

from program import load, open_program
from program.errors import KnowledgeError
from program.knowledge.bases import BaseSpec
from program.knowledge.index.build import index_project
from program.knowledge.ingest.footprint import footprint
from program.loop.presets import PLAIN
from program.project import Project
from program.serve.opening import open_library

KETTLES = "knowledge/product/kettles.md"


def texts(folder) -> str:
    return " ".join(passage.text for passage in open_library(Project.open(folder)).passages())


def test_an_edited_document_is_answered_from_as_it_is_now(own_shop):
    assert "1.7 litres" in open_program(own_shop)("How much water does the Merle kettle hold?").text
    path = own_shop / KETTLES
    path.write_text(path.read_text().replace("1.7 litres", "2.3 litres"))  # of the same length
    assert "2.3 litres" in open_program(own_shop)("How much water does the Merle kettle hold?").text


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / KETTLES).rename(folder / "knowledge/product/pots.md"),
        lambda folder: (folder / KETTLES).unlink(),
        lambda folder: (folder / "knowledge/product/deep").mkdir(),
        lambda folder: os.utime(folder / KETTLES, (1, 1)),
        lambda folder: (folder / "knowledge/product/more.md").write_text("# More\nA third kettle, the Rook."),
        lambda folder: (folder / "ragc.toml").write_text(
            (folder / "ragc.toml").read_text() + "[keyword]\nstem = false\n"
        ),
    ],
    ids=["renamed", "deleted", "an empty folder", "touched", "added", "split otherwise"],
)
def test_whatever_changed_opening_gives_what_indexing_from_nothing_does(own_shop, change):
    (own_shop / "knowledge/product/other.md").write_text("# Other\nLids cost GBP 3.")
    open_library(Project.open(own_shop))
    change(own_shop)
    found = open_library(Project.open(own_shop)).index_digest
    shutil.rmtree(own_shop / ".ragc")
    assert open_library(Project.open(own_shop)).index_digest == found


def test_without_any_document_left_nothing_is_answered(own_shop):
    open_program(own_shop)
    for path in (own_shop / "knowledge/product").iterdir():
        path.unlink()
    with pytest.raises(KnowledgeError, match="holds no text"):
        open_program(own_shop)


def test_a_project_that_did_not_change_is_not_indexed_again(own_shop):
    open_library(Project.open(own_shop))
    before = {path: path.stat().st_mtime_ns for path in (own_shop / ".ragc/index").rglob("*")}
    open_library(Project.open(own_shop))
    assert {path: path.stat().st_mtime_ns for path in (own_shop / ".ragc/index").rglob("*")} == before


def test_a_file_that_changes_while_it_is_indexed_is_indexed_at_the_next_opening(own_shop):
    path = own_shop / KETTLES

    def meanwhile(done: int, of: int) -> None:
        path.write_text(path.read_text().replace("1.7 litres", "2.3 litres"))

    index_project(Project.open(own_shop), meanwhile)
    assert "2.3 litres" in texts(own_shop)


def test_an_index_that_cannot_be_written_is_used_and_the_log_says_so(own_shop, monkeypatch, caplog):
    open_library(Project.open(own_shop))
    (own_shop / KETTLES).write_text("# Kettles\nAll new.")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # whoever runs the tests may write anywhere
    with caplog.at_level(logging.WARNING, logger="program"):
        assert "1.7 litres" in texts(own_shop)
    assert "may have changed since it was indexed" in caplog.text


def test_a_version_over_other_documents_answers_from_them_and_the_log_says_so(compiled, tmp_path, caplog):
    folder = shutil.copytree(compiled, tmp_path / "copy")
    opened = {"artifacts": folder / "artifacts", "project": folder}
    with caplog.at_level(logging.WARNING, logger="program"):
        load("shop@v2", **opened)
        assert not [record for record in caplog.records if record.name.startswith("program")]
        (folder / KETTLES).write_text((folder / KETTLES).read_text().replace("1.7 litres", "2.3 litres"))
        rag = load("shop@v2", **opened)
        rag.policy.turn(**PLAIN)
        assert "2.3 litres" in rag("How much water does the Merle hold?").text
    assert "shop@v2 was compiled over other documents" in caplog.text


def test_hidden_files_and_other_bases_leave_a_footprint_as_it_is_and_every_other_file_does_not(tmp_path):
    base = BaseSpec("base", path=tmp_path / "base")
    (tmp_path / "base/deep").mkdir(parents=True)
    empty = footprint([base])
    (tmp_path / "base/.hidden").write_text("x")
    (tmp_path / "base/link").symlink_to(tmp_path / "nowhere")
    linked = footprint([base])
    (tmp_path / "beside").write_text("x")
    assert empty != linked == footprint([base])
    (tmp_path / "base/deep/file.md").write_text("x")
    assert footprint([base]) not in (empty, linked)
    assert footprint([base], "other settings") != footprint([base])
