"""CandidateSets of instructions and demonstrations: found, searched with everything else, sealed only when they help."""

import json
import re
from contextlib import contextmanager

import orjson
import pytest

from optimize.compiler.candidates import CandidateSets, Offer, gather_sets
from optimize.compiler.compile import compile_project
from optimize.compiler.demonstrations import Demonstration
from optimize.compiler.plan import inherit_learned
from program import load, open_program
from program.errors import StudyError
from program.knowledge.project import Project
from program.loop import grounding
from program.loop.decisions import to_jsonable
from program.loop.policy import apply_setting, find_dimensions, is_candidate
from program.loop.policy import read_setting as values
from program.models.language.gateway import shared_gateway
from program.serve.manifest import read_manifest
from program.serve.reference import resolve
from tests.conftest import write_shop
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


def quote_nothing(state):
    yield []
    return grounding.Draft(quoted=0.0)


@contextmanager
def written_by(folder, monkeypatch, brain):
    """The project with its texts, and new instructions, from a model on loopback."""
    shared_gateway.cache_clear()
    monkeypatch.setattr(grounding, "quote_passages", quote_nothing)  # a quotation in a text's place would do as well
    with serve(None, brain) as provider:
        monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        monkeypatch.setenv("OPENAI_API_BASE", provider.url)
        monkeypatch.setenv("OPENAI_BASE_URL", provider.url)
        settings = folder / "ragc.toml"
        if "[models]" not in settings.read_text():
            settings.write_text(settings.read_text().replace("[knowledge.product]", MODELS + "[knowledge.product]", 1))
        yield provider


def instruction(folder, reference):
    path = resolve(reference, folder / "artifacts").path
    return orjson.loads((path / "program.json").read_bytes())["generator.answer"]["signature"]["instructions"]


def compiled_(folder, **options):
    return compile_project(Project.open(folder), **{"trials": 8, **options})


@pytest.fixture(scope="module")  # for the tests of the group "helped", so that it is compiled once
def helped(tmp_path_factory):
    """A project compiled with a proposer whose instruction helps: its folder, what was compiled, the provider."""
    folder = write_shop(tmp_path_factory.mktemp("helped") / "shop")
    with pytest.MonkeyPatch.context() as patch, written_by(folder, patch, writes(GOOD)) as provider:
        done = compiled_(folder)
        assert done.calls == provider.calls
        yield folder, done, provider


def test_an_instruction_that_helps_is_proposed_found_and_sealed(helped):
    folder, done, _ = helped
    assert instruction(folder, done.reference) == GOOD
    assert instruction(folder, done.parent) != GOOD
    points = read_manifest(resolve(done.reference, folder / "artifacts").path).section("points")
    assert not any(is_candidate(name) for point in points.values() for name in point)


def test_what_was_proposed_is_not_paid_twice_and_a_warm_compile_ends_in_the_same_program(helped):
    folder, first, provider = helped
    paid = provider.calls
    second = compiled_(folder)
    assert (second.calls, provider.calls) == (0, paid)
    digests = [
        read_manifest(resolve(r, folder / "artifacts").path).content_digest for r in (first.reference, second.reference)
    ]
    assert digests[0] == digests[1]


def test_a_compile_from_a_version_starts_with_its_instruction(helped):
    folder, first, _ = helped
    second = compiled_(folder, origin=first.reference, trials=2)
    assert instruction(folder, second.reference) == GOOD


def test_an_instruction_that_does_not_help_is_not_sealed(own_shop, monkeypatch):
    with written_by(own_shop, monkeypatch, writes(IDLE)):
        done = compiled_(own_shop)
    assert instruction(own_shop, done.reference) == instruction(own_shop, done.parent)


def test_no_cap_on_calls_is_passed_by_proposing(own_shop, monkeypatch):
    with written_by(own_shop, monkeypatch, writes(GOOD)) as provider:
        done = compiled_(own_shop, max_calls=40)
        assert 0 < provider.calls == done.calls <= 40


def test_a_proposer_that_fails_leaves_the_compile_whole(own_shop, monkeypatch):
    def brain(body):
        return "???" if body["model"] == "proposer" else writes("")(body)

    with written_by(own_shop, monkeypatch, brain):
        done = compiled_(own_shop, trials=4)
    assert instruction(own_shop, done.reference) == instruction(own_shop, done.parent)
    assert done.after.grades


def able(body):
    """A writer that says what was asked under any instruction."""
    if body["model"] == "proposer":
        return "???"
    return writes("")({**body, "messages": [{"content": "FIGURES FIRST"}, *body["messages"][1:]]})


def begun(folder):
    """A compile that is stopped in its search."""

    def stop(live):
        if live.stage == "searching" and live.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compiled_(folder, watch=stop)


def without_record(folder):
    for file in (folder / ".ragc").glob("record.sqlite*"):
        file.unlink()


def test_a_study_never_goes_on_with_other_candidates_than_it_began_with(own_shop, monkeypatch):
    with written_by(own_shop, monkeypatch, able):
        begun(own_shop)
        without_record(own_shop)
        with pytest.raises(StudyError, match="is not in the record"):
            compiled_(own_shop, resume=True)


def test_of_an_embedded_program_only_the_demonstrations_of_its_deciders_are_offered(shop):
    program = open_program(shop)
    route = {"question": "How much?", "glimpse": [], "vague": False, "route": "simple"}
    made = [Demonstration("classifier.route", f"t{n}", {**route, "question": f"How much {n}?"}) for n in range(220)]
    sets = gather_sets(program, made, []).sets
    deciders = {"classifier.route", "judge.relevance", "judge.sufficiency", "judge.contradiction"}
    assert set(sets) == deciders | {"grounder.support", "grounder.responsive", "generator.states"}
    assert {kind: len(shown) for kind, shown in sets["classifier.route"].items()} == {
        "as it is": 0,
        "labelled": 220,
    }
    before = [d.name for d in find_dimensions(program)]
    CandidateSets(sets, {}).equip_program(program)
    assert [d.name for d in find_dimensions(program)] == before
    offers = {"classifier.route": Offer((), ("labelled",))}
    CandidateSets(sets, offers).equip_program(program, without=frozenset({"t0"}))
    assert {d.name for d in find_dimensions(program)} - set(before) == {"classifier.route#demonstrations"}
    assert program.classifier.route.demos == []
    apply_setting(program, {"classifier.route#demonstrations": 1})
    assert len(program.classifier.route.demos) == 219
    assert values(program)["classifier.route#demonstrations"] == 1


def test_what_a_parent_was_shown_and_told_is_the_first_candidate_exactly(compiled):
    project = Project.open(compiled)
    parent = load("shop@v2", artifacts=compiled / "artifacts")
    told = "Another instruction."
    route = parent.classifier.route
    route.signature, route.demos = route.signature.with_instructions(told), [dict(demo) for demo in route.demos[1:4]]
    base = inherit_learned(open_program(project), parent)
    made = [Demonstration("classifier.route", "t", plain_fields(demo)) for demo in parent.classifier.route.demos * 2]
    gather_sets(base, made, []).equip_program(base)
    for name, predictor in parent.named_predictors():
        same = base.predictor(name)
        assert same.signature.instructions == predictor.signature.instructions
        assert [plain_fields(demo) for demo in same.demos] == [plain_fields(demo) for demo in predictor.demos]
    assert values(base) == {name: value for name, value in values(parent).items() if name in values(base)}


def plain_fields(demo):
    return {name: to_jsonable(value) for name, value in demo.items()}
