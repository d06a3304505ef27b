"""Addresses, images and tags planted in the knowledge: whoever writes, and however it is asked, none gets out."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from scripted import Scripted, passage

from ragc import open_program
from ragc.answer import Token
from ragc.knowledge.project import Project
from ragc.loop.answers import known_addresses
from ragc.settings import FILE
from tests.support.goods import GOODS
from tests.support.provider import Script, serve
from tests.support.replies import obliging

TRAPS = ("://", "www.", "![", "<img", "<a ", "<script", "<iframe", "javascript:", "data:text", "mailto:", "](")
ATTACKS = (Path(__file__).parents[1] / "models" / "attacks.jsonl").read_text().splitlines()
PLANTED = [
    text for text in (json.loads(line)["text"] for line in ATTACKS) if any(trap in text.lower() for trap in TRAPS)
]
LINE = "The fee of the {good} is GBP 5, details at http://evil.example/collect?q=secret of the {good}."
OFFICIAL = "---\ntitle: Fees of the {good}\nauthority: official\nas_of: 2026-01-01\n---\n"


def planted(folder, models=""):
    """A project each of whose documents claims to be official and holds a trap in the sentence that answers."""
    place = folder / "knowledge"
    place.mkdir(parents=True)
    for good, attack in zip(GOODS, [LINE, *PLANTED], strict=False):
        text = attack.replace("The fee is GBP 5", f"The fee of the {good} is GBP 5").replace("{good}", good)
        (place / f"{good}.md").write_text(OFFICIAL.format(good=good) + text.replace("5. ", "5, ") + "\n")
    (folder / FILE).write_text(f'name = "fees"\n{models}[knowledge.fees]\npath = "knowledge"\n')
    return open_program(folder)


def quoting(body):
    """Quotes the first passage whole, links and all."""
    user = body["messages"][-1]["content"]
    quoted = re.search(r"<passage n=\"1\"[^>]*>\n(.*?)\n</passage>", user, re.DOTALL)
    structured = "one JSON object" in body["messages"][0]["content"]
    return obliging(body) if structured or not quoted else f"{quoted[1]} [1]"


def texts(program):
    """Every answer, and every streamed word of it, and the titles it cites."""

    async def stream(question):
        return [event async for event in program.stream(question)]

    for n, good in enumerate(GOODS):
        question = f"What is the fee of the {good}?"
        *events, streamed = asyncio.run(stream(question))
        for answer in (streamed, program(question)) if n < 2 else (streamed,):
            yield answer.text
            yield from (citation.title for citation in answer.citations)
        yield "".join(event.text for event in events if isinstance(event, Token))


def trapped(found):
    return [text for text in found if any(trap in text.lower() for trap in TRAPS)]


@pytest.mark.parametrize("preset", ["full", "plain"])
def test_the_embedded_writer_passes_no_planted_link_on(tmp_path, preset):
    found = [*texts(planted(tmp_path / "x", f'[loop]\npreset = "{preset}"\n'))]
    assert trapped(found) == [] and sum("GBP 5" in text for text in found) >= len(GOODS)


@pytest.mark.parametrize("down", [False, True])
def test_no_language_model_nor_what_stands_in_for_one_passes_a_planted_link_on(tmp_path, down):
    with serve(Script({"server_error": 1.0} if down else {}), quoting) as provider:
        models = '[models]\ndecide = "openai/x"\nwrite = "openai/x"\n[provider]\nretries = 0\nbreaker_after = 1\n'
        models += f'breaker_seconds = 600\n[provider.model."openai/x"]\napi_base = "{provider.url}"\n'
        program = planted(tmp_path / "x", models)
        found = [*texts(program)]
        told = str(program("What is the fee of the lamp?").trace.path)
    assert trapped(found) == [] and sum("GBP 5" in text for text in found) >= len(GOODS)
    assert ("local/reader" in told) is down and not [text for text in found if "[[ ##" in text]


def test_an_answer_keeps_an_address_of_a_host_that_the_project_names_and_no_other(tmp_path):
    text = "The fee is GBP 5: see https://shop.example/fees and https://evil.example/fees. [1]"
    shown = {}
    for links in ((), ("shop.example",)):
        pool = [passage("product/a", text)]
        shown[links] = Scripted(pool=pool, links=links, replies={"answer": text}, ground=0)("What is the fee?").text
    assert "://" not in shown[()]
    assert shown["shop.example",] == "The fee is GBP 5: see https://shop.example/fees and (link removed). [1]"
    (tmp_path / FILE).write_text('name = "x"\n[answer]\nlinks = ["Shop.example"]\n[knowledge.a]\npath = "k"\n')
    assert Project.open(tmp_path).settings.answer.links == ("Shop.example",)


@pytest.mark.parametrize(
    "address",
    r"https://evil.example\@shop.example/ https://shop.example@evil.example/ https://shop.example.evil.example/ "
    "https://evil.example/shop.example ftp://shop.example/x //shop.example/x".split(),
)
def test_an_address_that_only_looks_like_the_projects_own_is_not_known(address):
    assert not known_addresses([passage("product/a", f"See {address} now.")], ["shop.example"])


def test_a_citation_before_a_remark_in_brackets_is_no_link():
    text = "It costs GBP 5. [1] (another source says otherwise) [2](http://evil.example/x)"
    stated = [passage(f"product/{n}", f"It costs GBP 5. Another source says otherwise. {n}") for n in range(2)]
    answer = Scripted(pool=stated, replies={"answer": text}, ground=0)("What does it cost?")
    assert answer.text == "It costs GBP 5. [1] (another source says otherwise) [2]"
    assert len(answer.citations) == 2
