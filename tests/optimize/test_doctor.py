"""What `ragc doctor` finds out about a project's models by calling each once."""

from optimize.report.doctor import examine_setup
from tests.conftest import add_toml
from tests.support.provider import Script, serve
from tests.support.replies import obliging

MODEL = "openai/stand-in"
OWN = f'[provider]\nretries = 0\n[provider.model."{MODEL}"]\n'


def test_doctor_calls_the_model_of_every_role_and_tells_its_price(own_shop):
    with serve(Script(), obliging) as provider:
        terms = f'api_base = "{provider.url}"\nusd_in = 0.5\nusd_out = 2.0'
        add_toml(own_shop, f'[models]\nwrite = "{MODEL}"\njudge = "{MODEL}"\n{OWN}{terms}')
        found = [finding for finding in examine_setup(own_shop) if MODEL in finding.what]
        assert provider.calls == 2
    assert [(one.good, one.what.partition(": ")[2]) for one in found] == [
        (True, f"{MODEL} answers; US$ 0.5 in, 2 out a million")
    ] * 2


def test_doctor_says_how_to_mend_a_model_that_takes_no_schema_or_is_not_there(own_shop):
    with serve(Script(refuses_schema=True), obliging) as provider:
        add_toml(own_shop, f'[models]\nwrite = "{MODEL}"\n{OWN}api_base = "{provider.url}"\nstructured = true')
        (refused,) = (finding for finding in examine_setup(own_shop) if MODEL in finding.what)
    (gone,) = (finding for finding in examine_setup(own_shop) if MODEL in finding.what)
    assert "answered 400" in refused.what and "set structured = false" in refused.mend
    assert "cannot be reached" in gone.what and "its server runs" in gone.mend


def test_doctor_tries_the_models_that_embed_and_rerank(own_shop):
    add_toml(own_shop, '[models]\nembed = "nobody/knows-this-model"\nrerank = "nobody/knows-that-one"')
    failed = [found.what for found in examine_setup(own_shop) if "cannot be loaded" in found.what and not found.good]
    assert len(failed) == 2 and "nobody/knows-this-model" in failed[0] and "knows-that-one" in failed[1]
