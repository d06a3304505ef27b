"""The layouts of question sets, each read in this one place: BEIR's folder, SQuAD's JSON, rows of JSON, YAML."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ragc.errors import DataError
from ragc.passage import Flaw

_LISTS = ("tests", "goldens", "test_cases", "samples", "examples", "data")
"""The fields of an object that hold its cases, in the files of evaluation tools."""


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
