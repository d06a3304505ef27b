"""The page of every key of `ragc.toml` is made from the settings: `python tests/test_configuration.py` writes it."""

import ast
import inspect
from pathlib import Path

from ragc import settings

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
HEAD = """# Every key of `ragc.toml`
Made from `program/settings.py` by `python tests/test_configuration.py`; a test holds the two equal. An unknown key is an error. A key is
overridden by the environment: `RAGC_BUDGET__MAX_SECONDS=30` is `[budget] max_seconds = 30`. What the bases hold and how
files are read stands in [knowledge.md](knowledge.md), models in [models.md](models.md).

| key | unless given | what it is |
|---|---|---|
"""
SECTIONS = (
    ("", settings.Settings),
    ("[knowledge.NAME]", settings.BaseSettings),
    ("[knowledge.NAME], of files", settings.FileSettings),
    ('[knowledge.NAME] kind = "tables"', settings.TablesSettings),
    ('[knowledge.NAME] kind = "web"', settings.WebSettings),
    ('[knowledge.NAME] kind = "http"', settings.HttpSettings),
    ("[knowledge.NAME] of a package", settings.PackageSettings),
    ("[models]", settings.ModelSettings),
    ("[keyword]", settings.KeywordSettings),
    ("[qdrant]", settings.QdrantSettings),
    ("[budget]", settings.BudgetSettings),
    ("[provider]", settings.ProviderSettings),
    ("[provider.model.NAME]", settings.ProviderModelSettings),
    ("[utility]", settings.UtilitySettings),
    ("[labelled]", settings.LabelledSettings),
    ("[trace]", settings.TraceSettings),
    ("[loop]", settings.LoopSettings),
    ("[answer]", settings.AnswerSettings),
)


def list_keys(model):
    """The keys of a table that are its own, with the first line of what is said of each."""
    shown = {settings.TomlTable, *(one for _, one in SECTIONS)} - {model}  # in rows of their own
    own = [one for one in reversed(model.__mro__) if issubclass(one, settings.TomlTable) and one not in shown]
    body = [node for one in own for node in ast.parse(inspect.getsource(one)).body[0].body]
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr):
            field = model.model_fields[node.target.id]
            yield field.alias or node.target.id, field, after.value.value.splitlines()[0]


def show_default(field):
    if field.is_required():
        return "must be given"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ("", (), {}) or isinstance(value, settings.TomlTable):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def render():
    rows = []
    for name, model in SECTIONS:
        rows += [f"| **{name}** | | {(inspect.getdoc(model) or '').splitlines()[0]} |"] * bool(name)
        rows += [f"| `{key}` | {show_default(field)} | {said} |" for key, field, said in list_keys(model)]
    return HEAD + "\n".join(rows) + "\n"


def test_the_page_has_every_key_as_the_settings_have_it():
    assert PAGE.read_text() == render()
    tables = {
        name for name, one in vars(settings).items() if inspect.isclass(one) and issubclass(one, settings.TomlTable)
    }
    assert tables - {"TomlTable", "DocumentsSettings", "CallSettings"} == {model.__name__ for _, model in SECTIONS}


if __name__ == "__main__":
    PAGE.write_text(render())
