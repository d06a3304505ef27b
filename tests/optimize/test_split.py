"""Dividing questions into train, dev and test, writing the division down, and keeping it for later versions."""

import json
from collections import Counter
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from ragc.errors import BudgetStop
from ragc.knowledge.project import Project
from ragc.optimize.compiler.compile import compile_project
from ragc.optimize.evaluation.evaluate import evaluate_side_by_side
from ragc.optimize.labelled.dataset import SPLITS, LabelledQuestion, read_labelled
from ragc.optimize.labelled.split import (
    LEARNT_FROM,
    order_stratified,
    sample_stratified,
    split_questions,
    write_splits,
)
from ragc.optimize.labelled.units import question_digest
from ragc.optimize.registry.versions import read_ancestors
from tests.optimize.conftest import invoke, invoke_json


def question(n, topic="", **labels):
    fields = {"id": f"q{n:04}", "question": f"What of {n}?", "topic": topic, "facts": ["x"], **labels}
    return LabelledQuestion.model_validate(fields)


def many(topics=30, size=6):
    return [
        question(t * size + n, f"topic {t}", tags=["even" if n % 2 else "odd", *(["rare"] if n == t % 7 == 0 else [])])
        for t in range(topics)
        for n in range(size)
    ]


def where(parts):
    return {q.id: split for split, part in parts.items() for q in part}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=3, max_size=25), st.integers(0, 5), st.randoms(use_true_random=False))
def test_a_topic_is_in_one_split_none_is_empty_nothing_is_lost_and_the_order_of_the_file_does_not_matter(
    sizes, seed, order
):
    questions = [question(100 * t + n, f"t{t}") for t, size in enumerate(sizes) for n in range(size)]
    parts = split_questions(questions, seed)
    assert sorted(q.id for part in parts.values() for q in part) == [q.id for q in questions]
    found = where(parts)
    assert all(parts.values()) and len({(q.topic, found[q.id]) for q in questions}) == len(sizes)
    order.shuffle(shuffled := list(questions))
    assert where(split_questions(shuffled, seed)) == found
    assert where(split_questions(many(), 0)) != where(split_questions(many(), 1))


def test_sizes_and_tags_come_out_near_50_20_30():
    parts = split_questions(many(), 0).values()
    for tag in ("even", "odd"):
        assert [sum(tag in q.tags for q in part) for part in parts] == [45, 18, 27]
    rare = [sum("rare" in q.tags for q in part) for part in parts]
    assert sum(rare) == 5 and max(rare) <= 3


def test_questions_on_one_passage_stay_together_unless_it_binds_all_and_a_table_does_not_bind():
    shared = [question(n, evidence=["docs/a.md#b"]) for n in range(4)]
    table = [question(10 + n, evidence=["records/orders"]) for n in range(40)]
    found = where(split_questions([*shared, *table]))
    assert len({found[q.id] for q in shared}) == 1
    assert {found[q.id] for q in table} == {"train", "dev", "test"}
    assert all(split_questions([question(n, f"t{n % 5}", evidence=["docs/a.md#b"]) for n in range(20)]).values())


@given(
    st.dictionaries(st.integers(0, 30), st.tuples(st.integers(0, 8), st.sampled_from([*SPLITS, None]))),
    st.dictionaries(st.integers(0, 30), st.sampled_from(SPLITS)),
    st.integers(0, 3),
)
def test_a_question_stays_in_the_split_it_was_in_before_whatever_its_own(rows, before, seed):
    questions = [question(n, f"t{topic}", split=own) for n, (topic, own) in rows.items()]
    known = {question_digest(f"What  OF {n}?"): split for n, split in before.items()}
    found = where(split_questions(questions, seed, known))
    assert len(found) == len(questions)
    assert all(found[f"q{n:04}"] == split for n, split in before.items() if n in rows)


KINDS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["answered", "clarify"])), max_size=60)


@given(KINDS, st.integers(1, 70))
def test_a_sample_keeps_the_order_and_of_every_topic_and_outcome_its_share(kinds, most):
    questions = [question(n, topic, outcome=outcome) for n, (topic, outcome) in enumerate(kinds)]
    kept = sample_stratified(questions, most)
    assert len(kept) == min(most, len(questions)) and [q.id for q in kept] == sorted(q.id for q in kept)
    share, found = min(1.0, most / max(len(questions), 1)), Counter((q.topic, q.outcome) for q in kept)
    assert all(abs(found[kind] - count * share) <= 1.5 for kind, count in Counter(kinds).items())


def test_a_test_cut_short_has_asked_of_every_topic_its_share():
    questions, asked = [question(n, f"topic {n // 10:02}") for n in range(200)], []
    order = order_stratified(questions)
    assert sorted(order) == list(range(200))

    def answer(texts):
        if len(asked) == 64:
            raise BudgetStop("calls")
        asked.extend(texts)
        return [SimpleNamespace(usage=SimpleNamespace(seconds=0.0)) for _ in texts]

    (found,) = evaluate_side_by_side([(lambda q, _: q, answer)], questions)
    counts = Counter(graded.topic for graded in found.grades)
    assert len(counts) == 20 and set(counts.values()) <= {2, 3, 4, 5}
    assert [q.id for q in found.grades] == sorted(questions[n].id for n in order[:64])


def test_writing_splits_changes_nothing_else(tmp_path):
    path = tmp_path / "labelled.jsonl"
    before = (
        '\ufeff{"question": "a, {\\"split\\": 1}?",  "id":"q1" , "facts": ["\\u00a3 5"] }\r\n'
        "\r\n"
        '{"id":"q2","question":"é\u2028?","split":"dev","facts":["b"]}\n'
        '{"split" : "dev", "id": "q3", "question": "c?", "facts": ["b"]}'
    )
    path.write_bytes(before.encode())
    path.chmod(0o640)
    assert write_splits(path, {"q1": "train", "q2": "dev", "q3": "test"}) == 2
    after = before.replace('5"] }', '5"], "split": "train" }').replace('"split" : "dev"', '"split" : "test"')
    assert path.read_bytes().decode() == after and path.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["labelled.jsonl"]


def test_the_command_writes_each_split_once_and_anew_when_told_and_stats_count_them(tmp_path):
    (tmp_path / "ragc.toml").write_text('name = "p"\n[knowledge.docs]\npath = "docs"\n')
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("# A page\nOf nothing that is asked.\n")
    labelled = tmp_path / "labelled.jsonl"
    for questions in (many(topics=2), many()):
        rows = [q.model_dump(mode="json", include={"id", "question", "topic", "facts"}) for q in questions]
        labelled.write_text("".join(json.dumps(row) + "\n" for row in rows))
        done = invoke("data", "split", tmp_path, "--json")
        assert ("at least three topics" in str(done.exception)) == (done.exit_code != 0) == (len(questions) == 12)
    assert json.loads(done.stdout) == {"changed": 180, "splits": {"train": 90, "dev": 36, "test": 54}}
    assert invoke_json("data", "split", tmp_path, "--seed", 1)["changed"] == 0
    counts = json.loads(invoke("data", "check", tmp_path, "--json").stdout)["labels"]
    assert counts["all"]["questions"] == {"train": 90, "dev": 36, "test": 54, "total": 180}
    assert counts["outcome"]["-"]["total"] == 180 and len(counts["topic"]) == 30
    assert invoke_json("data", "split", tmp_path, "--seed", 1, "--again")["changed"] > 0


def undivided(folder, *topics):
    """Take the `split` out of the questions of a project and add one of each topic."""
    path = folder / "labelled.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows += [{"id": t, "question": f"What is its {t}?", "topic": t, "outcome": "abstain"} for t in topics]
    path.write_text("".join(json.dumps({**row, "split": None}) + "\n" for row in rows))
    return Project.open(folder)


def test_what_a_version_learnt_from_is_in_no_test_of_it_or_its_children(own_shop):
    def digests(manifest, *parts):
        return {digest for part in parts for digest in manifest.section("data")[part]["questions"]}

    root = own_shop / "artifacts"
    first = compile_project(undivided(own_shop))
    more = undivided(own_shop, "colour", "price", "weight", "noise", "size", "age")
    again = compile_project(more, seed=5, origin=first.reference)
    child, parent = read_ancestors(again.reference, root)[:2]
    learnt = digests(parent, *LEARNT_FROM)
    assert child.parent.partition("@")[2].startswith(parent.version)
    assert learnt and not digests(child, "test") & learnt and digests(parent, "test") <= digests(child, "test")
    questions = read_labelled(own_shop / "labelled.jsonl")
    assert len(digests(child, *LEARNT_FROM, "test")) == len(questions)
    shown = invoke_json("eval", first.reference, "--artifacts", root, "--split", "test")
    assert 0 < shown["n"] <= sum(question_digest(q.question) not in learnt for q in questions)
