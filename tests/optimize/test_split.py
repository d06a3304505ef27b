"""Dividing questions into train, dev and test, and writing the division down."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from optimize.cli import data
from optimize.labelled.dataset import LabelledQuestion, splits
from optimize.labelled.split import spread_out
from optimize.labelled.splitfile import write_splits


def question(n: int, topic: str = "", **labels: object) -> LabelledQuestion:
    return LabelledQuestion.model_validate(
        {"id": f"q{n:04}", "question": "why?", "topic": topic, "facts": ["x"], **labels}
    )


def many(topics: int = 30, size: int = 6) -> list[LabelledQuestion]:
    return [
        question(
            t * size + n,
            f"topic {t}",
            tags=["even" if n % 2 else "odd", *(["rare"] if n == t % 7 == 0 else [])],
        )
        for t in range(topics)
        for n in range(size)
    ]


def where(parts: dict[str, list[LabelledQuestion]]) -> dict[str, str]:
    return {q.id: split for split, part in parts.items() for q in part}


TOPICS = st.lists(st.integers(1, 9), min_size=3, max_size=25)


@settings(max_examples=60, deadline=None)
@given(sizes=TOPICS, seed=st.integers(0, 5))
def test_a_topic_is_in_one_split_no_split_is_empty_and_nothing_is_lost(sizes: list[int], seed: int) -> None:
    questions = [question(100 * t + n, f"t{t}") for t, size in enumerate(sizes) for n in range(size)]
    parts = splits(questions, seed)
    assert sorted(q.id for part in parts.values() for q in part) == [q.id for q in questions]
    assert all(parts.values())
    found = where(parts)
    assert all(len({found[q.id] for q in questions if q.topic == f"t{t}"}) == 1 for t in range(len(sizes)))


@settings(max_examples=20, deadline=None)
@given(order=st.randoms(use_true_random=False))
def test_the_division_does_not_depend_on_the_order_of_the_file(order: random.Random) -> None:
    questions = many()
    shuffled = list(questions)
    order.shuffle(shuffled)
    assert where(splits(shuffled, 3)) == where(splits(questions, 3))


def test_sizes_and_tags_come_out_near_50_20_30() -> None:
    questions = many()
    parts = splits(questions, 0)
    for tag in ("even", "odd"):
        counts = [sum(tag in q.tags for q in part) for part in parts.values()]
        assert counts == [45, 18, 27]
    rare = [sum("rare" in q.tags for q in part) for part in parts.values()]
    assert sum(rare) == 5 and max(rare) <= 3


def test_another_seed_divides_otherwise() -> None:
    assert where(splits(many(), 0)) != where(splits(many(), 1))


def test_a_given_split_counts_and_draws_its_topic_along() -> None:
    questions = [question(9000, "a", split="test"), question(9001, "a"), *many()]
    assert where(splits(questions))["q9001"] == "test"


def test_questions_on_one_passage_stay_together_and_a_table_does_not_bind() -> None:
    shared = [question(n, evidence=["docs/a.md#b"]) for n in range(4)]
    table = [question(10 + n, evidence=["records/orders"]) for n in range(40)]
    found = where(splits([*shared, *table]))
    assert len({found[q.id] for q in shared}) == 1
    assert Counter(found[q.id] for q in table).keys() == {"train", "dev", "test"}


def test_when_one_passage_binds_all_topics_the_topics_alone_decide() -> None:
    questions = [question(n, f"t{n % 5}", evidence=["docs/a.md#b"]) for n in range(20)]
    assert all(splits(questions).values())


def test_writing_splits_changes_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "labelled.jsonl"
    before = (
        '\ufeff{"question": "a, {\\"split\\": 1}?",  "id":"q1" , "facts": ["\\u00a3 5"] }\r\n'
        "\r\n"
        '{"id":"q2","question":"é\u2028?","split":"dev","facts":["b"]}\n'
        '{"split" : "dev", "id": "q3", "question": "c?", "facts": ["b"]}'
    )
    path.write_bytes(before.encode())
    assert write_splits(path, {"q1": "train", "q2": "dev", "q3": "test"}) == 2
    assert path.read_bytes().decode() == before.replace('5"] }', '5"], "split": "train" }').replace(
        '"split" : "dev"', '"split" : "test"'
    )
    assert [p.name for p in tmp_path.iterdir()] == ["labelled.jsonl"]


def project(tmp_path: Path, questions: list[LabelledQuestion]) -> Path:
    (tmp_path / "ragc.toml").write_text('name = "p"\n[knowledge.docs]\npath = "docs"\n')
    lines = [json.dumps({"id": q.id, "question": q.question, "topic": q.topic, "facts": ["x"]}) for q in questions]
    (tmp_path / "labelled.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def run(*arguments: str) -> tuple[int, str]:
    import typer

    app = typer.Typer()
    data.add_data_verbs(app)
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout if result.exception is None else str(result.exception)


def test_the_command_writes_each_split_once_and_anew_when_told(tmp_path: Path) -> None:
    folder = str(project(tmp_path, many()))
    code, shown = run("data", "split", folder, "--json")
    assert code == 0
    assert json.loads(shown) == {"changed": 180, "splits": {"train": 90, "dev": 36, "test": 54}}
    assert json.loads(run("data", "split", folder, "--seed", "1", "--json")[1])["changed"] == 0
    assert json.loads(run("data", "split", folder, "--seed", "1", "--again", "--json")[1])["changed"] > 0


def test_the_command_refuses_what_cannot_fill_three_splits(tmp_path: Path) -> None:
    code, message = run("data", "split", str(project(tmp_path, many(topics=2))))
    assert code != 0
    assert "at least three topics" in message


def test_stats_count_every_label_by_split(tmp_path: Path) -> None:
    folder = str(project(tmp_path, many()))
    run("data", "split", folder)
    counts = json.loads(run("data", "stats", folder, "--json")[1])
    assert counts["all"]["questions"] == {"train": 90, "dev": 36, "test": 54, "total": 180}
    assert counts["outcome"]["-"]["total"] == 180
    assert len(counts["topic"]) == 30
    assert run("data", "stats", folder)[0] == 0


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["answered", "clarify"])), max_size=60),
    st.integers(1, 70),
)
def test_a_spread_keeps_the_order_and_of_every_topic_and_outcome_its_share(kinds, most):
    questions = [
        LabelledQuestion(id=f"q{n}", question=f"What of {n}?", topic=topic, outcome=outcome)
        for n, (topic, outcome) in enumerate(kinds)
    ]
    kept = spread_out(questions, most)
    assert len(kept) == min(most, len(questions))
    rest = iter(questions)
    assert all(any(one is other for other in rest) for one in kept)
    if questions:
        share = min(1.0, most / len(questions))
        for kind, count in Counter(kinds).items():
            assert abs(Counter((q.topic, q.outcome) for q in kept)[kind] - count * share) <= 1.5
