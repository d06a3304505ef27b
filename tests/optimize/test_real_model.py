"""The benchmark of a language model, on a small project and a scripted server: every arm, and no reply paid twice."""

import argparse
import os
import sys
from pathlib import Path

import pytest

from ragc.models.language.gateway import shared_gateway
from ragc.optimize.compiler.record import Record
from ragc.optimize.labelled.dataset import read_labelled
from ragc.optimize.labelled.split import split_questions
from tests.support.provider import serve
from tests.support.replies import obliging

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from real_model import SIX, choose_prompt, measure_set, written_by

from ragc import open_program
from ragc.knowledge.project import Project

ECHO = "no heading, no fence, no remark about it."


def echoing(body):
    return obliging(body) if "Form: " in str(body["messages"]) else ECHO


@pytest.fixture
def server(monkeypatch):
    shared_gateway.cache_clear()
    with serve(None, echoing) as provider:
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        yield provider


def figures(provider, folder):
    record, questions = Record(folder / "kept.sqlite"), read_labelled(folder / "labelled.jsonl", folder)
    questions = split_questions(questions)["train"]
    with written_by(provider.url, "openai/small"):
        project = Project.open(folder)
        _, hand = choose_prompt(open_program(project), questions, record, project, quick=True)
    options = argparse.Namespace(base_url=provider.url, model="small", quick=True, version="", parent="")
    return {one["figure"]: one["value"] for one in measure_set("shop", folder, questions, hand, record, options)}


def test_plain_rag_delivers_echoes_ragc_none_and_a_second_run_asks_nothing(server, own_shop):
    found = figures(server, own_shop)
    assert found["shop: plain, our prompt: echoes delivered"] > 0 == found["shop: ragc, uncompiled: echoes delivered"]
    assert found["shop: plain, our prompt: fact_recall"] == 0 < found["shop: ragc, uncompiled: fact_recall"]
    assert {name.split(": ")[1] for name in found} >= {"plain, by hand", "ragc, embedded alone"}
    paid = server.calls
    assert figures(server, own_shop) == found and server.calls == paid


def test_the_prompt_by_hand_that_states_most_is_chosen_and_the_environment_is_left_as_it_was(server, own_shop):
    before = dict(os.environ)
    with written_by(server.url, "openai/small"):
        project, questions = Project.open(own_shop), read_labelled(own_shop / "labelled.jsonl", own_shop)
        name, program = choose_prompt(open_program(project), questions, Record(), project, quick=False)
    assert name in SIX and not program.runtime.withholds and os.environ == before
