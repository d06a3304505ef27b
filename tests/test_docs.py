"""The documentation holds: what it names is there, its tables are those of the code, its examples are read and run.

The tables between `<!-- made by tests/test_docs.py: ... -->` and `<!-- end -->` are written by `python tests/test_docs.py`.
"""

import ast
import json
import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import typer.main

from ragc.answer import StoppedBy
from ragc.loop.policy import PRESETS, Policy
from ragc.optimize.cli.main import app
from ragc.optimize.evaluation.grades import METRICS
from ragc.optimize.labelled.dataset import LabelledQuestion
from ragc.settings import Settings

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)")
FILE = re.compile(r"`((?:program|optimize|tests|benchmarks|docs|data)/[\w./-]+\.\w+)`")
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
MADE = re.compile(r"(<!-- made by tests/test_docs\.py: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
REFERENCE = re.compile(r'"[\w-]+@(?:latest|production|v\d)"')
MOST_LINES = {"README.md": 120, "architecture.md": 110, "dspy.md": 145, "serving.md": 140, "results.md": 130}

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@each_page
def test_every_link_of_a_page_leads_to_a_file(page):
    assert [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()] == []


@each_page
def test_every_file_that_a_page_names_exists(page):
    assert [file for file in FILE.findall(page.read_text()) if not (ROOT / file).exists()] == []


@each_page
def test_every_command_of_a_page_is_one_that_ragc_has(page):
    assert [line for line in list_commands(page.read_text()) if find_fault(line)] == []


def test_nobody_is_told_to_install_a_package_that_no_index_has():
    files = [*PAGES, *(path for name in ("program", "optimize") for path in (ROOT / name).rglob("*.py"))]
    assert [path for path in files if "ragc[" in path.read_text()] == []


@each_page
def test_the_tables_made_from_the_code_are_not_stale(page):
    text = page.read_text()
    assert make_tables(text) == text, "Run: python tests/test_docs.py"


@each_page
def test_every_table_of_settings_is_valid(page):
    for block in list_blocks(page, "toml"):
        read = tomllib.loads(block)
        if "project" not in read:  # else a package's pyproject.toml
            Settings(**{"name": "docs", "knowledge": {}, **read})


@each_page
def test_every_labelled_question_of_a_page_can_be_read(page):
    for block in list_blocks(page, "json"):
        LabelledQuestion(**json.loads(block))


@each_page
def test_every_name_that_a_python_example_imports_exists(page):
    own = re.findall(
        r"^```python (\w+)\.py$", page.read_text(), re.MULTILINE
    )  # files that the page has the reader write
    for block in list_blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module not in own:
                assert [one.name for one in node.names if not hasattr(import_module(str(node.module)), one.name)] == []


def test_the_python_examples_run_on_a_small_compiled_version(compiled, monkeypatch):
    monkeypatch.setenv("RAGC_ARTIFACTS", str(compiled / "artifacts"))
    ran = [block for page in PAGES for block in list_blocks(page, "python", also="")]
    for block in ran:
        exec(REFERENCE.sub('"shop@latest"', block), {})
    assert len(ran) >= 2


def test_every_metric_and_every_stop_is_explained():
    figures, loop = ((ROOT / "docs" / name).read_text() for name in ("results.md", "loop.md"))
    assert [name for name in METRICS if f"`{name}`" not in figures] == []
    assert [name for name in StoppedBy if f"`{name}`" not in loop] == []


def test_the_pages_that_everybody_reads_are_short():
    long = {
        page.name: n for page in PAGES if (n := len(page.read_text().splitlines())) > MOST_LINES.get(page.name, 120)
    }
    assert long == {}


def list_blocks(page, language, also=None):
    """Yield the fenced blocks of a language; with `also`, of those the ones whose fence says just that besides."""
    for head, block in FENCE.findall(page.read_text()):
        name, _, rest = head.strip().partition(" ")
        if name == language and also in (None, rest):
            yield block


def list_commands(text):
    """Yield the `ragc ...` lines of the fenced blocks, and of the prose, without what follows a comment or a pipe."""
    for _, block in FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if found := re.search(r"(?:^|\$ |&& )(ragc [a-z].*)", line.strip()):
                yield re.split(r"\s+#|\s*[|>]\s", found[1])[0].replace("[", "").replace("]", "")
    for span in re.findall(r"`(ragc [a-z][^`]*)`", FENCE.sub("", text)):
        yield re.sub(r"[\[\]]", "", span.replace("\n", " "))


def find_fault(line):
    """Return what is wrong with a command line, an unknown verb or option; empty where nothing is."""
    command = typer.main.get_command(app)
    words = shlex.split(line)[1:]
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return f"no verb {words[0]}"
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    wrong = [word for word in words if word.startswith("--") and word.partition("=")[0] not in known | {"--help"}]
    return f"no option {wrong[0]}" if wrong else ""


def make_tables(text):
    """Return a page with its made tables as the code has them."""
    return MADE.sub(lambda found: found[1] + TABLES[found[2]](found[3]) + found[4], text)


def make_knobs(before):
    rows = []
    for name, knob in Policy().named_parameters():
        span = f"{knob.low:g} to {knob.high:g}" if (knob.low, knob.high, knob.integral) != (0, 1, True) else "switch"
        rows.append([f"`{name}`", f"{knob.default:g}", span, knob.meaning])
    return make_table(["knob", "default", "range", "meaning"], rows)


def make_presets(before):
    """Return the presets with their values; what each does is prose, kept as it stands."""
    told = dict(re.findall(r"^\| `([\w-]+)` \| ([^|]*) \|", before, re.MULTILINE))
    rows = [
        [f"`{name}`", told[name], ", ".join(f"`{k}` {v:g}" for k, v in turned.items())]
        for name, turned in PRESETS.items()
    ]
    return make_table(["preset", "what it does", "what it turns from the defaults"], rows)


def make_table(head, rows):
    lines = (head, ["---"] * len(head), *rows)
    return "".join(f"| {' | '.join(row)} |\n" for row in lines)


TABLES = {"knobs": make_knobs, "presets": make_presets}

if __name__ == "__main__":
    for page in PAGES:
        page.write_text(make_tables(page.read_text()))
