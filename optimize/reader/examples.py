"""Questions with passages that answer them or do not: read from files, and varied for training."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import orjson

from program.errors import DataError
from program.models.embedded.encoder import Embedder

NEGATIVES = 8  # passages kept for a question that search finds for it and that do not answer it
RATES = {"negative": 0.7, "removed": 0.2, "altered": 0.15, "alone": 0.15}  # of answerable questions, an epoch
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_NAME = re.compile(r"(?<=[\w,] )[A-Z][\w'-]+(?: [A-Z][\w'-]+)*|\b\d[\d.,]*\b")  # inside a question, not first in it


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


def read_examples(path: Path) -> list[ReadingExample]:
    """Return the questions of a file.

    It is SQuAD's JSON, or JSONL with `question`, `context`, `answers` and maybe `title`. An answer is an object with
    `text`, or the text itself. A question without answers, or with `answerable` or `is_impossible` to say so, is one
    that its passage does not answer. Raises `DataError` with the line or id of what cannot be read, and for an answer
    that is not in its passage.
    """
    place = ""
    try:
        if path.suffix == ".json":
            named = [(str(one.get("id", n)), one) for n, one in enumerate(_list_squad(orjson.loads(path.read_bytes())))]
        else:
            named = []
            for n, line in enumerate(path.read_bytes().splitlines(), 1):
                place = f", line {n},"
                if line.strip():
                    named.append((f"line {n}", orjson.loads(line)))
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        what = f"{path}{place} cannot be read as reading examples: {error}."
        raise DataError(what, _FORMATS, path=str(path)) from error
    if not named:
        raise DataError(f"{path} holds no question.", _FORMATS, path=str(path))
    return [_read_one(path, place, one) for place, one in named]


_FORMATS = "Give SQuAD's JSON, or JSONL with question, context and answers in each line."


def _list_squad(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for document in found["data"]:
        for paragraph in document["paragraphs"]:
            for asked in paragraph["qas"]:
                yield {"title": document.get("title", ""), "context": paragraph["context"], **asked}


def _read_one(path: Path, place: str, one: Any) -> ReadingExample:
    try:
        question, text, answers = one["question"], one["context"], one.get("answers") or []
        silent = one.get("is_impossible", False) or not one.get("answerable", True)
        texts = [answer["text"] if isinstance(answer, Mapping) else answer for answer in answers]
        if not (isinstance(answers, list) and all(isinstance(part, str) for part in (question, text, *texts))):
            raise TypeError("question and context must be texts, and answers a list of them")
    except (KeyError, TypeError, AttributeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise DataError(f"{path}, {place}: {what}.", _FORMATS, path=str(path)) from error
    stripped = [] if silent else list(dict.fromkeys(answer.strip() for answer in texts))
    kept = tuple(answer for answer in stripped if answer and answer in text)
    if stripped and not kept:
        raise DataError(
            f"{path}, {place}: the answer {stripped[0]!r} is not in the passage.",
            "Answers must be exact pieces of the passage.",
            path=str(path),
        )
    return ReadingExample(question.strip(), str(one.get("title") or "").replace("_", " "), text, kept)


def find_negatives(examples: Sequence[ReadingExample], embedder: Embedder) -> list[list[ReadingExample]]:
    """Return for each answerable question passages that do not answer it.

    They are the nearest by the cosine of sentence vectors, of all passages of these examples, but those that hold one
    of its answers and those that are labelled as answering the same words. An unanswerable question has none.
    """
    passages = list(dict.fromkeys((one.title, one.text) for one in examples))
    if len(passages) < 2:
        return [[] for _ in examples]
    answering: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for one in examples:
        if one.answers:
            answering[one.question.casefold()].add((one.title, one.text))
    vectors = embedder.encode([f"{title}\n{text}" for title, text in passages])
    questions = embedder.encode([one.question for one in examples])
    found: list[list[ReadingExample]] = []
    for at in range(0, len(examples), 1024):
        near = np.argsort(-(questions[at : at + 1024] @ vectors.T), axis=1, kind="stable")[:, : 4 * NEGATIVES]
        for one, order in zip(examples[at : at + 1024], near, strict=True):
            others = (passages[n] for n in order if passages[n] not in answering[one.question.casefold()])
            silent = [(title, text) for title, text in others if not any(a in text for a in one.answers)]
            kept = silent[:NEGATIVES] if one.answers else []
            found.append([ReadingExample(one.question, title, text) for title, text in kept])
    return found


def vary(
    examples: Sequence[ReadingExample], negatives: Sequence[Sequence[ReadingExample]], random: Random
) -> list[ReadingExample]:
    """Return an epoch's examples: the given ones, and variations drawn at `RATES`.

    Of an answerable question: the same with a passage that search finds for it; the same without the sentences that
    hold the answer; the answer's sentence alone; with a name or number changed into another passage's (one that the
    passage does not hold), which leaves it unanswerable.
    """
    names = sorted({name for one in examples for name in _NAME.findall(one.question)})
    made: list[ReadingExample] = []
    for one, others in zip(examples, negatives, strict=True):
        made.append(one)
        if not one.answers:
            continue
        if others and random.random() < RATES["negative"]:
            made.append(random.choice(others))
        if random.random() < RATES["removed"] and (rest := _without_answer(one)):
            made.append(rest)
        if random.random() < RATES["alone"]:
            made.append(_answer_alone(one))
        if random.random() < RATES["altered"] and (altered := _alter(one, names, random)):
            made.append(altered)
    return made


def _without_answer(one: ReadingExample) -> ReadingExample | None:
    kept = [part for part in _SENTENCE_END.split(one.text) if not any(answer in part for answer in one.answers)]
    text = " ".join(kept)
    silent = kept and not any(answer.casefold() in text.casefold() for answer in one.answers)
    return replace(one, text=text, answers=()) if silent else None


def _answer_alone(one: ReadingExample) -> ReadingExample:
    held = [part for part in _SENTENCE_END.split(one.text) if one.answers[0] in part]
    return replace(one, text=held[0], answers=tuple(a for a in one.answers if a in held[0])) if held else one


def _alter(one: ReadingExample, names: Sequence[str], random: Random) -> ReadingExample | None:
    held = [name for name in _NAME.findall(one.question) if name in one.text]
    if not held:
        return None
    name = random.choice(held)
    wanted = [other for other in random.sample(names, min(len(names), 40)) if other[0].isdigit() == name[0].isdigit()]
    fitting = [other for other in wanted if other not in one.text and len(other.split()) == len(name.split())]
    return replace(one, question=one.question.replace(name, fitting[0]), answers=()) if fitting else None
