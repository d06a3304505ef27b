"""Operating points: really different settings of one search, chosen by name or by what they may cost or must reach."""

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from optimize.cli.main import app
from optimize.compiler.front import SAME, Candidate, best, frontier, prices, spread, turning
from optimize.compiler.journal import join
from optimize.compiler.trials import thawed
from optimize.labelled.dataset import read_labelled
from program import load
from program.project import Project
from program.serve.manifest import read_manifest
from program.serve.reference import resolve

OWN = 0.01
candidates = st.lists(
    st.tuples(st.integers(-20, 20), st.integers(0, 30)).map(lambda pair: Candidate({}, pair[0] / 20, pair[1] / 10)),
    min_size=1,
)


def stored(compiled):
    return json.loads((resolve("shop@v2", compiled / "artifacts").path / "frontier.json").read_bytes())


def calls_of(rag, compiled):
    return [rag(question.question).usage.calls for question in read_labelled(Project.open(compiled).labelled)]


def ask(compiled, *options, question="How many watts does the Wren draw?"):
    done = CliRunner().invoke(app, ["ask", str(compiled), question, "--json", *options])
    return done.exception or json.loads(done.stdout)


@given(candidates, st.integers(1, 5))
def test_a_frontier_made_bit_by_bit_is_that_of_all_at_once(every, many):
    front = []
    for at in range(0, len(every), many):
        front = frontier([*front, *every[at : at + many]], OWN, money=False)
    whole = frontier(every, OWN, money=False)
    assert [id(one) for one in front] == [id(one) for one in whole]


@given(candidates)
def test_at_the_economy_point_something_of_fewer_calls_is_best_if_the_frontier_has_any(every):
    at = prices(every, OWN)
    balanced, economy = best(every, at["balanced"], OWN), best(every, at["economy"], OWN)
    cheaper = [c for c in frontier(every, OWN) if c.calls < balanced.calls - SAME]
    assert (economy.calls < balanced.calls) == bool(cheaper)
    assert at["quality"] <= at["balanced"] < at["economy"]


@given(candidates)
def test_between_two_turning_prices_one_setting_is_the_best_all_the_way(every):
    bends = [0.0, *turning(every, OWN), 1e4]
    assert bends == sorted(bends)
    for low, high in pairwise(bends):
        middle = best(every, (low + high) / 2, OWN)
        for price in (low, high):
            assert middle.at(price, OWN) >= best(every, price, OWN).at(price, OWN) - 1e-6


@given(candidates, st.integers(2, 6))
def test_a_thinned_frontier_keeps_its_ends(every, most):
    front = frontier(every, OWN)
    kept = spread(front, OWN, most)
    assert len(kept) == min(len(front), most)
    assert (kept[0], kept[-1]) == (front[0], front[-1])


def test_the_economy_point_is_another_setting_and_asks_fewer_calls(compiled):
    points = read_manifest(resolve("shop@v2", compiled / "artifacts").path).section("points")
    assert points["economy"] != points["balanced"]
    root = compiled / "artifacts"
    balanced, economy = (calls_of(load("shop@v2", artifacts=root, point=p), compiled) for p in ("balanced", "economy"))
    assert sum(economy) < sum(balanced)


def test_without_a_point_the_balanced_one_answers(compiled):
    root = compiled / "artifacts"
    assert calls_of(load("shop@v2", artifacts=root), compiled) == calls_of(
        load("shop@v2", artifacts=root, point="balanced"), compiled
    )


def test_the_frontier_reaches_down_to_plain_rag_and_to_every_trial(compiled):
    project = Project.open(compiled)
    fewest = min(thawed(trial).calls for trial in join(project).trials())
    front = stored(compiled)
    assert len(front) > 1
    assert front[0]["calls"] <= max(1.0, fewest)
    assert front == sorted(front, key=lambda one: one["utility"])


def test_ask_takes_a_point_by_name(compiled):
    points = ("economy", "balanced")
    few, more = (load("shop@v2", artifacts=compiled / "artifacts", point=point) for point in points)
    texts = [question.question for question in read_labelled(Project.open(compiled).labelled)]
    question = next(text for text in texts if few(text).usage.calls < more(text).usage.calls)
    for point, rag in zip(points, (few, more), strict=True):
        assert ask(compiled, "--point", point, question=question)["usage"]["calls"] == rag(question).usage.calls


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1))
def test_on_the_frontier_no_setting_is_beaten_in_utility_calls_and_money_at_once(rows):
    every = [Candidate({}, u / 4 - OWN * c, c / 2, m / 100) for u, c, m in rows]
    front = frontier(every, OWN)
    for one in every:
        beaten = [
            other for other in front
            if other.at(0, OWN) >= one.at(0, OWN) - SAME and other.calls <= one.calls and other.usd <= one.usd
        ]  # fmt: skip
        assert beaten
        assert one not in front or all(other == one for other in beaten)
