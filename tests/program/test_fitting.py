"""A sealed version against the code, the models and the project that are to run it."""

import json
import logging

import pytest

from optimize.registry import versions as registry
from optimize.report.doctor import examine
from program import load
from program.errors import IntegrityError, KnowledgeError, ModelError, SettingsError
from program.loop.policy import PLAIN
from program.serve.manifest import read
from tests.support.provider import serve

QUESTION = "How many watts does the Wren draw?"


@pytest.fixture
def changed(compiled, tmp_path):
    """Publishes version 2 of the compiled project again, its manifest or state changed first; loads the result."""

    def publish(manifest=lambda fields: None, state=lambda parts: None):
        (folder,) = (compiled / "artifacts/shop/versions").glob("v2-*")
        fields = json.loads((folder / "manifest.json").read_bytes())
        files = {file.path: (folder / file.path).read_bytes() for file in read(folder).files}
        parts = json.loads(files["program.json"])
        manifest(fields)
        state(parts)
        files["program.json"] = json.dumps(parts).encode()
        ref = registry.publish("shop", fields, files, tmp_path / "artifacts")
        return load(ref, artifacts=tmp_path / "artifacts", project=compiled)

    return publish


def structure(change):
    def apply(fields):
        for item in fields["program"]["structure"]:
            if item.get("predictor") == "judge.relevance":
                change(item["fields"])

    return apply


def test_an_unchanged_version_loads(changed):
    assert changed()(QUESTION).version == "shop@v1"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda f: f[0].__setitem__(0, "asked"), r"missing here: judge\.relevance\(asked: str \(in\)"),
        (lambda f: f[0].__setitem__(2, "int"), r"missing here: judge\.relevance\(question: int"),
        (lambda f: f.reverse(), r"missing here: judge\.relevance\(relevant"),
        (lambda f: f.append(["hint", "in", "str"]), r"missing here: judge\.relevance\(.*hint: str"),
    ],
)
def test_a_field_of_another_name_type_or_order_is_refused(changed, change, told):
    with pytest.raises(IntegrityError, match=told) as error:
        changed(structure(change))
    assert "missing in the artifact: judge.relevance(question: str (in)" in error.value.what
    assert "ragc compile" in error.value.mend


def test_predictors_in_another_order_are_refused(changed):
    with pytest.raises(IntegrityError, match="the order of the predictors differs"):
        changed(lambda fields: fields["program"]["structure"].reverse())


def test_every_difference_is_in_the_one_error(changed):
    def manifest(fields):
        del fields["program"]["structure"][-1]
        fields["models"]["embedder"] = "sha256:0"
        fields["points"]["balanced"]["policy.k"] = 99

    with pytest.raises(IntegrityError) as error:
        changed(manifest, lambda parts: parts["policy.sentences"].update(value=-3))
    for part in (
        "missing in the artifact: knob policy.",
        "embedding model sha256:0 there",
        "policy.k is 99 at balanced, outside [2, 12]",
        "policy.sentences is -3, outside [1, 6]",
    ):
        assert part in error.value.what


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("policy.k", 1), ("policy.k", 13), ("policy.dense_weight", "high"), ("policy.route", True),
        ("policy.k", None), ("judge.relevance:relevant", 1.5), ("judge.relevance:relevant", -0.1),
        ("classifier.route:route=simple", 0), ("policy.unheard_of", 1),
    ],
)  # fmt: skip
def test_a_setting_that_the_program_cannot_take_is_refused(changed, name, value):
    with pytest.raises(IntegrityError, match=name.replace(".", r"\.")):
        changed(lambda fields: fields["points"]["economy"].update({name: value}))


def test_a_knob_whose_range_changed_is_no_hindrance_while_its_value_is_within(changed):
    def wider(fields):
        for item in fields["program"]["structure"]:
            if item.get("knob") == "policy.k":
                item.update(low=0, high=1000)

    assert changed(wider)(QUESTION).text


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (lambda parts: parts.pop("judge.missing"), r"its state has no judge\.missing"),
        (lambda parts: parts.update(other={"value": 1}), "its state has a surplus other"),
    ],
)
def test_a_state_of_other_predictors_is_refused(changed, state, told):
    with pytest.raises(IntegrityError, match=told):
        changed(state=state)


def test_another_embedding_model_is_refused_with_the_command_that_mends_it(changed):
    with pytest.raises(IntegrityError, match="compiled with the embedding model acme/e5, the project names local") as e:
        changed(lambda fields: fields["models"].update(embed="acme/e5"))
    assert 'embed = "acme/e5"' in e.value.mend
    assert "ragc index" in e.value.mend


def test_an_index_of_another_embedding_model_is_refused_with_the_command_that_mends_it(own_shop, compiled):
    load("shop@v2", artifacts=compiled / "artifacts", project=own_shop)
    for path in (own_shop / ".ragc/index").glob("gen-*/manifest.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"embedder_digest": "sha256:" + "0" * 64}))
    with pytest.raises(KnowledgeError, match="another embedding model") as error:
        load("shop@v2", artifacts=compiled / "artifacts", project=own_shop)
    assert "ragc index" in error.value.mend


def test_knowledge_that_changed_since_is_answered_from(own_shop, compiled):
    page = own_shop / "knowledge/product/kettles.md"
    page.write_text(page.read_text().replace("1000 watts", "1234 watts"))
    rag = load("shop@v2", artifacts=compiled / "artifacts", project=own_shop)
    rag.policy.turn(**PLAIN)
    assert "1234" in rag(QUESTION).text


def test_a_model_without_its_key_is_an_error_that_names_the_key(compiled, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    monkeypatch.setenv("RAGC_MODELS__WRITE", "openai/gpt-4o-mini")
    with pytest.raises(ModelError, match=r"write.*OPENAI_API_KEY"):
        load("shop@v2", artifacts=compiled / "artifacts")


def test_another_writer_than_at_compile_time_is_told_in_the_log(compiled, monkeypatch, caplog):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    monkeypatch.setenv("RAGC_MODELS__WRITE", "openai/gpt-4o-mini")
    with caplog.at_level(logging.WARNING, logger="program"):
        load("shop@v2", artifacts=compiled / "artifacts")
    assert "shop@v2 was compiled with write = local/extract and runs with openai/gpt-4o-mini." in caplog.text


@pytest.fixture
def keyless(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    return monkeypatch


def test_the_judges_models_are_checked_like_the_others(compiled, keyless, caplog):
    keyless.setenv("RAGC_MODELS__JUDGE", "openai/gpt-4o-mini")
    with pytest.raises(ModelError, match=r"judge.*OPENAI_API_KEY"):
        load("shop@v2", artifacts=compiled / "artifacts")
    keyless.setenv("OPENAI_API_KEY", "none")
    with caplog.at_level(logging.WARNING, logger="program"):
        load("shop@v2", artifacts=compiled / "artifacts")
    assert "shop@v2 was compiled with judge = nothing and runs with openai/gpt-4o-mini." in caplog.text


def test_a_cascade_that_is_the_same_is_told_to_nobody_and_another_is(changed, keyless, caplog):
    keyless.setenv("OPENAI_API_KEY", "none")
    keyless.setenv("RAGC_MODELS__WRITE", '["local/extract", "openai/gpt-4o-mini"]')
    with caplog.at_level(logging.WARNING, logger="program"):
        changed(lambda fields: fields["models"].update(write=["local/extract", "openai/gpt-4o-mini"]))
        assert not [record for record in caplog.records if record.name.startswith("program")]
        changed(lambda fields: fields["models"].update(write=["local/extract", "openai/gpt-4o"]))
    assert "write = local/extract > openai/gpt-4o and runs with local/extract > openai/gpt-4o-mini." in caplog.text


def test_a_server_of_the_projects_own_wants_no_providers_key_at_load_nor_of_doctor(own_shop, compiled, keyless):
    keyless.setenv("RAGC_MODELS__WRITE", "openai/own")
    with serve() as provider:
        toml = f'{(own_shop / "ragc.toml").read_text()}\n[provider.model."openai/own"]\napi_base = "{provider.url}"\n'
        (own_shop / "ragc.toml").write_text(toml)
        assert load("shop@v2", artifacts=compiled / "artifacts", project=own_shop)
        (told,) = [finding for finding in examine(own_shop) if finding.what.startswith("write:")]
        assert told.good
    keyless.setenv("RAGC_MODELS__WRITE", "openai/theirs")
    (told,) = [finding for finding in examine(own_shop) if finding.what.startswith("write:")]
    assert (told.good, told.mend) == (False, "Set OPENAI_API_KEY in the environment.")


def test_verify_tells_what_keeps_a_version_from_loading(changed, compiled, tmp_path):
    with pytest.raises(IntegrityError):
        changed(lambda fields: fields["points"]["economy"].update({"policy.k": 99}))
    checked = registry.verify_by_loading("shop@v1", tmp_path / "artifacts", compiled)
    assert "policy.k is 99 at economy" in checked.problems[0]
    assert "ragc compile" in checked.mend
    assert registry.verify("shop@v1", tmp_path / "artifacts").sound, "its bytes are as they were sealed"
    assert registry.verify_by_loading("shop@v2", compiled / "artifacts") == registry.verify(
        "shop@v2", compiled / "artifacts"
    )


def test_verify_says_when_it_could_not_load_for_want_of_the_project(changed, tmp_path):
    changed()
    checked = registry.verify_by_loading("shop@v1", tmp_path / "artifacts")
    assert checked.sound
    assert "is not at" in checked.note
    with pytest.raises(SettingsError):
        load("shop@v1", artifacts=tmp_path / "artifacts")
