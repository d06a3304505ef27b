"""The labelled questions of a project: one typed record a line of JSON."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import orjson
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ragc.errors import DataError, QuestionError, describe_fault, suggest, suggest_option
from ragc.loop.reviewed import Review
from ragc.text.history import Asked, Turn, Turns, read_history

Outcome = Literal["answered", "clarify", "abstain"]
Route = Literal["direct", "simple", "complex"]
Strategy = Literal["vector", "graph", "tables", "web", "direct"]
Split = Literal["train", "dev", "test"]

SPLITS: tuple[str, ...] = get_args(Split)
LABELS = ("outcome", "route", "sources", "strategy", "sub_queries", "evidence", "facts", "not_facts", "answer")
"""The keys that a metric can be computed from; a question has at least one of them."""
_BLANK = "Fill it in, or leave the key out"


def _refuse_blank(text: str) -> str:
    if not text.strip():
        raise ValueError(_BLANK)
    return text


Text = Annotated[str, AfterValidator(_refuse_blank)]
Fact = (
    Text | Annotated[tuple[Text, ...], Field(min_length=1)]
)  # one spelling of a fact, or several of which any one will do


def _read_turns(given: Any) -> Turns:
    """Return the turns of a label. Raises `ValueError` for what is no conversation of texts."""
    try:
        turns = read_history(given)
    except QuestionError as error:
        raise ValueError(error.what) from error
    if given and not turns:
        raise ValueError(_BLANK)
    return turns


class Question(BaseModel):
    """What a program is asked, and how it is grouped with others.

    The inputs of an example are one as JSON; a labelled question of a project has its labels beside it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Text  # a name that no other question of the file has
    question: Text  # the question as a user would ask it
    topic: str = ""  # a name shared by questions on the same documents; no topic is in two splits
    tags: tuple[Text, ...] = ()  # kinds of question, for figures by kind
    split: Split | None = None  # the part of the questions that this one belongs to
    outcome: Outcome | None = None  # how a program should respond

    @property
    def asked(self) -> Any:
        """What a program's runs take."""
        return self.question

    @property
    def conversation(self) -> str:
        """The question behind what was said before it, a line each."""
        return self.question

    @property
    def cluster(self) -> str:
        """The unit that statistics take as independent: the topic, else the id."""
        return self.topic or self.id


class LabelledQuestion(Question):
    """One question and its labels; an empty field is a label nobody gave."""

    history: Annotated[tuple[Turn, ...], BeforeValidator(_read_turns)] = Field(
        default=(), exclude_if=lambda turns: not turns
    )
    """What was said before a question that follows on: messages, or the asker's earlier questions; oldest first."""
    readers: tuple[Text, ...] = Field(default=(), exclude_if=lambda groups: not groups)  # the groups of who asks
    route: Route | None = None  # how many look-ups the question takes: none, one or several
    sources: tuple[Text, ...] = ()
    """The knowledge bases that the answer needs; those of the evidence where a file gives none."""
    strategy: Strategy | None = None  # the way of searching that finds the evidence
    sub_queries: tuple[Text, ...] = ()  # the two to four look-ups of a complex question
    evidence: tuple[Text, ...] = ()  # the ids of all passages and tables that the answer needs
    facts: tuple[Fact, ...] = ()  # what a correct answer states
    not_facts: tuple[Text, ...] = ()  # what a correct answer does not state
    answer: str = ""  # a reference answer
    as_of: date | None = None  # the day on which the labels are right
    sql: str = ""  # a SELECT whose result states the facts of a question on tables
    reviewed: Review | None = Field(default=None, exclude=True, repr=False)
    """The review that labelled it; None for a label written by hand."""
    line: int = Field(default=0, exclude=True, repr=False)
    """The line of the file, from 1; 0 for a question from no file."""
    file: str = Field(default="", exclude=True, repr=False)
    """The file, where it is not that of the labelled questions."""

    @model_validator(mode="after")
    def _require_label(self) -> LabelledQuestion:
        if not any(getattr(self, label) for label in LABELS):
            raise ValueError(f"Add at least one of {', '.join(LABELS)}")
        return self

    def as_example(self) -> Any:
        """Return the question as a `dspy.Example`, its labels as they are."""
        import dspy

        inputs = ("question", *(name for name in ("history", "readers") if getattr(self, name)))
        return dspy.Example(**self.model_dump(mode="json")).with_inputs(*inputs)

    @property
    def asked(self) -> Asked:
        return Asked(self.question, self.history, frozenset(self.readers), self.as_of)

    @property
    def conversation(self) -> str:
        return "\n".join([*(turn.content for turn in self.history), self.question])

    @property
    def alternatives(self) -> tuple[tuple[str, ...], ...]:
        """The facts, each as the tuple of its spellings."""
        return tuple((fact,) if isinstance(fact, str) else fact for fact in self.facts)


KEYS = tuple(name for name in LabelledQuestion.model_fields if name not in ("line", "file"))


@dataclass(frozen=True, slots=True)
class DataFinding:
    """One thing wrong, and how to mend it."""

    id: str  # the id of the question; empty where it is no single one's
    line: int  # the line in the file, from 1; 0 where it is no single line's
    what: str  # what is wrong
    mend: str  # how to mend it
    file: str = ""  # the document, `<base>/<file>`, or the file of reviews; empty for the labelled questions


def read_labelled(path: str | Path, project: Path | None = None) -> list[LabelledQuestion]:
    """Return the questions of a JSON Lines file, blank lines passed over.

    Raises `DataError` for the first line that is no labelled question. With the folder of the `project` that the file
    belongs to, the error names the command that lists all such lines.
    """
    questions, unread = read_lines(path)
    if unread:
        listed = f"ragc data check {shlex.quote(os.path.relpath(project))} lists all such lines." if project else ""
        raise DataError(unread[0].what, f"{unread[0].mend} {listed}".strip())
    return questions


def read_lines(path: str | Path) -> tuple[list[LabelledQuestion], list[DataFinding]]:
    """Return the questions of a file, and the lines that are none."""
    path = Path(path)
    questions: list[LabelledQuestion] = []
    unread: list[DataFinding] = []
    first_line: dict[str, int] = {}
    # Only "\n" ends a line: str.splitlines would cut a question at a U+2028 inside it.
    for line, raw in enumerate(_read_bytes(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not raw.strip():
            continue
        where = f"{path.name} line {line}"
        fields: dict[str, Any] = {}
        try:
            fields = _parse_object(raw, where)
            question = _parse_question(raw, fields, where, line)
            if (first := first_line.setdefault(question.id, line)) != line:
                what = f"{where}: the id {question.id!r} is already that of line {first}."
                raise DataError(what, "Give each question an id of its own.")
            questions.append(question)
        except DataError as error:
            given = fields.get("id")
            unread.append(DataFinding(given if isinstance(given, str) else "", line, error.what, error.mend))
    if not questions and not unread:
        raise DataError(f"{path} holds no questions.", "Write one JSON object a line.")
    return questions, unread


def digest_questions(questions: Sequence[Question]) -> str:
    """Return the SHA-256 of the questions with all their labels, in hexadecimal."""
    rows = [question.model_dump(mode="json") for question in questions]
    return hashlib.sha256(orjson.dumps(rows, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        mend = "Draft some with `ragc data draft`, write them there, or correct [labelled] path in ragc.toml."
        raise DataError(f"There are no labelled questions at {path}.", mend) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.", "Make it a readable file.") from error


def _parse_object(raw: bytes, where: str) -> dict[str, Any]:
    def refuse_repeats(items: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in items]
        if repeated := next((key for key in keys if keys.count(key) > 1), None):
            raise DataError(f"{where}: the key {repeated!r} occurs twice.", "Keep one of them.")
        return dict(items)

    try:
        fields = json.loads(raw.decode("utf-8"), object_pairs_hook=refuse_repeats)
    except UnicodeDecodeError as error:
        raise DataError(f"{where} is not UTF-8 text.", "Save the file as UTF-8.") from error
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", "nested too deep")
        raise DataError(f"{where} is not JSON: {reason}.", "Write one whole JSON object on each line.") from error
    if not isinstance(fields, dict):
        raise DataError(f"{where} is not a JSON object.", 'Write {"id": ..., "question": ..., ...} on each line.')
    return fields


def _parse_question(raw: bytes, fields: dict[str, Any], where: str, line: int) -> LabelledQuestion:
    if unknown := [key for key in fields if key not in KEYS]:
        raise DataError(f"{where}: unknown key {unknown[0]!r}.", suggest(unknown[0], KEYS))
    try:
        question = LabelledQuestion.model_validate_json(raw.strip(), strict=True)
    except ValidationError as error:
        raise _explain_fault(error, fields, where) from error
    bases = dict.fromkeys(id_.partition("/")[0] for id_ in question.evidence if "/" in id_)
    return question.model_copy(update={"line": line, "sources": question.sources or tuple(bases)})


def _explain_fault(error: ValidationError, fields: dict[str, Any], where: str) -> DataError:
    faults = error.errors()
    own = str(faults[0].get("ctx", {}).get("error", ""))
    if not faults[0]["loc"]:
        return DataError(f"{where} has no label.", f"{own}.")
    key = str(faults[0]["loc"][0])
    if faults[0]["type"] == "missing":
        return DataError(f"{where}: the key {key!r} is missing.", "Every question needs an id and a question.")
    if own == _BLANK or any(one["type"] == "too_short" for one in faults):
        return DataError(f"{where}: {key!r} is empty or holds an empty text.", f"{_BLANK}.")
    shown = json.dumps(fields[key])
    what = f"{where}: {key!r} cannot be {shown if len(shown) <= 60 else f'{shown[:60]}...'}."
    listed = LabelledQuestion.model_fields[key].default == ()
    mend = f"Make it {'a list of texts' if listed else describe_fault(faults[0]).removeprefix('must be ')}."
    return DataError(what, own if faults[0]["type"] == "value_error" else suggest_option(faults[0]) or mend)
