"""Every benchmark prints its figures as JSON, whatever kinds of numbers they are, without being run here."""

import ast
import importlib.util
import json
import logging
import sys
from pathlib import Path

import mypy.api
import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = [path for path in sorted(FOLDER.glob("*.py")) if "__main__" in path.read_text()]
BROKEN = ("[call-arg]", "[attr-defined]", "[name-defined]")
"""What mypy says of a call or a name that a change of the program has left behind."""
ROW = {"figure": "share", "value": 0.12, "bar": "<= 0.2", "holds": True, "n": 3}


@pytest.fixture
def figures(monkeypatch):
    """The module that all benchmarks print through."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("RAGC_API_KEY_127_0_0_1_9", "none")
    import figures

    yield figures
    logging.disable(logging.NOTSET)  # some benchmarks run without warnings


@pytest.mark.parametrize("value", [0.12, np.float64(0.12), np.float32(0.12)])
@pytest.mark.parametrize("n", [3, np.int64(3), np.int32(3)])
def test_a_figure_is_valid_json_whatever_kind_of_number_it_is(figures, capsys, value, n):
    figures.show(iter([figures.figure("share", value, "<= 0.2", n), figures.figure("none", np.nan, "", 0)]), True)
    first, second = json.loads(capsys.readouterr().out)
    assert first == {**ROW, "value": pytest.approx(0.12, abs=1e-6)} and type(first["holds"]) is bool
    assert second["value"] is None


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_every_benchmark_prints_its_figures_as_json_and_nothing_else(figures, path, monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location(f"benchmark_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    found = [figures.figure("share", np.float64(0.12), "<= 0.2", np.int64(3))]
    for name in ("measure", "measured"):
        monkeypatch.setattr(module, name, lambda *_: iter(found), raising=False)
    asks_a_model = "make_parser" in path.read_text() or "--base-url" in path.read_text()
    model = ["--base-url", "http://127.0.0.1:9/v1", "--model", "m"] if asks_a_model else []
    monkeypatch.setattr(sys, "argv", [str(path), "--json", *model])
    (main,) = [
        one for one in ast.parse(path.read_text()).body if isinstance(one, ast.If) and "__main__" in ast.dump(one)
    ]
    exec(compile(ast.Module(main.body, []), path, "exec"), vars(module))
    printed = json.loads(capsys.readouterr().out)
    assert printed and all(row == ROW for row in printed)


def test_every_benchmark_calls_what_is_there_in_the_way_it_is_called():
    told, _, _ = mypy.api.run([str(FOLDER), "--config-file", str(FOLDER.parent / "pyproject.toml")])
    assert "checked" in told
    assert [one for one in told.splitlines() if one.endswith(BROKEN)] == []


def test_there_are_benchmarks():
    assert len(SCRIPTS) > 10
