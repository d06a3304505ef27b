"""The notes of a question's path: what a trace shows of each, and what a page says to a person who asked."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any


class NoteKind(Enum):
    """The kinds of notes: the line of a trace, and the sentence of a page, empty where that is the line.

    A share is shown as `.41` in a line and as 41 % in a sentence.
    """

    CONFIGURED = "{model} writes, as DSPy is configured", ""
    FOLLOWS = "follows on: {question}", "It follows on from what was said before, and was read as: {question}"
    HISTORY_LEFT_OUT = "history left out: {why}", "A step failed."
    LANGUAGE = "language {code}", "It seems not to be in English ({code})."
    REVIEWED = "reviewed {share}", "Answered before, and reviewed; it is the same question with a chance of {share}."
    GREETING = "greeting", "It is a greeting."
    DIRECT = "classify->direct[{bases}]", "It may need no looking up."
    PLANNED = "classify->{route}[{bases}]", "It is a {route} question, for: {bases}."
    SEARCHED = "search{strategy}({n})", "Searches made: {n}."
    NOT_SEARCHED = "not searched: {source} ({why})", "Not searched, since it could not be reached or read: {source}."
    FOLLOWED = "follow({n})", "Looked up {n} more that hang on what was found."
    SQL = "sql({n})", "Queries of tables written: {n}."
    NO_SQL = "no sql: {why}", "A step failed."
    SQL_EMPTY = "sql refused or empty: {source}", "A query was refused or found no row: {source}."
    JUDGED = "judge {share}", "What was found suffices with a chance of {share}."
    LACKING = 'judge {share} missing "{lacks}"', "What was found suffices with a chance of {share}; missing: {lacks}."
    QUOTED = "quote {share}", "The best words to quote answer it with a chance of {share}."
    UNSURE = "unsure", "The first answer was not sure enough."
    WROTE_ANSWERED = "ask: answered", "Written from the passages."
    WROTE_MISSING = "ask: missing", "The passages that were found do not state it."
    WROTE_WHICH = "ask: which", "The question may mean several things."
    WROTE_GENERAL = "ask: general", "No document is needed."
    WROTE_QUOTE = "ask: quote", "The best words of the passages are quoted."
    STATED = "stated {n}/{all}", "{n} of {all} statements stand in what they cite."
    SUPPORTED = "supported {share}", "What it cites states it with a chance of {share}."
    RESPONSIVE = "responsive {share}", "The answer is about the question with a chance of {share}."
    WRITTEN = "tokens {share}", "The model would write just this with a chance of {share}."
    SWITCHED = "switch->{strategy}", "Searched in another way: {strategy}."
    ECHO = "echo of {predictor}", "What a language model wrote says nothing, and was dropped."
    NO_TEXT = "no text of {predictor}", "What a language model wrote says nothing, and was dropped."
    WHICH = "which of {n}", "Asked back: the question leaves {n} choices open."
    COLUMN = "column of {n}", "A column was told whole: {n} cells."
    LINKS_REMOVED = "links removed: {hosts}", "Links removed: {hosts}."
    UNRETRIEVED = "unretrieved", "Answered by what the program knows, without a document."
    FALLBACK = "fallback", "Answered by what was there until then."
    ABSTAINED = "abstain", "Said that it is not known."
    FAILED = "failed: {why}", "A step failed."
    UNREAD = "no readable reply from {model}: took the safe default", "The reply of a model could not be read."
    CUT = "a text was cut off: its last sentence was left out", ""
    STOOD_IN = "{why}: {model} {did}", "A model failed, and another took its place."

    def __call__(self, **values: Any) -> Note:
        """Return a note of this kind."""
        return Note(self, values)

    def begins(self, line: str) -> bool:
        """Tell whether a trace's line is a note of this kind."""
        return line.startswith(self.value[0].partition("{")[0])


class Note(str):
    """A line of a trace that knows its kind and values."""

    __slots__ = ("kind", "values")
    kind: NoteKind
    values: dict[str, Any]

    def __new__(cls, kind: NoteKind, values: dict[str, Any]) -> Note:
        """Write the line."""
        note = super().__new__(cls, _fill(kind.value[0], values, lambda share: f"{share:.2f}".removeprefix("0"), ","))
        note.kind, note.values = kind, values
        return note

    def __reduce__(self) -> tuple[Any, ...]:
        """Save the kind and the values."""
        return Note, (self.kind, self.values)


def put_into_words(line: str) -> str:
    """Return a line of a path as a page puts it; one of another program as it is."""
    if not (isinstance(line, Note) and line.kind.value[1]):
        return line
    return _fill(line.kind.value[1], line.values, lambda share: f"{100 * share:.0f} %", ", ")


def _fill(pattern: str, values: dict[str, Any], show: Callable[[float], str], comma: str) -> str:
    shown = {name: comma.join(one) if isinstance(one, tuple) else one for name, one in values.items()}
    return pattern.format(**{name: show(one) if isinstance(one, float) else one for name, one in shown.items()})
