"""Search figures on a small set in BEIR's layout, through the command line and by hand."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

from optimize.cli.main import main
from optimize.evaluation.retrieval import Ranked, figures, ndcg, read_beir, recall
from program.errors import DataError

PASSAGES = {
    "a": ("Wren kettle", "The Wren kettle draws 2000 watts."),
    "b": ("Merle jug", "The Merle jug holds two litres of water."),
    "c": ("Rook lamp", "The Rook lamp has three levels of light."),
}


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": id, "title": title, "text": text, "metadata": {}} for id, (title, text) in PASSAGES.items()]
    queries = [
        {"_id": "q1", "text": "How many watts does the Wren draw?"},
        {"_id": "q2", "text": "Nobody judged this."},
    ]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, corpus)), encoding="utf-8")
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)), encoding="utf-8")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ta\t1\nq1\tb\t0\n", encoding="utf-8")
    return folder


def ragc(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["ragc", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def test_a_fresh_project_measures_a_set_and_keeps_its_index(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, beir: Path
) -> None:
    assert ragc(monkeypatch, "init", tmp_path / "p") == 0
    capsys.readouterr()
    for strategy in ("auto", "keyword"):
        arguments = ("eval-search", tmp_path / "p", "--beir", beir, "--strategy", strategy, "--json")
        assert ragc(monkeypatch, *arguments) == 0
        found = json.loads(capsys.readouterr().out)
        assert list(found) == ["strategy", "n", "R@2", "R@5", "all@8", "nDCG@10", "p50_ms", "p95_ms"]
        assert (found["strategy"], found["n"], found["R@2"], found["nDCG@10"]) == (strategy, 1, 1.0, 1.0)
        assert 0 < found["p50_ms"] <= found["p95_ms"]
    assert len(list((tmp_path / "p" / ".ragc" / "beir").glob("*/gen-*"))) == 1


def test_without_a_set_the_projects_own_questions_of_train_and_dev_are_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], own_shop: Path
) -> None:
    ids = dict(zip(("train", "dev", "test"), _listed(monkeypatch, capsys, own_shop), strict=False))
    lines = [
        {"id": split, "question": f"What of {split}?", "topic": split, "evidence": [id_], "split": split}
        for split, id_ in ids.items()
    ]
    (own_shop / "labelled.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    counts = {}
    for options in ((), ("--split", "test"), ("--split", "train,dev,test")):
        assert ragc(monkeypatch, "eval-search", own_shop, *options, "--json") == 0
        counts[options] = json.loads(capsys.readouterr().out)["n"]
    assert list(counts.values()) == [2, 1, 3]
    assert ragc(monkeypatch, "eval-search", own_shop, "--split", "tset") == 2
    assert "no split 'tset'" in capsys.readouterr().err
    (own_shop / "labelled.jsonl").write_text(json.dumps({**lines[0], "evidence": [], "outcome": "abstain"}))
    assert ragc(monkeypatch, "eval-search", own_shop) == 2
    assert "ragc index PROJECT --list" in capsys.readouterr().err


def _listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path) -> list[str]:
    assert ragc(monkeypatch, "index", folder, "--list", "--json") == 0
    return [row["id"] for row in json.loads(capsys.readouterr().out)]


def test_index_lists_the_ids_that_evidence_may_name_and_indexes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ragc(monkeypatch, "init", tmp_path / "p")
    with (tmp_path / "p/ragc.toml").open("a") as toml:
        toml.write('[knowledge.records]\nkind = "tables"\npath = "records"\n')
    (tmp_path / "p/records").mkdir()
    (tmp_path / "p/records/bookings.csv").write_text("id,seats\nB1,3\n")
    capsys.readouterr()
    assert ragc(monkeypatch, "index", tmp_path / "p", "--list") == 0
    assert capsys.readouterr().out.splitlines() == [
        "docs/hours.md#opening-hours\tOpening hours",
        "records/bookings\ta table",
    ]
    assert not (tmp_path / "p/.ragc").exists()


@pytest.mark.parametrize("wrong", [("--strategy", "psychic"), ("-k", "0,5"), ("-k", "five")])
def test_a_wrong_option_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, beir: Path, wrong: tuple[str, str]
) -> None:
    ragc(monkeypatch, "init", tmp_path / "p")
    assert ragc(monkeypatch, "eval-search", tmp_path / "p", "--beir", beir, *wrong) == 2


def test_questions_without_a_judged_passage_are_left_out(beir: Path) -> None:
    assert dict(read_beir(beir).judged) == {"q1": {"a": 1.0}}
    assert list(read_beir(beir).questions) == ["q1"]


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_a_missing_file_is_named(beir: Path, name: str) -> None:
    (beir / name).unlink()
    with pytest.raises(DataError, match=name):
        read_beir(beir)


def test_lines_that_are_not_beir_are_an_error(beir: Path) -> None:
    (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1 a 1\n", encoding="utf-8")
    with pytest.raises(DataError, match="BEIR"):
        read_beir(beir)


def test_measures_are_those_of_the_definitions() -> None:
    ranked = Ranked(["x", "a", "y", "b"], {"a": 1.0, "b": 1.0, "c": 1.0}, 5.0)
    assert recall(ranked, 2) == pytest.approx(1 / 3) and recall(ranked, 10) == pytest.approx(2 / 3)
    ideal = 1 + 1 / math.log2(3) + 1 / 2
    assert ndcg(ranked, 10) == pytest.approx((1 / math.log2(3) + 1 / math.log2(5)) / ideal)
    graded = Ranked(["b", "a"], {"a": 2.0, "b": 1.0}, 1.0)
    assert ndcg(graded, 10) == pytest.approx((1 + 2 / math.log2(3)) / (2 + 1 / math.log2(3)))
    found = figures([ranked, graded], "auto", (2, 3))
    assert (found["all@8"], found["all@3"], found["p50_ms"], found["p95_ms"]) == (0.5, 0.5, 1.0, 5.0)
