"""Questions and answers as people and evaluation tools write them: tables, and test cases in JSON or YAML."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragc.knowledge.ingest.csv_rows import CsvTable, read_table_file
from ragc.optimize.labelled.formats import Item, Passages, list_objects
from ragc.passage import Flaw

QUESTION = ("question", "user_input", "input", "query", "prompt", "q")
ANSWER = (
    "answer",
    "reference",
    "expected_output",
    "__expected",
    "ground_truth",
    "ground_truths",
    "ideal",
    "expected",
    "a",
)
CONTEXT = ("context", "reference_contexts", "retrieved_contexts", "retrieval_context", "contexts")
"""The fields of tables and of the test cases of tools, by what they hold; the first that is filled counts."""
_ASSERTION = re.compile(r"^(?:i?contains|equals|similar(?:\([\d.]+\))?|llm-rubric|factuality):\s*")
_MANY = ("-any", "-all")
_STATED = (
    *("contains", "icontains", "equals", "similar", "factuality", "starts-with"),
    *(f"{kind}{many}" for kind in ("contains", "icontains") for many in _MANY),
)
"""The assertions of promptfoo whose value is an answer or a part of one."""


def read_question_table(source: Path, passages: Passages) -> Iterator[Item]:
    """Read a table of questions; what it lacks is noted.

    It may have columns for question, id, answer, title, context, topic and outcome.
    """
    table = read_table_file(source)
    names = _name_columns(table, passages)
    unasked, useless, unfounded = list[int](), list[int](), list[int]()
    for number, record in enumerate(table.rows, 1):
        row = dict(zip(reversed(names), reversed(record.cells[: len(names)]), strict=True))  # of two names the first
        contexts = _read_list(row.get("context") or row.get("text") or "")
        answer = _ASSERTION.sub("", row.get("answer", ""))
        empty = not (contexts or answer)
        answered = row.get("outcome", "") in ("", "answered") and not (empty and passages.abstain)
        if not row["question"] or (answered and empty):
            (useless if row["question"] else unasked).append(record.first)
            continue
        keys = tuple(passages.add(row.get("title", ""), context) for context in contexts)
        if answered and not contexts:
            unfounded.append(record.first)
        id_, evidence = row.get("id") or f"{source.stem}-{number}", keys if answered else ()
        yield Item(id_, row["question"], (answer,), evidence, answered, topic=row.get("topic", ""))
    table.note_rows("without a question; left out", unasked, "Fill the column `question`.")
    listed = ", ".join(filter(None, table.header))
    lacks = f"Add a column `context` or `answer`: there are {listed}; --answer names another."
    mend = "Fill the column `context` or `answer`, or have the program abstain there: --abstain."
    mend = lacks if {"context", "text", "answer"}.isdisjoint(names) else mend
    table.note_rows("with neither context nor answer; left out", useless, mend)
    if not passages.looked_up:
        table.note_rows(
            "without a context, so that the answer has no evidence", unfounded, "Fill the column `context`."
        )
    passages.flaws = [replace(flaw, path=source.name) for flaw in table.flaws]


def _name_columns(table: CsvTable, passages: Passages) -> list[str]:
    """Return what each column holds, by the names that people and tools give it.

    Of two columns without such a name the first holds the question. Raises `ValueError` where none does.
    """
    header, found = [name.lower() for name in table.header], dict[str, str]()
    listed = ", ".join(filter(None, table.header))
    held = {"question": (passages.question, QUESTION), "answer": (passages.answer, ANSWER), "context": ("", CONTEXT)}
    for what, (own, usual) in held.items():
        if own and own.lower() not in header:
            raise ValueError(f"it has no column {own!r}, but {listed}")
        found[next((name for name in ([own.lower()] if own else usual) if name in header), "")] = what
    names = [found.get(name, name) if name else "" for name in header]
    if len(names) == 2 and not {*found} - {""}:
        table.note(f"its columns {' and '.join(map(repr, table.header))} were taken for question and answer", 1, "")
        names = ["question", "answer"]
    if "question" not in names:
        raise ValueError(f"its first line names no column `question`, but {listed}; --question names another")
    return names


def _read_list(cell: str) -> list[str]:
    """Return the texts of a cell: of a list, as pandas and JSON write it, its own."""
    if cell.startswith("[") and cell.endswith("]"):
        for read in (json.loads, ast.literal_eval):
            try:
                found = read(cell)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            if isinstance(found, list):
                return [str(one) for one in found if str(one).strip()]
    return [cell] if cell else []


def read_cases(source: Path, passages: Passages) -> Iterator[Item]:
    """Read the test cases of a tool; each context is evidence."""
    unanswered = 0
    for number, case in enumerate(list_objects(source), 1):
        row, facts = {**case, **(case.get("vars") or {})}, _read_assertions(case.get("assert") or ())
        question, history = _read_messages(_first_filled(row, (passages.question, *QUESTION)) or "")
        if not question.strip():
            raise KeyError(f"case {number} has none of {', '.join(QUESTION)}, but {', '.join(row)}")
        answer = facts[0] if facts else _first_filled(row, (passages.answer, *ANSWER)) or ()
        if len(facts) > 1:  # an answer states all of them
            answer = "; ".join(fact if isinstance(fact, str) else fact[0] for fact in facts)
        spelt = answer if isinstance(answer, list | tuple) else [answer]
        answers = tuple(text for one in spelt if (text := _ASSERTION.sub("", str(one)).strip()))
        held = _first_filled(row, CONTEXT) or ()
        keys = tuple(passages.add("", str(context)) for context in (held if isinstance(held, list | tuple) else [held]))
        id_, known = str(case.get("id") or f"{source.stem}-{number}"), bool(answers or keys)
        if known or passages.abstain:
            yield Item(id_, question, answers, keys, known, history=history, facts=facts if len(facts) > 1 else ())
        unanswered += not (known or passages.abstain)
    if unanswered:
        what = f"{unanswered} of its cases have neither an answer nor a context; left out"
        passages.flaws.append(Flaw(what, "Have the program abstain there: --abstain.", path=source.name))


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
    return next((row[name] for name in names if row.get(name)), None)
