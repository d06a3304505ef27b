"""ragc's running half: load a compiled program, ask it, get an `Answer`.

Importing this costs no model and no torch; those come with the first question.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from program.answer import Answer, Citation, Outcome, StoppedBy, Usage
    from program.errors import RagcError
    from program.loop.rag import AgenticRAG
    from program.serve.experiment import Experiment
    from program.serve.opening import load, open_program

_HOME = {
    **dict.fromkeys(("Answer", "Citation", "Outcome", "StoppedBy", "Usage"), "program.answer"),
    **dict.fromkeys(("load", "open_program"), "program.serve.opening"),
    "RagcError": "program.errors",
    "Experiment": "program.serve.experiment",
    "AgenticRAG": "program.loop.rag",
}
__all__ = ["AgenticRAG", "Answer", "Citation", "Experiment", "Outcome", "RagcError", "StoppedBy", "Usage"]
__all__ += ["load", "open_program"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'program' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
