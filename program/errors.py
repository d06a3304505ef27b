"""Every error a user can meet: one sentence what, one sentence how to mend it, and a code for programs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self


class RagcError(Exception):
    """A problem that its reader can mend.

    `what` is the problem and `mend` the remedy, one sentence each. `code` names the class for `--json`, `data` holds
    what a program may want to know (`path`, `reference`, `nearest`). `exit_code` is what the command line returns: 1
    gate failed, 2 wrong usage or bad input, 3 inconclusive, 4 integrity; 5 is an answer of `ragc ask` that failed.
    """

    code = "ragc"
    exit_code = 2

    def __init_subclass__(cls) -> None:
        cls.code = cls.__name__.removesuffix("Error").lower()

    def __init__(self, what: str, mend: str = "", **data: Any) -> None:
        self.what = re.sub(r"\s*\n\s*(\.$|)", lambda end: end[1] or " ", what)  # a library's error may have many lines
        self.mend, self.data = mend, data
        super().__init__(f"{self.what} {mend}".strip())

    def name_project(self, folder: str) -> None:
        """Name a project's folder in the remedy, where that says PROJECT."""
        self.mend = self.mend.replace("PROJECT", folder)
        self.args = (f"{self.what} {self.mend}".strip(),)

    def as_dict(self) -> dict[str, Any]:
        """Return the error as `--json` shows it."""
        return {"code": self.code, "what": self.what, "mend": self.mend, **self.data}


class SettingsError(RagcError):
    """`ragc.toml` is missing, malformed, or names something that does not exist."""


class KnowledgeError(RagcError):
    """A knowledge base cannot be read, indexed or searched."""


class DataError(RagcError):
    """The labelled questions are unreadable or contradict the knowledge."""


class QuestionError(RagcError):
    """The question itself cannot be asked: empty or far too long."""


class ModelError(RagcError):
    """A model is unknown, not installed, or not what its digest says."""


def require_packages(what: str, extra: str, *names: str) -> None:
    """Raise `ModelError` where packages that something needs are not installed."""
    if lacks := [name for name in names if find_spec(name) is None]:
        install = f'python -m pip install -c constraints.txt -e ".[{extra}]"'
        raise ModelError(f"{what} needs {', '.join(lacks)}.", f"Install the extra: {install}")


class VersionError(RagcError):
    """A reference names no version, or more than one."""

    @classmethod
    def link(cls, path: Path) -> Self:
        """Return the error for a link where a folder or file of the artifacts should be."""
        return cls(f"{path} is a link.", "Put the folder itself in the artifacts folder.", path=str(path))


class IntegrityError(RagcError):
    """An artifact is not what its manifest says, or does not fit this program."""

    exit_code = 4

    @classmethod
    def unreadable(cls, path: Path, mend: str = "Restore it from a copy.") -> Self:
        """Return the error for a file of the artifacts that cannot be read."""
        return cls(f"{path} is unreadable.", mend, path=str(path))


class GateError(RagcError):
    """A check that guards a promotion or a comparison did not pass."""

    exit_code = 1


class ExperimentError(RagcError):
    """An online experiment cannot be started, opened or read."""


class RecordError(RagcError):
    """The record of calls, or a study, cannot be read or written."""


class StudyError(RagcError):
    """What is asked of a compile or a training is beyond use, or not what was begun."""


class BudgetError(RagcError):
    """A cap on calls, money or seconds leaves too little to do what was asked."""


class BudgetStop(BaseException):
    """A hard cap was reached.

    Not an `Exception`: optimizers swallow those, and a spent budget must stop them. `tripped` names the cap: `rounds`,
    `seconds`, `tokens`, `usd` or `calls`.
    """

    def __init__(self, tripped: str) -> None:
        self.tripped = tripped
        super().__init__(f"budget spent: {tripped}")


_EXPECTED = {
    **{"string": "text", "int": "a whole number", "float": "a number", "bool": "true or false"},
    **{"list": "a list", "tuple": "a list", "dict": "an object", "model": "an object"},
    "date": "a date such as 2026-03-01",
}
"""What a field must be, by the first word of the type of pydantic's error."""


def describe_fault(fault: Mapping[str, Any]) -> str:
    """Return what pydantic finds wrong with a field, to stand behind its name."""
    kind, context = fault["type"], fault.get("ctx", {})
    if kind.startswith("missing"):
        return "is missing"
    if kind == "extra_forbidden":
        return "is not known here"
    limited = context.keys() & {"min_length", "max_length", "pattern"}
    if expected := context.get("expected") or (None if limited else _EXPECTED.get(kind.partition("_")[0])):
        return f"must be {expected}"
    return "is not valid: " + re.sub("^[A-Z][a-z]+ should", "it should", str(context.get("error", fault["msg"])))


def suggest_option(fault: Mapping[str, Any]) -> str:
    """Return the remedy for a text that is none of a field's options, else nothing."""
    options = re.findall("'(.*?)'", fault.get("ctx", {}).get("expected", ""))
    return suggest(fault["input"], options) if options and isinstance(fault["input"], str) else ""


def suggest(word: str, valid: Sequence[str]) -> str:
    """Return the remedy for a word that is none of those that are valid."""
    near = difflib.get_close_matches(word.lower(), valid, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Use one of {', '.join(valid)}."


def explain_disk(error: OSError) -> RagcError:
    """Return what the system says of a file in two sentences."""
    return RagcError(f"{error.strerror}: {error.filename or 'a file'}.", "Free space, or mend access to it.")
