"""Versions compared, drawn and removed, through the command line and below it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragc.errors import IntegrityError, VersionError
from ragc.optimize.evaluation.grades import METRICS
from ragc.optimize.registry import versions as registry
from ragc.optimize.registry.aliases import promote_version
from ragc.optimize.registry.diff import SECTIONS, diff_versions, word_edits
from ragc.optimize.registry.retention import collect_garbage
from ragc.serve import reference
from tests.optimize.conftest import invoke, publish_rows, score_rows


def state(instructions="Judge the passage.", demos=(), k=5):
    signature = {"instructions": instructions, "fields": [{"prefix": "Relevant:", "description": "Whether it helps."}]}
    return {"judge.relevance": {"demos": list(demos), "signature": signature}, "policy.k": {"value": k}}


def publish(root, program=None, correct=20, **fields):
    """A version of 40 questions in eight topics, of which the first so many are correct."""
    rows = score_rows(["correct"] * correct + ["wrong"] * (40 - correct), lambda n: n % 8)
    points = {"balanced": {"policy.k": (program or state())["policy.k"]["value"], "judge.relevance:relevant": 0.5}}
    given = {"points": points, "scores": {"utility": {"value": 0.5}}, **fields}
    return publish_rows(root, rows, json.dumps(program or state()).encode(), **given)


@pytest.fixture
def two(tmp_path):
    """v1, and v2 compiled from it: another word, one demonstration for another, a knob, a package, more answers."""
    old, kept, new = ({"question": q, "relevant": True} for q in ("Old?", "Kept?", "New?"))
    publish(tmp_path, state(demos=[old, kept]), env={"dspy": "3.4.0", "numpy": "2.4"}, models={"decide": "local/a"})
    after = state("Judge every passage.", [kept, new], 7)
    publish(tmp_path, after, 30, parent="helpdesk@v1", env={"dspy": "3.4.1", "numpy": "2.4"},
            models={"decide": "local/b"}, data={"test": {"n": 40}})  # fmt: skip
    return tmp_path


@pytest.fixture
def ragc(tmp_path):
    return lambda *args: invoke(*args, "--artifacts", tmp_path)


@pytest.mark.parametrize("columns", ["80", "120"])
def test_a_version_is_shown_on_one_screen(two, ragc, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    knobs = {f"judge.relevance:base_{n:02}": n / 7 for n in range(40)}
    figures = {name: {"value": 0.25, "ci": [0.2, 0.31], "n": 308} for name in ("utility", *METRICS)}
    figures["wrong"]["ci"] = [None, None]  # as infinite ends are sealed
    demos = [{"question": f"{n}?", "relevant": True} for n in range(7)]
    publish(two, state(demos=demos), parent="helpdesk@v2", points={"balanced": knobs},
            scores=figures | {"plain": figures},
            optimizer={"name": "ragc", "seed": 0, "trials": 262})  # fmt: skip
    promote_version("helpdesk@v3", "production", root=two)
    shown = ragc("show", "helpdesk@v3").stdout
    words = " ".join(shown.split())
    assert len(shown.splitlines()) <= 40 and max(map(len, shown.splitlines())) <= int(columns)
    lineage = [one.full_label for one in (reference.resolve(f"helpdesk@v{n}", two) for n in (1, 2, 3))]
    assert f"lineage {' > '.join(lineage)} aliases production" in words
    assert "judge.relevance 7" in words and "name ragc, seed 0, trials 262" in words
    assert "correct 25.0 [20.0, 31.0] 25.0 [20.0, 31.0] 308" in words
    assert "42 settings of balanced moved" in words and "... and 32 more: ragc diff helpdesk@v2 helpdesk@v3" in words


def test_a_difference_tells_wording_demonstrations_settings_and_scores(two, ragc):
    found = diff_versions("helpdesk@v1", "helpdesk@v2", root=two)
    edits = (("same", "Judge "), ("out", "the "), ("in", "every "), ("same", "passage."))
    assert found.wording == {"judge.relevance": edits}
    (demos,) = found.demonstrations.values()
    assert demos["came"] == [{"question": "New?", "relevant": True}] and demos["went"][0]["question"] == "Old?"
    assert demos["stayed"] == 1
    changes = {table: getattr(found, table) for table in ("settings", *SECTIONS)}
    changed = {(table, n): tuple(c.values()) for table, of in changes.items() for n, c in of.items()}
    assert changed == {
        ("settings", "policy.k"): (5, 7), ("env", "dspy"): ("3.4.0", "3.4.1"),
        ("models", "decide"): ("local/a", "local/b"), ("data", "test.n"): (None, 40),
    }  # fmt: skip
    assert found.scores.difference == 0.5
    assert [f["id"] for f in found.scores.flipped] == [f"q{i:03}" for i in range(20, 30)]
    assert not found.same_program
    shown = json.loads(ragc("diff", "helpdesk@v1", "helpdesk@v2", "--json").stdout)
    assert (shown["settings"]["policy.k"], shown["scores"]["verdict"]) == ({"from": 5, "to": 7}, "better")
    text = ragc("diff", "helpdesk@v1", "helpdesk@v2").stdout
    for part in ("Judge [-the-] [+every+] passage.", "+ New? (relevant=True)", "- Old?", "local/b", "better: utility"):
        assert part in text
    same = diff_versions("helpdesk@v1", "helpdesk@v1", root=two)
    assert same.same_program and not any((same.wording, same.demonstrations, same.settings, same.env, same.git))


def test_versions_scored_on_different_questions_are_still_compared_but_for_their_scores(two):
    registry.publish_version("helpdesk", {"points": {"balanced": {"policy.k": 5}}}, {"program.json": b"{}"}, two)
    found = diff_versions("helpdesk@v1", "helpdesk@v3", root=two)
    assert found.scores is None
    assert "holds no scores.jsonl" in found.unscored
    with pytest.raises(VersionError, match="balanced"):
        diff_versions("helpdesk@v1", "helpdesk@v2", "cheapest", two)


texts = st.text(st.sampled_from("ab \n\t"), max_size=30)


@given(texts, texts)
def test_the_words_that_stay_and_go_are_the_old_text_and_those_that_stay_and_come_the_new(before, after):
    edits = word_edits(before, after)
    assert "".join(text for op, text in edits if op != "in") == before
    assert "".join(text for op, text in edits if op != "out") == after


def test_of_one_program_the_moves_of_aliases_are_listed_with_who_and_why(two, ragc):
    promote_version("helpdesk@v2", "production", reason="it is better", root=two)
    told = " ".join(ragc("ls", "helpdesk").stdout.split())
    assert "moves of aliases" in told and "it is better" in told
    assert "moves of aliases" not in ragc("ls").stdout


def test_what_is_collected_is_old_and_nothing_points_at_it(tmp_path):
    refs = [publish(tmp_path) for _ in range(9)]
    publish(tmp_path, parent=refs[1])
    for ref in (refs[3], refs[4]):  # a rollback from v5 would go to v4
        promote_version(ref, "production", root=tmp_path)
    design = tmp_path / "experiments" / "exp-2026-11-refunds" / "experiment.json"
    design.parent.mkdir(parents=True)
    sixth, seventh = (reference.resolve(ref, tmp_path) for ref in refs[5:7])
    arms = {"a": {"version": "helpdesk@v6"}, "b": {"digest": seventh.digest}}
    for told, keep, expected in (({"arms": arms}, 2, "138"), ({"arms": arms}, 1, "1389"), ([sixth.version], 2, "1378")):
        design.write_text(json.dumps(told))
        gone = sorted(f.version.split("-")[0] for f in collect_garbage(keep, root=tmp_path) if f.goes)
        assert gone == [f"v{n}" for n in expected]
    publish(tmp_path, name="other"), publish(tmp_path, name="other")
    assert [f.name for f in collect_garbage(1, "other", root=tmp_path) if f.goes] == ["other"]
    for wrong, told in (((1, "othr"), "Nearest: other"), ((0,), "at least 1")):
        with pytest.raises(VersionError, match=told):
            collect_garbage(*wrong, root=tmp_path)
    design.write_text("{")
    with pytest.raises(IntegrityError, match=r"experiment\.json"):
        collect_garbage(1, force=True, root=tmp_path)
    assert len(reference.find_versions(tmp_path, "helpdesk")) == 10


def test_nothing_is_removed_until_it_is_forced(tmp_path, ragc):
    for _ in range(4):
        publish(tmp_path)
    (tmp_path / "helpdesk" / "versions" / ".tmp-1").mkdir()
    assert "3 of 4 versions would go" in ragc("gc", "--keep", "1").stdout
    assert len(reference.find_versions(tmp_path, "helpdesk")) == 4
    fates = json.loads(ragc("gc", "--keep", "1", "--force", "--json").stdout)
    assert [f["removed"] for f in fates] == [True, True, True, False]
    assert [v[:2] for v in reference.find_versions(tmp_path, "helpdesk")] == ["v4"]
    assert publish(tmp_path) == "helpdesk@v5" and all(c.sound for c in registry.verify_all(tmp_path))


def test_a_version_that_cannot_be_read_stays_and_the_others_are_collected(tmp_path, ragc):
    refs = [publish(tmp_path) for _ in range(3)]
    parent = str(reference.resolve(refs[0], tmp_path))
    torn = reference.resolve(publish(tmp_path, parent=parent), tmp_path).path / "manifest.json"
    publish(tmp_path, name="other")
    torn.write_bytes(torn.read_bytes()[:-3])
    tried = ragc("gc", "--keep", "1")
    assert tried.exit_code == 4 and "1 of 5 versions would go" in tried.stdout
    told = " ".join(tried.output.split())
    assert "error: helpdesk@v4-" in told and "is unreadable. Restore it from a copy, or compile" in told
    fates = json.loads(ragc("gc", "--keep", "1", "--force", "--json").stdout)
    assert [f["removed"] for f in fates] == [False, True, False, False, False]  # v4 still names its parent, v1
    assert [f["version"][:2] for f in fates if f["broken"]] == ["v4"]
    assert [v[:2] for v in reference.find_versions(tmp_path, "helpdesk")] == ["v1", "v3", "v4"]
    (reference.resolve(publish(tmp_path), tmp_path).path / "program.json").write_text("[]")
    done = ragc("gc", "--keep", "1", "--force", "helpdesk")  # what is not as it was sealed is not the newest
    assert done.exit_code == 4 and "program.json" in done.output
    assert [v[:2] for v in reference.find_versions(tmp_path, "helpdesk")] == ["v1", "v3", "v4", "v5"]
