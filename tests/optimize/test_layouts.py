"""Layouts of the writer's prompt: raced on a few calls, searched, sealed, and never paid for twice."""

import re

import orjson
import pytest

from optimize.compiler import choice
from optimize.compiler.candidates.demonstrations import Demonstration
from optimize.compiler.candidates.layouts import LET_IN, ROUNDS, count_calls, gather_cases, race_layouts, screen_layouts
from optimize.compiler.compile import compile_project
from optimize.compiler.record import Record
from optimize.compiler.runs.replay import Replay
from optimize.compiler.study import Caps, Spending
from optimize.labelled.dataset import read_labelled
from program import open_program
from program.errors import BudgetStop
from program.knowledge.project import Project
from program.models.language.gateway import shared_gateway
from program.models.language.layout import AS_IT_IS, PromptLayout
from program.serve.reference import resolve
from program.signatures import Generate
from tests.support.provider import serve
from tests.support.replies import obliging

CHOICES = Generate.layout
MODELS = """[models]
write = "openai/stand-in"
[provider.model."openai/stand-in"]
api_base = "{url}"
usd_in = 0
usd_out = 0

[knowledge.product]"""
LINE = re.compile(r"^\[(\d)\] [^:\n]*: (.*)$", re.MULTILINE)
WANTED = {"Merle hold": "Merle kettle holds", "descaled": "Descale", "money back": "30 days", "Wren draw": "1000 watts"}


def picky(body):
    """States the fact when passages are numbered lines and the question comes last; else repeats its prompt's end."""
    if "Form: " in str(body["messages"]):
        return obliging(body)
    told = str(body["messages"][-1]["content"])
    asked = re.search(r"^Question: (.*)$", told, re.MULTILINE)
    if asked is None or told.find("Question: ") < told.find("Passages:") or not LINE.search(told):
        return "no heading, no fence, no remark about it."
    word = next((fact for about, fact in WANTED.items() if about in asked[1]), "?")
    said = ((n, s) for n, text in LINE.findall(told) for s in text.split(". ") if word in s)
    n, sentence = next(said, ("", ""))
    return f"{sentence.strip().rstrip('.')} [{n}]." if n else "I do not know."


@pytest.fixture
def picky_shop(own_shop):
    """A project whose texts come from a model that one kind of prompt is right for."""
    shared_gateway.cache_clear()
    with serve(None, picky) as provider:
        settings = own_shop / "ragc.toml"
        settings.write_text(settings.read_text().replace("[knowledge.product]", MODELS.format(url=provider.url), 1))
        yield own_shop, provider


def replay_of(folder, spending=None, record=None):
    return Replay(open_program(folder), record or Record(), spending)


def questions_of(folder):
    return read_labelled(folder / "labelled.jsonl", folder)


def race(worth, tokens=lambda layout: 1, share=1.0):
    perform = lambda layout, places: [(worth(layout, place), tokens(layout)) for place in places]  # noqa: E731
    return race_layouts(AS_IT_IS, CHOICES, perform, 8, seed=1, share=share)


def screen(folder, made=(), record=None, calls=None):
    """The layouts that are let in for the writer of the project, and what was replayed."""
    replay = replay_of(folder, Spending(Caps(calls=calls)), record)
    return screen_layouts(replay, questions_of(folder), list(made), 0, lambda done, of: None), replay.program


def test_the_layout_that_states_most_wins_the_race_within_the_calls_that_were_told_and_is_asked_nothing_twice():
    asked = {}

    def worth(layout, place):
        asked.setdefault(layout, []).append(place)
        return (layout.marks == "numbered") + (layout.instruction == "line") / 2

    ranked = race(worth)
    assert (ranked[0].marks, ranked[0].instruction) == ("numbered", "line") and AS_IT_IS in ranked
    assert sum(map(len, asked.values())) <= count_calls(8) <= 100
    assert all(places == sorted(set(places)) for places in asked.values()) and len(asked[AS_IT_IS]) == 8


def test_a_tie_falls_to_the_layout_that_the_program_has_a_cap_ends_the_race_and_it_goes_the_same_way_again():
    assert race(lambda layout, place: 1.0)[0] == AS_IT_IS

    def stopping(layout, place):
        if place:
            raise BudgetStop("calls")
        return 0.0

    assert race(stopping) == []
    worth = lambda layout, place: hash((layout.marks, layout.order, place)) % 7  # noqa: E731
    assert race(worth) == race(worth)


def test_of_layouts_that_so_few_questions_cannot_tell_apart_the_one_of_fewer_tokens_wins():
    tokens = lambda layout: 100 * layout.demonstrations + 900 * (layout.excerpt == "whole")  # noqa: E731
    ranked = race(lambda layout, place: 1.0, tokens)
    assert tokens(ranked[0]) == min(map(tokens, ranked)) < tokens(AS_IT_IS)
    noisy = lambda layout, place: float(place > 1 and (layout == AS_IT_IS or place != 7))  # noqa: E731
    assert tokens(race(noisy, tokens)[0]) < tokens(AS_IT_IS)
    assert race(lambda layout, place: float(layout == AS_IT_IS), tokens)[0] == AS_IT_IS


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8, 1.0])
def test_a_race_of_fewer_calls_goes_through_all_its_rounds(share):
    asked = []
    worth = lambda layout, place: asked.append((layout, place)) or float(layout.marks == "numbered")  # noqa: E731
    best = race(worth, share=share)[0].marks
    assert best == ("numbered" if any(layout.marks == "numbered" for layout, _ in asked) else "fenced")
    assert len(asked) <= max(share * count_calls(8), 3 * 8) and {place for _, place in asked} == set(range(8))


def test_the_evidence_of_a_case_is_among_its_passages(shop):
    for case in gather_cases(replay_of(shop), questions_of(shop), 8):
        assert set(case.question.evidence) <= {passage.id for passage in case.passages} and len(case.passages) > 1


def test_a_writer_is_given_the_layouts_that_do_better_and_the_embedded_one_none(picky_shop, shop):
    found, program = screen(picky_shop[0])
    assert 0 < len(found) <= LET_IN
    assert all((one.marks, one.order) == ("numbered", "question last") for one in found)
    assert program.layout_of("generator.answer") == AS_IT_IS and screen(shop)[0] == []


def test_a_writer_without_demonstrations_is_shown_some_of_topics_that_it_is_not_tried_on(picky_shop):
    folder, _ = picky_shop
    cases = gather_cases(replay_of(folder), questions_of(folder), ROUNDS[-1][1])
    topics = [*(case.question.cluster for case in cases), "elsewhere"]
    _, program = screen(folder, [Demonstration("generator.answer", one, {"answer": one}) for one in topics], calls=1)
    assert program.predictor("generator.answer").demos == [{"answer": "elsewhere"}]


def test_no_cap_is_passed_and_nothing_is_paid_twice(picky_shop):
    folder, provider = picky_shop
    screen(folder, calls=9)
    assert provider.calls == 9
    first, _ = screen(folder, record=Record(folder / "record.sqlite"))
    paid = provider.calls
    assert screen(folder, record=Record(folder / "record.sqlite"))[0] == first and provider.calls == paid


def test_the_layout_that_a_compile_chooses_is_sealed_and_loaded(picky_shop, monkeypatch):
    folder, provider = picky_shop
    monkeypatch.setattr(choice, "survives", lambda gains, topics: True)  # so few labels prove nothing
    monkeypatch.setattr(choice._Chooser, "_simplify_setting", lambda chooser, setting: setting)
    done = compile_project(Project.open(folder), trials=6)
    assert done.calls == provider.calls
    version = resolve(done.reference, folder / "artifacts")
    state = orjson.loads((version.path / "program.json").read_bytes())["generator.answer_layout"]["layout"]
    assert PromptLayout(**state).marks == "numbered"
    assert compile_project(Project.open(folder), trials=6).calls == 0
    assert done.calls == provider.calls
