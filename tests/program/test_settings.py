"""ragc.toml: every mistake is one sentence with its line and the mend."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragc import errors
from ragc.errors import IntegrityError, RagcError, SettingsError, VersionError
from ragc.knowledge.project import Project
from ragc.settings import UNANSWERED, UtilitySettings, artifacts_root
from tests.conftest import add_toml


def test_a_missing_file_says_how_to_make_one(tmp_path, monkeypatch):
    (here := tmp_path / "above" / "here").mkdir(parents=True)
    monkeypatch.chdir(here)
    for way, named in ((".", here), ("..", here.parent), (here, here)):
        told = rf"There is no ragc\.toml in {re.escape(str(named))}\. Run: ragc init {re.escape(str(way))}$"
        with pytest.raises(SettingsError, match=told):
            Project.open(way)
    with pytest.raises(SettingsError, match=r"Run: ragc init 'mein Büro'"):
        Project.open("mein Büro")
    (here / "ragc.toml").write_text("")
    with pytest.raises(SettingsError, match="is a file"):
        Project.open(here / "ragc.toml")


@pytest.mark.parametrize("asked", ["shops", "shops/help/knowledge/faq", "shops/hepl", "shops/help/absent"])
def test_a_folder_above_in_or_named_like_a_project_is_told_the_project(tmp_path, asked):
    (tmp_path / "shops/help/knowledge/faq").mkdir(parents=True)
    (tmp_path / "shops/help/ragc.toml").write_text("")
    told = f"Nearest: {tmp_path}/shops/help. To make another, run: ragc init {tmp_path / asked}"
    with pytest.raises(SettingsError, match=re.escape(told)):
        Project.open(tmp_path / asked)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("[bugdet]\nmax_rounds = 2", r"line 14: unknown key 'bugdet'\. Did you mean 'budget'\?"),
        (
            "[loop]\npreset = 'knowledge-rooter'",
            r"line 15: loop\.preset must be .*\. Did you mean 'knowledge-router'\?",
        ),
        ("[loop]\npreset = 'zzz'", r"line 15: loop\.preset must be .*\. Use one of "),
        ("[budget]\nmax_seconds = -1", r"line 15: budget\.max_seconds is not valid"),
        ("[knowledge.faq]\nkind = 'grahp'\npath = 'x'", r"line 15: .*no kind 'grahp'\. Did you mean 'graph'\?"),
        ('[knowledge.faq]\nkind = "http"\nurl = "https://x.org"\ntetx = "/a"', r"'knowledge\.faq\.tetx'\..* 'text'"),
        ('[knowledge.faq]\nkind = "http"\ntext = "a"\nurl = "https://x.org"', r"faq\.text is not valid"),
        ('[knowledge.faq]\nkind = "http"\ntext = "/a"\nurl = "https://{query}.org/"', r"faq\.url is not valid"),
        ('[knowledge.faq]\nkind = "http"\ntext = "/a"\nurl = "file:///etc/passwd"', r"faq\.url is not valid"),
        ('[knowledge.faq]\nkind = "web"\nprovider = "searxng"\nurl = "file:///x"', r"faq\.url is not valid"),
        ("[knowledge.faq]\npath = 'x'\nchunk_tokens = 1", r"faq\.chunk_tokens is not valid"),
        ("[knowledge.faq]\nkind = 'graph'", r"line 14: the key 'knowledge\.faq\.path' is missing"),
        ("[knowledge.faq]\nkind = 'web'\nprovider = 'searxng'", "searxng needs the url of its server"),
        ("[knowledge.faq]\nkind = 'web'\nprovider = 'brave'\npath = 'x'", r"not valid: give a path .* not both"),
        ("[knowledge.faq]\npath = '../elsewhere'", r"knowledge\.faq is at .*outside the project.*RAGC_ALLOW"),
        ('[knowledge.desk]\nkind = "tables"', "either `path` or `url`"),
        ('[knowledge.desk]\nkind = "tables"\npath = "x"\nurl = "sqlite:///y.db"', "either `path` or `url`"),
        ("[utility]\ncorrect = -1\nwrong = 1", r"line 14: utility is not valid: a correct .* must be worth more"),
        ("[utility]\nwrong = 1", r"more than a wrong one \(wrong = 1\)"),
        ("[utility]\nmissed = 1.5", r"more than a needless refusal \(missed = 1\.5\)"),
        ("[utility]\nmissed = 0.5\npadding = 0.5", r"less its share padding = 0\.5\) must be worth more than a need"),
        ("[budget]\nmax_seconds = 'long'", r"line 15: budget\.max_seconds must be a number\. Mend"),
        ("[utility]\npadding = 1.1", r"line 15: utility\.padding is not valid"),
        ("[utility]\ncorrect = inf", r"line 15: utility\.correct is not valid"),
        ("[utility]\nwrong = nan", r"line 15: utility\.wrong is not valid"),
    ],
)
def test_a_mistake_is_named_with_its_line(own_shop, more, told):
    with pytest.raises(SettingsError, match=told):
        add_toml(own_shop, f"\n{more}")


def test_the_environment_overrides_the_file(own_shop, tmp_path, monkeypatch):
    monkeypatch.setenv("RAGC_MODELS__WRITE", "openai/some-model")
    monkeypatch.setenv("RAGC_BUDGET__MAX_ROUNDS", "1")
    monkeypatch.setenv("RAGC_ANSWER__LINKS", '["a.example", "b.example"]')
    monkeypatch.setenv("RAGC_UTILITY", '{"wrong": -2}')
    monkeypatch.setenv("RAGC_UTILITY__PADDING", "0.2")
    monkeypatch.setenv("ragc_name", "other")
    monkeypatch.setenv("RAGC_NO_KEY", "is let be")
    settings = Project.open(own_shop).settings
    assert (settings.name, settings.models.write, settings.budget.max_rounds) == ("other", "openai/some-model", 1)
    assert settings.answer.links == ("a.example", "b.example")
    assert (settings.utility.wrong, settings.utility.padding) == (-2, 0.2)
    for variable in ("RAGC_MODELS__WRITE__X", "RAGC_BUDGET__MAX_ROUND", "RAGC_UTILITY__CALL__X"):
        with monkeypatch.context() as context, pytest.raises(SettingsError):
            context.setenv(variable, "1")
            Project.open(own_shop)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGC_ARTIFACTS", "kept")  # counts from the working folder, for every verb
    assert Project.open(own_shop).artifacts == artifacts_root() == (tmp_path / "kept").resolve()
    monkeypatch.setenv("RAGC_ARTIFACTS", "")  # says nothing
    assert Project.open(own_shop).artifacts == (own_shop / "artifacts").resolve()


def test_every_error_has_a_code_of_its_own_and_the_two_sentences(tmp_path):
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RagcError)]
    assert len({kind.code for kind in kinds}) == len(kinds) > 10
    told = {"code": "version", "what": "There is no shpo.", "mend": "Nearest: shop.", "nearest": ["shop"]}
    assert VersionError("There is no shpo.", "Nearest: shop.", nearest=["shop"]).as_dict() == told
    assert str(IntegrityError.unreadable(tmp_path)) == f"{tmp_path} is unreadable. Restore it from a copy."
    assert IntegrityError.exit_code == 4


@given(st.floats(-5, -0.1), st.floats(-1, 0.3))
def test_an_answer_and_a_refusal_are_worth_the_same_at_the_least_chance(wrong, missed):
    worth = UtilitySettings(wrong=wrong, missed=missed)
    chance = worth.least_chance
    unanswered = (1 - chance) * UNANSWERED  # to refuse these is right
    refused = unanswered * worth.correct + (1 - unanswered) * missed
    answered = chance * worth.correct + (1 - chance) * wrong
    assert refused == pytest.approx(answered) or chance == 0.02
