"""The one name that is installed: files of a user's own that are called as ragc's folders and modules take nothing from it."""

import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from ragc.errors import ModelError
from ragc.models.embedded.encoder import SentenceModel
from ragc.optimize.cli.reader import run_train
from ragc.optimize.cli.serve import run_serve
from tests.optimize.test_programs import BLOCK, write_tickets

ROOT = Path(__file__).parents[2]
MINE = sorted({path.stem for name in ("program", "optimize") for path in (ROOT / name).glob("[!_]*")} | {"optimize"})
EVERY = """
import sys
from importlib import import_module
for name in {names}:
    folder = name.replace("ragc.optimize", "optimize") if "optimize" in name else name.replace("ragc", "program")
    first, second = (import_module(one) for one in {order})
    assert first is second is sys.modules[folder] is sys.modules[name] and first.__name__ == first.__spec__.name == name
"""


def run(folder, *command):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "RAGC_"))}
    return subprocess.run([sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a program of somebody's own in program.py, and a file for each name of ragc's that ends who imports it."""
    folder = tmp_path_factory.mktemp("mine")
    for name in MINE:
        (folder / f"{name}.py").write_text("raise SystemExit('this file is nobody else\\'s')\n")
    blocks = dict(BLOCK.findall((ROOT / "docs" / "dspy.md").read_text()))
    (folder / "program.py").write_text(blocks["triage.py"])
    write_tickets(folder / "tickets.jsonl")
    return folder


@pytest.mark.parametrize(
    "code",
    [
        "import ragc",
        "from ragc import load, Experiment",
        "from ragc.optimize import seal",
        "import ragc.optimize.cli.main",
    ],
)
def test_files_called_as_the_folders_of_ragc_leave_it_alone(folder, code):
    done = run(
        folder, "-c", f"{code}\nimport program; assert program.make and 'optimize' not in __import__('sys').modules"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_program_in_program_py_is_compiled_and_loaded(folder):
    ragc = str(Path(sys.executable).with_name("ragc"))
    asked = ("program:make", "--data", "tickets.jsonl", "--metric", "program:metric", "--name", "mine", "--trials", "2")
    done = run(folder, ragc, "compile", *asked)
    assert done.returncode in (0, 3), done.stderr
    code = "from ragc import load; from program import make; print(load('mine@v1', make)(ticket='The parcel is lost').team)"
    done = run(folder, "-c", code)
    assert done.returncode == 0 and done.stdout.strip() in {"billing", "technical", "delivery"}, done.stderr


@pytest.mark.parametrize("order", ["(folder, name)", "(name, folder)"])
def test_at_the_root_of_a_checkout_the_folders_names_import_the_same_modules(order):
    paths = [path for name in ("program", "optimize") for path in (ROOT / name).rglob("*.py")]
    dotted = [re.sub(r"(/__init__)?\.py$", "", str(path.relative_to(ROOT))).replace("/", ".") for path in paths]
    names = [f"ragc.{name}" if name.startswith("optimize") else re.sub("^program", "ragc", name) for name in dotted]
    done = run(ROOT, "-c", EVERY.format(names=sorted(names), order=order))
    assert done.returncode == 0, done.stderr
    assert run(ROOT, "-m", "optimize.cli.main", "--version").stdout.startswith("ragc ")


TORCH = "torch", "sentence_transformers"
NEEDS = {
    "a model of one's own that embeds": ("train", TORCH, lambda: SentenceModel("/nowhere")),
    "training": ("train", ("torch", "transformers", "accelerate", "onnx"), lambda: run_train(["none"], Path("none"))),
    "serving": ("serve", ("starlette", "uvicorn", "sse_starlette", "mcp"), lambda: run_serve("none")),
}
LACKS = [(need, name) for need, (_, names, _) in NEEDS.items() for name in names]


@pytest.mark.parametrize(("need", "name"), LACKS)
def test_what_needs_a_package_that_is_not_there_says_which_and_how_it_is_installed(monkeypatch, need, name):
    extra, _, use = NEEDS[need]
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModelError) as told:
        use()
    assert f"needs {name}." in told.value.what
    assert told.value.mend == f'Install the extra: python -m pip install -c constraints.txt -e ".[{extra}]"'


def test_one_name_is_installed():
    assert distribution("ragc").read_text("top_level.txt") == "ragc\n"
