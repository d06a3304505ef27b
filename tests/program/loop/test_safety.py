"""A project from a stranger: its `ragc.toml` reads nothing outside its folder, and no key is written anywhere."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from program import open_program
from program.errors import RagcError, SettingsError
from program.knowledge.project import Project
from program.models.catalog import open_models
from program.settings import FILE, ModelSettings

fuzz = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
scraps = st.sampled_from(
    'name = "x"|[models]|decide = 3|write = "openai/x"|[knowledge.a]|path = "k"|path = "../.."|[provider.model."o/x"]|'
    'api_base = "file:///x"|kind = "tables"|url = "sqlite:////etc/passwd"|asks = "x"|[budget]|max_seconds = -1|[[x]]|"'.split(
        "|"
    )
)


def project(folder, knowledge, extra=""):
    folder.mkdir(exist_ok=True)
    (folder / FILE).write_text(f'name = "x"\n{extra}\n[knowledge.a]\n{knowledge}\n', encoding="utf-8")
    return Project.open(folder)


@pytest.mark.parametrize(
    "knowledge",
    [
        'path = "/etc"',
        'path = "../outside"',
        'path = "inside/../../outside"',
        'path = "link"',
        'kind = "tables"\nurl = "sqlite:////etc/passwd"',
        'kind = "tables"\nurl = "sqlite:///../outside/x.db"',
        'kind = "tables"\nurl = "sqlite+pysqlite:////etc/passwd"',
        'path = "k"\n[labelled]\npath = "/etc/passwd"',
    ],
)
def test_knowledge_outside_the_folder_is_refused(tmp_path, knowledge):
    (tmp_path / "outside").mkdir()
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(SettingsError, match="outside the project's folder"):
        project(tmp_path / "x", knowledge)


@pytest.mark.parametrize("role", ["embed", "rerank"])
@pytest.mark.parametrize("name", ["/etc", "../outside", "link"])
def test_a_folder_of_a_model_outside_the_folder_is_refused(tmp_path, role, name, monkeypatch):
    (tmp_path / "outside").mkdir()
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "link").symlink_to(tmp_path / "outside")
    monkeypatch.chdir(tmp_path / "x")
    with pytest.raises(SettingsError, match=f"models.{role} is at .*outside the project's folder"):
        project(tmp_path / "x", 'path = "k"', f'[models]\n{role} = "{name}"')
    (tmp_path / "x" / "own").mkdir()
    for inside in ("own", str(tmp_path / "x" / "own"), "sentence-transformers/all-MiniLM-L6-v2"):
        assert project(tmp_path / "x", 'path = "k"', f'[models]\n{role} = "{inside}"').name == "x"


def test_what_the_environment_allows_is_read(tmp_path, monkeypatch):
    (tmp_path / "outside").mkdir()
    monkeypatch.setenv("RAGC_ALLOW", str(tmp_path / "outside"))
    assert project(tmp_path / "x", 'path = "../outside"').name == "x"


def test_a_link_among_the_documents_that_leads_outside_is_not_followed(own_shop, tmp_path):
    (tmp_path / "secret.md").write_text("# Secret\nThe vault code is 4711.\n", encoding="utf-8")
    (own_shop / "knowledge" / "product" / "secret.md").symlink_to(tmp_path / "secret.md")
    rag = open_program(own_shop)
    assert not [p for p in rag.runtime.library.passages() if "4711" in p.text]


@pytest.mark.parametrize("name", ["vllm/x", "petals/x", "custom/x", "local/y", ""])
def test_a_model_that_would_run_here_or_is_unknown_cannot_be_named(name):
    with pytest.raises(RagcError):
        open_models(ModelSettings(write=name))


@fuzz
@given(st.lists(scraps, max_size=10).map("\n".join) | st.text(max_size=200))
def test_any_settings_file_opens_or_is_a_ragc_error(tmp_path, text):
    (tmp_path / FILE).write_text(text, encoding="utf-8", errors="replace")
    try:
        Project.open(tmp_path)
    except RagcError as error:
        assert error.what
