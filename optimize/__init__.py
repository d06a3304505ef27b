"""ragc's improving half: compile a program against labelled questions, evaluate it, compare versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optimize.compiler.compile import compile_program
    from optimize.compiler.compile import compile_project as compile
    from optimize.compiler.publish import seal_program as seal
    from optimize.evaluation.evaluate import evaluate
    from optimize.metrics import graded
    from optimize.registry.versions import compare_versions as compare

_HOME = {
    "compare": ("optimize.registry.versions", "compare_versions"),
    "compile": ("optimize.compiler.compile", "compile_project"),
    "compile_program": ("optimize.compiler.compile", "compile_program"),
    "evaluate": ("optimize.evaluation.evaluate", "evaluate"),
    "graded": ("optimize.metrics", "graded"),
    "seal": ("optimize.compiler.publish", "seal_program"),
}
__all__ = ["compare", "compile", "compile_program", "evaluate", "graded", "seal"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'optimize' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _HOME[name]
    return getattr(import_module(module), attribute)
