"""The labelled questions of a project: one typed record a line of JSON, and their three splits."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from optimize.labelled.overlap import question_digest
from optimize.labelled.split import SPLITS, assign
from program.errors import DataError

Outcome = Literal["answered", "clarify", "abstain"]
Route = Literal["direct", "simple", "complex"]
Strategy = Literal["vector", "graph", "tables", "web", "direct"]
Split = Literal["train", "dev", "test"]

LABELS = (
    *("outcome", "route", "sources", "strategy", "sub_queries"),
    *("evidence", "facts", "not_facts", "answer"),
)
"""The keys a metric can be computed from; a question has at least one of them."""


def _not_blank(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("blank", "is empty")
    return text


Text = Annotated[str, AfterValidator(_not_blank)]
Fact = Text | tuple[Text, ...]
"""A string, or several of which any one will do."""


class LabelledQuestion(BaseModel):
    """One question and what is known of its right answer; an empty field is a label nobody gave.

    `facts` must all be in a correct answer and `not_facts` must not. `sources`, where a file does not
    give them, are the bases of its `evidence`. `sql` is the SELECT whose result holds
    the facts of a question on tables. `line` is where the file has it, 0 when it comes from no file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Text
    question: Text
    topic: str = ""
    outcome: Outcome | None = None
    route: Route | None = None
    sources: tuple[Text, ...] = ()
    strategy: Strategy | None = None
    sub_queries: tuple[Text, ...] = ()
    evidence: tuple[Text, ...] = ()
    facts: tuple[Fact, ...] = ()
    not_facts: tuple[Text, ...] = ()
    answer: str = ""
    as_of: date | None = None
    tags: tuple[Text, ...] = ()
    split: Split | None = None
    sql: str = ""
    line: int = Field(default=0, exclude=True, repr=False)

    @model_validator(mode="after")
    def _has_a_label(self) -> LabelledQuestion:
        if any(alternatives == () for alternatives in self.facts):
            raise PydanticCustomError("blank", "one of `facts` is an empty list of alternatives")
        if not any(getattr(self, label) for label in LABELS):
            raise PydanticCustomError("no_label", "has no label")
        return self

    @property
    def alternatives(self) -> tuple[tuple[str, ...], ...]:
        """The facts, each as the tuple of its spellings."""
        return tuple((fact,) if isinstance(fact, str) else fact for fact in self.facts)

    @property
    def cluster(self) -> str:
        """What it stands or falls with: its topic, or itself alone."""
        return self.topic or self.id


KEYS = tuple(name for name in LabelledQuestion.model_fields if name != "line")


@dataclass(frozen=True, slots=True)
class Unread:
    """A line that is no labelled question: its number, the id it gives (empty when none), and what is wrong with it."""

    line: int
    id: str
    error: DataError


def read_labelled(path: str | Path, project: Path | None = None) -> list[LabelledQuestion]:
    """The questions of a JSON Lines file, in its order; blank lines are passed over.

    Raises `DataError`, naming the first line, for anything that is not a labelled question. Its mend tells how to have
    all of them listed when the file is that of a `project`, whose folder is given.
    """
    questions, unread = read_lines(path)
    if unread:
        first = unread[0].error
        listed = f"ragc data check {shlex.quote(os.path.relpath(project))} lists all such lines." if project else ""
        raise DataError(first.what, f"{first.mend} {listed}".strip())
    return questions


def read_lines(path: str | Path) -> tuple[list[LabelledQuestion], list[Unread]]:
    """As `read_labelled`, and every line that is no labelled question. Raises `DataError` for a file without lines."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DataError(
            f"There are no labelled questions at {path}.",
            "Write them there, or correct [labelled] path in ragc.toml.",
        ) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.", "Make it a readable file.") from error
    questions: list[LabelledQuestion] = []
    unread: list[Unread] = []
    first_line: dict[str, int] = {}
    # Only "\n" ends a line: str.splitlines would cut a question at a U+2028 inside it.
    for line, raw in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not raw.strip():
            continue
        where = f"{path.name} line {line}"
        fields: dict[str, Any] = {}
        try:
            fields = _object(raw, where)
            _check_keys(fields, where)
            question = _question(raw, fields, where, line)
            if question.id in first_line:
                raise DataError(
                    f"{where}: the id {question.id!r} is already that of line {first_line[question.id]}.",
                    "Give each question an id of its own.",
                )
        except DataError as error:
            told = fields.get("id")
            unread.append(Unread(line, told if isinstance(told, str) else "", error))
            continue
        first_line[question.id] = line
        questions.append(question)
    if not questions and not unread:
        raise DataError(f"{path} holds no questions.", "Write one JSON object a line.")
    return questions, unread


def splits(
    questions: Sequence[LabelledQuestion], seed: int = 0, before: Mapping[str, str] | None = None
) -> dict[str, list[LabelledQuestion]]:
    """The questions of train, dev and test, each in the order given.

    The split that a question was in `before` (by its digest) counts most, else its own `split`; the others are divided
    about 50/20/30 so that no topic, and no evidence passage, is in two splits. The same questions and seed give the
    same division, whatever their order.
    """
    known = before or {}
    placed = [q.model_copy(update={"split": known.get(question_digest(q.question), q.split)}) for q in questions]
    where = assign(placed, seed)
    return {split: [q for q in questions if where[q.id] == split] for split in SPLITS}


def content_digest(questions: Sequence[LabelledQuestion]) -> str:
    """Names the questions, with all their labels, in this order: SHA-256 in hexadecimal."""
    rows = [question.model_dump(mode="json") for question in questions]
    return hashlib.sha256(orjson.dumps(rows, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _object(raw: bytes, where: str) -> dict[str, Any]:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(items)
        if len(fields) < len(items):
            keys = [key for key, _ in items]
            repeated = next(key for key in keys if keys.count(key) > 1)
            raise DataError(f"{where}: the key {repeated!r} occurs twice.", "Keep one of them.")
        return fields

    try:
        fields = json.loads(raw.decode("utf-8"), object_pairs_hook=pairs)
    except UnicodeDecodeError as error:
        raise DataError(f"{where} is not UTF-8 text.", "Save the file as UTF-8.") from error
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", "nested too deep")
        raise DataError(f"{where} is not JSON: {reason}.", "Write one whole JSON object on each line.") from error
    if not isinstance(fields, dict):
        raise DataError(f"{where} is not a JSON object.", 'Write {"id": ..., "question": ..., ...} on each line.')
    return fields


def _check_keys(fields: Mapping[str, Any], where: str) -> None:
    for key in fields:
        if key not in KEYS:
            raise DataError(f"{where}: unknown key {key!r}.", _nearest(key, KEYS))


def _question(raw: bytes, fields: Mapping[str, Any], where: str, line: int) -> LabelledQuestion:
    try:
        question = LabelledQuestion.model_validate_json(raw.strip(), strict=True)
    except ValidationError as error:
        raise _data_error(error, fields, where) from error
    bases = dict.fromkeys(id_.partition("/")[0] for id_ in question.evidence if "/" in id_)
    return question.model_copy(update={"line": line, "sources": question.sources or tuple(bases)})


_EXPECTED = {
    **dict.fromkeys(("id", "question", "topic", "answer", "sql"), "a text in quotes"),
    **dict.fromkeys(("sources", "sub_queries", "evidence", "not_facts", "tags"), "a list of texts"),
    "facts": "a list of texts; alternatives are a list inside it",
    "as_of": "a date such as 2026-03-01",
    **{
        name: "one of " + ", ".join(get_args(options))
        for name, options in {
            "outcome": Outcome,
            "route": Route,
            "strategy": Strategy,
            "split": Split,
        }.items()
    },
}


def _data_error(error: ValidationError, fields: Mapping[str, Any], where: str) -> DataError:
    first = error.errors()[0]
    if first["type"] == "no_label":
        return DataError(f"{where} has no label.", f"Add at least one of {', '.join(LABELS)}.")
    key = str(first["loc"][0]) if first["loc"] else "facts"
    if first["type"] == "missing":
        return DataError(f"{where}: the key {key!r} is missing.", "Every question needs an id and a question.")
    if any(e["type"] == "blank" for e in error.errors()):
        return DataError(f"{where}: {key!r} is empty or holds an empty text.", "Fill it in, or leave the key out.")
    value = fields.get(key)
    if first["type"] == "literal_error" and isinstance(value, str):
        options = [option.removesuffix(",") for option in _EXPECTED[key].removeprefix("one of ").split()]
        return DataError(f"{where}: unknown {key} {value!r}.", _nearest(value, options))
    shown = json.dumps(value, ensure_ascii=True)
    return DataError(
        f"{where}: {key!r} cannot be {shown[:60]}{'...' if len(shown) > 60 else ''}.",
        f"Make it {_EXPECTED[key]}.",
    )


def _nearest(word: str, valid: Sequence[str]) -> str:
    near = difflib.get_close_matches(word.lower(), valid, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Use one of {', '.join(valid)}."
