"""A compile that found nothing changes nothing; one that found something is what a project's folder is answered by."""

import json
import random
import shutil

import dspy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimize.compiler.choice import choose_points
from optimize.compiler.compile import compile_program
from optimize.compiler.scoring import Scores
from optimize.registry.aliases import promote_version
from optimize.registry.versions import publish_version
from program import load, open_program
from program.loop.policy import read_setting
from program.serve.opening import open_latest
from program.serve.reference import find_current
from tests.optimize.conftest import compile_, invoke, manifest_of, publish_rows, score_rows
from tests.optimize.test_versions import state

ASKED = "How much water does the Merle hold?"
PARTS = ("lid", "spout", "base", "cable", "handle", "filter", "switch", "element", "gauge", "lamp", "seal", "hinge")


def label(shop, rows):
    (shop / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def few(shop):
    """The six questions of the shop, which it answers well enough."""


def noise(shop):
    """Questions that are answered or not by the toss of a coin."""
    rng = random.Random(2)
    label(
        shop,
        [
            {
                "id": part,
                "question": f"Which {part} has the kettle?",
                "topic": part,
                "outcome": rng.choice(["answered", "abstain"]),
            }
            for part in PARTS
        ],
    )


@pytest.mark.parametrize("labels", [few, noise])
def test_without_a_gain_that_survives_the_folds_the_version_is_the_uncompiled_program(own_shop, labels):
    labels(own_shop)
    uncompiled = open_program(own_shop)
    done = compile_(own_shop)
    second = manifest_of(own_shop, done.reference)
    assert "heads.safetensors" not in second.files, "no decider was given demonstrations"
    for point in second.section("points").values():
        assert point == pytest.approx(read_setting(uncompiled))
    assert not done.better and second.section("gain")["better"] is False
    assert [one.answer for one in done.after.grades] == [one.answer for one in done.before.grades]
    assert open_latest(own_shop).runtime.version == load(own_shop)(ASKED).version == ""
    assert load("shop@latest", artifacts=own_shop / "artifacts").runtime.version == "shop@v2"


def plain_shop(shop):
    """The shop as plain RAG, which answers what nothing is known of, too."""
    settings = shop / "ragc.toml"
    settings.write_text(
        settings.read_text().replace("[knowledge.product]", '[loop]\npreset = "plain"\n[knowledge.product]', 1)
    )
    asked = "Who designed the {}", "Is the {} sold in green", "Was the {} ever recalled", "May the {} be rented"
    label(
        shop,
        [
            # No two parts are asked about in nearly the same words, which would bind their topics.
            {
                "id": f"{part}{n}",
                "question": f"{text.format(part)} {' '.join(f'{part}{word}' for word in ('ish', 'ful', 'ward', 'like'))}?",
                "topic": part,
                "outcome": "abstain",
                "route": "simple",
            }
            for part in PARTS
            for n, text in enumerate(asked)
        ],
    )


def test_a_gain_that_survives_is_sealed_and_the_folder_is_answered_by_it(own_shop):
    plain_shop(own_shop)
    done = compile_(own_shop)
    assert done.better and "balanced" in done.survived and done.gain.difference > 0.2
    gain = manifest_of(own_shop, done.reference).section("gain")
    assert gain["better"] and gain["survived_folds"] and gain["rule"]
    assert open_latest(own_shop).runtime.version == load(own_shop)(ASKED).version == "shop@v2"


TOPICS = [f"t{n}" for n in range(8)]
tables = st.lists(st.lists(st.floats(-1, 1), min_size=8, max_size=8), min_size=2, max_size=5)


class Table:
    """A validation whose settings, named by `policy.k`, have the utilities of a table's rows."""

    topics, price = TOPICS, 0.05

    def __init__(self, rows):
        self.rows = np.array(rows)

    def __call__(self, setting):
        utility = self.rows[int(setting["policy.k"])]
        return Scores(utility, np.full(8, np.nan), np.zeros(8), np.zeros(8))


@given(tables)
def test_no_point_leaves_as_it_is_where_no_setting_is_better_on_any_topic(rows):
    best = np.max(rows, axis=0)
    settings = [{"policy.k": float(n)} for n in range(len(rows) + 1)]
    found = choose_points(Table([best, *rows]), stages={}, finalists=settings[1:], as_it_is=settings[0])
    assert list(found.points.values()) == [settings[0]] * 3 and not found.survived


@given(tables, st.integers(1, 4))
def test_a_setting_that_is_better_on_every_topic_is_taken(rows, at):
    rows = [*rows, (np.max(rows, axis=0) + 0.5).tolist()]
    settings = [{"policy.k": float(n)} for n in range(len(rows))]
    found = choose_points(Table(rows), stages={}, finalists=settings[1:], as_it_is=settings[0])
    assert found.points["balanced"] == settings[-1] and "balanced" in found.survived


def publish(root, better=None, parent="helpdesk@v1", correct=range(20)):
    gain = {} if better is None else {"gain": {"better": better}}
    rows = score_rows(["correct" if n in correct else "wrong" for n in range(40)], lambda n: n % 8)
    return publish_rows(root, rows, json.dumps(state()).encode(), parent=parent, **gain)


@pytest.mark.parametrize(
    ("versions", "alias", "opened"),
    [
        ([], "", None),
        ([(False, None)], "", None),
        ([(False, None), (True, "helpdesk@v1")], "", "v2"),
        ([(False, None), (True, "helpdesk@v1"), (False, "helpdesk@v2")], "", "v2"),
        ([(False, None), (False, "helpdesk@v1"), (True, "helpdesk@v1"), (False, "helpdesk@v1")], "", "v3"),
        ([(False, None), (True, "helpdesk@v1"), (True, "helpdesk@v2")], "v1", "v1"),
        ([(False, None), (False, "helpdesk@v1")], "v2", "v2"),
        ([(None, None)], "", None),
        ([(None, None), (None, "helpdesk@v1")], "", "v2"),
    ],
    ids=repr,
)
def test_a_folder_is_opened_by_production_else_by_the_newest_version_that_was_better(tmp_path, versions, alias, opened):
    for better, parent in versions:
        publish(tmp_path, better, parent)
    if alias:
        promote_version(f"helpdesk@{alias}", "production", root=tmp_path)
    found = find_current(tmp_path, "helpdesk")
    assert (found and found.label) == (opened and f"helpdesk@{opened}")


def test_a_promotion_tells_the_comparison_that_is_known(tmp_path):
    def promote(version):
        return invoke("promote", f"helpdesk@{version}", "--to", "production", "--artifacts", tmp_path).stdout

    publish(tmp_path, False, None)
    publish(tmp_path, True, correct=range(32))
    publish(tmp_path, False, correct=range(30))
    assert "against" not in promote("v1")
    told = promote("v2")
    assert "against helpdesk@v1-" in told and "better: utility +0.300 [" in told
    told = promote("v3")
    assert "against helpdesk@v2-" in told and "no detectable difference" in told and "utility -0.050 [" in told
    publish_version("helpdesk", {"parent": "helpdesk@v3"}, {"program.json": b"{}"}, tmp_path)
    assert "not compared with helpdesk@v3-" in promote("v4")


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


def make_triage():
    return dspy.Predict(Sort)


def same_spam(example, prediction, trace=None):
    return float(prediction.spam == example.spam)


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


def test_a_strangers_program_that_learned_nothing_is_sealed_as_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = random.Random(3)
    for name, told, learned in (("noise", lambda spam: rng.random() < 0.5, False), ("post", lambda spam: spam, True)):
        data = letters(tmp_path / f"{name}.jsonl", told)
        done = compile_program(make_triage, data, same_spam, name=name, trials=4, artifacts=tmp_path / "artifacts")
        second = manifest_of(tmp_path, done.reference)
        assert done.better is learned and second.section("gain")["better"] is learned
        assert (json.loads((second.path / "program.json").read_text())["self"]["demos"] == []) is not learned
        assert ("No gain was found" in done.explain()) is not learned
