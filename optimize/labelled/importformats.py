"""The layouts of public question sets: BEIR, HotpotQA, 2WikiMultihopQA, MuSiQue, SQuAD 2.0 and CSV."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from program.errors import DataError


@dataclass(frozen=True, slots=True)
class Imported:
    """One question of a set: `answers` are spellings of one answer, `evidence` keys of its passages."""

    id: str
    question: str
    answers: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    answered: bool = True
    sub_queries: tuple[str, ...] = ()
    topic: str = ""
    tags: tuple[str, ...] = ()


@dataclass(slots=True)
class Passages:
    """The passages of a set by key, each text once."""

    texts: dict[str, tuple[str, str]] = field(default_factory=dict)
    _keys: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, title: str, text: str, key: str = "") -> str:
        """The key of a passage: the one given, or that of the same title and text, or the next."""
        title, text = " ".join(title.split()), text.strip()
        if not key:
            key = self._keys.setdefault((title, text), f"p{len(self._keys) + 1}")
        if text:  # an empty one can neither be found nor cited
            self.texts[key] = title, text
        return key


Reader = Callable[[Path, Passages], Iterator[Imported]]


def detected(source: Path) -> str:
    """The format that a file or folder looks like. Raises `DataError` when it looks like none."""
    if source.is_dir() and (source / "corpus.jsonl").is_file():
        return "beir"
    if source.suffix.lower() == ".csv":
        return "csv"
    if source.is_file():
        with source.open(encoding="utf-8", errors="replace") as file:
            head = file.read(200_000)
        marks = {
            "musique": '"paragraph_text"',
            "squad": '"qas"',
            "2wiki": '"evidences"',
            "hotpotqa": '"supporting_facts"',
        }
        for format, mark in marks.items():
            if mark in head:
                return format
    raise DataError(f"{source} looks like no known format.", f"Name one with --format: {', '.join(FORMATS)}.")


def _beir(source: Path, passages: Passages) -> Iterator[Imported]:
    """A folder of corpus.jsonl, queries.jsonl and qrels/*.tsv; questions without a qrel are left out."""
    for row in _lines(source / "corpus.jsonl"):
        passages.add(str(row.get("title") or ""), str(row["text"]), " ".join(str(row["_id"]).split()))
    relevant: dict[str, list[str]] = {}
    for file in sorted((source / "qrels").glob("*.tsv")):
        with file.open(encoding="utf-8", newline="") as rows:
            for query, passage, score in csv.reader(rows, delimiter="\t"):
                if score.strip().lstrip("-").isdigit() and int(score) > 0:
                    relevant.setdefault(query, []).append(" ".join(passage.split()))
    for row in _lines(source / "queries.jsonl"):
        key, known = str(row["_id"]), row.get("metadata") or {}
        answered = known.get("answerable") is not False
        if key in relevant or not answered:
            answers = tuple(map(str, known.get("answers") or [known.get("answer") or ""]))
            evidence = tuple(dict.fromkeys(relevant.get(key, ())))
            yield Imported(key, str(row["text"]), answers, evidence, answered, tags=_tags(known.get("type")))


def _hotpotqa(source: Path, passages: Passages) -> Iterator[Imported]:
    """HotpotQA's and 2WikiMultihopQA's JSON; contexts as pairs, or as the columns of their copies elsewhere."""
    for row in _records(source):
        context, facts = row["context"], row.get("supporting_facts") or []
        if isinstance(context, Mapping):
            context = list(zip(context["title"], context.get("sentences") or context["content"], strict=True))
        titles = set(facts["title"] if isinstance(facts, Mapping) else [title for title, *_ in facts])
        keys = {title: passages.add(title, "".join(_spaced(sentences))) for title, sentences in context}
        evidence = tuple(key for title, key in keys.items() if title in titles)
        yield Imported(
            str(row.get("_id") or row["id"]),
            row["question"],
            (str(row["answer"]),),
            evidence,
            tags=_tags(row.get("type")),
        )


def _musique(source: Path, passages: Passages) -> Iterator[Imported]:
    """MuSiQue's JSON Lines; a hop that names an earlier one (#1) gets its answer put in."""
    for row in _lines(source):
        keys = [passages.add(p["title"], p["paragraph_text"]) for p in row["paragraphs"]]
        evidence = tuple(k for k, p in zip(keys, row["paragraphs"], strict=True) if p.get("is_supporting"))
        hops = row.get("question_decomposition") or []
        found = [str(hop["answer"]) for hop in hops]
        asked = tuple(_filled(str(hop["question"]), found) for hop in hops)
        answered = row.get("answerable", True)
        answers = (str(row["answer"]), *map(str, row.get("answer_aliases") or ()))
        yield Imported(
            str(row["id"]),
            row["question"],
            answers if answered else (),
            tuple(dict.fromkeys(evidence)) if answered else (),
            answered,
            asked if answered else (),
            tags=(f"{len(hops)}-hop",) if hops else (),
        )


def _squad(source: Path, passages: Passages) -> Iterator[Imported]:
    """SQuAD 1.1's and 2.0's JSON; an article is a topic, an impossible question one to abstain from."""
    for article in json.loads(source.read_text(encoding="utf-8"))["data"]:
        title = article["title"].replace("_", " ")
        for paragraph in article["paragraphs"]:
            key = passages.add(title, paragraph["context"])
            for qa in paragraph["qas"]:
                answered = not qa.get("is_impossible", False)
                answers = tuple(a["text"] for a in qa["answers"]) if answered else ()
                yield Imported(qa["id"], qa["question"], answers, (key,) if answered else (), answered, topic=title)


def _csv(source: Path, passages: Passages) -> Iterator[Imported]:
    """A table with a column `question` and any of id, answer, title, context, topic, outcome."""
    with source.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        for number, raw in enumerate(rows, 1):
            row = {str(key).strip().lower(): str(value or "").strip() for key, value in raw.items()}
            if "question" not in row:
                raise ValueError(f"its first line names no column `question`, but {', '.join(row)}")
            answered = row.get("outcome", "answered") in ("", "answered")
            context = row.get("context") or row.get("text") or ""
            key = passages.add(row.get("title", ""), context) if context else ""
            if row["question"] and (key or row.get("answer") or not answered):
                yield Imported(
                    row.get("id") or f"{source.stem}-{number}",
                    row["question"],
                    (row.get("answer", ""),),
                    (key,) if key and answered else (),
                    answered,
                    topic=row.get("topic", ""),
                )


FORMATS: dict[str, Reader] = {
    "beir": _beir,
    "hotpotqa": _hotpotqa,
    "2wiki": _hotpotqa,
    "musique": _musique,
    "squad": _squad,
    "csv": _csv,
}


def _records(source: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON list, or of JSON Lines."""
    if source.suffix == ".jsonl":
        yield from _lines(source)
    else:
        yield from json.loads(source.read_text(encoding="utf-8"))


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines if line.strip())


def _filled(question: str, answers: Sequence[str]) -> str:
    """A hop's question with the answers of the hops before it in the place of #1, #2 and so on."""

    def answer(mark: re.Match[str]) -> str:
        number = int(mark[1])
        return answers[number - 1] if 1 <= number <= len(answers) else mark[0]

    return re.sub(r"#(\d)", answer, question)


def _spaced(sentences: list[str]) -> Iterator[str]:
    """Sentences that may or may not bring the space between them along."""
    for n, sentence in enumerate(sentences):
        yield sentence if n == 0 or sentence.startswith(" ") else f" {sentence}"


def _tags(kind: object) -> tuple[str, ...]:
    return (str(kind),) if kind else ()
