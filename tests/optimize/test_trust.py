"""The confidence of what a model wrote: from its tokens' log-probabilities and the decider, fitted to labels."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragc import load, open_program
from ragc.knowledge.project import Project
from ragc.loop.policy import Tuning
from ragc.loop.trust import TRUST, list_opinions, log_odds, pool_opinions
from ragc.notes import NoteKind
from ragc.optimize.compiler.choice import fit_trust
from ragc.optimize.compiler.compile import compile_project
from ragc.optimize.compiler.record import Record
from ragc.optimize.compiler.runs.replay import Replay
from ragc.text.history import Asked
from tests.support.faults import EMBEDDED
from tests.support.goods import GOODS, write_project
from tests.support.provider import Script, serve

START = [Tuning.__dataclass_fields__[name].metadata["knob"]["default"] for name in TRUST]
CHANCES = st.floats(0, 1)


def draw(rng, count, tokens, decider):
    """Answers with two opinions, whose log-odds count so much, and whether each is wrong."""
    opinions = 1 / (1 + np.exp(-rng.normal(1.0, 1.5, (count, 2))))
    chance = [pool_opinions(said, (-0.5, tokens, decider)) for said in opinions.tolist()]
    return [(said, bool(rng.random() > p)) for said, p in zip(opinions.tolist(), chance, strict=True)]


def judge(fitted, said):
    return pool_opinions(said, fitted)


def separate(fitted, judged):
    """The chance that a right answer is told as surer than a wrong one."""
    told = {wrong: np.array([judge(fitted, said) for said, bad in judged if bad is wrong]) for wrong in (True, False)}
    gaps = told[False][:, None] - told[True]
    return float(((gaps > 0) + 0.5 * (gaps == 0)).mean())


@pytest.mark.parametrize("tokens", [1.0, 2.0])
@pytest.mark.parametrize("decider", [0.0, 0.7])
def test_log_probabilities_that_tell_right_from_wrong_are_trusted_and_separate_better_than_the_decider_alone(
    tokens, decider
):
    rng = np.random.default_rng(3)
    for _ in range(10):
        fitted, fresh = fit_trust(draw(rng, 200, tokens, decider), START), draw(rng, 2000, tokens, decider)
        assert separate(fitted, fresh) > separate([0.0, 0.0, 1.0], fresh) + 0.05
        told = np.mean([judge(fitted, said) for said, _ in fresh])
        assert told == pytest.approx(np.mean([not wrong for _, wrong in fresh]), abs=0.1)


@pytest.mark.parametrize("rate", [0.2, 0.5, 0.9])
def test_opinions_that_tell_nothing_come_to_the_share_of_right_answers_within_the_shrinkage(rate):
    rng = np.random.default_rng(5)
    for _ in range(10):
        judged = [(said, bool(rng.random() > rate)) for said, _ in draw(rng, 300, 0.0, 0.0)]
        fitted = fit_trust(judged, START)
        told = np.array([judge(fitted, said) for said, _ in judged])
        assert abs(told.mean() - rate) < 0.08 and np.abs(told - rate).mean() < 0.1


@settings(max_examples=60, deadline=None)
@given(judged=st.lists(st.tuples(st.tuples(CHANCES, CHANCES), st.booleans()), max_size=30), more=CHANCES)
def test_of_any_labels_the_weights_can_be_set_and_whoever_is_surer_never_counts_against_an_answer(judged, more):
    fitted = fit_trust(judged, START)
    assert all(math.isfinite(one) and abs(one) <= 9 for one in fitted) and min(fitted[1:]) >= 0
    assert judged or fitted == START
    for said, _ in judged:
        surer = (max(said[0], more), said[1])
        assert 0 < judge(fitted, said) <= judge(fitted, surer) < 1


@given(tokens=CHANCES, decider=CHANCES)
def test_without_labels_the_decider_has_more_say_than_the_tokens_and_of_whom_nothing_is_known_the_odds_are_even(
    tokens, decider
):
    written, responsive = NoteKind.WRITTEN(share=tokens), NoteKind.RESPONSIVE(share=decider)
    assert list_opinions(["tokens .9", responsive, NoteKind.UNSURE(), written]) == (tokens, decider)
    assert list_opinions([written]) == (tokens, 0.5) and list_opinions([responsive]) == (0.5, decider)
    assert judge(START, list_opinions([])) == 0.5
    assert judge(START, (0.5, decider)) == pytest.approx(min(max(decider, 0.001), 0.999))
    assert abs(log_odds(judge(START, (tokens, 0.5)))) <= abs(log_odds(judge(START, (0.5, tokens)))) + 1e-9


def right(n):
    return f"The {GOODS[n]} costs GBP {10 + 3 * n} [1]."


def write(body):
    """The price that is asked for, but of every third good something else, of which the model is less sure."""
    question = body["messages"][-1]["content"].rpartition("What does the ")[2].partition(" cost")[0]
    if question not in GOODS:
        return "none"
    n = GOODS.index(question)
    return right(n) if n % 3 else f"The {GOODS[n]} is guaranteed for {n + 2} years [1]."


SCRIPT = Script(sureness=lambda word: -2.0 if "guaranteed" in word else -0.01)


def write_labelled(folder, url):
    """The project, with a question on each good in each split."""
    folder = write_project(folder, url, models=EMBEDDED)
    rows = []
    for n, good in enumerate(GOODS):
        asked = {"topic": f"t{n}", "outcome": "answered", "facts": [f"GBP {10 + 3 * n}"], "sources": ["goods"]}
        place = {"evidence": [f"goods/{good}.md#price"], "route": "simple"}
        split = ("train", "dev", "test")[n // 2 % 3 if n < 6 else 0]
        rows.append({"id": f"q{n}", "question": f"What does the {good} cost?", **asked, **place, "split": split})
    (folder / "labelled.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


@pytest.mark.parametrize("sureness", [SCRIPT.sureness, None])
def test_a_run_from_the_record_is_as_sure_as_the_run_itself(tmp_path, sureness):
    with serve(Script(sureness=sureness), write) as provider:
        program = open_program(write_labelled(tmp_path, provider.url))
        asked = [f"What does the {good} cost?" for good in GOODS]
        live = [program(one) for one in asked]
        file = tmp_path / "record.sqlite"
        first = [Replay(program, Record(file))(Asked(one)) for one in asked]
        calls = provider.calls
        again = [Replay(program, Record(file))(Asked(one)) for one in asked]
        assert provider.calls == calls == 2 * len(asked)
    told = [[(one.text, one.confidence, one.trace.path) for one in run] for run in (live, first, again)]
    assert told[0] == told[1] == told[2]
    assert any(note.startswith("tokens ") for one in live for note in one.trace.path) is (sureness is not None)


def test_a_compile_seals_a_confidence_fitted_to_labels(tmp_path):
    with serve(SCRIPT, write) as provider:
        folder = write_labelled(tmp_path / "goods", provider.url)
        compile_project(Project.open(folder))
        sealed = load("goods@v2", artifacts=folder / "artifacts", project=folder).policy.tuning()
        program, gaps = open_program(folder), []
        for trust in (START, [getattr(sealed, name) for name in TRUST]):
            program.policy.turn(**dict(zip(TRUST, trust, strict=True)))
            told = [program(f"What does the {good} cost?").confidence for good in GOODS]
            gaps.append(min(one for n, one in enumerate(told) if n % 3) - max(told[::3]))
    assert sealed.trust_tokens > START[1] and gaps[1] > gaps[0] > 0
