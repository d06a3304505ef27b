"""What `ragc doctor` finds out about a project's models by calling each once."""

import re

from optimize.report.doctor import examine_setup
from tests.support.provider import Script, serve
from tests.support.replies import obliging

MODEL = "openai/stand-in"


def write(folder, text, terms):
    settings = folder / "ragc.toml"
    settings.write_text(
        f'{settings.read_text()}\n{text}\n[provider]\nretries = 0\n[provider.model."{MODEL}"]\n{terms}\n'
    )


def test_doctor_calls_the_model_of_every_role_and_tells_its_price(own_shop):
    with serve(Script(), obliging) as provider:
        terms = f'api_base = "{provider.url}"\nusd_in = 0.5\nusd_out = 2.0'
        write(own_shop, f'[models]\nwrite = "{MODEL}"\njudge = "{MODEL}"', terms)
        found = [finding for finding in examine_setup(own_shop) if MODEL in finding.what]
        assert provider.calls == 4  # a decision, and a text to take the time of
    assert len(found) == 2 and all(one.good for one in found)
    assert all(
        re.search(rf"{MODEL} answers, \d+\.\d s a call; US\$ 0.5 in, 2 out a million", one.what) for one in found
    )


def test_doctor_says_how_to_mend_a_model_that_takes_no_schema_or_is_not_there(own_shop):
    with serve(Script(refuses_schema=True), obliging) as provider:
        write(own_shop, f'[models]\nwrite = "{MODEL}"', f'api_base = "{provider.url}"\nstructured = true')
        (refused,) = (finding for finding in examine_setup(own_shop) if MODEL in finding.what)
    (gone,) = (finding for finding in examine_setup(own_shop) if MODEL in finding.what)
    assert "answered 400" in refused.what and "set structured = false" in refused.mend
    assert "cannot be reached" in gone.what and "its server runs" in gone.mend


def test_doctor_tries_the_models_that_embed_and_rerank(own_shop):
    settings = own_shop / "ragc.toml"
    models = '[models]\nembed = "nobody/knows-this-model"\nrerank = "nobody/knows-that-one"\n'
    settings.write_text(f"{settings.read_text()}\n{models}")
    failed = [found.what for found in examine_setup(own_shop) if "cannot be loaded" in found.what and not found.good]
    assert len(failed) == 2 and "nobody/knows-this-model" in failed[0] and "knows-that-one" in failed[1]
