"""Search figures on a small set in BEIR's layout, through the command line and by hand."""

import json
import math

import pytest

from ragc.errors import DataError, RagcError
from ragc.optimize.evaluation.retrieval import Ranked, measure_rankings, ndcg_at_k, read_judged, recall_at_k
from tests.optimize.conftest import invoke, invoke_json

PASSAGES = {
    "a": ("Wren kettle", "The Wren kettle draws 2000 watts."),
    "b": ("Merle jug", "The Merle jug holds two litres of water."),
    "c": ("Rook lamp", "The Rook lamp has three levels of light."),
}


@pytest.fixture
def beir(tmp_path):
    rows = {
        "corpus.jsonl": [{"_id": id, "title": t, "text": text, "metadata": {}} for id, (t, text) in PASSAGES.items()],
        "queries.jsonl": [
            {"_id": "q1", "text": "How many watts does the Wren draw?"},
            {"_id": "q2", "text": "Unjudged."},
        ],
    }
    (tmp_path / "set" / "qrels").mkdir(parents=True)
    for name, lines in rows.items():
        (tmp_path / "set" / name).write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (tmp_path / "set/qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ta\t1\nq1\tb\t0\n", encoding="utf-8")
    return tmp_path / "set"


def test_a_fresh_project_measures_a_set_and_keeps_its_index(tmp_path, beir):
    invoke("init", tmp_path / "p")
    for strategy in ("auto", "keyword"):
        found = invoke_json("eval", tmp_path / "p", "--search", "--beir", beir, "--strategy", strategy)
        assert list(found) == ["strategy", "n", "R@2", "R@5", "all@8", "nDCG@10", "p50_ms", "p95_ms"]
        assert (found["strategy"], found["n"], found["R@2"], found["nDCG@10"]) == (strategy, 1, 1.0, 1.0)
        assert 0 < found["p50_ms"] <= found["p95_ms"]
    assert len(list((tmp_path / "p" / ".ragc" / "beir").glob("*/gen-*"))) == 1
    for wrong in (("--strategy", "psychic"), ("-k", "0,5"), ("-k", "five")):
        with pytest.raises((RagcError, SystemExit)) as stop:
            invoke_json("eval", tmp_path / "p", "--search", "--beir", beir, *wrong)
        assert getattr(stop.value, "exit_code", getattr(stop.value, "code", None)) == 2


def test_without_a_set_the_projects_own_questions_of_train_and_dev_are_used(own_shop):
    ids = zip(("train", "dev", "test"), invoke_json("index", own_shop, "--list"), strict=False)
    lines = [
        {"id": split, "question": f"What of {split}?", "topic": split, "evidence": [row["id"]], "split": split}
        for split, row in ids
    ]
    (own_shop / "labelled.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    for options, n in (((), 2), (("--split", "test"), 1), (("--split", "train,dev,test"), 3)):
        assert invoke_json("eval", own_shop, "--search", *options)["n"] == n
    with pytest.raises(RagcError, match="no split 'tset'"):
        invoke_json("eval", own_shop, "--search", "--split", "tset")
    (own_shop / "labelled.jsonl").write_text(json.dumps({**lines[0], "evidence": [], "outcome": "abstain"}))
    with pytest.raises(DataError, match=f"ragc index {own_shop} --list"):
        invoke_json("eval", own_shop, "--search")


def test_only_judged_questions_are_read_and_what_is_no_set_is_an_error(beir):
    read = read_judged(beir)
    assert read.judged == {"q1": {"corpus/corpus.jsonl#a": 1.0}} and list(read.questions) == ["q1"]
    (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1 a 1\n", encoding="utf-8")
    with pytest.raises(DataError, match="BEIR"):
        read_judged(beir)
    for name in ("qrels/test.tsv", "queries.jsonl", "corpus.jsonl"):
        (beir / name).unlink()
        with pytest.raises(DataError, match=name):
            read_judged(beir)


def test_measures_are_those_of_the_definitions():
    ranked = Ranked(["x", "a", "y", "b"], {"a": 1.0, "b": 1.0, "c": 1.0}, 5.0)
    assert recall_at_k(ranked, 2) == pytest.approx(1 / 3) and recall_at_k(ranked, 10) == pytest.approx(2 / 3)
    ideal = 1 + 1 / math.log2(3) + 1 / 2
    assert ndcg_at_k(ranked, 10) == pytest.approx((1 / math.log2(3) + 1 / math.log2(5)) / ideal)
    graded = Ranked(["b", "a"], {"a": 2.0, "b": 1.0}, 1.0)
    assert ndcg_at_k(graded, 10) == pytest.approx((1 + 2 / math.log2(3)) / (2 + 1 / math.log2(3)))
    found = measure_rankings([ranked, graded], "auto", (2, 3))
    assert (found["all@8"], found["all@3"], found["p50_ms"], found["p95_ms"]) == (0.5, 0.5, 1.0, 5.0)
