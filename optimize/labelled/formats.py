"""The layouts of question sets, each read in this one place.

They are BEIR's folder, SQuAD's JSON, rows of JSON and YAML, and what people and evaluation tools write: tables and test
cases.
"""

from __future__ import annotations

import ast
import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from ragc.errors import DataError
from ragc.knowledge.ingest.csv_rows import EXCEL, SUFFIXES, CsvTable, read_table_file
from ragc.passage import Flaw

_LISTS = ("tests", "goldens", "test_cases", "samples", "examples", "data")
"""The fields of an object that hold its cases, in the files of evaluation tools."""
FIELDS: Mapping[str, tuple[str, ...]] = {
    "question": ("question", "user_input", "input", "query", "prompt", "q"),
    "answer": (
        *("answer", "reference", "expected_output", "__expected", "ground_truth", "ground_truths", "ideal", "expected"),
        "a",
    ),
    "context": ("context", "reference_contexts", "retrieved_contexts", "retrieval_context", "contexts", "text"),
}
"""The fields of tables and of the test cases of tools, by what they hold; the first that is filled counts."""
_ASSERTION = re.compile(r"^(?:i?contains|equals|similar(?:\([\d.]+\))?|llm-rubric|factuality):\s*")
_MANY = ("-any", "-all")
_STATED = (
    *("contains", "icontains", "equals", "similar", "factuality", "starts-with"),
    *(f"{kind}{many}" for kind in ("contains", "icontains") for many in _MANY),
)
"""The assertions of promptfoo whose value is an answer or a part of one."""


@dataclass(frozen=True, slots=True)
class Item:
    """One question of a set: spellings of its answer, keys of its passages."""

    id: str
    question: str
    answers: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    answered: bool = True
    sub_queries: tuple[str, ...] = ()
    topic: str = ""
    tags: tuple[str, ...] = ()
    history: tuple[dict[str, str], ...] = ()
    facts: tuple[str | tuple[str, ...], ...] = ()  # where they are not the answer


class Passages:
    """The passages of a set by key, what of it was not read, and by which names it was asked to be read."""

    def __init__(self, question: str = "", answer: str = "", abstain: bool = False, looked_up: bool = False) -> None:
        self.question, self.answer = question, answer  # the columns that hold them; empty: those of the usual names
        self.abstain = abstain  # whether a question without an answer is one to abstain from
        self.looked_up = looked_up  # whether an answer without evidence is looked up in documents
        self.texts: dict[str, tuple[str, str]] = {}
        self.flaws: list[Flaw] = []
        self._keys: dict[tuple[str, str], str] = {}

    def add(self, title: str, text: str, key: str = "") -> str:
        """Return the key of a passage: given, of the same text, or the next one."""
        title, text = " ".join(title.split()), text.strip()
        key = key or self._keys.setdefault((title, text), f"p{len(self._keys) + 1}")
        if text:  # an empty one can neither be found nor cited
            self.texts[key] = title, text
        return key


@dataclass(frozen=True, slots=True)
class BeirSet:
    """A folder in BEIR's layout."""

    corpus: Path  # the file of its passages
    queries: Mapping[str, Mapping[str, Any]]  # by id
    judged: Mapping[str, Mapping[str, float]]  # by query the grade, above 0, of each passage that answers it


def read_beir(folder: Path, split: str = "*") -> BeirSet:
    """Read a folder in BEIR's layout, with the judgements of one split, or of all.

    Raises `DataError` for a file that is absent or malformed.
    """
    corpus, queries, qrels = folder / "corpus.jsonl", folder / "queries.jsonl", folder / "qrels"
    files = sorted(qrels.glob(f"{split}.tsv")) or [qrels / "test.tsv"]
    for path in (corpus, queries, *files):
        if not path.is_file():
            raise DataError(f"{path} does not exist.", "BEIR's layout: corpus.jsonl, queries.jsonl, qrels/test.tsv.")
    judged: dict[str, dict[str, float]] = {}
    try:
        for file in files:
            for query, passage, grade in csv.reader(file.read_text(encoding="utf-8").splitlines(), delimiter="\t"):
                if grade != "score" and float(grade) > 0:  # the head of the columns
                    judged.setdefault(query, {})[" ".join(passage.split())] = float(grade)
        found = {str(row["_id"]): {**row, "text": str(row["text"])} for row in list_objects(queries)}
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder} is not in BEIR's layout: {error}.", "Compare it with a set from BEIR.") from error
    return BeirSet(corpus, found, judged)


def read_squad(file: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield title, paragraph and object of each question in SQuAD's JSON."""
    for article in json.loads(file.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            yield from ((article.get("title") or "", paragraph["context"], asked) for asked in paragraph["qas"])


def list_objects(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON, JSON Lines or YAML."""
    if file.suffix.lower() in (".yaml", ".yml"):
        yield from _find_list(yaml.safe_load(file.read_text(encoding="utf-8")))
        return
    with file.open(encoding="utf-8") as lines:
        head = lines.read(100).lstrip()
        lines.seek(0)
        first = "" if head.startswith("[") else next(filter(str.strip, lines), "")
        lines.seek(0)
        try:
            whole = head.startswith("[") or not {*_LISTS}.isdisjoint(json.loads(first))
        except ValueError:  # an object over several lines
            whole = True
        if whole:
            yield from _find_list(json.load(lines))
        else:
            yield from (json.loads(line) for line in lines if line.strip())


def _find_list(tree: Any) -> list[dict[str, Any]]:
    if isinstance(tree, Mapping):
        tree = next((tree[name] for name in _LISTS if isinstance(tree.get(name), list)), [tree])
    return [dict(one) for one in tree or () if isinstance(one, Mapping)]


def read_cases(source: Path, passages: Passages) -> Iterator[Item]:
    """Read a table of questions, or a tool's test cases; what they lack is noted.

    Beside FIELDS they may have id, title, topic, outcome and promptfoo's assertions. Each context is evidence. Raises
    `DataError` where nothing is named as a question.
    """
    rows, table = _read_rows(source, passages)
    named = {"question": passages.question, "answer": passages.answer, "context": ""}
    fields = {what: (named[what].lower(),) if named[what] else usual for what, usual in FIELDS.items()}
    held = table.header or list(dict.fromkeys(name for _, row in rows for name in row)) or FIELDS
    listed, known = ", ".join(filter(None, held)), {name.lower() for name in held}
    if lost := next((own for own in named.values() if own and own.lower() not in known), ""):
        raise DataError(f"{source} has no column {lost!r}.", f"Name one of its own: {listed}.")
    if known.isdisjoint(fields["question"]):
        raise DataError(f"{source} names no column `question`, but {listed}.", "Say which holds it: --question COLUMN.")
    unasked, useless, unfounded = list[int](), list[int](), list[int]()
    for number, (line, row) in enumerate(rows, 1):
        question, history = _read_messages(_first_filled(row, fields["question"]))
        facts = _read_assertions(row.get("assert") or ())
        answer = facts[0] if facts else _first_filled(row, fields["answer"])
        if len(facts) > 1:  # an answer states all of them
            answer = "; ".join(fact if isinstance(fact, str) else fact[0] for fact in facts)
        answers = tuple(text for one in _read_list(answer) if (text := _ASSERTION.sub("", one).strip()))
        contexts = _read_list(_first_filled(row, fields["context"]))
        empty = not (contexts or answers)
        answered = row.get("outcome") not in ("clarify", "abstain") and not (empty and passages.abstain)
        if not question.strip() or (answered and empty):
            (useless if question.strip() else unasked).append(line)
            continue
        keys = tuple(passages.add(row.get("title") or "", context) for context in contexts)
        if answered and not contexts:
            unfounded.append(line)
        yield Item(
            id=str(row.get("id") or f"{source.stem}-{number}"),
            question=question,
            answers=answers,
            evidence=keys if answered else (),
            answered=answered,
            topic=row.get("topic") or "",
            history=history,
            facts=facts if len(facts) > 1 else (),
        )
    table.note_rows("without a question; left out", unasked, "Fill the column `question`.")
    mend = "Fill the column `context` or `answer`, or have the program abstain there: --abstain."
    if known.isdisjoint((*fields["answer"], *fields["context"], "assert")):
        mend = f"Add a column `context` or `answer`: there are {listed}; --answer names another."
    table.note_rows("with neither context nor answer; left out", useless, mend)
    if not passages.looked_up:
        what = "without a context, so that the answer has no evidence"
        table.note_rows(what, unfounded, "Fill the column `context`.")
    passages.flaws = [replace(flaw, path=source.name) for flaw in table.flaws]


def _read_rows(source: Path, passages: Passages) -> tuple[list[tuple[int, dict[str, Any]]], CsvTable]:
    """Return the rows by lower-case field with their lines, or their numbers, and the table that notes what is odd.

    Of two columns without a usual name the first holds the question.
    """
    if source.suffix.lower() not in (*SUFFIXES, *EXCEL):
        cases = ({**case, **(case.get("vars") or {})} for case in list_objects(source))
        return [
            (n, {name.lower(): value for name, value in case.items()}) for n, case in enumerate(cases, 1)
        ], CsvTable()
    table = read_table_file(source)
    names = [name.lower() for name in table.header]
    own = {passages.question.lower(), passages.answer.lower()}.union(*FIELDS.values())
    if len(names) == 2 and own.isdisjoint(names):
        table.note(f"its columns {' and '.join(map(repr, table.header))} were taken for question and answer", 1, "")
        table.header = names = ["question", "answer"]
    pairs = ((row.first, zip(reversed(names), reversed(row.cells[: len(names)]), strict=True)) for row in table.rows)
    return [(line, dict(row)) for line, row in pairs], table  # of two columns of a name the first


def _read_list(given: Any) -> list[str]:
    """Return the texts of a list, also of one in a cell, as pandas and JSON write it; a text is itself one."""
    if isinstance(given, str) and given.startswith("[") and given.endswith("]"):
        for read in (json.loads, ast.literal_eval):
            try:
                given = read(given)
                break
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
    return [str(one) for one in (given if isinstance(given, list | tuple) else [given]) if str(one).strip()]


def _read_assertions(assertions: Sequence[Mapping[str, Any]]) -> tuple[str | tuple[str, ...], ...]:
    """Return the facts that promptfoo's assertions ask for."""
    facts: list[str | tuple[str, ...]] = []
    for one in assertions:
        kind, value = str(one.get("type")), one.get("value")
        many = value if isinstance(value, list) else str(value).split(",") if kind.endswith(_MANY) else [value]
        spelt = tuple(text for text in (str(each).strip() for each in many if each is not None) if text)
        if kind in _STATED and spelt:
            facts += spelt if kind.endswith("-all") or len(spelt) == 1 else [spelt]
    return tuple(facts)


def _read_messages(given: Any) -> tuple[str, tuple[dict[str, str], ...]]:
    """Return the last message of a user, and the turns before it; a text is itself one."""
    if not isinstance(given, list):
        return str(given), ()
    turns = [one for one in given if one.get("role") in ("user", "assistant") and str(one.get("content", "")).strip()]
    while turns and turns[-1]["role"] != "user":
        turns.pop()
    said = [{"role": str(one["role"]), "content": str(one["content"])} for one in turns]
    return (said[-1]["content"], tuple(said[:-1])) if said else ("", ())


def _first_filled(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((row[name] for name in names if row.get(name)), "")
