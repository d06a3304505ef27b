"""ragc's improving half: compile a program against labelled questions, evaluate it, compare versions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragc.optimize.compiler.compile import compile_program
    from ragc.optimize.compiler.compile import compile_project as compile
    from ragc.optimize.compiler.publish import seal_program as seal
    from ragc.optimize.evaluation.evaluate import evaluate
    from ragc.optimize.metrics import graded
    from ragc.optimize.registry.versions import compare_versions as compare

if __name__ == "optimize":
    import_module("ragc.checkout").import_as(__name__, "ragc.optimize")

_HOME = {
    "compare": ("ragc.optimize.registry.versions", "compare_versions"),
    "compile": ("ragc.optimize.compiler.compile", "compile_project"),
    "compile_program": ("ragc.optimize.compiler.compile", "compile_program"),
    "evaluate": ("ragc.optimize.evaluation.evaluate", "evaluate"),
    "graded": ("ragc.optimize.metrics", "graded"),
    "seal": ("ragc.optimize.compiler.publish", "seal_program"),
}
__all__ = ["compare", "compile", "compile_program", "evaluate", "graded", "seal"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ragc.optimize' has no attribute {name!r}")
    module, attribute = _HOME[name]
    return getattr(import_module(module), attribute)
