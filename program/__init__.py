"""ragc's running half: load a compiled program, ask it, get an `Answer`.

Importing this costs no model and no torch; those come with the first question.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragc.answer import Answer, Citation, Outcome, StoppedBy, Usage
    from ragc.errors import RagcError
    from ragc.loop.rag import AgenticRAG
    from ragc.serve.experiment import Experiment
    from ragc.serve.opening import load, open_program

if __name__ == "program":
    import_module("ragc.checkout").import_as(__name__, "ragc")

_HOME = {
    **dict.fromkeys(("Answer", "Citation", "Outcome", "StoppedBy", "Usage"), "ragc.answer"),
    **dict.fromkeys(("load", "open_program"), "ragc.serve.opening"),
    "RagcError": "ragc.errors",
    "Experiment": "ragc.serve.experiment",
    "AgenticRAG": "ragc.loop.rag",
}
__all__ = ["AgenticRAG", "Answer", "Citation", "Experiment", "Outcome", "RagcError", "StoppedBy", "Usage"]
__all__ += ["load", "open_program"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ragc' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
