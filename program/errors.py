"""Every error a user can meet: one sentence what, one sentence how to mend it."""

from __future__ import annotations


class RagcError(Exception):
    """A problem that its reader can mend.

    `what` says what is wrong, `mend` says what to do about it. `exit_code` is what the command line
    returns: 1 gate failed, 2 wrong usage or bad input, 3 inconclusive, 4 integrity.
    """

    exit_code = 2

    def __init__(self, what: str, mend: str = "") -> None:
        self.what = what
        self.mend = mend
        super().__init__(f"{what} {mend}".strip())


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


class VersionError(RagcError):
    """A reference names no version, or more than one."""


class IntegrityError(RagcError):
    """An artifact is not what its manifest says, or does not fit this program."""

    exit_code = 4


class GateError(RagcError):
    """A check that guards a promotion or a comparison did not pass."""

    exit_code = 1


class ExperimentError(RagcError):
    """An online experiment cannot be started, opened or read."""


class RecordError(RagcError):
    """The record of calls, or a study, cannot be read or written."""


class StudyError(RagcError):
    """A study is unknown, or was made by another program, other questions or other settings."""


class BudgetError(RagcError):
    """A cap on calls, money or seconds leaves too little to do what was asked."""


class BudgetStop(BaseException):
    """A hard cap was reached.

    Not an `Exception`: optimizers swallow those, and a spent budget must stop them. `tripped` names the
    cap: `rounds`, `seconds`, `tokens`, `usd` or `calls`.
    """

    def __init__(self, tripped: str) -> None:
        self.tripped = tripped
        super().__init__(f"budget spent: {tripped}")
