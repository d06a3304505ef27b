"""A compile that found nothing changes nothing; one that found something is what a project's folder is answered by."""

import json
import random
import shutil

import dspy
import pytest

from ragc import load
from ragc.optimize.compiler.compile import compile_program
from ragc.optimize.registry.aliases import promote_version
from ragc.optimize.registry.versions import publish_version
from ragc.serve.opening import open_latest
from ragc.serve.reference import find_current
from tests.optimize.conftest import compile_, invoke, manifest_of, publish_rows, score_rows
from tests.optimize.test_versions import state

ASKED = "How much water does the Merle hold?"
PARTS = ("lid", "spout", "base", "cable", "handle", "filter", "switch", "element", "gauge", "lamp", "seal", "hinge")


def label(shop, rows):
    (shop / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def plain_shop(shop):
    """The shop as plain RAG, which answers what nothing is known of, too."""
    toml, plain = shop / "ragc.toml", '[loop]\npreset = "plain"\n[knowledge.product]'
    toml.write_text(toml.read_text().replace("[knowledge.product]", plain, 1))
    asked = "Who designed the {}", "Is the {} sold in green", "Was the {} ever recalled", "May the {} be rented"
    # No two parts are asked about in nearly the same words, which would bind their topics.
    own = {part: " ".join(f"{part}{word}" for word in ("ish", "ful", "ward", "like")) for part in PARTS}
    rows = [
        {"id": f"{part}{n}", "question": f"{text.format(part)} {own[part]}?", "topic": part}
        for part in PARTS
        for n, text in enumerate(asked)
    ]
    label(shop, [{**row, "outcome": "abstain", "route": "simple"} for row in rows])


def test_a_gain_that_is_proved_is_sealed_and_the_folder_is_answered_by_it(own_shop):
    plain_shop(own_shop)
    done = compile_(own_shop)
    assert done.verdict == "better" and done.gain.difference > 0.2
    gain = manifest_of(own_shop, done.reference).section("gain")
    assert gain["verdict"] == "better" and gain["rule"]
    assert open_latest(own_shop).runtime.version == load(own_shop)(ASKED).version == "shop@v2"


def publish(root, verdict="", parent="helpdesk@v1", correct=range(20)):
    gain = {"gain": {"verdict": verdict}} if verdict else {}
    rows = score_rows(["correct" if n in correct else "wrong" for n in range(40)], lambda n: n % 8)
    return publish_rows(root, rows, json.dumps(state()).encode(), parent=parent, **gain)


BETTER, WORSE, ALIKE = "better", "worse", "no_detectable_difference"


@pytest.mark.parametrize(
    ("versions", "alias", "opened"),
    [
        ([], "", None),
        ([("", None)], "", None),
        ([("", None), (BETTER, "helpdesk@v1")], "", "v2"),
        ([("", None), (ALIKE, "helpdesk@v1")], "", "v2"),
        ([("", None), (WORSE, "helpdesk@v1")], "", None),
        ([("", None), (BETTER, "helpdesk@v1"), (WORSE, "helpdesk@v2")], "", "v2"),
        ([("", None), (BETTER, "helpdesk@v1"), (ALIKE, "helpdesk@v2")], "", "v3"),
        ([("", None), (WORSE, "helpdesk@v1"), (BETTER, "helpdesk@v1"), (WORSE, "helpdesk@v1")], "", "v3"),
        ([("", None), (BETTER, "helpdesk@v1"), (BETTER, "helpdesk@v2")], "v1", "v1"),
        ([("", None), (WORSE, "helpdesk@v1")], "v2", "v2"),
        ([("", None), ("", "helpdesk@v1")], "", "v2"),
    ],
    ids=repr,
)
def test_a_folder_is_opened_by_production_else_by_the_newest_version_that_is_not_worse(
    tmp_path, versions, alias, opened
):
    for verdict, parent in versions:
        publish(tmp_path, verdict, parent)
    if alias:
        promote_version(f"helpdesk@{alias}", "production", root=tmp_path)
    found = find_current(tmp_path, "helpdesk")
    assert (found and found.label) == (opened and f"helpdesk@{opened}")


def test_a_promotion_tells_the_comparison_that_is_known(tmp_path):
    publish(tmp_path, parent=None)
    publish(tmp_path, BETTER, correct=range(32))
    publish(tmp_path, ALIKE, correct=range(30))
    publish_version("helpdesk", {"parent": "helpdesk@v3"}, {"program.json": b"{}"}, tmp_path)
    for version, parts in {
        "v1": (), "v2": ("against helpdesk@v1-", "better: utility +0.600 ["),
        "v3": ("against helpdesk@v2-", "no detectable difference", "utility -0.100 ["),
        "v4": ("not compared with helpdesk@v3-",),
    }.items():  # fmt: skip
        told = invoke("promote", f"helpdesk@{version}", "--to", "production", "--artifacts", tmp_path).stdout
        assert all(part in told for part in parts) and (version != "v1" or "against" not in told)


def test_every_answer_names_the_version_that_gave_it(own_shop, compiled, tmp_path):
    compiled = shutil.copytree(compiled, tmp_path / "compiled")
    for folder, spoke in ((own_shop, "uncompiled"), (compiled, "shop@v2")):
        assert f" | {spoke} | trace " in invoke("ask", folder, ASKED).stderr.splitlines()[-1]
        assert json.loads(invoke("ask", folder, ASKED, "--json").stdout)["version"] == spoke.replace("uncompiled", "")
    promote_version("shop@v1", "production", root=compiled / "artifacts")
    assert "| shop@v1" in invoke("ask", compiled, ASKED).stderr


class Sort(dspy.Signature):
    """Decide whether a letter is spam."""

    letter: str = dspy.InputField()
    spam: bool = dspy.OutputField(desc="The letter promises something for nothing.")


WORDS = {True: ("win", "prize", "lottery", "free money"), False: ("invoice", "meeting", "parcel", "receipt")}


def letters(path, told):
    rows = [
        {"letter": f"About the {word} of {day}.", "spam": told(spam), "topic": f"{word} {day}"}
        for spam, words in WORDS.items()
        for word in words
        for day in ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Sunday")
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_strangers_program_counts_as_better_where_the_labels_teach_something_and_not_where_a_coin_drew_them(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    rng, same = random.Random(3), lambda example, said, trace=None: float(said.spam == example.spam)
    for name, told, learned in (("noise", lambda spam: rng.random() < 0.5, False), ("post", lambda spam: spam, True)):
        data, make = letters(tmp_path / f"{name}.jsonl", told), lambda: dspy.Predict(Sort)
        done = compile_program(make, data, same, name=name, artifacts=tmp_path / "artifacts")
        second = manifest_of(tmp_path, done.reference)
        assert done.better is learned and (second.section("gain")["verdict"] == "better") is learned
        assert ("It is better than" in done.explain()) is learned
