"""What `ragc doctor` finds out about a language model by one call."""

import pytest

from program.models.gateway import shared_gateway
from program.models.lane import Terms
from program.models.probe import probe
from program.models.script import Script
from program.models.testing import serve
from program.models.transport import CallFailed
from program.settings import Project

MODEL = "openai/stand-in"


def lane(provider, **terms):
    return shared_gateway().lane(MODEL, provider.url, Terms(**terms))


def test_one_call_shows_what_a_model_can_do_how_fast_it_is_and_what_it_costs():
    with serve(Script(delay=0.05), lambda body: "Yes, I am.") as provider:
        found = probe(lane(provider, usd_in=0.5, usd_out=2.0))
        assert provider.calls == 1
    assert (found.structured, found.streaming, found.logprobs) == (True, True, False)
    assert 0.05 <= found.first <= found.seconds
    assert "US$ 0.5 in, 2 out a million" in str(found)


@pytest.mark.parametrize("forms", ["ignored", "refused"])
def test_a_server_that_ignores_or_refuses_the_form_has_no_structured_output(forms):
    with serve(Script(forms=forms), lambda body: "Yes, I am ready.") as provider:
        found = str(probe(lane(provider)))
    assert "no structured output" in found and "price unknown" in found


def test_a_server_that_is_not_there_is_a_failure_in_a_sentence():
    with serve() as provider:
        gone = lane(provider)
    with pytest.raises(CallFailed, match="cannot be reached"):
        probe(gone)


def test_doctor_tells_it_for_every_role(own_shop):
    from optimize.doctor import examine

    with serve(Script(), lambda body: "Yes, I am.") as provider:
        settings = own_shop / "ragc.toml"
        models = f'[models]\nwrite = "{MODEL}"\njudge = "{MODEL}"\n[provider.model."{MODEL}"]\n'
        settings.write_text(f'{settings.read_text()}\n{models}api_base = "{provider.url}"\n')
        Project.open(own_shop)
        told = [finding.what for finding in examine(own_shop) if MODEL in finding.what and finding.good]
    assert len(told) == 2 and all("structured output, no logprobs, streaming" in what for what in told)


def test_doctor_tries_the_models_that_embed_and_rerank(own_shop):
    from optimize.doctor import examine

    settings = own_shop / "ragc.toml"
    models = '[models]\nembed = "nobody/knows-this-model"\nrerank = "nobody/knows-that-one"\n'
    settings.write_text(f"{settings.read_text()}\n{models}")
    failed = [found.what for found in examine(own_shop) if "cannot be loaded" in found.what and not found.good]
    assert len(failed) == 2 and "nobody/knows-this-model" in failed[0] and "knows-that-one" in failed[1]
