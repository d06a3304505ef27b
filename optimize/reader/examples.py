"""Questions with passages that answer them or do not: read from files, drawn in groups, and put to a reader."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Annotated, Any

import numpy as np
from dspy.evaluate.metrics import normalize_text
from pydantic import BaseModel, BeforeValidator, ValidationError

from ragc.errors import DataError, describe_fault
from ragc.knowledge.ingest.convert import read_markdown
from ragc.models.embedded.encoder import Embedder
from ragc.models.embedded.reader import Reader
from ragc.optimize.labelled.formats import read_squad
from ragc.storage import digest_file

NEGATIVES = 8  # passages that search finds for a question and that do not answer it, to draw from
REMOVED = 0.2  # of answerable questions, the share that is asked again without the sentences that answer
FORMATS = "Give SQuAD's JSON, or JSONL with question, context and answers in each line."
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


@dataclass(frozen=True, slots=True)
class ReadingExample:
    """A question and a passage; `answers` are pieces of its text, none where it does not answer."""

    question: str
    title: str
    text: str
    answers: tuple[str, ...] = ()

    def spans(self) -> list[tuple[int, int]]:
        """Return where the answers stand in the text, as whole words if they can."""
        for edge in (r"(?<!\w){}(?!\w)", "{}"):
            patterns = [edge.format(re.escape(answer)) for answer in self.answers]
            if found := {match.span() for pattern in patterns for match in re.finditer(pattern, self.text)}:
                return sorted(found)
        return []


@dataclass(slots=True)
class DataFile:
    """A file of reading examples, and the share of it that an epoch takes."""

    path: Path
    share: float = 1.0
    examples: list[ReadingExample] = field(default_factory=list)

    @classmethod
    def read(cls, word: str) -> DataFile:
        """Return the file that `FILE` or `FILE:SHARE` names; the share is above 0 and at most 1."""
        plain = ":" not in word or Path(word).exists()
        name, _, share = f"{word}:1".rpartition(":") if plain else word.rpartition(":")
        if not re.fullmatch(r"0?\.\d*[1-9]\d*|1(\.0*)?", share):
            mend = "Write FILE:0.5 for half of it an epoch, or FILE for all of it."
            raise DataError(f"{share!r} is no share of {name}.", mend, path=name)
        return cls(Path(name), float(share), read_examples(Path(name)))

    def describe(self) -> dict[str, Any]:
        """Return what a card says of the file."""
        sizes = {"questions": len(self.examples), "answered": sum(bool(one.answers) for one in self.examples)}
        return {"file": self.path.name, "sha256": digest_file(self.path), **sizes}


class _Row(BaseModel):
    question: str
    context: str
    title: str | None = None
    answers: list[Annotated[str, BeforeValidator(lambda a: a.get("text") if isinstance(a, dict) else a)]] | None = None
    answerable: bool = True
    is_impossible: bool = False


def read_examples(path: Path) -> list[ReadingExample]:
    """Return the questions of a file.

    It is SQuAD's JSON, or JSONL with `question`, `context`, `answers` and maybe `title`. An answer is an object with
    `text`, or the text itself. A question without answers, or with `answerable` or `is_impossible` to say so, is one
    that its passage does not answer. Markdown tables become rows, as at ingest; a question whose answer goes across
    cells is left out. Raises `DataError` with the line or id of what cannot be read.
    """
    place, found = "", list[ReadingExample]()
    try:
        for where, row in _list_rows(path):
            place = where
            found += _read_row(_Row.model_validate_json(row) if isinstance(row, bytes) else _Row(**row))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        what = f"{'.'.join(map(str, first['loc']))} {describe_fault(first)}" if first else error
        raise DataError(f"{path}{place}: {what}.", FORMATS, path=str(path)) from error
    if not any(one.answers for one in found):
        raise DataError(f"{path} holds no question with an answer.", FORMATS, path=str(path))
    return found


def _list_rows(path: Path) -> list[tuple[str, Any]]:
    """Return what each question stands in, with its place."""
    if path.suffix != ".json":
        return [(f", line {n}", line) for n, line in enumerate(path.read_bytes().splitlines(), 1) if line.strip()]
    rows = [{"title": title, "context": context, **one} for title, context, one in read_squad(path)]
    return [(f", question {row.get('id', n)}", row) for n, row in enumerate(rows)]


def _read_row(row: _Row) -> Iterator[ReadingExample]:
    silent = row.is_impossible or not row.answerable
    stripped = [] if silent else [answer.strip() for answer in row.answers or ()]
    if stripped and not any(answer and answer in row.context for answer in stripped):
        raise ValueError(f"the answer {stripped[0]!r} is not in the passage, of which it must be an exact piece")
    text = write_rows(row.context)
    kept = tuple(answer for answer in dict.fromkeys(stripped) if answer and answer in text)
    if kept or not stripped:
        yield ReadingExample(row.question.strip(), (row.title or "").replace("_", " "), text, kept)


def write_rows(text: str) -> str:
    """Return a Markdown text with its tables as rows; any other as it is."""
    blocks = read_markdown(text) if "|" in text else []
    if all(block.kind != "row" for block in blocks):
        return text
    return "".join(f"{'' if block.joined else chr(10)}{block.text}\n" for block in blocks).strip()


def find_negatives(examples: Sequence[ReadingExample], embedder: Embedder) -> list[list[ReadingExample]]:
    """Return for each answerable question passages that do not answer it.

    They are the nearest by the cosine of sentence vectors, of all passages of these examples, but those that hold one
    of its answers and those that are labelled as answering the same words. An unanswerable question has none.
    """
    passages = list(dict.fromkeys((one.title, one.text) for one in examples))
    answering: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for one in examples:
        if one.answers:
            answering[one.question.casefold()].add((one.title, one.text))
    vectors = embedder.encode([f"{title}\n{text}" for title, text in passages])
    questions = embedder.encode([one.question for one in examples])
    found: list[list[ReadingExample]] = []
    for one, vector in zip(examples, questions, strict=True):
        near = np.argsort(-(vectors @ vector), kind="stable")[: 4 * NEGATIVES] if one.answers else ()
        others = (passages[n] for n in near if passages[n] not in answering[one.question.casefold()])
        silent = [passage for passage in others if not any(answer in passage[1] for answer in one.answers)]
        found.append([ReadingExample(one.question, *passage) for passage in silent[:NEGATIVES]])
    return found


def draw_groups(
    examples: Sequence[ReadingExample], negatives: Sequence[Sequence[ReadingExample]], passages: int, random: Random
) -> list[list[ReadingExample]]:
    """Return groups of a question with its own passage and ones that search finds.

    They are at most `passages`. Of some answerable questions the passage without the sentences that answer is a group.
    """
    made: list[list[ReadingExample]] = []
    for one, found in zip(examples, negatives, strict=True):
        made.append([one, *random.sample(found, min(passages - 1, len(found)))])
        if one.answers and random.random() < REMOVED:
            parts = _SENTENCE_END.split(one.text)
            rest = " ".join(part for part in parts if not any(answer in part for answer in one.answers))
            if rest and not any(answer.casefold() in rest.casefold() for answer in one.answers):
                made.append([replace(one, text=rest, answers=())])
    return made


def measure_reader(reader: Reader, examples: Sequence[ReadingExample]) -> dict[str, float]:
    """Return how a reader does on labelled questions, as it is served.

    `exact` is the share of answerable questions whose best span is an answer in SQuAD's normal form; `auc_...`, where
    some are unanswerable, how often an answerable one is above these by `answers`, the margin, or both (half of this).
    """
    from sklearn.metrics import roc_auc_score

    read = reader.read_pairs([(one.question, (one.title, one.text)) for one in examples])
    right = [
        normalize_text(one.text[slice(*found.span)]) in {normalize_text(answer) for answer in one.answers}
        for one, found in zip(examples, read, strict=True)
    ]
    answered = np.array([bool(one.answers) for one in examples])
    answers, margins = np.array([(found.answers, found.margin) for found in read]).T
    figures = {"exact": float(np.mean(np.array(right)[answered]))}
    if not answered.all():
        for name, scores in (("answers", answers), ("margin", margins), ("sum", answers + margins / 2)):
            figures[f"auc_{name}"] = float(roc_auc_score(answered, scores))
    return figures
