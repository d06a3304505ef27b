"""The layouts of public question sets, each read in this one place: BEIR's folder, SQuAD's JSON, and rows of JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragc.errors import DataError


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
    """Yield the objects of a file: a list of JSON, or JSON Lines."""
    with file.open(encoding="utf-8") as lines:
        is_list = lines.read(100).lstrip().startswith("[")
        lines.seek(0)
        yield from json.load(lines) if is_list else (json.loads(line) for line in lines if line.strip())
