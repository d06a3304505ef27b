"""A project from a stranger: its `ragc.toml` reads nothing outside its folder, and no key is written anywhere."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragc import open_program
from ragc.errors import RagcError, SettingsError
from ragc.knowledge.project import Project
from ragc.models.catalog import open_models
from ragc.settings import FILE, ModelSettings

fuzz = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SCRAPS = """name = "x"|[models]|decide = 3|write = "openai/x"|[knowledge.a]|path = "k"|path = "../.."|asks = "x"
api_base = "file:///x"|kind = "tables"|url = "sqlite:////etc/passwd"|[budget]|max_seconds = -1|[[x]]|[provider.model."o/x"]|\""""
scraps = st.sampled_from(SCRAPS.replace("\n", "|").split("|"))


def project(folder, knowledge, extra=""):
    folder.mkdir(exist_ok=True)
    (folder / FILE).write_text(f'name = "x"\n{extra}\n[knowledge.a]\n{knowledge}\n', encoding="utf-8")
    return Project.open(folder)


@pytest.fixture
def inside(tmp_path):
    """A folder with a link to one beside it."""
    for name in ("outside", "x"):
        (tmp_path / name).mkdir()
    (tmp_path / "x" / "link").symlink_to(tmp_path / "outside")
    return tmp_path / "x"


@pytest.mark.parametrize(
    "knowledge",
    [
        *('path = "/etc"', 'path = "../outside"', 'path = "inside/../../outside"', 'path = "link"'),
        'kind = "tables"\nurl = "sqlite:////etc/passwd"',
        'kind = "tables"\nurl = "sqlite:///../outside/x.db"',
        'kind = "tables"\nurl = "sqlite+pysqlite:////etc/passwd"',
        'path = "k"\n[labelled]\npath = "/etc/passwd"',
    ],
)
def test_knowledge_outside_the_folder_is_refused_but_what_the_environment_allows(inside, knowledge, monkeypatch):
    with pytest.raises(SettingsError, match="outside the project's folder"):
        project(inside, knowledge)
    monkeypatch.setenv("RAGC_ALLOW", str(inside.parent / "outside"))
    assert project(inside, 'path = "../outside"').name == "x"


@pytest.mark.parametrize("role", ["embed", "reader"])
@pytest.mark.parametrize("name", ["/etc", "../outside", "link"])
def test_a_folder_of_a_model_outside_the_folder_is_refused(inside, role, name, monkeypatch):
    monkeypatch.chdir(inside)
    with pytest.raises(SettingsError, match=f"models.{role} is at .*outside the project's folder"):
        project(inside, 'path = "k"', f'[models]\n{role} = "{name}"')
    (inside / "own").mkdir()
    for own in ("own", str(inside / "own"), "sentence-transformers/all-MiniLM-L6-v2"):
        assert project(inside, 'path = "k"', f'[models]\n{role} = "{own}"').name == "x"


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
