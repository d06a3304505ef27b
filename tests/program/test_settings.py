"""ragc.toml: every mistake is one sentence with its line and the mend."""

import pytest

from program.errors import SettingsError
from program.project import Project
from program.settings import artifacts_root


def test_a_project_knows_the_places_its_settings_name(shop):
    project = Project.open(shop)
    assert project.name == "shop"
    assert project.artifacts == (shop / "artifacts").resolve()
    assert project.labelled == (shop / "labelled.jsonl").resolve()


def test_a_missing_file_says_how_to_make_one(tmp_path):
    with pytest.raises(SettingsError, match=r"There is no ragc\.toml.*Run: ragc init"):
        Project.open(tmp_path)
    with pytest.raises(SettingsError, match=r"Run: ragc init 'mein Büro'"):
        Project.open("mein Büro")


def test_a_misspelt_key_is_named_with_its_line_and_the_nearest_one(own_shop):
    path = own_shop / "ragc.toml"
    path.write_text(path.read_text().replace('about = "prices', 'abuot = "prices'))
    with pytest.raises(
        SettingsError, match=r"line 11: unknown key 'knowledge\.billing\.abuot'\. Did you mean 'about'\?"
    ):
        Project.open(own_shop)


def test_a_misspelt_section_is_named(own_shop):
    path = own_shop / "ragc.toml"
    path.write_text(path.read_text() + "\n[bugdet]\nmax_rounds = 2\n")
    with pytest.raises(SettingsError, match=r"line 14: unknown key 'bugdet'\. Did you mean 'budget'\?"):
        Project.open(own_shop)


@pytest.mark.parametrize(
    "text",
    ["name = ", "[knowledge", 'name = "shop"', 'name = "Shop/../x"\n[knowledge.a]\npath = "a"', "\x00"],
)
def test_a_malformed_file_is_an_error_not_a_crash(tmp_path, text):
    (tmp_path / "ragc.toml").write_text(text)
    with pytest.raises(SettingsError):
        Project.open(tmp_path)


def test_a_file_that_is_not_utf8_is_an_error(tmp_path):
    (tmp_path / "ragc.toml").write_bytes(b'name = "caf\xe9"')
    with pytest.raises(SettingsError, match="not UTF-8"):
        Project.open(tmp_path)


def test_the_environment_overrides_the_file(own_shop, monkeypatch):
    monkeypatch.setenv("RAGC_MODELS__WRITE", "openai/some-model")
    monkeypatch.setenv("RAGC_BUDGET__MAX_ROUNDS", "1")
    settings = Project.open(own_shop).settings
    assert settings.models.write == "openai/some-model"
    assert settings.budget.max_rounds == 1


def test_a_value_out_of_range_is_named(own_shop):
    path = own_shop / "ragc.toml"
    path.write_text(path.read_text() + "\n[budget]\nmax_seconds = -1\n")
    with pytest.raises(SettingsError, match=r"line 15: budget\.max_seconds is not valid"):
        Project.open(own_shop)


def test_a_relative_artifacts_folder_of_the_environment_is_one_folder_for_every_verb(own_shop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGC_ARTIFACTS", "kept")
    assert Project.open(own_shop).artifacts == artifacts_root() == (tmp_path / "kept").resolve()
    monkeypatch.setenv("RAGC_ARTIFACTS", "")  # says nothing
    assert Project.open(own_shop).artifacts == (own_shop / "artifacts").resolve()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "correct = -1\nwrong = 1",
            r"line 14: utility is not valid: a correct answer \(correct = -1\) must be worth more than",
        ),
        ("wrong = 1", r"more than a wrong one \(wrong = 1\)"),
        ("missed = 1.5", r"more than a needless refusal \(missed = 1\.5\)"),
        ("correct = inf", r"line 15: utility\.correct is not valid"),
        ("wrong = nan", r"line 15: utility\.wrong is not valid"),
    ],
)
def test_a_utility_by_which_a_correct_answer_is_not_the_best_is_refused(own_shop, said, told):
    path = own_shop / "ragc.toml"
    path.write_text(path.read_text() + f"\n[utility]\n{said}\n")
    with pytest.raises(SettingsError, match=told):
        Project.open(own_shop)
