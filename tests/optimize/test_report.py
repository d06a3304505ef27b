"""The report: one page, whole in itself, in which nothing a document says can run."""

import html
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragc.optimize.evaluation.evaluate import Evaluation
from ragc.optimize.evaluation.grades import Grade
from ragc.optimize.evaluation.outcome import AS_IT_IS, Compiled
from ragc.optimize.evaluation.stats import paired_test
from ragc.optimize.report.page import render_compile_page
from ragc.serve.reference import resolve


@pytest.fixture(scope="module")
def page(compiled):
    return (resolve("shop@v2", compiled / "artifacts").path / "report.html").read_text()


def test_the_page_tells_what_each_stage_came_to_and_which_was_sealed(page):
    assert "<td>as it is</td>" in page and "<td>labels and thresholds (sealed)</td>" in page
    assert "over plain RAG on test" in page


def test_the_page_needs_nothing_but_itself_and_what_a_name_says_is_text_not_markup(page):
    assert not re.search(r"<(?:script|link|img|iframe|svg|canvas)\b|<[^>]*\b(?:src|href|data|action)=", page)
    assert "url(" not in page and "@import" not in page
    assert 'name="viewport"' in page and len(page) < 500_000


def graded(n, topic, worth, answer="It is 42.", question="How much?", tags=()):
    right = worth > 0
    return Grade(
        id=f"q{n}", question=question, answer=answer, topic=topic, tags=tuple(tags), path=("search", "answer"),
        outcome="answered", utility=worth, correct=int(right), partial=0, wrong=int(not right),
    )  # fmt: skip


def story(before, after, **changed):
    rows = [Evaluation(tuple(grades)) for grades in (before, before, after)]
    points = {"quality": {"utility": 0.75, "calls": 2.5}, "balanced": {"utility": 0.5, "calls": 1.25}}
    gain = paired_test(*([g.utility for g in side] for side in (before, after)), [g.topic for g in before])
    told = {
        "name": "shop", "reference": "shop@v2", "parent": "shop@v1", "gain": gain, "over_plain": gain,
        "plain": rows[0], "before": rows[1], "after": rows[2],
        "points": points, "stage": "best whole way",
        "stages": [{"name": "as it is", "train": 0.25, "dev": None, "calls": 1.0}, {"name": "best whole way", "train": 0.5, "dev": 0.125, "calls": 0.0}],
        "chosen": {"policy.k": 5, "judge.relevance:relevant": 0.3}, "started_from": {"policy.k": 7, "judge.relevance:relevant": 0.3},
        "labelled": "40 questions", "trials": 33, "calls": 1234, "usd": 0.5678, "seconds": 90.0, "looks": 3,
    }  # fmt: skip
    return Compiled(**{**told, **changed})


def test_every_number_on_the_page_is_that_of_the_story():
    topics = [f"t{n}" for n in range(12)]
    before = [graded(n, topic, -1.0, tags=["hard"]) for n, topic in enumerate(topics)]
    after = [graded(n, topic, 1.0 if n % 4 else -1.0, tags=["hard"]) for n, topic in enumerate(topics)]
    told = story(before, after)
    page = " ".join(html.unescape(render_compile_page(told).decode()).split())
    gain = told.gain
    assert gain.difference == pytest.approx(1.5)
    assert (
        f"utility +1.500 [{gain.ci[0]:+.3f}, {gain.ci[1]:+.3f}] over shop@v1 on 12 questions of test (12 topics)"
        in page
    )
    assert "looked at 3 times" in page and "Won: 9 questions" in page and "Lost: 0 questions" in page
    assert "<td>as it is</td><td>+0.250</td><td>-</td><td>1.00</td>" in page
    assert "<td>best whole way (sealed)</td><td>+0.500</td><td>+0.125</td><td>0.00</td>" in page
    assert "policy.k</span></td><td>7</td><td>5</td>" in page and "judge.relevance:relevant</span></td>" not in page
    assert "<td>hard</td><td>12</td><td>75 %</td><td>25 %</td>" in page
    assert (
        "33 settings scored, 1234 calls of language models paid for, 0 replies from the record, $0.5678, 90 s" in page
    )
    assert "<td>utility</td><td>-1.000 " in page and "<td>0.500 [" in page


def test_a_parameter_is_named_in_few_words_beside_its_id():
    words = {
        "policy.k": ("passages taken", "passages taken"), "judge.asked:vague": ("so " * 99, "so ..."),
        "router.route:base_bills": ("needs " + "bills " * 99, "probability from which the base bills is searched"),
    }  # fmt: skip
    grades, meanings = [graded(0, "t", 1.0)], {name: meaning for name, (meaning, _) in words.items()}
    moved = {"chosen": dict.fromkeys(words, 0.4), "started_from": dict.fromkeys(words, 0.0)}
    page = html.unescape(render_compile_page(story(grades, grades, meanings=meanings, **moved)).decode())
    for name, (_, told) in words.items():
        (said,) = re.findall(rf'<td>([^<]*)<span class="id">{name}</span>', page)
        assert said.strip().endswith(told) and len(said) < 120


def test_however_much_there_is_to_tell_the_page_stays_small():
    long = "Why & how? " * 3000
    before, after = (
        [graded(n, f"t{n}", worth, long, long, [f"tag {n} {long}"]) for n in range(300)] for worth in (-1.0, 1.0)
    )
    page = render_compile_page(story(before, after, broken={f"q{n}": long for n in range(400)}))
    assert len(page) <= 500_000 and b"Won: 300 questions" in page


def test_shortcuts_in_the_labels_are_told_and_without_any_nothing_is_said_of_them():
    grades, doubt = [graded(0, "t", 1.0)], "a shortcut in train: length alone tells <b>. Add long ones."
    told, silent = (render_compile_page(story(grades, grades, doubts=doubts)).decode() for doubts in ([doubt], []))
    assert html.escape(doubt) in told and "What the labels may teach instead" in told
    assert "What the labels may teach instead" not in silent


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(*[st.sampled_from([-1.0, 1.0])] * 2), min_size=1, max_size=12),
    st.sampled_from([AS_IT_IS, "search"]),
)
def test_the_sentence_on_what_came_of_a_compile_says_what_its_figures_say(rows, stage):
    before, after = ([graded(n, f"t{n}", worth) for n, worth in enumerate(side)] for side in zip(*rows, strict=True))
    told = story(before, after, stage=stage)
    gain, (said, _, _) = told.gain.difference, told.explain().partition(":")
    assert (" better than " in said) <= (gain > 0) and (" worse than " in said) <= (gain < 0)
    assert (said == "It answers as shop@v1 does") is (stage == AS_IT_IS and gain == 0)
