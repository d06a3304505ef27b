"""New instructions of a predictor, written by a language model from what it got wrong (GEPA's reflection)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from ragc.optimize.compiler.candidates.demonstrations import Failure

LONGEST = 6000  # characters of an instruction at most
SHOWN, CHARACTERS = 5, 3000  # failures in a reflection at most, and characters of each of their fields

_log = logging.getLogger(__name__)


def propose_instructions(lm: dspy.BaseLM, program: dspy.Module, name: str, failures: Sequence[Failure]) -> list[str]:
    """Return new instructions of a predictor by GEPA's reflection, if any."""
    from dspy.teleprompt.gepa import InstructionProposer

    now = dict(program.named_predictors())[name].signature.instructions
    shown = [_shorten_texts(failure) for failure in failures[:SHOWN]]
    try:
        with dspy.context(lm=lm):
            written = InstructionProposer()({name: now}, {name: shown}, [name]) if shown else {}
    except Exception as error:  # DSPy and GEPA raise what they like
        _log.warning("no instruction for %s: %s", name, " ".join(str(error).split())[:200])
        return []
    texts = (text.strip() for text in written.values())
    return [text for text in texts if text and text != now and len(text) <= LONGEST]


def _shorten_texts(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _shorten_texts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shorten_texts(item) for item in value[:SHOWN]]
    return str(value)[:CHARACTERS]
