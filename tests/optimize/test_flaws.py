"""What of the files was not read is told to whoever indexes, asks, evaluates or compiles, by the same words."""

import json

from ragc.knowledge.ingest import folder
from ragc.optimize.report.doctor import examine_setup
from ragc.serve.opening import open_latest
from tests.conftest import add_toml
from tests.optimize.conftest import invoke, invoke_json


def add_unread(folder):
    """Add two files that are not read, one that is in part, and a table that is not read."""
    (folder / "knowledge/product/manual.pdf").write_bytes(b"%PDF-1.7 broken")
    (folder / "knowledge/product/logo.png").write_bytes(b"\x89PNG")
    (folder / "knowledge/product/stock.csv").write_text("Item,Price,Price\nBolt,10,12\n")
    (folder / "records").mkdir()
    (folder / "records/broken.csv").write_bytes(b"\0")
    (folder / "records/orders.csv").write_text("id,price\n1,3\n2,5\n3,soon\n")
    add_toml(folder, '[knowledge.records]\nkind = "tables"\npath = "records"')


FLAWS = [
    ("product/logo.png", 0, "was not read: only ", True, False),
    ("product/manual.pdf", 0, "was not read: no readable .pdf file", True, True),
    ("product/stock.csv", 1, "2 columns are named 'Price'", False, False),
    ("records/broken.csv", 0, "was not read: binary", True, True),
    ("records/orders.csv", 4, "the column price holds 1 cell that is no number", False, False),
]


def assert_flaws(found):
    shapes = sorted((f["path"], f["line"], f["what"], f["unread"], f["lost"]) for f in found)
    assert len(shapes) == len(FLAWS) and all(f["mend"] for f in found)
    for (path, line, what, unread, lost), expected in zip(shapes, FLAWS, strict=True):
        assert (path, line, unread, lost) == (expected[0], expected[1], *expected[3:]) and what.startswith(expected[2])


def test_index_names_and_counts_what_it_did_not_read(own_shop):
    add_unread(own_shop)
    told = invoke("index", own_shop)
    assert told.exit_code == 0 and "3 of 8 files were not read:" in told.stderr
    assert all(f"  {path}{f' line {line}' * bool(line)}: {what}" in told.stderr for path, line, what, *_ in FLAWS)
    report = invoke_json("index", own_shop)
    assert report["unchanged"]
    assert_flaws(report["flaws"])


def test_the_doctor_and_the_check_tell_the_same_flaws_without_an_index(own_shop, monkeypatch):
    add_unread(own_shop)
    told = invoke("index", own_shop).stderr.splitlines()
    lines = [line for line in told if line.startswith("  ")]
    heads = [line for line in told if line.endswith(" read:")]
    assert heads == ["3 of 8 files were not read:", "In files that were read:"] and len(lines) == len(FLAWS)
    monkeypatch.setattr("ragc.knowledge.index.build.build_index", None)
    found = [one for one in examine_setup(own_shop) if not one.good and "/" in one.what]
    assert sorted(line.removeprefix("  ") for line in lines) == sorted(f"{f.what} {f.mend}" for f in found)
    assert [one.warning for one in sorted(found, key=lambda one: one.what)] == [not lost for *_, lost in FLAWS]
    checked = json.loads(invoke("data", "check", own_shop, "--json").stdout)
    for kind, wanted in (("errors", True), ("warnings", False)):
        files = {one["file"] for one in checked[kind] if one["file"]}
        assert files == {path for path, *_, lost in FLAWS if lost == wanted}


def test_whoever_asks_is_told_once_how_many_files_were_not_read(own_shop, monkeypatch, caplog):
    add_unread(own_shop)
    line = f"3 of 8 files were not read: ragc index {own_shop}\n"
    question = "How much water does the Merle kettle hold?"
    parse_file = folder.parse_file
    for arguments in (["ask", own_shop, question], ["ask", own_shop, question], ["eval", own_shop, "--split", "train"]):
        told = invoke(*arguments)
        assert told.exit_code == 0 and told.stderr.count("not read") == 1 and line in told.stderr, told.stderr
        monkeypatch.setattr(folder, "parse_file", None)  # what was stored is told when nothing changed
    assert "not read" not in invoke("ask", own_shop, question).stdout
    monkeypatch.setattr(folder, "parse_file", parse_file)
    monkeypatch.chdir(own_shop.parent)
    caplog.clear()
    open_latest(own_shop.name)
    assert [record.getMessage() for record in caplog.records if "not read" in record.getMessage()] == [
        f"3 of 8 files were not read: ragc index {own_shop.name}"
    ]
    for path in ("knowledge/product/logo.png", "records/broken.csv"):
        (own_shop / path).unlink()
    assert (
        f"1 of 6 files was not read: ragc index {own_shop.name}\n"
        in invoke("compile", own_shop, "--trials", "1").stderr
    )
    (own_shop / "knowledge/product/manual.pdf").unlink()
    assert "not read" not in invoke("ask", own_shop, question).output
