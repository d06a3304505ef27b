"""ragc's improving half: compile a program against labelled questions, evaluate it, compare versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optimize.compiler.compile import compile_project as compile
    from optimize.evaluation.comparison import compare_versions as compare
    from optimize.evaluation.evaluate import evaluate
    from optimize.metrics import graded

_HOME = {
    "compare": ("optimize.evaluation.comparison", "compare_versions"),
    "compile": ("optimize.compiler.compile", "compile_project"),
    "evaluate": ("optimize.evaluation.evaluate", "evaluate"),
    "graded": ("optimize.metrics", "graded"),
}
__all__ = ["compare", "compile", "evaluate", "graded"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'optimize' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _HOME[name]
    return getattr(import_module(module), attribute)
