"""A stated risk: proved on dev or what it lacks, kept by the program, checked on test; and risk against coverage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri

from ragc import load
from ragc.errors import StudyError
from ragc.knowledge.project import Project
from ragc.optimize.compiler.compile import compile_project
from ragc.optimize.evaluation.comparison import compare_rows
from ragc.optimize.evaluation.risk import Judged, check_risk, compare_curves, prove_risk
from ragc.optimize.evaluation.stats import Interval
from tests.optimize.conftest import compile_, invoke, manifest_of, score_rows


def answers(count, wrong=(), topics=None):
    """So many answers, the surest first, those at the places given wrong, over so many topics."""
    many = topics or count
    return [Judged(1 - n / (count + 1), n in wrong, f"t{n % many}") for n in range(count)]


def draw(rng, topics, each, rho, risk):
    """Answers whose risk rises with doubt as `risk` says, those of one topic right or wrong together."""
    doubt, alike, own = (
        rng.random((topics, each)),
        rng.standard_normal((topics, 1)),
        rng.standard_normal((topics, each)),
    )
    wrong = np.sqrt(rho) * alike + np.sqrt(1 - rho) * own < ndtri(np.clip(risk(doubt), 1e-9, 1))
    rows = zip(doubt.ravel().tolist(), wrong.ravel().tolist(), strict=True)
    return [Judged(1 - d, w, f"t{n // each}") for n, (d, w) in enumerate(rows)]


@pytest.mark.parametrize(
    ("topics", "each", "rho", "least", "level"),
    [(120, 1, 0.0, 0.04, 0.1), (20, 10, 0.1, 0.04, 0.1), (12, 12, 0.2, 0.04, 0.1), (35, 5, 0.95, 0.1, 0.1)],
)
def test_a_promise_is_broken_in_no_more_than_one_of_twenty_draws(topics, each, rho, least, level):
    rng, broken = np.random.default_rng(0), []
    for _ in range(2000):
        risk = prove_risk(draw(rng, topics, each, rho, lambda doubt: least + 0.24 * doubt), level)
        broken.append(risk.proved and least + 0.12 * (1 - risk.threshold) > level)
    assert np.mean(broken) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / len(broken))


@given(
    st.lists(
        st.tuples(st.sampled_from([None, 0.2, 0.4, 0.6, 0.8]), st.booleans(), st.integers(0, 9)),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from([0.1, 0.3, 0.5]),
)
def test_asking_each_question_25_times_within_its_topic_proves_no_more(drawn, level):
    judged = [Judged(sure, wrong, f"t{topic}") for sure, wrong, topic in drawn]
    once, often = prove_risk(judged, level), prove_risk([one for one in judged for _ in range(25)], level)
    assert once.proved or not often.proved
    assert not often.proved or often.answered <= once.answered
    assert once.proved != often.proved or once.threshold != often.threshold or often.upper >= once.upper


def test_answers_none_of_which_is_wrong_prove_as_much_as_there_are_topics():
    assert not prove_risk(answers(280, topics=28), 0.1).proved and prove_risk(answers(290, topics=29), 0.1).proved


def test_twenty_nine_independent_answers_without_a_wrong_one_prove_a_tenth_and_twenty_eight_do_not():
    assert prove_risk(answers(29), 0.1).proved
    found = prove_risk(answers(28), 0.1)
    assert not found.proved and found.threshold == 0 and found.lacks.startswith("labels: ") and " 29 " in found.lacks


def test_answers_of_few_topics_prove_less():
    limits = [prove_risk(answers(60, wrong=(40, 46, 52, 58), topics=topics), 0.5).upper for topics in (60, 12, 6)]
    assert limits == sorted(limits) and limits[0] < limits[-1]
    assert prove_risk(answers(60, topics=1), 0.1).upper == 1


@pytest.mark.parametrize(
    ("judged", "lack"),
    [
        ([], "labels: there is no answered question; 29 "),
        ([Judged(None, False, "t")] * 9, "labels: there is no answered question"),
        (answers(200, wrong=range(0, 200, 4)), "knowledge"),
        (answers(70, wrong=(1, 20, 40, 50)), "labels: there is 70 answered questions"),
    ],
)
def test_what_is_missing_is_labels_or_knowledge(judged, lack):
    assert prove_risk(judged, 0.1).lacks.startswith(lack)


@given(
    st.lists(st.tuples(st.sampled_from([None, 0.2, 0.4, 0.6, 0.8]), st.booleans()), max_size=120), st.floats(0.2, 0.9)
)
def test_the_threshold_gives_just_the_answers_that_the_risk_was_measured_on(drawn, level):
    judged = [Judged(sure, wrong, f"t{n % 40}") for n, (sure, wrong) in enumerate(drawn)]
    risk = prove_risk(judged, level)
    given_out = [one for one in judged if one.confidence is not None and one.confidence >= risk.threshold]
    assert risk.n == len(given_out) and risk.answered == pytest.approx(len(given_out) / max(len(judged), 1), abs=1e-4)
    assert not risk.proved or (risk.upper <= level + 1e-4 and sum(one.wrong for one in given_out) / risk.n <= level)


def test_the_area_under_a_curve_tells_orders_apart_on_the_coverage_that_all_reach():
    sure = answers(40, wrong=range(30, 40), topics=8)
    doubtful = [one._replace(confidence=1 - one.confidence) for one in sure]
    alike = [one._replace(confidence=0.5) for one in sure]
    less = [one if n < 20 else one._replace(confidence=None, wrong=False) for n, one in enumerate(sure)]
    found = compare_curves({"doubtful": doubtful, "alike": alike, "sure": sure})
    areas = {name: side["aurc"]["value"] for name, side in found["sides"].items()}
    assert areas["sure"] < areas["alike"] == 0.25 < areas["doubtful"]
    assert found["differences"]["doubtful"]["ci"][1] < 0 and found["sides"]["sure"]["curve"][-1] == (1.0, 0.25)
    assert compare_curves({"sure": sure, "less": less})["coverage"] == 0.5
    assert compare_curves({"sure": sure, "silent": [Judged(None, False, "t0")] * 40}) is None


def test_scores_with_confidences_are_compared_by_their_curves_and_those_of_earlier_versions_are_not():
    rows = [{**row, "confidence": 0.9} for row in score_rows(["correct"] * 20)]
    found = compare_rows(rows, [{**row, "confidence": n / 20} for n, row in enumerate(rows)])
    assert set(found.risk_coverage["sides"]) == {"A", "B"} and "confidence" not in found.others
    assert compare_rows(score_rows(["correct"]), score_rows(["correct"])).risk_coverage is None


def test_a_risk_that_is_proved_is_sealed_shown_loaded_and_checked_on_test(own_shop, monkeypatch):
    settings = own_shop / "ragc.toml"
    settings.write_text(settings.read_text() + "\n[utility]\nrisk = 0.9\n")
    monkeypatch.setattr(
        "ragc.optimize.compiler.tasks.project.prove_risk", lambda judged, level: prove_risk(answers(40), level)
    )
    done = compile_(own_shop)
    assert done.risks["balanced"].proved and "held on test" in "".join(done.describe_risk())
    version, artifacts = manifest_of(own_shop, done.reference), own_shop / "artifacts"
    assert set(version.section("risk")) == {"quality", "balanced", "economy"}
    rag = load(done.reference, artifacts=artifacts, point="economy")
    assert rag.risk == done.risks["economy"] and rag.policy.refuse_below.value == rag.risk.threshold
    assert rag.plain().risk is None
    shown = invoke("show", done.reference, "--artifacts", artifacts).stdout
    assert "Stated risk: at most" in " ".join(shown.split()) and "held on test" in shown
    assert "Risk against coverage" in (version.path / "report.html").read_text()


def test_a_risk_that_is_not_proved_promises_nothing_refuses_nothing_and_moves_no_alias(own_shop):
    done = invoke("compile", own_shop, "--risk", 0.05, "--promote", "production", "--require", "no-worse")
    assert done.exit_code == 3 and "What is missing is labels" in done.stdout and "was not moved" in done.stdout
    rag = load("shop@latest", artifacts=own_shop / "artifacts")
    assert not rag.risk.proved and rag.policy.refuse_below.value == 0
    with pytest.raises(StudyError, match="risk is a number"):
        compile_project(Project.open(own_shop), risk=2)


def test_a_risk_is_broken_where_more_answers_are_wrong_on_test():
    risk = prove_risk(answers(40), 0.1)
    assert "held" in check_risk(risk, Interval(0.05, (0.0, 0.2), 20))
    assert "broken" in check_risk(risk, Interval(0.2, (0.1, 0.3), 20))
