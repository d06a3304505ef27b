"""CandidateSets of instructions and demonstrations: found, searched with everything else, sealed only when they help."""

import json
import re
from contextlib import contextmanager

import orjson
import pytest

from ragc.loop.engines import prompting, quoting
from ragc.loop.policy import is_candidate
from ragc.loop.state import Draft
from ragc.models.language.gateway import shared_gateway
from ragc.serve.reference import resolve
from tests.conftest import write_shop
from tests.optimize.conftest import compile_, manifest_of, paid
from tests.support.provider import serve
from tests.support.replies import obliging

GOOD = "Answer from the passages alone. FIGURES FIRST: quote the sentence that holds the number."
IDLE = "Answer politely."
MODELS = (
    '[models]\nwrite = "openai/writer"\npropose = "openai/proposer"\n\n[provider]\nfallback = false\nretries = 0\n\n'
)
KNOWN = {"hold": "1.7 litres", "descale": "6 weeks", "days": "30 days", "watts": "1000 watts"}
PASSAGE = re.compile(r"<passage n=\"(\d+)\"[^>]*>\n(.*?)\n</passage>", re.DOTALL)


def proposal(body, text):
    """The reply to MIPROv2's proposer (DSPy's chat form) or to GEPA's reflection (JSON)."""
    if "proposed_instruction" in json.dumps(body["messages"]):
        return f"[[ ## proposed_instruction ## ]]\n{text}\n\n[[ ## completed ## ]]"
    return json.dumps({"new_instruction": text})


def writes(proposed):
    """A writer that says what was asked only under a good instruction, and a proposer of one instruction."""

    def brain(body):
        system, user = str(body["messages"][0]["content"]), str(body["messages"][-1]["content"])
        if body["model"] == "proposer":
            return proposal(body, proposed)
        if "<passage" not in user or "Form:" in system:
            return obliging(body)
        asked = user.partition("<question>")[2].partition("</question>")[0]
        wanted = next((fact for word, fact in KNOWN.items() if word in asked), "-")
        found = next(((n, text) for n, text in PASSAGE.findall(user) if wanted in text), None)
        if found is None or "FIGURES FIRST" not in system:
            return "It is all in the passages."
        sentence = next(s for s in found[1].split(". ") if wanted in s)
        return f"{sentence.strip().rstrip('.')} [{found[0]}]."

    return brain


def quote_nothing(state, checked):
    yield []
    return Draft((), False, 0.0)


ASKED = {
    "hold": "water does it hold",
    "descale": "to descale it",
    "days": "days for money back",
    "watts": "watts drawn",
}
NAMES = "ada bea cleo dora edna fay gwen hope iris june kate lena".split()


def label(folder):
    """Twelve questions for each of four facts, a topic each, in all three splits."""
    rows = []
    for n, name in enumerate(NAMES):
        for word, text in ASKED.items():
            # No two are asked in nearly the same words, which would bind their topics.
            own = " ".join(f"{name}{word}{end}" for end in ("ish", "ful", "ward", "like", "ness", "ly"))
            row = {"id": f"{word}{n}", "question": f"{own}: {text}?", "topic": f"{word} {name}", "facts": [KNOWN[word]]}
            rows.append({**row, "outcome": "answered", "route": "simple", "split": ("train", "dev", "test")[n % 3]})
    (folder / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@contextmanager
def written_by(folder, monkeypatch, brain):
    """The project with its texts, and new instructions, from a model on loopback."""
    shared_gateway.cache_clear()
    for engine in (quoting, prompting):  # a quotation in a text's place would do as well
        monkeypatch.setattr(engine, "quote_passages", quote_nothing)
    with serve(None, brain) as provider:
        paid(folder, provider.url, monkeypatch, MODELS)
        yield provider


def instruction(folder, reference):
    path = resolve(reference, folder / "artifacts").path
    return orjson.loads((path / "program.json").read_bytes())["generator.answer"]["signature"]["instructions"]


@pytest.fixture(scope="module")  # for the tests of the group "helped", so that it is compiled once
def helped(tmp_path_factory):
    """A project compiled with a proposer whose instruction helps: its folder, what was compiled, the provider."""
    folder = write_shop(tmp_path_factory.mktemp("helped") / "shop")
    label(folder)
    with pytest.MonkeyPatch.context() as patch, written_by(folder, patch, writes(GOOD)) as provider:
        done = compile_(folder)
        assert done.calls == provider.calls
        yield folder, done, provider


def test_an_instruction_that_helps_is_proposed_found_and_sealed(helped):
    folder, done, _ = helped
    assert instruction(folder, done.reference) == GOOD
    assert instruction(folder, done.parent) != GOOD
    points = manifest_of(folder, done.reference).section("points")
    assert not any(is_candidate(name) for point in points.values() for name in point)


def test_what_was_proposed_is_not_paid_twice_and_a_warm_compile_ends_in_the_same_program(helped):
    folder, first, provider = helped
    paid = provider.calls
    second = compile_(folder)
    assert (second.calls, provider.calls) == (0, paid)
    assert len({manifest_of(folder, done.reference).content_digest for done in (first, second)}) == 1


def test_a_compile_from_a_version_starts_with_its_instruction(helped):
    folder, first, _ = helped
    second = compile_(folder, origin=first.reference)
    assert instruction(folder, second.reference) == GOOD


@pytest.mark.parametrize("proposed", [IDLE, None])
def test_an_instruction_that_does_not_help_or_is_none_is_not_sealed(own_shop, monkeypatch, proposed):
    def brain(body):
        return "???" if body["model"] == "proposer" and not proposed else writes(proposed or "")(body)

    with written_by(own_shop, monkeypatch, brain):
        done = compile_(own_shop)
    assert instruction(own_shop, done.reference) == instruction(own_shop, done.parent)
    assert done.after.grades
